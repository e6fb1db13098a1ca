//! How a run is shown: a bar on a terminal, plain lines elsewhere, JSON for machines.

use std::io::IsTerminal as _;
use std::path::Path;
use std::time::{Duration, Instant};

use ferrane::llm::config::Config;
use ferrane::train::data::{Compaction, Ids};
use ferrane::train::run::{Event, RunOptions, Summary};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

/// Seconds between plain progress lines.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Shows events.
pub struct Show {
    json: bool,
    bar: Option<ProgressBar>,
    last_line: Option<Instant>,
}

impl Show {
    /// On this process's standard streams.
    pub fn new(json: bool) -> Show {
        Show { json, bar: None, last_line: None }
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
        eprintln!(
            "model   {:.2} M parameters: dim {}, hidden {}, {} layers, {}/{} heads of {}, vocabulary {}",
            config.parameters() as f64 / 1e6,
            config.dim,
            config.hidden,
            config.layers,
            config.heads,
            config.kv_heads,
            config.head_dim,
            config.vocab
        );
        let active = if compaction.is_identity() {
            String::new()
        } else {
            format!(", {} of {} ids in use", compaction.len(), compaction.vocabulary())
        };
        let data = options.data.as_ref().map_or("embedded stories".to_string(), |p| p.display().to_string());
        eprintln!("data    {data}: {} tokens{active}", ids.len());
        eprintln!(
            "update  {} windows of {} tokens, {} updates, learning rate {}",
            options.accum * options.batch,
            options.seq,
            options.steps,
            options.lr
        );
        eprintln!("device  {device}");
    }

    /// Says what the device holds.
    pub fn compiled(&mut self, time: Duration, bytes: usize) {
        if !self.json {
            let (ms, mb) = (time.as_secs_f64() * 1e3, bytes as f64 / 1e6);
            eprintln!("kernels 10 compiled in {ms:.0} ms, shared by all layers; surfaces {mb:.1} MB");
        }
    }

    /// Shows one event.
    pub fn event(&mut self, event: &Event) {
        if self.json {
            // Windows are too many to be of use to a reader.
            if !matches!(event, Event::Window { .. }) {
                println!(
                    "{}",
                    serde_json::to_value(event).unwrap_or_else(|e| json!({"event": "error", "text": e.to_string()}))
                );
            }
            return;
        }
        match event {
            Event::Started { step, steps, changes, .. } => {
                if *step > 0 {
                    eprintln!("resume  after update {step}");
                }
                for change in changes {
                    eprintln!("changed {change}");
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
                    let scale = record.loss_scale;
                    self.line(&format!(
                        "update {} skipped: not finite at loss scale {scale}; the scale is halved",
                        record.step
                    ));
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
                            eprintln!("update {:5}  {text}  {} left", record.step, minutes(*seconds_left));
                        }
                    }
                }
            }
            Event::Validated { step, loss } => self.line(&format!("update {step:5}  validation loss {loss:.4}")),
            Event::Warning { text } => self.line(&format!("warning: {text}")),
            Event::Stopped { step, resume } => {
                self.finish();
                eprintln!("stopped after update {step}; to go on: {resume}");
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

    /// The end of a whole run.
    pub fn end(&mut self, summary: &Summary, out: &Path, sample: Option<&str>) {
        for line in summary.efficiency.report() {
            println!("{line}");
        }
        if summary.skipped > 0 {
            println!("{} updates were skipped because something was not finite", summary.skipped);
        }
        if let Some((step, loss)) = summary.validation {
            println!("validation loss {loss:.4} after {step} updates");
        }
        if let Some(sample) = sample {
            println!("\n{}\n", sample.trim());
        }
        let out = out.display();
        println!("curve {out}/loss.svg, numbers {out}/metrics.jsonl, checkpoint {}", summary.checkpoint.display());
        println!("go on: ferrane generate --checkpoint {out} --prompt \"One day\"");
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => eprintln!("{text}"),
        }
    }
}

fn minutes(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    if seconds < 60 { format!("{seconds} s") } else { format!("{}:{:02} min", seconds / 60, seconds % 60) }
}
