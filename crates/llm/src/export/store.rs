//! The weights of a package: each tensor once, however many functions read it.

use ferrane_mil::{Builder, Constant, DataType, MilError, ValueId, WeightId, Weights as Records, op};

use super::Error;
use super::chunks::ModelPart;
use super::encoding::{self, Encoded, WeightEncoding};
use crate::config::Config;
use crate::decode::program::head_order;
use crate::weights::{self, Layer, Part, Slot, WeightSource};

/// The file of a package that holds the weights.
const FILE: &str = "@model_path/weights/weight.bin";
/// Most rows of the classifier in one product; 32,000 is the most that is known to run.
const MOST_ROWS: usize = 32_768;
/// Most pieces of the classifier.
const MOST_PIECES: usize = 64;

/// A matrix `[rows, cols]` among the records.
#[derive(Clone)]
pub(super) struct Matrix {
    rows: usize,
    cols: usize,
    records: MatrixRecords,
}

#[derive(Clone)]
enum MatrixRecords {
    Plain(WeightId),
    Scaled { dtype: DataType, codes: WeightId, scales: WeightId, blocks: usize },
    Palette { dtype: DataType, indices: WeightId, lut: WeightId, entries: usize },
}

impl Matrix {
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// The matrix as the constant weight of a 1×1 convolution, `[rows, cols, 1, 1]`.
    pub(super) fn filter(&self, b: &mut Builder, name: &str) -> Result<ValueId, MilError> {
        self.value(b, name, &[1, 1])
    }

    /// The matrix as a table with a row for each index, `[rows, cols]`.
    pub(super) fn table(&self, b: &mut Builder, name: &str) -> Result<ValueId, MilError> {
        self.value(b, name, &[])
    }

    /// The matrix with further extents of 1.
    fn value(&self, b: &mut Builder, name: &str, ones: &[usize]) -> Result<ValueId, MilError> {
        let extents = |first: usize, second: usize| [&[first, second], ones].concat();
        let whole = extents(self.rows, self.cols);
        match &self.records {
            MatrixRecords::Plain(id) => b.weight_record(name, DataType::Fp16, &whole, *id),
            MatrixRecords::Scaled { dtype, codes, scales, blocks } => {
                let data = b.weight_record(&format!("{name}_codes"), *dtype, &whole, *codes)?;
                let shape = extents(self.rows, *blocks);
                let scale = b.weight_record(&format!("{name}_scales"), DataType::Fp16, &shape, *scales)?;
                b.op(op::CONSTEXPR_BLOCKWISE_SHIFT_SCALE, name, [("data", data.into()), ("scale", scale.into())])
            }
            MatrixRecords::Palette { dtype, indices, lut, entries } => {
                let indices = b.weight_record(&format!("{name}_indices"), *dtype, &whole, *indices)?;
                let shape = [vec![1; whole.len()], vec![*entries, 1]].concat();
                let lut = b.weight_record(&format!("{name}_lut"), DataType::Fp16, &shape, *lut)?;
                b.op(op::CONSTEXPR_LUT_TO_DENSE, name, [("indices", indices.into()), ("lut", lut.into())])
            }
        }
    }
}

/// A vector in fp16, which an op reads as `[1, channels, 1, 1]` or along another axis.
pub(super) struct Vector {
    len: usize,
    id: WeightId,
}

impl Vector {
    /// The vector along an axis of a tensor of rank 4.
    pub(super) fn along(&self, b: &mut Builder, name: &str, axis: usize) -> Result<ValueId, MilError> {
        let mut shape = [1; 4];
        shape[axis] = self.len;
        b.weight_record(name, DataType::Fp16, &shape, self.id)
    }
}

/// The weights of a layer.
pub(super) struct StoredLayer {
    pub(super) attn_norm: Vector,
    pub(super) ffn_norm: Vector,
    pub(super) post_attn_norm: Option<Vector>,
    pub(super) post_ffn_norm: Option<Vector>,
    pub(super) q_norm: Option<Vector>,
    pub(super) k_norm: Option<Vector>,
    /// Query, key and value projections, with a bias each, if any.
    pub(super) q: (Matrix, Option<Vector>),
    pub(super) k: (Matrix, Option<Vector>),
    pub(super) v: (Matrix, Option<Vector>),
    pub(super) o: Matrix,
    pub(super) w1: Matrix,
    pub(super) w3: Matrix,
    pub(super) w2: Matrix,
}

/// The weights of a part of a model.
pub(super) struct StoredModel {
    pub(super) records: Records,
    /// Only of the first part.
    pub(super) embed: Option<Matrix>,
    /// Index of the first of the layers in the model.
    pub(super) first: usize,
    pub(super) layers: Vec<StoredLayer>,
    /// Only of the last part.
    pub(super) norm: Option<Vector>,
    /// Only of the last part: pieces of equally many rows.
    pub(super) classifier: Vec<Matrix>,
}

/// The number of equal pieces of a classifier, so that none has more rows than one product should;
/// 1 if there is no such number.
pub(super) fn pieces(vocab: usize) -> usize {
    let least = vocab.div_ceil(MOST_ROWS).max(1);
    (least..=MOST_PIECES).find(|pieces| vocab.is_multiple_of(*pieces)).unwrap_or(1)
}

impl StoredModel {
    /// Encodes the weights of a part; `progress` is called with the number of the model's layers
    /// that are done.
    pub(super) fn new(
        config: &Config,
        weights: &dyn WeightSource,
        encoding: WeightEncoding,
        part: &ModelPart,
        progress: &mut dyn FnMut(usize),
    ) -> Result<StoredModel, Error> {
        let mut made = Maker { records: Records::new(), encoding };
        let (dim, tables) = (config.dim, encoding.of_tables());
        let tensor = |slot: Slot| {
            let shape = slot.shape(config);
            let mut values = vec![0.0; shape.iter().product()];
            weights::fill(weights, slot, &shape, &mut values).map(|()| values)
        };
        let embed = match part.embed {
            true => Some(made.matrix("embed", &tensor(Slot::Embed)?, dim, tables)?),
            false => None,
        };
        let mut layers = Vec::with_capacity(part.layers.len());
        progress(part.layers.start);
        for index in part.layers.clone() {
            layers.push(made.layer(config, index, &Layer::read(weights, config, index)?)?);
            progress(index + 1);
        }
        let (mut norm, mut classifier) = (None, Vec::new());
        if part.head {
            norm = Some(made.vector("norm", &tensor(Slot::Norm)?)?);
            let pieces = pieces(config.vocab);
            classifier = match &embed {
                // The two are one matrix in the package, too.
                Some(embed) if config.tied && pieces == 1 => vec![embed.clone()],
                _ => {
                    let rows = config.vocab / pieces * dim;
                    let all = tensor(if config.tied { Slot::Embed } else { Slot::Classifier })?;
                    let piece = |rows: &[f32]| made.matrix("classifier", rows, dim, tables);
                    all.chunks(rows.max(1)).map(piece).collect::<Result<_, _>>()?
                }
            };
        }
        Ok(StoredModel { records: made.records, embed, first: part.layers.start, layers, norm, classifier })
    }
}

struct Maker {
    records: Records,
    encoding: WeightEncoding,
}

impl Maker {
    fn matrix(&mut self, name: &str, values: &[f32], cols: usize, encoding: WeightEncoding) -> Result<Matrix, Error> {
        let range = |value| Error::Range { name: name.to_string(), value };
        let encoded = encoding::encode(values, cols, encoding).map_err(range)?;
        let records = match encoded {
            Encoded::Plain(bytes) => MatrixRecords::Plain(self.records.add(FILE, DataType::Fp16, bytes)),
            Encoded::Scaled { dtype, codes, scales, blocks } => MatrixRecords::Scaled {
                dtype,
                codes: self.records.add_packed(FILE, dtype, values.len(), codes),
                scales: self.records.add(FILE, DataType::Fp16, scales),
                blocks,
            },
            Encoded::Palette { dtype, indices, lut } => MatrixRecords::Palette {
                dtype,
                indices: self.records.add_packed(FILE, dtype, values.len(), indices),
                entries: lut.len() / 2,
                lut: self.records.add(FILE, DataType::Fp16, lut),
            },
        };
        Ok(Matrix { rows: values.len() / cols.max(1), cols, records })
    }

    fn vector(&mut self, name: &str, values: &[f32]) -> Result<Vector, Error> {
        // Encoded for its check of the range.
        match self.matrix(name, values, values.len(), WeightEncoding::Fp16)?.records {
            MatrixRecords::Plain(id) => Ok(Vector { len: values.len(), id }),
            _ => Err(Error::Unsupported { reason: format!("`{name}` is not a vector of fp16") }),
        }
    }

    /// A layer. What the configuration multiplies a branch of the residual stream by is part of its
    /// last weight.
    fn layer(&mut self, config: &Config, index: usize, layer: &Layer) -> Result<StoredLayer, Error> {
        let name = |part: Part| format!("layers.{index}.{}", part.name());
        let order = head_order(config);
        let scaled = |values: &[f32], here: bool| -> Vec<f32> {
            let factor = if here { config.residual_scale } else { 1.0 };
            values.iter().map(|value| factor * value).collect()
        };
        let (dim, encoding) = (config.dim, self.encoding);
        let mut vector = |part: Part, values: Option<&Vec<f32>>, cols: usize| {
            values.map(|values| self.vector(&name(part), &ordered(values, &order, cols))).transpose()
        };
        // Vectors of heads are permuted like the rows of their projections, 1 value a row.
        let (bq, bk) = (vector(Part::Bq, layer.bq.as_ref(), 1)?, vector(Part::Bk, layer.bk.as_ref(), 1)?);
        let q_norm = vector(Part::QNorm, layer.q_norm.as_ref(), 1)?;
        let k_norm = vector(Part::KNorm, layer.k_norm.as_ref(), 1)?;
        let bv = layer.bv.as_ref().map(|values| self.vector(&name(Part::Bv), values)).transpose()?;
        let mut post = |part: Part, values: Option<&Vec<f32>>| {
            values.map(|values| self.vector(&name(part), &scaled(values, true))).transpose()
        };
        let post_attn_norm = post(Part::PostAttnNorm, layer.post_attn_norm.as_ref())?;
        let post_ffn_norm = post(Part::PostFfnNorm, layer.post_ffn_norm.as_ref())?;
        let mut matrix = |part: Part, values: &[f32], cols: usize| self.matrix(&name(part), values, cols, encoding);
        Ok(StoredLayer {
            q: (matrix(Part::Wq, &ordered(&layer.wq, &order, dim), dim)?, bq),
            k: (matrix(Part::Wk, &ordered(&layer.wk, &order, dim), dim)?, bk),
            v: (matrix(Part::Wv, &layer.wv, dim)?, bv),
            o: matrix(Part::Wo, &scaled(&layer.wo, post_attn_norm.is_none()), config.q_dim())?,
            w1: matrix(Part::W1, &layer.w1, dim)?,
            w3: matrix(Part::W3, &layer.w3, dim)?,
            w2: matrix(Part::W2, &scaled(&layer.w2, post_ffn_norm.is_none()), config.hidden)?,
            attn_norm: self.vector(&name(Part::AttnNorm), &layer.attn_norm)?,
            ffn_norm: self.vector(&name(Part::FfnNorm), &layer.ffn_norm)?,
            post_attn_norm,
            post_ffn_norm,
            q_norm,
            k_norm,
        })
    }
}

/// Rows of `cols` values, those of each head in the order of [`head_order`].
fn ordered(values: &[f32], order: &[usize], cols: usize) -> Vec<f32> {
    let heads = values.chunks_exact(order.len() * cols);
    heads.flat_map(|head| order.iter().flat_map(move |row| &head[row * cols..][..cols])).copied().collect()
}

/// A scalar int32 vector as a constant argument.
pub(super) fn ints(values: &[usize]) -> Constant {
    let ints: Vec<i32> = values.iter().map(|value| i32::try_from(*value).unwrap_or(i32::MAX)).collect();
    Constant::int32s(&ints)
}
