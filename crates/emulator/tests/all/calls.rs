//! Calls with tensors through the front of a device.

use ferrane_device::{Call, Device, ErrorKind, Tensor};
use ferrane_emulator::{Emulator, EmulatorOptions, Limits};
use ferrane_machine::Profile;
use ferrane_mil::{DataType, Program, Weights, parse};

fn program(body: &str) -> Program {
    let head = "program(1.3)\n[buildInfo = dict<string, string>({{\"coremlc-version\", \"3505.4.1\"}})]\n";
    parse(format!("{head}{{\n{body}\n}}\n"), &Weights::new()).unwrap_or_else(|e| panic!("{e}"))
}

fn device() -> Device {
    Device::new(Emulator::new(EmulatorOptions::default()))
}

/// `y = a + b` over the last axis, where `b` broadcasts.
fn sum() -> Program {
    program(
        "func main<ios18>(tensor<fp16, [1, 2, 1, 3]> a, tensor<fp16, [1, 1, 1, 3]> b) {
            tensor<fp16, [1, 2, 1, 3]> y = add(x = a, y = b)[name = string(\"y\")];
        } -> (y);",
    )
}

#[test]
fn a_machine_that_wants_inputs_of_one_size_gets_them() {
    let mut options = EmulatorOptions::default();
    let text = "[[overlay]]\n[overlay.set]\nuniform_inputs = { value = true }\n";
    options.profile = Profile::measured("m4", text).unwrap();
    options.limits = Limits::Enforce;
    let device = Device::new(Emulator::new(options));
    let a = Tensor::fp16(&[1, 2, 1, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let b = Tensor::fp16(&[1, 1, 1, 3], &[10.0, 20.0, 30.0]).unwrap();
    let returned = device.load(&sum(), "sum").unwrap().call([("a", a), ("b", b)]).unwrap();
    assert_eq!(returned.get("y").unwrap().to_f32(), [11.0, 22.0, 33.0, 14.0, 25.0, 36.0]);
}

#[test]
fn wrong_arguments_name_the_port() {
    let executable = device().load(&sum(), "sum").unwrap();
    let a = Tensor::fp16(&[1, 2, 1, 3], &[0.0; 6]).unwrap();
    let b = Tensor::fp32(&[1, 1, 1, 3], &[0.0; 3]).unwrap();
    let short = Tensor::fp16(&[2], &[0.0; 2]).unwrap();
    let failed = |call: Call| {
        let error = executable.call(call).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Binding, "{error}");
        (error.port().unwrap_or_default().to_string(), error.message().to_string())
    };
    assert_eq!(failed([("a", a.clone())].into()).0, "b");
    let (port, message) = failed([("a", a.clone()), ("b", b)].into());
    assert!(port == "b" && message.contains("fp32") && message.contains("fp16"), "{message}");
    assert_eq!(failed([("a", a.clone()), ("b", short)].into()).0, "b");
    let (port, message) = failed([("a", a.clone()), ("c", a.clone())].into());
    assert!(port == "c" && message.contains("a, b"), "{message}");
    assert!(failed(Call::new().function("train")).1.contains("main"));
    assert_eq!(failed(Call::from([("a", a.clone()), ("b", a.clone())]).state("s", a)).0, "b");
}

#[test]
fn states_begin_as_given_or_as_zeros_and_are_returned() {
    let program = program(
        "func main<ios18>(tensor<fp16, [2]> x, state<tensor<fp16, [2]>> s) {
            tensor<fp16, [2]> old = read_state(input = s)[name = string(\"old\")];
            tensor<fp16, [2]> sum = add(x = old, y = x)[name = string(\"sum\")];
            tensor<fp16, [2]> y = coreml_update_state(state = s, value = sum)[name = string(\"y\")];
        } -> (y);",
    );
    let x = Tensor::fp16(&[2], &[1.0, 2.0]).unwrap();
    let executable = device().load(&program, "counter").unwrap();
    let first = executable.call(Call::new().input("x", x.clone())).unwrap();
    assert_eq!(first.get("y").unwrap().to_f32(), [1.0, 2.0]);
    let state = first.states.get("s").unwrap().clone();
    assert_eq!(state.to_f32(), [1.0, 2.0]);
    let bound = executable.bind(None).unwrap();
    let second = bound.call(&[("x", x)].into(), &[("s", state)].into()).unwrap();
    assert_eq!(second.get("s").unwrap().to_f32(), [2.0, 4.0]);
    // Without a write the state is what the last run left.
    bound.evaluate().unwrap();
    assert_eq!(bound.outputs().unwrap().get("y").unwrap().to_f32(), [3.0, 6.0]);
}

#[test]
fn a_function_of_open_shape_runs_without_surfaces() {
    let program = program(
        "func main<ios18>(tensor<fp32, [?, 2]> x) {
            tensor<fp32, [?, 2]> y = add(x = x, y = x)[name = string(\"y\")];
        } -> (y);",
    );
    let x = Tensor::fp32(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let returned = device().call(&program, [("x", x)]).unwrap();
    let y = returned.get("y").unwrap();
    assert_eq!((y.shape(), y.dtype()), (&[3, 2][..], DataType::Fp32));
    assert_eq!(y.to_f32(), [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
    assert!(!returned.stats.wall.is_zero());
    let x = Tensor::fp32(&[3], &[1.0; 3]).unwrap();
    assert_eq!(device().call(&program, [("x", x)]).unwrap_err().kind(), ErrorKind::Binding);
}
