//! Records of training runs: times of steps and of their parts, compiles, and what follows from
//! them.

use super::super::StepCost;
use super::record::PublishedRecord;

/// A pipeline of the reference trainers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TrainerPipeline {
    /// Ten kernels with weights in their inputs, compiled once (training-dynamic §3).
    Dynamic,
    /// Six kernels with constant weights, compiled again after every ten steps (training-static
    /// §2).
    Static,
    /// As `Static`, with norms, classifier and softmax on the engine (training-static §4).
    StaticExtras,
}

/// Steps between two compiles of the static trainers (training-static §2).
const BATCH: f64 = 10.0;

/// Operations of a step of Stories110M on the engine and in all, in GFLOP, as the static trainer
/// counts them (training-static §3).
const STEP_GFLOP: (f64, f64) = (93.013, 174.248);

/// Operations of the classifier's logits, 2·32000·768·256, in GFLOP; with extras they count for the
/// engine.
const LOGITS_GFLOP: f64 = 12.583;

/// The peak in TFLOPS that the static trainer divides by (training-static §3).
const TRAINER_PEAK: f64 = 15.8;

impl TrainerPipeline {
    /// The pipeline that the record's configuration, benchmark or source names.
    pub(super) fn of(record: &PublishedRecord<'_>) -> Option<TrainerPipeline> {
        let named = record.text("pipeline").or(record.text("run")).unwrap_or(record.what).to_lowercase();
        let has = |word: &str| named.contains(word);
        if has("no-ane-extras") || has("single") {
            return None;
        }
        if has("dynamic") {
            return Some(TrainerPipeline::Dynamic);
        }
        if has("train_large_ane") || has("ane extras") {
            return Some(TrainerPipeline::StaticExtras);
        }
        if has("static") || has("train_large") {
            return Some(TrainerPipeline::Static);
        }
        match (record.what, record.metric) {
            // The community's summaries repeat the two runs of their file.
            ("summary", "training_ms_per_step_cpu") | ("sustained training", "tflops_low") => {
                Some(TrainerPipeline::Static)
            }
            ("summary", "training_ms_per_step_ane" | "training_ane_tflops" | "training_ane_util_pct")
            | ("sustained training", "tflops_high") => Some(TrainerPipeline::StaticExtras),
            // The report has one run, of the static pipeline.
            ("training", _) if record.source.contains("ANE_BENCHMARK_REPORT") => Some(TrainerPipeline::Static),
            // The commit that added the tenth kernel of the dynamic pipeline.
            ("training", "ms_per_step") if record.text("commit") == Some("475348a") => Some(TrainerPipeline::Dynamic),
            // The pull request changes the static trainer.
            ("train_opt", "ms_per_step_before") | ("compile", "compile_60_kernels") => Some(TrainerPipeline::Static),
            _ => None,
        }
    }
}

/// The model of a training record: named by the record or by its log, or the only one that the
/// trainer had.
pub(super) fn training_model(record: &PublishedRecord<'_>, pipeline: TrainerPipeline) -> Option<&'static str> {
    const KNOWN: [&str; 2] = ["stories110m", "qwen3-0.6b"];
    let named = record.text("model").into_iter().chain(record.text("log")).chain([record.source]);
    let mut found = named.filter_map(|text| {
        let lower = text.to_lowercase();
        KNOWN.into_iter().find(|name| lower.contains(*name))
    });
    let only = || {
        let one = record.what == "dynamic compile"
            || record.source.contains("PR#28")
            || matches!(record.text("commit"), Some("cb474e1" | "926f977"));
        (pipeline != TrainerPipeline::Dynamic || one).then_some("stories110m")
    };
    found.next().or_else(only)
}

/// A step of a trainer, and the record that asks for one of its numbers.
pub(super) struct TrainerRun<'a> {
    pub(super) pipeline: TrainerPipeline,
    pub(super) step: &'a StepCost,
    pub(super) stories110m: bool,
}

impl TrainerRun<'_> {
    /// The time of a step. The static trainers compute the norms of the layers on the engine; those
    /// of the forward pass are a small part of its kernels and are not timed on the CPU.
    fn step_ms(&self) -> f64 {
        match self.pipeline {
            TrainerPipeline::Dynamic => self.step.total_ms(),
            TrainerPipeline::Static => self.step.total_ms() - self.step.parts.forward_rms_ms + self.step.parts.norm_ms,
            TrainerPipeline::StaticExtras => self.step.total_ms() - self.step.parts.forward_rms_ms,
        }
    }

    /// Compiling for a number of steps.
    fn compile_ms(&self, steps: f64) -> f64 {
        match self.pipeline {
            TrainerPipeline::Dynamic => self.step.compile_ms,
            _ => self.step.compile_ms * (steps / BATCH).max(1.0),
        }
    }

    /// The record's number, in its unit.
    pub(super) fn predict(&self, record: &PublishedRecord<'_>) -> Option<f64> {
        let metric = record.metric.trim_end_matches("_min").trim_end_matches("_max");
        let ms = self.time(metric, record);
        let seconds = record.unit == "s" || metric.ends_with("_s");
        ms.map(|ms| if seconds { ms / 1e3 } else { ms }).or_else(|| self.derived(metric, record))
    }

    fn time(&self, metric: &str, record: &PublishedRecord<'_>) -> Option<f64> {
        let (step, parts) = (self.step, &self.step.parts);
        let steps = steps(record);
        let dynamic = self.pipeline == TrainerPipeline::Dynamic;
        let extras = self.pipeline == TrainerPipeline::StaticExtras;
        Some(match metric.strip_prefix("t_").unwrap_or(metric) {
            "ms_per_step" | "avg_train_ms_per_step" | "avg_train" | "ms_per_step_before" => self.step_ms(),
            "training_ms_per_step_cpu" | "training_ms_per_step_ane" => self.step_ms(),
            // The static trainers time the forward pass only (training-static §3).
            "ane" | "ane_ms" if dynamic => step.engine_ms,
            "ane" | "ane_ms" | "ane_fwd" => parts.forward_engine_ms,
            "ane_bwd" => step.engine_ms - parts.forward_engine_ms,
            "io" if dynamic => step.io_ms,
            "io" | "io_fwd" => parts.forward_io_ms,
            "io_bwd" => step.io_ms - parts.forward_io_ms,
            "cpu" if dynamic => step.cpu_ms(),
            // Logs have a line for each pass, the commit message one for both.
            "rms" if dynamic && record.what == "step timing breakdown" => parts.forward_rms_ms,
            "rms" if dynamic => step.rms_ms,
            "rms" if !extras => parts.norm_ms,
            "rms_bwd" => step.rms_ms - parts.forward_rms_ms,
            "silu" if dynamic => step.silu_ms,
            "cls" if dynamic || extras => step.classifier_ms,
            "cls" => parts.logits_ms,
            "elem" if !extras => parts.loss_ms,
            "cblas_wait" => step.wait_ms,
            "dw_copy" => parts.copy_ms,
            "compile_ms" | "compile_per_10_steps" | "compile_60_kernels" => self.compile_ms(BATCH),
            "compile_time_ms" | "compile_time" | "compile_s" => self.compile_ms(steps),
            "train_time_ms" | "train_time" | "train_ms" | "train_s" => self.step_ms() * steps,
            "wall_time_ms" | "wall_time_s" | "wall_time" | "wall_s" => self.compile_ms(steps) + self.step_ms() * steps,
            _ => return None,
        })
    }

    /// Shares and rates that follow from the times.
    fn derived(&self, metric: &str, record: &PublishedRecord<'_>) -> Option<f64> {
        let steps = steps(record);
        let wall = self.compile_ms(steps) + self.step_ms() * steps;
        let (mut engine, all) = STEP_GFLOP;
        if self.pipeline == TrainerPipeline::StaticExtras {
            engine += LOGITS_GFLOP;
        }
        // The counts are those of one model and of the static trainers.
        let counted = self.stories110m && self.pipeline != TrainerPipeline::Dynamic;
        // GFLOP per ms are TFLOPS.
        let rate = engine / self.step_ms();
        Some(match metric {
            "compile_pct" | "compile_pct_one_time" => 100.0 * self.compile_ms(steps) / wall,
            "train_pct" => 100.0 * self.step_ms() * steps / wall,
            "ane_tflops" | "ane_tflops_sustained" | "training_ane_tflops" | "tflops_low" | "tflops_high" if counted => {
                rate
            }
            "total_tflops" if counted => all / self.step_ms(),
            "ane_util_pct" | "training_ane_util_pct" | "ane_utilization_pct_of_15_8_tflops" if counted => {
                100.0 * rate / TRAINER_PEAK
            }
            _ => return None,
        })
    }
}

/// The steps that a record's totals cover: stated, or those of a batch.
fn steps(record: &PublishedRecord<'_>) -> f64 {
    let stated = record.count("steps").map(|n| n as f64);
    stated.unwrap_or(if record.what == "20-step comparison" { 2.0 * BATCH } else { BATCH })
}
