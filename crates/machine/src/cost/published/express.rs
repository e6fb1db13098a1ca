//! Selects the prediction for a record.
//!
//! A record is matched by its benchmark, its metric and its unit, in that order; the first match
//! gives the prediction. `reason` explains records without a match.

use std::collections::BTreeMap;

use super::super::{CostModel, StepCost};
use super::error::{ErrorSummary, kernel_rows};
use super::kernel::{ConvChain, MeasuredKernel};
use super::reason::reason;
use super::record::{PublishedRecord, chip_name, records};
use super::{ComparedRecord, Comparison, NoPrediction, Prediction, PublishedError};

/// Costs of training pipelines, supplied by the caller: this crate knows no models.
pub trait Pipelines {
    /// The cost of a step of the dynamic pipeline for a model (named as in a record), with the
    /// window of the published runs.
    fn dynamic(&self, model: &str, cost: &CostModel) -> Option<StepCost>;
}

impl Pipelines for () {
    fn dynamic(&self, _: &str, _: &CostModel) -> Option<StepCost> {
        None
    }
}

/// The chains that `inmem_peak` measures: channels and depth at 64 positions (benchmarks §3).
const PEAK: [(u64, u64); 10] =
    [(512, 32), (512, 48), (512, 64), (512, 96), (512, 128), (256, 64), (256, 128), (256, 256), (384, 64), (384, 128)];

/// The number of ops of a program with one convolution between casts (benchmarks §2).
const CONV_OPS: usize = 3;

/// Every record of a file with its prediction, or the reason why there is none.
///
/// # Errors
/// The text is not a JSON array.
pub fn compare(json: &str, pipelines: &dyn Pipelines) -> Result<Comparison, PublishedError> {
    let records = records(json)?;
    let mut models = Models { pipelines, known: BTreeMap::new(), steps: BTreeMap::new() };
    let mut rows = Vec::with_capacity(records.len());
    let kernels = ErrorSummary::of(&kernel_rows(&records));
    for value in records {
        let outcome = models.outcome(&PublishedRecord::new(&value))?;
        rows.push(ComparedRecord { record: value, outcome });
    }
    Ok(Comparison { rows, kernels })
}

/// Models and steps, cached.
struct Models<'a> {
    pipelines: &'a dyn Pipelines,
    known: BTreeMap<String, CostModel>,
    steps: BTreeMap<(String, String), Option<StepCost>>,
}

impl Models<'_> {
    fn outcome(&mut self, record: &PublishedRecord<'_>) -> Result<Result<Prediction, NoPrediction>, PublishedError> {
        let Some(published) = record.value else { return Ok(Err(NoPrediction { reason: "the value is no number" })) };
        let Some(chip) = chip_name(record.chip) else { return Ok(Err(reason(record))) };
        let model = match self.known.get(&chip) {
            Some(model) => model.clone(),
            None => self.known.entry(chip.clone()).or_insert(CostModel::for_chip(&chip)?).clone(),
        };
        let predicted = evaluation(record, &model)
            .or_else(|| compile(record, &model))
            .or_else(|| machine(record, &model))
            .or_else(|| self.training(record, &chip, &model));
        let unit = record.unit.to_string();
        Ok(predicted.map(|predicted| Prediction { published, predicted, unit }).ok_or_else(|| reason(record)))
    }

    /// Predicts times of steps and of their parts.
    fn training(&mut self, record: &PublishedRecord<'_>, chip: &str, model: &CostModel) -> Option<f64> {
        let pipeline = record.text("pipeline").unwrap_or(record.what);
        if !pipeline.starts_with("dynamic") {
            return None;
        }
        let name = training_model(record)?;
        let key = (chip.to_string(), name.to_string());
        let step = self.steps.entry(key).or_insert_with(|| self.pipelines.dynamic(name, model)).as_ref()?;
        Some(match record.metric {
            metric if metric.starts_with("ms_per_step") => step.total_ms(),
            "ane" => step.engine_ms,
            "io" => step.io_ms,
            "cpu" => step.cpu_ms(),
            "rms" => step.rms_ms,
            "silu" => step.silu_ms,
            "cls" => step.classifier_ms,
            "cblas_wait" => step.wait_ms,
            "compile_ms" => step.compile_ms,
            "compile_s" => step.compile_ms / 1e3,
            _ => return None,
        })
    }
}

/// The model of a training record: named by the record or by its log.
fn training_model<'a>(record: &PublishedRecord<'a>) -> Option<&'a str> {
    const KNOWN: [&str; 2] = ["stories110m", "qwen3-0.6b"];
    let named = record.text("model").into_iter().chain(record.text("log")).chain([record.source]);
    let mut found = named.filter_map(|text| {
        let lower = text.to_lowercase();
        let known = KNOWN.iter().find(|name| lower.contains(**name))?;
        let at = lower.find(*known)?;
        text.get(at..at + known.len())
    });
    found.next()
}

/// Predicts one evaluation of a kernel by the standard path.
fn evaluation(record: &PublishedRecord<'_>, model: &CostModel) -> Option<f64> {
    if record.text("path").is_some_and(|path| path != "standard") {
        return None;
    }
    if record.metric == "speedup" && record.what.starts_with("ane_int8_bench") {
        let time = |int8: bool| {
            let value = serde_json::json!({"what": "x", "metric": "ms", "unit": "ms", "config": record.config?});
            ConvChain { int8, ..MeasuredKernel::of(&PublishedRecord::new(&value))?.shape }.ms(model)
        };
        return Some(time(false)? / time(true)?);
    }
    let kernel = MeasuredKernel::of(record)?;
    kernel.from_ms(kernel.shape.ms(model)?)
}

/// Predicts the compile time of one convolution.
fn compile(record: &PublishedRecord<'_>, model: &CostModel) -> Option<f64> {
    if record.metric != "compile_ms" || record.unit != "ms" {
        return None;
    }
    // The shape is parsed like that of an evaluation.
    let value = serde_json::json!({"what": record.what, "metric": "ms", "unit": "ms", "config": record.config?});
    let shape = MeasuredKernel::of(&PublishedRecord::new(&value))?.shape;
    let weights = shape.inputs.checked_mul(shape.outputs)?.checked_mul(shape.depth)?.checked_mul(2)?;
    let layers = usize::try_from(shape.depth).ok()?;
    Some(model.compile_ms(layers.checked_add(CONV_OPS - 1)?, weights))
}

/// Predicts numbers of the machine itself: dispatch cost, peaks, power.
fn machine(record: &PublishedRecord<'_>, model: &CostModel) -> Option<f64> {
    let c = &model.constants;
    let peak = |shapes: &[ConvChain]| {
        let rates = shapes.iter().filter_map(|s| Some(s.flops()? as f64 / s.ms(model)? / 1e9));
        rates.max_by(f64::total_cmp)
    };
    let chains = PEAK.map(|(n, depth)| ConvChain { inputs: n, outputs: n, positions: 64, depth, int8: false });
    let tera = matches!(record.unit, "TFLOPS" | "TOPS" | "");
    match (record.what, record.metric) {
        ("dispatch", "overhead") if record.unit == "ms" => Some(model.dispatch_us() / 1e3),
        ("eval path", "standard") | ("per-dispatch cost", "dispatch_total") if record.unit == "us" => {
            Some(model.dispatch_us())
        }
        ("peak throughput", "peak_tflops_inmem") | ("summary", "peak_tflops") if tera => peak(&chains),
        ("peak throughput", "peak_tflops") | ("peak/training", "fp16_peak") if tera => Some(c.rate_tflops.value),
        ("peak/training", "int8_peak") if tera => Some(c.rate_tflops.value * c.int8_gain.value),
        ("article series", "fp16_peak") if tera => Some(c.rate_tflops.value),
        ("article series", "power") if record.unit == "W" => c.power_w.as_ref().map(|p| p.value),
        ("article series", "efficiency") if record.unit == "TFLOPS/W" => {
            c.power_w.as_ref().map(|p| c.rate_tflops.value / p.value)
        }
        ("article series", "conv_vs_matmul") if record.unit == "x" => Some(c.matmul_share.value.recip()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn outcome(record: &Value, pipelines: &dyn Pipelines) -> Result<Prediction, NoPrediction> {
        let mut report = compare(&Value::Array(vec![record.clone()]).to_string(), pipelines).unwrap();
        report.rows.remove(0).outcome
    }

    fn record(chip: &str, what: &str, config: Value, metric: &str, value: f64, unit: &str) -> Value {
        json!({"source": "s", "chip": chip, "what": what, "config": config, "metric": metric, "value": value, "unit": unit})
    }

    #[test]
    fn a_record_is_kept_whole_and_every_record_has_a_row() {
        let mut first = record("M4", "sram_probe", json!({"channels": 512, "spatial": 64}), "tflops", 0.4, "TFLOPS");
        first["more"] = json!([1, 2]);
        let text = json!([first, 5, {"chip": "M4"}]).to_string();
        let report = compare(&text, &()).unwrap();
        assert_eq!(report.rows.len(), 3);
        assert_eq!(report.rows[0].record, first);
        assert!(report.rows[0].outcome.is_ok());
        assert!(report.rows[1..].iter().all(|r| r.outcome.is_err()));
        assert!(compare("{}", &()).is_err() && compare("[", &()).is_err());
    }

    #[test]
    fn the_metrics_of_a_measurement_tell_the_same() {
        let config = json!({"channels": 512, "spatial": 64, "depth": 128});
        let ms = outcome(&record("M4", "inmem_peak", config.clone(), "ms_per_eval", 0.376, "ms"), &()).unwrap();
        let rate = outcome(&record("M4", "inmem_peak", config, "tflops", 11.43, "TFLOPS"), &()).unwrap();
        // 128 layers of 2·512²·64 operations.
        assert!((ms.predicted * rate.predicted - 4.294967296).abs() < 1e-9);
        assert_eq!((ms.published, ms.unit.as_str(), rate.unit.as_str()), (0.376, "ms", "TFLOPS"));
    }

    #[test]
    fn the_gain_of_int8_is_that_of_the_two_times() {
        let config = || json!({"depth": 128, "channels": 512, "spatial": "64x64"});
        let time =
            |what: &str| outcome(&record("M4", what, config(), "ms_per_eval", 1.0, "ms"), &()).unwrap().predicted;
        let gain = outcome(&record("M4", "ane_int8_bench", config(), "speedup", 1.88, "x"), &()).unwrap().predicted;
        assert!((time("ane_int8_bench fp16") / time("ane_int8_bench W8A8") - gain).abs() < 1e-12);
        assert!(gain > 1.5);
    }

    #[test]
    fn what_is_no_time_has_a_reason() {
        for (what, metric, unit, word) in [
            ("golden loss (static train_large)", "loss", "nats", "loss"),
            ("vendor rating", "rated_tops", "TOPS", "rating"),
            ("training", "ane_util_pct", "% of 15.8", "share"),
        ] {
            let why = outcome(&record("M4", what, json!({}), metric, 1.0, unit), &()).unwrap_err();
            assert!(why.reason.contains(word), "{why}");
        }
        let why = outcome(&record("all", "dispatch", json!({}), "overhead", 1.0, "ms"), &()).unwrap_err();
        assert!(why.reason.contains("chip"), "{why}");
    }

    struct Fixed;
    impl Pipelines for Fixed {
        fn dynamic(&self, model: &str, _: &CostModel) -> Option<StepCost> {
            (model == "Stories110M").then_some(StepCost {
                engine_ms: 40.0,
                io_ms: 15.0,
                silu_ms: 10.0,
                rms_ms: 5.0,
                classifier_ms: 8.0,
                pass_ms: 12.0,
                wait_ms: 1.0,
                compile_ms: 400.0,
                energy_mj: None,
            })
        }
    }

    #[test]
    fn steps_are_asked_of_the_caller() {
        let ask = |what: &str, config: Value, metric: &str, unit: &str| {
            outcome(&record("M4", what, config, metric, 91.0, unit), &Fixed).map(|p| p.predicted)
        };
        let dynamic = || json!({"model": "Stories110M", "pipeline": "dynamic"});
        assert_eq!(ask("training", dynamic(), "ms_per_step", "ms/step"), Ok(91.0));
        assert_eq!(ask("20-step comparison", dynamic(), "compile_s", ""), Ok(0.4));
        assert!(ask("training", json!({"pipeline": "dynamic"}), "ms_per_step", "ms/step").is_err());
        let still = json!({"model": "Stories110M", "pipeline": "static train_large"});
        assert!(ask("training", still, "ms_per_step", "ms/step").is_err());
    }
}
