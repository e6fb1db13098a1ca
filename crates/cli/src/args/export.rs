//! `ferrane export`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{LoraArg, whole};

/// The kind of the output, by the program that reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// A Core ML package.
    Coreml,
    /// A folder that transformers loads.
    Huggingface,
    /// A file that llama.cpp loads.
    Gguf,
}

/// How the matrices of an exported model are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportWeights {
    /// fp16 values.
    Fp16,
    /// fp32 values; not in a package.
    Fp32,
    /// 8 bits, with a scale for each block of 32 weights; only in GGUF.
    #[value(name = "q8_0")]
    Q8_0,
    /// int8, symmetric, with a scale for each output channel; only in a package.
    Int8,
    /// int4, symmetric, with a scale for each block of 32 weights; only in a package.
    Int4,
    /// A palette of 16 values for each matrix; only in a package.
    Palette4,
    /// A palette of 64 values for each matrix; only in a package.
    Palette6,
}

/// `ferrane export`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ferrane export models/llama -o llama.mlpackage
  ferrane export models/llama -o small.mlpackage --weights palette6 --context 1024
  ferrane export models/llama -o llama.mlpackage --part-size 900   llama-1of3.mlpackage, ...
  ferrane export runs/stories -o stories                           a folder for transformers
  ferrane export runs/stories -o stories.gguf --weights q8_0       a file for llama.cpp
  ferrane export models/llama --lora runs/notes -o notes           the adapter is merged
  ferrane check --machine m4-macos15-coreml llama.mlpackage

The name of the output says what it is: a package ends in .mlpackage, a GGUF file in .gguf, and a Hugging Face folder has no extension.
--format overrides that, for a folder named `llama-3.2`.

A folder has config.json, model.safetensors, the tokenizer, and the files about generation and chats. A GGUF file has its tokenizer and its
chat template in its metadata. Both have the architectures Llama, Mistral, Qwen2 and Qwen3; a model that was read from a Hugging Face folder
of another family keeps its family in a folder. What a tokenizer has no form for is reported.

The package (iOS 18, macOS 15) has two functions over the same weights. `prefill` takes a window of a prompt, `decode` one token; both
keep keys and values in the states `key_cache` and `value_cache`:
  input_ids    int32 [1, tokens]   the ids; the last window of a prompt is filled up with any id
  current_pos  int32 [1]           the number of positions before them; with the tokens at most --context
  last_index   int32 [1]           only prefill: which of the tokens the logits belong to
  logits       fp16                the logits of the next token, in the order of the ids
docs/export.md has programs in Swift and Python that use it.")]
pub struct Export {
    /// Model: the folder of a run, llama2.c .bin, .safetensors, .gguf, or a Hugging Face folder.
    /// The tokenizer and the chat template of a folder become part of the output.
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    /// What to write: a .mlpackage, a .gguf, or a folder.
    #[arg(long, short, value_name = "OUT")]
    pub output: PathBuf,
    /// What the output is [default: by its name].
    #[arg(long, value_enum)]
    pub format: Option<ExportFormat>,
    /// How matrices are stored. In a package with all but fp16 the embedding and the classifier are
    /// int8.
    #[arg(long, value_enum, default_value = "fp16")]
    pub weights: ExportWeights,
    /// Tokenizer of a folder or a GGUF file, in place of the model's own.
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,
    /// An adapter, which is merged into the weights.
    #[command(flatten)]
    pub adapter: LoraArg,
    /// Positions in the caches of a package, a multiple of --prefill [default: up to 2048, as the
    /// model has].
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub context: Option<usize>,
    /// Tokens in a window of a prompt of a package [default: 64, or less for a shorter context].
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub prefill: Option<usize>,
    /// Write several packages of at most so many MB of weights, OUT-1of3.mlpackage and so on, which
    /// an app calls one after the other [default: one package].
    #[arg(long, value_name = "MB", value_parser = whole::<u64>)]
    pub part_size: Option<u64>,
    /// Replace an output that exists; without it that is an error.
    #[arg(long)]
    pub force: bool,
    /// Print one JSON object about what was written.
    #[arg(long)]
    pub json: bool,
}
