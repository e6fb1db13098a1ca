//! The optimizers of `ai.onnx.preview.training`.

use ferrane_mil::emit::Emit;
use ferrane_mil::{Constant, ValueId};

use super::state::{Built, Lower};

type Results = Built<Vec<Option<ValueId>>>;

/// `a · x + b · y`.
fn blend(l: &mut Lower<'_>, a: f32, x: ValueId, b: f32, y: ValueId) -> Built {
    let (p, q) = (l.bin("mul", x, l.num(x, a))?, l.bin("mul", y, l.num(y, b))?);
    l.bin("add", p, q)
}

/// Learning rate and update count, both known at compile time.
fn rate(l: &Lower<'_>) -> Built<(f64, f64)> {
    Ok((l.floats(0)?.first().copied().unwrap_or(0.0), l.floats(1)?.first().copied().unwrap_or(0.0)))
}

/// Applies an optimizer to each tensor. Inputs and results are grouped by kind: all weights, then
/// all gradients, and so on.
fn each(
    l: &mut Lower<'_>,
    kinds: usize,
    update: impl Fn(&mut Lower<'_>, &[ValueId]) -> Built<Vec<ValueId>>,
) -> Results {
    let count = l.count().saturating_sub(2) / kinds;
    l.spend(count)?;
    let mut groups: Vec<Vec<Option<ValueId>>> = Vec::new();
    for i in 0..count {
        let inputs: Vec<ValueId> = (0..kinds).map(|k| l.x(2 + k * count + i)).collect::<Built<_>>()?;
        for (k, value) in update(l, &inputs)?.into_iter().enumerate() {
            if groups.len() <= k {
                groups.push(Vec::new());
            }
            groups[k].push(Some(value));
        }
    }
    Ok(groups.concat())
}

pub(super) fn adagrad(l: &mut Lower<'_>) -> Results {
    let (r, t) = rate(l)?;
    let rate = r / (1.0 + t * f64::from(l.float("decay_factor", 0.0)));
    let (norm, epsilon) = (l.float("norm_coefficient", 0.0), l.float("epsilon", 0.0));
    each(l, 3, |l, v| {
        let [x, g, h] = v[..] else { return Ok(Vec::new()) };
        let g = blend(l, norm, x, 1.0, g)?;
        let square = l.un("square", g)?;
        let h = l.bin("add", h, square)?;
        let root = l.un("sqrt", h)?;
        let root = l.bin("add", root, l.num(h, epsilon))?;
        let step = l.bin("real_div", g, root)?;
        Ok(vec![blend(l, 1.0, x, -rate as f32, step)?, h])
    })
}

pub(super) fn adam(l: &mut Lower<'_>) -> Results {
    let (r, t) = rate(l)?;
    let (alpha, beta) = (l.float("alpha", 0.9), l.float("beta", 0.999));
    let adjusted =
        if t > 0.0 { r * (1.0 - f64::from(beta).powf(t)).sqrt() / (1.0 - f64::from(alpha).powf(t)) } else { r };
    let (norm, after) = (l.float("norm_coefficient", 0.0), l.float("norm_coefficient_post", 0.0));
    let epsilon = l.float("epsilon", 0.0);
    each(l, 4, |l, values| {
        let [x, g, v, h] = values[..] else { return Ok(Vec::new()) };
        let g = blend(l, norm, x, 1.0, g)?;
        let v = blend(l, alpha, v, 1.0 - alpha, g)?;
        let square = l.un("square", g)?;
        let h = blend(l, beta, h, 1.0 - beta, square)?;
        let root = l.un("sqrt", h)?;
        let root = l.bin("add", root, l.num(h, epsilon))?;
        let step = l.bin("real_div", v, root)?;
        let x = blend(l, 1.0, x, -adjusted as f32, step)?;
        Ok(vec![l.bin("mul", x, Constant::fp32(1.0 - after))?, v, h])
    })
}

pub(super) fn momentum(l: &mut Lower<'_>) -> Results {
    let (r, t) = rate(l)?;
    let (alpha, beta) = (l.float("alpha", 0.0), if t > 0.0 { l.float("beta", 0.0) } else { 1.0 });
    let norm = l.float("norm_coefficient", 0.0);
    let nesterov = l.text("mode", "standard") == "nesterov";
    each(l, 3, |l, values| {
        let [x, g, v] = values[..] else { return Ok(Vec::new()) };
        let g = blend(l, norm, x, 1.0, g)?;
        let v = blend(l, alpha, v, beta, g)?;
        let step = if nesterov { blend(l, 1.0, g, alpha, v)? } else { v };
        Ok(vec![blend(l, 1.0, x, -r as f32, step)?, v])
    })
}
