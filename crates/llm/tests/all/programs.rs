//! Snapshots of every kernel's text, and a comparison of its ops with those of published kernels.

use crate::gradients::{everything, plain};
use ferrane_llm::config::{Config, preset};
use ferrane_llm::kernels;
use ferrane_llm::layout::{Kernel, Residual, Shape, WeightForm};
use ferrane_mil::{Program, Weights, text};
use ferrane_testdata::Suite;

/// The reference trainer's layout, and one with every option, with weights packed and as inputs.
#[test]
fn texts() {
    for (name, config, residual, form) in [
        ("plain", plain(), Residual::Fp16, WeightForm::Packed),
        ("everything", everything(), Residual::Fp32, WeightForm::Inputs),
        ("packed", everything(), Residual::Fp32, WeightForm::Packed),
    ] {
        for kernel in Kernel::ALL {
            let (program, _) = kernels::build(&Shape::new(config.clone(), 4, residual, form), kernel).unwrap();
            insta::assert_snapshot!(format!("{name}_{}", kernel.name()), text::print(&program));
        }
    }
}

/// Names of the ops in order, constants left out.
fn ops(program: &Program) -> Vec<String> {
    let main = program.function("main").unwrap();
    let names = main.body().ops.iter().map(|id| main.op(*id).name.clone());
    names.filter(|n| n != "const").collect()
}

fn arithmetic(ops: &[String]) -> Vec<&str> {
    let moves = ["reshape", "transpose", "slice_by_size"];
    ops.iter().map(String::as_str).filter(|n| !moves.contains(n)).collect()
}

/// The published static kernels have the arithmetic of the dynamic ones in corresponding parts:
/// `sdpa_bwd1` applies Wo first, the forward ones normalize first and have `conv` for the dynamic
/// product.
#[test]
fn published_kernels() {
    let Some(mut suite) = Suite::open("llm published kernels", "mil/espresso") else { return };
    let config = preset("stories110m").unwrap();
    for (file, kernel) in [
        ("sdpa_fwd_taps.mil", Kernel::SdpaFwd),
        ("sdpa_bwd1.mil", Kernel::SdpaBwd1),
        ("sdpa_bwd2.mil", Kernel::SdpaBwd2),
        ("ffn_fwd_taps.mil", Kernel::FfnFused),
    ] {
        let path = suite.folder().join(file);
        if !path.is_file() {
            suite.skip(file, "not there");
            continue;
        }
        suite.case(file, compare(&path, &config, kernel));
    }
    suite.finish();
}

fn compare(path: &std::path::Path, config: &Config, kernel: Kernel) -> Result<(), String> {
    let bytes = std::fs::read(path).map_err(|e| e.to_string())?;
    // Only the text is published, without its weights.
    let options = text::Options { missing: text::Missing::Keep, ..text::Options::default() };
    let parsed = text::parse_with(&bytes, &Weights::new(), options);
    let published = parsed.program.ok_or_else(|| format!("{:?}", parsed.diagnostics))?;
    let shape = Shape::new(config.clone(), 256, Residual::Fp16, WeightForm::Packed);
    let (program, _) = kernels::build(&shape, kernel).map_err(|e| e.to_string())?;
    let (theirs, ours) = (ops(&published), ops(&program));
    let (theirs_math, ours_math) = (arithmetic(&theirs), arithmetic(&ours));
    let (wanted, found) = match kernel {
        Kernel::SdpaBwd2 => {
            if theirs.len() != ours.len() {
                return Err(format!("{} ops, published {}", ours.len(), theirs.len()));
            }
            (theirs_math, ours_math)
        }
        // From the scores to the product with the values.
        Kernel::SdpaFwd => (between(&theirs_math, "matmul", "matmul"), {
            let rope = ours_math.iter().rposition(|n| *n == "mul").ok_or("no scale")?;
            ours_math[rope - 1..rope + 4].to_vec()
        }),
        Kernel::SdpaBwd1 => (theirs_math.into_iter().filter(|n| *n != "conv").collect(), ours_math),
        _ => (between(&theirs_math, "sigmoid", "mul"), between(&ours_math, "sigmoid", "mul")),
    };
    if wanted != found { Err(format!("{found:?}, published {wanted:?}")) } else { Ok(()) }
}

/// The shortest run of ops from the first `from` to a `to` after it, inclusive.
fn between<'a>(ops: &[&'a str], from: &str, to: &str) -> Vec<&'a str> {
    let Some(start) = ops.iter().position(|n| *n == from) else { return Vec::new() };
    let end = ops[start + 1..].iter().position(|n| *n == to).map_or(ops.len(), |n| start + n + 2);
    ops[start..end].to_vec()
}
