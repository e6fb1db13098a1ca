//! Models with weights of a few bits.
//!
//! [`quantize`] replaces the weights of a model by values that a [`QuantizedForm`] can hold, and
//! returns the codes; [`QuantizedModel::write_folder`] and [`QuantizedModel::write_gguf`] write
//! files that [`crate::model::Model::open`] and other programs read.
//!
//! With windows of a calibration text the codes are chosen so that the *products* of the matrices
//! with the model's activations are close, not the weights by themselves (`feedback`). Layer after
//! layer, the activations are those of the model whose layers before are quantized already.
//!
//! | module | what |
//! |---|---|
//! | [`encoding`] | codes and levels of a matrix, shared with [`mod@crate::export`] |
//! | `grid`, `palette` | how levels are chosen |
//! | `feedback` | rounding that looks at activations |
//! | `calibrate` | the activations of a text |
//! | `folder`, `gguf` | the files, with [`mod@crate::save`] |

mod calibrate;
pub mod encoding;
mod error;
mod feedback;
mod folder;
mod gguf;
mod grid;
mod palette;

#[cfg(test)]
mod tests;

pub use crate::save::{check_target, prepare};
pub use error::Error;

use half::f16;

use crate::config::Config;
use crate::reference::Reference;
use crate::weights::{Part, Slot, TensorKind, Weights};
use calibrate::{Calibration, LayerHessians};
use encoding::{Encoded, Encoding, OutOfRange, encode, encode_with};
use feedback::Hessian;

/// Values of a row that share a scale in the forms with blocks: what MLX, GGUF and MIL can hold.
pub const BLOCK: usize = 32;
/// Rows that share a palette.
pub const PALETTE_ROWS: usize = 32;

/// How the matrices of a quantized model are stored. In the forms of 4 and 6 bits the embedding and
/// the classifier are int8: they lose the most, and a lookup reads one row. Matrices whose rows are
/// no whole blocks, and routers, are fp16. Norms and biases keep their values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QuantizedForm {
    /// int8 codes with a scale for each output channel.
    Int8,
    /// int8 codes with a scale for each block of 32 weights, as Q8_0 of GGUF.
    Int8Blocks,
    /// int4 codes with a scale for each block of 32 weights, as Q4_0 of GGUF.
    Int4,
    /// 4-bit codes with a scale and a bias for each block of 32 weights, as Q4_1 of GGUF.
    Affine4,
    /// Indices of 4 bits into a palette of 16 values for each 32 rows.
    Palette4,
    /// Indices of 6 bits into a palette of 64 values for each 32 rows.
    Palette6,
}

impl QuantizedForm {
    /// All forms, in the order in which the command lists them.
    pub const ALL: [QuantizedForm; 6] = [
        QuantizedForm::Int8,
        QuantizedForm::Int8Blocks,
        QuantizedForm::Int4,
        QuantizedForm::Affine4,
        QuantizedForm::Palette4,
        QuantizedForm::Palette6,
    ];

    /// `int8`, `int8-blocks`, `int4`, `affine4`, `palette4` or `palette6`.
    pub fn name(self) -> &'static str {
        match self {
            QuantizedForm::Int8 => "int8",
            QuantizedForm::Int8Blocks => "int8-blocks",
            QuantizedForm::Int4 => "int4",
            QuantizedForm::Affine4 => "affine4",
            QuantizedForm::Palette4 => "palette4",
            QuantizedForm::Palette6 => "palette6",
        }
    }

    /// The encoding of the matrices of the layers.
    pub fn encoding(self) -> Encoding {
        match self {
            QuantizedForm::Int8 => Encoding::INT8,
            QuantizedForm::Int8Blocks => Encoding::Symmetric { bits: 8, block: Some(BLOCK) },
            QuantizedForm::Int4 => Encoding::INT4,
            QuantizedForm::Affine4 => Encoding::Affine { bits: 4, block: BLOCK },
            QuantizedForm::Palette4 => Encoding::Palette { bits: 4, rows: Some(PALETTE_ROWS) },
            QuantizedForm::Palette6 => Encoding::Palette { bits: 6, rows: Some(PALETTE_ROWS) },
        }
    }

    /// The encoding of a tensor; `None` for one that stays fp16.
    fn encoding_of(self, slot: Slot, cols: usize) -> Option<Encoding> {
        let encoding = match slot {
            Slot::Embed | Slot::Classifier if self == QuantizedForm::Int8Blocks => self.encoding(),
            Slot::Embed | Slot::Classifier => Encoding::INT8,
            Slot::Layer(_, Part::Router) => return None,
            _ if slot.kind() == TensorKind::Matrix => self.encoding(),
            _ => return None,
        };
        // The files of the other forms have groups of at least 32 values.
        let whole = matches!(encoding, Encoding::Palette { .. }) || cols.is_multiple_of(BLOCK);
        (whole && cols > 0).then_some(encoding)
    }
}

/// A tensor of a quantized model.
#[derive(Debug, Clone)]
pub struct QuantizedTensor {
    /// Which tensor of the model it is.
    pub slot: Slot,
    /// Codes and levels: of the tensor, or of each expert. Empty for a tensor without codes.
    pub pieces: Vec<Encoded>,
    /// Bytes of codes and levels, or of the values.
    pub bytes: usize,
    /// The norm of the error of the weights, in parts of the norm of the weights.
    pub weight_error: f64,
    /// The norm of the error of the products with the activations of the calibration text, in parts
    /// of the norm of the products; `None` without a text.
    pub product_error: Option<f64>,
}

/// The codes of a model.
#[derive(Debug, Clone)]
pub struct QuantizedModel {
    /// The form that was asked for.
    pub form: QuantizedForm,
    /// Every tensor, in the order of [`Weights::tensors`].
    pub tensors: Vec<QuantizedTensor>,
}

/// Replaces the weights by values of a form, and returns their codes. `calibration` has windows of
/// a text, each from position 0, or none. `progress` is called with the number of tensors that are
/// done, and returns whether to continue.
///
/// # Errors
/// [`Error::Weights`] and [`Error::Reference`] for weights and tokens that do not fit the
/// configuration, [`Error::Range`] for a weight that fp16 does not hold, [`Error::Cancelled`].
/// The weights may be half replaced then.
pub fn quantize(
    config: &Config,
    weights: &mut Weights,
    form: QuantizedForm,
    calibration: &[Vec<u32>],
    progress: &mut dyn FnMut(usize) -> bool,
) -> Result<QuantizedModel, Error> {
    let reference = Reference::new(config, weights)?;
    let windows = calibration.iter().filter(|window| !window.is_empty());
    let streams: Result<Vec<_>, _> = windows.map(|window| reference.embedded(window)).collect();
    let mut calibration = Some(streams?).filter(|streams| !streams.is_empty()).map(|streams| Calibration { streams });
    let mut model = QuantizedModel { form, tensors: Vec::new() };
    let mut add = |slot: Slot, values: &mut [f32], hessians: Option<&LayerHessians>| -> Result<(), Error> {
        model.tensors.push(tensor(config, form, slot, values, hessians)?);
        if progress(model.tensors.len()) { Ok(()) } else { Err(Error::Cancelled) }
    };
    add(Slot::Embed, &mut weights.embed, None)?;
    for (index, layer) in weights.layers.iter_mut().enumerate() {
        let hessians = calibration.as_ref().map(|text| text.hessians(config, index, layer)).transpose()?;
        for (part, values) in layer.parts_mut() {
            add(Slot::Layer(index, part), values, hessians.as_ref())?;
        }
        if let Some(text) = &mut calibration {
            text.advance(config, index, layer);
        }
    }
    add(Slot::Norm, &mut weights.norm, None)?;
    if let Some(classifier) = &mut weights.classifier {
        add(Slot::Classifier, classifier, None)?;
    }
    Ok(model)
}

/// Encodes a tensor and replaces its values.
fn tensor(
    config: &Config,
    form: QuantizedForm,
    slot: Slot,
    values: &mut [f32],
    hessians: Option<&LayerHessians>,
) -> Result<QuantizedTensor, Error> {
    let shape = slot.shape(config);
    let cols = shape.last().copied().unwrap_or(0);
    let hessian = match slot {
        Slot::Layer(_, part) => hessians.and_then(|all| all.of(part)),
        _ => None,
    };
    let range = |OutOfRange(value)| Error::Range { name: slot.name(), value };
    let before = values.to_vec();
    let mut found = QuantizedTensor { slot, pieces: Vec::new(), bytes: 0, weight_error: 0.0, product_error: None };
    match form.encoding_of(slot, cols) {
        Some(encoding) => {
            // Experts are matrices of their own.
            let count = if shape.len() == 3 { shape[0].max(1) } else { 1 };
            for piece in values.chunks_mut((before.len() / count).max(1)) {
                let encoded = matrix(piece, cols, encoding, hessian.filter(|_| count == 1)).map_err(range)?;
                piece.copy_from_slice(&encoded.decode());
                found.bytes += encoded.bytes();
                found.pieces.push(encoded);
            }
        }
        None if slot.kind() == TensorKind::Matrix => {
            for value in values.iter_mut() {
                let half = f16::from_f32(*value);
                if !half.is_finite() {
                    return Err(range(OutOfRange(*value)));
                }
                *value = half.to_f32();
            }
            found.bytes = 2 * values.len();
        }
        None => found.bytes = if fits_fp16(values) { 2 } else { 4 } * values.len(),
    }
    let errors: Vec<f32> = before.iter().zip(values.iter()).map(|(a, b)| a - b).collect();
    let norm = |values: &[f32]| values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
    let part = |error: f64, of: f64| if of > 0.0 { error / of } else { 0.0 };
    found.weight_error = part(norm(&errors), norm(&before));
    found.product_error = hessian.map(|hessian| part(hessian.norm(&errors), hessian.norm(&before)));
    Ok(found)
}

/// Whether fp16 holds all values exactly.
fn fits_fp16(values: &[f32]) -> bool {
    values.iter().all(|value| f16::from_f32(*value).to_f32() == *value)
}

fn matrix(values: &[f32], cols: usize, encoding: Encoding, hessian: Option<&Hessian>) -> Result<Encoded, OutOfRange> {
    let text = hessian.and_then(|hessian| Some((hessian.importance()?, hessian.feedback()?)));
    match text {
        None => encode(values, cols, encoding, None),
        Some((importance, feedback)) => {
            encode_with(values, cols, encoding, Some(&importance), |levels| feedback.round(values, encoding, levels))
        }
    }
}

impl QuantizedModel {
    /// Bytes of all tensors.
    pub fn bytes(&self) -> u64 {
        self.tensors.iter().map(|tensor| tensor.bytes as u64).sum()
    }

    /// The matrices that stayed fp16, although the form is for matrices: rows that are no whole
    /// blocks, and routers.
    pub fn kept(&self) -> impl Iterator<Item = &QuantizedTensor> {
        self.tensors.iter().filter(|tensor| tensor.pieces.is_empty() && tensor.slot.kind() == TensorKind::Matrix)
    }
}
