//! The numerics report: what each op loses, and which is to blame.

use std::collections::BTreeMap;

use ferrane_device::ErrorKind;
use ferrane_emulator::Numerics;
use ferrane_emulator::audit::{Audit, AuditOptions, Cause, Note, audit};
use ferrane_machine::{Profile, Unit};
use ferrane_mil::{Constant, DataType, Program};
use proptest::prelude::*;

use crate::harness::{Tensor, half};
use crate::interpret::{call, constant, text};
use crate::random;

fn fp16(shape: &[usize], values: &[f64]) -> Constant {
    constant(&Tensor::new(DataType::Fp16, shape, values.to_vec()))
}

fn inputs(named: &[(&str, Constant)]) -> Vec<(String, Constant)> {
    named.iter().map(|(name, c)| (name.to_string(), c.clone())).collect()
}

fn fast(program: &Program, named: &[(&str, Constant)]) -> Audit {
    audit(program, "main", &inputs(named), &BTreeMap::new(), &under(Numerics::Fast)).unwrap()
}

fn under(numerics: Numerics) -> AuditOptions {
    let mut options = AuditOptions::default();
    options.numerics = vec![numerics];
    options
}

fn hardware(program: &Program, named: &[(&str, Constant)], profile: &str) -> Audit {
    let mut options = under(Numerics::Hardware);
    options.profile = Profile::named(profile).unwrap();
    audit(program, "main", &inputs(named), &BTreeMap::new(), &options).unwrap()
}

/// 300 squared is beyond fp16; the square root of what exact holds is not.
const SQUARE: &str = r#"
    func main<ios18>(tensor<fp16, [4]> x) {
        tensor<fp16, [4]> z = square(x = x)[name = string("z")];
        tensor<fp16, [4]> s = sqrt(x = z)[name = string("s")];
        tensor<fp16, [4]> y = add(x = s, y = x)[name = string("y")];
    } -> (y);"#;

#[test]
fn the_op_that_overflows_is_named_and_its_victims_are_not() {
    let found = fast(&text(SQUARE), &[("x", fp16(&[4], &[300.0, 1.0, -400.0, 2.0]))]);
    let names: Vec<_> = found.rows.iter().map(|r| (r.place, r.op.as_str(), r.value.as_str())).collect();
    assert_eq!(names, [(0, "square", "z"), (1, "sqrt", "s"), (2, "add", "y")]);
    let [z, s, y] = &found.rows[..] else { panic!() };
    assert_eq!((z.readings[0].cause, s.readings[0].cause, y.readings[0].cause), (Some(Cause::Overflow), None, None));
    assert_eq!((z.exact.peak, z.exact.beyond, z.exact.not_finite), (160000.0, 2, 0));
    for row in [z, s] {
        let d = row.readings[0].accumulated.as_ref().unwrap();
        assert_eq!((d.overflow, d.saturated, d.special), (2, if row.value == "z" { 0 } else { 2 }, 0), "{}", row.value);
    }
    let local = s.readings[0].local.as_ref().unwrap();
    // The square root of 65504, at which the overflow is held for the next op, is 255.94: rounded
    // to 256, by less than ½ ulp.
    assert_eq!((local.overflow, local.differ), (0, 2));
    assert!(local.max_ulps <= 0.5 && local.max_ulps > 0.0, "{local:?}");
    assert!(y.is_output && !z.is_output);
    let summary = found.summary();
    let wanted = "fast: square `z` overflows: 2 of 4 elements are beyond 65504, where fp16 ends; exact values reach 160000. \
                  Scale an operand by 1/8 before it, and carry the factor on to where the values are small again. \
                  Output `y`: 2 of 4 elements are infinite or NaN on one side only, relative error of the others 0.";
    assert_eq!(summary, [wanted]);
}

#[test]
fn what_becomes_zero_or_subnormal_is_counted() {
    let program = text(
        r#"
    func main<ios18>(tensor<fp16, [5]> x) {
        tensor<fp16, [5]> z = mul(x = x, y = x)[name = string("z")];
        fp16 large = const()[val = fp16(0x1p+14)];
        tensor<fp16, [5]> y = mul(x = z, y = large)[name = string("y")];
    } -> (y);"#,
    );
    // Squares: 2^-28 vanishes, 2^-24 is the smallest subnormal, 2^-16 is one, 2^-14 is normal, 0 is
    // 0.
    let x = [-14, -12, -8, -7].map(|e| 2f64.powi(e));
    let found = fast(&program, &[("x", fp16(&[5], &[x[0], x[1], x[2], x[3], 0.0]))]);
    let z = &found.rows[0];
    let d = z.readings[0].local.as_ref().unwrap();
    assert_eq!((d.underflow, d.subnormal, d.differ, d.vanished), (1, 2, 1, 2f64.powi(-28)));
    assert_eq!((z.exact.subnormal, z.exact.least), (3, 2f64.powi(-28)));
    // 2^-28 is 2^-4 of the step 2^-24.
    assert_eq!((d.max_ulps, d.peak_ulps), (0.0625, 0.0625));
    assert_eq!((d.histogram[0], d.histogram[1]), (4, 1));
    assert_eq!(z.readings[0].cause, None);
    // The victim has lost 2^-14, all of its ulps, and is not to blame.
    let y = found.rows[1].readings[0].clone();
    assert_eq!((y.accumulated.unwrap().underflow, y.local.unwrap().differ, y.cause), (1, 0, None));
}

#[test]
fn a_tensor_of_small_products_loses_all() {
    let program = text(
        r#"
    func main<ios18>(tensor<fp16, [2, 3]> x) {
        fp16 small = const()[val = fp16(0x1p-14)];
        tensor<fp16, [2, 3]> z = mul(x = x, y = small)[name = string("z")];
    } -> (z);"#,
    );
    let mut options = under(Numerics::Fast);
    options.threshold = 0.01;
    let x = [2f64.powi(-12), 0.0, -(2f64.powi(-13)), 0.0, 0.0, 0.0];
    let found = audit(&program, "main", &inputs(&[("x", fp16(&[2, 3], &x))]), &BTreeMap::new(), &options).unwrap();
    let reading = &found.rows[0].readings[0];
    assert_eq!(reading.cause, Some(Cause::Underflow));
    let d = reading.local.as_ref().unwrap();
    assert_eq!((d.underflow, d.vanished, d.relative), (2, 2f64.powi(-26), 1.0));
    assert_eq!(d.worst.as_ref().unwrap().index, [0, 0]);
    assert!(found.summary()[0].contains("2 of 6 elements become zero"), "{}", found.summary()[0]);
    assert!(found.summary()[0].contains("Scale an operand by 1024"), "{}", found.summary()[0]);
}

const FINE: &str = r#"
    func main<ios18>(tensor<fp16, [1, 4, 8, 8]> x, tensor<fp16, [1, 4, 8, 8]> w) {
        tensor<fp16, [1, 4, 8, 8]> scores = matmul(x = x, y = w)[name = string("scores")];
        tensor<fp16, [1, 4, 8, 8]> p = softmax(x = scores, axis = int32(-1))[name = string("p")];
        tensor<fp16, [1, 4, 8, 8]> s = sigmoid(x = p)[name = string("s")];
        tensor<fp16, [1, 4, 8, 8]> t = add(x = s, y = x)[name = string("t")];
        tensor<fp16, [1, 4, 8, 8]> u = mul(x = t, y = w)[name = string("u")];
        tensor<int32, [1, 4, 8]> best = reduce_argmax(x = u, axis = int32(-1))[name = string("best")];
    } -> (u, best);"#;

#[test]
fn a_program_that_is_fine_parts_nowhere_and_its_values_are_those_of_a_run() {
    let program = text(FINE);
    let (x, w) = (Tensor::random(DataType::Fp16, &[1, 4, 8, 8], 1), Tensor::random(DataType::Fp16, &[1, 4, 8, 8], 2));
    let given = [("x", constant(&x)), ("w", constant(&w))];
    let found = fast(&program, &given);
    assert_eq!(found.first(0), None);
    assert_eq!(found.rows.len(), 6);
    for row in &found.rows {
        let (local, run) = (row.readings[0].local.as_ref().unwrap(), row.readings[0].accumulated.as_ref().unwrap());
        // Rounded once from fp32, whose error is far below an ulp of fp16.
        assert!(local.peak_ulps <= 0.51, "{}: {local:?}", row.value);
        assert_eq!((local.overflow, local.special, run.overflow, run.special), (0, 0, 0, 0));
        assert_eq!(local.histogram.iter().sum::<usize>(), local.elements);
        assert_eq!(run.elements, row.shape.iter().product::<usize>());
        assert_eq!(row.exact.elements, run.elements);
    }
    // Groups of a plan and ops one by one give the same bits: the element that errs most is the
    // run's.
    let outputs = call(Numerics::Fast, &program, &given).unwrap();
    let worst = found.rows[4].readings[0].accumulated.as_ref().unwrap().worst.clone().unwrap();
    let at = worst.index.iter().zip(&[256, 64, 8, 1]).map(|(i, s)| i * s).sum::<usize>();
    assert_eq!(outputs[0].values[at], worst.found);
    assert!(found.summary()[0].starts_with("fast: no op deviates from exact by itself"), "{}", found.summary()[0]);
    // Twice the same, to the bit.
    assert_eq!(fast(&program, &given), found);
    assert_eq!(found.rows[0].unit, Unit::Mac);
}

#[test]
fn the_threshold_decides_which_error_counts() {
    let program = text(FINE);
    let given = ["x", "w"].map(|name| (name, constant(&Tensor::random(DataType::Fp16, &[1, 4, 8, 8], 3))));
    let mut options = under(Numerics::Fast);
    options.threshold = 0.1;
    let found = audit(&program, "main", &inputs(&given), &BTreeMap::new(), &options).unwrap();
    let first = found.first(0).unwrap();
    assert_eq!((first.value.as_str(), first.readings[0].cause), ("scores", Some(Cause::Error)));
    assert!(found.summary()[0].contains("matmul `scores` errs by up to"), "{}", found.summary()[0]);
    let most = found.rows.iter().map(|r| r.readings[0].local.as_ref().unwrap().peak_ulps).fold(0.0, f64::max);
    assert_eq!(found.worst(0).unwrap().readings[0].local.as_ref().unwrap().peak_ulps, most);
}

#[test]
fn errors_that_only_add_up_are_said_to() {
    // Each product is rounded by at most ½ ulp; the difference of two large numbers shows what was
    // lost.
    let program = text(
        r#"
    func main<ios18>(tensor<fp16, [1]> x, tensor<fp16, [1]> w) {
        tensor<fp16, [1]> a = mul(x = x, y = x)[name = string("a")];
        tensor<fp16, [1]> y = sub(x = a, y = w)[name = string("y")];
        tensor<int32, [1]> n = cast(x = y, dtype = string("int32"))[name = string("n")];
    } -> (y, n);"#,
    );
    // 45.03125 squared is 2027.8134765625; fp16 has 2028.
    let found = fast(&program, &[("x", fp16(&[1], &[45.03125])), ("w", fp16(&[1], &[2027.0]))]);
    assert_eq!(found.first(0), None);
    let d = found.rows[1].readings[0].accumulated.as_ref().unwrap();
    assert_eq!(d.max, 2028.0 - 2027.8134765625);
    assert!(found.summary()[0].contains("add up: the first value beyond 16 ulps is sub `y`"), "{}", found.summary()[0]);
    let n = &found.rows[2].readings[0];
    assert_eq!((n.accumulated.as_ref().unwrap().differ, n.local.as_ref().unwrap().differ, n.cause), (1, 0, None));
    assert!(found.summary()[0].contains("Output `n`: 1 of 1 elements differ."), "{}", found.summary()[0]);
}

#[test]
fn blocks_are_one_op_and_lists_and_states_are_followed() {
    let program = text(
        r#"
    func main<ios18>(tensor<fp16, [2]> x, state<tensor<fp16, [2]>> s) {
        fp16 third = const()[val = fp16(0.333)];
        tensor<fp16, [2]> z = mul(x = x, y = third)[name = string("z")];
        int32 zero = const()[val = int32(0)];
        int32 four = const()[val = int32(4)];
        int32 end, tensor<fp16, [2]> w = while_loop(loop_vars = (zero, z))[name = string("loop")]
            (int32 i0, tensor<fp16, [2]> a0) { bool go = less(x = i0, y = four)[name = string("go")]; } -> (go)
            (int32 i1, tensor<fp16, [2]> a1) {
                tensor<fp16, [2]> a2 = mul(x = a1, y = z)[name = string("a2")];
                int32 i2 = add(x = i1, y = int32(1))[name = string("i2")];
            } -> (i2, a2);
        tensor<fp16, [2]> new = coreml_update_state(state = s, value = w)[name = string("new")];
        tensor<fp16, [2]> old = read_state(input = s)[name = string("old")];
        tensor<fp16, [2]> y = add(x = old, y = x)[name = string("y")];
    } -> (y);"#,
    );
    let states = BTreeMap::from([("s".to_string(), fp16(&[2], &[1.0, 2.0]))]);
    let given = inputs(&[("x", fp16(&[2], &[1.5, 2.5]))]);
    let found = audit(&program, "main", &given, &states, &AuditOptions::default()).unwrap();
    let names: Vec<_> = found.rows.iter().map(|r| (r.value.as_str(), r.note.is_some())).collect();
    assert_eq!(names, [("z", false), ("end", true), ("w", true), ("new", false), ("old", false), ("y", false)]);
    let exact = |i: usize| found.rows[i].exact.max;
    let z = 2.5 * half(0.333);
    assert!((exact(2) - z.powi(5)).abs() < 1e-6, "{}", exact(2));
    // A state holds fp16 values under every arithmetic, so that the value read back is no longer
    // the exact one's.
    assert_eq!(exact(4), half(exact(2)));
    assert_eq!(found.rows[4].readings[0].local.as_ref().unwrap().differ, 0);
    assert_eq!(found.first(0), None, "{:?}", found.summary());
}

#[test]
fn unpacked_weights_have_a_row_and_constants_have_none() {
    let program = text(
        r#"
    func main<ios16>(tensor<fp16, [2, 2]> x) {
        tensor<fp16, [2, 2]> w = constexpr_affine_dequantize()[axis = int32(0), name = string("w"),
            quantized_data = tensor<int8, [2, 2]>([[1, 2], [3, 100]]), scale = fp16(0.3), zero_point = int8(0)];
        tensor<fp16, [2, 2]> y = matmul(x = x, y = w)[name = string("y")];
    } -> (y);"#,
    );
    let found = fast(&program, &[("x", fp16(&[2, 2], &[1.0, 0.0, 0.0, 1.0]))]);
    let names: Vec<_> = found.rows.iter().map(|r| (r.value.as_str(), r.unit)).collect();
    assert_eq!(names, [("w", Unit::Folded), ("y", Unit::Mac)]);
    let [w, y] = [0, 1].map(|i| found.rows[i].readings[0].clone());
    // A weight is unpacked to fp16 under every arithmetic: 100 · fp16(0.3) = 30.0048828125 is 30.
    assert_eq!((found.rows[0].exact.max, w.local.unwrap().differ), (30.0, 0));
    assert_eq!(y.local.unwrap().differ, 0);
}

#[test]
fn what_no_later_op_needs_is_not_held() {
    let mut body = String::new();
    for i in 0..60 {
        let from = if i == 0 { "x".into() } else { format!("v{}", i - 1) };
        body += &format!("tensor<fp16, [65536]> v{i} = add(x = {from}, y = x)[name = string(\"v{i}\")];\n");
    }
    let program = text(&format!("func main<ios18>(tensor<fp16, [65536]> x) {{\n{body}\n}} -> (v59);"));
    let x = inputs(&[("x", fp16(&[65536], &vec![0.001; 65536]))]);
    let mut options = AuditOptions::default();
    // A value has 256 KiB; an op needs its operands, its result and what is alive besides, not 60
    // of them.
    options.memory = 2 << 20;
    let found = audit(&program, "main", &x, &BTreeMap::new(), &options).unwrap();
    assert_eq!(found.rows.len(), 60);
    options.memory = 1 << 19;
    let error = audit(&program, "main", &x, &BTreeMap::new(), &options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
}

#[test]
fn it_asks_for_the_ports_that_a_call_asks_for() {
    let program = text(SQUARE);
    let run = |function: &str, given: &[(String, Constant)]| {
        audit(&program, function, given, &BTreeMap::new(), &AuditOptions::default()).map(|_| ()).unwrap_err()
    };
    assert!(run("other", &[]).message().contains("no function `other`"));
    assert_eq!(run("main", &[]).port(), Some("x"));
    let wrong = inputs(&[("x", fp16(&[3], &[0.0; 3]))]);
    assert!(run("main", &wrong).message().contains("the port wants"));
}

#[test]
fn what_is_lost_to_zero_before_a_logarithm_is_told() {
    let program = text(
        r#"
    func main<ios18>(tensor<fp16, [3]> x) {
        tensor<fp16, [3]> p = softmax(x = x, axis = int32(-1))[name = string("p")];
        fp32 none = const()[val = fp32(0)];
        tensor<fp16, [3]> y = log(x = p, epsilon = none)[name = string("y")];
    } -> (y);"#,
    );
    // e^-20 is 2e-9, below half of the smallest fp16 value, and its logarithm is -20.
    let found = fast(&program, &[("x", fp16(&[3], &[0.0, -20.0, 0.5]))]);
    assert_eq!(found.first(0), None);
    let summary = &found.summary()[0];
    for words in ["the first value beyond 16 ulps is log `y`", "before it softmax `p` loses 1 of 3 elements to zero"] {
        assert!(summary.contains(words), "{summary}");
    }
}

/// Attention's scores before they are scaled: what a product sums up is large on the way.
const SCORES: &str = r#"
    func main<ios18>(tensor<fp16, [1, 1, 4, 8]> q, tensor<fp16, [1, 1, 4, 8]> k) {
        bool yes = const()[val = bool(true)];
        bool no = const()[val = bool(false)];
        tensor<fp16, [1, 1, 4, 4]> scores = matmul(x = q, y = k, transpose_x = no, transpose_y = yes)[name = string("scores")];
        fp16 small = const()[val = fp16(0x1p-12)];
        tensor<fp16, [1, 1, 4, 4]> y = mul(x = scores, y = small)[name = string("y")];
    } -> (y);"#;

#[test]
fn a_product_that_passes_two_to_the_fifteenth_is_named_on_hardware_only() {
    let program = text(SCORES);
    // 8 · 64 · 64 is 32768, which fp16 holds; one row is a little smaller, one larger.
    let rows = [64.0, 63.96875, 72.0, 64.0];
    let q: Vec<f64> = rows.iter().flat_map(|&v| [v; 8]).collect();
    let given = [("q", fp16(&[1, 1, 4, 8], &q)), ("k", fp16(&[1, 1, 4, 8], &[64.0; 32]))];
    assert_eq!(fast(&program, &given).first(0), None);
    for profile in ["m1", "m4-macos15-inmem", "m5"] {
        let found = hardware(&program, &given, profile);
        let first = found.first(0).unwrap();
        let reading = &first.readings[0];
        assert_eq!((first.value.as_str(), first.unit, reading.cause), ("scores", Unit::Mac, Some(Cause::Saturation)));
        let d = reading.local.as_ref().unwrap();
        assert_eq!((d.overflow, d.saturated, d.special, d.underflow), (12, 12, 0, 0));
        assert_eq!((first.exact.beyond, first.exact.peak), (0, 36864.0));
        // The product after it is only a victim, and looks well in the exact numbers.
        let y = &found.rows[1];
        assert_eq!((y.readings[0].cause, y.exact.peak), (None, 9.0));
        assert_eq!(y.readings[0].accumulated.as_ref().unwrap().overflow, 12);
        let summary = found.summary();
        let name = &Profile::named(profile).unwrap().subject.name;
        let words = format!(
            "hardware: matmul `scores` overflows: 12 of 16 elements are infinite on {name}, because the multiply-accumulate unit \
             ends at 32768; exact values reach 36864. Scale an operand by 1/4 before it and the result by 4 after it: powers of \
             two are exact."
        );
        assert!(summary[0].starts_with(&words), "{}", summary[0]);
        // And so it is: a quarter of an operand does not overflow.
        let quarter: Vec<f64> = q.iter().map(|v| v / 4.0).collect();
        let scaled = hardware(&program, &[("q", fp16(&[1, 1, 4, 8], &quarter)), given[1].clone()], profile);
        assert_eq!(scaled.first(0), None, "{:?}", scaled.summary());
    }
}

#[test]
fn a_sum_that_is_large_only_on_the_way_is_told_apart() {
    let program = text(SCORES);
    // 16384 + 16384 - 16384 - 16384: nothing, but for what it passes.
    let (mut q, mut k) = ([0.0; 32], [0.0; 32]);
    for (i, sign) in [1.0, 1.0, -1.0, -1.0].into_iter().enumerate() {
        q[i] = 128.0 * sign;
        k[i] = 128.0;
    }
    let found = hardware(&program, &[("q", fp16(&[1, 1, 4, 8], &q)), ("k", fp16(&[1, 1, 4, 8], &k))], "m4");
    let summary = &found.summary()[0];
    assert_eq!(found.first(0).unwrap().readings[0].cause, Some(Cause::Saturation), "{summary}");
    for words in ["1 of 16 elements are infinite", "a sum passes 32768 in the multiply-accumulate unit on the way"] {
        assert!(summary.contains(words), "{summary}");
    }
}

#[test]
fn products_below_the_grid_vanish_on_hardware_only() {
    let program = text(SCORES);
    // 0.002² is 4e-6, a quarter of 2^-16: eight of them are 3.2e-5, and none is left.
    let given = ["q", "k"].map(|name| (name, fp16(&[1, 1, 4, 8], &[0.002; 32])));
    assert_eq!(fast(&program, &given).first(0), None);
    let found = hardware(&program, &given, "m4");
    let first = found.first(0).unwrap();
    let d = first.readings[0].local.as_ref().unwrap();
    assert_eq!((first.value.as_str(), first.readings[0].cause), ("scores", Some(Cause::Underflow)));
    assert_eq!((d.underflow, d.elements, d.relative), (16, 16, 1.0));
    let exact = 8.0 * half(0.002) * half(0.002);
    assert!((d.vanished - exact).abs() < 1e-6 * exact, "{d:?}");
    let summary = &found.summary()[0];
    assert!(summary.contains("matmul `scores` loses small numbers: 16 of 16 elements become zero"), "{summary}");
    assert!(summary.contains("Scale an operand by 1024 before it"), "{summary}");
    // With that factor the products are 2 units of the grid and more, and the tables of sigmoid and
    // softmax are no cause.
    let scaled = [("q", fp16(&[1, 1, 4, 8], &[0.002 * 1024.0; 32])), given[1].clone()];
    assert_eq!(hardware(&program, &scaled, "m4").first(0), None);
}

#[test]
fn a_program_that_is_fine_is_fine_on_hardware() {
    let program = text(FINE);
    let given = ["x", "w"].map(|name| (name, constant(&Tensor::random(DataType::Fp16, &[1, 4, 8, 8], 4))));
    for profile in ["m1", "m4", "m5"] {
        let found = hardware(&program, &given, profile);
        assert_eq!(found.first(0), None, "{:?}", found.summary());
        assert_eq!(hardware(&program, &given, profile), found);
    }
}

#[test]
fn what_stands_beside_int8_weights_ends_at_4094_on_hardware() {
    // int8 §3: the activations go through the crop's encoding. The product by itself is small.
    for product in ["matmul(x = x, y = w, transpose_x = no, transpose_y = yes)", "linear(x = x, weight = w)"] {
        let program = text(&format!(
            r#"
    func main<ios16>(tensor<fp16, [1, 2]> x) {{
        tensor<fp16, [2, 2]> w = constexpr_affine_dequantize()[axis = int32(0), name = string("w"),
            quantized_data = tensor<int8, [2, 2]>([[1, 2], [3, 4]]), scale = fp16(0x1p-7), zero_point = int8(0)];
        bool no = const()[val = bool(false)];
        bool yes = const()[val = bool(true)];
        tensor<fp16, [1, 2]> y = {product}[name = string("y")];
    }} -> (y);"#
        ));
        let found = hardware(&program, &[("x", fp16(&[1, 2], &[5000.0, 1.0]))], "m4");
        let [w, y] = &found.rows[..] else { panic!() };
        assert_eq!((w.note, y.note), (None, Some(Note::Int8Crop)));
        assert_eq!((w.readings[0].cause, y.readings[0].cause), (None, Some(Cause::Saturation)), "{product}");
        let summary = &found.summary()[0];
        assert!(summary.contains("next to int8 weights, operands beyond 4094 are infinite"), "{summary}");
        // One by one and in a run alike.
        assert_eq!(found.joined, [""; 0]);
        assert_eq!(hardware(&program, &[("x", fp16(&[1, 2], &[4000.0, 1.0]))], "m4").first(0), None);
    }
}

#[test]
fn what_a_machine_does_to_ops_together_is_told() {
    // int8 §2: a product of two dequantized factors takes the first one's scale for the second's.
    let program = text(
        r#"
    func main<ios18>(tensor<fp16, [2]> x, tensor<fp16, [2]> w) {
        tensor<int8, [2]> a = quantize(input = x, scale = fp16(1), output_dtype = string("int8"))[name = string("a")];
        tensor<fp16, [2]> b = dequantize(input = a, scale = fp16(1))[name = string("b")];
        tensor<int8, [2]> c = quantize(input = w, scale = fp16(0.0625), output_dtype = string("int8"))[name = string("c")];
        tensor<fp16, [2]> d = dequantize(input = c, scale = fp16(0.0625))[name = string("d")];
        tensor<fp16, [2]> y = mul(x = b, y = d)[name = string("y")];
    } -> (y);"#,
    );
    let given = [("x", fp16(&[2], &[3.0, 4.0])), ("w", fp16(&[2], &[1.0, 2.0]))];
    let coreml = hardware(&program, &given, "m5-macos26-coreml");
    assert_eq!((coreml.first(0), coreml.joined.as_slice()), (None, &["y".to_string()][..]));
    assert!(coreml.summary()[0].contains("joins ops here: a run gives `y` otherwise"), "{:?}", coreml.summary());
    assert_eq!(hardware(&program, &given, "m5-macos26-inmem").joined, [""; 0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Plans with their groups and homes against ops one by one: what the report says of an output
    /// is true of a run.
    #[test]
    fn what_is_said_of_an_output_is_true_of_a_run(
        steps in prop::collection::vec(random::step(), 1..12),
        half in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let dtype = if half { DataType::Fp16 } else { DataType::Fp32 };
        let program = random::build(dtype, &steps, false);
        let x = [("x", constant(&Tensor::random(dtype, &[2, 3, 4], seed)))];
        let options = AuditOptions::default();
        let found = audit(&program, "main", &inputs(&x), &BTreeMap::new(), &options).unwrap();
        prop_assert_eq!(&audit(&program, "main", &inputs(&x), &BTreeMap::new(), &options).unwrap(), &found);
        let exact = call(Numerics::Exact, &program, &x).unwrap();
        for (i, &numerics) in found.numerics.iter().enumerate() {
            let run = call(numerics, &program, &x).unwrap();
            for row in found.rows.iter().filter(|row| row.is_output) {
                let place = program.functions[0].body().outputs.iter().position(|v| {
                    program.functions[0].value(*v).name == row.value
                });
                let (exact, run) = (&exact[place.unwrap()], &run[place.unwrap()]);
                let d = row.readings[i].accumulated.as_ref().unwrap();
                prop_assert_eq!((&row.shape, d.elements), (&run.shape, run.values.len()));
                prop_assert_eq!(d.histogram.iter().sum::<usize>(), d.elements);
                if let Some(worst) = &d.worst {
                    let at = worst.index.iter().zip(&row.shape).fold(0, |at, (i, n)| at * n + i);
                    // NaN leaves a machine as infinity.
                    let (there, told) = (run.values[at], worst.found);
                    prop_assert!(there == told || (told.is_nan() && !there.is_finite()), "{} {} {}", row.value, there, told);
                }
                if dtype == DataType::Fp32 {
                    // Ports do not round these, so that all can be counted again.
                    let same = |(a, b): &(&f64, &f64)| a == b || (a.is_nan() && b.is_nan());
                    let differ = exact.values.iter().zip(&run.values).filter(|pair| !same(pair)).count();
                    prop_assert_eq!(d.differ, differ);
                }
            }
        }
    }
}
