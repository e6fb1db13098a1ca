//! How a run is shown: a bar on a terminal, plain lines elsewhere, JSON for machines.

use std::fmt::Display;
use std::io::IsTerminal as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ferrane::llm::config::Config;
use ferrane::machine::cost::StepCost;
use ferrane::train::data::{Compaction, Ids};
use ferrane::train::metrics::Memory;
use ferrane::train::run::{Event, RunOptions, Summary, quoted};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::error::{Error, Result};
use crate::out::{line, note};
use crate::{memory, model};

/// Seconds between plain progress lines.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Shows events.
pub struct Show {
    json: bool,
    /// Set when nobody reads any more, so that the run saves and ends.
    stop: Arc<AtomicBool>,
    /// Why standard output could not be written to.
    failure: Option<Error>,
    bar: Option<ProgressBar>,
    last_line: Option<Instant>,
}

impl Show {
    /// On this process's standard streams.
    pub fn new(json: bool, stop: Arc<AtomicBool>) -> Show {
        Show { json, stop, failure: None, bar: None, last_line: None }
    }

    /// Says what the run is made of.
    pub fn parts(
        &mut self,
        options: &RunOptions,
        config: &Config,
        ids: &Ids,
        compaction: &Compaction,
        device: Option<&ferrane::Device>,
    ) {
        if self.json {
            return;
        }
        let device = device.map_or_else(|| "the fp32 reference, without a device".to_string(), ferrane::Device::name);
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
        let active = if compaction.is_identity() {
            String::new()
        } else {
            format!(", {} of {} ids in use", compaction.len(), compaction.vocabulary())
        };
        let data = options.data.as_ref().map_or("embedded stories".to_string(), |p| p.display().to_string());
        self.note(format_args!("data    {data}: {} tokens{active}", ids.len()));
        self.note(format_args!(
            "update  {} windows of {} tokens, {} updates, learning rate {}",
            options.accum * options.batch,
            options.seq,
            options.steps,
            options.lr
        ));
        self.note(format_args!("device  {device}"));
    }

    /// Says what the device holds.
    pub fn compiled(&mut self, time: Duration, bytes: usize) {
        if !self.json {
            let (ms, mb) = (time.as_secs_f64() * 1e3, bytes as f64 / 1e6);
            self.note(format_args!("kernels 10 compiled in {ms:.0} ms, shared by all layers; surfaces {mb:.1} MB"));
        }
    }

    /// Shows one event.
    pub fn event(&mut self, event: &Event) {
        if self.json {
            // Windows are too many to be of use to a reader.
            if !matches!(event, Event::Window { .. }) {
                let object =
                    serde_json::to_value(event).unwrap_or_else(|e| json!({"event": "error", "text": e.to_string()}));
                self.result(object);
            }
            return;
        }
        match event {
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
            Event::Warning { text } => self.line(&format!("warning: {text}")),
            Event::Stopped { step, resume } => {
                self.finish();
                // As it was called: whoever goes through `cargo run` has no `ferrane` in reach.
                let resume = resume.strip_prefix("ferrane").map_or(resume.clone(), |rest| model::program() + rest);
                self.note(format_args!("stopped after update {step}; to go on: {resume}"));
            }
            _ => {}
        }
    }

    /// Takes the bar away.
    pub fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    /// What went wrong with standard output, if something did.
    ///
    /// # Errors
    /// That.
    pub fn failure(&mut self) -> Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// The end of a whole run.
    ///
    /// # Errors
    /// When standard output cannot be written to.
    pub fn end(&mut self, summary: &Summary, out: &Path, sample: Option<&str>) -> Result<()> {
        if summary.efficiency.updates == 0 {
            let (out, step) = (quoted(&out.display().to_string()), summary.step);
            line(format_args!(
                "the run in {out} has done all its {step} updates; to go on give more of them with --steps"
            ))?;
        } else {
            for text in summary.efficiency.report() {
                line(text)?;
            }
        }
        if summary.skipped > 0 {
            line(format_args!("{} updates were skipped because something was not finite", summary.skipped))?;
        }
        if let Some((step, loss)) = summary.validation {
            line(format_args!("validation loss {loss:.4} after {step} updates"))?;
        }
        if let Some(sample) = sample {
            line(format_args!("\n{}\n", sample.trim()))?;
        }
        let file = |name: &str| out.join(name).display().to_string();
        let (curve, numbers) = (file("loss.svg"), file("metrics.jsonl"));
        line(format_args!("curve {curve}, numbers {numbers}, checkpoint {}", summary.checkpoint.display()))?;
        let (program, out) = (model::program(), quoted(&out.display().to_string()));
        let tokenizer = if sample.is_some() { "" } else { "--tokenizer FILE " };
        line(format_args!("go on: {program} generate --checkpoint {out} {tokenizer}--prompt \"One day\""))
    }

    /// Who held the memory.
    ///
    /// # Errors
    /// When standard output cannot be written to.
    pub fn memory(&self, account: &Memory) -> Result<()> {
        if self.json {
            return line(json!({"event": "memory", "bytes": memory::json(account)}));
        }
        let peak = account.peak.map_or(String::new(), |peak| format!(", {:.1} MB at most", peak as f64 / 1e6));
        line(format_args!("memory{peak}"))?;
        memory::show(account)
    }

    /// What a window would take on a chip, beside what it took here.
    ///
    /// # Errors
    /// When standard output cannot be written to.
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

    /// A line of the result; what goes wrong is kept, and ends the run.
    fn result(&mut self, text: impl Display) {
        if self.failure.is_some() {
            return;
        }
        if let Err(error) = line(text) {
            self.failure = Some(error);
            self.stop.store(true, Ordering::SeqCst);
        }
    }

    /// A line for the person who waits; without a reader the run ends.
    fn note(&self, text: impl Display) {
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

fn minutes(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    if seconds < 60 { format!("{seconds} s") } else { format!("{}:{:02} min", seconds / 60, seconds % 60) }
}
