//! Selects the prediction for a record.
//!
//! A record is matched by its benchmark, its metric and its unit, in that order; the first match
//! gives the prediction. `reason` explains records without a match.

use std::collections::BTreeMap;

use super::super::{CostModel, StepCost};
use super::error::{ErrorSummary, kernel_rows};
use super::measured::measured;
use super::reason::reason;
use super::record::{PublishedRecord, chip_name, records};
use super::training::{TrainerPipeline, TrainerRun, training_model};
use super::{ComparedRecord, Comparison, NoPrediction, Prediction, PublishedError};

/// Costs of training pipelines, supplied by the caller: this crate knows no models.
pub trait Pipelines {
    /// The cost of a step of a pipeline for a model (in lower case: `stories110m`), with the window
    /// and the vocabulary of the published runs.
    fn step(&self, pipeline: TrainerPipeline, model: &str, cost: &CostModel) -> Option<StepCost>;
}

impl Pipelines for () {
    fn step(&self, _: TrainerPipeline, _: &str, _: &CostModel) -> Option<StepCost> {
        None
    }
}

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
    steps: BTreeMap<(String, TrainerPipeline, &'static str), Option<StepCost>>,
}

impl Models<'_> {
    fn outcome(&mut self, record: &PublishedRecord<'_>) -> Result<Result<Prediction, NoPrediction>, PublishedError> {
        let Some(published) = record.value else { return Ok(Err(NoPrediction { reason: "the value is no number" })) };
        let Some(chip) = chip_name(record.chip) else { return Ok(Err(reason(record))) };
        let model = match self.known.get(&chip) {
            Some(model) => model.clone(),
            None => self.known.entry(chip.clone()).or_insert(CostModel::for_chip(&chip)?).clone(),
        };
        let predicted = measured(record, &model).or_else(|| self.training(record, &chip, &model));
        let unit = record.unit.to_string();
        Ok(predicted.map(|predicted| Prediction { published, predicted, unit }).ok_or_else(|| reason(record)))
    }

    /// Predicts times of steps and of their parts.
    fn training(&mut self, record: &PublishedRecord<'_>, chip: &str, model: &CostModel) -> Option<f64> {
        let pipeline = TrainerPipeline::of(record)?;
        let name = training_model(record, pipeline)?;
        let key = (chip.to_string(), pipeline, name);
        let step = self.steps.entry(key).or_insert_with(|| self.pipelines.step(pipeline, name, model)).as_ref()?;
        TrainerRun { pipeline, step, stories110m: name == "stories110m" }.predict(record)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::StepParts;
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
        for (what, config, metric, unit, word) in [
            ("20-step comparison", json!({"pipeline": "PR19 --no-ane-extras"}), "ms_per_step", "", "scalar"),
            ("GPU prefill -> ANE decode", json!({"model": "Stories110M"}), "ane_decode_ms", "ms", "decode"),
            ("per-dispatch cost", json!({}), "doorbell", "us", "fixed cost"),
            ("W1 path latency", json!({"channels": 256, "path": "Stream pool cycle"}), "ms", "ms", "without"),
        ] {
            let why = outcome(&record("M4", what, config, metric, 1.0, unit), &()).unwrap_err();
            assert!(why.reason.contains(word), "{why}");
        }
        let why = outcome(&record("all", "dispatch", json!({}), "overhead", 1.0, "ms"), &()).unwrap_err();
        assert!(why.reason.contains("chip"), "{why}");
    }

    #[test]
    fn paths_loads_and_copies_are_predicted() {
        let ask = |chip: &str, what: &str, config: Value, metric: &str, unit: &str| {
            outcome(&record(chip, what, config, metric, 1.0, unit), &()).unwrap().predicted
        };
        let path = |path: &str| ask("M4 Max", "test_bench_paths", json!({"config": "64x32", "path": path}), "ms", "ms");
        assert!(path("CoreML API") < path("doEvaluateDirect") && path("doEvaluateDirect") < path("standard"));
        let isolated = json!({"kernel": "conv 64x64 sp32", "path": "doEvaluateDirect"});
        let gain = ask("M4 Max", "eval path latency", isolated, "speedup_vs_standard", "x");
        assert!((gain - path("standard") / path("doEvaluateDirect")).abs() < 1e-12);
        let qos = |qos: u64, metric: &str| {
            ask("M5", "test_qos_sweep", json!({"qos": qos, "kernel": "conv 256x256 sp64"}), metric, "ms")
        };
        assert!(qos(0, "load_ms") > qos(1, "load_ms"));
        assert!((qos(0, "eval_first_ms") - qos(0, "eval_avg10_ms") - 0.12).abs() < 1e-9);
        let pair = ask("M4", "probe_v2", json!({"models": 2}), "ping_pong_pair_ms", "ms");
        let twice = 2.0 * ask("M4", "probe_v2", json!({"kernel": "conv 128x128 sp64"}), "eval_ms", "ms");
        assert!((pair - twice - 0.036).abs() < 1e-9);
        // 67.1 MB read and written at 105 GB/s.
        let update = ask("M5", "m5_performance_suite", json!({"dim": 4096}), "update_latency", "ms");
        assert!((update - 2.0 * 67.108864 / 105.0).abs() < 1e-9);
        // The rows of the 4096 channels are a power of two long (benchmarks §4).
        assert_eq!(ask("M4 Max", "summary", json!({}), "sram_spill_start_channels", ""), 4096.0);
        let matvec = |metric: &str| ask("M3 Max", "dynamic matvec 2560x2560", json!({}), metric, "ms");
        assert!((matvec("total") - matvec("ane_eval") - 2.0 * matvec("w_memcpy")).abs() < 1e-9);
    }

    struct Fixed;
    impl Pipelines for Fixed {
        fn step(&self, pipeline: TrainerPipeline, model: &str, _: &CostModel) -> Option<StepCost> {
            let compile_ms = if pipeline == TrainerPipeline::Dynamic { 400.0 } else { 4000.0 };
            (model == "stories110m").then_some(StepCost {
                engine_ms: 40.0,
                io_ms: 15.0,
                silu_ms: 10.0,
                rms_ms: 5.0,
                classifier_ms: 8.0,
                pass_ms: 12.0,
                wait_ms: 1.0,
                compile_ms,
                energy_mj: None,
                parts: StepParts {
                    forward_engine_ms: 24.0,
                    forward_io_ms: 5.0,
                    forward_rms_ms: 2.5,
                    norm_ms: 0.1,
                    logits_ms: 7.0,
                    loss_ms: 14.0,
                    copy_ms: 8.0,
                    forward_runs: 24,
                },
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
        let still = || json!({"model": "Stories110M", "pipeline": "static train_large", "steps": 20});
        let close = |a: Result<f64, NoPrediction>, b: f64| assert!((a.unwrap() / b - 1.0).abs() < 1e-12);
        // The norms of the layers' forward pass are on the engine: 91 - 2.5 + 0.1.
        close(ask("training", still(), "ms_per_step", "ms/step"), 88.6);
        // Two batches of ten steps.
        close(ask("training", still(), "compile_time_ms", "ms"), 8000.0);
        close(ask("training", still(), "wall_s", ""), 8.0 + 1.772);
        close(ask("training", still(), "compile_pct", ""), 100.0 * 8000.0 / 9772.0);
        close(ask("training", still(), "ane_tflops", "TFLOPS"), 93.013 / 88.6);
        close(ask("training", still(), "ane_util_pct", "%"), 100.0 * 93.013 / 88.6 / 15.8);
        close(ask("static batch", json!({}), "t_ane", "ms"), 24.0);
        close(ask("static batch", json!({}), "t_elem", "ms"), 14.0);
        let extras = || json!({"pipeline": "static train_large_ane (ANE classifier)"});
        close(ask("training", extras(), "ane_tflops", "TFLOPS"), (93.013 + 12.583) / 88.5);
        // The window of the probe is not published.
        assert!(ask("mega-kernel fusion probe", json!({"model": "stories110M"}), "fwd_eval_us", "us").is_err());
        assert!(ask("20-step comparison", json!({"pipeline": "PR19 --no-ane-extras"}), "wall_s", "").is_err());
    }
}
