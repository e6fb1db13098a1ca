//! Passes on random programs: straight lines over small shapes, every pass alone and all together.

use ferrane_mil::{Arg, Builder, Constant, DataType, MilError, ReducedDims, ValueId};
use proptest::prelude::*;

use crate::harness::{Tensor, program};
use crate::passes::every_pass;

/// One op: which, what it reads, and a number for its details.
type Draw = (u8, usize, usize, u64);

/// Adds one op that keeps values of about the size they have, or nothing where it does not fit.
fn step(b: &mut Builder, values: &[ValueId], (kind, i, j, detail): Draw) -> Result<ValueId, MilError> {
    let (x, y) = (values[i % values.len()], values[j % values.len()]);
    let shape = b.shape(x)?;
    let dtype = b.ty(x).dtype().unwrap_or(DataType::Fp16);
    let pick = |n: usize| (detail % n.max(1) as u64) as usize;
    let random = |shape: &[usize]| Constant::raw(dtype, shape, &Tensor::random(dtype, shape, detail).to_bytes());
    let number = |v: f32| if dtype == DataType::Fp16 { Constant::fp16(v) } else { Constant::fp32(v) };
    let two = |b: &mut Builder, op: &str, x: Arg, y: Arg| b.op(op, "v", [("x", x), ("y", y)]);
    match kind {
        0 => b.op(["relu", "tanh", "sigmoid", "abs", "identity", "silu"][pick(6)], "v", [("x", x.into())]),
        1 => two(b, ["add", "mul", "sub", "maximum"][pick(4)], x.into(), y.into()),
        2 => {
            let value = [0.0, -0.0, 1.0, 0.5][pick(4)];
            two(b, ["add", "mul", "sub"][(detail / 4 % 3) as usize], x.into(), number(value).into())
        }
        3 => {
            let mut perm: Vec<i32> = (0..shape.len() as i32).collect();
            let places = perm.len();
            if places > 0 {
                perm.swap(pick(places), (detail / 7) as usize % places);
            }
            b.transpose("v", x, &perm)
        }
        4 => {
            let elements: usize = shape.iter().product();
            let shapes = [vec![-1], vec![1, elements as i32], shape.iter().map(|&n| n as i32).collect()];
            b.reshape("v", x, &shapes[pick(3)])
        }
        5 => b.expand_dims("v", x, &[pick(shape.len() + 1) as i32]),
        6 => b.squeeze("v", x, &[shape.iter().position(|&n| n == 1).unwrap_or(9) as i32]),
        7 => {
            let other = if dtype == DataType::Fp16 { DataType::Fp32 } else { DataType::Fp16 };
            b.cast("v", x, if detail % 3 == 0 { dtype } else { other })
        }
        8 => {
            let parts: &[ValueId] = if detail % 2 == 0 { &[x] } else { &[x, y] };
            b.concat("v", parts, pick(shape.len()) as i32)
        }
        9 => {
            let (begin, mut size) = (vec![0; shape.len()], shape.iter().map(|&n| n as i32).collect::<Vec<_>>());
            let places = size.len();
            if let Some(n) = size.get_mut(pick(places)) {
                *n = if detail % 2 == 0 { -1 } else { 1 };
            }
            b.slice_by_size("v", x, &begin, &size)
        }
        10 => b.reduce_mean(
            "v",
            x,
            &[pick(shape.len()) as i32],
            if detail % 2 == 0 { ReducedDims::Keep } else { ReducedDims::Drop },
        ),
        11 => b.softmax("v", x, pick(shape.len()) as i32),
        12 => {
            let gate = b.sigmoid("gate", x)?;
            b.mul("v", x, gate)
        }
        13 => {
            let axis = pick(shape.len());
            let last = shape.len().saturating_sub(1);
            let gamma = b.constant("gamma", random(&shape[last..]))?;
            match detail % 2 {
                0 => b.layer_norm("v", x, &[-1], Some(gamma), None, 0.125),
                _ => b.layer_norm("v", x, &[axis as i32], None, None, 0.125),
            }
        }
        14 if shape.len() == 4 => {
            let w = b.constant("w", random(&[3, shape[1], 1, 1]))?;
            let c = b.conv("c", x, w, None, &Default::default())?;
            match detail % 3 {
                0 => two(b, "add", c.into(), random(&[1, 3, 1, 1]).into()),
                1 => b.op(
                    "batch_norm",
                    "v",
                    [
                        ("x", c.into()),
                        ("mean", random(&[3]).into()),
                        (
                            "variance",
                            Constant::raw(dtype, &[3], &Tensor::new(dtype, &[3], vec![1.0; 3]).to_bytes()).into(),
                        ),
                    ],
                ),
                _ => Ok(c),
            }
        }
        15 if shape.len() <= 3 => {
            let w = b.constant("w", random(&[4, *shape.last().unwrap_or(&1)]))?;
            b.linear("v", x, w, None)
        }
        16 => {
            let k = b.constant("k", random(&[2, 3]))?;
            let t = b.transpose("kt", k, &[1, 0])?;
            let r = b.reduce_mean("r", t, &[0, 1], ReducedDims::Drop)?;
            b.mul("v", x, r)
        }
        _ => b.op("gelu", "v", [("x", x.into())]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..Default::default() })]

    #[test]
    fn random_programs_stay_the_same(
        draws in prop::collection::vec((0u8..18, 0usize..32, 0usize..32, 0u64..1000), 1..16),
        half in any::<bool>(),
        seed in 0u64..1000,
    ) {
        let dtype = if half { DataType::Fp16 } else { DataType::Fp32 };
        let inputs = vec![Tensor::random(dtype, &[1, 3, 2, 3], seed), Tensor::random(dtype, &[1, 3, 2, 3], seed + 1)];
        let program = program(&inputs, |b, v| {
            let mut values = v.to_vec();
            for draw in draws {
                // What does not fit is left out.
                values.extend(step(b, &values, draw).ok());
            }
            // Bounded, so that no result is lost in another's magnitude.
            let last = values[values.len() - 1];
            let middle = values[values.len() / 2];
            Ok(vec![b.tanh("end", last)?, last, middle])
        });
        every_pass(&program, &inputs).map_err(|e| TestCaseError::fail(format!("{e}\n{}", ferrane_mil::print(&program))))?;
    }
}
