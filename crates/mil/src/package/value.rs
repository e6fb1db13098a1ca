//! Conversion of types and values to and from protobuf.
//!
//! Which field holds the elements of an immediate tensor depends on the element type: `floats` for
//! fp32, `doubles` for fp64, `bools`, `strings`, `ints` for int16, uint16 and int32, `longInts` for
//! the 64-bit integers and `bytes`, packed as in a weight blob, for all others (coremltools 9.0,
//! backend/mil/helper.py). The reader also takes integers from any integer field and anything but
//! strings from `bytes`.

use std::sync::Arc;

use super::proto::{self, Content, Extent, Immediate, TensorElements, TypeKind, part};
use crate::program::DataType::{self, *};
use crate::program::{Constant, Dim, Payload, Type};
use crate::weights::pack;

/// Types and values nest no deeper; text has the same limit.
const MAX_DEPTH: usize = 32;
/// The highest rank that is read, as in text.
const MAX_RANK: usize = 16;
/// As in text: products of extents stay far from any overflow.
const MAX_EXTENT: u64 = i32::MAX as u64;

/// coreml-containers §2.
const CODES: [(DataType, i32); 22] = [
    (Bool, 1),
    (String, 2),
    (Fp16, 10),
    (Fp32, 11),
    (Fp64, 12),
    (Bf16, 13),
    (Int8, 21),
    (Int16, 22),
    (Int32, 23),
    (Int64, 24),
    (Int4, 25),
    (UInt8, 31),
    (UInt16, 32),
    (UInt32, 33),
    (UInt64, 34),
    (UInt4, 35),
    (UInt2, 36),
    (UInt1, 37),
    (UInt6, 38),
    (UInt3, 39),
    (Fp8E4M3Fn, 40),
    (Fp8E5M2, 41),
];

type Text = std::string::String;

/// Decodes a type; the text of the error is the reason.
pub(super) fn read_type(ty: &proto::ValueType) -> Result<Type, Text> {
    read_type_within(ty, 0)
}

fn read_type_within(ty: &proto::ValueType, depth: usize) -> Result<Type, Text> {
    if depth > MAX_DEPTH {
        return Err(format!("types nest deeper than {MAX_DEPTH}"));
    }
    let inner = |ty: &Option<Box<proto::ValueType>>| {
        read_type_within(ty.as_deref().ok_or("a type without its parts")?, depth + 1)
    };
    Ok(match ty.kind.as_ref().ok_or("a value without a type")? {
        TypeKind::Tensor(t) => {
            let dtype = CODES.iter().find(|(_, c)| *c == t.data_type).map(|(d, _)| *d);
            let dtype = dtype.ok_or_else(|| format!("no element type has the number {}", t.data_type))?;
            if !t.attributes.is_empty() {
                return Err("a tensor type with attributes, which MIL text cannot say".into());
            }
            if t.rank != t.dimensions.len() as i64 || t.dimensions.len() > MAX_RANK {
                return Err(format!("rank {} with {} extents", t.rank, t.dimensions.len()));
            }
            Type::Tensor { dtype, shape: t.dimensions.iter().map(read_dim).collect::<Result<_, _>>()? }
        }
        TypeKind::List(l) => {
            let length = l.length.as_ref().map_or(Ok(Dim::Unknown), read_dim)?;
            Type::List { element: Box::new(inner(&l.r#type)?), length }
        }
        TypeKind::Tuple(t) => {
            Type::Tuple(t.types.iter().map(|t| read_type_within(t, depth + 1)).collect::<Result<_, _>>()?)
        }
        TypeKind::Dictionary(d) => Type::Dict(Box::new(inner(&d.key_type)?), Box::new(inner(&d.value_type)?)),
        TypeKind::State(s) => Type::State(Box::new(inner(&s.wrapped_type)?)),
    })
}

fn read_dim(dim: &proto::Dimension) -> Result<Dim, Text> {
    match &dim.extent {
        Some(Extent::Constant(c)) if c.size <= MAX_EXTENT => Ok(Dim::Fixed(c.size as usize)),
        Some(Extent::Constant(c)) => Err(format!("an extent of {}, more than {MAX_EXTENT}", c.size)),
        Some(Extent::Unknown(u)) if u.variadic => Err("a tensor of unknown rank".into()),
        Some(Extent::Unknown(_)) => Ok(Dim::Unknown),
        None => Err("an extent that says nothing".into()),
    }
}

/// Encodes a type as its message.
pub(super) fn write_type(ty: &Type) -> proto::ValueType {
    let boxed = |ty: &Type| Some(Box::new(write_type(ty)));
    let kind = match ty {
        Type::Tensor { dtype, shape } => TypeKind::Tensor(Box::new(proto::TensorType {
            data_type: CODES.iter().find(|(d, _)| d == dtype).map_or(0, |(_, c)| *c),
            rank: shape.len() as i64,
            dimensions: shape.iter().map(write_dim).collect(),
            attributes: Vec::new(),
        })),
        Type::List { element, length } => {
            TypeKind::List(Box::new(proto::ListType { r#type: boxed(element), length: Some(write_dim(length)) }))
        }
        Type::Tuple(types) => TypeKind::Tuple(proto::TupleType { types: types.iter().map(write_type).collect() }),
        Type::Dict(k, v) => {
            TypeKind::Dictionary(Box::new(proto::DictionaryType { key_type: boxed(k), value_type: boxed(v) }))
        }
        Type::State(inner) => TypeKind::State(Box::new(proto::StateType { wrapped_type: boxed(inner) })),
    };
    proto::ValueType { kind: Some(kind) }
}

fn write_dim(dim: &Dim) -> proto::Dimension {
    let extent = match dim {
        Dim::Fixed(n) => Extent::Constant(proto::ConstantDimension { size: *n as u64 }),
        Dim::Unknown => Extent::Unknown(proto::UnknownDimension { variadic: false }),
    };
    proto::Dimension { extent: Some(extent) }
}

/// Decodes a value. `blob` looks up a record in a file.
pub(super) fn read_value(
    value: &proto::Value,
    blob: &mut dyn FnMut(&Type, &proto::BlobFile) -> Result<Constant, Text>,
) -> Result<Constant, Text> {
    read_value_within(value, blob, 0)
}

fn read_value_within(
    value: &proto::Value,
    blob: &mut dyn FnMut(&Type, &proto::BlobFile) -> Result<Constant, Text>,
    depth: usize,
) -> Result<Constant, Text> {
    if depth > MAX_DEPTH {
        return Err(format!("values nest deeper than {MAX_DEPTH}"));
    }
    let ty = read_type(value.r#type.as_ref().ok_or("a value without a type")?)?;
    let immediate = match value.content.as_ref().ok_or("a value without content")? {
        Content::BlobFile(file) => return blob(&ty, file),
        Content::Immediate(i) => i.value.as_ref().ok_or("an immediate value without content")?,
    };
    let mut items = |values: &proto::Values| -> Result<Vec<Constant>, Text> {
        values.values.iter().map(|v| read_value_within(&part(v)?, blob, depth + 1)).collect()
    };
    Ok(match (&ty, immediate) {
        (Type::Tensor { dtype, .. }, Immediate::Tensor(t)) => {
            let elements = ty.elements().ok_or_else(|| format!("a value of the type {ty}"))?;
            let payload = read_tensor(*dtype, elements, t.value.as_ref())?;
            Constant::Tensor { ty, payload }
        }
        (Type::List { element, length }, Immediate::List(l)) => {
            let items = items(l)?;
            if *length != Dim::Unknown && *length != Dim::Fixed(items.len()) {
                return Err(format!("{} items for {ty}", items.len()));
            }
            if let Some(odd) = items.iter().find(|i| i.ty() != **element) {
                return Err(format!("an item of the type {} in {ty}", odd.ty()));
            }
            Constant::List(ty, items)
        }
        (Type::Tuple(types), Immediate::Tuple(t)) => {
            let items = items(t)?;
            if items.len() != types.len() || items.iter().zip(types).any(|(i, t)| i.ty() != *t) {
                return Err(format!("items that are not those of {ty}"));
            }
            Constant::Tuple(items)
        }
        (Type::Dict(key, value), Immediate::Dictionary(d)) => {
            let mut entries = Vec::with_capacity(d.values.len());
            for pair in &d.values {
                let pair: proto::KeyValuePair = part(pair)?;
                let mut part = |v: &Option<proto::Value>, wanted: &Type| {
                    let v = v.as_ref().ok_or("a dictionary entry without its parts")?;
                    let found = read_value_within(v, blob, depth + 1)?;
                    if found.ty() == *wanted { Ok(found) } else { Err(format!("an entry that is not of {ty}")) }
                };
                entries.push((part(&pair.key, key)?, part(&pair.value, value)?));
            }
            Constant::Dict(ty, entries)
        }
        _ => return Err(format!("content that is not of the type {ty}")),
    })
}

/// The elements of an immediate tensor.
fn read_tensor(dtype: DataType, elements: usize, tensor: Option<&proto::TensorElements>) -> Result<Payload, Text> {
    let count = |found: usize| {
        if found == elements { Ok(()) } else { Err(format!("{found} elements of {dtype} where {elements} belong")) }
    };
    let bytes: Vec<u8> = match (dtype, tensor) {
        (String, Some(TensorElements::Strings(s))) => {
            count(s.values.len())?;
            return Ok(Payload::Strings(s.values.clone().into()));
        }
        (String, None) => {
            count(0)?;
            return Ok(Payload::Strings(Arc::from([])));
        }
        (_, None) => {
            count(0)?;
            Vec::new()
        }
        (String, Some(_)) => return Err("numbers where strings belong".into()),
        (_, Some(TensorElements::Bytes(b))) => {
            let bits = elements.checked_mul(dtype.bits().unwrap_or(8)).ok_or("a value of too many elements")?;
            if b.values.len() != bits.div_ceil(8) {
                return Err(format!("{} bytes where {elements} elements of {dtype} belong", b.values.len()));
            }
            b.values.clone()
        }
        (Bool, Some(TensorElements::Bools(b))) => {
            count(b.values.len())?;
            b.values.iter().map(|&v| u8::from(v)).collect()
        }
        (Fp32, Some(TensorElements::Floats(f))) => {
            count(f.values.len())?;
            f.values.iter().flat_map(|v| v.to_le_bytes()).collect()
        }
        (Fp64, Some(TensorElements::Doubles(d))) => {
            count(d.values.len())?;
            d.values.iter().flat_map(|v| v.to_le_bytes()).collect()
        }
        (d, Some(TensorElements::Ints(i))) if d.is_int() => {
            count(i.values.len())?;
            read_integers(dtype, i.values.iter().map(|&v| i64::from(v)))?
        }
        (d, Some(TensorElements::LongInts(i))) if d.is_int() => {
            count(i.values.len())?;
            read_integers(dtype, i.values.iter().copied())?
        }
        _ => return Err(format!("elements of another kind than {dtype}")),
    };
    Ok(Payload::Bytes(bytes.into()))
}

/// Packed little-endian integers. An uint64 stands in its field as the int64 of the same bits.
fn read_integers(dtype: DataType, values: impl ExactSizeIterator<Item = i64>) -> Result<Vec<u8>, Text> {
    let bits = dtype.bits().unwrap_or(8);
    let (least, most) = match (bits, dtype.name().starts_with('i')) {
        (64, _) => (i64::MIN, i64::MAX),
        (_, true) => (-(1i64 << (bits - 1)), (1i64 << (bits - 1)) - 1),
        (_, false) => (0, (1i64 << bits) - 1),
    };
    let Some(width) = dtype.bytes() else {
        let values: Vec<i64> = values.collect();
        return match values.iter().find(|v| !(least..=most).contains(*v)) {
            Some(v) => Err(format!("{v} is not of type {dtype}")),
            None => Ok(pack(dtype, &values)),
        };
    };
    let mut bytes = Vec::with_capacity(values.len() * width);
    for v in values {
        if !(least..=most).contains(&v) {
            return Err(format!("{v} is not of type {dtype}"));
        }
        bytes.extend_from_slice(&v.to_le_bytes()[..width]);
    }
    Ok(bytes)
}

/// An immediate tensor of packed little-endian elements.
pub(super) fn write_tensor(dtype: DataType, bytes: &[u8]) -> TensorElements {
    let words = |b: &[u8]| i32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    let long = |b: &[u8]| i64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]);
    match dtype {
        Bool => TensorElements::Bools(proto::Bools { values: bytes.iter().map(|&b| b != 0).collect() }),
        Fp32 => TensorElements::Floats(proto::Floats {
            values: bytes.chunks_exact(4).map(|b| f32::from_bits(words(b) as u32)).collect(),
        }),
        Fp64 => TensorElements::Doubles(proto::Doubles {
            values: bytes.chunks_exact(8).map(|b| f64::from_bits(long(b) as u64)).collect(),
        }),
        Int16 => TensorElements::Ints(proto::Ints {
            values: bytes.chunks_exact(2).map(|b| i32::from(i16::from_le_bytes([b[0], b[1]]))).collect(),
        }),
        UInt16 => TensorElements::Ints(proto::Ints {
            values: bytes.chunks_exact(2).map(|b| i32::from(u16::from_le_bytes([b[0], b[1]]))).collect(),
        }),
        Int32 => TensorElements::Ints(proto::Ints { values: bytes.chunks_exact(4).map(words).collect() }),
        Int64 | UInt64 => {
            TensorElements::LongInts(proto::LongInts { values: bytes.chunks_exact(8).map(long).collect() })
        }
        _ => TensorElements::Bytes(proto::RawBytes { values: bytes.to_vec() }),
    }
}

/// A value that lies in the message itself.
pub(super) fn immediate(ty: &Type, value: Immediate) -> proto::Value {
    let message = proto::ImmediateMessage { value: Some(value) };
    proto::Value { r#type: Some(write_type(ty)), content: Some(Content::Immediate(message)) }
}
