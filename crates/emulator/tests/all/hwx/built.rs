//! Files that `ferrane_hwx::builder` makes, run and compared with the equivalent MIL program.

use ferrane_arith::table as tables;
use ferrane_device::Device;
use ferrane_emulator::{Emulator, Numerics};
use ferrane_host::f16;
use ferrane_hwx::builder::{
    BinaryOp, Convolution, ElementFunction, Operation, PoolKind, Pooling, ProgramSpec, TensorSpec, build,
};
use ferrane_hwx::table::FunctionTable;
use ferrane_mil::{Builder, Constant, Conv, DataType, MilError, Opset, Program, Type, ValueId};

use super::{Numbers, inputs, interpreter, options, run};
use crate::harness::{Tensor, run_on};

fn network(inputs: &[[u32; 4]], op: Operation) -> ProgramSpec {
    let port = |(i, nchw): (usize, &[u32; 4])| TensorSpec { name: format!("in{i}"), nchw: *nchw };
    ProgramSpec { name: "net".into(), inputs: inputs.iter().enumerate().map(port).collect(), output: "out".into(), op }
}

fn convolution(cin: u32, cout: u32, kernel: [u32; 2], stride: [u32; 2], padding: [u32; 2]) -> Convolution {
    let mut numbers = Numbers::new(u64::from(cin * 1000 + cout));
    let count = cout * cin * kernel[0] * kernel[1];
    let weights = (0..count).map(|_| f16::from_f64(numbers.normal(0.05))).collect();
    Convolution { cout, weights, kernel, stride, padding, then: None }
}

fn table_of(table: &tables::PiecewiseTable) -> FunctionTable {
    let mut bytes = [0; 128];
    for (place, half) in bytes.chunks_exact_mut(2).zip(table.halfwords()) {
        place.copy_from_slice(&half.to_le_bytes());
    }
    FunctionTable::decode(&bytes)
}

/// The function after an operation, as an op.
fn function(b: &mut Builder, f: &ElementFunction, x: ValueId) -> Result<ValueId, MilError> {
    match f {
        ElementFunction::Relu => b.op("relu", "then", [("x", x.into())]),
        ElementFunction::Table(t) if **t == table_of(&tables::SIGMOID) => b.op("sigmoid", "then", [("x", x.into())]),
        ElementFunction::Table(_) => b.op("tanh", "then", [("x", x.into())]),
    }
}

fn mil(network: &ProgramSpec) -> Result<Program, MilError> {
    let mut b = Builder::new("main", Opset::IOS18);
    let mut x = Vec::new();
    for port in &network.inputs {
        x.push(b.input(&port.name, Type::tensor(DataType::Fp16, &port.nchw.map(|n| n as usize)))?);
    }
    let pair = |n: [u32; 2]| Constant::int32s(&n.map(|n| n as i32));
    let y = match &network.op {
        Operation::Convolution(c) => {
            let shape = [c.cout, network.inputs[0].nchw[1], c.kernel[0], c.kernel[1]].map(|n| n as usize);
            let bytes: Vec<u8> = c.weights.iter().flat_map(|w| w.to_bits().to_le_bytes()).collect();
            let weight = b.weight("weight", "@model_path/w.bin", DataType::Fp16, &shape, bytes)?;
            let [py, px] = c.padding.map(|n| n as i32);
            let strides = c.stride.map(|n| n as i32).to_vec();
            let options = Conv { pad_type: "custom", strides, pad: vec![py, py, px, px], ..Conv::default() };
            let y = b.conv("conv", x[0], weight, None, &options)?;
            c.then.as_ref().map_or(Ok(y), |f| function(&mut b, f, y))?
        }
        Operation::Elementwise(binary) => {
            let name = match binary {
                BinaryOp::Add => "add",
                BinaryOp::Mul => "mul",
                BinaryOp::Max => "maximum",
                BinaryOp::Min => "minimum",
                BinaryOp::Sub => "sub",
            };
            b.op(name, "y", [("x", x[0].into()), ("y", x[1].into())])?
        }
        Operation::Function(f) => function(&mut b, f, x[0])?,
        Operation::Concat => b.concat("y", &x, 1)?,
        Operation::Pool(p) => {
            let name = if p.kind == PoolKind::Avg { "avg_pool" } else { "max_pool" };
            let turn = |b: &mut Builder, v| if p.kind == PoolKind::Min { b.scale("turned", v, -1.0) } else { Ok(v) };
            let source = turn(&mut b, x[0])?;
            let mut args = vec![
                ("x", source.into()),
                ("kernel_sizes", pair(p.window).into()),
                ("strides", pair(p.stride).into()),
                ("pad_type", Constant::string("valid").into()),
                ("pad", Constant::int32s(&[0; 4]).into()),
                ("ceil_mode", Constant::bool(false).into()),
            ];
            if name == "avg_pool" {
                args.push(("exclude_padding_from_average", Constant::bool(false).into()));
            }
            let y = b.op(name, "window", args)?;
            turn(&mut b, y)?
        }
    };
    b.finish(&[("out", y)])
}

fn networks() -> Vec<ProgramSpec> {
    let mut all = Vec::new();
    let conv =
        |cin, cout, k, s, p, h, w| network(&[[1, cin, h, w]], Operation::Convolution(convolution(cin, cout, k, s, p)));
    all.push(conv(3, 3, [1, 1], [1, 1], [0, 0], 1, 1));
    all.push(conv(40, 80, [1, 1], [1, 1], [0, 0], 5, 7));
    all.push(conv(20, 600, [1, 1], [1, 1], [0, 0], 2, 3));
    all.push(conv(16, 24, [3, 3], [1, 1], [1, 1], 9, 11));
    all.push(conv(4, 32, [3, 5], [2, 1], [1, 2], 10, 12));
    all.push(conv(2, 8, [2, 2], [2, 3], [0, 0], 9, 13));
    let functions = [
        ElementFunction::Relu,
        ElementFunction::Table(Box::new(table_of(&tables::SIGMOID))),
        ElementFunction::Table(Box::new(table_of(&tables::TANH))),
    ];
    for f in &functions {
        all.push(network(&[[1, 5, 3, 40]], Operation::Function(f.clone())));
        let then = Some(f.clone());
        all.push(network(
            &[[1, 32, 4, 4]],
            Operation::Convolution(Convolution { then, ..convolution(32, 48, [1, 1], [1, 1], [0, 0]) }),
        ));
    }
    for binary in [BinaryOp::Add, BinaryOp::Mul, BinaryOp::Max, BinaryOp::Min, BinaryOp::Sub] {
        all.push(network(&[[1, 64, 1, 1]; 2], Operation::Elementwise(binary)));
        all.push(network(&[[1, 7, 5, 33]; 2], Operation::Elementwise(binary)));
    }
    all.push(network(&[[1, 3, 4, 5], [1, 8, 4, 5]], Operation::Concat));
    all.push(network(&[[1, 1, 2, 70], [1, 2, 2, 70], [1, 17, 2, 70]], Operation::Concat));
    for kind in [PoolKind::Avg, PoolKind::Max, PoolKind::Min] {
        all.push(network(&[[1, 6, 8, 12]], Operation::Pool(Pooling { kind, window: [2, 2], stride: [2, 2] })));
        all.push(network(&[[1, 3, 9, 10]], Operation::Pool(Pooling { kind, window: [3, 2], stride: [1, 3] })));
    }
    all
}

/// Under the engine's arithmetic sums are exact and both sides round in the same places, so results
/// are equal. Under fp32 arithmetic a sum may round differently if the plan chooses another layout,
/// and a table only approximates its function, so only the former is compared.
#[test]
fn built_files_compute_what_was_asked() {
    for (i, network) in networks().iter().enumerate() {
        let what = format!("network {i}");
        let bytes = build(network).unwrap_or_else(|e| panic!("{what}: {e}")).write();
        let interpreter = interpreter(Numerics::Hardware, &bytes).unwrap_or_else(|e| panic!("{what}: {e}"));
        let inputs = inputs(&interpreter, 21);
        let found = run(&interpreter, &inputs).unwrap();
        // The file may list its tensors in another order than the network.
        let given = |port: &TensorSpec| inputs.iter().find(|(name, _)| *name == port.name).unwrap().1.clone();
        let tensors: Vec<Tensor> = network.inputs.iter().map(given).collect();
        let device = Device::new(Emulator::new(options(Numerics::Hardware)));
        let wanted = run_on(&device, &mil(network).unwrap(), &tensors).unwrap();
        assert_eq!(found[0].1.shape, wanted[0].shape, "{what}");
        assert!(wanted[0].values.iter().any(|v| *v != 0.0), "{what}");
        assert_eq!(found[0].1.values, wanted[0].values, "{what}");
    }
}
