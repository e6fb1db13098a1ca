//! The recorded rows.

use std::io::Read as _;

use flate2::read::GzDecoder;
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;

/// The files of `tests/numbers`.
pub struct Archive {
    /// A program with a function for each row.
    pub rows: Vec<u8>,
    inputs: Vec<u8>,
    outputs: Vec<u8>,
    /// Rows that Apple's runtime does not run, `NAME: REASON`, one a line.
    pub stopped: String,
}

impl Archive {
    pub fn read() -> Archive {
        let part = |packed: &[u8]| {
            let mut bytes = Vec::new();
            GzDecoder::new(packed).read_to_end(&mut bytes).expect("a complete file");
            bytes
        };
        Archive {
            rows: part(include_bytes!("../../numbers/rows.mlirb.gz")),
            inputs: part(include_bytes!("../../numbers/inputs.safetensors.gz")),
            outputs: part(include_bytes!("../../numbers/outputs.safetensors.gz")),
            stopped: include_str!("../../numbers/stopped.txt").to_string(),
        }
    }

    pub fn inputs(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.inputs).expect("the inputs")
    }

    pub fn outputs(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.outputs).expect("the outputs")
    }
}

/// The elements of a tensor.
pub enum Elements {
    Floats(Vec<f64>),
    Integers(Vec<i64>),
}

pub fn elements(view: &TensorView<'_>) -> Elements {
    use safetensors::Dtype as D;
    fn each<const N: usize, T>(bytes: &[u8], number: impl Fn([u8; N]) -> T) -> Vec<T> {
        bytes.chunks_exact(N).map(|b| number(b.try_into().unwrap())).collect()
    }
    let bytes = view.data();
    match view.dtype() {
        D::F64 => Elements::Floats(each(bytes, f64::from_le_bytes)),
        D::F32 => Elements::Floats(each(bytes, |b| f32::from_le_bytes(b).into())),
        D::F16 => Elements::Floats(each(bytes, |b| half::f16::from_le_bytes(b).to_f64())),
        D::BF16 => Elements::Floats(each(bytes, |b| half::bf16::from_le_bytes(b).to_f64())),
        D::I64 => Elements::Integers(each(bytes, i64::from_le_bytes)),
        D::U64 => Elements::Integers(each(bytes, |b| u64::from_le_bytes(b) as i64)),
        D::I32 => Elements::Integers(each(bytes, |b| i32::from_le_bytes(b).into())),
        D::U32 => Elements::Integers(each(bytes, |b| u32::from_le_bytes(b).into())),
        D::I16 => Elements::Integers(each(bytes, |b| i16::from_le_bytes(b).into())),
        D::U16 => Elements::Integers(each(bytes, |b| u16::from_le_bytes(b).into())),
        D::I8 => Elements::Integers(each(bytes, |b| i8::from_le_bytes(b).into())),
        D::U8 | D::BOOL => Elements::Integers(each(bytes, |b: [u8; 1]| b[0].into())),
        other => panic!("{other:?}"),
    }
}
