//! Reader and printer against published MIL text.

use ferrane_diag::{Code, Source};
use ferrane_mil::text::convert;
use ferrane_mil::{
    Constant, DataType, Dialect, Missing, Opset, Options, Type, Weights, codes, parse, parse_with, print,
};
use ferrane_testdata::Suite;

const KEEP: Options =
    Options { missing: Missing::Keep, strictness: ferrane_mil::Strictness::Strict, types: ferrane_mil::Types::Check };
const TRUST: Options = Options { types: ferrane_mil::Types::Trust, ..KEEP };

/// Reads, prints, reads again: the second text must be the first one.
pub fn fixpoint(text: &str, weights: &Weights) -> Result<(), String> {
    let read = |text: &str| {
        let parsed = parse_with(text, weights, TRUST);
        parsed.program.ok_or_else(|| parsed.diagnostics.render(&Source::new("text", text), false))
    };
    let once = print(&read(text)?);
    let twice = print(&read(&once)?);
    if once == twice { Ok(()) } else { Err(format!("printed\n{once}\nthen\n{twice}")) }
}

/// What became of a published program.
#[derive(PartialEq)]
enum Outcome {
    Clean,
    /// One declared result type is not what its op gives, and that makes a difference.
    Declared,
    /// The text is no MIL: an argument without its name or its type.
    Refused,
}

/// Text, read and checked. Only two faults are known of published files, and each must say its
/// place. A file that Apple's compiler `compiled` has neither.
fn judge(text: &str, compiled: bool) -> Result<Outcome, String> {
    let told = parse_with(text, &Weights::new(), KEEP).diagnostics;
    if told.iter().any(|d| d.span.is_none_or(|s| s.start >= s.end)) {
        return Err(format!("without place: {told}"));
    }
    if compiled && told.has_errors() {
        return Err(format!("refused, and Apple's compiler takes it: {told}"));
    }
    let code = |c: Code| told.iter().filter(|d| d.code == c).count();
    let loose = code(codes::POSITIONAL_ARGUMENT) + code(codes::UNTYPED_LITERAL);
    if loose > 0 {
        // After those, only types and a bare `true` may be wrong: any other diagnostic would be a
        // mistake of the reader.
        let others = told.iter().find(|d| !matches!(d.code.0, 106 | 107 | 202 | 206..=211));
        let accepted = parse_with(text, &Weights::new(), TRUST).program.is_some();
        return match others {
            Some(d) => Err(format!("not only loose arguments: {d}")),
            None if accepted => Err("accepted when types are trusted".into()),
            None => Ok(Outcome::Refused),
        };
    }
    fixpoint(text, &Weights::new())?;
    match (told.len(), code(codes::RESULT_TYPE)) {
        (0, _) => Ok(Outcome::Clean),
        // Broadcast to what is declared.
        (1, 1) if !told.has_errors() => Ok(Outcome::Clean),
        (1, 1) => Ok(Outcome::Declared),
        _ => Err(format!("does not check: {told}")),
    }
}

#[test]
fn published_programs_check_and_print_to_a_fixpoint() {
    let Some(mut suite) = Suite::open("mil-text", "mil") else { return };
    let folder = suite.folder().to_path_buf();
    let mut outcomes = Vec::new();
    for path in crate::files(&folder, ".mil") {
        let id = crate::id(&folder, &path);
        // Folders of programs that were compiled or written by Apple's own tools.
        let compiled = ["apple/", "espresso/", "mil_infer/"].iter().any(|tools| id.starts_with(tools));
        let outcome = judge(&std::fs::read_to_string(&path).unwrap(), compiled);
        suite.case(&id, outcome.as_ref().map(|_| ()).map_err(String::clone));
        outcomes.extend(outcome);
    }
    // Broken files are the exception: more than a fifth of either kind means that the reader or a
    // shape rule is broken.
    for (id, kind) in [("share:declared", Outcome::Declared), ("share:refused", Outcome::Refused)] {
        let count = outcomes.iter().filter(|o| **o == kind).count();
        let few = count * 5 <= outcomes.len();
        suite.case(id, if few { Ok(()) } else { Err(format!("{count} of {} files", outcomes.len())) });
    }
    suite.finish();
}

#[test]
fn prints_the_published_spelling() {
    // The skeleton of mil-text §1 with one statement of each kind.
    let text = r#"program(1.3)
[buildInfo = dict<string, string>({{"coremlc-component-MIL", "3510.2.1"}, {"coremlc-version", "3505.4.1"}, {"coremltools-component-milinternal", ""}, {"coremltools-version", "9.0"}})]
{
    func main<ios18>(tensor<fp16, [1, 4, 1, 8]> x) {
        tensor<int32, [1]> rax = const()[name = string("rax"), val = tensor<int32, [1]>([1])];
        bool kd = const()[name = string("kd"), val = bool(true)];
        tensor<fp16, [1, 1, 1, 8]> ss = reduce_sum(x = x, axes = rax, keep_dims = kd)[name = string("ss")];
        fp16 eps = const()[name = string("eps"), val = fp16(1.0014e-5)];
        tensor<fp16, [1, 1, 1, 8]> t = add(x = ss, y = eps)[name = string("t")];
        tensor<fp16, [1, 4, 1, 1]> rw = const()[name = string("rw"), val = tensor<fp16, [1, 4, 1, 1]>(BLOBFILE(path = string("@model_path/weights/rms1.bin"), offset = uint64(64)))];
        tensor<fp16, [1, 4, 1, 8]> out = mul(x = rw, y = t)[name = string("out")];
    } -> (out);
}
"#;
    let parsed = parse_with(text, &Weights::new(), KEEP);
    let program = parsed.program.expect("valid");
    let printed = print(&program);
    assert_eq!(printed, text.replace("1.0014e-5", "1e-5"));
    assert_eq!(program.dialect, Dialect::Shorthand);
    assert_eq!(printed.lines().filter(|l| l.contains("buildInfo")).count(), 1);
}

#[test]
fn both_dialects_mean_the_same() {
    let verbose = r#"program(1.0)
[buildInfo = dict<tensor<string, []>, tensor<string, []>>({{"coremlc-version", "3505.4.1"}})]
{
    func main<ios16>(tensor<fp16, [2, 2]> x) {
        tensor<int32, []> a = const()[name = tensor<string, []>("a"), val = tensor<int32, []>(-1)];
        tensor<fp16, [2, 2]> y = softmax(axis = a, x = x)[name = tensor<string, []>("y")];
    } -> (y);
}
"#;
    let mut program = parse(verbose, &Weights::new()).expect("valid");
    assert_eq!(program.dialect, Dialect::Verbose);
    assert_eq!(print(&program), verbose);
    program.dialect = Dialect::Shorthand;
    let short = print(&program);
    assert!(short.contains("int32 a = const()[name = string(\"a\"), val = int32(-1)]"), "{short}");
    assert_eq!(parse(&short, &Weights::new()).expect("valid").dialect, Dialect::Shorthand);
}

#[test]
fn literals_of_every_type_read_back() {
    let text = r#"program(1.3)
{
    func main<ios18>(tensor<fp16, [1]> x) [shapes = tuple<tuple<string, dict<string, tensor<int32, [?]>>>, list<string, 2>>((("d", {{"x", [1, 2]}}), ["a", "b"]))] {
        tensor<fp16, [6]> a = const()[val = tensor<fp16, [6]>([inf, -inf, nan, nan(0x7e01), 0x1p-3, -0])];
        tensor<int4, [2, 2]> b = const()[val = tensor<int4, [2, 2]>([[-8, 7], [0, -1]])];
        tensor<uint3, [3]> c = const()[val = tensor<uint3, [3]>([7, 0, 5])];
        tensor<string, [2]> d = const()[val = tensor<string, [2]>(["q\"\\\n\x01", "ä"])];
        uint64 e = const()[val = uint64(18446744073709551615)];
        tensor<bool, [2]> f = const()[val = tensor<bool, [2]>([true, 0])];
        fp64 g = const()[val = fp64(-1e300)];
        tensor<fp16, [1]> y, tensor<fp16, [1]> z = frobnicate(x = x, how = string("well"), parts = (x, x))[name = string("y")];
        frobnicate(x = y);
        tensor<fp16, [1]> w = fork(pred = x)[name = string("w")] () {
            tensor<fp16, [1]> u = relu(x = x);
        } -> (u) (tensor<fp16, [1]> v) {
        } -> (v);
    } -> (w, z);
}
"#;
    fixpoint(text, &Weights::new()).unwrap();
    let program = parse(text, &Weights::new()).unwrap_or_else(|d| panic!("{d}"));
    let main = &program.functions[0];
    let value = |name: &str| {
        let i = main.values.iter().position(|v| v.name == name).unwrap();
        main.constant(ferrane_mil::ValueId(i as u32)).unwrap()
    };
    let halves = value("a").bytes(&program.weights).unwrap();
    let bits: Vec<u16> = halves.chunks(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
    assert_eq!(bits, [0x7c00, 0xfc00, 0x7e00, 0x7e01, 0x3000, 0x8000]);
    assert_eq!(value("b").bytes(&program.weights).unwrap(), [0x78, 0xf0]);
    assert_eq!(value("e").as_int(), Some(-1));
    assert_eq!(value("f").as_ints(), Some(vec![1, 0]));
    assert_eq!(value("d").ty(), Type::tensor(DataType::String, &[2]));
    assert!(matches!(&program.functions[0].attributes[0].1, Constant::Tuple(items) if items.len() == 2));
}

#[test]
fn the_frame_of_a_program_is_read_to_the_end() {
    let body = "(tensor<fp16, [2]> x) {\n tensor<fp16, [2]> y = relu(x = w);\n} -> (y);\n";
    let told = |text: &str| {
        let source = Source::new("t", text);
        let parsed = parse_with(text, &Weights::new(), Options::default());
        let show = |d: &ferrane_diag::Diagnostic| {
            let fix = d.suggestion.as_ref().map_or(String::new(), |s| format!(" `{}`", s.replacement));
            format!("{}:{}{fix}", source.position(d.span.unwrap().start).line, d.code)
        };
        parsed.diagnostics.iter().map(show).collect::<Vec<_>>().join(", ")
    };
    // In each of these the undefined `w` on its line is reported too.
    for (text, expected) in [
        (format!("progam(1.3)\n{{ func main<ios18>{body}}}"), "1:E0102 `program`, 3:E0202 `x`"),
        (format!("program(1.6)\n{{ func main<ios18>{body}}}"), "1:E0103 `1.3`, 3:E0202 `x`"),
        (format!("program(one)\n{{ func main<ios18>{body}}}"), "1:E0103, 3:E0202 `x`"),
        (
            format!("program(1.3)\n[a = strin(\"\"), b = int32(x)]\n{{ func main<ios18>{body}}}"),
            "2:E0203 `string`, 2:E0108, 4:E0202 `x`",
        ),
        (format!("program(1.3)\nfunc main<ios18>{body}}}"), "2:E0102, 3:E0202 `x`"),
        (format!("program(1.3)\n{{ fun main<ios18>{body}}}"), "2:E0102 `func`, 3:E0202 `x`"),
        (format!("program(1.3)\n{{ func main{body}}}"), "2:E0102 `main<ios18>`, 3:E0202 `x`"),
        (format!("program(1.3)\n{{ func main<CoreML8>{body}}}"), "2:E0111 `ios18`, 3:E0202 `x`"),
        (format!("program(1.3)\n{{ func main<ios18>{}}}", body.replace("[2]> x", "[2> x")), "2:E0102, 3:E0202"),
        (format!("program(1.3)\n{{ func a<ios18>(x) {{ \nfunc b<ios18>{body}}}"), "2:E0203, 3:E0102, 4:E0202 `x`"),
        (format!("program(1.3)\n{{ func main<ios18>{body}"), "3:E0202 `x`, 5:E0102"),
        (format!("program(1.0)\n{{ func main<ios18>{body}}}"), "1:E0110 `1.3`, 3:E0202 `x`"),
        (
            format!("program(1.0)\n[a = string(\"\")]\n{{ func main<ios16>{body}}}"),
            "2:E0110 `tensor<string, []>`, 4:E0202 `x`",
        ),
    ] {
        assert_eq!(told(&text), expected, "{text}");
    }
}

#[test]
fn dialects_convert_with_their_headers() {
    let text = |version: &str, opset: &str, body: &str| {
        format!("program({version})\n{{\n    func main<{opset}>(tensor<fp16, [2, 3]> x) {{\n{body}    }} -> (x);\n}}\n")
    };
    let read = |text: &str| parse(text, &Weights::new()).unwrap_or_else(|d| panic!("{d}\n{text}"));
    let axis =
        "        int32 a = const()[val = int32(-1)];\n        tensor<fp16, [2, 3]> y = softmax(axis = a, x = x);\n";
    let short = text("1.3", "ios18", axis);
    let verbose = convert(&read(&short), Dialect::Verbose).expect("old ops");
    let expected =
        text("1.0", "ios16", &axis.replace("int32 ", "tensor<int32, []> ").replace("int32(", "tensor<int32, []>("));
    assert_eq!(print(&verbose), expected);
    assert_eq!(read(&expected).dialect, Dialect::Verbose);
    let back = convert(&read(&expected), Dialect::Shorthand).expect("always possible");
    assert_eq!(print(&back), text("1.3", "ios16", axis));
    // A newer header is kept, and so is a type that needs no spelling.
    assert_eq!(convert(&read(&text("1.5", "ios18", axis)), Dialect::Shorthand).unwrap().version, (1, 5));
    assert_eq!(read(&text("1.0", "ios17", "")).dialect, Dialect::Verbose);
    for (body, why) in [
        (
            "        tensor<int4, [2]> w = const()[val = tensor<int4, [2]>([1, 2])];\n",
            "`w`: it is of a type below eight bits",
        ),
        ("        tensor<fp16, [2, 3]> w = frobnicate(x = x);\n", "no op `frobnicate`"),
        (
            "        tensor<fp16, [1, 2, 3]> q = expand_dims(x = x, axes = tensor<int32, [1]>([0]));\n        tensor<fp16, [1, 2, 3]> w = scaled_dot_product_attention(query = q, key = q, value = q);\n",
            "exists from ios18 on",
        ),
    ] {
        let refused = convert(&read(&text("1.3", "ios18", body)), Dialect::Verbose).expect_err(why).to_string();
        assert!(refused.contains(why) && refused.contains("function `main`"), "{refused}");
    }
}

#[test]
fn other_formats_are_refused_as_what_they_are() {
    let Some(mut suite) = Suite::open("mil-debug-print", "mil") else { return };
    let folder = suite.folder().to_path_buf();
    for path in crate::files(&folder, ".mil.txt") {
        let told = parse_with(std::fs::read(&path).unwrap(), &Weights::new(), KEEP).diagnostics;
        let known = matches!(told.iter().collect::<Vec<_>>()[..], [d] if d.code == codes::FOREIGN_FORMAT && d.message.contains("debug print") && !d.notes.is_empty());
        suite.case(&crate::id(&folder, &path), if known { Ok(()) } else { Err(told.to_string()) });
    }
    suite.finish();
}

/// `(line, code, part of the message, suggestion)` of each error.
fn errors(body: &str) -> Vec<(usize, String, String, Option<String>)> {
    let text = format!("program(1.3)\n{{\nfunc main<ios18>(tensor<fp16, [2, 3]> x) {{\n{body}\n}} -> (x);\n}}\n");
    let source = Source::new("t", &text);
    let parsed = parse_with(&text, &Weights::new(), Options::default());
    let told = parsed.diagnostics.iter().map(|d| {
        let line = source.position(d.span.unwrap().start).line - 3;
        (line, d.code.to_string(), d.message.clone(), d.suggestion.as_ref().map(|s| s.replacement.clone()))
    });
    told.collect()
}

/// Line, code, part of the message, and the suggestion if it matters.
type Expected<'a> = (usize, &'a str, &'a str, Option<&'a str>);

#[test]
fn errors_have_place_code_and_reason() {
    let cases: &[(&str, &[Expected<'_>])] = &[
        ("tensor<fp16, [2, 3]> y = relu(x = x);", &[]),
        ("tensor<fp16, [2, 3]> y = relu(x = z);", &[(1, "E0202", "`z` is not defined", Some("x"))]),
        ("tensor<fp16, [2, 3]> y = relu(X = x);", &[(1, "E0205", "no argument `X`", None)]),
        ("tensor<fp16, [2, 3]> y = relu(x);", &[(1, "E0106", "by name", Some("x = x"))]),
        ("tensor<fp16, [2, 3]> y = relu();", &[(1, "E0206", "needs the argument `x`", None)]),
        ("tensor<fp16, [2, 3]> y = relu(x = x, x = x);", &[(1, "E0207", "twice", None)]),
        ("tensor<fp16, [2, 4]> y = relu(x = x);", &[(1, "E0211", "gives tensor<fp16, [2, 3]>", None)]),
        (
            "tensor<fp16, [2]> y = reduce_sum(x = x, axes = [1]);",
            &[(1, "E0107", "needs its type", Some("tensor<int32, [1]>([1])"))],
        ),
        ("bool y = const()[val = bool(maybe)];", &[(1, "E0102", "expected a bool", None)]),
        ("int8 y = const()[val = int8(200)];", &[(1, "E0108", "`200` is not of type int8", None)]),
        ("tensor<int32, [3]> y = const()[val = tensor<int32, [3]>([1, 2])];", &[(1, "E0203", "2 elements", None)]),
        (
            "tensr<int32, [3]> y = relu(x = z);\nfoo(x = y);",
            &[(1, "E0203", "not a type", Some("tensor")), (1, "E0202", "`z`", Some("x"))],
        ),
        // Every mistake of a statement, and of every statement.
        (
            "tensor<fp16, [2, 3]> y = conv(x = q, wieght = 3, strides [1], pad_typ = string(valid))[nam = int8(300)];",
            &[
                (1, "E0202", "`q`", Some("x")),
                (1, "E0107", "`wieght`", Some("int32(3)")),
                (1, "E0102", "expected `=`", None),
                (1, "E0102", "a string in double quotes", Some("\"valid\"")),
                (1, "E0108", "`300` is not of type int8", None),
            ],
        ),
        (
            "y = relu(x = x);\ntensor<fp16, [2, 3]> z = relu(x = y);",
            &[(1, "E0102", "needs its type", Some("tensor<fp16, [2, 3]> y"))],
        ),
        (
            "tensor<fp16, [2, 3]> y = relu(x = x)\ntensor<fp16, [2, 3]> z = relu(x = w);",
            &[(1, "E0102", "expected `;`", Some(");")), (2, "E0202", "`w`", None)],
        ),
        (
            "tensor<fp16, [2, 3]> y = relu(x = z);\ntensor<fp16, [2, 3]> z = relu(x = x);",
            &[(1, "E0202", "`z` is not defined here, but later", None)],
        ),
        (
            "string s = const()[name = string(\"s];\ntensor<fp16, [2, 3]> z = relu(x = w);",
            &[(1, "E0102", "a string without end", None), (2, "E0202", "`w`", None)],
        ),
        (
            "tensor<fp16, [2, 3]> y = relu(y = x, axis = x);",
            &[(1, "E0205", "`y`", Some("x")), (1, "E0205", "`axis`", None)],
        ),
        (
            "float32 y = const()[val = double(1)];",
            &[(1, "E0203", "`float32`", Some("fp32")), (1, "E0203", "`double`", Some("fp64"))],
        ),
        ("int32 y = const()[val = int32(2.0)];", &[(1, "E0108", "`2.0` is not of type int32", Some("2"))]),
        ("int32 y = const(val = int32(2));", &[(1, "E0205", "stands in brackets", None)]),
        ("int32 y = const()[value = int32(2)];", &[(1, "E0206", "`val`", None)]),
        ("tensor<fp16, [-1, 3]> y = relu(x = x);", &[(1, "E0104", "an extent", Some("?"))]),
        ("tensor<fp16, [2, 3]> y = relu(x = x)[name = \"y\"];", &[(1, "E0107", "`name`", Some("string(\"y\")"))]),
        ("tensor<in32, [3]> y = foo();", &[(1, "E0203", "not an element type", Some("int32"))]),
        (
            "tensor<fp16, [3]> y = const()[val = tensor<fp16, [3]>(BLOBFILE(path = string(\"w\"), offset = uint64(64)))];",
            &[(1, "E0301", "no blob file \"w\"", None)],
        ),
        ("tensor<fp16, [2, 3]> x = relu(x = x);", &[(1, "E0201", "two values are named `x`", None)]),
        // A type that is broadcast to the declared one where it is used does no harm.
        (
            "tensor<fp16, [2, 3]> s = reduce_sum(x = x, axes = tensor<int32, [1]>([1]), keep_dims = bool(true));\ntensor<fp16, [2, 3]> y = add(x = s, y = x);",
            &[(1, "E0211", "gives tensor<fp16, [2, 1]>", Some("tensor<fp16, [2, 1]>"))],
        ),
        // Values and calls where something else should stand.
        (
            "tensor<fp16, [2, 3]> y = relu(x = relu(x = x));\ntensor<fp16, [2, 3]> z = relu(relu(x = x));\ntensor<fp16, [2, 3]> u = relu(x = w);",
            &[
                (1, "E0102", "calls do not nest", None),
                (2, "E0102", "calls do not nest", None),
                (3, "E0202", "`w`", None),
            ],
        ),
        (
            "tensor<fp16, [4, 3]> y = concat(values = [x, x], axis = int32(0), interleave = bool(false));",
            &[(1, "E0102", "stand in parentheses", Some("(x, x)"))],
        ),
        // A mistake is reported once, and reading continues after it.
        (
            "tensor<int32, [1]> a = const()[val = tensor<int32, [1]>(BLOBFILE(path = string(\"w\"), offset = uint64(64)))];\nint32 b = const()[val = int32(1.5)];\ntensor<fp16, [2, 1]> y = reduce_sum(x = x, axes = a, keep_dims = bool(true));\ntensor<fp16, [2, 3]> z = softmax(x = x, axis = b);",
            &[(1, "E0301", "no blob file", None), (2, "E0108", "`1.5`", None)],
        ),
        (
            "tensor<fp16, [2, 3]> a = relu(x = nope);\ntensor<fp16, [2, 3]> b = relu(x = a);\ntensor<fp16, [9]> c = add(x = a, y = b);\nstring s = ;",
            &[(1, "E0202", "nope", None), (3, "E0211", "[2, 3]", None), (4, "E0102", "expected an op", None)],
        ),
    ];
    for (body, expected) in cases {
        let found = errors(body);
        assert_eq!(found.len(), expected.len(), "{body}: {found:?}");
        for (f, e) in found.iter().zip(*expected) {
            let fits = f.0 == e.0 && f.1 == e.1 && f.2.contains(e.2) && (e.3.is_none() || f.3.as_deref() == e.3);
            assert!(fits, "{body}: {f:?} is not {e:?}");
        }
    }
    let sofmax = errors("tensor<fp16, [2, 3]> y = sofmax(x = x);");
    // An unknown op is kept; the warning knows what was meant.
    assert!(
        matches!(&sofmax[..], [(1, code, why, Some(near))] if code == "E0204" && why.contains("sofmax") && near == "softmax"),
        "{sofmax:?}"
    );
}

#[test]
fn hand_made_weights_are_read_leniently_with_warnings() {
    let body =
        "tensor<fp16, [2]> w = const()[val = tensor<fp16, [2]>(BLOBFILE(path = string(\"w\"), offset = uint64(64)))];";
    let text = format!("program(1.3)\n{{\nfunc main<ios18>(tensor<fp16, [2]> x) {{\n{body}\n}} -> (w);\n}}\n");
    // Size and offset zero, as several published benches wrote them (weight-blob §4).
    let mut file = vec![0u8; 64];
    file.extend_from_slice(&[0xef, 0xbe, 0xad, 0xde, 1]);
    file.resize(128, 0);
    file.extend_from_slice(&[0x00, 0x3c, 0x00, 0x40]);
    let mut weights = Weights::new();
    weights.open_file("w", file.clone());
    let refused = parse(&text, &weights).expect_err("strict");
    assert!(refused.iter().any(|d| d.code == codes::INVALID_BLOB_RECORD), "{refused}");
    let lenient = Options { strictness: ferrane_mil::Strictness::Lenient, ..Options::default() };
    let parsed = parse_with(&text, &weights, lenient);
    let program = parsed.program.expect("lenient");
    assert!(parsed.diagnostics.iter().all(|d| d.code == codes::ODD_BLOB_RECORD) && parsed.diagnostics.len() >= 2);
    let main = &program.functions[0];
    let w = main.constant(main.body().outputs[0]).unwrap();
    assert_eq!(w.bytes(&program.weights), Some(&[0x00, 0x3c, 0x00, 0x40][..]));
    // What was opened and not added to goes to an engine as it is.
    assert_eq!(*program.weights.files()[0].1, *file);
}

#[test]
fn bodies_of_several_opsets_are_one_function() {
    let text = r#"program(1.3)
{
    func main<ios16>(tensor<fp16, [2]> x) {
        tensor<fp16, [2]> y = relu(x = x);
        tensor<fp16, [2]> c = fork(pred = x) (tensor<fp16, [2]> p) {
            tensor<fp16, [2]> u = add(x = p, y = y);
        } -> (u);
    } -> (c);
    func other<ios18>() {
    } -> ();
    func main<ios18>(tensor<fp16, [2]> x) {
        tensor<fp16, [2]> a = abs(x = x);
        tensor<fp16, [2]> c = fork(pred = x) (tensor<fp16, [2]> p) {
            tensor<fp16, [2]> u = foo(values = (p, a, x));
        } -> (u);
        tensor<fp16, [1, 2, 2]> q = bar();
        tensor<fp16, [1, 2, 2]> y = scaled_dot_product_attention(query = q, key = q, value = q);
    } -> (y);
}
"#;
    let program = parse(text, &Weights::new()).unwrap_or_else(|d| panic!("{d}"));
    let main = program.function("main").unwrap();
    assert_eq!(program.functions.len(), 2);
    assert_eq!(
        main.bodies.iter().map(|(tag, _)| tag.known()).collect::<Vec<_>>(),
        [Some(Opset::IOS16), Some(Opset::IOS18)]
    );
    // Attention is of iOS 18; only unknown ops are reported.
    let told = ferrane_mil::check(main, &program.weights);
    assert!(told.iter().all(|(_, e)| matches!(e, ferrane_mil::MilError::UnknownOp { name, .. } if name.len() < 5)));
    fixpoint(text, &Weights::new()).unwrap();
    let both = print(&program);
    assert_eq!(both.matches("func main<").count(), 2);
    assert!(both.contains("foo(values = (p, a, x))") && both.contains("add(x = p, y = y)"), "{both}");
    // The same opset twice, or another signature, is no further body.
    for (from, to) in [
        ("main<ios18>(tensor", "main<ios16>(tensor"),
        ("main<ios18>(tensor<fp16, [2]> x", "main<ios18>(tensor<fp16, [2]> z, tensor<fp16, [2]> x"),
    ] {
        let told = parse(text.replace(from, to), &Weights::new()).expect_err("two functions");
        assert!(told.to_string().contains("two functions are named `main`"), "{told}");
    }
}

#[test]
fn names_of_types_are_names_too() {
    let body = "tensor<fp16, [2, 3]> state = relu(x = x);\ntensor<fp16, [2, 3]> int8 = add(x = state, y = fp16(1));\n\
                tensor<fp16, [2, 3]> y = add(x = int8, y = state);\nlist(x = int8);";
    let told = errors(body);
    assert!(matches!(&told[..], [(4, code, ..)] if code == "E0204"), "{told:?}");
    assert_eq!(errors("tensor<fp16, [2, 3]> y = relu(x = bool);")[0].1, "E0202");
}

#[test]
fn attributes_are_no_arguments() {
    // Only `const` and `constexpr_*` have arguments there.
    let told =
        errors("tensor<fp16, [2, 1]> y = reduce_sum(x = x)[axes = tensor<int32, [1]>([1]), keep_dims = bool(true)];");
    assert!(told.iter().any(|e| e.1.starts_with('E')), "{told:?}");
    assert_eq!(errors("tensor<fp16, [2, 3]> y = relu()[x = tensor<fp16, [1]>([1])];")[0].1, "E0206");
    let cast = "tensor<fp32, [2, 3]> y = cast(x = x)[dtype = string(\"fp32\")];";
    assert_eq!(errors(cast)[0].1, "E0206");
}

/// The loop of coremltools 9.0: both blocks have the loop variables as parameters, under the same
/// names.
pub const LOOP: &str = r#"program(1.3)
{
    func main<ios18>(tensor<fp16, [2]> x, fp16 stop) {
        tensor<fp16, [2]> y = while_loop(loop_vars = (x)) (tensor<fp16, [2]> x_x1) {
            fp16 least = reduce_min(x = x_x1);
            bool more = less(x = least, y = stop);
        } -> (more) (tensor<fp16, [2]> x_x1) {
            tensor<fp16, [2]> least = add(x = x_x1, y = fp16(1.0));
        } -> (least);
        tensor<fp16, [2]> least = relu(x = y);
    } -> (least);
}
"#;

#[test]
fn blocks_beside_each_other_may_use_the_same_names() {
    let program = parse(LOOP, &Weights::new()).unwrap_or_else(|d| panic!("{d}"));
    assert_eq!(print(&program), LOOP);
    let main = &program.functions[0];
    assert_eq!(main.values.iter().filter(|v| v.name == "least").count(), 3);
    // A visible name is taken, and after its block the name is not visible.
    let cases = [
        ("fp16 least", "fp16 stop", codes::INVALID_NAME),
        ("-> (least);\n        t", "-> (more);\n        t", codes::UNDEFINED_VALUE),
    ];
    for (from, to, code) in cases {
        let told = parse(LOOP.replacen(from, to, 1), &Weights::new()).expect_err(to);
        assert_eq!(told.iter().next().map(|d| d.code), Some(code), "{told}");
    }
    let outside = LOOP.replace("relu(x = y)", "relu(x = x_x1)");
    assert!(parse(&outside, &Weights::new()).expect_err("ended").to_string().contains("a nested block that has ended"));
}

#[test]
fn an_unclosed_program_is_told_once() {
    for (closed, rest) in LOOP.char_indices().filter(|(_, c)| *c == '\n').map(|(i, _)| LOOP.split_at(i)).skip(2) {
        let told = parse_with(closed, &Weights::new(), KEEP).diagnostics;
        let ends = told.iter().filter(|d| d.message.contains("the end of the text")).count();
        assert!(ends <= 1 && (told.has_errors() || rest.trim().is_empty()), "{closed}\n{told}");
    }
}
