//! Weights that change, and weights that are stored compressed.

use std::time::Instant;

use ferrane_device::{Tensor, Tensors};
use ferrane_mil::{Arg, Builder, Constant, Conv, DataType, Opset, Type, ValueId, op};
use serde_json::json;

use super::super::context::Context;
use super::super::kernels::{Chain, Kernel, WEIGHTS, dense_values, halves, keeping, packed_product, weight};
use super::super::report::SuiteRow;
use crate::error::Result;
use crate::spread::round;

/// Channels of the convolution of [`forms`]: 8 MiB of fp16 weights, beyond any buffer.
const WIDE: usize = 2048;

/// How weights are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stored {
    Fp16,
    Int8,
    Palette4,
    Sparse,
    Blockwise4,
}

impl Stored {
    const ALL: [Stored; 5] = [Stored::Fp16, Stored::Int8, Stored::Palette4, Stored::Sparse, Stored::Blockwise4];

    fn name(self) -> &'static str {
        match self {
            Stored::Fp16 => "fp16",
            Stored::Int8 => "int8 per channel",
            Stored::Palette4 => "4-bit palette",
            Stored::Sparse => "half sparse",
            Stored::Blockwise4 => "int4 in blocks of 32",
        }
    }

    /// Bytes of a weight as stored.
    fn bytes(self) -> f64 {
        match self {
            Stored::Fp16 => 2.0,
            Stored::Int8 => 1.0,
            Stored::Palette4 => 0.5,
            Stored::Sparse => 1.0 + 1.0 / 8.0,
            Stored::Blockwise4 => 0.5 + 2.0 / 32.0,
        }
    }

    /// The weight of a `WIDE` × `WIDE` convolution in this form.
    fn build(self, cx: &mut Context<'_, '_>, b: &mut Builder) -> Result<ValueId> {
        let (shape, count) = ([WIDE, WIDE, 1, 1], WIDE * WIDE);
        let most = keeping(WIDE);
        let random = |cx: &mut Context<'_, '_>, bytes: usize| -> Vec<u8> {
            (0..bytes.div_ceil(8)).flat_map(|_| cx.rng.next_u64().to_le_bytes()).take(bytes).collect()
        };
        let stored = |b: &mut Builder, dtype, shape: &[usize], bytes: Vec<u8>| -> Arg {
            let id = b.weights_mut().add(WEIGHTS, dtype, bytes);
            Constant::weight(dtype, shape, id).into()
        };
        Ok(match self {
            Stored::Fp16 => weight(b, &mut cx.rng, "w", &shape, most)?.0,
            Stored::Int8 => {
                let codes = random(cx, count);
                let args = [
                    ("axis", Constant::int32(0).into()),
                    ("quantized_data", stored(b, DataType::Int8, &shape, codes)),
                    ("scale", stored(b, DataType::Fp16, &[WIDE], halves(&[most / 127.0; WIDE]))),
                    ("zero_point", Constant::raw(DataType::Int8, &[], &[0]).into()),
                ];
                b.op(op::CONSTEXPR_AFFINE_DEQUANTIZE, "w", args)?
            }
            Stored::Palette4 => {
                let codes = random(cx, count / 2);
                let palette = dense_values(&mut cx.rng, 16, most);
                let args = [
                    ("indices", stored(b, DataType::UInt4, &shape, codes)),
                    ("lut", stored(b, DataType::Fp16, &[1, 1, 1, 1, 16, 1], halves(&palette))),
                ];
                b.op(op::CONSTEXPR_LUT_TO_DENSE, "w", args)?
            }
            Stored::Sparse => {
                // Every second weight, so that the mask has one form on every machine.
                let kept = dense_values(&mut cx.rng, count / 2, 2f32.sqrt() * most);
                let args = [
                    ("mask", stored(b, DataType::UInt1, &shape, vec![0b0101_0101; count / 8])),
                    ("nonzero_data", stored(b, DataType::Fp16, &[count / 2], halves(&kept))),
                ];
                b.op(op::CONSTEXPR_SPARSE_TO_DENSE, "w", args)?
            }
            Stored::Blockwise4 => {
                let codes = random(cx, count / 2);
                let args = [
                    ("data", stored(b, DataType::Int4, &shape, codes)),
                    (
                        "scale",
                        stored(
                            b,
                            DataType::Fp16,
                            &[WIDE, WIDE / 32, 1, 1],
                            halves(&vec![most / 7.0; WIDE * WIDE / 32]),
                        ),
                    ),
                ];
                b.op(op::CONSTEXPR_BLOCKWISE_SHIFT_SCALE, "w", args)?
            }
        })
    }
}

pub(super) fn forms(cx: &mut Context<'_, '_>) -> Result<()> {
    let (shape, positions) = ([1, WIDE, 1, 64], 64);
    let flops = 2.0 * (WIDE * WIDE * positions) as f64;
    if cx.too_large(flops) {
        return Ok(());
    }
    let mut plain = None;
    for form in Stored::ALL {
        let mut b = Builder::new("main", Opset::IOS18);
        let x = b.input("x", Type::tensor(DataType::Fp16, &shape))?;
        let w = form.build(cx, &mut b)?;
        let y = b.conv("y", x, w, None, &Conv::default())?;
        let program = b.finish(&[("y", y)])?;
        let mut inputs = Tensors::new();
        inputs
            .insert("x", Tensor::from_f32(DataType::Fp16, &shape, &dense_values(&mut cx.rng, WIDE * positions, 1.0))?);
        let config = [("form", json!(form.name())), ("channels", json!(WIDE)), ("positions", json!(positions))];
        let kernel = Kernel { program, inputs, flops, weights: form.bytes() * (WIDE * WIDE) as f64 };
        let Some(ran) = cx.kernel(SuiteRow::new("weight-form", &config), &kernel)? else { continue };
        let check = cx.against_exact(&kernel, &ran, 2e-3)?;
        let Some(row) = cx.result.rows.last_mut() else { continue };
        row.check = Some(check);
        let Some(ms) = row.ms() else { continue };
        plain = plain.or(Some(ms));
        row.rate("stored_gb_s", kernel.weights / ms / 1e6);
        row.rate("gain", plain.unwrap_or(ms) / ms);
    }
    Ok(())
}

pub(super) fn patch(cx: &mut Context<'_, '_>) -> Result<()> {
    let answer = cx.probe("weights-reload")?;
    if let Some(changes) = answer.values.get("weights_reload").and_then(serde_json::Value::as_bool) {
        let config = [("way", json!("weight file, unload and load")), ("effective", json!(changes))];
        cx.result.rows.push(SuiteRow::new("weight-patch", &config));
    }
    let port = cx.port()?;
    let (program, [width, seq]) = (packed_product(64, 64, 64, port)?, [128usize, 64]);
    let mut values = dense_values(&mut cx.rng, 64 * width, 1.0);
    let input = |values: &[f32]| -> Result<Tensors> {
        let mut inputs = Tensors::new();
        inputs.insert("x", Tensor::from_f32(port, &[1, 64, 1, width], values)?);
        Ok(inputs)
    };
    let kernel = Kernel { program, inputs: input(&values)?, flops: 2.0 * 64.0 * 64.0 * 64.0, weights: 0.0 };
    let row = SuiteRow::new("weight-patch", &[("way", json!("weights in the input, matmul"))]);
    let Some(ran) = cx.kernel(row, &kernel)? else { return Ok(()) };
    let check = cx.against_exact(&kernel, &ran, 2e-3)?;
    let before = ran.output()?.to_f32();
    for row in values.chunks_exact_mut(width) {
        row[seq..].iter_mut().for_each(|w| *w *= 2.0);
    }
    ran.bound.write_inputs(&input(&values)?)?;
    ran.bound.evaluate()?;
    // Doubling is exact in fp16.
    let changed = ran.output()?.to_f32().iter().zip(&before).all(|(now, before)| *now == 2.0 * before);
    if let Some(row) = cx.result.rows.last_mut() {
        row.check = Some(check);
        row.config.insert("effective".into(), changed.into());
    }
    cx.skip(
        "weights patched in the memory of the process, and weight objects of the private framework: Ferrane writes \
         no memory that it does not own",
    );
    Ok(())
}

/// Reloads that are timed.
const RELOADS: usize = 20;

pub(super) fn reload(cx: &mut Context<'_, '_>) -> Result<()> {
    let port = cx.port()?;
    let (kernel, _) = Chain { channels: 64, extents: [1, 32], depth: 1, int8: false, port }.build(&mut cx.rng)?;
    let row = SuiteRow::new("weight-reload", &[("channels", json!(64)), ("positions", json!(32))]);
    let Some(ran) = cx.kernel(row, &kernel)? else { return Ok(()) };
    let timed = |call: &mut dyn FnMut() -> ferrane_device::Result<()>| -> Result<f64> {
        let begun = Instant::now();
        call()?;
        Ok(begun.elapsed().as_secs_f64() * 1e3)
    };
    let mut reload = f64::MAX;
    for _ in 0..RELOADS {
        reload = reload.min(timed(&mut || ran.executable.reload())?);
    }
    // An executable is unloaded once; its reload above unloads it and loads it again.
    let unload = timed(&mut || ran.executable.unload())?;
    if let Some(row) = cx.result.rows.last_mut() {
        row.rates.insert("unload_ms".into(), round(unload).into());
        row.rates.insert("reload_ms".into(), round(reload).into());
    }
    cx.find("unload_ms", unload, "ms", "once");
    cx.find("reload_ms", reload, "ms", format!("unload and load together, the least of {RELOADS}"));
    Ok(())
}
