//! Shows a run: a progress bar on a terminal, plain lines otherwise, or JSON.

use std::fmt::Display;
use std::io::IsTerminal as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ferrane::llm::config::Config;
use ferrane::machine::cost::StepCost;
use ferrane::train::data::DataSet;
use ferrane::train::metrics::Memory;
use ferrane::train::run::{Event, Summary};
use ferrane::train::session::{DryRun, OnRanks, SessionOptions};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::data::EncodingBar;
use crate::error::{Error, Result};
use crate::out::{line, note, quoted};
use crate::{model, out};

/// Seconds between plain progress lines.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Shows the events of a run.
pub struct Show {
    json: bool,
    options: SessionOptions,
    device: String,
    /// Set if the reader of the output is gone, so that the run saves and ends.
    stop: Arc<AtomicBool>,
    /// Why standard output could not be written to.
    failure: Option<Error>,
    encoding: EncodingBar,
    bar: Option<ProgressBar>,
    last_line: Option<Instant>,
    /// Number of ranks, and whether this is the first one, which alone shows something.
    ranks: (usize, bool),
}

impl Show {
    /// Shows a run on this process's standard streams.
    pub fn new(json: bool, options: &SessionOptions, device: Option<&ferrane::Device>, stop: Arc<AtomicBool>) -> Show {
        let device = device.map_or_else(|| "the fp32 reference, without a device".to_string(), ferrane::Device::name);
        Show {
            json,
            options: options.clone(),
            device,
            stop,
            failure: None,
            encoding: EncodingBar::default(),
            bar: None,
            last_line: None,
            ranks: (1, true),
        }
    }

    /// Shows the run of this many ranks, if this is the first one.
    pub fn of_ranks(self, size: usize, is_first: bool) -> Show {
        Show { ranks: (size, is_first), ..self }
    }

    /// Prints model, data, update and device of the run.
    fn prepared(&self, config: &Config, tokens: usize, active: usize) {
        self.note(format_args!(
            "model   {:.2} M parameters: dim {}, hidden {}, {} layers, {}/{} heads of {}, vocabulary {}",
            config.parameters() as f64 / 1e6,
            config.dim,
            config.hidden,
            config.layers,
            config.heads,
            config.kv_heads,
            config.head_dim,
            config.vocab
        ));
        if let Some(lora) = &self.options.lora {
            self.note(format_args!("lora    rank {lora}; the model's weights are frozen"));
        }
        if !self.options.freeze.is_empty() {
            self.note(format_args!("frozen  {}", self.options.freeze.join(", ")));
        }
        let SessionOptions { data, run, .. } = &self.options;
        let name = |set: &DataSet| match set.weight {
            Some(weight) => format!("{}={weight}", set.path.display()),
            None => set.path.display().to_string(),
        };
        let data = match data.as_slice() {
            [] => "embedded stories".to_string(),
            sets => sets.iter().map(name).collect::<Vec<_>>().join(" "),
        };
        let used =
            if active == config.vocab { String::new() } else { format!(", {active} of {} ids in use", config.vocab) };
        self.note(format_args!("data    {data}: {tokens} tokens{used}"));
        self.note(format_args!(
            "update  {} windows of {} tokens, {} updates, learning rate {}",
            run.windows(),
            run.seq,
            run.steps,
            run.lr
        ));
        self.note(format_args!("device  {}", self.device));
        if self.ranks.0 > 1 {
            self.note(format_args!(
                "ranks   {}; if one is lost, start the same ranks again with --resume --out {}",
                self.ranks.0,
                out::quoted(&run.out.to_string_lossy())
            ));
        }
    }

    /// Shows an event; with `--json` as one line, windows excepted.
    pub fn event(&mut self, event: &Event) {
        if !self.ranks.1 {
            return;
        }
        if self.json {
            // Windows are too frequent to be useful.
            if !matches!(event, Event::Window { .. }) {
                let mut object =
                    serde_json::to_value(event).unwrap_or_else(|e| json!({"event": "error", "text": e.to_string()}));
                if let Event::Stopped { folder, .. } = event {
                    object["resume"] = resume("ferrane", folder).into();
                }
                self.result(object);
            }
            return;
        }
        if !matches!(event, Event::Encoding { .. }) {
            self.encoding.finish();
        }
        match event {
            Event::Encoding { path, done, total } => self.encoding.show(path, *done, *total),
            Event::Prepared { config, tokens, active } => self.prepared(config, *tokens, *active),
            Event::Compiled { programs, seconds, surface_bytes } => {
                let (ms, mb) = (seconds * 1e3, *surface_bytes as f64 / 1e6);
                let whose = match self.options.pipeline.has_constants() {
                    true => "with the weights of each layer",
                    false => "shared by all layers",
                };
                self.note(format_args!("kernels {programs} compiled in {ms:.0} ms, {whose}; surfaces {mb:.1} MB"));
            }
            Event::Started { step, steps, changes, .. } => {
                if *step > 0 {
                    self.note(format_args!("resume  after update {step}"));
                }
                for change in changes {
                    self.note(format_args!("changed {change}"));
                }
                if std::io::stderr().is_terminal() {
                    let style = "{bar:28} {pos}/{len}  {msg}  {eta} left";
                    let bar = ProgressBar::new(*steps).with_position(*step);
                    if let Ok(style) = ProgressStyle::with_template(style) {
                        bar.set_style(style);
                    }
                    bar.reset_eta();
                    self.bar = Some(bar);
                }
            }
            Event::Update { record, skipped, seconds_left } => {
                let loss = record.loss.map_or("not finite".to_string(), |l| format!("{l:.4}"));
                let skips = if *skipped > 0 { format!("  skipped {skipped}") } else { String::new() };
                let text = format!("loss {loss}  lr {:.2e}  {:.0} tok/s{skips}", record.lr, record.tokens_per_second);
                if record.skipped {
                    let (step, scale) = (record.step, record.loss_scale);
                    self.line(&format!("update {step:5}  skipped: not finite at loss scale {scale}"));
                }
                match &self.bar {
                    Some(bar) => {
                        bar.set_message(text);
                        bar.set_position(record.step);
                    }
                    None => {
                        let due = self.last_line.is_none_or(|at| at.elapsed() >= LINE_EVERY);
                        if due {
                            self.last_line = Some(Instant::now());
                            self.note(format_args!(
                                "update {:5}  {text}  {} left",
                                record.step,
                                minutes(*seconds_left)
                            ));
                        }
                    }
                }
            }
            Event::Validated { step, loss } => self.line(&format!("update {step:5}  validation loss {loss:.4}")),
            Event::Sampled { step, text } => self.line(&format!("update {step:5}  sample: {text}")),
            Event::Warning { text } => self.line(&format!("warning: {text}")),
            Event::Stopped { step, folder } => {
                self.finish();
                // The program as it was called: with `cargo run` there is no `ferrane` on the path.
                let resume = resume(&model::program(), folder);
                self.note(format_args!("stopped after update {step}; to resume: {resume}"));
            }
            _ => {}
        }
    }

    /// Removes the progress bars.
    pub fn finish(&mut self) {
        self.encoding.finish();
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    /// Returns the failure of standard output, if any.
    ///
    /// # Errors
    /// The failure.
    pub fn failure(&mut self) -> Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Prints the results of a run.
    ///
    /// # Errors
    /// If standard output cannot be written to.
    pub fn end(&mut self, summary: &Summary, out: &Path, sample: Option<&str>) -> Result<()> {
        if summary.efficiency.updates == 0 {
            let (out, step) = (quoted(&out.display().to_string()), summary.step);
            line(format_args!(
                "the run in {out} has done all its {step} updates; to continue, give more with --steps"
            ))?;
        } else {
            for text in summary.efficiency.report() {
                line(text)?;
            }
        }
        for sum in &summary.energy {
            line(format_args!("{} energy {sum}", sum.domain.name()))?;
        }
        if summary.skipped > 0 {
            line(format_args!("{} updates were skipped because a loss or gradient was not finite", summary.skipped))?;
        }
        if let Some((step, loss)) = summary.validation {
            line(format_args!("validation loss {loss:.4} after {step} updates"))?;
        }
        if let Some(sample) = sample {
            line(format_args!("\n{}\n", sample.trim()))?;
        }
        let file = |name: &str| out.join(name).display().to_string();
        let (page, numbers) = (file("report.html"), file("metrics.jsonl"));
        line(format_args!("report {page}, numbers {numbers}, checkpoint {}", summary.checkpoint.display()))?;
        let (program, out) = (model::program(), quoted(&out.display().to_string()));
        let tokenizer = if sample.is_some() { "" } else { "--tokenizer FILE " };
        // Adapters belong to the model of --init.
        let base = self.options.init.as_ref().filter(|_| self.options.lora.is_some());
        let opened = match base {
            Some(base) => format!("{} --lora {out}", quoted(&base.display().to_string())),
            None => out,
        };
        line(format_args!("next: {program} generate --checkpoint {opened} {tokenizer}--prompt \"One day\""))
    }

    /// Prints the memory of the run by owner.
    ///
    /// # Errors
    /// If standard output cannot be written to.
    pub fn memory(&self, account: &Memory) -> Result<()> {
        if self.json {
            return line(json!({"event": "memory", "bytes": account}));
        }
        let peak = account.peak.map_or(String::new(), |peak| format!(", {:.1} MB at most", peak as f64 / 1e6));
        line(format_args!("memory{peak}"))?;
        out::print(account)
    }

    /// Whether events are printed as JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Prints what a run would take.
    ///
    /// # Errors
    /// If standard output cannot be written to.
    pub fn dry_run(&self, dry: &DryRun) -> Result<()> {
        if !self.json {
            return out::print(dry);
        }
        line(named("dry_run", dry))
    }

    /// Prints what an update would take on several ranks.
    ///
    /// # Errors
    /// If standard output cannot be written to.
    pub fn on_ranks(&self, found: &OnRanks) -> Result<()> {
        if !self.json {
            return line(found);
        }
        line(named("on_ranks", found))
    }

    /// Prints the predicted time of a window on a chip, and the measured time.
    ///
    /// # Errors
    /// If standard output cannot be written to.
    pub fn predicted(&self, target: &str, step: &StepCost, here: f64) -> Result<()> {
        let (whole, cpu) = (step.total_ms(), step.cpu_ms() + step.io_ms);
        if self.json {
            return line(json!({
                "event": "predicted", "target": target, "ms_per_step": whole, "engine_ms": step.engine_ms, "cpu_ms": cpu,
                "compile_ms": step.compile_ms, "energy_mj": step.energy_mj, "measured_ms": here,
            }));
        }
        line(format_args!(
            "{target}: {whole:.2} ms a micro-step predicted ({:.2} engine, {cpu:.2} CPU); {here:.2} ms here",
            step.engine_ms
        ))
    }

    /// Prints a line of the result. A failure is stored and stops the run.
    fn result(&mut self, text: impl Display) {
        if self.failure.is_some() {
            return;
        }
        if let Err(error) = line(text) {
            self.failure = Some(error);
            self.stop.store(true, Ordering::SeqCst);
        }
    }

    /// Prints a progress line. If the reader is gone, the run is stopped.
    pub fn note(&self, text: impl Display) {
        if !note(text) {
            self.stop.store(true, Ordering::SeqCst);
        }
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => self.note(text),
        }
    }
}

/// A result as the JSON object of an event with this name.
fn named(event: &str, result: &impl serde::Serialize) -> serde_json::Value {
    let mut object = serde_json::to_value(result).unwrap_or_default();
    object["event"] = event.into();
    object
}

fn minutes(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    if seconds < 60 { format!("{seconds} s") } else { format!("{}:{:02} min", seconds / 60, seconds % 60) }
}

/// The command that resumes the run in a folder.
fn resume(program: &str, folder: &Path) -> String {
    format!("{program} train --resume --out {}", quoted(&folder.to_string_lossy()))
}
