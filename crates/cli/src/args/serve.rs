//! `ferrane serve`.

use std::path::PathBuf;

use clap::Args;

use super::{DeviceArg, LoraArg, WeightsType, whole};

/// `ferrane serve`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ferrane serve runs/default                              open http://127.0.0.1:8080/ to chat
  ferrane serve Qwen2.5-0.5B-Instruct --weights-type int8
  ferrane serve model --device 'emulator?numerics=hardware&machine=m4-macos15-inmem'
  ferrane serve model --host 0.0.0.0 --api-key-file keys  other computers, with a key

Clients of OpenAI's API work with the address http://127.0.0.1:8080/v1:
  curl http://127.0.0.1:8080/v1/completions -H 'Content-Type: application/json' \\
    -d '{\"model\": \"default\", \"prompt\": \"Once\", \"max_tokens\": 40}'

Endpoints: /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/models, /health, /metrics, and / for the chat page.
Ctrl-C lets running requests finish, at most --grace seconds; a second one ends at once. docs/serve.md has more.")]
pub struct Serve {
    /// Model: the folder of a run, llama2.c .bin, .safetensors, .gguf, or a Hugging Face folder.
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    /// Address to listen on. Other computers reach 0.0.0.0 or [::]; use --api-key-file then.
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS")]
    pub host: String,
    /// Port to listen on; 0: any that is free.
    #[arg(long, default_value_t = 8080, value_name = "PORT")]
    pub port: u16,
    /// Id of the model in the API; without it, the last part of its path.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Tokenizer; the folder of a run and a Hugging Face folder contain one.
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,
    /// Chat template (Jinja); a Hugging Face folder contains one.
    #[arg(long, value_name = "FILE")]
    pub chat_template: Option<PathBuf>,
    /// Element type of the matrices; int8 has a scale for each output channel.
    #[arg(long, value_enum, default_value = "fp16")]
    pub weights_type: WeightsType,
    /// Largest number of tokens of a prompt and its output; without it, the model's.
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub context: Option<usize>,
    /// Sequences that are computed together, 1 to 16; further ones wait. Each has its own caches of
    /// keys and values. The fp32 reference has one.
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
    pub slots: u8,
    /// An adapter of the model.
    #[command(flatten)]
    pub adapter: LoraArg,
    /// Where the kernels run.
    #[command(flatten)]
    pub device: DeviceArg,
    /// File of API keys, one a line; a request must have one of them.
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// Origin whose pages may call the server (CORS), such as http://localhost:3000; `*`: all. May
    /// be given several times.
    #[arg(long, value_name = "ORIGIN")]
    pub allow_origin: Vec<String>,
    /// Name in the `Host` header that is accepted in addition to those of this computer, for a
    /// proxy or a tunnel. May be given several times.
    #[arg(long, value_name = "NAME")]
    pub allow_host: Vec<String>,
    /// Largest number of sequences that wait; further requests get status 429.
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = whole::<usize>)]
    pub queue: usize,
    /// Largest size of a request, in KiB.
    #[arg(long, default_value_t = 1024, value_name = "KIB", value_parser = whole::<usize>)]
    pub max_body: usize,
    /// Largest number of connections at a time.
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = whole::<usize>)]
    pub connections: usize,
    /// Time of a request from its arrival to its last token, in seconds.
    #[arg(long, default_value_t = 600, value_name = "SECONDS", value_parser = whole::<u64>)]
    pub timeout: u64,
    /// Time for running requests to finish after Ctrl-C, in seconds.
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = whole::<u64>)]
    pub grace: u64,
}
