//! The options of the training loop.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Error;
use crate::optim::{AdamW, Schedule};

/// The options of the training loop, including the folder that it writes to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunOptions {
    /// Number of optimizer updates of the whole run, skipped ones included; at least 1.
    pub steps: u64,
    /// Number of micro-steps in an update; at least 1.
    pub accum: usize,
    /// Number of tokens in a window.
    pub seq: usize,
    /// Number of windows in a micro-step; at least 1.
    pub batch: usize,
    /// Number of groups in which the windows of an update are summed ([`crate::ranks`]); at least
    /// 1, and with several ranks at least one for each. Results depend on it in their last bits.
    pub groups: usize,
    /// Whether each of several ranks holds the optimizer's moments of a part of the weights only,
    /// which is called ZeRO stage 1. Results have the same bits.
    pub shard_optimizer: bool,
    /// Learning rate after the warm-up; positive.
    pub lr: f64,
    /// Learning rate at the end; `None`: a tenth of `lr`.
    pub min_lr: Option<f64>,
    /// Number of updates of the linear warm-up.
    pub warmup: u64,
    /// Largest global gradient norm after clipping; 0 switches clipping off.
    pub clip: f64,
    /// Decoupled weight decay of matrices and the embedding.
    pub weight_decay: f64,
    /// Seed of the initial weights and of the sampler.
    pub seed: u64,
    /// The run's folder: checkpoints, `metrics.jsonl`, `loss.svg`, `report.html`.
    pub out: PathBuf,
    /// Number of updates between validations; 0: only at the end.
    pub eval_every: u64,
    /// Number of validation windows; 0: no validation.
    pub eval_windows: usize,
    /// Number of updates between texts by the model, which need a tokenizer; 0: none.
    pub sample_every: u64,
    /// Number of updates between checkpoints; 0: only those of `save_minutes`, and the last.
    pub save_every: u64,
    /// Minutes between checkpoints; 0: only those of `save_every`, and the last.
    pub save_minutes: f64,
}

impl Default for RunOptions {
    /// The recipe of the convergence reference, with periodic validation and checkpoints.
    fn default() -> Self {
        RunOptions {
            steps: 1000,
            accum: 8,
            seq: 256,
            batch: 1,
            groups: 1,
            shard_optimizer: false,
            lr: 1e-3,
            min_lr: None,
            warmup: 100,
            clip: 1.0,
            weight_decay: 0.1,
            seed: 1,
            out: PathBuf::from("runs/default"),
            eval_every: 250,
            eval_windows: 64,
            sample_every: 0,
            save_every: 250,
            save_minutes: 10.0,
        }
    }
}

/// An option whose value differs from the checkpoint's.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// Name of the field.
    pub option: String,
    /// The value in the checkpoint.
    pub before: serde_json::Value,
    /// The value given now.
    pub now: serde_json::Value,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} before, {} now", self.option, self.before, self.now)
    }
}

impl RunOptions {
    /// The learning rate schedule of these options.
    pub fn schedule(&self) -> Schedule {
        let min_lr = self.min_lr.unwrap_or(0.1 * self.lr);
        Schedule { max_lr: self.lr, min_lr, warmup: self.warmup, total: self.steps }
    }

    /// The hyperparameters of AdamW in these options.
    pub fn optimizer(&self) -> AdamW {
        AdamW { weight_decay: self.weight_decay, ..AdamW::default() }
    }

    /// Number of windows of an update.
    pub fn windows(&self) -> usize {
        self.accum * self.batch
    }

    /// Checks the ranges of all numbers.
    ///
    /// # Errors
    /// [`Error::Option`] for the first invalid field.
    pub fn check(&self) -> Result<(), Error> {
        let refuse =
            |name, value: &dyn std::fmt::Display, reason| Err(Error::Option { name, value: value.to_string(), reason });
        for (name, value) in [
            ("steps", self.steps),
            ("accum", self.accum as u64),
            ("batch", self.batch as u64),
            ("groups", self.groups as u64),
        ] {
            if value == 0 {
                return refuse(name, &value, "must be at least 1");
            }
        }
        if self.seq == 0 || self.seq > ferrane_llm::config::MAX_POSITIONS {
            return refuse("seq", &self.seq, "must be between 1 and 16777216");
        }
        if self.accum.checked_mul(self.batch).and_then(|n| n.checked_mul(self.seq)).is_none() {
            return refuse("accum", &self.accum, "times batch times seq is too large");
        }
        if self.groups > self.windows() {
            let reason =
                "must be at most the windows of an update, accum times batch; raise `accum`, or start fewer ranks";
            return refuse("groups", &self.groups, reason);
        }
        if !(self.lr.is_finite() && self.lr > 0.0) {
            return refuse("lr", &self.lr, "must be finite and positive");
        }
        let min_lr = self.min_lr.unwrap_or(0.0);
        if !(min_lr >= 0.0 && min_lr <= self.lr) {
            return refuse("min_lr", &min_lr, "must be between 0 and lr");
        }
        if !(self.clip.is_finite() && self.clip >= 0.0) {
            return refuse("clip", &self.clip, "must be finite and not negative; 0 switches clipping off");
        }
        if !(self.weight_decay.is_finite() && self.weight_decay >= 0.0) {
            return refuse("weight_decay", &self.weight_decay, "must be finite and not negative");
        }
        Ok(())
    }
}

/// The fields of `now` that differ from those of `before`, by name, without the run's folder.
pub(crate) fn changes(now: &serde_json::Value, before: &serde_json::Value) -> Vec<Change> {
    let Some(now) = now.as_object() else { return Vec::new() };
    let differs = |(name, now): (&String, &serde_json::Value)| {
        let before = before.get(name).unwrap_or(&serde_json::Value::Null);
        (name != "out" && before != now).then(|| Change {
            option: name.clone(),
            before: before.clone(),
            now: now.clone(),
        })
    };
    now.iter().filter_map(differs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_values_are_named() {
        type Break = fn(&mut RunOptions);
        let cases: [(&str, Break); 12] = [
            ("steps", |o| o.steps = 0),
            ("accum", |o| o.accum = 0),
            ("batch", |o| o.batch = 0),
            ("seq", |o| o.seq = 0),
            ("accum", |o| o.accum = usize::MAX),
            ("lr", |o| o.lr = f64::NAN),
            ("lr", |o| o.lr = -1.0),
            ("min_lr", |o| o.min_lr = Some(1.0)),
            ("min_lr", |o| o.min_lr = Some(f64::NAN)),
            ("clip", |o| o.clip = f64::INFINITY),
            ("clip", |o| o.clip = -1.0),
            ("weight_decay", |o| o.weight_decay = -0.1),
        ];
        RunOptions::default().check().unwrap();
        for (want, change) in cases {
            let mut options = RunOptions::default();
            change(&mut options);
            match options.check() {
                Err(Error::Option { name, .. }) => assert_eq!(name, want),
                other => panic!("{want}: {other:?}"),
            }
        }
    }

    #[test]
    fn changes_are_listed_by_name() {
        let before = RunOptions { lr: 1.0 / 3.0, ..RunOptions::default() };
        let stored: serde_json::Value = serde_json::from_str(&serde_json::to_string(&before).unwrap()).unwrap();
        let changes = |now: RunOptions| super::changes(&serde_json::to_value(now).unwrap(), &stored);
        assert!(changes(RunOptions { out: "x".into(), ..before.clone() }).is_empty());
        let now = RunOptions { steps: 2000, min_lr: Some(1e-5), ..before };
        let found: Vec<String> = changes(now).iter().map(Change::to_string).collect();
        assert_eq!(found, ["steps: 1000 before, 2000 now", "min_lr: null before, 0.00001 now"]);
    }
}
