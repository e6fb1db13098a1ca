//! Functions that no plan can express: unknown extents, computed shapes, tensors without elements.

use std::collections::BTreeMap;

use ferrane_device::{Device, ErrorKind};
use ferrane_emulator::{Emulator, EmulatorOptions, Numerics};
use ferrane_mil::{Constant, DataType, Evaluate, Opset, Program, Weights, parse};

use crate::harness::{BOTH, Tensor};

pub fn text(body: &str) -> Program {
    let text = format!("program(1.3)\n{{\n{body}\n}}\n");
    parse(text.as_bytes(), &Weights::new()).unwrap_or_else(|e| panic!("{e:?}\n{text}"))
}

fn emulator(numerics: Numerics) -> Emulator {
    let mut options = EmulatorOptions::default();
    options.numerics = numerics;
    Emulator::new(options)
}

pub fn constant(tensor: &Tensor) -> Constant {
    Constant::raw(tensor.dtype, &tensor.shape, &tensor.to_bytes())
}

pub fn call(numerics: Numerics, program: &Program, inputs: &[(&str, Constant)]) -> ferrane_device::Result<Vec<Tensor>> {
    let inputs: Vec<_> = inputs.iter().map(|(n, c)| (n.to_string(), c.clone())).collect();
    let outputs = emulator(numerics).call(program, "main", &inputs, &mut BTreeMap::new())?;
    let tensor = |(_, c): &(String, Constant)| {
        let (ty, weights) = (c.ty(), Weights::new());
        Tensor::from_bytes(ty.dtype().unwrap(), &ty.shape().unwrap(), c.bytes(&weights).unwrap())
    };
    Ok(outputs.iter().map(tensor).collect())
}

fn floats(shape: &[usize], values: &[f64]) -> Constant {
    constant(&Tensor::new(DataType::Fp32, shape, values.to_vec()))
}

const ROWS: &str = r#"
    func main<ios18>(tensor<fp32, [?, 3]> x) {
        fp32 two = const()[val = fp32(2)];
        tensor<fp32, [?, 3]> d = mul(x = x, y = two)[name = string("d")];
        tensor<int32, [1]> axes = const()[val = tensor<int32, [1]>([0])];
        bool keep = const()[val = bool(false)];
        tensor<fp32, [3]> s = reduce_sum(x = d, axes = axes, keep_dims = keep)[name = string("s")];
    } -> (d, s);"#;

#[test]
fn extents_may_be_known_at_run_time_only() {
    let program = text(ROWS);
    for numerics in BOTH {
        let x = floats(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let found = call(numerics, &program, &[("x", x)]).unwrap();
        assert_eq!((found[0].shape.as_slice(), found[0].values[5]), (&[2, 3][..], 12.0));
        assert_eq!(found[1].values, [10.0, 14.0, 18.0]);
        // Nothing at all: sums of nothing are 0.
        let found = call(numerics, &program, &[("x", floats(&[0, 3], &[]))]).unwrap();
        assert_eq!((found[0].shape.as_slice(), found[0].values.len()), (&[0, 3][..], 0));
        assert_eq!(found[1].values, [0.0; 3]);
    }
}

#[test]
fn the_seam_wants_known_extents_and_says_what_to_do() {
    let device = Device::new(emulator(Numerics::Fast));
    let error = device.load(&text(ROWS), "rows").map(|_| ()).unwrap_err();
    assert_eq!((error.kind(), error.port()), (ErrorKind::Unsupported, Some("x")));
    assert!(error.message().contains("Emulator::call"), "{}", error.message());
}

#[test]
fn wrong_inputs_are_named() {
    let program = text(ROWS);
    let kind = |inputs: &[(&str, Constant)]| {
        let error = call(Numerics::Fast, &program, inputs).unwrap_err();
        (error.kind(), error.port().map(str::to_string))
    };
    let x = floats(&[1, 3], &[0.0; 3]);
    assert_eq!(kind(&[]), (ErrorKind::Binding, Some("x".into())));
    assert_eq!(kind(&[("x", floats(&[1, 4], &[0.0; 4]))]), (ErrorKind::Binding, Some("x".into())));
    assert_eq!(kind(&[("x", x.clone()), ("z", x)]), (ErrorKind::Binding, Some("z".into())));
}

#[test]
fn a_slice_may_begin_anywhere() {
    let program = text(
        r#"
    func main<ios18>(tensor<fp16, [6]> x, tensor<int32, [1]> begin, tensor<int32, [1]> reps) {
        tensor<int32, [1]> size = const()[val = tensor<int32, [1]>([2])];
        tensor<fp16, [2]> part = slice_by_size(x = x, begin = begin, size = size)[name = string("part")];
        tensor<fp16, [?]> y = tile(x = part, reps = reps)[name = string("y")];
    } -> (y);"#,
    );
    let x = constant(&Tensor::new(DataType::Fp16, &[6], (0..6).map(f64::from).collect()));
    for (begin, reps, wanted) in [(1, 2, vec![1.0, 2.0, 1.0, 2.0]), (4, 1, vec![4.0, 5.0])] {
        let inputs = [("x", x.clone()), ("begin", Constant::int32s(&[begin])), ("reps", Constant::int32s(&[reps]))];
        assert_eq!(call(Numerics::Fast, &program, &inputs).unwrap()[0].values, wanted);
    }
    // A slice beyond the end, and a result far larger than an evaluation may hold.
    let kind = |begin, reps| {
        let inputs = [("x", x.clone()), ("begin", Constant::int32s(&[begin])), ("reps", Constant::int32s(&[reps]))];
        call(Numerics::Fast, &program, &inputs).unwrap_err().kind()
    };
    assert_eq!(kind(5, 1), ErrorKind::Evaluate);
    assert_eq!(kind(0, i32::MAX), ErrorKind::OutOfMemory);
}

#[test]
fn one_op_is_evaluated_on_constants() {
    let program = text(
        r#"
    func main<ios18>(tensor<fp16, [2]> unknown) {
        tensor<fp16, [2]> a = const()[val = tensor<fp16, [2]>([1, 2])];
        tensor<fp16, [2]> b = add(x = a, y = a)[name = string("b")];
        tensor<fp16, [2]> c = add(x = a, y = unknown)[name = string("c")];
    } -> (b, c);"#,
    );
    let function = &program.functions[0];
    let evaluate = |name: &str| {
        let at = function.ops.iter().find(|op| op.name == "add" && function.value(op.outputs[0]).name == name).unwrap();
        emulator(Numerics::Fast).evaluate(function, at, Opset::IOS18, &program.weights)
    };
    let two_four: Vec<u8> = [2.0f32, 4.0].iter().flat_map(|&v| ferrane_host::f16::from_f32(v).to_le_bytes()).collect();
    assert_eq!(evaluate("b").unwrap(), [Constant::raw(DataType::Fp16, &[2], &two_four)]);
    assert!(evaluate("c").unwrap_err().contains("`unknown` is not known"));
}
