//! Control flow, lists and states.

use std::collections::BTreeMap;

use ferrane_device::{Bindings, Device, ErrorKind};
use ferrane_emulator::{Emulator, EmulatorOptions, Numerics, Support, support};
use ferrane_mil::{Constant, DataType, Opset, Program, Weights};

use crate::harness::{BOTH, Tensor, emulator};
use crate::interpret::{call, constant, text};

fn fp32(values: &[f64]) -> Constant {
    constant(&Tensor::new(DataType::Fp32, &[values.len()], values.to_vec()))
}

const CHOICE: &str = r#"
    func main<ios18>(tensor<fp32, [2]> x, bool p) {
        fp32 two = const()[val = fp32(2)];
        tensor<fp32, [2]> y = cond(pred = p)[name = string("y")]
            () { tensor<fp32, [2]> a = mul(x = x, y = two)[name = string("a")]; } -> (a)
            () { tensor<fp32, [2]> b = sub(x = x, y = two)[name = string("b")]; } -> (b);
    } -> (y);"#;

#[test]
fn cond_runs_the_block_that_is_chosen() {
    let program = text(CHOICE);
    for numerics in BOTH {
        for (p, wanted) in [(true, [2.0, 6.0]), (false, [-1.0, 1.0])] {
            let inputs = [("x", fp32(&[1.0, 3.0])), ("p", Constant::bool(p))];
            assert_eq!(call(numerics, &program, &inputs).unwrap()[0].values, wanted);
        }
    }
}

#[test]
fn an_interpreted_function_of_known_ports_runs_through_the_seam() {
    let device = emulator(Numerics::Fast);
    let executable = device.load(&text(CHOICE), "choice").unwrap();
    let surface = |name: &str| device.surface(&executable.port(name).unwrap().layout).unwrap();
    let (x, p, y) = (surface("x"), surface("p"), surface("y"));
    x.write().unwrap().bytes_mut().copy_from_slice(bytemuck_f32(&[1.0, 3.0]).as_slice());
    let request = executable.prepare(Bindings::new().bind("x", &x).bind("p", &p).bind("y", &y)).unwrap();
    for (chosen, wanted) in [(1, [2.0f32, 6.0]), (0, [-1.0, 1.0])] {
        p.write().unwrap().bytes_mut()[0] = chosen;
        request.evaluate().unwrap();
        assert_eq!(y.read().unwrap().bytes(), bytemuck_f32(&wanted));
    }
}

fn bytemuck_f32(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// Σ_{i<n} Σ_{j<i} x, by two loops; the inner one captures `x` and `i`.
const NESTED: &str = r#"
    func main<ios18>(fp32 x, int32 n) {
        int32 zero = const()[val = int32(0)];
        int32 one = const()[val = int32(1)];
        fp32 none = const()[val = fp32(0)];
        int32 i_end, fp32 sum = while_loop(loop_vars = (zero, none))[name = string("outer")]
            (int32 i0, fp32 s0) { bool go = less(x = i0, y = n)[name = string("go")]; } -> (go)
            (int32 i1, fp32 s1) {
                int32 j_end, fp32 inner = while_loop(loop_vars = (zero, s1))[name = string("inner_loop")]
                    (int32 j0, fp32 t0) { bool on = less(x = j0, y = i1)[name = string("on")]; } -> (on)
                    (int32 j1, fp32 t1) {
                        fp32 t2 = add(x = t1, y = x)[name = string("t2")];
                        int32 j2 = add(x = j1, y = one)[name = string("j2")];
                    } -> (j2, t2);
                int32 i2 = add(x = i1, y = one)[name = string("i2")];
            } -> (i2, inner);
    } -> (sum, i_end);"#;

#[test]
fn loops_nest_and_capture() {
    let program = text(NESTED);
    for numerics in BOTH {
        for n in [0, 1, 5] {
            let found = call(numerics, &program, &[("x", Constant::fp32(0.5)), ("n", Constant::int32(n))]).unwrap();
            assert_eq!(found[0].values, [0.5 * f64::from(n * (n - 1) / 2)]);
            assert_eq!(found[1].values, [f64::from(n)]);
        }
    }
}

#[test]
fn a_loop_that_does_not_end_is_an_error() {
    let program = text(
        r#"
    func main<ios18>(int32 n) {
        bool yes = const()[val = bool(true)];
        int32 end = while_loop(loop_vars = (n))[name = string("end")]
            (int32 a) { bool go = logical_or(x = yes, y = yes)[name = string("go")]; } -> (go)
            (int32 b) { int32 c = add(x = b, y = b)[name = string("c")]; } -> (c);
    } -> (end);"#,
    );
    let mut options = EmulatorOptions::default();
    options.iterations = 1000;
    let inputs = [("n".to_string(), Constant::int32(1))];
    let error = Emulator::new(options).call(&program, "main", &inputs, &mut BTreeMap::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Evaluate);
    assert!(error.message().contains("1000 iterations"), "{error}");
}

#[test]
fn a_loop_that_grows_without_end_is_out_of_memory() {
    let program = text(
        r#"
    func main<ios18>(tensor<fp32, [?]> x) {
        bool yes = const()[val = bool(true)];
        int32 axis = const()[val = int32(0)];
        bool no = const()[val = bool(false)];
        tensor<fp32, [?]> end = while_loop(loop_vars = (x))[name = string("end")]
            (tensor<fp32, [?]> a) { bool go = logical_or(x = yes, y = yes)[name = string("go")]; } -> (go)
            (tensor<fp32, [?]> b) {
                tensor<fp32, [?]> c = concat(values = (b, b), axis = axis, interleave = no)[name = string("c")];
            } -> (c);
    } -> (end);"#,
    );
    let mut options = EmulatorOptions::default();
    options.memory = 1 << 20;
    let inputs = [("x".to_string(), fp32(&[1.0]))];
    let error = Emulator::new(options).call(&program, "main", &inputs, &mut BTreeMap::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.message().contains("concat"), "{error}");
}

#[test]
fn lists_are_values() {
    let program = text(
        r#"
    func main<ios18>(tensor<fp32, [2]> x, int32 at) {
        int32 one = const()[val = int32(1)];
        int32 three = const()[val = int32(3)];
        int32 two = const()[val = int32(2)];
        bool grows = const()[val = bool(true)];
        string dtype = const()[val = string("fp32")];
        tensor<int32, [2]> both = const()[val = tensor<int32, [2]>([3, 0])];
        list<tensor<fp32, [2]>, ?> a = make_list(init_length = one, dynamic_length = grows, elem_shape = (two), dtype = dtype)[name = string("a")];
        list<tensor<fp32, [2]>, ?> b = list_write(ls = a, index = three, value = x)[name = string("b")];
        tensor<fp32, [2, 2]> g = list_gather(ls = b, indices = both)[name = string("g")];
        list<tensor<fp32, [2]>, ?> c = list_scatter(ls = b, indices = both, value = g)[name = string("c")];
        tensor<fp32, [2]> r = list_read(ls = c, index = at)[name = string("r")];
        int32 before = list_length(ls = a)[name = string("before")];
        int32 after = list_length(ls = b)[name = string("after")];
    } -> (g, r, before, after);"#,
    );
    let run = |at| call(Numerics::Fast, &program, &[("x", fp32(&[5.0, 7.0])), ("at", Constant::int32(at))]);
    let found = run(3).unwrap();
    // An element that was not written is zero; a write makes a new list.
    assert_eq!(found[0].values, [5.0, 7.0, 0.0, 0.0]);
    assert_eq!((&found[1].values[..], found[2].values[0], found[3].values[0]), (&[5.0, 7.0][..], 1.0, 4.0));
    for wrong in [4, -1] {
        let error = run(wrong).unwrap_err();
        assert!(error.kind() == ErrorKind::Evaluate && error.message().contains("list_read"), "{error}");
    }
}

/// The old sum is read, the new one is written, and both are used after.
const SUM: &str = r#"
    func main<ios18>(tensor<fp16, [2]> x, state<tensor<fp16, [2]>> total) {
        tensor<fp16, [2]> old = read_state(input = total)[name = string("old")];
        tensor<fp16, [2]> sum = add(x = old, y = x)[name = string("sum")];
        tensor<fp16, [2]> new = coreml_update_state(state = total, value = sum)[name = string("new")];
        tensor<fp16, [2]> step = sub(x = new, y = old)[name = string("step")];
        tensor<fp16, [2]> twice = add(x = new, y = new)[name = string("twice")];
    EXTRA
    } -> (twice, step);"#;

/// The same, planned and (for the sake of a choice that changes nothing) interpreted.
fn sums() -> [Program; 2] {
    let choice = r#"
        bool yes = const()[val = bool(true)];
        tensor<fp16, [2]> same = cond(pred = yes)[name = string("same")] () {} -> (twice) () {} -> (step);"#;
    let interpreted = SUM.replace("EXTRA", choice).replace("-> (twice, step);", "-> (same, step);");
    [text(&SUM.replace("EXTRA", "")), text(&interpreted)]
}

#[test]
fn states_outlive_an_evaluation() {
    for (program, numerics) in sums().iter().flat_map(|p| BOTH.map(|n| (p, n))) {
        let device: Device = emulator(numerics);
        let executable = device.load(program, "sum").unwrap();
        let procedure = &executable.procedures()[0];
        assert_eq!((procedure.inputs.len(), procedure.states.len()), (1, 1));
        let mut bindings = Bindings::new();
        let mut surfaces = Vec::new();
        for port in procedure.ports() {
            let surface = device.surface(&port.layout).unwrap();
            bindings = bindings.bind(&port.name, &surface);
            surfaces.push(surface);
        }
        let request = executable.prepare(bindings).unwrap();
        surfaces[0].write_f32(&[1.0, 0.25]).unwrap();
        for n in 1..4 {
            request.evaluate().unwrap();
            let n = n as f32;
            assert_eq!(surfaces[1].read_f32().unwrap(), [2.0 * n, 0.5 * n]);
            assert_eq!(surfaces[2].read_f32().unwrap(), [1.0, 0.25], "what was read before the update stays");
            assert_eq!(surfaces[3].read_f32().unwrap(), [n, 0.25 * n]);
        }
    }
}

#[test]
fn a_call_begins_states_with_zeros_and_hands_them_on() {
    for program in &sums() {
        let emulator = Emulator::new(EmulatorOptions::default());
        let x = constant(&Tensor::new(DataType::Fp16, &[2], vec![1.0, 0.25]));
        let inputs = [("x".to_string(), x)];
        let mut states = BTreeMap::new();
        for n in 1..4 {
            emulator.call(program, "main", &inputs, &mut states).unwrap();
            let bytes = states["total"].bytes(&Weights::new()).unwrap().to_vec();
            let total = Tensor::from_bytes(DataType::Fp16, &[2], &bytes);
            assert_eq!(total.values, [f64::from(n), 0.25 * f64::from(n)]);
        }
    }
}

#[test]
fn a_failed_evaluation_of_an_interpreted_function_leaves_its_states() {
    let program = text(
        r#"
    func main<ios18>(tensor<fp16, [2]> x, int32 at, state<tensor<fp16, [2]>> s) {
        int32 one = const()[val = int32(1)];
        bool fixed = const()[val = bool(false)];
        int32 two = const()[val = int32(2)];
        string dtype = const()[val = string("fp16")];
        tensor<fp16, [2]> new = coreml_update_state(state = s, value = x)[name = string("new")];
        list<tensor<fp16, [2]>, 1> l = make_list(init_length = one, dynamic_length = fixed, elem_shape = (two), dtype = dtype)[name = string("l")];
        tensor<fp16, [2]> y = list_read(ls = l, index = at)[name = string("y")];
    } -> (y);"#,
    );
    let emulator = Emulator::new(EmulatorOptions::default());
    let x = constant(&Tensor::new(DataType::Fp16, &[2], vec![1.0, 2.0]));
    let mut states = BTreeMap::from([("s".to_string(), x.clone())]);
    let zero = constant(&Tensor::new(DataType::Fp16, &[2], vec![0.0, 0.0]));
    let inputs = |at| [("x".to_string(), zero.clone()), ("at".to_string(), Constant::int32(at))];
    emulator.call(&program, "main", &inputs(1), &mut states).unwrap_err();
    assert_eq!(states["s"], x);
    emulator.call(&program, "main", &inputs(0), &mut states).unwrap();
    assert_eq!(states["s"], zero);
}

#[test]
fn support_says_what_compiling_does() {
    assert_eq!(support("add", Opset::IOS15), Support::Plan);
    assert_eq!(support("while_loop", Opset::IOS15), Support::Interpreter);
    assert_eq!(support("read_state", Opset::IOS18), Support::Plan);
    assert!(matches!(support("read_state", Opset::IOS16), Support::Refused(_)));
    assert!(matches!(support("classify", Opset::IOS15), Support::Refused(_)));
}

#[test]
fn every_op_is_executed_or_refused_for_a_reason() {
    for def in ferrane_mil::ops::all() {
        if let Support::Refused(reason) = support(def.name, Opset::IOS18) {
            assert!(!reason.contains("neither steps"), "{}: {reason}", def.name);
        }
    }
}
