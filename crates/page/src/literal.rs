//! Constants and types in few characters.

use ferrane_mil::program::Payload;
use ferrane_mil::{Constant, DataType, Dim, Type};
use half::f16;

/// Elements of a constant that are shown.
const SHOWN: usize = 8;
/// Characters of a string that are shown.
const LENGTH: usize = 120;

/// A text that is cut after [`LENGTH`] characters.
pub(crate) fn clipped(text: &str) -> String {
    match text.char_indices().nth(LENGTH) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}

/// The value of a small constant, or what is stored of a large one: `[1, 1]`, `0.5`, `weights`.
pub(crate) fn literal(constant: &Constant) -> String {
    clipped(&whole(constant))
}

fn whole(constant: &Constant) -> String {
    match constant {
        Constant::Tensor { payload: Payload::Weight(_), .. } => "weights".to_string(),
        Constant::Tensor { ty, payload: Payload::Strings(strings) } => {
            listed(strings.iter().map(|s| format!("\"{}\"", clipped(s))), strings.len(), is_scalar(ty))
        }
        Constant::Tensor { ty, payload: Payload::Bytes(bytes) } => numbers(constant, ty, bytes),
        Constant::List(_, items) => listed(items.iter().map(whole), items.len(), false),
        Constant::Tuple(items) => listed(items.iter().map(whole), items.len(), false),
        Constant::Dict(_, entries) => {
            let pair = |(key, value): &(Constant, Constant)| format!("{}: {}", whole(key), whole(value));
            listed(entries.iter().map(pair), entries.len(), false)
        }
        _ => "a value".to_string(),
    }
}

fn is_scalar(ty: &Type) -> bool {
    ty.rank() == Some(0)
}

fn listed(items: impl Iterator<Item = String>, count: usize, scalar: bool) -> String {
    let shown: Vec<String> = items.take(SHOWN).collect();
    let more = if count > SHOWN { format!(", … {count} in all") } else { String::new() };
    if scalar && shown.len() == 1 { shown.concat() } else { format!("[{}{more}]", shown.join(", ")) }
}

fn numbers(constant: &Constant, ty: &Type, bytes: &[u8]) -> String {
    let scalar = is_scalar(ty);
    match ty.dtype() {
        Some(DataType::Bool) => listed(bytes.iter().map(|b| (*b != 0).to_string()), bytes.len(), scalar),
        Some(DataType::Fp16) => {
            let all = bytes.chunks_exact(2).map(|c| f16::from_le_bytes([c[0], c[1]]).to_string());
            listed(all, bytes.len() / 2, scalar)
        }
        Some(DataType::Fp32) => {
            let all = bytes.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]]).to_string());
            listed(all, bytes.len() / 4, scalar)
        }
        // Larger ones are not worth the copy.
        _ if bytes.len() > 4096 => format!("{} bytes", bytes.len()),
        _ => match constant.as_ints() {
            Some(all) => listed(all.iter().map(i64::to_string), all.len(), scalar),
            None => format!("{} bytes", bytes.len()),
        },
    }
}

/// A type as it is written on a node: `1×64×56×56 fp16`.
pub(crate) fn short_type(ty: &Type) -> String {
    match ty {
        Type::Tensor { dtype, shape } if shape.is_empty() => dtype.to_string(),
        Type::Tensor { dtype, shape } => {
            let extent = |d: &Dim| if let Dim::Fixed(n) = d { n.to_string() } else { "?".to_string() };
            format!("{} {dtype}", shape.iter().map(extent).collect::<Vec<_>>().join("×"))
        }
        Type::State(inner) => short_type(inner),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_short() {
        assert_eq!(literal(&Constant::fp16(0.5)), "0.5");
        assert_eq!(literal(&Constant::int32s(&[1, -1])), "[1, -1]");
        assert_eq!(literal(&Constant::int32s(&[7; 100])), "[7, 7, 7, 7, 7, 7, 7, 7, … 100 in all]");
        assert_eq!(literal(&Constant::string("same")), "\"same\"");
        assert_eq!(literal(&Constant::bool(true)), "true");
        assert!(literal(&Constant::string(&"ü".repeat(500))).chars().count() < 125);
        assert_eq!(literal(&Constant::raw(DataType::UInt4, &[4], &[0, 0])), "2 bytes");
    }

    #[test]
    fn types_are_short() {
        assert_eq!(short_type(&Type::tensor(DataType::Fp16, &[1, 3, 8])), "1×3×8 fp16");
        assert_eq!(short_type(&Type::scalar(DataType::Bool)), "bool");
        let unknown = Type::Tensor { dtype: DataType::Int32, shape: vec![Dim::Unknown] };
        assert_eq!(short_type(&Type::State(Box::new(unknown))), "? int32");
    }
}
