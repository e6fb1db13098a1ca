//! `ferrane generate` and `ferrane chat`, and how both choose tokens.

use std::path::PathBuf;

use clap::Args;
use ferrane::llm::generation_config::GenerationConfig;
use ferrane::llm::sample::Sampling;

use super::{ContextPolicy, DeviceArg, WeightsType, finite32, whole};

/// How tokens are chosen.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Choice of tokens")]
pub struct SamplingArgs {
    /// Sampling temperature; 0 always takes the most likely token [default: the model's, or 0.8].
    #[arg(long, value_name = "F", value_parser = finite32)]
    pub temperature: Option<f32>,
    /// Draw from this many most likely tokens; 0: from all [default: the model's, or all].
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub top_k: Option<usize>,
    /// Nucleus sampling: draw from the most likely tokens whose probabilities add up to this
    /// [default: the model's, or 0.9].
    #[arg(long, value_name = "F", value_parser = finite32)]
    pub top_p: Option<f32>,
    /// Leave out tokens less likely than this fraction of the most likely one [default: the
    /// model's, or 0].
    #[arg(long, value_name = "F", value_parser = finite32)]
    pub min_p: Option<f32>,
    /// Penalty of tokens that prompt or answer contain: divisor of their logits [default: the
    /// model's, or 1].
    #[arg(long, value_name = "F", value_parser = finite32)]
    pub repetition_penalty: Option<f32>,
    /// Subtract this from the logits of tokens that the answer contains.
    #[arg(long, value_name = "F", value_parser = finite32)]
    pub presence_penalty: Option<f32>,
    /// Subtract this from a token's logit for each time that the answer contains it.
    #[arg(long, value_name = "F", value_parser = finite32)]
    pub frequency_penalty: Option<f32>,
    /// The penalties count only the last tokens, this many [default: all].
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub penalty_window: Option<usize>,
    /// Add a number to the logit of a token; may be given several times.
    #[arg(long, value_name = "ID=F", value_parser = bias)]
    pub logit_bias: Vec<(u32, f32)>,
    /// End the text before this string; may be given several times.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub stop: Vec<String>,
}

impl SamplingArgs {
    /// The options: a flag, otherwise what the model recommends, otherwise the command's default.
    pub fn sampling(&self, model: &GenerationConfig, seed: Option<u64>) -> Sampling {
        let base = model.apply(Sampling { temperature: 0.8, top_p: 0.9, ..Sampling::default() });
        Sampling {
            temperature: self.temperature.unwrap_or(base.temperature),
            top_k: self.top_k.or(base.top_k),
            top_p: self.top_p.unwrap_or(base.top_p),
            min_p: self.min_p.unwrap_or(base.min_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(base.repetition_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(base.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(base.frequency_penalty),
            penalty_window: self.penalty_window,
            logit_bias: self.logit_bias.iter().copied().collect(),
            seed,
        }
    }
}

/// Parses `ID=F`.
fn bias(text: &str) -> Result<(u32, f32), String> {
    let (id, bias) = text.split_once('=').ok_or("not of the form ID=F")?;
    Ok((whole(id)?, finite32(bias)?))
}

/// What the text must be.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Grammar of the text")]
pub struct GrammarArgs {
    /// The text is JSON that this JSON schema accepts.
    #[arg(long, value_name = "FILE", group = "grammar_of_text")]
    pub json_schema: Option<PathBuf>,
    /// The text follows this grammar in the syntax of Lark.
    #[arg(long, value_name = "FILE", group = "grammar_of_text")]
    pub grammar: Option<PathBuf>,
    /// The text matches this regular expression as a whole.
    #[arg(long, value_name = "REGEX", group = "grammar_of_text", allow_hyphen_values = true)]
    pub regex: Option<String>,
}

/// An adapter of the model.
#[derive(Args, Debug, Clone)]
pub struct LoraArg {
    /// LoRA adapter: a folder as PEFT writes it, and a factor of its effect [default: 1].
    #[arg(long, value_name = "DIR[:SCALE]")]
    pub lora: Option<String>,
}

/// What runs together with a model.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Adapter and draft")]
pub struct CompanionArgs {
    /// An adapter of the model.
    #[command(flatten)]
    pub adapter: LoraArg,
    /// Draft model: a small one with the same vocabulary, which proposes tokens. The text keeps its
    /// distribution.
    #[arg(long, value_name = "FILE|DIR", conflicts_with = "grammar_of_text")]
    pub draft: Option<PathBuf>,
    /// Number of tokens that the draft proposes at a time.
    #[arg(long, default_value_t = 4, value_name = "N", requires = "draft", value_parser = whole::<usize>)]
    pub draft_tokens: usize,
}

/// `ferrane generate`.
#[derive(Args, Debug)]
#[command(allow_negative_numbers = true)]
pub struct Generate {
    /// Model: the folder of a run, llama2.c .bin, .safetensors, .gguf, or a Hugging Face folder.
    #[arg(long, value_name = "FILE|DIR")]
    pub checkpoint: PathBuf,
    /// Tokenizer; the folder of a run, a Hugging Face folder and a .gguf contain one.
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,
    /// Text to continue; without it, a new text.
    #[arg(long, default_value = "", value_name = "TEXT", allow_hyphen_values = true)]
    pub prompt: String,
    /// Total number of tokens, prompt included.
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = whole::<usize>)]
    pub steps: usize,
    /// Seed of the random draws.
    #[arg(long, default_value_t = 42, value_name = "N", value_parser = whole::<u64>)]
    pub seed: u64,
    /// Element type of the matrices; int8 has a scale for each output channel.
    #[arg(long, value_enum, default_value = "fp16")]
    pub weights_type: WeightsType,
    /// Largest number of tokens that the model sees at a time, on a device [default: the model's].
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub context: Option<usize>,
    /// What happens to a text that is longer than the context, on a device.
    #[arg(long, value_enum, default_value = "shift")]
    pub context_policy: ContextPolicy,
    /// Where the kernels run.
    #[command(flatten)]
    pub device: DeviceArg,
    /// Print one JSON object at the end (text, ids, tokens per second) instead of streaming.
    #[arg(long)]
    pub json: bool,
    /// What runs together with the model.
    #[command(flatten)]
    pub companions: CompanionArgs,
    /// How tokens are chosen.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// What the continuation must be.
    #[command(flatten)]
    pub grammar: GrammarArgs,
}

/// `ferrane chat`.
#[derive(Args, Debug)]
#[command(allow_negative_numbers = true)]
#[command(after_help = "\
Type a message and press Enter; a line that ends with \\ continues on the next one. Ctrl-C ends an answer and keeps
the conversation; Ctrl-D ends the command. Lines that begin with / are commands, and /help lists them.

Examples:
  ferrane chat Qwen2.5-0.5B-Instruct                        talk to a Hugging Face folder
  ferrane chat model --system 'Answer in one sentence.'     with a system message
  ferrane chat model --message 'What is a loom?'            one answer
  ferrane chat model --json < questions.txt                 a conversation, for another program
  ferrane chat runs/mine --template chatml.jinja            a model without a chat template of its own

The model's chat template writes the conversation as the model was trained to read it. A control token that you type,
such as <|im_end|>, stays text.")]
pub struct Chat {
    /// Model: a Hugging Face folder, a .gguf, or another one with --template.
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    /// Tokenizer; a Hugging Face folder contains one.
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,
    /// Chat template in Jinja; without it, the model's own.
    #[arg(long, value_name = "FILE")]
    pub template: Option<PathBuf>,
    /// System message, which stands before the conversation.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub system: Option<String>,
    /// Send this instead of reading messages; may be given several times.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub message: Vec<String>,
    /// A variable of the template, such as enable_thinking=false; the value is JSON or text.
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Largest number of tokens of an answer [default: up to the end of the context].
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub max_tokens: Option<usize>,
    /// Seed of the random draws [default: another one each time].
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    pub seed: Option<u64>,
    /// Keep the lines that you type in this file, for the next time.
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
    /// Element type of the matrices; int8 has a scale for each output channel.
    #[arg(long, value_enum, default_value = "fp16")]
    pub weights_type: WeightsType,
    /// Where the kernels run.
    #[command(flatten)]
    pub device: DeviceArg,
    /// Print JSON lines: {"piece"} while an answer is made, {"answer"} at its end, {"error"}.
    #[arg(long)]
    pub json: bool,
    /// What runs together with the model.
    #[command(flatten)]
    pub companions: CompanionArgs,
    /// How tokens are chosen.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// What each answer must be.
    #[command(flatten)]
    pub grammar: GrammarArgs,
}
