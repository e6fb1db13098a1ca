//! The programs of the suite, with random dense data, and references that do not use a device.
//!
//! Zeros are never among the values: engines skip them, and a benchmark of zeros measures something
//! else (int8 §4: the same chain is 1.88 times faster with 74 % zero weights).

use ferrane_device::{Tensor, Tensors};
use ferrane_host::f16;
use ferrane_host::random::Rng;
use ferrane_machine::cost::{Demand, OpDemand};
use ferrane_mil::{Arg, Builder, Constant, Conv, DataType, MilError, Opset, Program, Transpose, Type, op};

use crate::error::Result;

/// The path of the weights in the text of a program.
pub(super) const WEIGHTS: &str = "@model_path/weights/weight.bin";
/// The scale of activations in int8 chains, 2⁻³ (int8 §1).
const ACTIVATION_SCALE: f32 = 0.125;
/// The scale of weights in int8 chains, 2⁻¹⁰. The original's 2⁻³ saturates every activation of a
/// random chain, so that its results would depend on nothing else.
const WEIGHT_SCALE: f32 = 1.0 / 1024.0;

/// A chain of 1 × 1 convolutions from `channels` to `channels`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    pub channels: usize,
    /// Height and width of the image, in positions.
    pub extents: [usize; 2],
    pub depth: usize,
    /// int8 weights, and int8 activations between the convolutions.
    pub int8: bool,
    /// The element type of its ports; those of fp32 have casts.
    pub port: DataType,
}

/// A program with its inputs, and what a check needs.
pub(super) struct Kernel {
    pub program: Program,
    pub inputs: Tensors,
    /// Multiplications and additions of an evaluation.
    pub flops: f64,
    /// Bytes of its weights.
    pub weights: f64,
}

/// The weights of a chain: fp16 values, or codes.
pub(super) enum ChainWeights {
    Fp16(Vec<Vec<f16>>),
    Codes(Vec<Vec<i8>>),
}

/// Which of two codes a value halfway between them becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Halves {
    Away,
    Even,
}

/// An input of this element type, as fp16.
pub(super) fn halved(
    b: &mut Builder,
    name: &str,
    port: DataType,
    shape: &[usize],
) -> std::result::Result<ferrane_mil::ValueId, MilError> {
    let input = b.input(name, Type::tensor(port, shape))?;
    match port {
        DataType::Fp16 => Ok(input),
        _ => b.cast(&format!("{name}16"), input, DataType::Fp16),
    }
}

/// 1 or −1.
fn sign(rng: &mut Rng) -> f32 {
    if rng.next_u64() & 1 == 0 { 1.0 } else { -1.0 }
}

/// A random number from −`most` to `most` that is not 0 and is exact in fp16.
fn dense(rng: &mut Rng, most: f32) -> f16 {
    // At least a 64th of the largest: no subnormal numbers.
    f16::from_f32(sign(rng) * most * (1.0 + 63.0 * rng.uniform() as f32) / 64.0)
}

/// `count` such numbers, as fp32.
pub(super) fn dense_values(rng: &mut Rng, count: usize, most: f32) -> Vec<f32> {
    (0..count).map(|_| dense(rng, most).to_f32()).collect()
}

fn bytes(values: &[f16]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_bits().to_le_bytes()).collect()
}

/// Values rounded to fp16, as a constant stores them.
pub(super) fn halves(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| f16::from_f32(*v).to_bits().to_le_bytes()).collect()
}

/// The bound of uniform weights that keep the variance of activations.
pub(super) fn keeping(inputs: usize) -> f32 {
    (3.0 / inputs as f32).sqrt()
}

/// A constant of random weights; returns their values too.
pub(super) fn weight(
    b: &mut Builder,
    rng: &mut Rng,
    name: &str,
    shape: &[usize],
    most: f32,
) -> std::result::Result<(ferrane_mil::ValueId, Vec<f16>), MilError> {
    let values: Vec<f16> = (0..shape.iter().product()).map(|_| dense(rng, most)).collect();
    let id = b.weight(name, WEIGHTS, DataType::Fp16, shape, bytes(&values))?;
    Ok((id, values))
}

impl Chain {
    fn positions(&self) -> usize {
        self.extents[0] * self.extents[1]
    }

    fn shape(&self) -> [usize; 4] {
        [1, self.channels, self.extents[0], self.extents[1]]
    }

    /// The chain with random weights and a random input.
    pub fn build(&self, rng: &mut Rng) -> Result<(Kernel, ChainWeights)> {
        let opset = if self.int8 { Opset::IOS17 } else { Opset::IOS16 };
        let mut b = Builder::new("main", opset);
        let casts = self.port == DataType::Fp32;
        let mut x = halved(&mut b, "x", self.port, &self.shape())?;
        let (mut halves, mut codes) = (Vec::new(), Vec::new());
        for layer in 0..self.depth {
            let last = layer + 1 == self.depth;
            let name = if last && !casts { "y".to_string() } else { format!("c{layer}") };
            let w = match self.int8 {
                true => {
                    let (id, values) = self.codes(&mut b, rng, layer)?;
                    codes.push(values);
                    id
                }
                false => {
                    let shape = [self.channels, self.channels, 1, 1];
                    let (id, values) = weight(&mut b, rng, &format!("w{layer}"), &shape, keeping(self.channels))?;
                    halves.push(values);
                    id
                }
            };
            x = b.conv(&name, x, w, None, &Conv::default())?;
            if self.int8 && !last {
                x = requantize(&mut b, layer, x)?;
            }
        }
        let y = if casts { b.cast("y", x, DataType::Fp32)? } else { x };
        let program = b.finish(&[("y", y)])?;
        let count = self.channels * self.positions();
        let values = match self.int8 {
            // Multiples of 1/64: with codes as weights every sum is exact in fp32.
            true => (0..count).map(|_| (1 + rng.below(64)) as f32 / 64.0 * sign(rng)).collect(),
            false => dense_values(rng, count, 1.0),
        };
        let mut inputs = Tensors::new();
        inputs.insert("x", Tensor::from_f32(self.port, &self.shape(), &values)?);
        let taps = (self.channels * self.channels * self.depth) as f64;
        let kernel = Kernel {
            program,
            inputs,
            flops: 2.0 * taps * self.positions() as f64,
            weights: taps * if self.int8 { 1.0 } else { 2.0 },
        };
        Ok((kernel, if self.int8 { ChainWeights::Codes(codes) } else { ChainWeights::Fp16(halves) }))
    }

    /// int8 weights of one layer. Their bound keeps the variance of activations.
    fn codes(
        &self,
        b: &mut Builder,
        rng: &mut Rng,
        layer: usize,
    ) -> std::result::Result<(ferrane_mil::ValueId, Vec<i8>), MilError> {
        let most = (keeping(self.channels) / WEIGHT_SCALE).clamp(1.0, 127.0) as u64;
        let values: Vec<i8> = (0..self.channels * self.channels)
            .map(|_| {
                let size = 1 + rng.below(most) as i8;
                if rng.next_u64() & 1 == 0 { size } else { -size }
            })
            .collect();
        let shape = [self.channels, self.channels, 1, 1];
        let stored: Vec<u8> = values.iter().map(|v| v.cast_unsigned()).collect();
        let id = b.weights_mut().add(WEIGHTS, DataType::Int8, stored);
        let args: [(&str, Arg); 4] = [
            ("axis", Constant::int32(0).into()),
            ("quantized_data", Constant::weight(DataType::Int8, &shape, id).into()),
            ("scale", Constant::fp16(WEIGHT_SCALE).into()),
            ("zero_point", Constant::raw(DataType::Int8, &[], &[0]).into()),
        ];
        Ok((b.op(op::CONSTEXPR_AFFINE_DEQUANTIZE, &format!("w{layer}"), args)?, values))
    }

    /// The outputs at one position, computed in plain loops: sums in double precision (of integers
    /// where the chain has codes) that are rounded to fp16 after each layer.
    pub fn reference(&self, input: &Tensor, weights: &ChainWeights, position: usize, halves: Halves) -> Vec<f32> {
        let x = input.to_f32();
        let mut column: Vec<f32> = (0..self.channels).map(|c| x[c * self.positions() + position]).collect();
        let layers = match weights {
            ChainWeights::Fp16(layers) => layers.len(),
            ChainWeights::Codes(layers) => layers.len(),
        };
        for layer in 0..layers {
            let row = |row: usize| -> f64 {
                let range = row * self.channels..(row + 1) * self.channels;
                match weights {
                    ChainWeights::Fp16(layers) => {
                        let weights = layers[layer][range].iter().map(|w| f64::from(w.to_f32()));
                        weights.zip(&column).map(|(w, x)| w * f64::from(*x)).sum()
                    }
                    ChainWeights::Codes(layers) => {
                        let weights = layers[layer][range].iter().map(|w| f64::from(*w) * f64::from(WEIGHT_SCALE));
                        weights.zip(&column).map(|(w, x)| w * f64::from(*x)).sum()
                    }
                }
            };
            let next: Vec<f32> = (0..self.channels).map(|r| f16::from_f32(row(r) as f32).to_f32()).collect();
            column = match self.int8 && layer + 1 < layers {
                true => next.into_iter().map(|v| quantized(v, halves)).collect(),
                false => next,
            };
        }
        column
    }

    /// The values of an output tensor at one position.
    pub fn column(&self, output: &Tensor, position: usize) -> Vec<f32> {
        let y = output.to_f32();
        (0..self.channels).map(|c| y.get(c * self.positions() + position).copied().unwrap_or(f32::NAN)).collect()
    }

    /// Its demands, for the cost model; `None` if they overflow.
    pub fn demands(&self) -> Option<Vec<OpDemand>> {
        let (channels, positions) = (self.channels as u64, self.positions() as u64);
        let item = |i: usize| {
            // The first convolution reads the fp16 input.
            let demand = Demand::conv(channels, channels, positions, self.int8 && i > 0)?;
            Some(OpDemand { name: format!("c{i}"), op: op::CONV.into(), demand: Some(demand) })
        };
        (0..self.depth).map(item).collect()
    }

    /// The relative error that rounding to fp16 after each layer explains, four times over: each
    /// rounding adds 2⁻¹¹ at most, independent of the others.
    pub fn tolerance(&self) -> f64 {
        4.0 * (self.depth as f64).sqrt() / 2048.0
    }
}

/// A value as its int8 code and back.
fn quantized(value: f32, halves: Halves) -> f32 {
    let scaled = value / ACTIVATION_SCALE;
    let code = match halves {
        Halves::Away => scaled.round(),
        Halves::Even => scaled.round_ties_even(),
    };
    code.clamp(-128.0, 127.0) * ACTIVATION_SCALE
}

/// `quantize` and `dequantize` at the scale of activations.
fn requantize(
    b: &mut Builder,
    layer: usize,
    x: ferrane_mil::ValueId,
) -> std::result::Result<ferrane_mil::ValueId, MilError> {
    let codes: [(&str, Arg); 3] = [
        ("input", x.into()),
        ("output_dtype", Constant::string("int8").into()),
        ("scale", Constant::fp16(ACTIVATION_SCALE).into()),
    ];
    let codes = b.op(op::QUANTIZE, &format!("q{layer}"), codes)?;
    let back: [(&str, Arg); 2] = [("input", codes.into()), ("scale", Constant::fp16(ACTIVATION_SCALE).into())];
    b.op(op::DEQUANTIZE, &format!("d{layer}"), back)
}

/// `y = wᵀ·x` of one input `[1, inputs, 1, seq + outputs]`: columns of activations, then columns of
/// weights. The result is `[1, outputs, 1, seq]`.
pub(super) fn packed_product(inputs: usize, outputs: usize, seq: usize, port: DataType) -> Result<Program> {
    let mut b = Builder::new("main", Opset::IOS16);
    let all = halved(&mut b, "x", port, &[1, inputs, 1, seq + outputs])?;
    let size = |columns: usize| [1, inputs as i32, 1, columns as i32];
    let x = b.slice_by_size("activations", all, &[0, 0, 0, 0], &size(seq))?;
    let w = b.slice_by_size("weights", all, &[0, 0, 0, seq as i32], &size(outputs))?;
    let x = b.reshape("activations2", x, &[1, 1, inputs as i32, seq as i32])?;
    let w = b.reshape("weights2", w, &[1, 1, inputs as i32, outputs as i32])?;
    let y = b.matmul("product", w, x, Transpose::from_flags(true, false))?;
    let y = b.reshape("product4", y, &[1, outputs as i32, 1, seq as i32])?;
    let y = if port == DataType::Fp16 { y } else { b.cast("y", y, port)? };
    Ok(b.finish(&[("y", y)])?)
}

#[cfg(test)]
mod tests {
    use ferrane_machine::cost::CostModel;

    use super::*;

    fn chain(channels: usize, depth: usize, int8: bool) -> Chain {
        Chain { channels, extents: [64, 64], depth, int8, port: DataType::Fp16 }
    }

    #[test]
    fn predicted_gains_are_within_a_tenth_of_the_published_ones() {
        // int8 §1 and §4: maderix/ANE (M4, M5 Max), cadamcat/llms-on-apple-neural-engine (M5 Pro).
        for (chip, depth, published) in [
            ("m4", 128, 1.88),
            ("m4", 64, 1.85),
            ("m5-max", 128, 35.61 / 19.27),
            ("m5-pro", 128, 1.86),
            ("m5-pro", 128, 1.87),
        ] {
            let model = CostModel::for_chip(chip).unwrap();
            let ms = |int8| model.cost(chain(512, depth, int8).demands().unwrap()).total_us / 1e3;
            let gain = ms(false) / ms(true);
            assert!((gain / published - 1.0).abs() < 0.1, "{chip} {depth}: {gain} against {published}");
        }
    }

    #[test]
    fn a_chain_and_its_demands_agree() {
        let chain = Chain { extents: [2, 3], ..chain(32, 3, true) };
        let (kernel, _) = chain.build(&mut Rng::new(3)).unwrap();
        let model = CostModel::for_chip("m4").unwrap();
        let whole = ferrane_machine::cost::predict(&kernel.program, &model).unwrap().total_us;
        assert!((whole - model.cost(chain.demands().unwrap()).total_us).abs() < 1e-9);
        assert_eq!(kernel.flops, 2.0 * 3.0 * 32.0 * 32.0 * 6.0);
    }

    #[test]
    fn the_reference_rounds_halves_as_asked() {
        for (value, away, even) in
            [(0.0625, 0.125, 0.0), (-0.1875, -0.25, -0.25), (0.3125, 0.375, 0.25), (99.0, 15.875, 15.875)]
        {
            assert_eq!((quantized(value, Halves::Away), quantized(value, Halves::Even)), (away, even));
        }
    }

    #[test]
    fn random_data_is_dense_and_exact_in_fp16() {
        let values = dense_values(&mut Rng::new(1), 10_000, 0.5);
        assert!(values.iter().all(|v| v.abs() >= 0.5 / 65.0 && v.abs() <= 0.5 && f16::from_f32(*v).to_f32() == *v));
        let mean = values.iter().sum::<f32>() / 10_000.0;
        assert!(mean.abs() < 0.02, "{mean}");
    }
}
