//! Functions that declare what they compute, as coreai-torch writes for layers of a network. Those
//! that MIL has an op for become that op; the others are inlined like any function.

use std::collections::HashMap;

use ferrane_mil::emit::{Emit, int32s};
use ferrane_mil::{Constant, DataType, ValueId};

use super::elementwise::Results;
use super::state::{Built, Lower, normal, rejected, unmapped};
use crate::bytecode::{AttributeId, BytecodeOp};
use crate::dialect::Field;

/// What a function declares.
pub(super) struct Declared {
    name: String,
    inputs: Vec<String>,
    attributes: HashMap<String, Vec<f64>>,
}

type Composite = fn(&mut Lower<'_>, &Declared) -> Results;

/// The composites that are ops of MIL.
const TABLE: &[(&str, Composite)] = &[
    ("avg_pool_2d", avg_pool),
    ("avg_pool_3d", avg_pool),
    ("batch_norm", batch_norm),
    ("instance_norm", instance_norm),
    ("layer_norm", layer_norm),
    ("pixel_shuffle", pixel_shuffle),
    ("scaled_dot_product_attention", attention),
];

/// The lowering of a call of a function that declares what it computes, if MIL has an op for that.
pub(super) fn find(l: &Lower<'_>, graph: &BytecodeOp) -> Option<(Composite, Declared)> {
    let (name, parts) = named(l, l.file.property(graph, "compositeDecl")?)?;
    let composite = TABLE.iter().find(|(known, _)| *known == name)?.1;
    let (mut inputs, mut attributes) = (Vec::new(), HashMap::new());
    for (key, values) in parts.into_iter().filter_map(|id| named(l, id)) {
        let Some(decoded) = values.first().and_then(|id| l.attribute(*id)) else { continue };
        let [Field::Attributes(items)] = decoded.fields.as_slice() else { continue };
        match key.as_str() {
            "input_names" => inputs = items.iter().map(|id| text(l, *id).unwrap_or_default()).collect(),
            "op_attrs" => {
                for (key, values) in items.iter().filter_map(|id| named(l, *id)) {
                    attributes.insert(key, numbers(l, &values)?);
                }
            }
            _ => {}
        }
    }
    let declared = Declared { name, inputs, attributes };
    // Another version may compute something else.
    (declared.number("version") == Some(1.0)).then_some((composite, declared))
}

fn named(l: &Lower<'_>, id: AttributeId) -> Option<(String, Vec<AttributeId>)> {
    match l.attribute(id)?.fields.as_slice() {
        [Field::String(name), Field::Attributes(values)] => Some((l.file.string(*name).into_owned(), values.clone())),
        _ => None,
    }
}

fn text(l: &Lower<'_>, id: AttributeId) -> Option<String> {
    match l.attribute(id)?.fields.as_slice() {
        [Field::String(name)] => Some(l.file.string(*name).into_owned()),
        _ => None,
    }
}

/// A number, or a list of numbers. `None` for other attributes.
fn numbers(l: &Lower<'_>, ids: &[AttributeId]) -> Option<Vec<f64>> {
    let mut found = Vec::new();
    for id in ids {
        let decoded = l.attribute(*id)?;
        match (decoded.kind.name, decoded.fields.as_slice()) {
            ("serialization.integer", [Field::Unsigned(width), Field::Byte(_), Field::Bits(bits)]) => {
                let unused = 64 - (*width).clamp(1, 64) as u32;
                let signed = (bits << unused) as i64 >> unused;
                found.push(if *width == 1 { (bits & 1) as f64 } else { signed as f64 });
            }
            ("serialization.float", [Field::Unsigned(width), Field::Bits(bits)]) => found.push(match width {
                32 => f64::from(f32::from_bits(*bits as u32)),
                64 => f64::from_bits(*bits),
                16 => half::f16::from_bits(*bits as u16).to_f64(),
                _ => return None,
            }),
            ("serialization.array", [Field::Attributes(items)]) if ids.len() == 1 && items.len() <= 16 => {
                for item in items {
                    found.extend(numbers(l, &[*item]).filter(|n| n.len() == 1)?);
                }
            }
            _ => return None,
        }
    }
    Some(found)
}

impl Declared {
    fn number(&self, name: &str) -> Option<f64> {
        match self.attributes.get(name)?.as_slice() {
            [one] => Some(*one),
            _ => None,
        }
    }

    fn float(&self, name: &str) -> Built<f32> {
        self.number(name).map_or_else(|| unmapped(format!("`{}` has no `{name}`", self.name)), |v| Ok(v as f32))
    }

    /// The operand that is an input of this name.
    fn input(&self, name: &str) -> Built<usize> {
        let found = self.inputs.iter().position(|input| input == name);
        found.map_or_else(|| unmapped(format!("`{}` has no input `{name}`", self.name)), Ok)
    }

    fn has(&self, name: &str) -> bool {
        self.inputs.iter().any(|input| input == name)
    }
}

impl Lower<'_> {
    /// An operand that has to be a constant vector of `count` elements, of the type of `like`.
    fn vector(&mut self, i: usize, count: usize, like: ValueId) -> Built {
        let known = self.known(i)?;
        let value = self.x(i)?;
        match known.len() == count && self.dtype(value) == self.dtype(like) {
            true => self.reshape(value, &[count]),
            false => rejected(format!("operand {i} of shape {:?} for {count} channels", known.shape)),
        }
    }
}

/// Channels are axis 1 of x, of rank 3 to 5.
fn channels(l: &Lower<'_>, x: ValueId) -> Built<usize> {
    match l.shape(x)?.as_slice() {
        [_, channels, rest @ ..] if (1..=3).contains(&rest.len()) => Ok(*channels),
        shape => unmapped(format!("MIL normalizes no channels of a tensor of {shape:?}")),
    }
}

fn batch_norm(l: &mut Lower<'_>, d: &Declared) -> Results {
    let x = l.x(d.input("input")?)?;
    let count = channels(l, x)?;
    let mut args = vec![("x", x.into()), ("epsilon", l.num(x, d.float("eps")?).into())];
    for name in ["gamma", "beta", "mean", "variance"] {
        args.push((name, l.vector(d.input(name)?, count, x)?.into()));
    }
    Ok(vec![l.build("batch_norm", args)?])
}

fn instance_norm(l: &mut Lower<'_>, d: &Declared) -> Results {
    let x = l.x(d.input("input")?)?;
    let count = channels(l, x)?;
    let mut args = vec![("x", x.into()), ("epsilon", l.num(x, d.float("eps")?).into())];
    for name in ["gamma", "beta"] {
        args.push((name, l.vector(d.input(name)?, count, x)?.into()));
    }
    Ok(vec![l.build("instance_norm", args)?])
}

fn layer_norm(l: &mut Lower<'_>, d: &Declared) -> Results {
    let x = l.x(d.input("input")?)?;
    let shape = l.shape(x)?;
    let Some(axes) = d.attributes.get("axes") else { return unmapped("`layer_norm` has no `axes`") };
    let axes = axes.iter().map(|&a| normal(a as i64, shape.len())).collect::<Built<Vec<_>>>()?;
    let extents: Vec<usize> = axes.iter().map(|&a| shape[a]).collect();
    let axes: Vec<i64> = axes.iter().map(|&a| a as i64).collect();
    let mut args = vec![("x", x.into()), ("axes", int32s(&axes).into()), ("epsilon", l.num(x, d.float("eps")?).into())];
    for name in ["gamma", "beta"] {
        let i = d.input(name)?;
        let known = l.known(i)?;
        let value = l.x(i)?;
        if known.shape != extents || l.dtype(value) != l.dtype(x) {
            return rejected(format!("`{name}` of shape {:?} for {extents:?}", known.shape));
        }
        args.push((name, value.into()));
    }
    Ok(vec![l.build("layer_norm", args)?])
}

fn pixel_shuffle(l: &mut Lower<'_>, d: &Declared) -> Results {
    let x = l.x(d.input("input")?)?;
    let factor = d.float("upscale_factor")?;
    if l.shape(x)?.len() != 4 || !(1.0..=4096.0).contains(&factor) {
        return unmapped("MIL's `pixel_shuffle` takes images");
    }
    Ok(vec![l.op("pixel_shuffle", [("x", x.into()), ("upscale_factor", Constant::int32(factor as i32).into())])?])
}

/// The function pads with zeros, sums and divides by the size of the kernel, whatever else its
/// inputs say.
fn avg_pool(l: &mut Lower<'_>, d: &Declared) -> Results {
    let x = l.x(d.input("input")?)?;
    let n = l.ranked(x, 3)?.len() - 2;
    let kernel = l.counts(d.input("kernel_size")?, n, 1)?;
    let strides = l.counts(d.input("stride")?, n, 1)?;
    let padding = l.counts(d.input("padding")?, n, 0)?;
    if !l.is_float(x) || l.int(d.input("divisor_override")?)? != 0 || l.known_flag(d.input("ceil_mode")?)? {
        return unmapped("MIL's `avg_pool` divides by the size of the kernel");
    }
    let pads: Vec<i64> = padding.iter().flat_map(|&p| [p, p]).collect();
    Ok(vec![l.op(
        "avg_pool",
        [
            ("x", x.into()),
            ("kernel_sizes", int32s(&kernel).into()),
            ("strides", int32s(&strides).into()),
            ("pad_type", Constant::string("custom").into()),
            ("pad", int32s(&pads).into()),
            ("exclude_padding_from_average", Constant::bool(false).into()),
        ],
    )?])
}

impl Lower<'_> {
    fn known_flag(&self, i: usize) -> Built<bool> {
        Ok(self.known(i)?.first().is_some_and(|v| v != 0.0))
    }
}

/// MIL's op scales by the root of the width; another scale is put into the queries.
fn attention(l: &mut Lower<'_>, d: &Declared) -> Results {
    let (query, key, value) = (l.x(d.input("query")?)?, l.x(d.input("key")?)?, l.x(d.input("value")?)?);
    let (q, k, v) = (l.ranked(query, 3)?, l.ranked(key, 3)?, l.ranked(value, 3)?);
    let batch = |s: &[usize]| s[..s.len() - 2].to_vec();
    if batch(&q) != batch(&k) || batch(&q) != batch(&v) {
        return unmapped("MIL's attention has as many heads of keys as of queries");
    }
    if d.number("is_causal").unwrap_or(0.0) != 0.0 || d.number("window_size").unwrap_or(0.0) != 0.0 {
        return unmapped("MIL's attention has neither causal masks nor windows of its own");
    }
    let width = q.last().copied().unwrap_or(1) as f64;
    let query = match d.attributes.contains_key("scale") {
        true => {
            let factor = l.num(query, (f64::from(d.float("scale")?) * width.sqrt()) as f32);
            l.bin("mul", query, factor)?
        }
        false => query,
    };
    let mut args = vec![("query", query.into()), ("key", key.into()), ("value", value.into())];
    if d.has("attn_mask") {
        let mask = l.x(d.input("attn_mask")?)?;
        let dtype = l.dtype(query);
        let mask = if l.dtype(mask) == DataType::Bool { mask } else { l.cast(mask, dtype)? };
        args.push(("attn_mask", mask.into()));
    }
    Ok(vec![l.build("scaled_dot_product_attention", args)?])
}
