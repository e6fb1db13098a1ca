//! `ferrane quantize`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use ferrane::llm::quantize::QuantizedForm;

use super::whole;

/// How the matrices of a quantized model are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum QuantizeWeights {
    /// int8, symmetric, with a scale for each output channel.
    Int8,
    /// int8, symmetric, with a scale for each block of 32 weights (Q8_0 in GGUF).
    Int8Blocks,
    /// int4, symmetric, with a scale for each block of 32 weights (Q4_0 in GGUF).
    Int4,
    /// 4 bits, with a scale and a bias for each block of 32 weights (Q4_1 in GGUF).
    Affine4,
    /// A palette of 16 values for each 32 rows.
    Palette4,
    /// A palette of 64 values for each 32 rows.
    Palette6,
}

impl From<QuantizeWeights> for QuantizedForm {
    fn from(weights: QuantizeWeights) -> QuantizedForm {
        match weights {
            QuantizeWeights::Int8 => QuantizedForm::Int8,
            QuantizeWeights::Int8Blocks => QuantizedForm::Int8Blocks,
            QuantizeWeights::Int4 => QuantizedForm::Int4,
            QuantizeWeights::Affine4 => QuantizedForm::Affine4,
            QuantizeWeights::Palette4 => QuantizedForm::Palette4,
            QuantizeWeights::Palette6 => QuantizedForm::Palette6,
        }
    }
}

/// `ferrane quantize`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ferrane quantize models/llama -o llama-int4 --weights int4 --calibrate text.txt
  ferrane quantize models/llama -o llama-6bit --weights palette6 --eval heldout.txt
  ferrane quantize model.gguf -o model-q4.gguf --weights int4 --calibrate text.txt
  ferrane generate --checkpoint llama-int4 --prompt 'Once upon a time'

Without --calibrate each weight goes to its nearest level. With it, the levels and the rounding follow what the matrices are multiplied by
while the model reads the text (GPTQ): at 4 bits that is usually worth more than another half bit. A few hundred sentences of the kind that
the model shall write are enough. --eval measures the perplexity of a text before and after; it should not be the text of --calibrate. If
both name the same file, calibration takes its first half and evaluation its second.

The embedding and the classifier are int8 in the forms of 4 and 6 bits. int8, int4 and affine4 are written in the layout of MLX, so
mlx-lm reads the folder; palettes, which engines stream best, in a layout of ours. An -o that ends in .gguf needs a model that is a .gguf.
docs/quantization.md has the layouts and a table of what each form costs.")]
pub struct Quantize {
    /// Model: the folder of a run, llama2.c .bin, .safetensors, .gguf, or a Hugging Face folder.
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    /// The folder to write, or a .gguf.
    #[arg(long, short, value_name = "OUT")]
    pub output: PathBuf,
    /// How matrices are stored.
    #[arg(long, value_enum, default_value = "int4")]
    pub weights: QuantizeWeights,
    /// Text, or token ids, that the model reads while its weights are rounded.
    #[arg(long, value_name = "FILE")]
    pub calibrate: Option<PathBuf>,
    /// Text, or token ids, whose perplexity is measured before and after.
    #[arg(long, value_name = "FILE")]
    pub eval: Option<PathBuf>,
    /// Tokenizer, which is also written; a Hugging Face folder and a .gguf contain one.
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,
    /// Tokens in a window of both texts.
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = whole::<usize>)]
    pub seq: usize,
    /// Number of windows of each text, evenly spaced; 0 takes all that fit without overlap.
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = whole::<usize>)]
    pub windows: usize,
    /// Print a line for every tensor.
    #[arg(long)]
    pub tensors: bool,
    /// Replace an output that exists; without it that is an error.
    #[arg(long)]
    pub force: bool,
    /// Print one JSON object about what was written.
    #[arg(long)]
    pub json: bool,
}
