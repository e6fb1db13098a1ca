//! Records of one evaluated kernel: a chain of 1×1 convolutions, and the metrics of its time.

use super::super::{CostModel, Demand};
use super::record::PublishedRecord;

/// A chain of equal 1×1 convolutions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConvChain {
    /// The number of input channels.
    pub inputs: u64,
    /// The number of output channels.
    pub outputs: u64,
    /// The number of positions: height times width.
    pub positions: u64,
    /// The number of convolutions in sequence.
    pub depth: u64,
    /// True if weights and activations are int8.
    pub int8: bool,
}

/// The quantity that a metric of a kernel states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// The time of an evaluation; the scale converts to milliseconds.
    Time(Scale),
    /// Operations per time; the scale converts to TFLOPS.
    Rate(Scale),
    /// GFLOPS per MiB of weights.
    PerWeight,
}

/// A power of ten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale(i32);

impl Scale {
    fn of(self) -> f64 {
        10f64.powi(self.0)
    }
}

/// The record of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredKernel {
    /// The chain of convolutions that was evaluated.
    pub shape: ConvChain,
    /// The quantity that was measured.
    pub quantity: Quantity,
}

impl ConvChain {
    /// The number of operations of an evaluation; `None` if it overflows.
    pub fn flops(&self) -> Option<u64> {
        self.layer()?.flops.checked_mul(self.depth)
    }

    fn layer(&self) -> Option<Demand> {
        Demand::conv(self.inputs, self.outputs, self.positions, self.int8)
    }

    /// The predicted time of an evaluation in milliseconds; `None` if a size overflows.
    pub fn ms(&self, model: &CostModel) -> Option<f64> {
        self.flops()?;
        let layer = model.time(&self.layer()?).0;
        Some(model.evaluation_us(layer * self.depth as f64) / 1e3)
    }
}

impl MeasuredKernel {
    /// The kernel of a record. `None` if the record lacks channels or positions, or its metric is
    /// not one of an evaluation.
    pub fn of(record: &PublishedRecord<'_>) -> Option<MeasuredKernel> {
        Some(MeasuredKernel { quantity: quantity(record)?, shape: shape(record)? })
    }

    /// The published number as a time in milliseconds.
    pub fn published_ms(&self, value: f64) -> Option<f64> {
        let gflop = self.shape.flops()? as f64 / 1e9;
        let ms = match self.quantity {
            Quantity::Time(scale) => value * scale.of(),
            Quantity::Rate(scale) => gflop / (value * scale.of()),
            Quantity::PerWeight => gflop * 1e3 / (value * self.weight_mib()?),
        };
        (ms.is_finite() && ms > 0.0).then_some(ms)
    }

    /// A time in milliseconds, converted to the record's metric.
    pub fn from_ms(&self, ms: f64) -> Option<f64> {
        let gflop = self.shape.flops()? as f64 / 1e9;
        let value = match self.quantity {
            Quantity::Time(scale) => ms / scale.of(),
            Quantity::Rate(scale) => gflop / ms / scale.of(),
            Quantity::PerWeight => gflop * 1e3 / ms / self.weight_mib()?,
        };
        value.is_finite().then_some(value)
    }

    fn weight_mib(&self) -> Option<f64> {
        let s = self.shape;
        Some(s.inputs.checked_mul(s.outputs)?.checked_mul(s.depth)? as f64 * 2.0 / 1048576.0)
    }

    /// True if the record states a time; times are preferred if a measurement has several metrics.
    pub fn is_time(&self) -> bool {
        matches!(self.quantity, Quantity::Time(_))
    }
}

/// The quantity that the record's metric states about an evaluation.
fn quantity(record: &PublishedRecord<'_>) -> Option<Quantity> {
    // Metrics of other phases, of parts of an evaluation, and of anything but an evaluation of this
    // kernel on the engine.
    const OTHER: [&str; 12] = [
        "compile",
        "load",
        "first",
        "memcpy",
        "gcd",
        "speedup",
        "cpu",
        "gpu",
        "update",
        "restart",
        "sequential",
        "low",
    ];
    if OTHER.iter().any(|word| record.metric.contains(word)) {
        return None;
    }
    Some(match record.unit {
        "ms" | "ms/kernel" => Quantity::Time(Scale(0)),
        "us" | "µs" => Quantity::Time(Scale(-3)),
        "TFLOPS" | "TOPS" => Quantity::Rate(Scale(0)),
        "GFLOPS" | "GOPS" => Quantity::Rate(Scale(-3)),
        "GFLOPS/MB" => Quantity::PerWeight,
        _ => return None,
    })
}

fn shape(record: &PublishedRecord<'_>) -> Option<ConvChain> {
    let int8 = record.what.contains("W8A8") || record.metric.contains("int8");
    let depth = record.count("depth").unwrap_or(1);
    if let (Some(channels), Some(spatial)) = (record.count("channels"), record.config("spatial")) {
        let positions = match spatial.as_str() {
            None => spatial.as_u64()?,
            Some(text) => product(text)?,
        };
        return (positions > 0).then_some(ConvChain { inputs: channels, outputs: channels, positions, depth, int8 });
    }
    // The input of the path experiments has 64 positions (apple-runtime §9).
    if let (Some(channels), "W1 path latency") = (record.count("channels"), record.what) {
        return Some(ConvChain { inputs: channels, outputs: channels, positions: 64, depth, int8 });
    }
    let text = ["config", "kernel", "shape"].iter().find_map(|key| record.text(key))?;
    let text = text.strip_prefix("conv ").unwrap_or(text);
    let (sizes, positions) = match text.split_once(" sp") {
        Some((sizes, positions)) => (sizes, Some(positions.parse::<u64>().ok()?)),
        None => (text, None),
    };
    let (a, b) = pair(sizes)?;
    let (inputs, outputs, positions, depth) = match positions {
        // The config of a stack begins with the depth: `128x512 sp64`.
        Some(positions) if record.what.starts_with("stacked") => (b, b, positions, a),
        Some(positions) => (a, b, positions, depth),
        // In the path benchmarks `64x32` is channels and positions (benchmarks §11).
        None if record.what.starts_with("test_bench_paths") || record.what.starts_with("test_throughput") => {
            (a, a, b, depth)
        }
        // `768x3072` with the positions in the benchmark's name is two channel counts.
        None => (a, b, record.what.split_once("seq=")?.1.trim().parse().ok()?, depth),
    };
    let all = [inputs, outputs, positions, depth];
    all.iter().all(|n| *n > 0).then_some(ConvChain { inputs, outputs, positions, depth, int8 })
}

fn pair(text: &str) -> Option<(u64, u64)> {
    let (a, b) = text.split_once('x')?;
    Some((a.trim().parse().ok()?, b.trim().parse().ok()?))
}

fn product(text: &str) -> Option<u64> {
    text.split('x').try_fold(1u64, |n, part| n.checked_mul(part.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn kernel(what: &str, config: Value, metric: &str, unit: &str) -> Option<MeasuredKernel> {
        let value = json!({"source": "s", "chip": "M4", "what": what, "config": config, "metric": metric, "value": 1.0, "unit": unit});
        MeasuredKernel::of(&PublishedRecord::new(&value))
    }

    #[test]
    fn shapes_are_read_from_numbers_and_from_text() {
        let shape = |what: &str, config: Value| {
            kernel(what, config, "ms_per_eval", "ms").map(|k| {
                let s = k.shape;
                (s.inputs, s.outputs, s.positions, s.depth, s.int8)
            })
        };
        let ask = |c: Value| shape("sram_probe", c);
        assert_eq!(ask(json!({"channels": 512, "spatial": 64})), Some((512, 512, 64, 1, false)));
        assert_eq!(ask(json!({"channels": 512, "spatial": "64x64", "depth": 3})), Some((512, 512, 4096, 3, false)));
        assert_eq!(
            shape("single conv kernel sweep", json!({"config": "768x2048 sp256"})),
            Some((768, 2048, 256, 1, false))
        );
        assert_eq!(shape("stacked conv", json!({"config": "128x640 sp64"})), Some((640, 640, 64, 128, false)));
        assert_eq!(shape("test_qos_sweep", json!({"kernel": "conv 256x256 sp64"})), Some((256, 256, 64, 1, false)));
        assert_eq!(shape("test_bench_paths", json!({"config": "768x256"})), Some((768, 768, 256, 1, false)));
        assert_eq!(shape("matmul throughput seq=64", json!({"shape": "768x3072"})), Some((768, 3072, 64, 1, false)));
        assert!(shape("ane_int8_bench W8A8", json!({"channels": 8, "spatial": 8})).unwrap().4);
        for none in [json!({}), json!({"channels": 512}), json!({"channels": 0, "spatial": 4}), json!({"config": "x"})]
        {
            assert_eq!(ask(none), None);
        }
    }

    #[test]
    fn metrics_that_are_no_evaluation_are_none() {
        let config = || json!({"kernel": "conv 256x256 sp64"});
        for (metric, unit) in [("compile_ms", "ms"), ("load_ms", "ms"), ("eval_first_ms", "ms"), ("spill", "count")] {
            assert!(kernel("test_qos_sweep", config(), metric, unit).is_none(), "{metric}");
        }
    }

    #[test]
    fn a_time_comes_back_through_every_metric() {
        let config = || json!({"channels": 1024, "spatial": 64});
        for (metric, unit) in
            [("ms_per_eval", "ms"), ("us", "us"), ("tflops", "TFLOPS"), ("x", "GFLOPS"), ("y", "GFLOPS/MB")]
        {
            let k = kernel("sram_probe", config(), metric, unit).unwrap();
            let back = k.published_ms(k.from_ms(0.116).unwrap()).unwrap();
            assert!((back - 0.116).abs() < 1e-12, "{unit}");
        }
        // The columns of sram_probe for 1024 channels at 0.129 ms: 1.04 TFLOPS over 2 MiB.
        let rate = kernel("sram_probe", config(), "tflops", "TFLOPS").unwrap().from_ms(0.129).unwrap();
        assert!((rate - 1.04).abs() < 0.005);
    }
}
