//! An evaluation allocates nothing once it has run before. A binary of its own, for its allocator
//! counts everybody's allocations.

use ferrane_device::{Bindings, Device};
use ferrane_emulator::{Emulator, EmulatorOptions};
use ferrane_host::f16;
use ferrane_mil::{Builder, Constant, Conv, DataType, MilError, Opset, ReducedDims, Transpose, Type, ValueId};
use ferrane_testdata::heap::{self, Counting};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of the cheapest of many evaluations: rayon's queues grow by blocks now and then.
fn allocations(body: impl FnOnce(&mut Builder, ValueId) -> Result<Vec<ValueId>, MilError>) -> usize {
    let mut b = Builder::new("main", Opset::IOS18);
    let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 64, 128, 128])).unwrap();
    let results = body(&mut b, x).unwrap();
    let names: Vec<String> = (0..results.len()).map(|i| format!("y{i}")).collect();
    let outputs: Vec<(&str, ValueId)> = names.iter().map(String::as_str).zip(results).collect();
    let program = b.finish(&outputs).unwrap();
    let device = Device::new(Emulator::new(EmulatorOptions::default()));
    let executable = device.load(&program, "").unwrap();
    let mut bindings = Bindings::new();
    let procedure = &executable.procedures()[0];
    for port in procedure.inputs.iter().chain(&procedure.outputs) {
        bindings = bindings.bind(&port.name, &device.surface(&port.layout).unwrap());
    }
    let request = executable.prepare(bindings).unwrap();
    // Every thread of the pool grows its scratch.
    for _ in 0..20 {
        request.evaluate().unwrap();
    }
    (0..20).map(|_| heap::of(|| _ = request.evaluate().unwrap())).min().unwrap()
}

/// The steps that are neither products nor arithmetic on elements: windows, picked and moved
/// elements, norms, comparisons.
fn mixture(b: &mut Builder, x: ValueId) -> Result<Vec<ValueId>, MilError> {
    let part = b.slice_by_size("part", x, &[0, 0, 0, 0], &[1, 8, 32, 32])?;
    let weight = b.constant("weight", Constant::fp16s(&[4, 8, 3, 3], &[f16::ONE; 288]))?;
    let bias = b.constant("bias", Constant::fp16s(&[4], &[f16::ONE; 4]))?;
    let conv = b.conv("conv", part, weight, Some(bias), &Conv { strides: vec![2; 2], ..Conv::default() })?;
    let mut results = vec![conv];
    for op in ["max_pool", "avg_pool", "l2_pool"] {
        let options = [
            ("kernel_sizes", Constant::int32s(&[2, 2])),
            ("strides", Constant::int32s(&[2, 2])),
            ("pad_type", Constant::string("valid")),
        ];
        let args = options.into_iter().map(|(name, value)| (name, value.into()));
        results.push(b.op(op, op, args.chain([("x", part.into())]))?);
    }
    let indices = b.constant("indices", Constant::int32s(&[3, 0, 7, 5]))?;
    // Whole slices, slices that do not lie side by side, single elements.
    results.push(b.gather("slices", part, indices, 1)?);
    let turned = b.transpose("turned", part, &[0, 3, 1, 2])?;
    results.push(b.gather("turned_slices", turned, indices, 1)?);
    results.push(b.gather("elements", part, indices, 3)?);
    let pad = [
        ("x", part.into()),
        ("pad", Constant::int32s(&[1, 2, 3, 4]).into()),
        ("mode", Constant::string("reflect").into()),
        ("constant_val", Constant::fp16(0.0).into()),
    ];
    results.push(b.op("pad", "pad", pad)?);
    results.push(b.tile("tile", part, &[1, 1, 2, 3])?);
    results.push(b.layer_norm("layer_norm", part, &[-1], None, None, 1e-5)?);
    results.push(b.softmax("columns", part, 1)?);
    results.push(b.reduce_max("reduce_max", part, &[2, 3], ReducedDims::Keep)?);
    let is_less = b.op("less", "is_less", [("x", part.into()), ("y", Constant::fp16(0.25).into())])?;
    results.push(b.select("select", is_less, part, Constant::fp16(0.0))?);
    results.push(b.cast("cast", part, DataType::Fp32)?);
    results.push(codes(b, part)?);
    Ok(results)
}

/// A layer between codes of 8 bits.
fn codes(b: &mut Builder, x: ValueId) -> Result<ValueId, MilError> {
    let scale = || ("scale", Constant::fp16(0.125).into());
    let to = || ("output_dtype", Constant::string("int8").into());
    let codes = b.op("quantize", "codes", [("input", x.into()), scale(), to()])?;
    let decoded = b.op("dequantize", "decoded", [("input", codes.into()), scale()])?;
    let data = Constant::raw(DataType::Int8, &[4, 8, 1, 1], &[3; 32]);
    let scales = Constant::fp16s(&[4, 1, 1, 1], &[f16::ONE; 4]);
    let args = [("data", data.into()), ("scale", scales.into())];
    let weight = b.op("constexpr_blockwise_shift_scale", "codes_weight", args)?;
    let layer = b.conv("layer", decoded, weight, None, &Conv::default())?;
    let layer = b.op("silu", "silu", [("x", layer.into())])?;
    b.op("quantize", "layer_codes", [("input", layer.into()), scale(), to()])
}

#[test]
fn an_evaluation_allocates_nothing() {
    // In one test, for two at a time would count each other's.
    let count = allocations(|b, x| {
        let t = b.transpose("t", x, &[0, 2, 1, 3])?;
        let s = b.silu("s", t)?;
        let sum = b.reduce_sum("sum", s, &[1], ReducedDims::Keep)?;
        let m = b.mul("m", s, sum)?;
        let p = b.softmax("p", m, -1)?;
        let r = b.reduce_mean("r", p, &[-1], ReducedDims::Keep)?;
        let c = b.sub("c", p, r)?;
        Ok(vec![b.concat("y", &[c, p], 1)?])
    });
    assert_eq!(count, 0);
    let count = allocations(|b, x| Ok(vec![b.matmul("y", x, x, Transpose::Y)?]));
    assert_eq!(count, 0);
    assert_eq!(allocations(mixture), 0);
}
