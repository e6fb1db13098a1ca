//! Models of programs: read back as programs, they compute the same numbers. That Apple's runtime
//! computes them, too, is checked by `scripts/coreai/written.py`.

use std::collections::{BTreeMap, BTreeSet};

use ferrane_coreai::{Bytecode, ConversionOptions, codes, ops, to_coreai};
use ferrane_emulator::{Emulator, EmulatorOptions};
use ferrane_mil::weights::{pack, unpack};
use ferrane_mil::{
    Arg, Builder, Constant, DataType, Function, MilError, Opset, Program, Type, ValueId, ops as registry,
};

/// The largest difference from MIL's own numbers, divided by the largest element.
const FP32: f64 = 1e-5;
const FP16: f64 = 4e-3;

fn emulator() -> Emulator {
    Emulator::new(EmulatorOptions::default())
}

/// Numbers that look random, from 0 to 1.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f64 / (1u64 << 24) as f64
    }

    /// A number for element `i` of a type of `cases.txt`.
    fn element(&mut self, kind: char, i: usize) -> f64 {
        let unit = self.next();
        let below = |n: f64| (unit * n).floor();
        match kind {
            'f' => unit * 4.0 - 2.0,
            'p' => unit * 2.0 + 0.25,
            'q' => unit * 1.8 - 0.9,
            'i' => below(7.0) - 3.0,
            'j' => below(4.0) + 1.0,
            'm' => (i % 3) as f64,
            'c' => below(100.0) - 50.0,
            'u' => below(256.0),
            'n' => below(16.0) - 8.0,
            's' => below(16.0),
            'd' => below(4.0),
            'e' => below(8.0),
            'g' => below(64.0),
            _ => below(2.0),
        }
    }
}

fn dtype(kind: char, float: DataType) -> DataType {
    match kind {
        'f' | 'p' | 'q' => float,
        'b' => DataType::Bool,
        'c' => DataType::Int8,
        'u' => DataType::UInt8,
        'n' => DataType::Int4,
        's' => DataType::UInt4,
        't' => DataType::UInt1,
        'd' => DataType::UInt2,
        'e' => DataType::UInt3,
        'g' => DataType::UInt6,
        _ => DataType::Int32,
    }
}

/// A constant of numbers.
fn constant(dtype: DataType, shape: &[usize], values: &[f64]) -> Constant {
    let bytes: Vec<u8> = match dtype {
        DataType::Fp32 => values.iter().flat_map(|&v| (v as f32).to_le_bytes()).collect(),
        DataType::Fp16 => values.iter().flat_map(|&v| half::f16::from_f64(v).to_le_bytes()).collect(),
        DataType::Int32 | DataType::UInt32 => values.iter().flat_map(|&v| (v as i32).to_le_bytes()).collect(),
        DataType::Bool | DataType::Int8 | DataType::UInt8 => values.iter().map(|&v| v as i64 as u8).collect(),
        _ => pack(dtype, &values.iter().map(|&v| v as i64).collect::<Vec<_>>()),
    };
    Constant::raw(dtype, shape, &bytes)
}

/// The elements of a constant as numbers.
fn values(constant: &Constant) -> Vec<f64> {
    let bytes = constant.bytes(&ferrane_mil::Weights::default()).unwrap().to_vec();
    match constant.ty().dtype().unwrap() {
        DataType::Fp32 => bytes.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect(),
        DataType::Fp16 => {
            bytes.chunks_exact(2).map(|b| half::f16::from_le_bytes(b.try_into().unwrap()).to_f64()).collect()
        }
        dtype => constant.as_ints().map_or_else(
            || unpack(dtype, &bytes, constant.ty().elements().unwrap()).iter().map(|&v| v as f64).collect(),
            |ints| ints.iter().map(|&v| v as f64).collect(),
        ),
    }
}

/// The parts of a list between brackets or parentheses.
fn parts(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    for (i, c) in text.char_indices() {
        match c {
            '[' | '(' => depth += 1,
            ']' | ')' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    found.push(&text[start..]);
    found
}

fn inner(text: &str) -> &str {
    &text[1..text.len() - 1]
}

/// `[2,3]` as extents.
fn extents(text: &str) -> Vec<usize> {
    parts(inner(text)).iter().filter(|p| !p.is_empty()).map(|p| p.parse().unwrap()).collect()
}

/// A constant as it is written in `cases.txt`.
fn literal(text: &str, float: DataType) -> Constant {
    if text.starts_with('[') {
        let items: Vec<Constant> = parts(inner(text)).iter().map(|p| literal(p, float)).collect();
        let ty = items[0].ty();
        let mut shape = vec![items.len()];
        shape.extend(ty.shape().unwrap());
        return constant(ty.dtype().unwrap(), &shape, &items.iter().flat_map(values).collect::<Vec<_>>());
    }
    let number = |text: &str| text.parse::<f64>().ok();
    match (text, number(text)) {
        ("true" | "false", _) => Constant::bool(text == "true"),
        (_, Some(value)) if text.contains('.') => constant(float, &[], &[value]),
        (_, Some(value)) => Constant::int32(value as i32),
        _ => match (text.chars().next(), number(&text[1..])) {
            (Some('u'), Some(value)) => constant(DataType::UInt8, &[], &[value]),
            (Some('v'), Some(value)) => constant(DataType::UInt32, &[], &[value]),
            _ => Constant::string(text),
        },
    }
}

/// The program of a line of `cases.txt`.
fn case(line: &str, float: DataType) -> Result<Program, MilError> {
    let (mut random, mut b) = (Random(7), Builder::new("main", Opset::IOS18));
    let mut words = line.split_whitespace();
    let op = words.next().unwrap();
    let mut args: Vec<(&str, Arg)> = Vec::new();
    let mut given = false;
    for word in words {
        let at = word.find([':', '~', '=']).unwrap();
        let (name, mark, text) = (&word[..at], &word[at..=at], &word[at + 1..]);
        let mut value = |b: &mut Builder, name: &str, text: &str| -> Result<ValueId, MilError> {
            let kind = text.chars().next().unwrap();
            let (dtype, shape) = (dtype(kind, float), extents(&text[1..]));
            if mark == ":" {
                given = true;
                return b.input(name, Type::tensor(dtype, &shape));
            }
            let numbers: Vec<f64> = (0..shape.iter().product()).map(|i| random.element(kind, i)).collect();
            b.constant(name, constant(dtype, &shape, &numbers))
        };
        let arg = match (mark, text.starts_with('(')) {
            (":" | "~", true) => {
                let items = parts(inner(text));
                let items = items.iter().enumerate().map(|(i, text)| value(&mut b, &format!("{name}{i}"), text));
                Arg::List(items.collect::<Result<_, _>>()?)
            }
            (":" | "~", false) => Arg::Value(value(&mut b, name, text)?),
            (_, true) => {
                let items = parts(inner(text)).into_iter().map(|text| b.constant(name, literal(text, float)));
                Arg::List(items.collect::<Result<_, _>>()?)
            }
            // Factors are fp32 whatever the type of x.
            _ if name.starts_with("scale_factor") => literal(text, DataType::Fp32).into(),
            _ => literal(text, float).into(),
        };
        args.push((name, arg));
    }
    let mut results = b.ops(op, "r", args)?;
    if !given {
        // A constant is no output.
        let ty = b.ty(results[0]).clone();
        let z = b.input("z", Type::scalar(ty.dtype().unwrap()))?;
        results[0] = b.op("add", "s", [("x", results[0].into()), ("y", z.into())])?;
    }
    let names: Vec<String> = (0..results.len()).map(|i| format!("out{i}")).collect();
    let outputs: Vec<(&str, ValueId)> = names.iter().map(String::as_str).zip(results).collect();
    b.finish(&outputs)
}

/// The model of a program as a program again.
fn again(program: &Program, label: &str) -> Program {
    let emulator = emulator();
    let model = to_coreai(program, &emulator).unwrap_or_else(|e| panic!("{label}: {e}"));
    let bytes = model.write();
    let read = Bytecode::read(&bytes).unwrap_or_else(|e| panic!("{label}: {e}"));
    read.to_mil(&ConversionOptions::default()).unwrap_or_else(|e| panic!("{label}: {e}"))
}

/// Numbers for the inputs of a function; those of states are zeros.
fn inputs(function: &Function, line: &str) -> Vec<(String, Vec<usize>, Vec<f64>)> {
    let mut random = Random(11);
    let kinds: BTreeMap<String, char> = line
        .split_whitespace()
        .filter_map(|word| word.split_once(':'))
        .flat_map(|(name, text)| match text.starts_with('(') {
            true => (0..).map(|i| format!("{name}{i}")).zip(parts(inner(text))).collect::<Vec<_>>(),
            false => vec![(name.to_string(), text)],
        })
        .map(|(name, text)| (name, text.chars().next().unwrap()))
        .collect();
    let tensors = function.inputs.iter().map(|&v| function.value(v)).filter(|v| !matches!(v.ty, Type::State(_)));
    tensors
        .map(|value| {
            let kind = kinds.get(&value.name).copied().unwrap_or('f');
            let shape = value.ty.shape().unwrap();
            let numbers = (0..shape.iter().product()).map(|i| random.element(kind, i)).collect();
            (value.name.clone(), shape, numbers)
        })
        .collect()
}

/// What a function gives for numbers, and its states after two calls.
fn run(program: &Program, name: &str, given: &[(String, Vec<usize>, Vec<f64>)]) -> Vec<(String, Constant)> {
    let function = program.function(name).unwrap();
    let ty = |name: &str| {
        let found = function.inputs.iter().map(|&v| function.value(v)).find(|v| v.name == name);
        found.unwrap_or_else(|| panic!("no input {name}")).ty.dtype().unwrap()
    };
    let given: Vec<(String, Constant)> =
        given.iter().map(|(n, shape, numbers)| (n.clone(), constant(ty(n), shape, numbers))).collect();
    let mut states = BTreeMap::new();
    for value in function.inputs.iter().map(|&v| function.value(v)) {
        if let Type::State(inner) = &value.ty {
            let zeros = vec![0.0; inner.elements().unwrap()];
            states.insert(value.name.clone(), constant(inner.dtype().unwrap(), &inner.shape().unwrap(), &zeros));
        }
    }
    let emulator = emulator();
    emulator.call(program, name, &given, &mut states).unwrap();
    let outputs = emulator.call(program, name, &given, &mut states).unwrap();
    outputs.into_iter().chain(states).collect()
}

/// Compares all functions of a program with those of its model.
fn compare(program: &Program, line: &str) {
    let back = again(program, line);
    for function in &program.functions {
        let given = inputs(function, line);
        let (wanted, found) = (run(program, &function.name, &given), run(&back, &function.name, &given));
        assert_eq!(found.len(), wanted.len(), "{line}");
        for ((name, wanted), (other, found)) in wanted.iter().zip(&found) {
            assert_eq!(name, other, "{line}");
            assert_eq!(wanted.ty().shape(), found.ty().shape(), "{line}: {name}");
            let limit = match wanted.ty().dtype().unwrap() {
                DataType::Fp32 => FP32,
                DataType::Fp16 => FP16,
                _ => 0.0,
            };
            let (wanted, found) = (values(wanted), values(found));
            let largest = wanted.iter().filter(|v| v.is_finite()).fold(1e-30f64, |m, v| m.max(v.abs()));
            for (f, w) in found.iter().zip(&wanted) {
                let same = f == w || f.is_nan() && w.is_nan() || (f - w).abs() / largest <= limit;
                assert!(same, "{line}: {name} is {f}, not {w}; {found:?} {wanted:?}");
            }
        }
    }
}

fn lines() -> impl Iterator<Item = &'static str> {
    include_str!("cases.txt").lines().filter(|line| !line.starts_with('#'))
}

/// The programs of all lines, in fp32 and in fp16 where that makes a difference. The environment
/// variable `FERRANE_COREAI_CASES` names a folder to which their texts are written.
#[test]
fn ops_keep_their_numbers() {
    let folder = std::env::var_os("FERRANE_COREAI_CASES").map(std::path::PathBuf::from);
    for (i, line) in lines().enumerate() {
        let mut texts = BTreeSet::new();
        for float in [DataType::Fp32, DataType::Fp16] {
            let program = case(line, float).unwrap_or_else(|e| panic!("{line}: {e}"));
            let text = ferrane_mil::print(&program);
            if !texts.insert(text.clone()) {
                continue;
            }
            if let Some(folder) = &folder {
                let op = line.split(' ').next().unwrap();
                std::fs::create_dir_all(folder).unwrap();
                std::fs::write(folder.join(format!("{i:03}_{op}_{float}.mil")), text).unwrap();
            }
            compare(&program, line);
        }
    }
}

#[test]
fn every_op_with_a_rule_has_a_case() {
    let tried: BTreeSet<&str> = lines().filter_map(|line| line.split(' ').next()).collect();
    // These have blocks, states or several functions, or are read by others, and tests of their
    // own.
    let others = [
        "cond",
        "const",
        "constexpr_cast",
        "constexpr_lut_to_sparse",
        "constexpr_sparse_blockwise_shift_scale",
        "constexpr_sparse_to_dense",
        "coreml_update_state",
        "read_state",
        "while_loop",
        "write_state",
    ];
    for (op, reason) in ops() {
        assert!(registry::find(op, Opset::IOS18).is_some(), "{op}");
        let is_tried = tried.contains(op) || others.contains(&op);
        assert_eq!(is_tried, reason.is_none(), "{op}: {reason:?}");
    }
}

/// A program of a function that `build` makes of an input x, fp32 `[2, 3]`.
fn program(build: impl Fn(&mut Builder, ValueId) -> Result<ValueId, MilError>) -> Program {
    let mut b = Builder::new("main", Opset::IOS18);
    let x = b.input("x", Type::tensor(DataType::Fp32, &[2, 3])).unwrap();
    let y = build(&mut b, x).unwrap();
    b.finish(&[("y", y)]).unwrap()
}

#[test]
fn branches_and_loops() {
    let branch = program(|b, x| {
        let sum = b.op("reduce_sum", "sum", [("x", x.into())])?;
        let pred = b.op("greater", "pred", [("x", sum.into()), ("y", Constant::fp32(0.0).into())])?;
        let blocks = ["exp", "sin"].map(|op| {
            let open = b.open_block();
            let y = b.op(op, op, [("x", x.into())]).unwrap();
            b.close_block(open, vec![y])
        });
        Ok(b.cond("y", pred, blocks)?[0])
    });
    compare(&branch, "cond");
    let repeat = program(|b, x| {
        let start = b.op("reduce_argmax", "start", [("x", x.into()), ("axis", Constant::int32(0).into())])?;
        let start = b.op("reduce_min", "first", [("x", start.into())])?;
        let types = [b.ty(start).clone(), b.ty(x).clone()];
        let open = b.open_block();
        let i = b.block_input(&open, "i", types[0].clone());
        b.block_input(&open, "v", types[1].clone());
        let go = b.op("less", "go", [("x", i.into()), ("y", Constant::int32(5).into())])?;
        let condition = b.close_block(open, vec![go]);
        let open = b.open_block();
        let (i, v) = (b.block_input(&open, "i", types[0].clone()), b.block_input(&open, "v", types[1].clone()));
        let next = b.op("add", "next", [("x", i.into()), ("y", Constant::int32(1).into())])?;
        // A value of the block around it.
        let v = b.op("add", "w", [("x", v.into()), ("y", x.into())])?;
        let body = b.close_block(open, vec![next, v]);
        Ok(b.while_loop("loop", &[start, x], [condition, body])?[1])
    });
    compare(&repeat, "while_loop");
}

#[test]
fn states_are_read_and_written() {
    for dtype in [DataType::Fp16, DataType::Fp32] {
        let mut b = Builder::new("main", Opset::IOS18);
        let x = b.input("x", Type::tensor(dtype, &[2, 3])).unwrap();
        let ty = Type::State(Box::new(Type::tensor(dtype, &[2, 3])));
        let states = ["first", "second", "third"].map(|name| b.input(name, ty.clone()).unwrap());
        let read = |b: &mut Builder, i: usize| b.op("read_state", "read", [("input", states[i].into())]).unwrap();
        let first = read(&mut b, 0);
        let sum = b.op("add", "sum", [("x", first.into()), ("y", x.into())]).unwrap();
        let new = b.op("coreml_update_state", "new", [("state", states[0].into()), ("value", sum.into())]).unwrap();
        b.ops("write_state", "w", [("input", states[1].into()), ("data", new.into())]).unwrap();
        let (again, third) = (read(&mut b, 1), read(&mut b, 2));
        let product = b.op("mul", "product", [("x", again.into()), ("y", x.into())]).unwrap();
        let y = b.op("add", "both", [("x", product.into()), ("y", third.into())]).unwrap();
        compare(&b.finish(&[("y", y)]).unwrap(), "states");
    }
}

/// Sparse constants stay sparse; what they are made of is computed.
#[test]
fn sparse_constants() {
    let mask = constant(DataType::UInt1, &[2, 4], &[1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0]);
    let floats = |shape: &[usize], values: &[f64]| constant(DataType::Fp32, shape, values);
    let dense = |b: &mut Builder, mask: ValueId, data: ValueId| {
        b.op("constexpr_sparse_to_dense", "d", [("nonzero_data", data.into()), ("mask", mask.into())])
    };
    let multiplied = |b: &mut Builder, x: ValueId, w: ValueId| b.op("matmul", "p", [("x", x.into()), ("y", w.into())]);
    let wide = |b: &mut Builder, x: ValueId| {
        let x = b.op("transpose", "t", [("x", x.into()), ("perm", Constant::int32s(&[1, 0]).into())])?;
        Ok::<ValueId, MilError>(x)
    };
    compare(
        &program(|b, x| {
            let (mask, data) = (b.constant("m", mask.clone())?, floats(&[5], &[1.0, -2.0, 0.5, 4.0, 3.0]));
            let (data, x) = (b.constant("v", data)?, wide(b, x)?);
            let w = dense(b, mask, data)?;
            multiplied(b, x, w)
        }),
        "sparse",
    );
    compare(
        &program(|b, x| {
            let (mask, x) = (b.constant("m", mask.clone())?, wide(b, x)?);
            let indices = constant(DataType::UInt1, &[5], &[0.0, 1.0, 1.0, 0.0, 1.0]);
            let lut = floats(&[2, 2, 2, 1], &[1.0, -1.0, 0.5, 2.0, 3.0, 4.0, -5.0, 6.0]);
            let args = [("indices_mask", mask.into()), ("indices_nonzero_data", indices.into()), ("lut", lut.into())];
            let parts = b.ops("constexpr_lut_to_sparse", "l", args)?;
            let w = dense(b, parts[0], parts[1])?;
            multiplied(b, x, w)
        }),
        "palettes of sparse indices",
    );
    compare(
        &program(|b, x| {
            let (mask, x) = (b.constant("m", mask.clone())?, wide(b, x)?);
            let data = constant(DataType::Int8, &[5], &[10.0, 11.0, -3.0, 4.0, 5.0]);
            let args = [
                ("data_mask", mask.into()),
                ("nonzero_data", data.into()),
                ("scale", floats(&[1, 2], &[0.5, 2.0]).into()),
            ];
            let parts = b.ops("constexpr_sparse_blockwise_shift_scale", "l", args)?;
            let w = dense(b, parts[0], parts[1])?;
            multiplied(b, x, w)
        }),
        "scales of sparse numbers",
    );
    compare(
        &program(|b, x| {
            let half = constant(DataType::Fp16, &[3], &[0.5, 1.5, -2.0]);
            let args = [("source_val", half.into()), ("output_dtype", Constant::string("fp32").into())];
            let w = b.op("constexpr_cast", "c", args)?;
            b.op("mul", "p", [("x", x.into()), ("y", w.into())])
        }),
        "constexpr_cast",
    );
}

#[test]
fn functions_and_names_stay() {
    let mut both = program(|b, x| b.op("exp", "e", [("x", x.into())]));
    let mut other = program(|b, x| b.op("sin", "e", [("x", x.into())]));
    other.functions[0].name = "other".into();
    both.functions.append(&mut other.functions);
    compare(&both, "functions");
    let back = again(&both, "functions");
    let names: Vec<&str> = back.functions.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names, ["main", "other"]);
}

#[test]
fn weights_are_borrowed() {
    let mut b = Builder::new("main", Opset::IOS18);
    let x = b.input("x", Type::tensor(DataType::Fp32, &[64])).unwrap();
    let bytes = vec![1u8; 256];
    let w = b.weight("w", "@model_path/weights/weight.bin", DataType::Fp32, &[64], bytes).unwrap();
    let y = b.op("mul", "p", [("x", x.into()), ("y", w.into())]).unwrap();
    let program = b.finish(&[("y", y)]).unwrap();
    let emulator = emulator();
    let model = to_coreai(&program, &emulator).unwrap();
    let held = program.weights.bytes(ferrane_mil::WeightId(0)).unwrap().as_ptr();
    let blobs = model.resources.iter().flat_map(|group| &group.resources).filter_map(|r| match &r.value {
        ferrane_coreai::bytecode::ResourceValue::Blob { bytes, .. } => Some(bytes.as_ptr()),
        _ => None,
    });
    assert_eq!(blobs.collect::<Vec<_>>(), [held]);
}

#[test]
fn all_refusals_are_listed() {
    let program = program(|b, x| {
        let shape = Constant::int32s(&[2, 3]);
        let noise = b.op("random_normal", "noise", [("shape", shape.into()), ("mean", Constant::fp32(0.0).into())])?;
        let sum = b.op("add", "sum", [("x", x.into()), ("y", noise.into())])?;
        let dice = Constant::int32s(&[2, 3]);
        let dice = b.op("random_uniform", "dice", [("shape", dice.into()), ("low", Constant::fp32(0.0).into())])?;
        // What nothing depends on is no reason.
        b.op(
            "random_uniform",
            "unused",
            [("shape", Constant::int32s(&[2]).into()), ("low", Constant::fp32(0.0).into())],
        )?;
        b.op("add", "all", [("x", sum.into()), ("y", dice.into())])
    });
    let emulator = emulator();
    let refused = to_coreai(&program, &emulator).unwrap_err();
    let found: Vec<(&str, u16)> = refused.all.iter().map(|r| (r.operation.as_str(), r.code.0)).collect();
    assert_eq!(found, [("random_normal", codes::NO_COUNTERPART.0), ("random_uniform", codes::NO_COUNTERPART.0)]);
    assert!(
        refused.to_string().starts_with("the program is no Core AI model:\n  noise in main (random_normal):"),
        "{refused}"
    );
}
