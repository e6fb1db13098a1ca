//! Weights that are inputs: what a product costs, and what rewriting its weights adds.

use ferrane_device::{Tensor, Tensors};
use ferrane_mil::{Builder, DataType, Opset, Transpose};
use serde_json::json;

use super::super::context::{Context, Ran};
use super::super::kernels::{Kernel, dense_values, halved, keeping, packed_product};
use super::super::report::SuiteRow;
use crate::error::Result;

/// The relative error of one product whose operands are rounded to fp16 and whose sums are too.
const TOLERANCE: f64 = 2e-3;

/// Bytes of an element of a port.
fn width(port: DataType) -> f64 {
    port.bytes().unwrap_or(0) as f64
}

/// A packed product with random operands: columns of activations, then columns of weights.
fn packed(cx: &mut Context<'_, '_>, inputs: usize, outputs: usize, seq: usize) -> Result<Kernel> {
    let (port, shape) = (cx.port()?, [1, inputs, 1, seq + outputs]);
    let values = dense_values(&mut cx.rng, inputs * (seq + outputs), keeping(inputs));
    let mut tensors = Tensors::new();
    tensors.insert("x", Tensor::from_f32(port, &shape, &values)?);
    let (taps, seq_count) = ((inputs * outputs) as f64, seq as f64);
    Ok(Kernel {
        program: packed_product(inputs, outputs, seq, port)?,
        inputs: tensors,
        flops: 2.0 * taps * seq_count,
        weights: width(port) * taps,
    })
}

/// A product whose weights are an input of their own, `[1, 1, dim, dim]`.
fn dual(cx: &mut Context<'_, '_>, dim: usize, seq: usize) -> Result<Kernel> {
    let port = cx.port()?;
    let mut b = Builder::new("main", Opset::IOS16);
    let (activations, weights) = ([1, 1, seq, dim], [1, 1, dim, dim]);
    let x = halved(&mut b, "x", port, &activations)?;
    let w = halved(&mut b, "weights", port, &weights)?;
    let y = b.matmul("product", x, w, Transpose::from_flags(false, false))?;
    let y = if port == DataType::Fp16 { y } else { b.cast("y", y, port)? };
    let program = b.finish(&[("y", y)])?;
    let mut inputs = Tensors::new();
    let values = dense_values(&mut cx.rng, seq * dim, 1.0);
    inputs.insert("x", Tensor::from_f32(port, &activations, &values)?);
    let values = dense_values(&mut cx.rng, dim * dim, keeping(dim));
    inputs.insert("weights", Tensor::from_f32(port, &weights, &values)?);
    let taps = (dim * dim) as f64;
    Ok(Kernel { program, inputs, flops: 2.0 * taps * seq as f64, weights: width(port) * taps })
}

/// Adds a row in which `port` is rewritten before each evaluation; returns what that adds, in
/// milliseconds.
fn rewritten(cx: &mut Context<'_, '_>, ran: &Ran, kernel: &Kernel, port: &str, mut row: SuiteRow) -> Result<f64> {
    let wall = |row: &SuiteRow| row.evaluation.as_ref().map_or(f64::NAN, |times| times.median_ms);
    let alone = cx.result.rows.last().map_or(f64::NAN, wall);
    let tensor = kernel.inputs.get(port)?;
    cx.time(&mut row, || {
        ran.bound.write(port, tensor)?;
        ran.bound.evaluate()
    })?;
    // The write is on the caller's clock, so the device's own says nothing about it.
    row.device = None;
    let update = wall(&row) - alone;
    row.rate("update_ms", update);
    row.rate("update_gb_s", tensor.bytes().len() as f64 / update / 1e6);
    row.config.insert("rewritten".into(), true.into());
    cx.result.rows.push(row);
    Ok(update)
}

pub(super) fn dynamic_matmul(cx: &mut Context<'_, '_>) -> Result<()> {
    for (inputs, outputs, seq) in [(64, 64, 64), (768, 768, 256)] {
        let kernel = packed(cx, inputs, outputs, seq)?;
        let row = SuiteRow::new("matmul", &[("in", json!(inputs)), ("out", json!(outputs)), ("positions", json!(seq))]);
        let Some(ran) = cx.kernel(row.clone(), &kernel)? else { continue };
        cx.check_last(&kernel, &ran, TOLERANCE)?;
        rewritten(cx, &ran, &kernel, "x", row)?;
    }
    let (dim, seq) = (768, 256);
    for tile in [64, 128, 256, 384, 768] {
        let kernel = packed(cx, dim, tile, seq)?;
        let tiles = dim / tile;
        let config = [("in", json!(dim)), ("tile", json!(tile)), ("tiles", json!(tiles)), ("positions", json!(seq))];
        let Some(ran) = cx.kernel(SuiteRow::new("matmul-tile", &config), &kernel)? else { continue };
        cx.check_last(&kernel, &ran, TOLERANCE)?;
        let tensor = kernel.inputs.get("x")?;
        let mut whole = SuiteRow::new("matmul-tiled", &config);
        cx.time(&mut whole, || {
            let mut stats = None;
            for _ in 0..tiles {
                ran.bound.write("x", tensor)?;
                let one = ran.bound.evaluate()?;
                stats = Some(stats.map_or(one, |all: ferrane_device::Stats| all.then(one)));
            }
            Ok(stats.unwrap_or_default())
        })?;
        whole.device = None;
        if let Some(ms) = whole.ms() {
            whole.rate("gflops", kernel.flops * tiles as f64 / ms / 1e6);
        }
        cx.result.rows.push(whole);
    }
    Ok(())
}

pub(super) fn performance(cx: &mut Context<'_, '_>) -> Result<()> {
    for dim in [128, 256, 512, 1024, 2048, 4096] {
        for mode in ["packed", "dual"] {
            let (kernel, port) = match mode {
                "packed" => (packed(cx, dim, dim, 1)?, "x"),
                _ => (dual(cx, dim, 1)?, "weights"),
            };
            let row = SuiteRow::new("performance", &[("dim", json!(dim)), ("mode", json!(mode))]);
            let Some(ran) = cx.kernel(row.clone(), &kernel)? else { continue };
            cx.check_last(&kernel, &ran, TOLERANCE)?;
            if let Some(row) = cx.result.rows.last_mut()
                && let Some(ms) = row.ms()
            {
                row.rate("weights_gb_s", kernel.weights / ms / 1e6);
            }
            let update = rewritten(cx, &ran, &kernel, port, row)?;
            if dim == 4096 {
                cx.find(&format!("update_4096_{mode}_ms"), update, "ms", "evaluation with new weights less without");
            }
        }
    }
    Ok(())
}

pub(super) fn pipeline(cx: &mut Context<'_, '_>) -> Result<()> {
    let layers = 24;
    // One set of weights for all layers: 24 of 67 MB would not fit small computers.
    let kernel = dual(cx, 4096, 1)?;
    let config = [("dim", json!(4096)), ("positions", json!(1)), ("layers", json!(1))];
    if let Some(ran) = cx.kernel(SuiteRow::new("layers", &config), &kernel)? {
        cx.check_last(&kernel, &ran, TOLERANCE)?;
        repeated(cx, &ran, &kernel, layers, None)?;
    }
    let mut base = None;
    for seq in [128, 512, 1024] {
        let kernel = dual(cx, 768, seq)?;
        let config = [("dim", json!(768)), ("positions", json!(seq)), ("layers", json!(1))];
        let Some(ran) = cx.kernel(SuiteRow::new("layers", &config), &kernel)? else { continue };
        cx.check_last(&kernel, &ran, TOLERANCE)?;
        let ms = cx.result.rows.last().and_then(SuiteRow::ms).unwrap_or(f64::NAN);
        let first = *base.get_or_insert(ms);
        if ms > 1.5 * first && !cx.result.findings.iter().any(|f| f.name == "compute_bound_from") {
            cx.find(
                "compute_bound_from",
                f64::from(seq as u32),
                "positions",
                "the first that takes 1.5 times the first row's time",
            );
        }
        if seq == 1024 {
            repeated(cx, &ran, &kernel, layers, Some("weights"))?;
        }
    }
    Ok(())
}

/// Adds a row of `layers` evaluations in sequence, with `port` rewritten before each.
fn repeated(cx: &mut Context<'_, '_>, ran: &Ran, kernel: &Kernel, layers: usize, port: Option<&str>) -> Result<()> {
    let mut row = cx.result.rows.last().cloned().unwrap_or_default();
    let positions = row.config.get("positions").and_then(serde_json::Value::as_f64).unwrap_or(1.0);
    row = SuiteRow { check: None, compile_ms: None, load_ms: None, ..row };
    row.predicted_ms = row.predicted_ms.map(|ms| ms * layers as f64);
    row.predicted_mj = row.predicted_mj.map(|mj| mj * layers as f64);
    row.rates.clear();
    row.config.insert("layers".into(), layers.into());
    row.config.insert("rewritten".into(), port.is_some().into());
    let tensor = port.map(|port| kernel.inputs.get(port)).transpose()?;
    cx.time(&mut row, || {
        let mut all: Option<ferrane_device::Stats> = None;
        for _ in 0..layers {
            if let (Some(port), Some(tensor)) = (port, tensor) {
                ran.bound.write(port, tensor)?;
            }
            let one = ran.bound.evaluate()?;
            all = Some(all.map_or(one, |all| all.then(one)));
        }
        Ok(all.unwrap_or_default())
    })?;
    if port.is_some() {
        row.device = None;
    }
    if let Some(ms) = row.ms() {
        row.rate("tokens_per_second", positions / ms * 1e3);
        row.rate("weights_gb_s", kernel.weights * layers as f64 / ms / 1e6);
    }
    cx.result.rows.push(row);
    Ok(())
}
