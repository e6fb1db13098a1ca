//! The reason why a record has no prediction.

use super::NoPrediction;
use super::record::{PublishedRecord, chip_name};

/// The reason, as a phrase for a reader who sees the record.
pub(super) fn reason(record: &PublishedRecord<'_>) -> NoPrediction {
    let (what, metric, unit) = (record.what.to_lowercase(), record.metric.to_lowercase(), record.unit);
    let of = |words: &[&str], text: &str| words.iter().any(|w| text.contains(w));
    let reason = if unit == "nats" || of(&["loss"], &metric) {
        "a loss, not a time"
    } else if of(&["golden", "numeric", "grad norm"], &what)
        || of(&["_error", "_diff", "mean_abs", "grad_norm"], &metric)
    {
        "a value that a program computed, not a time"
    } else if of(&["vendor rating", "hardware table", "estimate", "claimed"], &what) {
        "a rating or an estimate, not a measurement"
    } else if chip_name(record.chip).is_none() {
        "it names no single chip that the model has constants for"
    } else if let Some(reason) = known(record) {
        reason
    } else if what == "summary" {
        "a summary of rows that have their own records"
    } else if unit.starts_with('%') || of(&["pct", "utilis", "utiliz", "share"], &metric) {
        "a share of other numbers, which have rows of their own"
    } else if of(&["cpu", "gpu"], &metric) || of(&["not ane", "vdsp", "gpu prefill"], &what) {
        "time of the CPU or the GPU, not of the engine"
    } else if unit == "tok/s" || unit == "GB" {
        "a whole inference run, whose programs the record does not give"
    } else if matches!(unit, "count" | "bytes" | "tokens" | "elements" | "MB" | "requests")
        || of(&["kernels", "channels"], &metric)
    {
        "a count or a size, not a time"
    } else if record.text("path").is_some_and(|path| path != "standard")
        || of(&["direct", "rt"], &metric) && what.contains("path")
    {
        "another path to the engine than the standard evaluation, with its own dispatch cost"
    } else if of(&["memcpy", "write_weight", "update", "x_tile"], &metric) {
        "a copy by the CPU, not an evaluation"
    } else if of(&["load", "reload"], &metric) || of(&["unload"], &metric) {
        "loading and unloading are not modeled"
    } else if of(&["first"], &metric) {
        "a first evaluation; the model predicts warm ones"
    } else if of(&["compil", "startup", "restart"], &metric) || of(&["compil"], &what) {
        "a compile of programs that the record does not give"
    } else if of(&["static", "train_large", "single"], &what)
        || of(&["static", "train_large", "pr19", "single"], &record.text("pipeline").unwrap_or("").to_lowercase())
    {
        "a step of a pipeline whose programs are not modeled"
    } else if of(&["train", "step", "batch", "summary", "orion", "compile_dyn", "mega-kernel"], &what)
        || unit == "ms/step"
    {
        "its model or pipeline is not modeled, or it is a part of a step that is not timed separately"
    } else if unit == "x" || unit.contains("/W") || unit.contains("/byte") || unit.contains("GB/s") {
        "a ratio of numbers whose benchmark is not given"
    } else if unit == "W" || unit == "mW" {
        "power of a whole run"
    } else if matches!(unit, "ms" | "us" | "s" | "TFLOPS" | "TOPS" | "GFLOPS") {
        "the record does not say what was evaluated (channels, positions)"
    } else {
        "neither a time nor a rate"
    };
    NoPrediction { reason }
}

/// Reasons for records of which more is known than their words say.
fn known(record: &PublishedRecord<'_>) -> Option<&'static str> {
    let pipeline = record.text("pipeline").or(record.text("run")).unwrap_or("");
    Some(match (record.what, record.metric) {
        (_, metric) if pipeline.contains("--no-ane-extras") && metric != "kernels" => {
            "a fallback whose softmax is a scalar loop on the CPU, which no log times by itself"
        }
        ("training step breakdown (train_large_ane)", _) => {
            "a part of a step that this pipeline computes on the engine"
        }
        ("GPU prefill -> ANE decode", _) => "a decode whose programs are not published, after a prefill of the GPU",
        ("per-dispatch cost", _) => "a part of the fixed cost of a dispatch, which is one number here",
        ("W1 path latency", _) => "a stream that is borrowed without an evaluation",
        // benchmarks §11: 0.001 and 0.002 ms.
        ("test_throughput_ceiling (12 kernels)", "memcpy_only") => {
            "a copy of a few KiB, no longer than the unit of the record"
        }
        ("RMSNorm vDSP vectorisation", _) | ("vDSP cross entropy", "before") => {
            "a loop of the CPU before or after a change of its code"
        }
        (what, _) if what.starts_with("mega-kernel") => "a probe whose window is not published",
        ("roofline", _) => "a bandwidth whose benchmark is not given",
        ("Orion" | "rustane training (48.8M GPT)" | "rustane single kernel", metric)
            if !matches!(metric, "gpt2_decode" | "min_iosurface") =>
        {
            "a run of another trainer, whose programs are not published"
        }
        (what, _) if what.starts_with("chaining") || what.starts_with("standard eval") => {
            "the record does not say what was evaluated (channels, positions)"
        }
        (what, _) if what.starts_with("matmul throughput") => "a rate of the GPU",
        (what, "decode" | "prefill" | "memory") if what.starts_with("inference (not ANE)") => {
            "an inference run on the CPU or the GPU"
        }
        _ => return None,
    })
}
