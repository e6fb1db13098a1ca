//! Small whole models, compared with what ONNX Runtime computes for them (scripts/onnx_models.py).

use std::collections::BTreeMap;
use std::path::Path;

use ferrane_emulator::{Emulator, EmulatorOptions, Numerics};
use ferrane_mil::{Constant, DataType, Program};
use ferrane_onnx::{Dimension, Model, Options, Precision, port_names};
use safetensors::SafeTensors;

use crate::common::folder;

/// fp32 sums in another order, relative to the largest element of an output.
const FP32: f64 = 1e-5;
/// fp16 values with 11 significant bits, rounded at each of at most 30 ops in a row.
const FP16: f64 = 30.0 / 2048.0;

fn floats(view: &safetensors::tensor::TensorView<'_>) -> Vec<f64> {
    let bytes = view.data();
    match view.dtype() {
        safetensors::Dtype::F32 => {
            bytes.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect()
        }
        safetensors::Dtype::I64 => bytes
            .chunks_exact(8)
            .map(|b| i64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]) as f64)
            .collect(),
        other => panic!("{other:?}"),
    }
}

fn constant(dtype: DataType, shape: &[usize], values: &[f64]) -> Constant {
    let bytes: Vec<u8> = match dtype {
        DataType::Fp32 => values.iter().flat_map(|&v| (v as f32).to_le_bytes()).collect(),
        DataType::Fp16 => values.iter().flat_map(|&v| ferrane_host::f16::from_f64(v).to_le_bytes()).collect(),
        _ => values.iter().flat_map(|&v| (v as i32).to_le_bytes()).collect(),
    };
    Constant::raw(dtype, shape, &bytes)
}

fn numbers(constant: &Constant) -> Vec<f64> {
    let Constant::Tensor { ty, payload: ferrane_mil::program::Payload::Bytes(bytes) } = constant else { panic!() };
    match ty.dtype() {
        Some(DataType::Fp32) => {
            bytes.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect()
        }
        Some(DataType::Fp16) => {
            bytes.chunks_exact(2).map(|b| ferrane_host::f16::from_le_bytes([b[0], b[1]]).to_f64()).collect()
        }
        _ => bytes.chunks_exact(4).map(|b| f64::from(i32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect(),
    }
}

/// The options that bind the named extents to those of the recorded inputs.
fn bound(model: &Model, tensors: &SafeTensors<'_>) -> Options {
    let mut options = Options::default();
    for port in model.inputs() {
        let view = tensors.tensor(&format!("in.{}", port.name)).expect("an input");
        for (dimension, &extent) in port.shape.iter().flatten().zip(view.shape()) {
            if let Dimension::Named(name) = dimension {
                options = options.dimension(name, extent);
            }
        }
    }
    options
}

fn largest_error(model: &Model, program: &Program, tensors: &SafeTensors<'_>) -> f64 {
    let main = &program.functions[0];
    let mut inputs = Vec::new();
    let names = port_names(model.inputs().iter().map(|p| p.name.as_str()));
    for ((port, name), &value) in model.inputs().iter().zip(names).zip(&main.inputs) {
        let view = tensors.tensor(&format!("in.{}", port.name)).expect("an input");
        let dtype = main.value(value).ty.dtype().expect("a tensor");
        inputs.push((name, constant(dtype, view.shape(), &floats(&view))));
    }
    let mut options = EmulatorOptions::default();
    options.numerics = Numerics::Exact;
    let found = Emulator::new(options).call(program, "main", &inputs, &mut BTreeMap::new()).expect("runs");
    let mut worst = 0.0f64;
    for ((_, value), port) in found.iter().zip(model.outputs()) {
        let wanted = tensors.tensor(&format!("out.{}", port.name)).expect("an output");
        assert_eq!(value.ty().shape().as_deref(), Some(wanted.shape()), "{}", port.name);
        let (found, wanted) = (numbers(value), floats(&wanted));
        let largest = wanted.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        let error = found.iter().zip(&wanted).fold(0.0f64, |m, (f, w)| m.max((f - w).abs()));
        worst = worst.max(error / largest.max(1e-30));
    }
    worst
}

fn each(work: impl Fn(&str, &Model, &SafeTensors<'_>)) {
    let mut count = 0;
    for entry in std::fs::read_dir(folder()).expect("the folder of the models") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|e| e != "onnx") {
            continue;
        }
        let name = path.file_stem().and_then(|n| n.to_str()).expect("a name").to_string();
        let model = Model::open(&path).unwrap_or_else(|e| panic!("{name}: {e}"));
        let bytes = std::fs::read(Path::new(&path).with_extension("safetensors")).expect("the recorded values");
        work(&name, &model, &SafeTensors::deserialize(&bytes).expect("tensors"));
        count += 1;
    }
    assert!(count >= 9, "{count} models");
}

#[test]
fn models_give_the_values_of_onnx_runtime() {
    each(|name, model, tensors| {
        let program = model.to_mil(&bound(model, tensors)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let error = largest_error(model, &program, tensors);
        assert!(error < FP32, "{name}: {error}");
    });
}

#[test]
fn models_in_fp16_are_close() {
    each(|name, model, tensors| {
        let options = bound(model, tensors).precision(Precision::Fp16);
        let program = model.to_mil(&options).unwrap_or_else(|e| panic!("{name}: {e}"));
        let main = &program.functions[0];
        // Scales of activations, and positions of samples, are fp32 in any case.
        let fp32 = ["quantized", "sampling"].contains(&name);
        assert!(main.values.iter().all(|v| v.ty.dtype() != Some(DataType::Fp32) || fp32), "{name}");
        let error = largest_error(model, &program, tensors);
        assert!(error < FP16, "{name}: {error}");
    });
}

#[test]
fn quantized_weights_stay_compressed() {
    let model = Model::open(folder().join("quantized.onnx")).expect("reads");
    let program = model.to_mil(&Options::default()).expect("lowers");
    let compressed = program.functions[0].ops.iter().filter(|op| op.name == "constexpr_blockwise_shift_scale").count();
    assert_eq!(compressed, 2);
}

#[test]
fn shapes_that_the_model_computes_leave_no_ops() {
    let model = Model::open(folder().join("attention.onnx")).expect("reads");
    let options = Options::default().dimension("batch", 2).dimension("seq", 6);
    let program = model.to_mil(&options).expect("lowers");
    let ops: Vec<&str> = program.functions[0].ops.iter().map(|op| op.name.as_str()).collect();
    for op in ["shape", "fill", "band_part", "sqrt"] {
        assert!(!ops.contains(&op), "{op} in {ops:?}");
    }
}
