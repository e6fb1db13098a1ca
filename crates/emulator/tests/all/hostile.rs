//! Short programs that ask for much: an answer or an error, at once and in little memory.

use ferrane_device::ErrorKind;
use ferrane_mil::{Arg, Constant, DataType::Fp16};

use crate::harness::{BOTH, Tensor, program, run};

/// The kind of failure, or what came.
fn pooled(op: &str, shape: &[usize], kernel: &[i32]) -> Vec<Result<Vec<f64>, ErrorKind>> {
    let count = shape.iter().product::<usize>();
    let x = Tensor::new(Fp16, shape, (0..count).map(|i| i as f64).collect());
    let program = program(std::slice::from_ref(&x), |b, ids| {
        let constants = [
            ("kernel_sizes", Constant::int32s(kernel)),
            ("strides", Constant::int32s(&vec![1; kernel.len()])),
            ("pad_type", Constant::string("same")),
        ];
        let mut args: Vec<(&str, Arg)> = vec![("x", ids[0].into())];
        args.extend(constants.map(|(n, c)| (n, Arg::Const(c))));
        if op == "avg_pool" {
            args.push(("exclude_padding_from_average", Constant::bool(true).into()));
        }
        Ok(vec![b.op(op, "y", args)?])
    });
    let values = |n| run(n, &program, std::slice::from_ref(&x)).map(|y| y[0].values.clone()).map_err(|e| e.kind());
    BOTH.into_iter().map(values).collect()
}

#[test]
fn windows_far_larger_than_their_input() {
    // Two of these have more taps than can be visited; all of them cover the whole input.
    let kernel = [i32::MAX, i32::MAX];
    let shape = [1, 1, 2, 3];
    for found in
        pooled("max_pool", &shape, &[65536, 65536]).into_iter().chain(pooled("max_pool", &shape, &[1001, 1001]))
    {
        assert_eq!(found, Ok(vec![5.0; 6]));
    }
    for found in pooled("avg_pool", &shape, &[65536, 65536]) {
        assert_eq!(found, Ok(vec![2.5; 6]));
    }
    // More taps than can be counted.
    for found in
        pooled("max_pool", &shape, &kernel).into_iter().chain(pooled("max_pool", &[1, 1, 1, 2, 3], &[i32::MAX; 3]))
    {
        assert_eq!(found, Err(ErrorKind::Unsupported));
    }
}

#[test]
fn pads_that_list_more_positions_than_memory_holds() {
    let x = Tensor::new(Fp16, &[1, 2], vec![1.0, 2.0]);
    let program = program(std::slice::from_ref(&x), |b, ids| {
        let pad = Constant::int32s(&[0, 0, 0, 1 << 24]);
        let args = [("x", ids[0].into()), ("pad", pad.into()), ("mode", Constant::string("replicate").into())];
        let wide = b.op("pad", "wide", args)?;
        let axes = Constant::int32s(&[1]);
        Ok(vec![b.op("reduce_max", "y", [("x", wide.into()), ("axes", axes.into())])?])
    });
    for numerics in BOTH {
        assert_eq!(run(numerics, &program, std::slice::from_ref(&x)).unwrap_err().kind(), ErrorKind::OutOfMemory);
    }
}
