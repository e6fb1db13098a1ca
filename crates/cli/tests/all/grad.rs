//! `ferrane grad`.

use crate::place::Place;

/// A weight, a kink-free curve, and an output that does not depend on `k`.
const NET: &str = r#"program(1.3)
{
    func main<ios18>(tensor<fp32, [1, 2]> x, tensor<int32, [1]> k) {
        tensor<fp32, [2, 2]> w = const()[name = string("w"), val = tensor<fp32, [2, 2]>([[0.5, -0.75], [1.25, 0.25]])];
        bool no = const()[name = string("no"), val = bool(false)];
        tensor<fp32, [1, 2]> y = matmul(transpose_x = no, transpose_y = no, x = x, y = w)[name = string("y")];
        tensor<fp32, [1, 2]> t = tanh(x = y)[name = string("t")];
        tensor<fp32, [1, 2]> z = mul(x = t, y = y)[name = string("z")];
        tensor<int32, [1]> n = identity(x = k)[name = string("n")];
    } -> (z, n);
}
"#;

const X: [f64; 2] = [0.5, -0.25];
const W: [f64; 4] = [0.5, -0.75, 1.25, 0.25];

/// Half of the distance of central differences: fp32 rounding gives 1e-7 / 2h = 6e-6, the curve's
/// third derivative h²/6 = 1e-5 times a few.
const H: f64 = 1.0 / 128.0;
const WITHIN: f64 = 2e-4;

fn net() -> Place {
    let place = Place::new();
    place.write("net.mil", NET);
    place
}

/// The elements of an output.
fn output(place: &Place, line: &str, name: &str) -> Vec<f64> {
    let run = place.run(&format!("run {line} --numerics exact --json")).ok().objects();
    let outputs = run[0]["outputs"].as_array().unwrap().clone();
    let found = outputs.iter().find(|o| o["name"] == name).unwrap_or_else(|| panic!("no {name} in {outputs:?}"));
    found["first"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

fn list(values: &[f64]) -> String {
    format!("{values:?}").replace(' ', "")
}

/// Central differences of the sum of `z`, by each of the values that `line` puts into a command.
fn differences(place: &Place, at: &[f64], line: impl Fn(&str) -> String) -> Vec<f64> {
    let sum = |i: usize, by: f64| -> f64 {
        let mut moved = at.to_vec();
        moved[i] += by;
        output(place, &line(&list(&moved)), "z").iter().sum()
    };
    (0..at.len()).map(|i| (sum(i, H) - sum(i, -H)) / (2.0 * H)).collect()
}

#[track_caller]
fn close(found: &[f64], wanted: &[f64]) {
    assert_eq!(found.len(), wanted.len());
    let near = found.iter().zip(wanted).all(|(f, w)| (f - w).abs() <= WITHIN);
    assert!(near, "{found:?}, differences are {wanted:?}");
}

#[test]
fn gradients_are_finite_differences() {
    let place = net();
    // Integers are left out of what is not named.
    let told = place.run("grad net.mil -o back.mil").ok().out;
    assert_eq!(told, "back.mil: backward program of `main`, inputs x, k, d_z, outputs d_x\n");
    place.run("check back.mil").ok();
    let found = output(&place, &format!("back.mil -i x={} -i k=0 -i d_z=ones", list(&X)), "d_x");
    close(&found, &differences(&place, &X, |x| format!("net.mil -i k=0 -i x={x}")));
    // A cotangent scales its output.
    let twice = output(&place, &format!("back.mil -i x={} -i k=0 -i d_z=2", list(&X)), "d_x");
    close(&twice, &found.iter().map(|v| 2.0 * v).collect::<Vec<_>>());
}

#[test]
fn lifted_weights_are_inputs_with_gradients() {
    let place = net();
    let line = "grad net.mil --lift w --output z --keep-outputs --prune-inputs -o step.mlpackage --json";
    let told = place.run(line).ok().objects().remove(0);
    let names = |of: &str| -> Vec<String> {
        told[of].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap().to_string()).collect()
    };
    assert_eq!(names("inputs"), ["x", "w", "d_z"]);
    assert_eq!(names("outputs"), ["z", "d_x", "d_w"]);
    assert_eq!(told["outputs"][2]["type"], "tensor<fp32, [2, 2]>");
    let line = |w: &str| format!("step.mlpackage -i x={} -i d_z=ones -i w={w}", list(&X));
    close(&output(&place, &line(&list(&W)), "d_w"), &differences(&place, &W, line));
    // What stays a constant has the same gradient, and a value that is kept is not computed again.
    let told = place.run("grad net.mil --input w --output z --tap y -o const.mil").ok().out;
    assert!(told.ends_with("inputs x, k, y, d_z, outputs d_w\n"), "{told}");
    // The kept value is believed: with another one the gradient is another.
    let with =
        |y: &[f64]| output(&place, &format!("const.mil -i x={} -i k=0 -i y={} -i d_z=ones", list(&X), list(y)), "d_w");
    let y = [X[0] * W[0] + X[1] * W[2], X[0] * W[1] + X[1] * W[3]];
    close(&with(&y), &differences(&place, &W, line));
    assert_ne!(with(&y), with(&[1.0, 1.0]));
}

#[test]
fn what_has_no_backward_program() {
    let place = net();
    place.run("grad net.mil --output zz -o b.mil").refused(1, &["`zz`", "has none", "did you mean `z`?"]);
    place.run("grad net.mil --input k -o b.mil").refused(1, &["`k`", "fp16 or fp32", "int32"]);
    place.run("grad net.mil --lift y -o b.mil").refused(1, &["`y`", "not a `const`"]);
    place.run("grad net.mil --function mian -o b.mil").refused(1, &["did you mean `main`"]);
    place.run("grad net.mil -o b.onnx").refused(1, &["b.onnx", ".mlpackage"]);
    place.run("grad net.mil -o - --json").refused(1, &["standard output"]);
    place.run("grad net.mil").refused(2, &["--out"]);
    let ints = NET.replace("-> (z, n)", "-> (n)");
    place.write("ints.mil", ints);
    place.run("grad ints.mil -o b.mil").refused(1, &["no output of fp16 or fp32", "--output"]);
    assert!(!place.path("b.mil").exists());
    place.run("grad net.mil -o net.mil").refused(1, &["exists", "--force"]);
    assert!(place.run("grad net.mil -o -").ok().out.starts_with("program("));
    assert!(place.run("grad --help").ok().out.contains("d_y"));
}
