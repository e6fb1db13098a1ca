//! Random programs: the plan and the interpreter give the same bits.

use ferrane_mil::{Arg, Builder, Constant, DataType, Dim, Opset, Program, Type, ValueId};
use proptest::prelude::*;

use crate::harness::{BOTH, Tensor};
use crate::interpret::{call, constant};

/// One op over earlier values, named by numbers that are taken modulo what there is. Only ops whose
/// results do not depend on the order of sums, which each plan chooses.
#[derive(Clone, Debug)]
pub enum Step {
    Unary(usize, usize),
    Binary(usize, usize, usize),
    Transpose(usize, usize),
    Concat(usize, usize, usize),
    Max(usize, usize),
    Slice(usize, usize),
    Reverse(usize, usize),
    Tile(usize),
}

pub fn step() -> impl Strategy<Value = Step> {
    let n = 0usize..64;
    prop_oneof![
        (n.clone(), n.clone()).prop_map(|(a, b)| Step::Unary(a, b)),
        (n.clone(), n.clone(), n.clone()).prop_map(|(a, b, c)| Step::Binary(a, b, c)),
        (n.clone(), n.clone()).prop_map(|(a, b)| Step::Transpose(a, b)),
        (n.clone(), n.clone(), n.clone()).prop_map(|(a, b, c)| Step::Concat(a, b, c)),
        (n.clone(), n.clone()).prop_map(|(a, b)| Step::Max(a, b)),
        (n.clone(), n.clone()).prop_map(|(a, b)| Step::Slice(a, b)),
        (n.clone(), n.clone()).prop_map(|(a, b)| Step::Reverse(a, b)),
        n.prop_map(Step::Tile),
    ]
}

const LARGEST: usize = 4096;

/// A program over one input of extents `[2, 3, 4]`. A second input of unknown extents keeps it from
/// being a plan.
pub fn build(dtype: DataType, steps: &[Step], open: bool) -> Program {
    let mut b = Builder::new("main", Opset::IOS18);
    let mut values = vec![b.input("x", Type::tensor(dtype, &[2, 3, 4])).unwrap()];
    if open {
        b.input("open", Type::Tensor { dtype, shape: vec![Dim::Unknown] }).unwrap();
    }
    for (i, step) in steps.iter().enumerate() {
        let pick = |n: &usize| values[n % values.len()];
        let name = format!("v{i}");
        let made: Result<ValueId, _> = match step {
            Step::Unary(a, f) => {
                let f = ["relu", "abs", "square", "sigmoid", "exp", "floor", "sign"][f % 7];
                b.op(f, &name, [("x", pick(a).into())])
            }
            Step::Binary(a, c, f) => {
                let f = ["add", "sub", "mul", "maximum", "minimum"][f % 5];
                b.op(f, &name, [("x", pick(a).into()), ("y", pick(c).into())])
            }
            Step::Transpose(a, p) => {
                let perm: [i32; 3] = [[0, 2, 1], [1, 0, 2], [2, 1, 0], [1, 2, 0]][p % 4];
                b.op("transpose", &name, [("x", pick(a).into()), ("perm", Constant::int32s(&perm).into())])
            }
            Step::Concat(a, c, axis) => {
                let args: [(&str, Arg); 3] = [
                    ("values", vec![pick(a), pick(c)].into()),
                    ("axis", Constant::int32((axis % 3) as i32).into()),
                    ("interleave", Constant::bool(false).into()),
                ];
                b.op("concat", &name, args)
            }
            Step::Max(a, axis) => {
                let args = [
                    ("x", pick(a).into()),
                    ("axes", Constant::int32s(&[(axis % 3) as i32]).into()),
                    ("keep_dims", Constant::bool(true).into()),
                ];
                b.op("reduce_max", &name, args)
            }
            Step::Slice(a, axis) => {
                let shape = b.shape(pick(a)).unwrap();
                let mut size: Vec<i32> = shape.iter().map(|&n| n as i32).collect();
                let mut begin = vec![0; 3];
                if shape[axis % 3] > 1 {
                    (begin[axis % 3], size[axis % 3]) = (1, size[axis % 3] - 1);
                }
                let args = [
                    ("x", pick(a).into()),
                    ("begin", Constant::int32s(&begin).into()),
                    ("size", Constant::int32s(&size).into()),
                ];
                b.op("slice_by_size", &name, args)
            }
            Step::Reverse(a, axis) => {
                let axes = Constant::int32s(&[(axis % 3) as i32]);
                b.op("reverse", &name, [("x", pick(a).into()), ("axes", axes.into())])
            }
            Step::Tile(a) => {
                b.op("tile", &name, [("x", pick(a).into()), ("reps", Constant::int32s(&[1, 2, 1]).into())])
            }
        };
        // What does not fit (shapes that do not broadcast) adds nothing, in both programs alike.
        if let Ok(value) = made
            && b.shape(value).unwrap().iter().product::<usize>() <= LARGEST
        {
            values.push(value);
        }
    }
    let outputs: Vec<ValueId> = values.iter().rev().take(3).copied().collect();
    let names: Vec<String> = (0..outputs.len()).map(|i| format!("out{i}")).collect();
    b.finish(&names.iter().map(String::as_str).zip(outputs).collect::<Vec<_>>()).unwrap()
}

fn bits(tensors: &[Tensor]) -> Vec<(Vec<usize>, Vec<u64>)> {
    let bits = |v: &f64| if v.is_nan() { u64::MAX } else { v.to_bits() };
    tensors.iter().map(|t| (t.shape.clone(), t.values.iter().map(bits).collect())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn plan_and_interpreter_agree(
        steps in prop::collection::vec(step(), 1..12),
        half in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let dtype = if half { DataType::Fp16 } else { DataType::Fp32 };
        let x = constant(&Tensor::random(dtype, &[2, 3, 4], seed));
        let none = constant(&Tensor::new(dtype, &[0], Vec::new()));
        let (planned, interpreted) = (build(dtype, &steps, false), build(dtype, &steps, true));
        for numerics in BOTH {
            let plan = call(numerics, &planned, &[("x", x.clone())]).unwrap();
            let other = call(numerics, &interpreted, &[("x", x.clone()), ("open", none.clone())]).unwrap();
            prop_assert_eq!(bits(&plan), bits(&other), "{:?}", numerics);
        }
    }
}
