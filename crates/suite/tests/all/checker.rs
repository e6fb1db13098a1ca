//! The training kernels and the programs of generation, checked for machines: no findings where
//! they are known to run, rejected where a source says that they fail.

use ferrane_diag::{Code, Severity};
use ferrane_llm::config::{Config, preset};
use ferrane_llm::decode::program as decode;
use ferrane_llm::decode::quantize::WeightType;
use ferrane_llm::kernels;
use ferrane_llm::layout::{Kernel, PipelineKind, Residual, Shape, WeightForm};
use ferrane_llm::weights::{Init, Weights};
use ferrane_machine::{CheckOptions, Effect, Finding, Profile, check};
use ferrane_mil::Program;

pub(crate) fn profile(name: &str) -> Profile {
    Profile::named(name).unwrap_or_else(|e| panic!("{e}"))
}

pub(crate) fn told(findings: &[Finding]) -> String {
    findings.iter().map(|f| format!("{} {}: {}", f.severity, f.code, f.message)).collect::<Vec<_>>().join("\n")
}

pub(crate) fn findings(program: &Program, name: &str) -> Vec<Finding> {
    check(program, &profile(name), &CheckOptions::default())
}

/// Fails on errors, and on warnings that results are wrong.
pub(crate) fn clean(findings: Vec<Finding>) -> Result<(), String> {
    let bad = |f: &Finding| {
        f.severity == Severity::Error || (f.severity == Severity::Warning && f.effect == Effect::SilentlyWrong)
    };
    let bad: Vec<Finding> = findings.into_iter().filter(bad).collect();
    if bad.is_empty() { Ok(()) } else { Err(told(&bad)) }
}

/// The kernels of a pipeline for a preset.
fn kernels_of(name: &str, seq: usize, pipeline: PipelineKind) -> Vec<(Kernel, Program)> {
    let config = preset(name).expect("a preset");
    let one = Config { layers: 1, vocab: 8, ..config.clone() };
    let weights = Weights::init(&one, Init::Normal { std: 0.02 }, 1);
    // As many classes as the published runs have in use, if there are as many.
    let classes = config.vocab.min(9205);
    let rows = vec![0.5; classes * config.dim];
    let model = kernels::ModelConstants { norm: &weights.norm, classifier: &rows };
    let shape = Shape::new(config, seq, Residual::Fp32, WeightForm::Packed).with_pipeline(pipeline);
    let shape = shape.with_classes(classes);
    let build = |kernel: &Kernel| match kernel.is_of_model() {
        true => (*kernel, kernels::build_model(&shape, *kernel, model).expect("builds").0),
        false => (*kernel, kernels::build_layer(&shape, *kernel, &weights.layers[0]).expect("builds").0),
    };
    pipeline.kernels().iter().map(build).collect()
}

#[test]
fn the_training_kernels_are_clean_on_the_m4() {
    for (model, seq) in [("stories260k", 64), ("stories110m", 256), ("qwen3-0.6b", 256)] {
        use PipelineKind::{Dynamic, Fused, Static, StaticExtras};
        for pipeline in [Dynamic, Static, StaticExtras, Fused] {
            for (kernel, program) in kernels_of(model, seq, pipeline) {
                let found = clean(findings(&program, "m4-macos15-inmem"));
                assert_eq!(found, Ok(()), "{model} {} {}", pipeline.name(), kernel.name());
            }
        }
    }
}

#[test]
fn the_training_kernels_fail_where_sources_say_so() {
    for (kernel, program) in kernels_of("stories110m", 256, PipelineKind::Dynamic) {
        let has = |profile: &str, code: u16| findings(&program, profile).iter().any(|f| f.code == Code(code));
        // The forward kernel of attention contains the rotation.
        let rotates = kernel == Kernel::SdpaFwd;
        assert_eq!(has("m3-ultra-macos26-inmem", 470), rotates, "{}", kernel.name());
        assert!(has("m1-macos26-inmem", 401), "{}", kernel.name());
    }
}

#[test]
fn the_programs_of_generation_are_clean_on_the_m4() {
    for model in ["stories260k", "stories15m", "stories110m", "qwen3-0.6b"] {
        let config = preset(model).expect("a preset");
        for (queries, cached) in [(1, 128), (1, 768), (4, 1024), (32, 0), (32, 384), (256, 0), (256, 512)] {
            for weights in [WeightType::Fp16, WeightType::Int8] {
                let shape =
                    decode::DecodeShape { config: config.clone(), queries, slots: 1, cached, weights, adapter_rank: 0 };
                for part in [
                    decode::DecodeKernel::Attention,
                    decode::DecodeKernel::FeedForward,
                    decode::DecodeKernel::KeysValues,
                ] {
                    let found = clean(findings(&shape.build(part).expect("builds"), "m4-macos15-inmem"));
                    assert_eq!(found, Ok(()), "{model} {} {queries} {cached} {}", part.name(), weights.name());
                }
            }
        }
    }
}

/// The codes that the comments of a filetest expect, for each of its programs.
fn told_in(text: &str) -> Vec<Vec<Code>> {
    let code = |line: &str| {
        let (_, comment) = line.rsplit_once("// ")?;
        let (_, told) = comment.split_once(": E").filter(|(key, _)| matches!(*key, "error" | "warning" | "note"))?;
        told.get(..4)?.parse().ok().map(Code)
    };
    text.split("// ---").map(|part| part.lines().filter_map(code).collect()).collect()
}

#[test]
fn every_rule_has_a_program_where_it_fires_and_one_where_it_is_silent() {
    // Not reproducible by a short text: types that the language rejects first, thousands of ops,
    // records of files, several programs.
    let elsewhere = [410, 417, 418, 445, 498, 499].map(Code);
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../filetests/machine");
    let files: Vec<Vec<Vec<Code>>> = ferrane_suite::filetest::discover(&folder)
        .unwrap()
        .iter()
        .map(|path| told_in(&std::fs::read_to_string(path).unwrap()))
        .collect();
    for rule in ferrane_machine::rules::all().iter().filter(|r| !elsewhere.contains(&r.code)) {
        let told = |part: &Vec<Code>| part.contains(&rule.code);
        let fires: Vec<_> = files.iter().filter(|parts| parts.iter().any(told)).collect();
        assert!(!fires.is_empty(), "no filetest triggers {}: {}", rule.code, rule.title);
        assert!(fires.iter().any(|parts| !parts.iter().all(told)), "every filetest triggers {}", rule.code);
    }
}
