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
