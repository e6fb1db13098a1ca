//! Containers: those that others wrote, programs of our own there and back, and bytes that are no
//! container.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ferrane_mil::package::{
    AllowedShapes, Description, FeatureType, Form, PackageError, WriteOptions, Written, open, read_model, write,
    write_as, write_model, write_package, write_text,
};
use ferrane_mil::program::Payload;
use ferrane_mil::{
    Builder, Constant, DataType, Dialect, Missing, Opset, Options, Program, Type, Types, Weights, parse, parse_with,
    print,
};
use ferrane_testdata::Suite;
use proptest::prelude::*;

/// Everything of a program that is not where its weights lie: arenas, names, values.
fn content(program: &Program) -> String {
    fn inline(constant: &mut Constant, weights: &Weights) {
        match constant {
            Constant::Tensor { payload, .. } => {
                if let Payload::Weight(id) = payload {
                    *payload = Payload::Bytes(weights.bytes(*id).expect("the weight is there").into());
                }
            }
            Constant::List(_, items) | Constant::Tuple(items) => items.iter_mut().for_each(|c| inline(c, weights)),
            Constant::Dict(_, entries) => entries.iter_mut().for_each(|(k, v)| {
                inline(k, weights);
                inline(v, weights);
            }),
            other => panic!("{other:?}"),
        }
    }
    let mut functions = program.functions.clone();
    for op in functions.iter_mut().flat_map(|f| &mut f.ops) {
        op.span = None;
        op.attributes.iter_mut().for_each(|(_, c)| inline(c, &program.weights));
        for (_, arg) in &mut op.args {
            if let ferrane_mil::Arg::Const(c) = arg {
                inline(c, &program.weights);
            }
        }
    }
    format!("{:?} {:?} {:?} {functions:?}", program.version, program.dialect, program.attributes)
}

/// Writes and opens again. The content is the same; a second time the text is, too, and every byte.
fn round_trip(program: &Program, description: Option<&Description>) -> Result<Program, String> {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("a.mlpackage"), folder.path().join("b.mlpackage"));
    let options = WriteOptions { description, ..WriteOptions::default() };
    write_package(program, &first, &options).map_err(|e| e.to_string())?;
    let read = open(&first).map_err(|e| e.to_string())?;
    if content(&read.program) != content(program) {
        return Err(format!("read as\n{}", print(&read.program)));
    }
    if !read.warnings.is_empty() {
        return Err(format!("{:?}", read.warnings));
    }
    write_package(&read.program, &second, &WriteOptions { description: read.description.as_ref(), ..options })
        .map_err(|e| e.to_string())?;
    for file in crate::files(&first, "") {
        let again = second.join(file.strip_prefix(&first).unwrap());
        if std::fs::read(&file).ok() != std::fs::read(&again).ok() {
            return Err(format!("{} is written in another way the second time", file.display()));
        }
    }
    let twice = open(&second).map_err(|e| e.to_string())?.program;
    if print(&twice) != print(&read.program) {
        return Err("another text the second time".into());
    }
    Ok(read.program)
}

#[test]
fn packages_of_others_read_print_and_write() {
    let Some(mut suite) = Suite::open("mil-packages", "mil") else { return };
    let folder = suite.folder().to_path_buf();
    for manifest in crate::files(&folder, ".mlpackage/Manifest.json") {
        let path = manifest.parent().unwrap();
        let id = crate::id(&folder, path);
        let result = open(path).map_err(|e| e.to_string()).and_then(|opened| {
            let program = &opened.program;
            let text = print(program);
            let again = parse(&text, &program.weights).map_err(|e| format!("its text: {e:?}"))?;
            if print(&again) != text || content(&again) != content(program) {
                return Err("its text is read as another program".into());
            }
            let written = round_trip(program, opened.description.as_ref())?;
            // What lay in one weight file, in the order of the file, lies there again.
            if print(&written) != text { Err("another text after writing".into()) } else { Ok(()) }
        });
        suite.case(&id, result);
    }
    for text in crate::files(&folder, ".mlmodelc/model.mil") {
        let path = text.parent().unwrap();
        let result = open(path).map_err(|e| e.to_string()).and_then(|opened| match (opened.form, opened.description) {
            (Form::Compiled, Some(description)) => {
                let written = round_trip(&opened.program, Some(&description))?;
                if print(&written) == print(&opened.program) { Ok(()) } else { Err("another text".into()) }
            }
            other => Err(format!("{other:?}")),
        });
        suite.case(&crate::id(&folder, path), result);
    }
    suite.finish();
}

#[test]
fn models_of_other_kinds_are_named() {
    let Some(mut suite) = Suite::open("mil-models", "hwx") else { return };
    let folder = suite.folder().to_path_buf();
    for path in crate::files(&folder, ".mlmodel") {
        let result = match open(&path) {
            Ok(_) => Ok(()),
            // `a neural network (field 500, specification version 1)`.
            Err(PackageError::NotMlProgram { kind, .. }) if kind.contains("field") => Ok(()),
            Err(e) => Err(e.to_string()),
        };
        suite.case(&crate::id(&folder, &path), result);
    }
    suite.finish();
}

/// A NeuralNetwork of specification 1 with an empty description, as bytes of protobuf.
#[test]
fn a_neural_network_is_no_program() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.mlmodel");
    std::fs::write(&path, [8, 1, 0x12, 0, 0xa2, 0x1f, 0]).unwrap();
    let e = open(&path).unwrap_err().to_string();
    assert!(e.ends_with("not an ML Program: a neural network (field 500, specification version 1)"), "{e}");
    std::fs::write(&path, [8, 1, 0x12, 0]).unwrap();
    assert!(matches!(open(&path), Err(PackageError::NotMlProgram { .. })));
    std::fs::write(&path, [0x12, 0]).unwrap();
    assert!(matches!(open(&path), Err(PackageError::Model { .. })));
}

/// One constant of each element type, inline and long enough for the file, and records in two
/// files.
fn program_of_constants(opset: &str) -> Program {
    let mut b = Builder::new("main", opset.parse().unwrap());
    let x = b.input("x", Type::tensor(DataType::Fp32, &[2])).unwrap();
    for (dtype, name) in DataType::ALL {
        for n in [0, 1, 5, 13] {
            let name = format!("{name}_{n}");
            let value = match Type::tensor(dtype, &[n]).bytes() {
                // Bits that no two elements share, NaN payloads among them; a bool is 0 or 1.
                Some(_) if dtype == DataType::Bool => Constant::raw(dtype, &[n], &vec![1; n]),
                Some(bytes) => {
                    let mut all: Vec<u8> = (0..bytes).map(|i| (i * 37 + 0xf1) as u8).collect();
                    let unused = (bytes * 8).saturating_sub(n * dtype.bits().unwrap());
                    if let Some(last) = all.last_mut() {
                        *last &= 0xff >> unused;
                    }
                    Constant::raw(dtype, &[n], &all)
                }
                None => {
                    let strings = vec!["a \"quoted\" é\n".to_string(); n];
                    Constant::Tensor { ty: Type::tensor(dtype, &[n]), payload: Payload::Strings(strings.into()) }
                }
            };
            b.constant(&name, value).unwrap();
        }
    }
    for (i, file) in ["@model_path/weights/a.bin", "@model_path/b.bin", "@model_path/weights/a.bin"].iter().enumerate()
    {
        b.weight(&format!("w{i}"), file, DataType::Fp16, &[3, 7], vec![i as u8; 42]).unwrap();
    }
    let y = b.op("relu", "y", [("x", x.into())]).unwrap();
    b.finish(&[("y", y)]).unwrap()
}

#[test]
fn constants_of_every_type_survive() {
    for opset in ["ios15", "ios18"] {
        let program = program_of_constants(opset);
        let read = round_trip(&program, None).unwrap();
        let main = &read.functions[0];
        let stored = |name: &str| {
            let value = main.values.iter().position(|v| v.name == name).unwrap();
            let constant = main.constant(ferrane_mil::ValueId(value as u32)).unwrap();
            matches!(constant, Constant::Tensor { payload: Payload::Weight(_), .. })
        };
        // coremltools 9.0 `should_use_weight_file`: ten elements, four types, others from iOS 18
        // on.
        assert!(stored("fp16_13") && stored("uint8_13") && stored("w0") && !stored("fp16_5") && !stored("bool_13"));
        assert!(stored("int32_13") == (opset == "ios18") && stored("uint3_13") == (opset == "ios18"));
        // One file, whatever the program had.
        assert_eq!(
            read.weights.files().iter().map(|(p, _)| p.as_str()).collect::<Vec<_>>(),
            ["@model_path/weights/weight.bin"]
        );

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.mlmodel");
        write_model(&program, &path, &WriteOptions::default()).unwrap();
        let bare = open(&path).unwrap();
        assert_eq!(bare.form, Form::Model);
        assert_eq!(content(&bare.program), content(&program));
        assert!(bare.program.weights.is_empty());
    }
}

/// Functions, specializations, states, nested blocks, aggregates, lists of one, unknown ops: all
/// that text can say.
const ALL_SORTS: &str = r#"program(1.3)
[buildInfo = dict<string, string>({{"k", "v"}}), shapes = tuple<tensor<int32, [2]>, list<string, 2>>(([1, 2], ["a", "b"]))]
{
    func main<ios18>(tensor<fp16, [2, 3]> x, state<tensor<fp16, [2, 3]>> s, tensor<bool, []> p) [note = fp64(0.1)] {
        tensor<fp16, [2, 3]> r = read_state(input = s)[name = string("r")];
        tensor<fp16, [2, 3]> one = concat(axis = int32(0), interleave = bool(false), values = (r))[name = string("one")];
        tensor<fp16, [4, 3]> two = concat(axis = int32(0), interleave = bool(false), values = (r, one))[name = string("two")];
        write_state(data = one, input = s)[name = string("w")];
        tensor<fp16, [2, 3]> c = cond(pred = p)[name = string("c")] () {
            tensor<fp16, [2, 3]> a = add(x = x, y = one)[name = string("a")];
        } -> (a) () {
            tensor<fp16, [2, 3]> l, tensor<fp16, [2, 3]> m = while_loop(loop_vars = (x, one))[name = string("l")] (tensor<fp16, [2, 3]> i, tensor<fp16, [2, 3]> n) {
                tensor<bool, []> q = strange_op(x = i, with = tensor<fp16, [1, 2]>([[1, nan]]))[name = string("q")];
            } -> (q) (tensor<fp16, [2, 3]> j, tensor<fp16, [2, 3]> o) {
                tensor<fp16, [2, 3]> k = mul(x = j, y = o)[name = string("k")];
            } -> (k, j);
        } -> (l);
        tensor<string, []> t = classify(probabilities = x, classes = list<string, 2>(["yes", "no"]))[name = string("t")];
    } -> (c, t);
    func main<ios17>(tensor<fp16, [2, 3]> x, state<tensor<fp16, [2, 3]>> s, tensor<bool, []> p) [note = fp64(0.1)] {
        tensor<fp16, [2, 3]> c = relu(x = x)[name = string("c")];
        tensor<string, []> t = const()[name = string("t"), val = string("seventeen")];
    } -> (c, t);
    func other<ios16>(tensor<fp32, [2, ?]> x) {
        tensor<fp32, [2, ?]> y = relu(x = x)[name = string("y")];
    } -> (y);
}
"#;

fn trusting(text: &str) -> Program {
    let options = Options { types: Types::Trust, missing: Missing::Refuse, ..Options::default() };
    let parsed = parse_with(text, &Weights::new(), options);
    parsed.program.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics))
}

#[test]
fn all_that_text_can_say_survives() {
    let mut program = trusting(ALL_SORTS);
    // No description can be made of a bool, or of an input of unknown extent.
    let folder = tempfile::tempdir().unwrap();
    let refused = write_package(&program, folder.path().join("a.mlpackage"), &WriteOptions::default()).unwrap_err();
    assert!(refused.to_string().contains("no multiarray holds bool"), "{refused}");
    let like = ALL_SORTS.replace("tensor<bool, []> p)", "tensor<int32, []> p)").replace('?', "4");
    let description = Description::of(&trusting(&like)).unwrap();
    for (version, dialect) in [((1, 3), Dialect::Shorthand), ((1, 0), Dialect::Verbose), ((1, 5), Dialect::Verbose)] {
        (program.version, program.dialect) = (version, dialect);
        let read = round_trip(&program, Some(&description)).unwrap();
        assert_eq!(print(&read), print(&program));
    }
    let ports = description.functions();
    assert_eq!(ports.iter().map(|p| p.function.as_str()).collect::<Vec<_>>(), ["main", "other"]);
    assert_eq!((ports[0].inputs.len(), ports[0].states.len(), ports[0].outputs.len()), (2, 1, 2));
    assert_eq!(
        ports[0].states[0].ty,
        FeatureType::MultiArray { dtype: Some(DataType::Fp16), shape: vec![2, 3], allowed: AllowedShapes::Default }
    );
    assert_eq!(ports[0].outputs[1].ty, FeatureType::String);
}

#[test]
fn a_description_is_that_of_its_program() {
    let program = program_of_constants("ios16");
    let mut b = Builder::new("main", Opset::IOS16);
    let x = b.input("another", Type::tensor(DataType::Fp32, &[2])).unwrap();
    let y = b.op("relu", "y", [("x", x.into())]).unwrap();
    let other = Description::of(&b.finish(&[("y", y)]).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let options = WriteOptions { description: Some(&other), ..WriteOptions::default() };
    let e = write_package(&program, folder.path().join("a.mlpackage"), &options).unwrap_err();
    assert!(matches!(e, PackageError::Unwritable { .. }), "{e}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
}

/// coremltools 9.0 writes `coreml_update_state` as these two ops.
#[test]
fn updating_a_state_is_writing_and_reading_it() {
    let text = r#"program(1.3)
{
    func main<ios18>(tensor<fp16, [2]> x, state<tensor<fp16, [2]>> s) {
        tensor<fp16, [2]> u = coreml_update_state(state = s, value = x)[name = string("u")];
    } -> (u);
}
"#;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mlpackage");
    write_package(&trusting(text), &path, &WriteOptions::default()).unwrap();
    let read = open(&path).unwrap();
    assert_eq!(read.specification_version, Some(9));
    let text = print(&read.program);
    assert!(text.contains(r#"write_state(input = s, data = x)[name = string("u_write_state")];"#), "{text}");
    assert!(text.contains(r#"u = read_state(input = s)[name = string("u")];"#), "{text}");
}

#[test]
fn nothing_is_replaced_unasked() {
    let program = program_of_constants("ios18");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mlpackage");
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("precious"), "x").unwrap();
    let e = write_package(&program, &path, &WriteOptions::default()).unwrap_err();
    assert!(matches!(e, PackageError::Exists { .. }), "{e}");
    assert!(path.join("precious").exists());
    write_package(&program, &path, &WriteOptions { overwrite: true, ..WriteOptions::default() }).unwrap();
    assert!(!path.join("precious").exists());
    assert_eq!(content(&open(&path).unwrap().program), content(&program));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no other file remains");
}

#[test]
fn text_finds_its_weights_beside_it() {
    let mut b = Builder::new("main", Opset::IOS18);
    let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 2, 1, 4])).unwrap();
    let w = b.weight("w", "@model_path/weights/w.bin", DataType::Fp16, &[3, 2, 1, 1], vec![7; 12]).unwrap();
    let y = b.conv("y", x, w, None, &Default::default()).unwrap();
    let program = b.finish(&[("y", y)]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.mil");
    write_text(&program, &path, false).unwrap();
    assert!(matches!(write_text(&program, &path, false), Err(PackageError::Exists { .. })));
    write_text(&program, &path, true).unwrap();
    assert_eq!(crate::files(folder.path(), ""), [path.clone(), folder.path().join("weights/w.bin")]);
    let weights = folder.path().join("weights/w.bin");
    let bytes = std::fs::read(&weights).unwrap();
    std::fs::remove_file(&weights).unwrap();
    assert!(matches!(open(&path), Err(PackageError::Text { .. })), "the weights are not there");
    std::fs::write(&weights, bytes).unwrap();
    for (path, form) in [(path.as_path(), Form::Text), (folder.path(), Form::Compiled)] {
        let opened = open(path).unwrap();
        assert_eq!(opened.form, form);
        assert_eq!(print(&opened.program), print(&program));
        assert_eq!(content(&opened.program), content(&program));
    }
    std::fs::write(&path, print(&program).replace("weights/w.bin", "weights/../../w.bin")).unwrap();
    assert!(open(&path).unwrap_err().to_string().contains("leads out of its folder"));

    let mut b = Builder::new("main", Opset::IOS18);
    let w = b.weight("w", "@model_path/../w.bin", DataType::Fp16, &[1], vec![0; 2]).unwrap();
    let y = b.op("relu", "y", [("x", w.into())]).unwrap();
    let e = write_text(&b.finish(&[("y", y)]).unwrap(), folder.path().join("b.mil"), false).unwrap_err();
    assert!(matches!(&e, PackageError::Outside { name } if name == "@model_path/../w.bin"), "{e}");
}

#[test]
fn the_name_of_a_file_selects_its_form() {
    let relu = |input: &str| {
        let mut b = Builder::new("main", Opset::IOS18);
        let x = b.input(input, Type::tensor(DataType::Fp16, &[3, 2, 1, 1])).unwrap();
        let w = b.weight("w", "@model_path/weights/w.bin", DataType::Fp16, &[3, 2, 1, 1], vec![7; 12]).unwrap();
        let y = b.op("add", "y", [("x", x.into()), ("y", w.into())]).unwrap();
        b.finish(&[("y", y)]).unwrap()
    };
    let (program, folder) = (relu("x"), tempfile::tempdir().unwrap());
    let at = |name: &str| folder.path().join(name);
    let own = Description::of(&program).unwrap();
    let put = |program: &Program, name: &str, overwrite: bool| {
        write(program, at(name), &WriteOptions { overwrite, description: Some(&own), ..WriteOptions::default() })
    };
    for (name, form) in [("m.mlpackage", Form::Package), ("m.mlmodel", Form::Model)] {
        let Written { files, dropped } = put(&program, name, false).unwrap();
        assert_eq!((files, dropped), (vec![at(name)], None));
        assert_eq!(open(at(name)).unwrap().form, form);
        assert!(matches!(put(&program, name, false), Err(PackageError::Exists { .. })));
        // The description is of another input.
        let dropped = put(&relu("z"), name, true).unwrap().dropped.unwrap();
        assert!(dropped.starts_with("cannot be written as"), "{dropped}");
        assert_eq!(open(at(name)).unwrap().description.unwrap().functions()[0].inputs[0].name, "z");
    }
    let Written { files, dropped } = put(&program, "m.mil", false).unwrap();
    assert_eq!((files, dropped.as_deref()), (vec![at("weights/w.bin"), at("m.mil")], Some("text cannot hold it")));
    // The same weights are there already; others are not replaced, and no text goes with them.
    assert_eq!(put(&program, "n.mil", false).unwrap().files, [at("n.mil")]);
    std::fs::write(at("weights/w.bin"), "other").unwrap();
    let e = put(&program, "o.mil", false).unwrap_err();
    assert!(matches!(&e, PackageError::OtherWeights { path } if *path == at("weights/w.bin")), "{e}");
    assert!(!at("o.mil").exists() && std::fs::read(at("weights/w.bin")).unwrap() == b"other");
    put(&program, "o.mil", true).unwrap();
    assert_eq!(content(&open(at("o.mil")).unwrap().program), content(&program));
    for name in ["m.mlmodelc", "m.onnx", "m"] {
        assert!(matches!(put(&program, name, true), Err(PackageError::Unrecognized { .. })), "{name}");
    }
    let e = write_as(&program, at("m.onnx"), Form::Onnx, &WriteOptions::default()).unwrap_err();
    assert!(e.to_string().contains("an ONNX model is not written"), "{e}");
}

/// A length-delimited field of a message.
fn field(number: u64, content: &[u8]) -> Vec<u8> {
    let mut out = varint(number << 3 | 2);
    out.extend(varint(content.len() as u64));
    out.extend(content);
    out
}

/// What stands before a field's content of so many bytes.
fn header(number: u64, content: usize) -> Vec<u8> {
    [varint(number << 3 | 2), varint(content as u64)].concat()
}

/// So many messages inside each other; `before` gives what stands before the bytes of the inner
/// ones.
fn nested(depth: usize, before: impl Fn(usize) -> Vec<u8>) -> Vec<u8> {
    let mut length = 0;
    let mut parts = Vec::new();
    for _ in 0..depth {
        parts.push(before(length));
        length += parts.last().map_or(0, Vec::len);
    }
    parts.into_iter().rev().flatten().collect()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

fn read(bytes: &[u8]) -> Result<Program, String> {
    let begun = Instant::now();
    let result = read_model(bytes, &Weights::new(), Options::default()).map(|o| o.program).map_err(|e| e.to_string());
    // Reading is linear, and these are small. The time is that of a busy machine.
    assert!(begun.elapsed() < Duration::from_secs(5));
    if let Ok(program) = &result {
        print(program);
    }
    result
}

/// A model of one function `main` with this body.
fn model_of(body: &[u8]) -> Vec<u8> {
    let entry = |value: Vec<u8>, key: &[u8]| [field(1, key), field(2, &value)].concat();
    let function = [field(2, b"CoreML8"), field(3, &entry(body.to_vec(), b"CoreML8"))].concat();
    let program = [vec![8, 1], field(2, &entry(function, b"main"))].concat();
    [vec![8, 9], field(2, &[]), field(502, &program)].concat()
}

#[test]
fn hostile_messages_are_refused() {
    assert!(read(&model_of(&[])).is_ok());
    // A hundred thousand blocks in ops, and lists in lists, inside each other.
    let deep_blocks = nested(100_000, |inner| {
        let block = [field(1, b"cond"), header(4, inner)].concat();
        [header(3, block.len() + inner), block].concat()
    });
    assert!(read(&model_of(&deep_blocks)).unwrap_err().contains("blocks nest deeper than 64"));
    let deep_lists = nested(100_000, |inner| {
        let list = header(1, inner);
        let immediate = [header(3, list.len() + inner), list].concat();
        // Every list has a type, or the first one would be refused for having none.
        let ty = field(2, &field(2, &field(1, &field(1, &[8, 10]))));
        [ty, header(3, immediate.len() + inner), immediate].concat()
    });
    let deep_types = nested(100_000, |inner| {
        let list = header(1, inner);
        [header(2, list.len() + inner), list].concat()
    });
    for (value, reason) in [(deep_lists, "values nest deeper than 32"), (field(2, &deep_types), "recursion limit")] {
        let attribute = field(5, &[field(1, b"val"), field(2, &value)].concat());
        let e = read(&model_of(&field(3, &[field(1, b"const"), attribute].concat()))).unwrap_err();
        assert!(e.contains(reason), "{e}");
    }
    // Types and extents beyond all bounds.
    let tensor = |dims: &[u64]| {
        let dim = |n: &u64| field(3, &field(1, &[vec![8], varint(*n)].concat()));
        let rank = dims.len() as u64;
        let dims: Vec<u8> = dims.iter().flat_map(dim).collect();
        field(1, &[vec![8, 10, 16], varint(rank), dims].concat())
    };
    let constant = |dims: &[u64], content: &[u8]| {
        let value = [field(2, &tensor(dims)), content.to_vec()].concat();
        let output = field(3, &[field(1, b"v"), field(2, &tensor(&[1]))].concat());
        model_of(&field(
            3,
            &[field(1, b"const"), output, field(5, &[field(1, b"val"), field(2, &value)].concat())].concat(),
        ))
    };
    let bytes = |b: &[u8]| field(3, &field(1, &field(7, &field(1, b))));
    assert!(read(&constant(&[1], &bytes(&[1, 2]))).is_ok());
    for (dims, content, reason) in [
        (&[1][..], bytes(&[1, 2, 3]), "3 bytes where 1 elements"),
        (&[1 << 33], bytes(&[]), "extent"),
        (&[u64::MAX], bytes(&[]), "extent"),
        (&[1 << 30, 1 << 30, 1 << 30], bytes(&[]), "value"),
        (&[1 << 30, 1 << 30], bytes(&[0; 4]), "elements"),
        (&[1], field(5, &field(1, b"/etc/passwd")), "blob file"),
        (&[1], Vec::new(), "without content"),
    ] {
        let e = read(&constant(dims, &content)).unwrap_err();
        assert!(e.contains(reason), "{e}");
    }
    // Blob files in the folder of the model only, and only what is one.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hostile.mlmodel");
    for (file, reason) in [
        ("@model_path/../x", "leads out"),
        ("/etc/passwd", "no blob file"),
        ("@model_path/hostile.mlmodel", "no record"),
    ] {
        std::fs::write(&path, constant(&[1], &field(5, &field(1, file.as_bytes())))).unwrap();
        let e = open(&path).unwrap_err().to_string();
        assert!(e.contains(reason), "{e}");
    }
    // A length that the file does not have.
    assert!(read(&[vec![8, 9], varint(502 << 3 | 2), varint(u64::MAX)].concat()).is_err());
    assert!(read(&[vec![8, 9], varint(502 << 3 | 2), varint(1 << 40)].concat()).is_err());
}

#[test]
fn names_are_checked() {
    let op = |name: &[u8], output: &[u8]| {
        let ty = field(2, &field(1, &[8, 10]));
        field(3, &[field(1, name), field(3, &[field(1, output), ty].concat())].concat())
    };
    let open = |body: Vec<u8>| read(&model_of(&body));
    assert!(open([0x1a, 0].repeat(64_000)).unwrap_err().contains("not an identifier"));
    assert!(open(op(b"relu(", b"y")).unwrap_err().contains("not an identifier"));
    assert!(open([op(b"relu", b"y"), op(b"relu", b"y")].concat()).unwrap_err().contains("two values are named `y`"));
    assert!(open(field(2, b"y")).unwrap_err().contains("`y` is used and not defined"));
    // A name inside that text could not say is replaced; an output's is meaning.
    let program = open([op(b"relu", b"a/b"), op(b"relu", b"a_b")].concat()).unwrap();
    let names: Vec<&str> = program.functions[0].values.iter().map(|v| v.name.as_str()).collect();
    assert_eq!(names, ["a_b", "a_b_1"]);
    assert!(open([op(b"relu", b"a/b"), field(2, b"a/b")].concat()).unwrap_err().contains("not an identifier"));
}

fn model_bytes() -> Vec<u8> {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let make = || {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.mlmodel");
        write_model(&program_of_constants("ios18"), &path, &WriteOptions::default()).unwrap();
        std::fs::read(path).unwrap()
    };
    BYTES.get_or_init(make).clone()
}

#[test]
fn truncated_models_are_refused() {
    let bytes = model_bytes();
    for end in (0..bytes.len()).step_by(7) {
        assert!(read(&bytes[..end]).is_err(), "{end}");
    }
}

proptest! {
    #![proptest_config(crate::cases(200))]

    #[test]
    fn changed_models_do_no_harm(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut bytes = model_bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = read(&bytes);
    }

    #[test]
    fn random_programs_do_no_harm(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&model_of(&body));
    }
}

#[test]
fn manifests_keep_the_rules() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mlpackage");
    write_package(&program_of_constants("ios18"), &path, &WriteOptions::default()).unwrap();
    let manifest = path.join("Manifest.json");
    let good = std::fs::read_to_string(&manifest).unwrap();
    let data = path.join("Data");
    std::fs::write(folder.path().join("outside.mlmodel"), model_bytes()).unwrap();
    for (from, to, reason) in [
        ("\"1.0.0\"", "\"2.0.0\"", "only 1 is known"),
        ("\"1.0.0\"", "1", "no `fileFormatVersion`"),
        ("com.apple.CoreML/model.mlmodel", "../../outside.mlmodel", "leads out"),
        ("com.apple.CoreML/model.mlmodel", "/etc/passwd", "leads out"),
        ("com.apple.CoreML/model.mlmodel", "com.apple.CoreML/none.mlmodel", "not there"),
        ("com.apple.CoreML/model.mlmodel", "com.apple.CoreML/link.mlmodel", "leads out"),
        ("rootModelIdentifier", "root", "no `rootModelIdentifier`"),
        ("\"rootModelIdentifier\": \"", "\"rootModelIdentifier\": \"x", "not an entry"),
        ("{", "[", "no JSON"),
    ] {
        #[cfg(unix)]
        let _ = std::os::unix::fs::symlink("../../../outside.mlmodel", data.join("com.apple.CoreML/link.mlmodel"));
        std::fs::write(&manifest, good.replacen(from, to, 1)).unwrap();
        let e = open(&path).unwrap_err().to_string();
        assert!(e.contains(reason) || (cfg!(not(unix)) && to.contains("link")), "{e}");
    }
    // A minor version, and identifiers that are no UUIDs, are fine.
    let root = serde_json::from_str::<serde_json::Value>(&good).unwrap()["rootModelIdentifier"].clone();
    std::fs::write(&manifest, good.replace("1.0.0", "1.7").replace(root.as_str().unwrap(), "my model")).unwrap();
    assert!(open(&path).is_ok());
}

/// Mapped, not read: a gibibyte takes no longer than a kilobyte.
#[test]
fn a_large_weight_file_opens_at_once() {
    let rows = 1 << 15;
    let mut b = Builder::new("main", Opset::IOS18);
    let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 1])).unwrap();
    let w = b.weight("w", "@model_path/weights/weight.bin", DataType::Fp16, &[1, 1], vec![0; 2]).unwrap();
    b.op("mul", "unused", [("x", x.into()), ("y", w.into())]).unwrap();
    let y = b.op("relu", "y", [("x", x.into())]).unwrap();
    let text = print(&b.finish(&[("y", y)]).unwrap()).replace("fp16, [1, 1]> w =", "fp16, [32768, 16384]> w =");
    let text = text.replace("val = tensor<fp16, [1, 1]>(BLOB", "val = tensor<fp16, [32768, 16384]>(BLOB");
    let text = text.replace("tensor<fp16, [1, 1]> unused", "tensor<fp16, [32768, 16384]> unused");

    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("weights")).unwrap();
    let path = folder.path().join("weights/weight.bin");
    let size = rows * 16384 * 2u64;
    let mut header = vec![0u8; 128];
    header[..8].copy_from_slice(&[1, 0, 0, 0, 2, 0, 0, 0]);
    header[64..72].copy_from_slice(&[0xef, 0xbe, 0xad, 0xde, 1, 0, 0, 0]);
    header[72..80].copy_from_slice(&size.to_le_bytes());
    header[80..88].copy_from_slice(&128u64.to_le_bytes());
    std::fs::write(&path, &header).unwrap();
    // The rest is a hole: it takes no room on the disk.
    std::fs::File::options().write(true).open(&path).unwrap().set_len(128 + size).unwrap();
    std::fs::write(folder.path().join("model.mil"), text).unwrap();
    // The best of several: other tests run at the same time.
    let best = (0..5)
        .map(|_| {
            let begun = Instant::now();
            let opened = open(folder.path()).unwrap();
            let took = begun.elapsed();
            assert!(opened.warnings.is_empty());
            took
        })
        .min()
        .unwrap();
    assert!(best < Duration::from_millis(50), "{best:?}");
}

#[test]
fn blocks_beside_each_other_keep_their_names() {
    let program = parse(crate::text::LOOP, &Weights::new()).unwrap();
    let read = round_trip(&program, None).unwrap();
    assert_eq!(print(&read), print(&program));
}
