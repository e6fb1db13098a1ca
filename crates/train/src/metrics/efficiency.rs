//! The time of a run by part, and its arithmetic throughput.

use std::time::Duration;

use ferrane_llm::config::Config;
use serde::Serialize;

use crate::step::Parts;

/// Floating-point operations of one window; a multiply-add counts as two.
///
/// Linear layers are counted as in training-dynamic §13 (`2·layers·ΣW·seq`), which leaves out
/// attention and the classifier; these are counted separately. Attention is counted over the whole
/// square of positions, as the kernels compute it. The backward pass counts twice the forward pass.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Flops {
    /// Operations of the linear layers in the forward pass.
    pub layers: f64,
    /// Operations of `Q·Kᵀ` and `P·V` in the forward pass.
    pub attention: f64,
    /// Operations of the classifier in the forward pass.
    pub classifier: f64,
    /// No gradients of weights are computed. Those of adapters are not counted: they are a few
    /// percent of the others.
    pub frozen: bool,
}

impl Flops {
    /// The operations of a window of `seq` tokens with a classifier of `classes` rows, which is the
    /// size of the compact vocabulary if there is one.
    pub fn new(config: &Config, seq: usize, classes: usize) -> Self {
        let (seq, layers) = (seq as f64, config.layers as f64);
        Flops {
            layers: 2.0 * layers * config.layer_matrix_parameters() as f64 * seq,
            attention: 4.0 * layers * config.q_dim() as f64 * seq * seq,
            classifier: 2.0 * classes as f64 * config.dim as f64 * seq,
            frozen: false,
        }
    }

    /// The operations if no gradients of weights are computed.
    #[must_use]
    pub fn frozen(self) -> Self {
        Flops { frozen: true, ..self }
    }

    /// Operations of the forward pass.
    pub fn forward(&self) -> f64 {
        self.layers + self.attention + self.classifier
    }

    /// Operations of forward and backward pass.
    pub fn total(&self) -> f64 {
        let weight_gradients = if self.frozen { self.layers + self.classifier } else { 0.0 };
        3.0 * self.forward() - weight_gradients
    }
}

/// Times of a run, in seconds. The engine measures the parts of a micro-step; weight gradients
/// overlap the others.
#[derive(Debug, Clone, Serialize)]
pub struct Efficiency {
    /// Number of updates, skipped ones included.
    pub updates: u64,
    /// Number of windows computed forward and backward, by this rank.
    pub micro_steps: u64,
    /// Number of tokens trained on, by all ranks.
    pub tokens: u64,
    /// Wall time from the first window to the end.
    pub wall: f64,
    /// Sum of the wall times of all micro-steps.
    pub steps: f64,
    /// Requests of the forward pass.
    pub device_forward: f64,
    /// Requests of the backward pass.
    pub device_backward: f64,
    /// Copies between activations and surfaces.
    pub staging: f64,
    /// Norms, residuals, rotary and SiLU gradients.
    pub elementwise: f64,
    /// Embedding, classifier and cross-entropy.
    pub classifier: f64,
    /// Products for weight gradients, which overlap the other parts.
    pub weight_gradients: f64,
    /// Finishing the weight gradients that were left at the end of a micro-step.
    pub waiting: f64,
    /// Compiling programs with new weights as constants, in micro-steps.
    pub compile: f64,
    /// Gradient norm, clipping, AdamW, and staging of new weights.
    pub optimizer: f64,
    /// Waiting for other ranks, and summing gradients with them.
    pub exchange: f64,
    /// Forward passes over the validation windows.
    pub validation: f64,
    /// Writing checkpoints to the disk.
    pub checkpoints: f64,
    /// Floating-point operations of one window.
    pub flops: Flops,
}

/// The names of [`Efficiency::parts`] and of `PartTimes::parts`, in the order of the report.
pub(super) const PARTS: [&str; 12] = [
    "device forward",
    "device backward",
    "staging",
    "element-wise",
    "classifier",
    "weight gradients (overlapped)",
    "waiting for weight gradients",
    "compiling new weights",
    "optimizer",
    "other ranks",
    "validation",
    "checkpoints",
];

impl Efficiency {
    /// All times zero, for windows of `flops` operations.
    pub fn new(flops: Flops) -> Self {
        Efficiency {
            updates: 0,
            micro_steps: 0,
            tokens: 0,
            wall: 0.0,
            steps: 0.0,
            device_forward: 0.0,
            device_backward: 0.0,
            staging: 0.0,
            elementwise: 0.0,
            classifier: 0.0,
            weight_gradients: 0.0,
            waiting: 0.0,
            compile: 0.0,
            optimizer: 0.0,
            exchange: 0.0,
            validation: 0.0,
            checkpoints: 0.0,
            flops,
        }
    }

    /// Adds a micro-step of `tokens` tokens that took `time`.
    pub fn micro_step(&mut self, parts: &Parts, time: Duration, tokens: usize) {
        self.micro_steps += 1;
        self.tokens += tokens as u64;
        self.steps += time.as_secs_f64();
        self.device_forward += parts.device_forward.as_secs_f64();
        self.device_backward += parts.device_backward.as_secs_f64();
        self.staging += parts.staging.as_secs_f64();
        self.elementwise += parts.elementwise.as_secs_f64();
        self.classifier += parts.classifier.as_secs_f64();
        self.weight_gradients += parts.weight_gradients.as_secs_f64();
        self.waiting += parts.waiting.as_secs_f64();
        self.compile += parts.compile.as_secs_f64();
    }

    /// The parts with their names, in seconds, in the order of the report.
    pub fn parts(&self) -> [(&'static str, f64); PARTS.len()] {
        let seconds = [
            self.device_forward,
            self.device_backward,
            self.staging,
            self.elementwise,
            self.classifier,
            self.weight_gradients,
            self.waiting,
            self.compile,
            self.optimizer,
            self.exchange,
            self.validation,
            self.checkpoints,
        ];
        std::array::from_fn(|at| (PARTS[at], seconds[at]))
    }

    /// Mean milliseconds of a micro-step (forward and backward of one window) without compiles.
    pub fn micro_step_ms(&self) -> f64 {
        ratio(1e3 * (self.steps - self.compile), self.micro_steps as f64)
    }

    /// Mean milliseconds of an update without its micro-steps: norm, clipping, AdamW, staging.
    pub fn update_ms(&self) -> f64 {
        ratio(1e3 * self.optimizer, self.updates as f64)
    }

    /// Tokens per second of training time: micro-steps, optimizer and staging.
    pub fn tokens_per_second(&self) -> f64 {
        ratio(self.tokens as f64, self.steps + self.optimizer)
    }

    /// GFLOP/s of forward and backward passes over the time of the micro-steps.
    pub fn gflops(&self) -> f64 {
        ratio(self.flops.total() * self.micro_steps as f64 / 1e9, self.steps)
    }

    /// The lines of a report: times with their share of the wall time, rates, and how operations
    /// were counted.
    pub fn report(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "{} updates, {} micro-steps, {} tokens in {:.1} s; {:.2} ms a micro-step, {:.2} ms an update without them",
            self.updates,
            self.micro_steps,
            self.tokens,
            self.wall,
            self.micro_step_ms(),
            self.update_ms(),
        )];
        // Without other ranks nothing is exchanged.
        for (name, seconds) in self.parts().into_iter().filter(|(_, seconds)| *seconds > 0.0) {
            lines.push(format!("  {name:<30} {seconds:>9.2} s {:>5.1} %", 100.0 * ratio(seconds, self.wall)));
        }
        lines.push(format!(
            "{:.0} tokens/s; {:.1} GFLOP/s forward and backward ({:.1} MFLOP a window: 3 × ({:.1} layers + {:.1} \
             attention + {:.1} classifier))",
            self.tokens_per_second(),
            self.gflops(),
            self.flops.total() / 1e6,
            self.flops.layers / 1e6,
            self.flops.attention / 1e6,
            self.flops.classifier / 1e6,
        ));
        lines
    }
}

fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrane_llm::config::preset;

    #[test]
    fn counts_as_published() {
        // training-dynamic §13: forward and total of the two models, in MFLOP at 256 tokens.
        for (name, forward) in [("stories110m", 43_486.5), ("qwen3-0.6b", 225_485.8)] {
            let flops = Flops::new(&preset(name).unwrap(), 256, 1000);
            assert!((flops.layers / 1e6 - forward).abs() < 0.06, "{name}: {}", flops.layers);
        }
        let flops = Flops::new(&preset("stories110m").unwrap(), 256, 9216);
        assert_eq!(flops.classifier, 2.0 * 9216.0 * 768.0 * 256.0);
        assert_eq!(flops.attention, 12.0 * 2.0 * (2.0 * 768.0 * 256.0 * 256.0));
        assert_eq!(flops.total(), 3.0 * (flops.layers + flops.attention + flops.classifier));
    }

    #[test]
    fn rates() {
        let mut sum = Efficiency::new(Flops { layers: 1e9, attention: 0.0, classifier: 0.0, frozen: false });
        assert_eq!((sum.gflops(), sum.micro_step_ms(), sum.tokens_per_second()), (0.0, 0.0, 0.0));
        let parts = Parts { device_forward: Duration::from_millis(250), ..Parts::default() };
        (0..4).for_each(|_| sum.micro_step(&parts, Duration::from_millis(500), 10));
        (sum.updates, sum.optimizer, sum.wall) = (1, 2.0, 4.0);
        assert_eq!((sum.gflops(), sum.micro_step_ms(), sum.update_ms()), (6.0, 500.0, 2000.0));
        assert_eq!((sum.tokens_per_second(), sum.device_forward), (10.0, 1.0));
        assert!(sum.report().iter().any(|l| l.contains("device forward") && l.contains("25.0 %")));
    }
}
