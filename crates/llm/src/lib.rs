//! Transformers on the device seam: models, tokenizers, kernels, generation.
//!
//! # A model
//!
//! [`model::Model::open`] reads the folder of a training run, a llama2.c checkpoint, a safetensors
//! or GGUF file or a Hugging Face folder, with its tokenizer. A model continues text on a device,
//! or in the fp32 reference.
//!
//! ```no_run
//! use ferrane_llm::model::Model;
//! use ferrane_llm::sample::{Sampler, Sampling};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = Model::open("runs/default")?;
//! let sampler = Sampler::new(&Sampling { temperature: 0.8, top_p: 0.9, ..Sampling::default() })?;
//! let mut generator = model.generator(None, Default::default(), sampler)?;
//! for piece in generator.generate("Once upon a time", 64)? {
//!     print!("{}", piece?.text);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Its parts are a [`config`] (Llama, Mistral, Qwen2, Qwen3, Phi-3, SmolLM, Gemma), [`weights`] in
//! fp32 and a [`tokenizer`]. If the training run covered only some ids, [`compaction`] lists them.
//!
//! # How it runs
//!
//! A *kernel* is a MIL program that is compiled once and serves every layer, because weights are
//! inputs. [`kernels`] builds the kernels of training for a shape ([`layout`]), [`staging`]
//! writes weights into their surfaces, [`forward`] runs the forward pass. [`decode`] runs two
//! programs a layer for one token or a window of tokens, with keys and values in surfaces. [`norm`]
//! and the classifier run on the CPU.
//!
//! [`lora`] reads adapters, which are more inputs of these programs.
//!
//! [`export`](mod@export) writes a whole model as a package for Core ML, [`save`] as a folder of
//! Hugging Face or a GGUF file.
//!
//! [`reference`](mod@reference) is the oracle: the same model in plain fp32, without a device.
//!
//! # Text
//!
//! [`generate`] turns a prompt into ids and continues them, [`sample`] chooses an id from the
//! logits, [`grammar`] restricts the choice to texts of a JSON schema or another grammar,
//! [`speculate`] lets a small model propose them, [`chat`] holds conversations,
//! [`mod@evaluate`] measures the loss on given text.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod chat;
pub mod compaction;
pub mod config;
pub mod cost;
pub mod decode;
pub mod evaluate;
pub mod export;
pub mod forward;
pub mod generate;
pub mod generation_config;
pub mod grammar;
pub mod kernels;
pub mod layout;
pub mod lora;
pub mod model;
pub mod norm;
pub mod quantize;
pub mod random;
pub mod reference;
pub mod run_folder;
pub mod sample;
pub mod save;
pub mod speculate;
pub mod staging;
pub mod stop;
pub mod tokenizer;
pub mod weights;
