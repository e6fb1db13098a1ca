//! The model of a framework's preference: a cost for each op and processor, and what a run of ops
//! on the engine has to save before the framework moves it there.
//!
//! The form is the one that Core ML's own segmenter is reported to have: the longer of arithmetic
//! and traffic over coarse rates, a fixed cost for each segment, and a cost for each crossing
//! (benchmarks §15.4). The rates are the published ones. The few numbers that are fitted stand in
//! data/placement/fitted.toml, written by the example `fit_placement`.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::select::{Unit, Work};

/// The op of a fused attention.
const ATTENTION: &str = "scaled_dot_product_attention";

/// The rates that the framework assumes for a processor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AssumedRates {
    /// The rate of multiplications and additions in GFLOP/s, each counted as one operation.
    pub gflops: f64,
    /// Traffic of activations in GB/s.
    pub gb_s: f64,
    /// Traffic of constant weights in GB/s.
    pub weights_gb_s: f64,
}

impl AssumedRates {
    /// The assumed time of this work, in milliseconds.
    pub fn ms(&self, work: &Work) -> f64 {
        let flops = (work.macs as f64 * 2.0).max(work.elements as f64);
        let bytes = work.read as f64 + work.written as f64;
        (flops / self.gflops).max(bytes / self.gb_s).max(work.weights as f64 / self.weights_gb_s) / 1e6
    }
}

/// Ops that the framework never gives to the engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeverOnEngine {
    /// The names of the ops, as in MIL.
    pub ops: Vec<String>,
    /// Where this is published.
    pub source: String,
}

/// Systems on which casts from and to fp32 do not run on the engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fp32Casts {
    /// The systems, such as `macos14`.
    pub systems: Vec<String>,
    /// Where this is published.
    pub source: String,
}

/// The numbers that are fitted to published placements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FittedPreference {
    /// What a run of ops on the engine has to save, in assumed milliseconds, so that the framework
    /// is as likely to move it there as not.
    pub entry_ms: f64,
    /// The share of a fused attention's saving that the framework counts.
    pub attention_share: f64,
    /// How fast the probability rises with the logarithm of the saving.
    pub steepness: f64,
    /// The share of ineligible ops that the published plans have off the engine.
    pub off_share: f64,
    /// The share of eligible ops in runs on the engine that the published plans have there.
    pub on_share: f64,
}

/// The model of a framework's preference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PreferenceModel {
    /// What the framework assumes about the engine.
    pub engine: AssumedRates,
    /// What the framework assumes about the CPU.
    pub cpu: AssumedRates,
    /// Ops that the framework never gives to the engine.
    pub never: Vec<NeverOnEngine>,
    /// Where casts from and to fp32 are not eligible.
    pub fp32_casts: Fp32Casts,
    /// The numbers of data/placement/fitted.toml.
    pub fitted: FittedPreference,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Published {
    engine: AssumedRates,
    cpu: AssumedRates,
    never: Vec<NeverOnEngine>,
    fp32_casts: Fp32Casts,
}

static MODEL: LazyLock<Result<PreferenceModel, String>> = LazyLock::new(|| {
    PreferenceModel::parse(
        include_str!("../../data/placement/model.toml"),
        include_str!("../../data/placement/fitted.toml"),
    )
    .map_err(|e| e.to_string())
});

impl PreferenceModel {
    /// The built-in model of Core ML. A test reads the embedded data; if they were damaged, the
    /// model would be absent and every preference unknown.
    pub fn core_ml() -> Option<&'static PreferenceModel> {
        MODEL.as_ref().ok()
    }

    /// Reads the published part and the fitted part.
    ///
    /// # Errors
    /// The text is not TOML of this form.
    pub fn parse(published: &str, fitted: &str) -> Result<PreferenceModel, toml::de::Error> {
        let Published { engine, cpu, never, fp32_casts } = toml::from_str(published)?;
        Ok(PreferenceModel { engine, cpu, never, fp32_casts, fitted: toml::from_str(fitted)? })
    }

    /// What the framework expects to save by running an op on the engine, in milliseconds. Ops that
    /// read one value and move or map its elements save nothing: the framework's own estimates for
    /// them are the same on every processor (data/placement/model.toml).
    pub fn saving_ms(&self, op: &str, unit: Unit, work: &Work, reads: usize) -> f64 {
        if unit != Unit::Mac && op != ATTENTION && reads < 2 {
            return 0.0;
        }
        let saved = (self.cpu.ms(work) - self.engine.ms(work)).max(0.0);
        if op == ATTENTION { saved * self.fitted.attention_share } else { saved }
    }

    /// The probability that the framework moves a run of ops to the engine that saves this much.
    pub fn probability(&self, saving_ms: f64) -> f64 {
        if saving_ms <= 0.0 {
            return 0.0;
        }
        (1.0 + (self.fitted.entry_ms / saving_ms).powf(self.fitted.steepness)).recip()
    }
}
