//! Products with weights that stay codes, compared with those of decoded weights.

use ferrane_device::Device;
use ferrane_emulator::{Emulator, EmulatorOptions, Numerics};
use ferrane_host::f16;
use ferrane_mil::{Builder, Constant, Conv, DataType, MilError, Program, Transpose, ValueId};

use crate::harness::{Tensor, close, program, run};

use DataType::{Fp16, Fp32, Int4, Int8, UInt4, UInt6};

const ROWS: usize = 72;
const COLS: usize = 96;

/// A weight `[ROWS, COLS]`: the arguments of its `constexpr_*` op for a shape, and its values.
struct Weight {
    op: &'static str,
    dtype: DataType,
    codes: Vec<u8>,
    /// Scales `[rows, blocks]`, or palettes `[tables, entries]`.
    numbers: Tensor,
    values: Vec<f64>,
}

fn bits(dtype: DataType) -> usize {
    dtype.bits().unwrap()
}

/// Codes from a small generator, packed from the lowest bit of the first byte on.
fn codes(dtype: DataType, seed: u64) -> (Vec<u8>, Vec<u64>) {
    let mut state = seed;
    let all: Vec<u64> = (0..ROWS * COLS)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) & ((1 << bits(dtype)) - 1)
        })
        .collect();
    let mut bytes = vec![0u8; (ROWS * COLS * bits(dtype)).div_ceil(8)];
    for (i, code) in all.iter().enumerate() {
        for bit in 0..bits(dtype) {
            bytes[(i * bits(dtype) + bit) / 8] |= ((code >> bit & 1) as u8) << ((i * bits(dtype) + bit) % 8);
        }
    }
    (bytes, all)
}

fn scaled(dtype: DataType, blocks: usize) -> Weight {
    let (bytes, all) = codes(dtype, 7);
    let mut numbers = Tensor::random(Fp16, &[ROWS, blocks], 3);
    numbers.values.iter_mut().for_each(|v| *v = f16::from_f64(*v * 0.05).to_f64());
    let shift = 64 - bits(dtype);
    let value = |i: usize| {
        let code = ((all[i] << shift) as i64) >> shift;
        let scale = numbers.values[i / COLS * blocks + i % COLS / (COLS / blocks)];
        f16::from_f64(code as f64 * scale).to_f64()
    };
    let values = (0..ROWS * COLS).map(value).collect();
    Weight { op: "constexpr_blockwise_shift_scale", dtype, codes: bytes, numbers, values }
}

fn palette(dtype: DataType, tables: usize) -> Weight {
    let (bytes, all) = codes(dtype, 9);
    let entries = 1 << bits(dtype);
    let numbers = Tensor::random(Fp16, &[tables, entries], 5);
    let value = |i: usize| numbers.values[i / COLS / (ROWS / tables) * entries + all[i] as usize];
    let values = (0..ROWS * COLS).map(value).collect();
    Weight { op: "constexpr_lut_to_dense", dtype, codes: bytes, numbers, values }
}

impl Weight {
    /// The weight with extents of 1 before and after those of the matrix.
    fn build(&self, b: &mut Builder, before: usize, after: usize) -> Result<ValueId, MilError> {
        let shape = |rows: usize, cols: usize| [vec![1; before], vec![rows, cols], vec![1; after]].concat();
        let data = Constant::raw(self.dtype, &shape(ROWS, COLS), &self.codes);
        let bytes = self.numbers.to_bytes();
        match self.op {
            "constexpr_lut_to_dense" => {
                let lut = [shape(self.numbers.shape[0], 1), vec![self.numbers.shape[1], 1]].concat();
                b.op(self.op, "w", [("indices", data.into()), ("lut", Constant::raw(Fp16, &lut, &bytes).into())])
            }
            _ => {
                let scale = Constant::raw(Fp16, &shape(ROWS, self.numbers.shape[1]), &bytes);
                b.op(self.op, "w", [("data", data.into()), ("scale", scale.into())])
            }
        }
    }

    fn decoded(&self, b: &mut Builder, before: usize, after: usize) -> Result<ValueId, MilError> {
        let shape = [vec![1; before], vec![ROWS, COLS], vec![1; after]].concat();
        b.constant("w", Constant::raw(Fp16, &shape, &Tensor::new(Fp16, &shape, self.values.clone()).to_bytes()))
    }
}

fn weights() -> Vec<Weight> {
    vec![
        scaled(Int4, 3),
        scaled(Int4, 1),
        // Blocks of 16, which no kernel sums.
        scaled(Int4, 6),
        scaled(Int8, 3),
        scaled(Int8, 1),
        palette(UInt4, 1),
        palette(UInt4, 8),
        palette(UInt6, 1),
    ]
}

/// An op with the weight, for `count` positions: its input, and its program with a weight.
type Case = (Tensor, fn(&mut Builder, ValueId, ValueId) -> Result<ValueId, MilError>, [usize; 2]);

fn cases(count: usize) -> Vec<Case> {
    vec![
        (
            Tensor::random(Fp16, &[count, COLS], 1),
            |b, x, w| {
                let values = Tensor::random(Fp16, &[ROWS], 11);
                let bias = b.constant("bias", Constant::raw(Fp16, &[ROWS], &values.to_bytes()))?;
                b.op("linear", "y", [("x", x.into()), ("weight", w.into()), ("bias", bias.into())])
            },
            [0, 0],
        ),
        (Tensor::random(Fp16, &[1, 2, count, COLS], 2), |b, x, w| b.matmul("y", x, w, Transpose::Y), [2, 0]),
        (
            Tensor::random(Fp16, &[1, COLS, 1, count], 3),
            |b, x, w| {
                let values = Tensor::random(Fp16, &[ROWS], 12);
                let bias = b.constant("bias", Constant::raw(Fp16, &[ROWS], &values.to_bytes()))?;
                let y = b.conv("y", x, w, Some(bias), &Conv::default())?;
                b.relu("z", y)
            },
            [0, 2],
        ),
        // Padded, as a causal layer is.
        (
            Tensor::random(Fp16, &[1, COLS, 1, count], 4),
            |b, x, w| {
                let pad = Constant::int32s(&[0, 0, 2, 1]);
                let padded = b.op("pad", "padded", [("x", x.into()), ("pad", pad.into())])?;
                b.conv("y", padded, w, None, &Conv::default())
            },
            [0, 2],
        ),
    ]
}

#[test]
fn products_of_codes_are_near_those_of_decoded_weights() {
    for weight in weights() {
        for count in [1, 5, 20, 64] {
            for (x, op, [before, after]) in cases(count) {
                let build = |coded: bool| -> Program {
                    program(std::slice::from_ref(&x), |b, ids| {
                        let w = if coded { weight.build(b, before, after) } else { weight.decoded(b, before, after) }?;
                        Ok(vec![op(b, ids[0], w)?])
                    })
                };
                for numerics in [Numerics::Fast, Numerics::Exact] {
                    let found = run(numerics, &build(true), std::slice::from_ref(&x)).unwrap();
                    let wanted = run(numerics, &build(false), std::slice::from_ref(&x)).unwrap();
                    assert_eq!(found[0].shape, wanted[0].shape);
                    // The oracle differs by the order of fp32 sums. `fast` also sums weights that
                    // are not rounded to fp16: each is off by up to 2⁻¹² of itself, independently,
                    // so this bound is more than ten standard deviations. One unit of fp16 for
                    // both.
                    let largest = weight.values.iter().fold(0.0f64, |top, v| top.max(v.abs()));
                    let unrounded = largest * (COLS as f64).sqrt() / 2048.0;
                    let absolute = if numerics == Numerics::Exact { 1e-4 } else { unrounded.max(1e-4) };
                    let what = format!("{} {} {:?} {count} {numerics:?}", weight.op, weight.dtype, x.shape);
                    close(&found[0].values, &wanted[0].values, absolute, 1e-3)
                        .unwrap_or_else(|e| panic!("{what}: {e}"));
                }
            }
        }
    }
}

/// int8 weights as inputs, as a decode program has them: few rows are multiplied by widened codes,
/// many by integers.
#[test]
fn products_of_int8_inputs_are_near_the_exact_ones() {
    for (count, cols) in [(5, 96), (17, 96), (50, 160), (50, 90)] {
        let x = Tensor::random(Fp16, &[1, 1, count, cols], 1);
        let mut weight = Tensor::random(Fp32, &[1, 1, ROWS, cols], 2);
        weight.values.iter_mut().for_each(|v| *v = (*v * 100.0).round().clamp(-128.0, 127.0));
        weight.dtype = Int8;
        let inputs = [x, weight];
        let program = program(&inputs, |b, ids| {
            let codes = b.cast("codes", ids[1], Fp16)?;
            Ok(vec![b.matmul("y", ids[0], codes, Transpose::Y)?])
        });
        let wanted = run(Numerics::Exact, &program, &inputs).unwrap();
        let found = run(Numerics::Fast, &program, &inputs).unwrap();
        // Each activation is off by up to 2⁻¹⁵ of the largest of its block, which is far below one
        // unit of fp16 of these sums: that unit is the tolerance.
        close(&found[0].values, &wanted[0].values, 0.05, 1e-3).unwrap_or_else(|e| panic!("{count} {cols}: {e}"));
    }
}

#[test]
fn codes_are_in_memory_once() {
    let x = Tensor::random(Fp16, &[1, COLS], 1);
    let constants = |build: &dyn Fn(&mut Builder) -> Result<ValueId, MilError>, both: bool| {
        let program = program(std::slice::from_ref(&x), |b, ids| {
            let w = build(b)?;
            let y = b.op("linear", "y", [("x", ids[0].into()), ("weight", w.into())])?;
            // Another reader wants the values.
            Ok(if both { vec![y, b.add("z", ids[0], w)?] } else { vec![y] })
        });
        let device = Device::new(Emulator::new(EmulatorOptions::default()));
        let once = device.load(&program, "once").unwrap();
        let constants = device.footprint().constants;
        let again = device.load(&program, "again").unwrap();
        assert_eq!((once.procedures().len(), again.procedures().len()), (1, 1));
        (constants, device.footprint().constants)
    };
    let weight = scaled(Int4, 3);
    let (coded, twice) = constants(&|b| weight.build(b, 0, 0), false);
    // Codes, scales, and a zero bias.
    let packed = ROWS * COLS / 2 + 2 * ROWS * 3;
    assert!((packed..packed + 1024).contains(&coded), "{coded}, not {packed}");
    assert!(twice < packed + 2048, "{twice}");
    let (decoded, _) = constants(&|b| weight.build(b, 0, 0), true);
    assert!(decoded >= 4 * ROWS * COLS, "{decoded}");
}
