//! The expectation of a run: `main(x=[1, 2], w=3) ~ [2, 4]` or `main(x=random:1) ~ exact within
//! 1e-3`.

use ferrane_mil::{DataType, Type};
use ferrane_tensor_io::TensorSource;

/// The expected outputs of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Outputs {
    /// The values of the procedure's only output.
    Only(TensorSource),
    /// The values of each output, by name.
    Named(Vec<(String, TensorSource)>),
    /// What the oracle computes for the same inputs. The number is the tolerance, as a share of an
    /// output's largest magnitude.
    Oracle(f32),
}

/// One `// run:` line: a call and its expected outputs.
#[derive(Clone, Debug, PartialEq)]
pub struct RunDirective {
    /// The name of the procedure to call.
    pub procedure: String,
    /// The values of the inputs, by name.
    pub inputs: Vec<(String, TensorSource)>,
    /// True for `==`: the outputs must be equal. False for `~`: they may differ by a tolerance.
    pub exact: bool,
    /// What the outputs must be.
    pub outputs: Outputs,
}

/// Splits at a character outside of brackets.
fn split(text: &str, at: char) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0i32, 0, Vec::new());
    for (i, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ if c == at && depth == 0 => {
                parts.push(&text[start..i]);
                start = i + c.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.into_iter().map(str::trim).filter(|p| !p.is_empty()).collect()
}

fn named(part: &str) -> Result<(String, TensorSource), String> {
    let (name, values) = part.split_once('=').ok_or_else(|| format!("`{part}`: expected `name=values`"))?;
    Ok((name.trim().to_string(), self::values(values)?))
}

/// Parses `[1, 2, 3]`, `1` or `random:7`.
pub(super) fn values(text: &str) -> Result<TensorSource, String> {
    match TensorSource::parse(text).map_err(|e| e.to_string())? {
        TensorSource::File(path, _) => Err(format!("`{}` is not a number", path.display())),
        source => Ok(source),
    }
}

/// The source's values as fp32, for a port of `n` elements.
fn floats(source: &TensorSource, n: usize) -> Result<Vec<f32>, String> {
    let tensor = source.tensor("", &Type::tensor(DataType::Fp32, &[n]));
    tensor.map(|t| t.to_f32()).map_err(|e| e.to_string())
}

/// The inputs of a call, by name.
type Inputs = Vec<(String, TensorSource)>;

/// Parses `procedure(inputs) rest`.
pub(super) fn call(text: &str) -> Result<(String, Inputs, &str), String> {
    let (call, rest) = text.split_once(')').ok_or("expected `procedure(inputs)` and what follows")?;
    let (procedure, inputs) = call.split_once('(').ok_or("expected `procedure(inputs)`")?;
    let inputs = split(inputs, ',').into_iter().map(named).collect::<Result<_, _>>()?;
    Ok((procedure.trim().to_string(), inputs, rest.trim()))
}

impl RunDirective {
    /// Reads an expectation.
    ///
    /// # Errors
    /// The part of the syntax that is missing or malformed.
    pub fn parse(text: &str) -> Result<RunDirective, String> {
        let (procedure, inputs, rest) = call(text)?;
        let (exact, outputs) = match (rest.strip_prefix("=="), rest.strip_prefix('~')) {
            (Some(outputs), _) => (true, outputs),
            (_, Some(outputs)) => (false, outputs),
            _ => return Err("expected `~` or `==` after the inputs".into()),
        };
        let outputs = match outputs.contains('=') {
            _ if outputs.trim().starts_with("exact") => {
                let share = outputs.trim().strip_prefix("exact within ").filter(|_| !exact);
                let share = share.ok_or("expected `~ exact within SHARE`")?.trim();
                Outputs::Oracle(share.parse().map_err(|e| format!("`{share}`: {e}"))?)
            }
            false => Outputs::Only(values(outputs)?),
            true => Outputs::Named(split(outputs, ' ').into_iter().map(named).collect::<Result<_, _>>()?),
        };
        Ok(RunDirective { procedure, inputs, exact, outputs })
    }

    /// Compares each output with the oracle's output of the same name. Two elements may differ by
    /// at most `share` of the output's largest magnitude. The order of ports is up to the device
    /// and is not compared.
    ///
    /// # Errors
    /// The element that differs most, a set of outputs that is not the oracle's, or an oracle
    /// output that gives nothing to compare with: all zero or not finite.
    pub fn near(share: f32, found: &[(&str, Vec<f32>)], oracle: &[(&str, Vec<f32>)]) -> Result<(), String> {
        if let Some((name, _)) = found.iter().find(|(name, _)| oracle.iter().all(|(n, _)| n != name)) {
            return Err(format!("the oracle has no output `{name}`"));
        }
        for (name, wanted) in oracle {
            let (_, found) = found.iter().find(|(n, _)| n == name).ok_or_else(|| format!("no output `{name}`"))?;
            if found.len() != wanted.len() {
                return Err(format!("{name}: {} elements, exact are {}", found.len(), wanted.len()));
            }
            let largest = wanted.iter().fold(0f32, |m, v| m.max(v.abs()));
            if largest == 0.0 || !wanted.iter().chain(found).all(|v| v.is_finite()) {
                return Err(format!("{name}: zeros only, or values that are not finite"));
            }
            let differs = |(i, (f, w)): (usize, (&f32, &f32))| (i, (f - w).abs());
            let worst = found.iter().zip(wanted).enumerate().map(differs).max_by(|a, b| a.1.total_cmp(&b.1));
            if let Some((i, d)) = worst.filter(|(_, d)| *d > share * largest) {
                let (f, w) = (found[i], wanted[i]);
                return Err(format!("{name}[{i}] is {f}, exact is {w}: {d} is more than {share} of {largest}"));
            }
        }
        Ok(())
    }

    /// Compares the outputs with the expected values. `within` is the absolute tolerance of `~`;
    /// `None` allows two units in the last place of fp16.
    ///
    /// # Errors
    /// The first element that differs.
    pub fn compare(&self, found: &[(&str, Vec<f32>)], within: Option<f32>) -> Result<(), String> {
        let wanted: Vec<(&str, &TensorSource)> = match &self.outputs {
            Outputs::Only(values) => match found {
                [(name, _)] => vec![(name, values)],
                _ => return Err(format!("{} outputs: name them", found.len())),
            },
            Outputs::Named(list) => list.iter().map(|(n, v)| (n.as_str(), v)).collect(),
            Outputs::Oracle(_) => return Err("only the oracle knows what is expected".into()),
        };
        for (name, values) in wanted {
            let (_, found) = found.iter().find(|(n, _)| *n == name).ok_or_else(|| format!("no output `{name}`"))?;
            let expected = floats(values, found.len()).map_err(|e| format!("{name}: {e}"))?;
            for (i, (f, e)) in found.iter().zip(&expected).enumerate() {
                // Two units in the last place of fp16, for an op and its port.
                let tolerance = if self.exact { 0.0 } else { within.unwrap_or(2.0 * unit(*e)) };
                // A value that is not finite equals only itself.
                let near = f.is_finite() && e.is_finite() && (f - e).abs() <= tolerance;
                let close = f == e || (f.is_nan() && e.is_nan()) || near;
                if !close {
                    return Err(format!("{name}[{i}] is {f}, expected {e} within {tolerance}"));
                }
            }
        }
        Ok(())
    }
}

/// The distance between fp16 numbers at `v`: 2^(⌊log2 |v|⌋ - 10), but at least 2^-24.
fn unit(v: f32) -> f32 {
    let exponent = (v.to_bits() >> 23 & 0xFF) as i32 - 127;
    2f32.powi(exponent.max(-14) - 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_compares() {
        let run = RunDirective::parse("main(x=[1, -2.5], w = 3) ~ [2, inf]").unwrap();
        let list = values("[1, -2.5]").unwrap();
        assert_eq!(run.inputs, [("x".into(), list), ("w".into(), TensorSource::Fill(3.0))]);
        assert_eq!(run.compare(&[("y", vec![2.001, f32::INFINITY])], None), Ok(()));
        assert!(run.compare(&[("y", vec![2.005, f32::INFINITY])], None).unwrap_err().contains("y[0] is 2.005"));
        assert_eq!(run.compare(&[("y", vec![2.005, f32::INFINITY])], Some(0.01)), Ok(()));
        assert!(run.compare(&[("y", vec![2.0])], None).unwrap_err().contains("2 values for the 1 elements"));
        assert!(run.compare(&[("y", vec![]), ("z", vec![])], None).is_err());
        let run = RunDirective::parse("f() == y=[1, 2] z=3").unwrap();
        assert!(run.exact);
        assert_eq!(run.compare(&[("y", vec![1.0, 2.0]), ("z", vec![3.0; 4])], Some(1.0)), Ok(()));
        assert!(run.compare(&[("y", vec![1.0, 2.0]), ("z", vec![3.0005; 4])], Some(1.0)).is_err());
        assert!(run.compare(&[("y", vec![1.0, f32::NAN]), ("z", vec![3.0; 4])], None).is_err());
        assert!(RunDirective::parse("f() == y=1").unwrap().compare(&[("x", vec![1.0])], None).is_err());
    }

    #[test]
    fn infinities_are_near_nothing_and_units_follow_the_exponent() {
        let close = |e: &str, f: f32| {
            RunDirective::parse(&format!("f() ~ {e}")).unwrap().compare(&[("y", vec![f])], None).is_ok()
        };
        for (expected, infinite) in [("inf", f32::INFINITY), ("-inf", f32::NEG_INFINITY)] {
            assert!(close(expected, infinite) && !close(expected, -infinite));
            assert!(!close(expected, 65504.0) && !close(expected, f32::NAN) && !close("1", infinite));
        }
        // The unit of 1.99 is 2^-10, that of 2 is 2^-9.
        assert!(close("1.99", 1.9919) && !close("1.99", 1.9925) && close("2", 2.0038));
        assert!(close("0", 1.1e-7) && !close("0", 1.3e-7));
    }

    #[test]
    fn random_values_are_stated_by_their_seed_and_compared_with_the_oracle() {
        let run = RunDirective::parse("main(x=random:1, w=random:2:-4:-3) ~ exact within 1e-3").unwrap();
        assert_eq!(run.outputs, Outputs::Oracle(1e-3));
        let [x, w] = [&run.inputs[0].1, &run.inputs[1].1].map(|v| floats(v, 1000).unwrap());
        assert!(x.iter().all(|v| (-1.0..1.0).contains(v)) && w.iter().all(|v| (-4.0..-3.0).contains(v)));
        assert!(x.iter().any(|v| *v < -0.9) && x.iter().any(|v| *v > 0.9));
        assert_eq!(x[..10], floats(&values("random:1:-1:1").unwrap(), 10).unwrap());
        let near = |found: &[f32], oracle: &[f32]| {
            RunDirective::near(1e-3, &[("y", found.to_vec())], &[("y", oracle.to_vec())])
        };
        assert_eq!(near(&[1.0, 0.0009], &[1.0, 0.0]), Ok(()));
        assert!(near(&[1.0, 0.0011], &[1.0, 0.0]).unwrap_err().starts_with("y[1] is 0.0011"));
        assert!(near(&[0.0], &[0.0]).is_err() && near(&[1.0, f32::NAN], &[1.0, 0.0]).is_err());
    }

    #[test]
    fn outputs_are_compared_by_name_whatever_their_order() {
        let (y, z) = (("y", vec![1.0, 2.0]), ("z", vec![3.0]));
        let near = |found: &[(&str, Vec<f32>)], oracle: &[(&str, Vec<f32>)]| RunDirective::near(1e-3, found, oracle);
        assert_eq!(near(&[z.clone(), y.clone()], &[y.clone(), z.clone()]), Ok(()));
        assert!(
            near(&[("y", vec![3.0]), ("z", vec![1.0, 2.0])], &[y.clone(), z.clone()]).unwrap_err().starts_with("y: 1")
        );
        assert_eq!(near(std::slice::from_ref(&y), &[y.clone(), z.clone()]), Err("no output `z`".into()));
        assert_eq!(near(&[y.clone(), z], &[y]), Err("the oracle has no output `z`".into()));
    }

    #[test]
    fn refuses_what_makes_no_sense() {
        for text in
            ["main(x=random:a) ~ 1", "main(x=random:1:2) ~ 1", "main(x=1) ~ exact", "main(x=1) == exact within 1"]
        {
            assert!(RunDirective::parse(text).is_err(), "{text}");
        }
        for text in ["main", "main(x) ~ 1", "main(x=a) ~ 1", "main(x=[1) ~ 1", "main(x=1) 2", "main x=1) ~ 2"] {
            assert!(RunDirective::parse(text).is_err(), "{text}");
        }
    }
}
