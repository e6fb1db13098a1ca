//! Layers whose weights and activations are codes of 8 bits, against integer arithmetic.

use ferrane_device::Device;
use ferrane_emulator::{Emulator, Numerics};
use ferrane_machine::Profile;
use ferrane_machine::profile::Rounding;
use ferrane_mil::{Arg, Builder, Constant, Conv, DataType, MilError, Program, Transpose, ValueId};
use proptest::prelude::*;

use crate::hardware::machine;
use crate::harness::{Tensor, bits, program, run, run_on, steps};

use DataType::{Fp16, Fp32, Int8, UInt8};

/// Reproducible codes from `low` to `high`.
fn codes(seed: u64, count: usize, low: i32, high: i32) -> Vec<i32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        low + ((state >> 33) % (high - low + 1) as u64) as i32
    };
    (0..count).map(|_| next()).collect()
}

fn bytes(codes: &[i32]) -> Vec<u8> {
    codes.iter().map(|&c| c as u8).collect()
}

fn int8(shape: &[usize], codes: &[i32]) -> Constant {
    Constant::raw(Int8, shape, &bytes(codes))
}

/// A rounding to a whole number.
#[derive(Clone, Copy, PartialEq)]
enum Ties {
    Even,
    Away,
}

impl Ties {
    /// The nearest whole number.
    fn whole(self, x: f64) -> f64 {
        let (floor, rest) = (x.floor(), x - x.floor());
        let up = match self {
            _ if rest != 0.5 => rest > 0.5,
            Ties::Even => floor % 2.0 != 0.0,
            Ties::Away => x > 0.0,
        };
        floor + f64::from(u8::from(up))
    }

    /// The nearest fp16 number of a number that needs no subnormal one.
    fn half(self, x: f64) -> f64 {
        if x == 0.0 {
            return 0.0;
        }
        // 11 significant bits.
        let unit = 2f64.powi(x.abs().log2().floor() as i32 - 10);
        self.whole(x / unit) * unit
    }
}

const CHANNELS: usize = 16;
const PLACES: usize = 9;
const DEPTH: usize = 128;

/// The chain of int8 §1: convolutions of one tap, with `quantize` and `dequantize` between two.
fn chain(x: &Tensor, weights: &[Vec<i32>]) -> Program {
    program(std::slice::from_ref(x), |b, ids| {
        let mut y = ids[0];
        let scale = || ("scale", Constant::fp16(0.125).into());
        for (i, weight) in weights.iter().enumerate() {
            let args: [(&str, Arg); 4] = [
                ("quantized_data", int8(&[CHANNELS, CHANNELS, 1, 1], weight).into()),
                scale(),
                ("zero_point", int8(&[], &[0]).into()),
                ("axis", Constant::int32(0).into()),
            ];
            let weight = b.op("constexpr_affine_dequantize", &format!("w{i}"), args)?;
            y = b.conv(&format!("y{i}"), y, weight, None, &Conv::default())?;
            if i + 1 < weights.len() {
                let to = ("output_dtype", Constant::string("int8").into());
                let codes = b.op("quantize", &format!("q{i}"), [("input", y.into()), scale(), to])?;
                y = b.op("dequantize", &format!("d{i}"), [("input", codes.into()), scale()])?;
            }
        }
        Ok(vec![y])
    })
}

/// The chain in integers. Sums of codes are in units of 1/64, and become fp16 by `halves`, if it is
/// given, then codes in units of 1/8 by `quantize`.
fn reference(x: &[i32], weights: &[Vec<i32>], halves: Option<Ties>, quantize: Ties) -> Vec<f64> {
    let mut codes = x.to_vec();
    for (i, weight) in weights.iter().enumerate() {
        let mut values = Vec::new();
        for row in weight.chunks(CHANNELS) {
            for place in 0..PLACES {
                let sum: i32 = row.iter().enumerate().map(|(c, w)| w * codes[c * PLACES + place]).sum();
                let value = f64::from(sum) / 64.0;
                values.push(halves.map_or(value, |ties| ties.half(value)));
            }
        }
        if i + 1 == weights.len() {
            return values.into_iter().map(|v| Ties::Even.half(v)).collect();
        }
        codes = values.iter().map(|v| quantize.whole(v * 8.0).clamp(-128.0, 127.0) as i32).collect();
    }
    Vec::new()
}

#[test]
fn deep_chains_have_the_bits_of_integers() {
    for (low, high) in [(-3, 3), (-128, 127)] {
        let weights: Vec<Vec<i32>> = (0..DEPTH).map(|i| codes(i as u64 + 1, CHANNELS * CHANNELS, low, high)).collect();
        let input = codes(999, CHANNELS * PLACES, -128, 127);
        let values = input.iter().map(|&c| f64::from(c) / 8.0).collect();
        let x = Tensor::new(Fp16, &[1, CHANNELS, 3, 3], values);
        let program = chain(&x, &weights);
        let wanted = |halves, quantize| reference(&input, &weights, halves, quantize);
        let found = |numerics| run(numerics, &program, std::slice::from_ref(&x)).unwrap().remove(0).values;

        // Core ML's own rule.
        let even = wanted(Some(Ties::Even), Ties::Even);
        assert_eq!(found(Numerics::Fast), even, "{low} to {high}");
        // Nothing but the surface is fp16.
        assert_eq!(found(Numerics::Exact), wanted(None, Ties::Even), "{low} to {high}");
        for name in ["m4-macos15-inmem", "m5-pro-macos27-coreml"] {
            // int8 §2: ties of codes go away from zero; those of fp16 as the profile says.
            let rounding = Profile::named(name).unwrap().rounding.value;
            let halves = if rounding == Rounding::Even { Ties::Even } else { Ties::Away };
            let device = Device::new(Emulator::new(machine(name)));
            let found = run_on(&device, &program, std::slice::from_ref(&x)).unwrap().remove(0).values;
            let away = wanted(Some(halves), Ties::Away);
            assert_eq!(found, away, "{low} to {high} on {name}");
            // The rule of ties decides about the results.
            if (low, high) == (-3, 3) {
                let parted = away.iter().zip(&even).filter(|(a, b)| a != b).count();
                assert!(parted > away.len() / 2, "{parted} of {} results differ", away.len());
            }
        }
        // One step for each layer but the first, whose activations are fp16.
        let all = steps(&program);
        let fused = all.iter().filter(|op| *op == "conv+quantize").count();
        assert_eq!((fused, all.iter().filter(|op| op.contains("dequantize")).count()), (DEPTH - 2, 0), "{all:?}");
    }
}

/// The op that multiplies codes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    /// A convolution with so many taps along each axis.
    Conv(usize),
    Linear,
    /// A product with a weight by rows, or by columns.
    Matmul(bool),
}

/// One layer over dequantized codes, with the `quantize` after it.
#[derive(Clone, Debug)]
struct Layer {
    form: Form,
    /// The op that decodes the weight.
    decoder: usize,
    dtype: DataType,
    signed: [bool; 2],
    /// The codes of 0 of operand and result.
    zeros: [i32; 2],
    /// Scales of operand, weight (with more for other channels) and result.
    scales: [f64; 3],
    per_channel: bool,
    bias: bool,
    relu: bool,
    inputs: usize,
    outputs: usize,
    seed: u64,
}

const HEIGHT: usize = 3;
const WIDTH: usize = 5;

impl Layer {
    fn is_image(&self) -> bool {
        matches!(self.form, Form::Conv(_))
    }

    fn taps(&self) -> usize {
        if let Form::Conv(taps) = self.form { taps } else { 1 }
    }

    fn range(&self, at: usize) -> (i32, i32) {
        if self.signed[at] { (-128, 127) } else { (0, 255) }
    }

    fn code_type(&self, at: usize) -> DataType {
        if self.signed[at] { Int8 } else { UInt8 }
    }

    fn weight(&self) -> Vec<i32> {
        codes(self.seed, self.outputs * self.inputs * self.taps() * self.taps(), -128, 127)
    }

    fn weight_scale(&self, channel: usize) -> f64 {
        self.scales[1] * if self.per_channel { [1.0, 0.5, 4.0][channel % 3] } else { 1.0 }
    }

    /// A bias in units of the sums.
    fn bias(&self, channel: usize) -> f64 {
        let units = codes(self.seed + 1, self.outputs, -400, 400)[channel];
        if self.bias { f64::from(units) * self.scales[0] * self.weight_scale(channel) } else { 0.0 }
    }

    /// The input: codes of an image, or of rows.
    fn input(&self) -> Tensor {
        let (low, high) = self.range(0);
        let places = HEIGHT * WIDTH;
        let shape = if self.is_image() { vec![2, self.inputs, HEIGHT, WIDTH] } else { vec![2, places, self.inputs] };
        let values = codes(self.seed + 2, 2 * places * self.inputs, low, high);
        Tensor::new(self.code_type(0), &shape, values.into_iter().map(f64::from).collect())
    }

    fn number(&self, shape: &[usize], values: &[f64]) -> Constant {
        Constant::raw(self.dtype, shape, &Tensor::new(self.dtype, shape, values.to_vec()).to_bytes())
    }

    fn zero(&self, at: usize) -> Constant {
        Constant::raw(self.code_type(at), &[], &bytes(&[self.zeros[at]]))
    }

    /// The decoded weight, outputs first unless it is a matrix by columns.
    fn build_weight(&self, b: &mut Builder) -> Result<ValueId, MilError> {
        let (n, k, taps) = (self.outputs, self.inputs, self.taps());
        let by_columns = self.form == Form::Matmul(false);
        let rows = self.weight();
        let all = match by_columns {
            true => (0..n * k).map(|i| rows[i % n * k + i / n]).collect(),
            false => rows,
        };
        let (shape, axis) = match self.form {
            Form::Conv(_) => (vec![n, k, taps, taps], 0),
            _ if by_columns => (vec![k, n], 1),
            _ => (vec![n, k], 0),
        };
        let scales: Vec<f64> = (0..n).map(|c| self.weight_scale(c)).collect();
        let (count, scales) = if self.per_channel { (n, &scales[..]) } else { (1, &scales[..1]) };
        let vector = if self.per_channel { vec![n] } else { Vec::new() };
        let axis_argument = ("axis", Constant::int32(axis as i32).into());
        let data = int8(&shape, &all);
        match self.decoder {
            0 => {
                let zeros = int8(&vector, &vec![0; count]);
                let scale = self.number(&vector, scales);
                let args: [(&str, Arg); 4] = [
                    ("quantized_data", data.into()),
                    ("scale", scale.into()),
                    ("zero_point", zeros.into()),
                    axis_argument,
                ];
                b.op("constexpr_affine_dequantize", "w", args)
            }
            1 => {
                let mut blocks = vec![1; shape.len()];
                blocks[axis] = count;
                let args: [(&str, Arg); 2] = [("data", data.into()), ("scale", self.number(&blocks, scales).into())];
                b.op("constexpr_blockwise_shift_scale", "w", args)
            }
            _ => {
                let codes = b.constant("codes", data)?;
                let mut args: Vec<(&str, Arg)> =
                    vec![("input", codes.into()), ("scale", self.number(&vector, scales).into())];
                if self.per_channel {
                    args.push(axis_argument);
                }
                b.op("dequantize", "w", args)
            }
        }
    }

    /// The program; its results are the codes, and the values that become codes if these are read,
    /// too.
    fn program(&self, after: &str, read: bool) -> Program {
        program(&[self.input()], |b, ids| {
            let scale = |at: usize| ("scale", Arg::from(self.number(&[], &[self.scales[at]])));
            let args = [("input", ids[0].into()), scale(0), ("zero_point", self.zero(0).into())];
            let x = b.op("dequantize", "x", args)?;
            let w = self.build_weight(b)?;
            let bias: Vec<f64> = (0..self.outputs).map(|c| self.bias(c)).collect();
            let bias = if self.bias { Some(b.constant("bias", self.number(&[self.outputs], &bias))?) } else { None };
            let same = Conv { pad_type: "same", ..Conv::default() };
            let mut y = match self.form {
                Form::Conv(_) => b.conv("y", x, w, bias, &same)?,
                Form::Linear => b.linear("y", x, w, bias)?,
                Form::Matmul(by_rows) => {
                    b.matmul("y", x, w, if by_rows { Transpose::Y } else { Transpose::Neither })?
                }
            };
            if !after.is_empty() {
                y = b.op(after, "after", [("x", y.into())])?;
            }
            let to = ("output_dtype", Constant::string(self.code_type(2 - 1).name()).into());
            let args = [("input", y.into()), scale(2), ("zero_point", self.zero(1).into()), to];
            let q = b.op("quantize", "q", args)?;
            // Ports have the channels of an image first, and codes in memory last.
            let last = |b: &mut Builder, x: ValueId| match self.is_image() {
                true => b.transpose("last", x, &[0, 2, 3, 1]),
                false => Ok(x),
            };
            let out = last(b, q)?;
            Ok(if read { vec![out, last(b, y)?] } else { vec![out] })
        })
    }

    /// What the results become codes of, in the order of the outputs: integers, one product, and
    /// fp16 if `halves`.
    fn values(&self, halves: bool) -> Vec<f64> {
        let (x, w, taps) = (self.input().values, self.weight(), self.taps());
        let (k, n, places) = (self.inputs, self.outputs, HEIGHT * WIDTH);
        let at = |image: usize, place: usize, channel: usize| {
            let i = if self.is_image() { channel * places + place } else { place * k + channel };
            x[image * k * places + i] as i64 - i64::from(self.zeros[0])
        };
        let value = |image: usize, place: usize, o: usize| {
            let mut sum = 0;
            for tap in 0..taps * taps {
                let row = (place / WIDTH + tap / taps).checked_sub(taps / 2).filter(|&r| r < HEIGHT);
                let col = (place % WIDTH + tap % taps).checked_sub(taps / 2).filter(|&c| c < WIDTH);
                let (Some(row), Some(col)) = (row, col) else { continue };
                for c in 0..k {
                    sum += at(image, row * WIDTH + col, c) * i64::from(w[(o * k + c) * taps * taps + tap]);
                }
            }
            let value = sum as f64 * self.scales[0] * self.weight_scale(o) + self.bias(o);
            let value = if self.relu { value.max(0.0) } else { value };
            match halves {
                true if value.abs() >= 65520.0 => value.signum() * f64::INFINITY,
                true => Ties::Even.half(value),
                false => value,
            }
        };
        (0..2 * places * n).map(|i| value(i / n / places, i / n % places, i % n)).collect()
    }

    /// The code of a value, before it is rounded.
    fn quotient(&self, value: f64) -> f64 {
        value / self.scales[2]
    }

    fn code(&self, quotient: f64) -> f64 {
        let (low, high) = self.range(1);
        (Ties::Even.whole(quotient) + f64::from(self.zeros[1])).clamp(low.into(), high.into())
    }
}

/// Layers with scales from an exponent.
fn layers(scale: impl Fn(i32) -> f64 + Copy + 'static) -> impl Strategy<Value = Layer> {
    let form = prop_oneof![
        Just(Form::Conv(1)),
        Just(Form::Conv(3)),
        Just(Form::Linear),
        Just(Form::Matmul(true)),
        Just(Form::Matmul(false)),
    ];
    let kinds = (form, 0usize..3, any::<[bool; 6]>());
    let numbers = ([-7i32..-1, -7..-1, -5..2], [0i32..256, 0..256], 1usize..40, 1usize..40, any::<u32>());
    (kinds, numbers).prop_map(move |((form, decoder, flags), (exponents, zeros, inputs, outputs, seed))| {
        let [full, first, second, per_channel, bias, relu] = flags;
        let zero = |signed: bool, zero: i32| if signed { zero - 128 } else { zero };
        Layer {
            form,
            decoder,
            dtype: if full { Fp32 } else { Fp16 },
            signed: [first, second],
            // A half of all operands is symmetric.
            zeros: [if zeros[0] < 128 && first { 0 } else { zero(first, zeros[0]) }, zero(second, zeros[1])],
            scales: exponents.map(scale),
            per_channel,
            bias: bias && !matches!(form, Form::Matmul(_)),
            relu,
            inputs,
            outputs,
            seed: seed.into(),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    /// Scales are powers of two, so every sum and product is exact in fp32.
    #[test]
    fn layers_have_the_bits_of_integers(layer in layers(|exponent| 2f64.powi(exponent))) {
        let program = layer.program(if layer.relu { "relu" } else { "" }, false);
        let names = steps(&program);
        prop_assert!(names.iter().any(|op| op.ends_with("+quantize")), "{names:?}");
        for numerics in [Numerics::Fast, Numerics::Exact] {
            let halves = layer.dtype == Fp16 && numerics == Numerics::Fast;
            let wanted: Vec<f64> = layer.values(halves).into_iter().map(|v| layer.code(layer.quotient(v))).collect();
            let found = run(numerics, &program, &[layer.input()]).unwrap();
            prop_assert_eq!(&found[0].values, &wanted, "{:?} of {:?}", numerics, &layer);
        }
    }

    /// Any scales: a code may be the next one where the value is near the middle between two.
    #[test]
    fn layers_are_near_integers(layer in layers(|exponent| crate::harness::half(1.37 * 2f64.powi(exponent)))) {
        let program = layer.program(if layer.relu { "relu" } else { "" }, false);
        let (low, high) = layer.range(1);
        for numerics in [Numerics::Fast, Numerics::Exact] {
            let found = run(numerics, &program, &[layer.input()]).unwrap();
            // Factors that are rounded to fp16 before they are multiplied are off by 2⁻¹¹ together,
            // and so is a result in fp16; a sum of terms of both signs has the error of its terms.
            let unit = if layer.dtype == Fp16 { 2f64.powi(-10) } else { 2f64.powi(-20) };
            let terms = 128.0 * 255.0 * (layer.inputs as f64 * layer.taps().pow(2) as f64).sqrt();
            for (i, (&found, value)) in found[0].values.iter().zip(layer.values(false)).enumerate() {
                let error = unit * (value.abs() + terms * layer.scales[0] * layer.scales[1] * 4.0);
                let code = |value: f64| Ties::Even.whole(layer.quotient(value)) + f64::from(layer.zeros[1]);
                let near = [value - error, value + error].map(|v| code(v).clamp(low.into(), high.into()));
                prop_assert!((near[0]..=near[1]).contains(&found), "{}: {} not {:?}, {:?}", i, found, near, &layer);
            }
        }
    }

    /// What is done before `quantize` has the same bits as where its operand is read elsewhere,
    /// too.
    #[test]
    fn steps_before_codes_have_their_own_bits(layer in layers(|exponent| 2f64.powi(exponent)), op in 0usize..6) {
        let op = ["", "silu", "relu6", "sigmoid", "square", "softplus"][op];
        let (joined, apart) = (layer.program(op, false), layer.program(op, true));
        let input = [layer.input()];
        let (found, wanted) =
            (run(Numerics::Fast, &joined, &input).unwrap(), run(Numerics::Fast, &apart, &input).unwrap());
        prop_assert_eq!(bits(&found[0]), bits(&wanted[0]), "{:?}", &layer);
        // The values themselves, from whose bits the codes follow. An infinite sum makes silu a
        // NaN, for which MIL defines no code.
        for (&found, &value) in found[0].values.iter().zip(&wanted[1].values).filter(|(_, v)| !v.is_nan()) {
            let code = layer.code((value as f32 / layer.scales[2] as f32).into());
            prop_assert_eq!(found, code, "{} in {:?}", value, &layer);
        }
    }
}
