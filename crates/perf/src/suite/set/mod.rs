//! The benchmarks, one file for each family.

mod attention;
mod convolutions;
mod int8;
mod requests;
mod runtime_weights;
mod training;
mod weights;

use super::{Benchmark, Context};
use crate::error::Result;

const fn benchmark(
    name: &'static str,
    question: &'static str,
    origin: &'static str,
    run: fn(&mut Context<'_, '_>) -> Result<()>,
) -> Benchmark {
    Benchmark { name, question, origin, run }
}

/// Every benchmark, in the order in which the suite runs.
// table
pub fn all_benchmarks() -> &'static [Benchmark] {
    const ALL: &[Benchmark] = &[
        benchmark(
            "inmem",
            "How does a dispatch grow with the width of one convolution?",
            "inmem_bench (§2)",
            convolutions::inmem,
        ),
        benchmark("peak", "What rate does a chain of convolutions reach?", "inmem_peak (§3)", convolutions::peak),
        benchmark("sram", "What do weights of 0.1 to 128 MB cost?", "sram_bench (§4)", convolutions::sram),
        benchmark(
            "sram-probe",
            "Where do weights leave the chip, and at what rate do they stream?",
            "sram_probe (§4)",
            convolutions::sram_probe,
        ),
        benchmark("int8", "How much faster are int8 weights and activations?", "ane_int8_bench (§5)", int8::int8),
        benchmark("int8-depth", "From how many layers do int8 activations pay?", "int8.md §4", int8::depth),
        benchmark("int8-positions", "From how many positions do int8 activations pay?", "int8.md §4", int8::positions),
        benchmark(
            "weight-forms",
            "Which compressed weights stream, and which are expanded before?",
            "probe_quant (§14), int8.md §3",
            weights::forms,
        ),
        benchmark(
            "dynamic-matmul",
            "What do weights cost that are part of the input, rewritten or not, tiled or not?",
            "test_dynamic_matmul (§7)",
            runtime_weights::dynamic_matmul,
        ),
        benchmark(
            "performance",
            "How do products with one row grow with their weights as inputs, and what does an update cost?",
            "m5_performance_suite (§12)",
            runtime_weights::performance,
        ),
        benchmark(
            "pipeline",
            "What do 24 layers cost, at which window do products become compute bound, and what do updates add?",
            "m5_pipeline_suite (§12)",
            runtime_weights::pipeline,
        ),
        benchmark(
            "weight-patch",
            "Which ways of changing weights without a compile change the answer?",
            "test_weight_patch (§8)",
            weights::patch,
        ),
        benchmark(
            "weight-reload",
            "What do compile, load, unload and reload cost?",
            "test_weight_reload (§8)",
            weights::reload,
        ),
        benchmark("paths", "What does each way of dispatching cost?", "test_bench_paths (§11)", requests::paths),
        benchmark(
            "qos",
            "Does the quality of service change compile, load or latency?",
            "test_qos_sweep (§9)",
            requests::qos,
        ),
        benchmark(
            "throughput",
            "What does each of twelve programs cost, with and without copies between them?",
            "test_throughput_ceiling (§11)",
            requests::throughput,
        ),
        benchmark(
            "in-flight",
            "How many requests in flight does the engine gain from?",
            "queue depth 127 (§11, §15.3)",
            requests::in_flight,
        ),
        benchmark(
            "chaining",
            "Does a chain of two programs cost less than both?",
            "test_chaining (§11)",
            requests::chaining,
        ),
        benchmark("procedures", "Do all functions of one program run?", "test_ane_advanced (§8)", requests::procedures),
        benchmark(
            "repeat",
            "What do 20 compiles, 1000 evaluations and two alternating programs cost?",
            "probe_v2 (§14)",
            requests::repeat,
        ),
        benchmark(
            "perf-stats",
            "Does the engine report its own time, and what does the rest of an evaluation cost?",
            "test_perf_stats (§8)",
            requests::perf_stats,
        ),
        benchmark(
            "classifier",
            "Are classifier and softmax over 32,000 classes faster on the device than on this CPU?",
            "test_classifier (§10)",
            training::classifier,
        ),
        benchmark(
            "rmsnorm-backward",
            "Is the gradient of RMSNorm right, and how long does it take?",
            "test_rmsnorm_bwd (§10)",
            training::rmsnorm_backward,
        ),
        benchmark(
            "sdpa-masks",
            "Which kinds of masks does scaled_dot_product_attention apply?",
            "test_ane_sdpa5 (§10)",
            attention::masks,
        ),
        benchmark(
            "causal-attention",
            "What does causal attention cost as one op, and with mask and softmax on the CPU?",
            "test_ane_causal_attn (§10)",
            attention::causal,
        ),
        benchmark(
            "conv-attention",
            "What does attention cost whose keys and values are weights of grouped convolutions?",
            "test_conv_attn3 (§10)",
            attention::grouped,
        ),
        benchmark(
            "fused-attention",
            "What does a whole attention block cost as one program?",
            "test_full_fused, test_fused_qkv, test_fused_bwd (§10)",
            attention::fused,
        ),
        benchmark(
            "gpu-handoff",
            "What does prefill on the GPU with decoding on the engine cost?",
            "gpu_prefill_ane_decode (§13)",
            requests::gpu_handoff,
        ),
    ];
    ALL
}
