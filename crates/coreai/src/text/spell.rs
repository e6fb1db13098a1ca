//! Attributes and types as the text of a program spells them.

use super::{BoundedText, comma, generic, number, quoted};
use crate::bytecode::{AttributeId, Bytecode, StringId, TypeId};
use crate::dialect::{ElementType, Field, words};

/// The string that an attribute holds; `None` for an attribute of another kind.
pub(super) fn string(file: &Bytecode<'_>, id: AttributeId, out: &mut BoundedText) -> Option<StringId> {
    match out.attribute(file, id)?.fields.as_slice() {
        [Field::String(id)] => Some(*id),
        _ => None,
    }
}

/// The attributes in an array or dictionary; none for an attribute of another kind.
pub(super) fn items(file: &Bytecode<'_>, id: Option<AttributeId>, out: &mut BoundedText) -> Vec<AttributeId> {
    match id.and_then(|id| out.attribute(file, id)).map(|mut decoded| decoded.fields.pop()) {
        Some(Some(Field::Attributes(items))) => items,
        _ => Vec::new(),
    }
}

/// The names of the first `count` inputs or outputs, from their attributes.
pub(crate) fn port_names(
    file: &Bytecode<'_>,
    id: Option<AttributeId>,
    count: usize,
    out: &mut BoundedText,
) -> Vec<Option<StringId>> {
    let ports = items(file, id, out);
    ports.into_iter().take(count).map(|port| port_name(file, port, out)).collect()
}

fn port_name(file: &Bytecode<'_>, port: AttributeId, out: &mut BoundedText) -> Option<StringId> {
    for item in items(file, Some(port), out) {
        match out.attribute(file, item)?.fields.as_slice() {
            [Field::String(key), Field::Attributes(values)] if file.string_bytes(*key) == b"aicode.name" => {
                return string(file, *values.first()?, out);
            }
            _ => {}
        }
    }
    None
}

/// `{name = value, …}`; `aicode` in a name becomes `coreai`.
pub(super) fn named_list(file: &Bytecode<'_>, items: &[AttributeId], out: &mut BoundedText) {
    out.push('{');
    comma(out, items, |out, id| {
        let Some(decoded) = out.attribute(file, *id) else { return };
        let [Field::String(name), Field::Attributes(values)] = decoded.fields.as_slice() else { return };
        let name = file.string(*name);
        match name.strip_prefix("aicode.") {
            Some(rest) => out.push_str(&format!("coreai.{rest}")),
            None => out.push_str(&name),
        }
        for value in values {
            if !out.is_open() {
                break;
            }
            let unit = out.attribute(file, *value).is_some_and(|d| d.kind.name == "unit_v1");
            if !unit {
                out.push_str(" = ");
                attribute(file, *value, out);
            }
        }
    });
    out.push('}');
}

/// An attribute as MLIR's own dialect spells it.
pub(super) fn attribute(file: &Bytecode<'_>, id: AttributeId, out: &mut BoundedText) {
    let Some(decoded) = out.attribute(file, id) else {
        return generic::attribute(file, id, out);
    };
    if !out.enter() {
        out.push('…');
        return;
    }
    match (decoded.kind.name, decoded.fields.as_slice()) {
        ("serialization.string", [Field::String(id)]) => {
            quoted(file.string_bytes(*id), out);
        }
        ("serialization.integer", [Field::Unsigned(1), Field::Byte(_), Field::Bits(bits)]) => {
            out.push_str(&(*bits != 0).to_string());
        }
        ("serialization.integer", [Field::Unsigned(width), Field::Byte(unsigned), Field::Bits(bits)]) => {
            let value = number::integer(*bits, *width, *unsigned == 0);
            out.push_str(&format!("{value} : {}{width}", if *unsigned != 0 { "ui" } else { "si" }));
        }
        ("serialization.float", [Field::Unsigned(width), Field::Bits(bits)]) => {
            out.push_str(&format!("{} : f{width}", number::float(*bits, *width)));
        }
        ("serialization.array", [Field::Attributes(items)]) => {
            out.push('[');
            comma(out, items, |out, id| attribute(file, *id, out));
            out.push(']');
        }
        ("serialization.dictionary", [Field::Attributes(items)]) => named_list(file, items, out),
        ("serialization.type", [Field::Type(id)]) => ty(file, *id, out),
        ("unit_v1", _) => out.push_str("unit"),
        (
            "ax.hw_constraints_v1",
            [Field::Signeds(alignments), Field::Signeds(interleave), Field::Unsigned(backing)],
        ) => {
            let by = |numbers: &[i64]| numbers.iter().map(i64::to_string).collect::<Vec<_>>().join("x");
            let word = words(decoded.kind.name, *backing).unwrap_or("?");
            out.push_str(&format!("#coreaix.hw_constraints<{word}, "));
            out.push_str(&format!("alignments: [{}], interleave: [{}]>", by(alignments), by(interleave)));
        }
        ("ax.image_constraints_v1", [Field::Unsigned(backing), Field::Signeds(rows)]) => {
            let word = words(decoded.kind.name, *backing).unwrap_or("?");
            let rows = rows.iter().map(i64::to_string).collect::<Vec<_>>().join("x");
            out.push_str(&format!("#coreaix.image_constraints<{word}, rowAlignmentsPerPlane: [{rows}]>"));
        }
        (
            "sparse_tensor_encoding_v1",
            [
                Field::Unsigned(scheme),
                Field::Unsigned(positions),
                Field::Unsigned(coordinates),
                _,
                Field::Unsigned(stored),
            ],
        ) => {
            let word = words(decoded.kind.name, *scheme).unwrap_or("?");
            out.push_str(&format!("#coreai.sparse_tensor_encoding<{word}, numNonZero = {stored}, "));
            out.push_str(&format!("posWidth = {positions}, crdWidth = {coordinates}>"));
        }
        _ => generic::attribute(file, id, out),
    }
    out.leave();
}

/// A type as MLIR spells it.
pub(crate) fn ty(file: &Bytecode<'_>, id: TypeId, out: &mut BoundedText) {
    let Some(decoded) = out.ty(file, id) else {
        return generic::ty(file, id, out);
    };
    if !out.enter() {
        out.push('…');
        return;
    }
    match (decoded.kind.name, decoded.fields.as_slice()) {
        ("tensor_v1", [Field::Signeds(extents), Field::Type(element), rest @ ..]) => {
            out.push_str("tensor<");
            for extent in extents {
                match u64::try_from(*extent) {
                    Ok(extent) => out.push_str(&format!("{extent}x")),
                    Err(_) => out.push_str("?x"),
                }
            }
            ty(file, *element, out);
            if let [Field::Attribute(encoding)] = rest {
                out.push_str(", ");
                attribute(file, *encoding, out);
            }
            out.push('>');
        }
        ("handle_v1", [Field::Type(inner)]) => {
            out.push_str("!coreai.handle<");
            ty(file, *inner, out);
            out.push('>');
        }
        ("token_v1", _) => out.push_str("!coreai.token"),
        ("image_v1", [Field::Attribute(format), Field::Unsigned(height), Field::Unsigned(width), rest @ ..]) => {
            let word = match out.attribute(file, *format).as_ref().map(|d| (d.kind.name, d.fields.as_slice())) {
                Some((name, [Field::Unsigned(choice)])) => {
                    words(name, *choice).map_or_else(|| choice.to_string(), str::to_string)
                }
                _ => "?".to_string(),
            };
            out.push_str(&format!("!coreai.image<<{word}> x {height} : i64 x {width} : i64"));
            if let [Field::Attribute(limits)] = rest {
                out.push_str(", image_constraints = ");
                attribute(file, *limits, out);
            }
            out.push('>');
        }
        _ => match ElementType::of(decoded.kind) {
            Some(element) => out.push_str(element.name()),
            None => generic::ty(file, id, out),
        },
    }
    out.leave();
}

/// Elements in brackets, one pair for each axis.
pub(super) fn nested(shape: &[usize], items: &[&[u8]], out: &mut BoundedText, print: &dyn Fn(&[u8]) -> String) {
    let Some((extent, inner)) = shape.split_first() else {
        if let Some(item) = items.first() {
            out.push_str(&print(item));
        }
        return;
    };
    out.push('[');
    let step = (items.len() / (*extent).max(1)).max(1);
    comma(out, items.chunks(step), |out, items| nested(inner, items, out, print));
    out.push(']');
}
