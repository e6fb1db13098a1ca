//! A fresh folder with a tiny model and tiny data, and the command run in it.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A run of three updates on the tiny model.
pub const TINY: &str = "train --model tiny --data ids.u16 --steps 3 --accum 1 --seq 16 --eval-windows 2";

/// Entries of the tiny model's vocabulary.
pub const VOCABULARY: usize = 64;

/// A new temporary folder in which commands run.
pub struct Place(TempDir);

/// What a command came to.
pub struct Outcome {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Place {
    /// With a model's folder `tiny`, 3000 ids in `ids.u16`, and a text of 200 lines in `text.txt`.
    pub fn new() -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        place.model("tiny", VOCABULARY);
        // A pattern with a period, so that there is something to learn.
        let ids = (0..3000u32).flat_map(|i| (((i * i / 7 + i) % 60) as u16).to_le_bytes());
        fs::write(place.path("ids.u16"), ids.collect::<Vec<u8>>()).unwrap();
        let mut text = String::new();
        for i in 0..200 {
            writeln!(text, "Once upon a time there was a cat number {i}. It liked the sun and the red ball.").unwrap();
        }
        fs::write(place.path("text.txt"), text).unwrap();
        place
    }

    /// A Hugging Face configuration of 16 dimensions.
    pub fn model(&self, name: &str, vocabulary: usize) {
        let config = format!(
            r#"{{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16, "intermediate_size": 32,
                "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": {vocabulary},
                "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true}}"#
        );
        fs::create_dir(self.path(name)).unwrap();
        fs::write(self.path(name).join("config.json"), config).unwrap();
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap();
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// The command with `line` split at spaces, not yet run.
    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ferrane"));
        command.current_dir(self.0.path()).args(line.split_whitespace()).stdin(Stdio::null());
        command.env("FERRANE_CACHE_DIR", self.path("cache"));
        command
    }

    pub fn run(&self, line: &str) -> Outcome {
        Outcome::of(&mut self.command(line))
    }

    /// A shell's line; `$FERRANE` is the binary.
    pub fn shell(&self, line: &str) -> Outcome {
        let mut command = Command::new("sh");
        command.current_dir(self.0.path()).env("FERRANE", env!("CARGO_BIN_EXE_ferrane")).args(["-c", line]);
        command.env("FERRANE_CACHE_DIR", self.path("cache"));
        Outcome::of(&mut command)
    }

    /// Starts a command and gives its standard output to read.
    pub fn start(&self, line: &str) -> (Child, BufReader<ChildStdout>) {
        let mut child = self.command(line).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        (child, out)
    }

    /// The weights and the optimizer's state of a run after `step` updates, and its metrics without
    /// times.
    pub fn state(&self, run: &str, step: u64) -> (Vec<u8>, Vec<u8>, Vec<Value>) {
        let file = |name: &str| self.read(&format!("{run}/step-{step:06}/{name}"));
        (file("model.safetensors"), file("optimizer.safetensors"), self.metrics(run))
    }

    /// The lines of `metrics.jsonl` without times.
    pub fn metrics(&self, run: &str) -> Vec<Value> {
        let mut lines = objects(&String::from_utf8(self.read(&format!("{run}/metrics.jsonl"))).unwrap());
        for line in lines.iter_mut().filter_map(Value::as_object_mut) {
            line.remove("tokens_per_second");
            line.remove("process");
        }
        lines
    }
}

impl Outcome {
    pub fn of(command: &mut Command) -> Outcome {
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let outcome = Outcome { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) };
        assert!(!outcome.err.contains("panicked"), "{}", outcome.err);
        outcome
    }

    /// Checks that the exit status is 0.
    #[track_caller]
    pub fn ok(self) -> Outcome {
        assert_eq!(self.code, Some(0), "{}", self.err);
        self
    }

    /// Failed with this status, nothing on standard output, and all of these words in its message.
    #[track_caller]
    pub fn refused(self, code: i32, words: &[&str]) -> Outcome {
        assert_eq!(self.code, Some(code), "{}{}", self.out, self.err);
        assert_eq!(self.out, "");
        let message = self.err.split("error: ").nth(1).unwrap_or_else(|| panic!("no error in: {}", self.err));
        for word in words {
            assert!(message.contains(word), "no `{word}` in: {message}");
        }
        self
    }

    /// Standard output, every line of which must be a JSON object.
    #[track_caller]
    pub fn objects(&self) -> Vec<Value> {
        objects(&self.out)
    }
}

#[track_caller]
fn objects(text: &str) -> Vec<Value> {
    let object = |line: &str| match serde_json::from_str(line) {
        Ok(Value::Object(object)) => Value::Object(object),
        other => panic!("not a JSON object: {line}: {other:?}"),
    };
    text.lines().map(object).collect()
}

/// Reads events until `count` of this kind have come; false at the end of the output.
pub fn wait_for(out: &mut BufReader<ChildStdout>, kind: &str, count: usize) -> bool {
    let wanted = format!("{{\"event\":\"{kind}\"");
    let mut seen = 0;
    let mut line = String::new();
    while seen < count {
        line.clear();
        if out.read_line(&mut line).unwrap() == 0 {
            return false;
        }
        seen += usize::from(line.starts_with(&wanted));
    }
    true
}
