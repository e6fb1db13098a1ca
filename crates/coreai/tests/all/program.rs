//! Programs of models, compared with what Apple's runtime computes for them
//! (`scripts/coreai/fixtures.py`), and models that have no program.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ferrane_coreai::build::Builder;
use ferrane_coreai::dialect::ElementType;
use ferrane_coreai::{Bytecode, ConversionOptions, Refusals, codes};
use ferrane_emulator::{Emulator, EmulatorOptions};
use ferrane_mil::program::Payload;
use ferrane_mil::{Constant, DataType, Program, Type};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

/// fp32 sums in another order, relative to the largest element of an output.
const FP32: f64 = 1e-5;
/// Apple's runtime on Linux adds fp16 products one by one in fp16, and rounds each function to 11
/// significant bits, as the emulator does: a few units in the last place.
const FP16: f64 = 4e-3;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models")
}

fn numbers(view: &TensorView<'_>) -> Vec<f64> {
    fn each<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        bytes.chunks_exact(N).map(|b| number(b.try_into().unwrap())).collect()
    }
    let bytes = view.data();
    match view.dtype() {
        Dtype::F32 => each(bytes, |b| f64::from(f32::from_le_bytes(b))),
        Dtype::F16 => each(bytes, |b| half::f16::from_le_bytes(b).to_f64()),
        Dtype::I64 => each(bytes, |b| i64::from_le_bytes(b) as f64),
        Dtype::I32 => each(bytes, |b| f64::from(i32::from_le_bytes(b))),
        Dtype::U32 => each(bytes, |b| f64::from(u32::from_le_bytes(b))),
        Dtype::I16 => each(bytes, |b| f64::from(i16::from_le_bytes(b))),
        Dtype::I8 => each(bytes, |b| f64::from(i8::from_le_bytes(b))),
        Dtype::U8 | Dtype::BOOL => each(bytes, |b| f64::from(u8::from_le_bytes(b))),
        other => panic!("{other:?}"),
    }
}

fn constant(ty: &Type, shape: &[usize], values: &[f64]) -> Constant {
    let dtype = ty.dtype().unwrap();
    let bytes: Vec<u8> = match dtype {
        DataType::Fp32 => values.iter().flat_map(|&v| (v as f32).to_le_bytes()).collect(),
        DataType::Fp16 => values.iter().flat_map(|&v| half::f16::from_f64(v).to_le_bytes()).collect(),
        DataType::Int16 => values.iter().flat_map(|&v| (v as i16).to_le_bytes()).collect(),
        DataType::Int8 | DataType::UInt8 => values.iter().map(|&v| v as i64 as u8).collect(),
        _ => values.iter().flat_map(|&v| (v as i32).to_le_bytes()).collect(),
    };
    Constant::raw(dtype, shape, &bytes)
}

fn values(constant: &Constant) -> Vec<f64> {
    let Constant::Tensor { ty, payload: Payload::Bytes(bytes) } = constant else { panic!() };
    match ty.dtype().unwrap() {
        DataType::Fp32 => bytes.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect(),
        DataType::Fp16 => {
            bytes.chunks_exact(2).map(|b| half::f16::from_le_bytes(b.try_into().unwrap()).to_f64()).collect()
        }
        _ => bytes.chunks_exact(4).map(|b| f64::from(i32::from_le_bytes(b.try_into().unwrap()))).collect(),
    }
}

fn read(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(format!("{name}.mlirb"))).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn program(bytes: &[u8], options: &ConversionOptions) -> Result<Program, Refusals> {
    Bytecode::read(bytes).expect("a program").to_mil(options)
}

/// The tensors of a record whose names begin with `part`, by the rest of their names.
fn part<'a>(record: &'a SafeTensors<'a>, part: &str) -> BTreeMap<String, TensorView<'a>> {
    let strip = |name: &str| name.strip_prefix(part).map(str::to_string);
    record.tensors().into_iter().filter_map(|(name, view)| Some((strip(&name)?, view))).collect()
}

/// Runs `main` on the recorded inputs and compares its outputs and states with the recorded ones.
fn compare(name: &str) {
    let recorded = std::fs::read(folder().join(format!("{name}.safetensors"))).unwrap();
    let record = SafeTensors::deserialize(&recorded).unwrap();
    let given = part(&record, "in.");
    let mut options = ConversionOptions::default();
    for (input, view) in &given {
        // Extents that the file fixes may be stated, too.
        for (axis, &extent) in view.shape().iter().enumerate() {
            options = options.dimension(&format!("{input}.{axis}"), extent);
        }
    }
    let program = program(&read(name), &options).unwrap_or_else(|e| panic!("{name}: {e}"));
    let main = program.function("main").unwrap();
    let ty = |name: &str| main.inputs.iter().map(|v| main.value(*v)).find(|v| v.name == name).map(|v| v.ty.clone());
    let inputs: Vec<(String, Constant)> = given
        .iter()
        .map(|(input, view)| (input.clone(), constant(&ty(input).unwrap(), view.shape(), &numbers(view))))
        .collect();
    let states = part(&record, "state.");
    let mut states: BTreeMap<String, Constant> = states
        .iter()
        .map(|(state, view)| (state.clone(), constant(&ty(state).unwrap(), view.shape(), &numbers(view))))
        .collect();
    let outputs = Emulator::new(EmulatorOptions::default())
        .call(&program, "main", &inputs, &mut states)
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    let wanted = part(&record, "out.");
    assert_eq!(outputs.len(), wanted.len(), "{name}");
    let after = part(&record, "after.");
    let found = outputs.iter().map(|(n, v)| (n, v, &wanted)).chain(states.iter().map(|(n, v)| (n, v, &after)));
    for (output, value, wanted) in found {
        let Some(view) = wanted.get(output).or_else(|| wanted.get(output.strip_suffix("_out")?)) else {
            panic!("{name}: no output {output} among {:?}", wanted.keys())
        };
        assert_eq!(value.ty().shape().as_deref(), Some(view.shape()), "{name}: {output}");
        let (found, wanted) = (values(value), numbers(view));
        let limit = match view.dtype() {
            Dtype::F32 => FP32,
            Dtype::F16 => FP16,
            _ => 0.0,
        };
        let largest = wanted.iter().filter(|v| v.is_finite()).fold(0.0f64, |m, v| m.max(v.abs())).max(1e-30);
        for (f, w) in found.iter().zip(&wanted) {
            let same = f == w || f.is_nan() && w.is_nan() || (f - w).abs() / largest <= limit;
            assert!(same, "{name}: {output} is {f}, not {w}; the largest is {largest}");
        }
    }
}

#[test]
fn models_give_the_values_of_apples_runtime() {
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .expect("the folder of models")
        .map(|entry| entry.expect("a file").path())
        .filter(|path| path.extension().is_some_and(|e| e == "mlirb"))
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert!(names.len() > 40, "{} models", names.len());
    names.iter().for_each(|name| compare(name));
}

/// The ops of a function, constants left out.
fn ops(program: &Program) -> Vec<&str> {
    program.functions[0].ops.iter().map(|op| op.name.as_str()).filter(|name| *name != "const").collect()
}

fn sample(name: &str) -> Vec<u8> {
    std::fs::read(crate::samples::folder().join(format!("{name}.mlirb"))).unwrap()
}

#[test]
fn operations_become_ops_of_mil() {
    for (name, wanted) in [
        ("relu_float16", &["relu"][..]),
        ("gelu_tanh", &["gelu"]),
        ("conv2d", &["conv"]),
        ("scatter_nd", &["scatter_nd"]),
        ("isolated_group", &["relu"]),
        ("constraints_io", &["identity"]),
        ("state", &["read_state", "add", "coreml_update_state", "read_state"]),
    ] {
        let found = program(&sample(name), &ConversionOptions::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
        let mut found = ops(&found);
        // Indices that may count from the end are made positive first.
        found.retain(|op| wanted.contains(op));
        assert_eq!(found, wanted, "{name}");
    }
}

#[test]
fn what_is_not_known_is_expanded() {
    let bytes = sample("relu_float16");
    let mut file = Bytecode::read(&bytes).unwrap();
    let name = file.strings.iter_mut().find(|s| s.as_ref() == b"relu_v1").unwrap();
    *name = b"relu_v9".into();
    let program = file.to_mil(&ConversionOptions::default()).unwrap();
    assert_eq!(ops(&program), ["maximum"]);
    // Without an expansion nothing is left.
    let bytes = sample("gelu_tanh");
    let mut file = Bytecode::read(&bytes).unwrap();
    *file.strings.iter_mut().find(|s| s.as_ref() == b"primitive.gelu_v1").unwrap() = b"primitive.gelu_v9".into();
    let refusals = file.to_mil(&ConversionOptions::default()).unwrap_err().all;
    assert_eq!((refusals.len(), refusals[0].code), (1, codes::UNMAPPED));
    assert_eq!(refusals[0].operation, "primitive.gelu_v9");
}

#[test]
fn every_refusal_is_listed_with_its_line() {
    let refusals = |name: &str| program(&sample(name), &ConversionOptions::default()).unwrap_err().all;
    let found = refusals("image_constraints");
    assert!(found[0].reason.contains("images") && found[0].operation == "input", "{found:?}");
    let found = refusals("metal4_kernel");
    assert_eq!((found.len(), found[0].code), (1, codes::UNMAPPED));
    assert_eq!(found[0].operation, "metal.metal4_kernel_v1");
    // The program was read as text, from standard input.
    let text = program(&sample("delegate"), &ConversionOptions::default()).unwrap_err().to_string();
    assert!(text.contains("main, -:3 (execution.delegate_v2)"), "{text}");
}

#[test]
fn open_extents_are_named() {
    let refused = program(&sample("dynamic_reshape"), &ConversionOptions::default()).unwrap_err().all;
    assert_eq!(refused[0].code, codes::OPEN_EXTENT);
    assert!(refused[0].reason.contains("`x.0`, `x.1`"), "{refused:?}");
    let options = ConversionOptions::default().dimension_list("x=2x5").unwrap();
    let found = program(&sample("dynamic_reshape"), &options).unwrap();
    let main = &found.functions[0];
    assert_eq!(main.value(main.body().outputs[0]).ty.shape(), Some(vec![10]));
    let wrong = program(&sample("dynamic_reshape"), &options.dimension("z.0", 1)).unwrap_err().all;
    assert!(wrong[0].reason.contains("no such extent"), "{wrong:?}");
}

#[test]
fn functions_are_those_that_callers_see() {
    let found = program(&sample("functions"), &ConversionOptions::default()).unwrap();
    let names: Vec<&str> = found.functions.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names, ["main", "other"]);
    assert_eq!(ops(&found), ["exp", "add"]);
}

#[test]
fn a_function_that_calls_itself_is_refused() {
    let bytes = sample("functions");
    let mut file = Bytecode::read(&bytes).unwrap();
    // `main` calls the function of this name, which is now itself.
    *file.strings.iter_mut().find(|s| s.as_ref() == b"helper").unwrap() = b"main".into();
    let refused = file.to_mil(&ConversionOptions::default());
    assert!(refused.is_err(), "{refused:?}");
}

#[test]
fn weights_of_a_program_lie_in_the_mapped_file() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("m.aimodel");
    let mut builder = Builder::new();
    let ty = builder.tensor(&[Some(64), Some(2)], ElementType::Float16);
    let mut graph = builder.graph("main", &[("x", ty)]);
    let x = graph.inputs()[0];
    let w = builder.weight(&mut graph, "w", ty, vec![1u8; 256]);
    let y = builder.op(&mut graph, "primitive.mul_v1", &[x, w], &[], ty);
    let z = builder.op(&mut graph, "primitive.add_v1", &[y, w], &[], ty);
    builder.output(graph, &[("z", z)]);
    ferrane_coreai::asset::write(&path, &builder.finish(), &serde_json::json!({})).unwrap();
    let asset = ferrane_coreai::Asset::open(&path).unwrap();
    let program = asset.to_mil(&ConversionOptions::default()).unwrap().unwrap();
    assert_eq!(program.weights.len(), 1);
    let mapped = asset.bytes().as_ptr_range();
    let weight = program.weights.bytes(ferrane_mil::WeightId(0)).unwrap();
    // Both mappings show the same file.
    assert_eq!(weight, [1; 256]);
    assert!(mapped.contains(&weight.as_ptr()), "a copy of a weight");
}

#[test]
fn each_function_keeps_its_weights() {
    let mut builder = Builder::new();
    let ty = builder.tensor(&[Some(64)], ElementType::Float32);
    for (name, number) in [("first", 1.0f32), ("second", 2.0), ("third", 3.0)] {
        let mut graph = builder.graph(name, &[("x", ty)]);
        let x = graph.inputs()[0];
        let w = builder.weight(&mut graph, name, ty, number.to_le_bytes().repeat(64));
        let y = builder.op(&mut graph, "primitive.mul_v1", &[x, w], &[], ty);
        builder.output(graph, &[("y", y)]);
    }
    let program = program(&builder.finish().write(), &ConversionOptions::default()).unwrap();
    assert_eq!(program.weights.len(), 3);
    let x = Constant::raw(DataType::Fp32, &[64], &1.0f32.to_le_bytes().repeat(64));
    for (name, number) in [("first", 1.0), ("second", 2.0), ("third", 3.0)] {
        let outputs = Emulator::new(EmulatorOptions::default())
            .call(&program, name, &[("x".to_string(), x.clone())], &mut BTreeMap::new())
            .unwrap();
        assert_eq!(values(&outputs[0].1), [number; 64], "{name}");
    }
}
