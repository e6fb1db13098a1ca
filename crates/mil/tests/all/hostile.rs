//! Broken and hostile text: diagnostics, never a panic, and soon.

use std::time::{Duration, Instant};

use ferrane_diag::Source;
use ferrane_mil::{Missing, Options, Strictness, Types, Weights, parse_with, print};
use proptest::prelude::*;

/// Reads within a second, renders the diagnostics, and prints the program if there is one.
fn survive(text: &[u8]) {
    let start = Instant::now();
    for options in
        [Options::default(), Options { missing: Missing::Keep, strictness: Strictness::Lenient, types: Types::Trust }]
    {
        let parsed = parse_with(text, &Weights::new(), options);
        assert_eq!(parsed.program.is_none(), parsed.diagnostics.has_errors());
        let source = Source::new("t", text);
        assert_eq!(parsed.diagnostics.render(&source, true).is_empty(), parsed.diagnostics.is_empty());
        if let Some(program) = parsed.program {
            let once = print(&program);
            let again = parse_with(&once, &program.weights, options).program.expect("printed text is valid");
            assert_eq!(print(&again), once);
        }
    }
    // Generous for a busy machine; a quadratic reader would take minutes on the inputs below.
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

const WORDS: &[&str] = &[
    "program(1.3)",
    "{",
    "}",
    "func main<ios18>(",
    ")",
    "(",
    "[",
    "]",
    "tensor<fp16, [1, 2]>",
    "tensor",
    "<",
    ">",
    ",",
    ";",
    "=",
    "->",
    "x",
    "y",
    " ",
    "\n",
    "const()",
    "val",
    "name",
    "string(\"a\")",
    "fp16(1)",
    "add",
    "x = x",
    "BLOBFILE(",
    "path = string(\"w\")",
    "offset = uint64(64)",
    "dict<string, string>",
    "tuple<",
    "list<",
    "?",
    "1e",
    "0x1p-3",
    "-",
    "//",
    "\"",
    "\\",
    "nan(",
    "99999999999999999999",
    "é",
    "reshape",
    "shape = tensor<int32, [2]>([-1, 0])",
    "split",
    "num_splits = int32(0)",
];

proptest! {
    #![proptest_config(crate::cases(300))]

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        survive(&bytes);
    }

    #[test]
    fn random_words(words in prop::collection::vec(0..WORDS.len(), 0..120)) {
        let text: String = words.iter().map(|&w| WORDS[w]).collect::<Vec<_>>().join("");
        survive(text.as_bytes());
        survive(format!("program(1.3){{func main<ios18>(tensor<fp16,[1,2]> x){{{text}}}->(x);}}").as_bytes());
    }

    #[test]
    fn mutated_programs(text in crate::random::printed(), edits in prop::collection::vec((any::<u16>(), 0u8..6, any::<u8>()), 1..6)) {
        let mut bytes = text.into_bytes();
        for (at, what, b) in edits {
            if bytes.is_empty() {
                break;
            }
            let at = at as usize % bytes.len();
            let word = WORDS[b as usize % WORDS.len()].bytes();
            match what {
                0 => bytes[at] = b,
                1 => bytes.truncate(at.max(1)),
                2 => { bytes.remove(at); }
                3 => { bytes.splice(at..at, word); }
                4 => { let end = (at + b as usize).min(bytes.len()); bytes.drain(at..end); bytes.push(b' '); }
                _ => { let end = (at + b as usize).min(bytes.len()); let copy = bytes[at..end].to_vec(); bytes.splice(at..at, copy); }
            }
        }
        survive(&bytes);
    }
}

fn program(body: &str) -> String {
    format!("program(1.3)\n{{\nfunc main<ios18>(tensor<fp16, [1, 2]> x) {{\n{body}\n}} -> (x);\n}}\n")
}

#[test]
fn large_and_deep_inputs_end_soon() {
    let n = 20_000;
    let many = |f: &dyn Fn(usize) -> String| (0..n).map(f).collect::<String>();
    let inputs = [
        "[".repeat(200_000),
        "tuple<".repeat(200_000),
        program(&format!("tensor<fp16, [1]> a = const()[val = tensor<fp16, [1]>({}", "[".repeat(100_000))),
        program(&format!("tuple<{}> a = const()[val = {}", "tuple<".repeat(50_000), "(".repeat(50_000))),
        program(&"tensor<fp16, [1]> a = cond() () {\n".repeat(10_000)),
        program(&many(&|i| format!("tensor<fp16, [1, 2]> v{i} = relu(x = x);\n"))),
        program(&many(&|i| format!("tensor<fp16, [1, 2]> v{i} = relu(x = u{i});\n"))),
        program(&many(&|i| {
            format!(
                "tensor<fp16, [1]> v{i} = const()[val = tensor<fp16, [1]>(BLOBFILE(path = string(\"w\"), offset = uint64({i})))];\n"
            )
        })),
        program(&format!("tensor<fp16, [1]> a = foo({});", many(&|i| format!("a{i} = x, ")))),
        program(&format!("tensor<fp16, [1]> a = concat(values = ({}), axis = int32(0));", "x, ".repeat(n))),
        program(&format!(
            "tensor<int32, [{}]> a = const()[val = tensor<int32, [{}]>([{}])];",
            n * 10,
            n * 10,
            "1, ".repeat(n * 10)
        )),
        program(&format!(
            "tensor<fp16, [1]> a = transpose(x = x, perm = tensor<int32, [{n}]>([{}0]));",
            "0, ".repeat(n - 1)
        )),
        program(&format!(
            "tensor<fp16, [1]> a = expand_dims(x = x, axes = tensor<int32, [{n}]>([{}0]));",
            many(&|i| format!("{i}, "))
        )),
        program("tensor<fp16, [1]> a = const()[val = tensor<fp16, [2147483647, 2147483647]>([1])];"),
        program(
            "tensor<fp16, [0, 2147483647]> a = const()[val = tensor<fp16, [0, 2147483647]>([])];\ntensor<fp16, [1]> b = split(x = a, num_splits = int32(2147483647), axis = int32(0));",
        ),
        program(
            "tensor<fp16, [1]> a = foo();\ntensor<fp16, [1]> b = tile(x = a, reps = tensor<int32, [1]>([2147483647]));\ntensor<fp16, [1]> c = pad(x = a, pad = tensor<int32, [2]>([2147483647, 2147483647]));",
        ),
        program(
            "tensor<fp16, [1, 1, 2147483647, 1]> a = foo();\ntensor<fp16, [1, 1, 2147483647, 1]> w = foo2();\ntensor<fp16, [1]> c = conv(x = a, weight = w, dilations = tensor<int32, [2]>([2147483647, 1]), pad_type = string(\"custom\"), pad = tensor<int32, [4]>([2147483647, 2147483647, 0, 0]));",
        ),
        program(&format!("string s = const()[val = string(\"{}\")];", "\\".repeat(100_001))),
        format!("program(1.3)\n{{\n{}\n}}", "func main<ios18>() {} -> ();\n".repeat(n)),
        format!("program(1.3)\n{{\n{}}}", many(&|i| format!("func main<ios{i}>() {{}} -> ();\n"))),
        // References to blobs whose own names lie in blobs.
        program(&format!("string a = const()[val = {}", "string(BLOBFILE(path = ".repeat(100_000))),
        program(&format!(
            "string a = const()[val = {}",
            "tuple<string>((string(BLOBFILE(path = tuple<string>((".repeat(50_000)
        )),
        // Numbers that never end, and one exponent after the other.
        program(&format!("fp16 a = const()[val = fp16({})];", "1e+".repeat(300_000))),
        program(&format!("fp16 a = const()[val = fp16(0x{})];", "1p+".repeat(300_000))),
        // Many undefined names, and names too long to be compared with.
        program(&format!(
            "tensor<fp16, [1]> a = concat(values = ({}));",
            (0..500_000).map(|i| format!("undefined_name_{i}, ")).collect::<String>()
        )),
        program(&format!(
            "tensor<fp16, [1, 2]> {} = relu(x = x);\ntensor<fp16, [1]> a = concat(values = ({}));",
            "z".repeat(10_000_000),
            many(&|i| format!("{}{i}, ", "z".repeat(90)))
        )),
        program(&format!("tensor<fp16, [1]> a = {}({});", "f".repeat(1_000_000), "x, ".repeat(300_000))),
    ];
    for (i, text) in inputs.iter().enumerate() {
        let start = Instant::now();
        survive(text.as_bytes());
        assert!(start.elapsed() < Duration::from_secs(10), "input {i} took {:?}", start.elapsed());
    }
}

/// What a message says of a list is short, however long the list is.
#[test]
fn messages_do_not_hold_whole_lists() {
    let n = 20_000;
    let list = format!("tensor<int32, [{n}]>([{}7])", "7, ".repeat(n - 1));
    let pools = "pad_type = string(\"custom\"), kernel_sizes";
    let calls = [
        format!("tile(x = y, reps = {list})"),
        format!("pad(x = y, pad = {list})"),
        format!("transpose(x = y, perm = {list})"),
        format!("reshape(x = y, shape = {list})"),
        format!("split(x = y, split_sizes = {list}, axis = int32(0))"),
        format!("split(x = y, split_sizes = tensor<int32, [4000]>([{}7]), axis = int32(0))", "7, ".repeat(3999)),
        format!("conv(x = y, weight = y, strides = {list})"),
        format!("max_pool(x = y, {pools} = {list})"),
        format!("max_pool(x = y, {pools} = tensor<int32, [2]>([1, 1]), pad = {list})"),
    ];
    for call in calls {
        let body = format!("tensor<fp16, [1, 2, 4, 4]> y = foo();\ntensor<fp16, [1]> a = {call};");
        let told = parse_with(program(&body), &Weights::new(), Options::default()).diagnostics;
        let last = told.iter().last().expect("refused");
        let op = call.split('(').next().unwrap();
        assert!(last.message.contains(op) && last.message.len() < 400, "{op}: {} bytes", last.message.len());
    }
}
