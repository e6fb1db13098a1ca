//! Attributes and types as the text of a program spells them.

use super::{Budget, comma, generic, number, quoted};
use crate::bytecode::{AttributeId, Bytecode, StringId, TypeId};
use crate::dialect::{ElementType, Field, words};

/// The string that an attribute holds; `None` for an attribute of another kind.
pub(super) fn string(file: &Bytecode<'_>, id: AttributeId) -> Option<StringId> {
    match file.attribute(id)?.fields.as_slice() {
        [Field::String(id)] => Some(*id),
        _ => None,
    }
}

/// The attributes of each argument or result.
pub(super) fn lists(file: &Bytecode<'_>, id: Option<AttributeId>) -> Vec<Vec<AttributeId>> {
    let items = |id| match file.attribute(id)?.fields.as_slice() {
        [Field::Attributes(items)] => Some(items.clone()),
        _ => None,
    };
    let outer: Vec<AttributeId> = id.and_then(items).unwrap_or_default();
    outer.into_iter().map(|id| items(id).unwrap_or_default()).collect()
}

/// The names of inputs or outputs, from their attributes.
pub(crate) fn port_names(file: &Bytecode<'_>, id: Option<AttributeId>) -> Vec<Option<String>> {
    let name = |items: Vec<AttributeId>| {
        items.into_iter().find_map(|id| match file.attribute(id)?.fields.as_slice() {
            [Field::String(key), Field::Attributes(values)] if file.string(*key) == "aicode.name" => {
                Some(file.string(string(file, *values.first()?)?).into_owned())
            }
            _ => None,
        })
    };
    lists(file, id).into_iter().map(name).collect()
}

/// A type as the text of a program spells it.
pub(crate) fn kind_text(file: &Bytecode<'_>, id: TypeId) -> String {
    let mut text = String::new();
    kind(file, id, &mut Budget::of(file), &mut text);
    text
}

/// `{name = value, …}`; `aicode` in a name becomes `coreai`.
pub(super) fn named_list(file: &Bytecode<'_>, items: &[AttributeId], budget: &mut Budget, out: &mut String) {
    out.push('{');
    comma(out, items, |out, id| {
        let Some(decoded) = file.attribute(*id) else { return };
        let [Field::String(name), Field::Attributes(values)] = decoded.fields.as_slice() else { return };
        let name = file.string(*name);
        match name.strip_prefix("aicode.") {
            Some(rest) => out.push_str(&format!("coreai.{rest}")),
            None => out.push_str(&name),
        }
        for value in values {
            let unit = file.attribute(*value).is_some_and(|d| d.kind.name == "unit_v1");
            if !unit {
                out.push_str(" = ");
                attribute(file, *value, budget, out);
            }
        }
    });
    out.push('}');
}

/// An attribute as MLIR's own dialect spells it.
pub(super) fn attribute(file: &Bytecode<'_>, id: AttributeId, budget: &mut Budget, out: &mut String) {
    let Some(decoded) = file.attribute(id) else {
        return generic::attribute(file, id, budget, out);
    };
    if !budget.enter(out) {
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
            comma(out, items, |out, id| attribute(file, *id, budget, out));
            out.push(']');
        }
        ("serialization.dictionary", [Field::Attributes(items)]) => named_list(file, items, budget, out),
        ("serialization.type", [Field::Type(id)]) => kind(file, *id, budget, out),
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
        _ => generic::attribute(file, id, budget, out),
    }
    budget.leave();
}

/// A type as MLIR spells it.
pub(super) fn kind(file: &Bytecode<'_>, id: TypeId, budget: &mut Budget, out: &mut String) {
    let Some(decoded) = file.kind(id) else {
        return generic::kind(file, id, budget, out);
    };
    if !budget.enter(out) {
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
            kind(file, *element, budget, out);
            if let [Field::Attribute(encoding)] = rest {
                out.push_str(", ");
                attribute(file, *encoding, budget, out);
            }
            out.push('>');
        }
        ("handle_v1", [Field::Type(inner)]) => {
            out.push_str("!coreai.handle<");
            kind(file, *inner, budget, out);
            out.push('>');
        }
        ("token_v1", _) => out.push_str("!coreai.token"),
        ("image_v1", [Field::Attribute(format), Field::Unsigned(height), Field::Unsigned(width), rest @ ..]) => {
            let word = match file.attribute(*format).as_ref().map(|d| (d.kind.name, d.fields.as_slice())) {
                Some((name, [Field::Unsigned(choice)])) => {
                    words(name, *choice).map_or_else(|| choice.to_string(), str::to_string)
                }
                _ => "?".to_string(),
            };
            out.push_str(&format!("!coreai.image<<{word}> x {height} : i64 x {width} : i64"));
            if let [Field::Attribute(limits)] = rest {
                out.push_str(", image_constraints = ");
                attribute(file, *limits, budget, out);
            }
            out.push('>');
        }
        _ => match ElementType::of(decoded.kind) {
            Some(element) => out.push_str(element.name()),
            None => generic::kind(file, id, budget, out),
        },
    }
    budget.leave();
}

/// Elements in brackets, one pair for each axis.
pub(super) fn nested(shape: &[usize], items: &[&[u8]], out: &mut String, print: &dyn Fn(&[u8]) -> String) {
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
