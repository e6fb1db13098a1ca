//! What holds for every machine: groups equal their members, and bits do not depend on runs,
//! threads or the place in a batch.

use ferrane_arith::Accumulator;
use ferrane_emulator::{EmulatorOptions, Rules};
use ferrane_mil::{Constant, DataType, ReducedDims};

use super::{machine, run, with_rules};
use crate::harness::{self, Tensor};

const MACHINES: [&str; 3] = ["m1-macos15-inmem", "m4-macos15-inmem", "m5-macos26-inmem"];

fn bits(tensor: &Tensor) -> Vec<u8> {
    tensor.to_bytes()
}

/// Element-wise ops of two operands; those of one take the first.
const CHAIN: [(&str, bool); 14] = [
    ("mul", true),
    ("tanh", false),
    ("add", true),
    ("sigmoid", false),
    ("real_div", true),
    ("silu", false),
    ("sub", true),
    ("gelu", false),
    ("softplus", false),
    ("exp", false),
    ("maximum", true),
    ("sqrt", false),
    ("round", false),
    ("softsign", false),
];

#[test]
fn a_group_equals_its_members() {
    for profile in MACHINES {
        let options = machine(profile);
        for start in 0..CHAIN.len() {
            let chain: Vec<_> = CHAIN.iter().cycle().skip(start).take(6).collect();
            let mut inputs = [3, 4].map(|seed| Tensor::random(DataType::Fp16, &[1, 7, 1, 300], seed + start as u64));
            inputs[0].values.iter_mut().for_each(|v| *v = harness::half(*v * 9.0));
            inputs[0].values[5] = f64::NAN;
            inputs[0].values[6] = f64::NEG_INFINITY;
            inputs[1].values[7] = 0.0;
            let fused = harness::program(&inputs, |b, ids| {
                let mut x = ids[0];
                for (i, (op, two)) in chain.iter().enumerate() {
                    let mut args = vec![("x", x.into())];
                    if *two {
                        args.push(("y", ids[1].into()));
                    }
                    x = b.op(op, &format!("v{i}"), args)?;
                }
                Ok(vec![x])
            });
            let whole = run(&options, &fused, &inputs).unwrap();
            let mut x = inputs[0].clone();
            for (op, two) in chain {
                let given = [x, inputs[1].clone()];
                let given = if *two { &given[..] } else { &given[..1] };
                let single = harness::program(given, |b, ids| {
                    let mut args = vec![("x", ids[0].into())];
                    if *two {
                        args.push(("y", ids[1].into()));
                    }
                    Ok(vec![b.op(op, "v", args)?])
                });
                x = run(&options, &single, given).unwrap().remove(0);
            }
            assert_eq!(bits(&whole[0]), bits(&x), "{profile} from {start}");
        }
    }
}

/// A projection, attention and a norm over a batch of equal items.
fn batch(options: &EmulatorOptions, items: usize) -> Vec<u8> {
    let one = Tensor::random(DataType::Fp16, &[1, 2, 24, 40], 11);
    let values = one.values.iter().copied().cycle().take(one.values.len() * items).map(|v| v * 3.0).collect();
    let x = Tensor::new(DataType::Fp16, &[items, 2, 24, 40], values);
    let w = Tensor::random(DataType::Fp16, &[40, 72], 12);
    let program = harness::program(&[x.clone(), w.clone()], |b, ids| {
        let h = b.op("matmul", "h", [("x", ids[0].into()), ("y", ids[1].into())])?;
        let a =
            b.op("matmul", "a", [("x", h.into()), ("y", h.into()), ("transpose_y", Constant::bool(true).into())])?;
        let p = b.softmax("p", a, -1)?;
        let y = b.op("matmul", "y", [("x", p.into()), ("y", h.into())])?;
        let sum = b.op("mul", "s", [("x", y.into()), ("y", y.into())])?;
        let norm = b.reduce_mean("n", sum, &[-1], ReducedDims::Keep)?;
        Ok(vec![b.op("mul", "out", [("x", y.into()), ("y", norm.into())])?])
    });
    bits(&run(options, &program, &[x, w]).unwrap()[0])
}

#[test]
fn bits_do_not_depend_on_threads_runs_or_the_place_in_a_batch() {
    let wide = Rules { accumulator: Accumulator::Wide, ..Rules::published() };
    for options in MACHINES.map(machine).into_iter().chain([with_rules(wide)]) {
        let one = batch(&options, 1);
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            for items in [1, 2, 9] {
                let found = pool.install(|| batch(&options, items));
                assert!(
                    found.chunks(one.len()).all(|item| item == one),
                    "{:?} {threads} {items}",
                    options.profile.subject
                );
            }
        }
    }
}

/// Sums close to the edge of the accumulator, where some elements are decided one by one.
#[test]
fn elements_near_the_ceiling_are_those_of_the_scalar_rules() {
    let scale = |mut t: Tensor, by: f64| {
        t.values.iter_mut().for_each(|v| *v = harness::half(*v * by));
        t
    };
    let (m, k, n) = (9, 70, 37);
    let all = [Accumulator::Grid, Accumulator::Tiles, Accumulator::Wide];
    let cases = [(1.0, 1.0), (0.01, 0.003), (900.0, 40.0), (60000.0, 0.9), (2000.0, 3000.0)];
    for (accumulator, (left, right)) in all.into_iter().flat_map(|a| cases.map(|c| (a, c))) {
        let rules = Rules { accumulator, ..Rules::published() };
        let x = scale(Tensor::random(DataType::Fp16, &[m, k], 5), left);
        let y = scale(Tensor::random(DataType::Fp16, &[k, n], 6), right);
        let program = harness::program(&[x.clone(), y.clone()], |b, ids| {
            b.ops("matmul", "p", vec![("x", ids[0].into()), ("y", ids[1].into())])
        });
        let found = run(&with_rules(rules.clone()), &program, &[x.clone(), y.clone()]).unwrap().remove(0);
        for i in 0..m {
            for j in 0..n {
                let a: Vec<f32> = (0..k).map(|c| x.values[i * k + c] as f32).collect();
                let b: Vec<f32> = (0..k).map(|c| y.values[c * n + j] as f32).collect();
                assert_eq!(
                    found.values[i * n + j],
                    f64::from(rules.product(&a, &b, 0.0)),
                    "{accumulator:?} {left} {right} {i} {j}"
                );
            }
        }
    }
}

#[test]
fn sums_down_columns_are_sums_along_rows() {
    let x = Tensor::random(DataType::Fp16, &[90, 300], 21);
    let mut turned = Tensor::new(DataType::Fp16, &[300, 90], vec![0.0; 27_000]);
    for (i, v) in x.values.iter().enumerate() {
        turned.values[i % 300 * 90 + i / 300] = *v;
    }
    for options in MACHINES.map(machine) {
        for op in ["reduce_sum", "reduce_mean", "reduce_max", "reduce_sum_square"] {
            for is_product in [false, true] {
                let reduce = |x: &Tensor, axis: i32| {
                    let program = harness::program(std::slice::from_ref(x), |b, ids| {
                        let x = if is_product {
                            b.op("mul", "p", [("x", ids[0].into()), ("y", ids[0].into())])?
                        } else {
                            ids[0]
                        };
                        b.ops(op, "y", vec![("x", x.into()), ("axes", Constant::int32s(&[axis]).into())])
                    });
                    bits(&run(&options, &program, std::slice::from_ref(x)).unwrap()[0])
                };
                assert_eq!(reduce(&x, 1), reduce(&turned, 0), "{op} {is_product}");
            }
        }
    }
}
