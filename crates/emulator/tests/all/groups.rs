//! The laws: a group equals its members bit for bit, and nothing depends on the number of threads.

use ferrane_emulator::{Emulator, EmulatorOptions, Numerics};
use ferrane_mil::{Constant, DataType, MilError, Program, ReducedDims, Transpose, ValueId};
use proptest::prelude::*;

use crate::harness::{BOTH, Tensor, half, program, run};

use DataType::Fp16;

/// One element-wise op: its name and which earlier values it takes.
type Node = (usize, usize, usize);

const OPS: [&str; 14] = [
    "add", "sub", "mul", "maximum", "minimum", "real_div", "sigmoid", "tanh", "relu", "exp", "abs", "square", "silu",
    "identity",
];
const BINARY: usize = 6;

/// The DAG over three inputs of different broadcasts. Values `taps` are outputs; with `all`, every
/// value is one, so that each op is stored and none of its results stays in a register.
fn graph(inputs: &[Tensor], nodes: &[Node], taps: &[usize], all: bool) -> Program {
    program(inputs, |b, ids| -> Result<Vec<ValueId>, MilError> {
        let mut values = ids.to_vec();
        // The full shape first, so that every op has it.
        values.push(b.add("base", ids[0], ids[1])?);
        let first = values.len() - 1;
        for &(op, x, y) in nodes {
            let (x, y) = (values[first + x % (values.len() - first)], values[y % values.len()]);
            let value = match OPS[op] {
                name if op < BINARY => b.op(name, "v", [("x", x.into()), ("y", y.into())])?,
                name => b.op(name, "v", [("x", x.into())])?,
            };
            values.push(value);
        }
        let made = &values[first..];
        let mut outputs: Vec<ValueId> = taps.iter().map(|t| made[t % made.len()]).collect();
        outputs.push(made[made.len() - 1]);
        if all {
            outputs.extend(made);
        }
        Ok(outputs)
    })
}

/// Bits, with one NaN for all: which NaN an operation returns is not specified.
fn bits(t: &Tensor) -> Vec<u64> {
    t.values.iter().map(|v| if v.is_nan() { u64::MAX } else { v.to_bits() }).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn a_group_equals_its_members(
        nodes in prop::collection::vec((0..OPS.len(), 0..20usize, 0..20usize), 1..24),
        taps in prop::collection::vec(0..24usize, 0..3),
        (c, h, w) in (1..5usize, 1..7usize, 1..90usize),
        seed in any::<u64>(),
    ) {
        let inputs = [
            Tensor::random(Fp16, &[1, c, h, w], seed),
            Tensor::random(Fp16, &[1, 1, h, 1], seed ^ 1),
            Tensor::random(Fp16, &[1, c, 1, w], seed ^ 2),
        ];
        for numerics in BOTH {
            let fused = run(numerics, &graph(&inputs, &nodes, &taps, false), &inputs).unwrap();
            let apart = run(numerics, &graph(&inputs, &nodes, &taps, true), &inputs).unwrap();
            for (f, a) in fused.iter().zip(&apart) {
                prop_assert_eq!(bits(f), bits(a), "{:?}", numerics);
            }
            // One program for each op: every value is stored to a surface and read back.
            if numerics == Numerics::Fast {
                let mut values = inputs.to_vec();
                let one = |x: &Tensor, y: &Tensor, op: usize| {
                    let pair = [x.clone(), y.clone()];
                    let p = program(&pair, |b, ids| Ok(vec![match op < BINARY {
                        true => b.op(OPS[op], "v", [("x", ids[0].into()), ("y", ids[1].into())])?,
                        false => b.op(OPS[op], "v", [("x", ids[0].into())])?,
                    }]));
                    run(numerics, &p, &pair).unwrap().remove(0)
                };
                values.push(one(&values[0], &values[1], 0));
                for &(op, x, y) in &nodes {
                    let (x, y) = (&values[3 + x % (values.len() - 3)], &values[y % values.len()]);
                    let value = one(x, y, op);
                    values.push(value);
                }
                let last = values.len() - 1;
                prop_assert_eq!(bits(&fused[fused.len() - 1]), bits(&values[last]));
            }
        }
    }
}

#[test]
fn an_operand_that_closes_a_group_does_not_lead_to_a_wrong_one() {
    // Two groups are open when `sum` comes: the rows', which its first operand closes, and its own,
    // of its second operand.
    let inputs =
        [Tensor::new(Fp16, &[1, 3], vec![1.0, -2.0, 3.0]), Tensor::new(Fp16, &[2, 3], (0..6).map(f64::from).collect())];
    let program = program(&inputs, |b, ids| {
        let row = b.op("relu", "row", [("x", ids[0].into())])?;
        let full = b.op("square", "full", [("x", ids[1].into())])?;
        let sum = b.add("sum", row, full)?;
        Ok(vec![b.mul("product", sum, full)?])
    });
    for numerics in BOTH {
        let found = run(numerics, &program, &inputs).unwrap().remove(0).values;
        assert_eq!(found, [0.0, 1.0, 28.0, 90.0, 256.0, 700.0], "{numerics:?}");
    }
}

/// Something of everything that sums or is cut for threads.
fn mixed() -> (Program, Vec<Tensor>) {
    let inputs = vec![Tensor::random(Fp16, &[1, 48, 3, 700], 1), Tensor::random(Fp16, &[1, 48, 700, 64], 2)];
    let program = program(&inputs, |b, ids| {
        let product = b.matmul("product", ids[0], ids[1], Transpose::Neither)?;
        let soft = b.softmax("soft", ids[0], -1)?;
        let columns = b.softmax("columns", ids[0], 1)?;
        let down = b.reduce_sum("down", ids[0], &[1], ReducedDims::Keep)?;
        let across = b.reduce_sum("across", ids[0], &[3], ReducedDims::Keep)?;
        let gate = b.silu("silu", ids[0])?;
        let gate = b.mul("gate", gate, down)?;
        let norm = b.layer_norm("norm", gate, &[1], None, None, 1e-5)?;
        let w = Tensor::random(Fp16, &[40, 48, 3, 3], 4);
        let w = b.constant("w", Constant::raw(Fp16, &w.shape, &w.to_bytes()))?;
        let conv = b.conv("conv", norm, w, None, &ferrane_mil::Conv::default())?;
        Ok(vec![product, soft, columns, across, conv])
    });
    (program, inputs)
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let (program, inputs) = mixed();
    for numerics in BOTH {
        let with = |n: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap();
            pool.install(|| run(numerics, &program, &inputs).unwrap())
        };
        let one = with(1);
        for threads in [2, 3] {
            let many = with(threads);
            for (a, b) in one.iter().zip(&many) {
                assert_eq!(bits(a), bits(b), "{numerics:?} with {threads} threads");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// The loops have the order of the result's memory, and constants are copied into it.
    #[test]
    fn tables_have_their_values_in_every_order_of_the_loops(
        (heads, rows, width) in (1..4usize, 1..40usize, 1..40usize),
        has in any::<[bool; 3]>(),
        order in prop::sample::select(vec![[0, 1, 2, 3], [0, 1, 3, 2], [0, 2, 3, 1], [0, 3, 2, 1], [0, 3, 1, 2]]),
        seed in any::<u64>(),
    ) {
        let shape = [1, heads, rows, width];
        let inputs = [Tensor::random(Fp16, &shape, seed)];
        let extent = |axis: usize| if has[axis - 1] { shape[axis] } else { 1 };
        let table = Tensor::random(Fp16, &[1, extent(1), extent(2), extent(3)], seed ^ 1);
        let program = program(&inputs, |b, ids| {
            let constant = b.constant("table", Constant::raw(Fp16, &table.shape, &table.to_bytes()))?;
            let product = b.mul("product", ids[0], constant)?;
            let sum = b.add("sum", product, ids[0])?;
            Ok(vec![b.transpose("y", sum, &order)?])
        });
        let turned = order.map(|axis| shape[axis as usize]);
        let found = run(Numerics::Fast, &program, &inputs).unwrap().remove(0);
        for (i, &value) in found.values.iter().enumerate() {
            let (mut at, mut rest) = ([0; 4], i);
            for (axis, &extent) in order.iter().zip(&turned).rev() {
                (at[*axis as usize], rest) = (rest % extent, rest / extent);
            }
            let x = inputs[0].values[(at[1] * rows + at[2]) * width + at[3]];
            let [h, r, c] = [1, 2, 3].map(|axis| at[axis] % extent(axis));
            let factor = table.values[(h * extent(2) + r) * extent(3) + c];
            prop_assert_eq!(value, half(half(x * factor) + x), "{}", i);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// A rotation writes the halves of a row, each computed from both: one step, which stores
    /// nothing but the result.
    #[test]
    fn parts_of_a_row_are_written_side_by_side(
        parts in 2..5usize,
        (heads, rows, width) in (1..4usize, 1..400usize, prop::sample::select(vec![1, 3, 16, 32, 40])),
        transposed in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let shape = if transposed { [1, rows, heads, parts * width] } else { [1, heads, rows, parts * width] };
        let inputs = [Tensor::random(Fp16, &shape, seed), Tensor::random(Fp16, &[1, 1, rows, width], seed ^ 1)];
        let int = |n: usize| n as i32;
        let program = program(&inputs, |b, ids| {
            let x = if transposed { b.transpose("turned", ids[0], &[0, 2, 1, 3])? } else { ids[0] };
            let size = [1, int(heads), int(rows), int(width)];
            let slice = |b: &mut ferrane_mil::Builder, p: usize| {
                b.slice_by_size(&format!("part{p}"), x, &[0, 0, 0, int(p * width)], &size)
            };
            let slices: Vec<ValueId> = (0..parts).map(|p| slice(b, p)).collect::<Result<_, _>>()?;
            let mut made = Vec::new();
            for p in 0..parts {
                let product = b.mul(&format!("product{p}"), slices[p], ids[1])?;
                let other = slices[(p + 1) % parts];
                made.push(if p == 0 { b.sub("part", product, other)? } else { b.add(&format!("sum{p}"), product, other)? });
            }
            Ok(vec![b.concat("y", &made, 3)?])
        });
        let steps = Emulator::new(EmulatorOptions::default()).time_steps(&program, 1).unwrap();
        prop_assert_eq!(steps.len(), 1, "{:?}", steps);
        let found = run(Numerics::Fast, &program, &inputs).unwrap().remove(0);
        let row = parts * width;
        for (i, &value) in found.values.iter().enumerate() {
            let (h, t, p, c) = (i / row / rows, i / row % rows, i % row / width, i % width);
            let line = if transposed { t * heads + h } else { h * rows + t };
            let at = |p: usize| inputs[0].values[line * row + p * width + c];
            let product = half(at(p) * inputs[1].values[t * width + c]);
            let other = at((p + 1) % parts);
            prop_assert_eq!(value, half(if p == 0 { product - other } else { product + other }), "{}", i);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, ..ProptestConfig::default() })]

    /// Groups with a fused loop, compared with the same groups whose members are outputs, too, and
    /// so are stored one by one.
    #[test]
    fn a_gate_and_a_rotation_equal_their_members(
        (heads, rows, width) in (1..4usize, 1..40usize, prop::sample::select(vec![1, 3, 16, 32, 40, 128, 700])),
        [transposed, rotation, silu, back, turned, swapped] in any::<[bool; 6]>(),
        seed in any::<u64>(),
    ) {
        let shape = if transposed { [1, rows, heads, 2 * width] } else { [1, heads, rows, 2 * width] };
        let inputs = [Tensor::random(Fp16, &shape, seed), Tensor::random(Fp16, &[1, 1, rows, 2 * width], seed ^ 1)];
        let int = |n: usize| n as i32;
        let program = |members: bool| program(&inputs, |b, ids| {
            let x = if transposed { b.transpose("turned", ids[0], &[0, 2, 1, 3])? } else { ids[0] };
            let half = |b: &mut ferrane_mil::Builder, name: &str, from: ValueId, heads: usize, p: usize| {
                b.slice_by_size(name, from, &[0, 0, 0, int(p * width)], &[1, int(heads), int(rows), int(width)])
            };
            let (low, high) = (half(b, "low", x, heads, 0)?, half(b, "high", x, heads, 1)?);
            let (cos, sin) = (half(b, "cos", ids[1], 1, 0)?, half(b, "sin", ids[1], 1, 1)?);
            let mut made = Vec::new();
            let mul = |b: &mut ferrane_mil::Builder, made: &mut Vec<ValueId>, name: &str, x: ValueId, y: ValueId| {
                made.push(if swapped { b.mul(name, y, x)? } else { b.mul(name, x, y)? });
                Ok::<_, MilError>(made[made.len() - 1])
            };
            let y = if !rotation {
                let function = if silu { b.silu("silu", low)? } else { b.sigmoid("sigmoid", low)? };
                made.push(function);
                // No gate, if it is another factor.
                let factor = if turned { high } else { low };
                let function = if silu { function } else { mul(b, &mut made, "silu", factor, function)? };
                b.mul("gate", function, high)?
            } else {
                let low_cos = mul(b, &mut made, "low_cos", low, cos)?;
                let high_sin = mul(b, &mut made, "high_sin", high, sin)?;
                let high_cos = mul(b, &mut made, "high_cos", high, cos)?;
                let low_sin = mul(b, &mut made, "low_sin", low, sin)?;
                let sum = |b: &mut ferrane_mil::Builder, name: &str, x: ValueId, y: ValueId| {
                    if turned { b.add(name, y, x) } else { b.add(name, x, y) }
                };
                let (first, second) = if back {
                    (sum(b, "first", low_cos, high_sin)?, b.sub("second", high_cos, low_sin)?)
                } else {
                    (b.sub("first", low_cos, high_sin)?, sum(b, "second", high_cos, low_sin)?)
                };
                made.extend([first, second]);
                b.concat("rotated", &[first, second], 3)?
            };
            let mut outputs = vec![y];
            if members {
                outputs.extend(made);
            }
            Ok(outputs)
        });
        let short = run(Numerics::Fast, &program(false), &inputs).unwrap();
        let long = run(Numerics::Fast, &program(true), &inputs).unwrap();
        prop_assert_eq!(bits(&short[0]), bits(&long[0]));
    }
}
