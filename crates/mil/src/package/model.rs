//! The envelope of a model: specification version, description, and one of many kinds of model
//! (coreml-containers §1).
//!
//! Parsed by hand instead of as a message, so that an error can name the kind of a model that is
//! not an ML Program, and unknown fields are kept byte for byte.

/// The parts of a model file.
pub(super) struct ModelEnvelope<'a> {
    pub(super) specification_version: i32,
    /// The encoded `ModelDescription`.
    pub(super) description: &'a [u8],
    /// The ML Program; another kind of model is an error.
    pub(super) program: &'a [u8],
    /// The other fields, unchanged: `isUpdatable` and those that newer versions add.
    pub(super) rest: Vec<u8>,
}

/// Why bytes are not an ML Program.
pub(super) enum NotAProgram {
    /// The bytes are not a protobuf message; the text is the reason.
    Malformed(String),
    /// A model of another kind.
    Other(String),
}

const ML_PROGRAM: u64 = 502;

/// The kinds of model by field number.
const KINDS: [(u64, &str); 37] = [
    (200, "a pipeline classifier"),
    (201, "a pipeline regressor"),
    (202, "a pipeline of models"),
    (300, "a generalized linear regressor"),
    (301, "a support vector regressor"),
    (302, "a tree ensemble regressor"),
    (303, "a neural network regressor"),
    (304, "a Bayesian probit regressor"),
    (400, "a generalized linear classifier"),
    (401, "a support vector classifier"),
    (402, "a tree ensemble classifier"),
    (403, "a neural network classifier"),
    (404, "a nearest neighbors classifier"),
    (500, "a neural network"),
    (501, "an item similarity recommender"),
    (ML_PROGRAM, "an ML Program"),
    (555, "a custom model"),
    (556, "a linked model"),
    (560, "a class confidence threshold"),
    (600, "a one-hot encoder"),
    (601, "an imputer"),
    (602, "a feature vectorizer"),
    (603, "a dictionary vectorizer"),
    (604, "a scaler"),
    (606, "a categorical mapping"),
    (607, "a normalizer"),
    (609, "an array feature extractor"),
    (610, "a non-maximum suppression"),
    (900, "an identity model"),
    (2000, "a text classifier"),
    (2001, "a word tagger"),
    (2002, "a vision feature print"),
    (2003, "a sound analysis preprocessing"),
    (2004, "a gazetteer"),
    (2005, "a word embedding"),
    (2006, "an audio feature print"),
    (3000, "a serialized model"),
];

/// Splits a model file into its parts.
pub(super) fn read(bytes: &[u8]) -> Result<ModelEnvelope<'_>, NotAProgram> {
    let malformed = |what: &str| NotAProgram::Malformed(format!("no protobuf of a model: {what}"));
    let mut model = ModelEnvelope { specification_version: 0, description: &[], program: &[], rest: Vec::new() };
    let mut kind = None;
    let mut at = bytes;
    while !at.is_empty() {
        let start = at;
        let key = varint(&mut at).ok_or_else(|| malformed("a field without end"))?;
        let (field, wire) = (key >> 3, key & 7);
        let content = match wire {
            0 => varint(&mut at).map(|v| (v, &[][..])),
            1 => take(&mut at, 8).map(|b| (0, b)),
            2 => varint(&mut at).and_then(|n| take(&mut at, n)).map(|b| (0, b)),
            5 => take(&mut at, 4).map(|b| (0, b)),
            _ => return Err(malformed(&format!("a field of the wire type {wire}"))),
        };
        let (number, content) = content.ok_or_else(|| malformed("a field without end"))?;
        match (field, wire) {
            (0, _) => return Err(malformed("a field with the number 0")),
            (1, 0) => model.specification_version = i32::try_from(number).map_err(|_| malformed("its version"))?,
            (2, 2) => model.description = content,
            (ML_PROGRAM, 2) => {
                model.program = content;
                kind = Some(field);
            }
            (200.., 2) => kind = Some(field),
            _ => model.rest.extend_from_slice(&start[..start.len() - at.len()]),
        }
    }
    let version = model.specification_version;
    match kind {
        Some(ML_PROGRAM) => Ok(model),
        Some(other) => {
            let name = KINDS.iter().find(|(f, _)| *f == other).map_or("a model of an unknown kind", |(_, n)| n);
            Err(NotAProgram::Other(format!("{name} (field {other}, specification version {version})")))
        }
        None if version > 0 => {
            Err(NotAProgram::Other(format!("a model without a kind (specification version {version})")))
        }
        None => Err(malformed("no specification version")),
    }
}

/// Joins the parts of a model file.
pub(super) fn write(model: &ModelEnvelope<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(model.description.len() + model.program.len() + model.rest.len() + 32);
    put_varint(1 << 3, &mut out);
    put_varint(model.specification_version as u64, &mut out);
    for (field, content) in [(2, model.description), (ML_PROGRAM, model.program)] {
        if field == ML_PROGRAM {
            out.extend_from_slice(&model.rest);
        }
        put_varint(field << 3 | 2, &mut out);
        put_varint(content.len() as u64, &mut out);
        out.extend_from_slice(content);
    }
    out
}

fn varint(at: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for i in 0..10 {
        let (&byte, rest) = at.split_first()?;
        *at = rest;
        value |= u64::from(byte & 0x7f).checked_shl(7 * i)?;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn take<'a>(at: &mut &'a [u8], n: u64) -> Option<&'a [u8]> {
    let (taken, rest) = at.split_at_checked(usize::try_from(n).ok()?)?;
    *at = rest;
    Some(taken)
}

fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
