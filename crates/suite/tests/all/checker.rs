//! The ten training kernels against machines: clean where they are known to run, refused where sources say so.

use ferrane_diag::{Code, Severity};
use ferrane_llm::config::preset;
use ferrane_llm::kernels;
use ferrane_llm::layout::{Kernel, Residual, Shape, WeightForm};
use ferrane_mil::Program;
use ferrane_target::check::Options;
use ferrane_target::{Effect, Finding, Profile, check};

fn profile(name: &str) -> Profile {
    Profile::named(name).unwrap_or_else(|e| panic!("{e}"))
}

fn told(findings: &[Finding]) -> String {
    findings.iter().map(|f| format!("{} {}: {}", f.severity, f.code, f.message)).collect::<Vec<_>>().join("\n")
}

fn findings(program: &Program, name: &str) -> Vec<Finding> {
    check(program, &profile(name), &Options::default())
}

/// No errors, and no warnings that results are wrong.
fn clean(findings: Vec<Finding>) -> Result<(), String> {
    let bad = |f: &Finding| {
        f.severity == Severity::Error || (f.severity == Severity::Warning && f.effect == Effect::SilentlyWrong)
    };
    let bad: Vec<Finding> = findings.into_iter().filter(bad).collect();
    if bad.is_empty() { Ok(()) } else { Err(told(&bad)) }
}

/// The ten kernels of a preset.
fn kernels_of(name: &str, seq: usize) -> Vec<(Kernel, Program)> {
    let shape = Shape::new(preset(name).expect("a preset"), seq, Residual::Fp32, WeightForm::Packed);
    let build = |kernel: &Kernel| (*kernel, kernels::build(&shape, *kernel).expect("builds").0);
    Kernel::ALL.iter().map(build).collect()
}

#[test]
fn the_training_kernels_are_clean_on_the_m4() {
    for (model, seq) in [("stories260k", 64), ("stories110m", 256), ("qwen3-0.6b", 256)] {
        for (kernel, program) in kernels_of(model, seq) {
            let found = clean(findings(&program, "m4-macos15-inmem"));
            assert_eq!(found, Ok(()), "{model} {}", kernel.name());
        }
    }
}

#[test]
fn the_training_kernels_fail_where_sources_say_so() {
    for (kernel, program) in kernels_of("stories110m", 256) {
        let has = |profile: &str, code: u16| findings(&program, profile).iter().any(|f| f.code == Code(code));
        // The rotation stands in this one.
        let rotates = kernel == Kernel::SdpaFwd;
        assert_eq!(has("m3-ultra-macos26-inmem", 470), rotates, "{}", kernel.name());
        assert!(has("m1-macos26-inmem", 401), "{}", kernel.name());
    }
}
