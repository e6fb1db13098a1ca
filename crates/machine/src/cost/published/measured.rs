//! Predictions for records of kernels, paths and the machine itself.

use super::super::{CostModel, Demand};
use super::kernel::{ConvChain, MeasuredKernel};
use super::record::PublishedRecord;

/// The chains that `inmem_peak` measures: channels and depth at 64 positions (benchmarks §3).
const PEAK: [(u64, u64); 10] =
    [(512, 32), (512, 48), (512, 64), (512, 96), (512, 128), (256, 64), (256, 128), (256, 256), (384, 64), (384, 128)];

/// The number of ops of a program with one convolution between casts (benchmarks §2).
const CONV_OPS: usize = 3;

/// The channels of the single convolutions that `sram_probe` measures, with their positions
/// (benchmarks §4).
const PROBE: [(u64, u64); 14] = [
    (256, 64),
    (512, 64),
    (1024, 64),
    (1536, 64),
    (2048, 64),
    (2560, 64),
    (3072, 64),
    (3584, 64),
    (4096, 64),
    (4608, 64),
    (5120, 64),
    (6144, 64),
    (7168, 64),
    (8192, 32),
];

/// Below this many GFLOPS for a MiB of weights `sram_probe` reports spilling (benchmarks §4).
const SPILLING: f64 = 100.0;

/// The kernel of `probe_v2` (benchmarks §14).
const PING_PONG: ConvChain = ConvChain { inputs: 128, outputs: 128, positions: 64, depth: 1, int8: false };

/// The chain that ran for five seconds (benchmarks §3).
const WIDE: ConvChain = ConvChain { inputs: 512, outputs: 512, positions: 2048, depth: 128, int8: false };

/// The peak in TFLOPS that published shares refer to (training-static §3).
const REFERENCE_PEAK: f64 = 15.8;

/// Predicts a record of a kernel, of a path or of the machine.
pub(super) fn measured(record: &PublishedRecord<'_>, model: &CostModel) -> Option<f64> {
    evaluation(record, model)
        .or_else(|| compile(record, model))
        .or_else(|| life(record, model))
        .or_else(|| copies(record, model))
        .or_else(|| machine(record, model))
        .or_else(|| sram(record, model))
}

/// The path of the model for a path as a record names it; `None` if it is not one to evaluate by.
fn path(text: &str) -> Option<&'static str> {
    Some(match text {
        "standard" => "inmem",
        "real-time" | "RT" | "ane_eval_rt" => "realtime",
        "processRequest" => "process-request",
        "doEvaluateDirect" => "direct",
        "CoreML API" => "coreml",
        "Engine direct" | "Engine private" => "e5rt",
        _ => return None,
    })
}

/// The shape of a record whose metric is not that of an evaluation.
fn shape(record: &PublishedRecord<'_>) -> Option<ConvChain> {
    let value = serde_json::json!({"what": record.what, "metric": "ms", "unit": "ms", "config": record.config?});
    Some(MeasuredKernel::of(&PublishedRecord::new(&value))?.shape)
}

/// Predicts one evaluation of a kernel on its path.
fn evaluation(record: &PublishedRecord<'_>, model: &CostModel) -> Option<f64> {
    let own = match record.text("path") {
        Some(text) => Some(CostModel::on_path(&model.constants.chip, path(text)?).ok()?),
        None => None,
    };
    let on_path = own.as_ref().unwrap_or(model);
    match (record.what, record.metric) {
        ("ane_int8_bench", "speedup") => {
            let time = |int8: bool| ConvChain { int8, ..shape(record)? }.ms(model);
            return Some(time(false)? / time(true)?);
        }
        (_, "speedup_vs_standard") => return Some(shape(record)?.ms(model)? / shape(record)?.ms(on_path)?),
        // Twelve programs in turn (benchmarks §11); the copies between them take a microsecond.
        ("test_throughput_ceiling (12 kernels)", "run_only" | "gcd_serial" | "sequential_run_plus_memcpy") => {
            return Some(model.alternating_us(shape(record)?.ms(model)? * 1e3) / 1e3);
        }
        // A linear op and two products of 64 channels, shorter than what passes during the dispatch
        // (headline results).
        ("custom MIL via E5", "ms_per_eval") => {
            let small = record.text("experiment").is_some_and(|e| e.starts_with("Y2") || e.starts_with("Z1"));
            return small
                .then(|| Some(CostModel::on_path(&model.constants.chip, "e5rt").ok()?.dispatch_us() / 1e3))
                .flatten();
        }
        ("eval path", "doEvaluateDirect") => {
            return Some(CostModel::on_path(&model.constants.chip, "direct").ok()?.dispatch_us());
        }
        _ => {}
    }
    let kernel = MeasuredKernel::of(record)?;
    kernel.from_ms(kernel.shape.ms(on_path)?)
}

/// The compile time of a chain of convolutions.
fn compiled(shape: ConvChain, model: &CostModel) -> Option<f64> {
    let weights = shape.inputs.checked_mul(shape.outputs)?.checked_mul(shape.depth)?.checked_mul(2)?;
    let layers = usize::try_from(shape.depth).ok()?;
    Some(model.compile_ms(layers.checked_add(CONV_OPS - 1)?, weights))
}

/// Predicts the compile time of convolutions.
fn compile(record: &PublishedRecord<'_>, model: &CostModel) -> Option<f64> {
    if record.what.starts_with("probe_v2") {
        return match record.metric {
            "compile_ms_low" | "compile_ms_high" | "background_compile_ms" => compiled(PING_PONG, model),
            "compile_to_eval_ratio" => Some(compiled(PING_PONG, model)? / PING_PONG.ms(model)?),
            _ => None,
        };
    }
    if record.metric != "compile_ms" || record.unit != "ms" {
        return None;
    }
    compiled(shape(record)?, model)
}

/// Predicts loads, unloads, first evaluations and evaluations of two programs in turn.
fn life(record: &PublishedRecord<'_>, model: &CostModel) -> Option<f64> {
    let ms = |shape: ConvChain| shape.ms(model);
    match (record.what, record.metric) {
        // The sweep begins with 0, in a new process (benchmarks §9).
        ("test_qos_sweep", "load_ms") => Some(model.load_ms(record.config("qos")?.as_u64()? == 0)),
        ("test_qos_sweep", "eval_first_ms") => Some(model.first_evaluation_us(ms(shape(record)?)? * 1e3) / 1e3),
        ("test_weight_reload", "compile_plus_load") => Some(compiled(shape(record)?, model)? + model.load_ms(true)),
        ("test_weight_reload", "reload") => Some(model.load_ms(false)),
        ("test_weight_reload", "unload") => Some(model.constants.unload_ms.value),
        (what, metric) if what.starts_with("probe_v2") && metric.starts_with("ping_pong") => {
            let one = model.alternating_us(ms(PING_PONG)? * 1e3) / 1e3;
            Some(if metric.contains("pair") { 2.0 * one } else { one })
        }
        _ => None,
    }
}

/// Predicts copies by the CPU, and a product as multiplication and sum over a matrix that is
/// copied.
fn copies(record: &PublishedRecord<'_>, model: &CostModel) -> Option<f64> {
    if record.what.starts_with("m5_performance_suite") && record.metric == "update_latency" {
        // fp32 weights of 4096 x 4096 (benchmarks §12).
        return Some(model.copy_us(4096 * 4096 * 4) / 1e3);
    }
    if !record.what.starts_with("dynamic matvec 2560x2560") {
        return None;
    }
    const SIDE: u64 = 2560;
    let matrix = SIDE * SIDE * 2;
    let copy = model.copy_us(matrix) / 1e3;
    // Both operands have the matrix's size, as x is tiled; the sum reads the product.
    let product = model.time(&Demand::planar(SIDE * SIDE, 2 * matrix, matrix)).0;
    let sum = model.time(&Demand::planar(SIDE * SIDE, matrix, SIDE * 2)).0;
    let engine = model.evaluation_us(product + sum) / 1e3;
    let constant = ConvChain { inputs: SIDE, outputs: SIDE, positions: 1, depth: 1, int8: false };
    match record.metric {
        "w_memcpy" | "x_tile" => Some(copy),
        "ane_eval" => Some(engine),
        "total" => Some(engine + 2.0 * copy),
        "const_conv" => constant.ms(model),
        "const_compile" => compiled(constant, model),
        _ => None,
    }
}

/// Predicts what the summaries say about `sram_probe`.
fn sram(record: &PublishedRecord<'_>, model: &CostModel) -> Option<f64> {
    let efficiency = |(n, positions): (u64, u64)| {
        let chain = ConvChain { inputs: n, outputs: n, positions, depth: 1, int8: false };
        // GFLOP per ms are 1000 GFLOPS.
        let rate = chain.flops()? as f64 / 1e6 / chain.ms(model)?;
        Some((n, rate * 1048576.0 / (2 * n * n) as f64))
    };
    match (record.what, record.metric) {
        ("summary", "sram_peak_efficiency_gflops_per_mb") => {
            PROBE.into_iter().filter_map(efficiency).map(|(_, e)| e).max_by(f64::total_cmp)
        }
        ("summary", "sram_spill_start_channels") => {
            let rows = PROBE.into_iter().filter_map(efficiency);
            rows.skip(1).find(|(_, e)| *e < SPILLING).map(|(n, _)| n as f64)
        }
        _ => None,
    }
}

/// Predicts numbers of the machine itself: dispatch cost, peaks, power.
fn machine(record: &PublishedRecord<'_>, model: &CostModel) -> Option<f64> {
    let c = &model.constants;
    let peak = |shapes: &[ConvChain]| {
        let rates = shapes.iter().filter_map(|s| Some(s.flops()? as f64 / s.ms(model)? / 1e9));
        rates.max_by(f64::total_cmp)
    };
    let chains = PEAK.map(|(n, depth)| ConvChain { inputs: n, outputs: n, positions: 64, depth, int8: false });
    let gemm = c.rate_tflops.value * c.matmul_share.value;
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
        ("article series", "sram_cliff") if record.unit == "MB" => Some(c.sram_mb.value),
        ("ane power while training", "low" | "high") => c.power_w.as_ref().map(|p| p.value),
        ("roofline", "fp16_gemm") if tera => Some(gemm),
        ("roofline", "perf_per_watt") => c.power_w.as_ref().map(|p| gemm * 1e3 / p.value),
        // A chain of 128 convolutions over 2048 positions (benchmarks §3).
        ("peak throughput", "sustained_tflops") => peak(&[WIDE]),
        ("peak throughput", "sustained_util_pct") => peak(&[WIDE]).map(|rate| 100.0 * rate / REFERENCE_PEAK),
        ("matmul throughput seq=64", "cpu") => c.sgemm_tflops.as_ref().map(|rate| rate.value * 1e3),
        ("vDSP cross entropy", "after") => c.softmax_ns.as_ref().map(|ns| ns.value * 32000.0 * 256.0 / 1e6),
        ("article series", "conv_vs_matmul") if record.unit == "x" => Some(c.matmul_share.value.recip()),
        _ => None,
    }
}
