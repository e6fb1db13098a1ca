//! Parts of a training step that are moved between CPU and engine.

use ferrane_device::{Tensor, Tensors};
use ferrane_host::f16;
use ferrane_host::gemm::{Epilogue, Operand, Output, View, ViewMut, gemm};
use ferrane_mil::{Builder, Constant, Conv, DataType, Opset, ReducedDims, Transpose, Type};
use serde_json::json;

use super::super::context::Context;
use super::super::kernels::{Kernel, dense_values, keeping, weight};
use super::super::report::{SuiteCheck, SuiteRow, SuiteTimes};
use crate::error::Result;
use crate::spread::{Repeats, measure};

/// Width of the stream, as in Stories110M.
const DIM: usize = 768;
/// Tokens in the window.
const SEQ: usize = 256;
/// Entries of the vocabulary.
const CLASSES: usize = 32000;

/// Adds a row with the time of the same computation on this CPU, and the ratio to the device's.
fn on_the_cpu(cx: &mut Context<'_, '_>, call: impl FnMut() -> Result<()>) -> Result<()> {
    let Some(device) = cx.result.rows.last().cloned() else { return Ok(()) };
    let times = measure(1, Repeats::new(cx.options.repeat, cx.options.time)?, call)?;
    let mut row = SuiteRow::new(&format!("{}-cpu", device.kernel), &[]);
    row.config = device.config.clone();
    row.evaluation = Some(SuiteTimes::of(&times));
    if let Some(ms) = device.ms() {
        row.rate("device_gain", times.median() / ms);
    }
    cx.result.rows.push(row);
    Ok(())
}

/// `[rows, inner]` times `[inner, SEQ]` on the CPU.
fn product(rows: &[f32], columns: &[f32], [count, inner]: [usize; 2], out: &mut [f32]) -> Result<()> {
    let factors =
        (Operand::F32(View::row_major(rows, count, inner)?), Operand::F32(View::row_major(columns, inner, SEQ)?));
    Ok(gemm(factors.0, factors.1, Output::F32(ViewMut::row_major(out, count, SEQ)?), Epilogue::default())?)
}

fn port(channels: usize) -> Type {
    Type::tensor(DataType::Fp16, &[1, channels, 1, SEQ])
}

pub(super) fn classifier(cx: &mut Context<'_, '_>) -> Result<()> {
    let flops = 2.0 * (DIM * CLASSES * SEQ) as f64;
    if cx.too_large(flops) {
        return Ok(());
    }
    logits(cx, flops)?;
    class_probabilities(cx)?;
    logits_backward(cx, flops)
}

fn sizes() -> [(&'static str, serde_json::Value); 3] {
    [("classes", json!(CLASSES)), ("dim", json!(DIM)), ("positions", json!(SEQ))]
}

fn logits(cx: &mut Context<'_, '_>, flops: f64) -> Result<()> {
    let mut b = Builder::new("main", Opset::IOS16);
    let x = b.input("x", port(DIM))?;
    let (w, rows) = weight(&mut b, &mut cx.rng, "w", &[CLASSES, DIM, 1, 1], keeping(DIM))?;
    let y = b.conv("y", x, w, None, &Conv::default())?;
    let program = b.finish(&[("y", y)])?;
    let values = dense_values(&mut cx.rng, DIM * SEQ, 1.0);
    let mut inputs = Tensors::new();
    inputs.insert("x", Tensor::from_f32(DataType::Fp16, &[1, DIM, 1, SEQ], &values)?);
    let kernel = Kernel { program, inputs, flops, weights: 2.0 * rows.len() as f64 };
    if let Some(ran) = cx.kernel(SuiteRow::new("classifier", &sizes()), &kernel)? {
        let output = ran.output()?.to_f32();
        // Every 97th class at two positions.
        let chosen = || (0..CLASSES).step_by(97).flat_map(|c| [(c, 0), (c, SEQ - 1)]);
        let found: Vec<f32> = chosen().map(|(c, p)| output[c * SEQ + p]).collect();
        let dot = |(c, p): (usize, usize)| -> f32 {
            (0..DIM).map(|k| f64::from(rows[c * DIM + k].to_f32()) * f64::from(values[k * SEQ + p])).sum::<f64>() as f32
        };
        let wanted: Vec<f32> = chosen().map(dot).collect();
        cx.check_with(SuiteCheck::new("plain loops", &found, &wanted, 2e-3));
    }
    let rows: Vec<f32> = rows.into_iter().map(f16::to_f32).collect();
    let mut out = vec![0.0; CLASSES * SEQ];
    on_the_cpu(cx, || product(&rows, &values, [CLASSES, DIM], &mut out))
}

fn class_probabilities(cx: &mut Context<'_, '_>) -> Result<()> {
    let mut b = Builder::new("main", Opset::IOS16);
    let x = b.input("x", port(CLASSES))?;
    let y = b.softmax("y", x, 1)?;
    let program = b.finish(&[("y", y)])?;
    let values = dense_values(&mut cx.rng, CLASSES * SEQ, 4.0);
    let mut inputs = Tensors::new();
    inputs.insert("x", Tensor::from_f32(DataType::Fp16, &[1, CLASSES, 1, SEQ], &values)?);
    let kernel = Kernel { program, inputs, flops: 5.0 * (CLASSES * SEQ) as f64, weights: 0.0 };
    let mut out = vec![0.0f32; CLASSES * SEQ];
    let mut softmax = || {
        for p in 0..SEQ {
            let column = || (0..CLASSES).map(|c| values[c * SEQ + p]);
            let most = column().fold(f32::MIN, f32::max);
            let sum: f32 = column().map(|v| (v - most).exp()).sum();
            (0..CLASSES).for_each(|c| out[c * SEQ + p] = (values[c * SEQ + p] - most).exp() / sum);
        }
    };
    if let Some(ran) = cx.kernel(SuiteRow::new("class-softmax", &sizes()), &kernel)? {
        softmax();
        // fp16 probabilities near 2⁻¹⁵ have few bits.
        cx.check_with(SuiteCheck::new("plain loops", &ran.output()?.to_f32(), &out, 1e-2));
    }
    // Down columns, as the device's layout has them; a vector library would transpose first.
    on_the_cpu(cx, || {
        let mut out = vec![0.0f32; CLASSES * SEQ];
        let mut most = [f32::MIN; SEQ];
        let mut sum = [0.0f32; SEQ];
        for row in values.chunks_exact(SEQ) {
            most.iter_mut().zip(row).for_each(|(m, v)| *m = m.max(*v));
        }
        for (row, out) in values.chunks_exact(SEQ).zip(out.chunks_exact_mut(SEQ)) {
            for (((o, v), m), s) in out.iter_mut().zip(row).zip(&most).zip(&mut sum) {
                *o = (v - m).exp();
                *s += *o;
            }
        }
        for row in out.chunks_exact_mut(SEQ) {
            row.iter_mut().zip(&sum).for_each(|(o, s)| *o /= s);
        }
        std::hint::black_box(&out);
        Ok(())
    })
}

fn logits_backward(cx: &mut Context<'_, '_>, flops: f64) -> Result<()> {
    let mut b = Builder::new("main", Opset::IOS16);
    let dy = b.input("dy", port(CLASSES))?;
    // A product: more channels than a convolution takes.
    let flat = b.reshape("flat", dy, &[1, CLASSES as i32, SEQ as i32])?;
    let (w, rows) = weight(&mut b, &mut cx.rng, "w", &[1, DIM, CLASSES], keeping(CLASSES))?;
    let dx = b.matmul("product", w, flat, Transpose::from_flags(false, false))?;
    let dx = b.reshape("dx", dx, &[1, DIM as i32, 1, SEQ as i32])?;
    let program = b.finish(&[("dx", dx)])?;
    let values = dense_values(&mut cx.rng, CLASSES * SEQ, 1.0);
    let mut inputs = Tensors::new();
    inputs.insert("dy", Tensor::from_f32(DataType::Fp16, &[1, CLASSES, 1, SEQ], &values)?);
    let kernel = Kernel { program, inputs, flops, weights: 2.0 * rows.len() as f64 };
    if let Some(ran) = cx.kernel(SuiteRow::new("classifier-backward", &sizes()), &kernel)? {
        let output = ran.output()?.to_f32();
        let chosen = || (0..DIM).step_by(31).map(|d| (d, d % SEQ));
        let found: Vec<f32> = chosen().map(|(d, p)| output[d * SEQ + p]).collect();
        let dot = |(d, p): (usize, usize)| -> f32 {
            let products =
                (0..CLASSES).map(|k| f64::from(rows[d * CLASSES + k].to_f32()) * f64::from(values[k * SEQ + p]));
            products.sum::<f64>() as f32
        };
        let wanted: Vec<f32> = chosen().map(dot).collect();
        cx.check_with(SuiteCheck::new("plain loops", &found, &wanted, 5e-3));
    }
    let rows: Vec<f32> = rows.into_iter().map(f16::to_f32).collect();
    let mut out = vec![0.0; DIM * SEQ];
    on_the_cpu(cx, || product(&rows, &values, [DIM, CLASSES], &mut out))
}

pub(super) fn rmsnorm_backward(cx: &mut Context<'_, '_>) -> Result<()> {
    let mut b = Builder::new("main", Opset::IOS16);
    let x = b.input("x", port(DIM))?;
    let dy = b.input("dy", port(DIM))?;
    let (gain, gains) = weight(&mut b, &mut cx.rng, "gain", &[1, DIM, 1, 1], 1.25)?;
    // x² summed in fp16 stays finite because it is scaled by the mean first.
    let squares = b.mul("squares", x, x)?;
    let mean = b.reduce_mean("mean", squares, &[1], ReducedDims::Keep)?;
    let shifted = b.add("shifted", mean, Constant::fp16(1e-5))?;
    let root = b.op(ferrane_mil::op::RSQRT, "r", [("x", shifted.into()), ("epsilon", Constant::fp16(0.0).into())])?;
    let gained = b.mul("gained", dy, gain)?;
    let products = b.mul("products", gained, x)?;
    let mean = b.reduce_mean("mean_products", products, &[1], ReducedDims::Keep)?;
    let normed = b.mul("normed", x, root)?;
    let along = b.mul("along", mean, root)?;
    let along = b.mul("along_x", normed, along)?;
    let across = b.sub("across", gained, along)?;
    let dx = b.mul("dx", across, root)?;
    let program = b.finish(&[("dx", dx)])?;
    let [xs, dys] = [1.0, 1.0].map(|most| dense_values(&mut cx.rng, DIM * SEQ, most));
    let mut inputs = Tensors::new();
    for (name, values) in [("x", &xs), ("dy", &dys)] {
        inputs.insert(name, Tensor::from_f32(DataType::Fp16, &[1, DIM, 1, SEQ], values)?);
    }
    let kernel = Kernel { program, inputs, flops: 10.0 * (DIM * SEQ) as f64, weights: 2.0 * DIM as f64 };
    let config = [("dim", json!(DIM)), ("positions", json!(SEQ))];
    let gains: Vec<f64> = gains.into_iter().map(|g| f64::from(g.to_f32())).collect();
    let backward = || {
        let mut out = vec![0.0f32; DIM * SEQ];
        for p in 0..SEQ {
            let at = |values: &[f32], c: usize| f64::from(values[c * SEQ + p]);
            let mean = (0..DIM).map(|c| at(&xs, c).powi(2)).sum::<f64>() / DIM as f64;
            let root = 1.0 / (mean + 1e-5).sqrt();
            let along = (0..DIM).map(|c| at(&dys, c) * gains[c] * at(&xs, c)).sum::<f64>() / DIM as f64 * root * root;
            (0..DIM).for_each(|c| out[c * SEQ + p] = (root * (at(&dys, c) * gains[c] - at(&xs, c) * along)) as f32);
        }
        out
    };
    if let Some(ran) = cx.kernel(SuiteRow::new("rmsnorm-backward", &config), &kernel)? {
        cx.check_with(SuiteCheck::new("plain loops", &ran.output()?.to_f32(), &backward(), 5e-3));
    }
    on_the_cpu(cx, || {
        std::hint::black_box(backward());
        Ok(())
    })
}
