//! Shape rules against the shapes that coremltools' own value inference gave.

use ferrane_mil::{Arg, Builder, Constant, DataType, Opset};
use ferrane_testdata::Suite;
use serde_json::Value;

fn dtype(name: &str) -> Option<DataType> {
    match name {
        "float32" => Some(DataType::Fp32),
        "float16" => Some(DataType::Fp16),
        "bool" => Some(DataType::Bool),
        other => DataType::from_name(other),
    }
}

struct Tensors {
    header: Value,
    data: Vec<u8>,
}

impl Tensors {
    fn read(path: &std::path::Path) -> Tensors {
        let bytes = std::fs::read(path).unwrap();
        let n = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        Tensors { header: serde_json::from_slice(&bytes[8..8 + n]).unwrap(), data: bytes[8 + n..].to_vec() }
    }

    fn constant(&self, value: &Value) -> Option<Constant> {
        let key = value["tensor"].as_str()?;
        let at = |i: usize| self.header[key]["data_offsets"][i].as_u64().map(|v| v as usize);
        let bytes = self.data.get(at(0)?..at(1)?)?;
        let shape: Vec<usize> = value["shape"].as_array()?.iter().map(|d| d.as_u64().unwrap() as usize).collect();
        Some(Constant::raw(dtype(value["dtype"].as_str()?)?, &shape, bytes))
    }
}

/// An input of a case: a tensor, a list of tensors, or a plain value.
fn argument(b: &mut Builder, tensors: &Tensors, name: &str, value: &Value) -> Option<Arg> {
    match value {
        Value::String(s) => Some(Constant::string(s).into()),
        Value::Bool(v) => Some(Constant::bool(*v).into()),
        Value::Number(n) if n.is_i64() => Some(Constant::int32(n.as_i64()? as i32).into()),
        Value::Number(n) => Some(Constant::fp32(n.as_f64()? as f32).into()),
        Value::Array(items) => {
            let ids = items.iter().map(|v| b.constant(name, tensors.constant(v)?).ok());
            Some(Arg::List(ids.collect::<Option<Vec<_>>>()?))
        }
        Value::Object(o) if o.contains_key("tensor") => Some(tensors.constant(value)?.into()),
        Value::Object(o) if o.contains_key("list") => argument(b, tensors, name, &o["list"]),
        Value::Object(o) => argument(b, tensors, name, o.get("value")?),
        Value::Null => None,
    }
}

#[test]
fn result_types_are_those_of_coremltools() {
    let Some(mut suite) = Suite::open("mil-inference", "mil/mil_value_inference") else { return };
    let folder = suite.folder().to_path_buf();
    let cases: Vec<Value> = serde_json::from_slice(&std::fs::read(folder.join("cases.json")).unwrap()).unwrap();
    let tensors = Tensors::read(&folder.join("cases.safetensors"));
    for case in &cases {
        let op = case["op"].as_str().unwrap();
        let id = format!("{}:{op}", case["id"]);
        // 4 stands for iOS 13, 9 for iOS 18.
        let opset = Opset(case["opset"].as_str().unwrap().parse::<u16>().unwrap() + 9);
        let mut b = Builder::new("main", opset);
        let mut args = Vec::new();
        let mut readable = true;
        for (name, value) in case["inputs"].as_object().unwrap() {
            if value.is_null() {
                continue;
            }
            match argument(&mut b, &tensors, name, value) {
                Some(arg) => args.push((name.as_str(), arg)),
                None => readable = false,
            }
        }
        if !readable {
            suite.case(&id, Err("an input that the test cannot read".into()));
            continue;
        }
        let result = b.ops(op, "y", args).map_err(|e| e.to_string()).and_then(|ids| {
            let found: Vec<String> = ids.iter().map(|v| b.ty(*v).to_string()).collect();
            let expected: Option<Vec<String>> = case["outputs"]
                .as_array()
                .unwrap()
                .iter()
                .map(|o| Some(tensors.constant(o)?.ty().to_string()))
                .collect();
            match expected {
                Some(e) if e == found => Ok(()),
                e => Err(format!("{found:?} instead of {e:?}")),
            }
        });
        suite.case(&id, result);
    }
    suite.finish();
}

/// Builds one op over fp16 inputs of these shapes (by argument) and constants; gives the shape of
/// its result or the reason.
fn shape_of(op: &str, inputs: &[(&str, &[usize])], constants: &[(&str, Constant)]) -> Result<Vec<usize>, String> {
    let mut b = Builder::new("main", Opset::IOS18);
    let mut args: Vec<(&str, Arg)> = Vec::new();
    for (name, shape) in inputs {
        let ty = ferrane_mil::Type::tensor(DataType::Fp16, shape);
        args.push((name, b.input(name, ty).unwrap().into()));
    }
    args.extend(constants.iter().map(|(n, c)| (*n, c.clone().into())));
    b.op(op, "result", args).and_then(|v| b.shape(v)).map_err(|e| e.to_string())
}

/// What coremltools' value inference does not cover. The numbers are worked out by hand.
#[test]
fn shapes_of_convolutions_pools_and_compressed_constants() {
    let ints = Constant::int32s;
    let zeros = |dtype: DataType, shape: &[usize]| {
        let bytes = ferrane_mil::Type::tensor(dtype, shape).bytes().unwrap();
        Constant::raw(dtype, shape, &vec![0; bytes])
    };
    let conv = |x: &[usize], w: &[usize], more: &[(&str, Constant)]| shape_of("conv", &[("x", x), ("weight", w)], more);
    assert_eq!(conv(&[1, 8, 5, 7], &[6, 8, 3, 3], &[]), Ok(vec![1, 6, 3, 5]));
    assert_eq!(conv(&[1, 8, 5, 7], &[6, 4, 1, 1], &[("groups", Constant::int32(2))]), Ok(vec![1, 6, 5, 7]));
    let strided = [("strides", ints(&[2, 2])), ("pad_type", Constant::string("same"))];
    assert_eq!(conv(&[1, 8, 5, 8], &[6, 8, 3, 3], &strided), Ok(vec![1, 6, 3, 4]));
    let padded = [("pad", ints(&[1, 1, 0, 2])), ("pad_type", Constant::string("custom")), ("strides", ints(&[1, 1]))];
    assert_eq!(conv(&[1, 8, 5, 7], &[6, 8, 3, 3], &padded), Ok(vec![1, 6, 5, 7]));
    assert!(conv(&[1, 8, 5, 7], &[6, 8, 3, 3], &[("dilations", ints(&[2, 1]))]).is_err(), "a weight known at run time");
    assert_eq!(conv(&[2, 8, 9], &[6, 8, 3], &[]), Ok(vec![2, 6, 7]));
    for (x, w) in [(&[1, 8, 5, 7], &[6, 7, 1, 1]), (&[1, 8, 2, 7], &[6, 8, 3, 1])] {
        assert!(conv(x, w, &[]).is_err());
    }
    let pool = [("kernel_sizes", ints(&[2, 2])), ("strides", ints(&[2, 2])), ("pad_type", Constant::string("valid"))];
    assert_eq!(shape_of("max_pool", &[("x", &[1, 3, 5, 5])], &pool), Ok(vec![1, 3, 2, 2]));
    let ceil = [&pool[..], &[("ceil_mode", Constant::bool(true))]].concat();
    assert_eq!(shape_of("avg_pool", &[("x", &[1, 3, 5, 5])], &ceil), Ok(vec![1, 3, 3, 3]));

    let affine = |scale: Constant, axis: i32| {
        let data = zeros(DataType::Int8, &[6, 4, 1, 1]);
        let zero = Constant::raw(DataType::Int8, &[], &[0]);
        let args = [("quantized_data", data), ("zero_point", zero), ("scale", scale), ("axis", Constant::int32(axis))];
        shape_of("constexpr_affine_dequantize", &[], &args)
    };
    assert_eq!(affine(Constant::fp16(0.5), 0), Ok(vec![6, 4, 1, 1]));
    assert_eq!(affine(zeros(DataType::Fp16, &[6]), 0), Ok(vec![6, 4, 1, 1]));
    assert!(affine(zeros(DataType::Fp16, &[6]), 1).is_err());
    let blocks = |scale: &[usize]| {
        let args = [("data", zeros(DataType::Int4, &[4, 64])), ("scale", zeros(DataType::Fp16, scale))];
        shape_of("constexpr_blockwise_shift_scale", &[], &args)
    };
    assert_eq!(blocks(&[4, 2]), Ok(vec![4, 64]));
    assert!(blocks(&[4, 3]).is_err() && blocks(&[4]).is_err());
    let palette = |index: DataType, lut: &[usize]| {
        shape_of(
            "constexpr_lut_to_dense",
            &[],
            &[("indices", zeros(index, &[8, 6])), ("lut", zeros(DataType::Fp16, lut))],
        )
    };
    assert_eq!(palette(DataType::UInt4, &[2, 1, 16, 1]), Ok(vec![8, 6]));
    assert!(palette(DataType::UInt6, &[2, 1, 16, 1]).is_err() && palette(DataType::UInt4, &[3, 1, 16, 1]).is_err());
    assert!(palette(DataType::UInt4, &[1, 1, 16, 2]).is_err(), "vectors need an axis");

    let attention = |mask: &[usize]| {
        let inputs: &[(&str, &[usize])] =
            &[("query", &[1, 8, 5, 16]), ("key", &[1, 8, 7, 16]), ("value", &[1, 8, 7, 4]), ("attn_mask", mask)];
        shape_of("scaled_dot_product_attention", inputs, &[])
    };
    assert_eq!(attention(&[1, 1, 5, 7]), Ok(vec![1, 8, 5, 4]));
    assert!(attention(&[1, 1, 5, 5]).is_err());
}

#[test]
fn unknown_extents_and_overflow() {
    let unknown = |dims: &[Option<usize>]| ferrane_mil::Type::Tensor {
        dtype: DataType::Fp16,
        shape: dims.iter().map(|d| d.map_or(ferrane_mil::Dim::Unknown, ferrane_mil::Dim::Fixed)).collect(),
    };
    // A mask of known extents may fit a length that is not known; it must not widen what is.
    let attention = |mask: &[Option<usize>]| {
        let mut b = Builder::new("main", Opset::IOS18);
        let q = b.input("q", unknown(&[Some(1), Some(8), None, Some(16)])).unwrap();
        let k = b.input("k", unknown(&[Some(1), Some(8), Some(7), Some(16)])).unwrap();
        let mask = b.input("mask", unknown(mask)).unwrap();
        b.scaled_dot_product_attention("a", q, k, k, Some(mask)).map(|v| b.ty(v).to_string())
    };
    for mask in [&[Some(1), Some(1), Some(5), Some(7)][..], &[None, Some(8), None, None], &[Some(5), Some(7)]] {
        assert_eq!(attention(mask), Ok("tensor<fp16, [1, 8, ?, 16]>".into()));
    }
    assert!(attention(&[Some(2), Some(1), Some(5), Some(7)]).is_err());
    assert!(attention(&[Some(1), Some(1), Some(1), Some(5), Some(7)]).is_err());

    let most = i32::MAX as usize;
    let reshape = |x: &[usize], shape: &[i32]| shape_of("reshape", &[("x", x)], &[("shape", Constant::int32s(shape))]);
    assert!(reshape(&[2, 3], &[i32::MAX; 4]).is_err());
    assert!(reshape(&[most; 3], &[1]).is_err());
    assert_eq!(reshape(&[most, most, most, 0], &[0, 0, 0, 0]), Ok(vec![most, most, most, 0]));
    assert_eq!(reshape(&[2, 3], &[3, -1]), Ok(vec![3, 2]));
}
