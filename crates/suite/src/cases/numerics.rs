//! Cases of numerics: values are within the tolerance of the device's rounding of an f64 result.

use ferrane_device::{Device, Error, Tensor, Tensors};

use super::{Case, Outcome, Promise, Rounding, function, load, program, words};

pub(super) fn cases() -> Vec<Case> {
    let case = |name, run| Case { name, promise: Promise::Numerics, run };
    vec![
        case("sums and products of elements", elements),
        case("a sigmoid", sigmoid),
        case("a softmax over rows", softmax),
        case("a product of matrices", product),
    ]
}

/// Half a unit in the last place of fp16, relative to the value.
const HALF_ULP: f64 = 1.0 / 2048.0;

/// Values from -2 to 2 of mixed sign and size that fp16 represents exactly.
fn values(n: usize, seed: u32) -> Vec<f32> {
    let value = |i: u32| ((i.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 20) as f32 - 2048.0) / 1024.0;
    (0..n as u32).map(value).collect()
}

/// Runs a program of fp16 ports on named inputs and returns its output `y`.
fn evaluate(device: &Device, text: &str, inputs: &[(&str, &[f32])]) -> Result<Vec<f32>, String> {
    let executable = load(device, text).map_err(words)?;
    let port = |name: &str| executable.port(name).map(|p| p.layout.shape.clone());
    let tensor = |(name, values): &(&str, &[f32])| Ok((name.to_string(), Tensor::fp16(&port(name)?, values)?));
    let inputs = inputs.iter().map(tensor).collect::<Result<Tensors, Error>>().map_err(words)?;
    let returned = executable.call(inputs).map_err(words)?;
    returned.get("y").map(Tensor::to_f32).map_err(words)
}

/// Checks that every value is within `steps` roundings of an intermediate of magnitude `scale`,
/// plus the rounding at the port.
fn close(found: &[f32], expected: &[f64], scale: f64, steps: f64, rounding: Rounding) -> Outcome {
    for (i, (f, e)) in found.iter().zip(expected).enumerate() {
        // Half of fp16's smallest subnormal is the absolute floor.
        let port = e.abs() * HALF_ULP + f64::from(2f32.powi(-24));
        let tolerance = match rounding {
            Rounding::Half => port + steps * scale * HALF_ULP,
            // fp32 is 2^13 times finer than fp16; the factor leaves room for the order of sums.
            Rounding::Single => port * 1.0625,
        };
        if (f64::from(*f) - e).abs() > tolerance {
            return Err(format!("element {i}: found {f}, expected {e} ± {tolerance}"));
        }
    }
    if found.len() == expected.len() {
        Ok(())
    } else {
        Err(format!("{} values, expected {}", found.len(), expected.len()))
    }
}

fn elements(device: &Device, rounding: Rounding) -> Outcome {
    const X: &str = "tensor<fp16, [1, 4, 1, 64]>";
    let statements = format!(
        "        {X} s = add(x = a, y = b)[name = string(\"s\")];\n        {X} y = mul(x = s, y = c)[name = string(\"y\")];"
    );
    let text = program(&function("main", &format!("{X} a, {X} b, {X} c"), &statements, "y"));
    let (a, b, c) = (values(256, 1), values(256, 2), values(256, 3));
    let expected: Vec<f64> = (0..256).map(|i| (f64::from(a[i]) + f64::from(b[i])) * f64::from(c[i])).collect();
    // The sum is below 4 and is multiplied by at most 2.
    close(&evaluate(device, &text, &[("a", &a), ("b", &b), ("c", &c)])?, &expected, 8.0, 1.0, rounding)
}

fn sigmoid(device: &Device, rounding: Rounding) -> Outcome {
    const X: &str = "tensor<fp16, [1, 4, 1, 64]>";
    let statement = format!("        {X} y = sigmoid(x = x)[name = string(\"y\")];");
    let text = program(&function("main", &format!("{X} x"), &statement, "y"));
    let x: Vec<f32> = values(256, 4).into_iter().map(|v| v * 4.0).collect();
    let expected: Vec<f64> = x.iter().map(|v| 1.0 / (1.0 + (-f64::from(*v)).exp())).collect();
    // One op, rounded at the port; a device's function table may be off by one step.
    close(&evaluate(device, &text, &[("x", &x)])?, &expected, 1.0, 1.0, rounding)
}

fn softmax(device: &Device, rounding: Rounding) -> Outcome {
    const X: &str = "tensor<fp16, [1, 4, 8, 16]>";
    let statement = format!(
        "        int32 axis = const()[name = string(\"axis\"), val = int32(-1)];\n        \
         {X} y = softmax(axis = axis, x = x)[name = string(\"y\")];"
    );
    let text = program(&function("main", &format!("{X} x"), &statement, "y"));
    let x = values(512, 5);
    let mut expected = Vec::new();
    for row in x.chunks(16) {
        let exps: Vec<f64> = row.iter().map(|v| f64::from(*v).exp()).collect();
        let sum: f64 = exps.iter().sum();
        expected.extend(exps.iter().map(|e| e / sum));
    }
    // Values are at most 1; exponential, sum and quotient may each be rounded.
    close(&evaluate(device, &text, &[("x", &x)])?, &expected, 1.0, 3.0, rounding)
}

fn product(device: &Device, rounding: Rounding) -> Outcome {
    let (m, k, n) = (8, 128, 16);
    let statement = "        bool no = const()[name = string(\"no\"), val = bool(false)];\n        \
                     tensor<fp16, [1, 1, 8, 16]> y = matmul(transpose_x = no, transpose_y = no, x = a, y = b)[name = string(\"y\")];";
    let inputs = "tensor<fp16, [1, 1, 8, 128]> a, tensor<fp16, [1, 1, 128, 16]> b";
    let text = program(&function("main", inputs, statement, "y"));
    let (a, b) = (values(m * k, 6), values(k * n, 7));
    let mut expected = vec![0.0; m * n];
    for i in 0..m {
        for j in 0..n {
            expected[i * n + j] = (0..k).map(|l| f64::from(a[i * k + l]) * f64::from(b[l * n + j])).sum();
        }
    }
    // Accumulation is wide. Each product is at most 4, and the sum of 128 of them is at most a few
    // dozen.
    close(&evaluate(device, &text, &[("a", &a), ("b", &b)])?, &expected, 32.0, 1.0, rounding)
}
