//! What passes may touch: blocks, bodies, functions, names, weights. That results stay the same is
//! tested with the emulator.

use ferrane_mil::passes::{self, Pipeline, Report};
use ferrane_mil::{Constant, Evaluate, Function, MilError, Op, Opset, Program, Weights, check, parse, print, verify};

use crate::cases;

/// Refuses to compute any op.
struct Nothing;

impl Evaluate for Nothing {
    fn evaluate(&self, _: &Function, op: &Op, _: Opset, _: &Weights) -> Result<Vec<Constant>, String> {
        Err(format!("no arithmetic here for `{}`", op.name))
    }
}

fn read(functions: &str) -> Program {
    parse(format!("program(1.3)\n{{\n{functions}\n}}\n"), &Weights::new()).unwrap_or_else(|d| panic!("{d}"))
}

fn run(passes: &[&str], program: &Program) -> (Program, Report) {
    Pipeline::named(passes.iter().copied()).unwrap().run(program, &Nothing).unwrap()
}

/// Runs passes and compares the functions' text.
fn becomes(passes: &[&str], before: &str, after: &str) {
    let (program, _) = run(passes, &read(before));
    assert_eq!(print(&program), print(&read(after)), "{passes:?}");
}

fn stays(passes: &[&str], text: &str) {
    let program = read(text);
    let (after, report) = run(passes, &program);
    assert_eq!(report.changes(), 0, "{}", print(&after));
    assert_eq!(print(&after), print(&program));
}

#[test]
fn the_registry_names_each_pass_once() {
    for pass in passes::all() {
        assert_eq!(passes::find(pass.name), Some(*pass));
        assert_eq!(passes::all().iter().filter(|p| p.name == pass.name).count(), 1);
        assert!(!pass.doc.is_empty() && !pass.doc.contains('\n'));
    }
    assert_eq!(Pipeline::named(["identity", "none"]).err(), Some("none"));
}

#[test]
fn dead_code_goes_with_what_only_it_reads_and_unknown_ops_stay() {
    becomes(
        &["dead_code"],
        r#"func main<ios18>(tensor<fp16, [2]> x, tensor<fp16, [2]> unread) {
            fp16 one = const()[val = fp16(1)];
            tensor<fp16, [2]> a = add(x = x, y = one);
            tensor<fp16, [2]> b = relu(x = a);
            tensor<fp16, [2]> c = frobnicate(x = x);
            tensor<fp16, [2]> y = abs(x = x);
        } -> (y);"#,
        r#"func main<ios18>(tensor<fp16, [2]> x, tensor<fp16, [2]> unread) {
            tensor<fp16, [2]> c = frobnicate(x = x);
            tensor<fp16, [2]> y = abs(x = x);
        } -> (y);"#,
    );
}

#[test]
fn an_output_keeps_its_name() {
    // `y` vanishes: what it was a copy of is called `y` now.
    becomes(
        &["identity"],
        r#"func main<ios18>(tensor<fp16, [2]> x) {
            tensor<fp16, [2]> a = relu(x = x)[name = string("a")];
            tensor<fp16, [2]> y = identity(x = a)[name = string("y")];
            tensor<fp16, [2]> z = abs(x = y)[name = string("z")];
        } -> (y, z);"#,
        r#"func main<ios18>(tensor<fp16, [2]> x) {
            tensor<fp16, [2]> y = relu(x = x)[name = string("y")];
            tensor<fp16, [2]> z = abs(x = y)[name = string("z")];
        } -> (y, z);"#,
    );
    // A copy of an input, of another output, of a constant: outputs that nothing else computes.
    stays(
        &["identity", "common_subexpressions", "dead_code"],
        r#"func main<ios18>(tensor<fp16, [2]> x) {
            tensor<fp16, [2]> k = const()[val = tensor<fp16, [2]>([1, 2])];
            tensor<fp16, [2]> a = relu(x = x);
            tensor<fp16, [2]> y = identity(x = a);
            tensor<fp16, [2]> z = identity(x = x);
            tensor<fp16, [2]> w = identity(x = k);
        } -> (a, y, z, w);"#,
    );
    stays(
        &["common_subexpressions"],
        r#"func main<ios18>(tensor<fp16, [2]> x) {
            tensor<fp16, [2]> y = relu(x = x);
            tensor<fp16, [2]> z = relu(x = x);
        } -> (y, z);"#,
    );
}

#[test]
fn nested_blocks_see_what_is_around_them_and_nothing_else() {
    let text = r#"func main<ios18>(tensor<fp16, [2]> x, bool p) {
            tensor<fp16, [2]> a = relu(x = x);
            tensor<fp16, [2]> c = cond(pred = p) () {
                tensor<fp16, [2]> b = relu(x = x);
                tensor<fp16, [2]> d = abs(x = b);
                tensor<fp16, [2]> i = identity(x = d);
                tensor<fp16, [2]> e = exp(x = i);
            } -> (e) () {
                tensor<fp16, [2]> f = abs(x = a);
                tensor<fp16, [2]> dead = sqrt(x = f);
            } -> (f);
            tensor<fp16, [2]> g = abs(x = a);
            tensor<fp16, [2]> h = add(x = c, y = g);
        } -> (h);"#;
    // `b` is `a`; `f` is not `d`, nor `g` either of them: neither is there when the other is
    // needed.
    becomes(
        &["common_subexpressions", "identity", "dead_code"],
        text,
        r#"func main<ios18>(tensor<fp16, [2]> x, bool p) {
            tensor<fp16, [2]> a = relu(x = x);
            tensor<fp16, [2]> c = cond(pred = p) () {
                tensor<fp16, [2]> d = abs(x = a);
                tensor<fp16, [2]> e = exp(x = d);
            } -> (e) () {
                tensor<fp16, [2]> f = abs(x = a);
            } -> (f);
            tensor<fp16, [2]> g = abs(x = a);
            tensor<fp16, [2]> h = add(x = c, y = g);
        } -> (h);"#,
    );
    // What a block returns is computed in it.
    stays(
        &["identity"],
        r#"func main<ios18>(tensor<fp16, [2]> x, bool p) {
            tensor<fp16, [2]> a = relu(x = x);
            tensor<fp16, [2]> c = cond(pred = p) () {
                tensor<fp16, [2]> b = identity(x = a);
            } -> (b) (tensor<fp16, [2]> q) {
                tensor<fp16, [2]> d = identity(x = q);
            } -> (d);
        } -> (c);"#,
    );
}

#[test]
fn functions_and_bodies_are_edited_apart() {
    becomes(
        &["identity", "common_subexpressions"],
        r#"func main<ios16>(tensor<fp16, [2]> x) {
            tensor<fp16, [2]> a = relu(x = x);
            tensor<fp16, [2]> y = abs(x = a);
        } -> (y);
        func other<ios18>(tensor<fp16, [2]> x) {
            tensor<fp16, [2]> a = relu(x = x);
            tensor<fp16, [2]> y = identity(x = a);
        } -> (y);
        func main<ios18>(tensor<fp16, [2]> x) {
            tensor<fp16, [2]> b = relu(x = x);
            tensor<fp16, [2]> c = relu(x = x);
            tensor<fp16, [2]> y = add(x = b, y = c);
        } -> (y);"#,
        r#"func main<ios16>(tensor<fp16, [2]> x) {
            tensor<fp16, [2]> a = relu(x = x);
            tensor<fp16, [2]> y = abs(x = a);
        } -> (y);
        func other<ios18>(tensor<fp16, [2]> x) {
            tensor<fp16, [2]> y = relu(x = x);
        } -> (y);
        func main<ios18>(tensor<fp16, [2]> x) {
            tensor<fp16, [2]> b = relu(x = x);
            tensor<fp16, [2]> y = add(x = b, y = b);
        } -> (y);"#,
    );
}

#[test]
fn new_names_are_free_ones() {
    let (after, report) = run(
        &["decompose"],
        &read(
            r#"func main<ios18>(tensor<fp16, [2]> x, tensor<fp16, [2]> y_1) {
            tensor<fp16, [2]> s = silu(x = x);
            tensor<fp16, [2]> y = silu(x = s);
            tensor<fp16, [2]> z = add(x = y, y = y_1);
        } -> (y, z);"#,
        ),
    );
    assert_eq!(report.changes(), 2);
    let main = after.function("main").unwrap();
    let name = |v: &ferrane_mil::ValueId| main.value(*v).name.as_str();
    assert_eq!(main.inputs.iter().map(name).collect::<Vec<_>>(), ["x", "y_1"]);
    assert_eq!(main.body().outputs.iter().map(name).collect::<Vec<_>>(), ["y", "z"]);
}

#[test]
fn weights_that_are_equal_or_unread_are_written_once_or_not() {
    let mut b = ferrane_mil::Builder::new("main", Opset::IOS18);
    let ty = |shape: &[usize]| ferrane_mil::Type::tensor(ferrane_mil::DataType::Fp16, shape);
    let x = b.input("x", ty(&[1, 2, 1, 4])).unwrap();
    let mut weight = |name: &str, byte: u8| {
        let path = format!("@model_path/weights/{name}.bin");
        b.weight(name, &path, ferrane_mil::DataType::Fp16, &[2, 2, 1, 1], vec![byte; 8]).unwrap()
    };
    let (a, same, other, unread) = (weight("a", 1), weight("same", 1), weight("other", 2), weight("unread", 3));
    let y = b.conv("y", x, a, None, &Default::default()).unwrap();
    let z = b.conv("z", y, same, None, &Default::default()).unwrap();
    let w = b.conv("w", z, other, None, &Default::default()).unwrap();
    b.relu("dead", unread).unwrap();
    let program = b.finish(&[("out", w)]).unwrap();
    let (after, _) = run(&["dead_code", "deduplicate_weights"], &program);
    let files: Vec<String> = after.weights.files().into_iter().map(|(path, _)| path).collect();
    assert_eq!(files, ["@model_path/weights/a.bin", "@model_path/weights/other.bin"]);
    let bytes = |p: &Program, name: &str| {
        let main = &p.functions[0];
        let op = main.ops.iter().find(|o| o.outputs.iter().any(|v| main.value(*v).name == name)).unwrap();
        op.attribute("val").unwrap().bytes(&p.weights).unwrap().to_vec()
    };
    for name in ["a", "same", "other"] {
        assert_eq!(bytes(&after, name), bytes(&program, name));
    }
}

#[test]
fn published_programs_stay_valid_under_every_pass() {
    let Some(mut suite) = ferrane_testdata::Suite::open("mil-passes-text", "mil") else { return };
    let folder = suite.folder().to_path_buf();
    for path in crate::files(&folder, ".mil") {
        let id = crate::id(&folder, &path);
        let options = ferrane_mil::Options { missing: ferrane_mil::Missing::Keep, ..Default::default() };
        let text = std::fs::read_to_string(&path).unwrap();
        let Some(program) = ferrane_mil::parse_with(text, &Weights::new(), options).program else {
            suite.skip(&id, "is refused as text");
            continue;
        };
        suite.case(&id, keeps_valid(&program));
    }
    suite.finish();
}

/// Every pass alone and all together: what comes out verifies, prints to what reads back, and has
/// the same ports.
fn keeps_valid(program: &Program) -> Result<(), String> {
    let alone = passes::all().iter().map(|p| Pipeline::new([*p]));
    for pipeline in alone.chain([Pipeline::simplify(), Pipeline::new(passes::all().iter().copied())]) {
        let names: Vec<&str> = pipeline.passes().iter().map(|p| p.name).collect();
        let (after, report) = match pipeline.run(program, &Nothing) {
            Ok(done) => done,
            Err(MilError::Shape { op, .. }) if op == "uniform_outputs" => continue,
            Err(e) => return Err(format!("{names:?}: {e}")),
        };
        verify(&after).map_err(|e| format!("{names:?}: {e}"))?;
        if report.changes() == 0 && print(&after) != print(program) {
            return Err(format!("{names:?} changed the program and did not say so"));
        }
        for (f, g) in program.functions.iter().zip(&after.functions) {
            let ports = |f: &Function| {
                let values = f.inputs.iter().chain(&f.body().outputs);
                values.map(|v| f.value(*v).name.clone()).collect::<Vec<_>>()
            };
            if ports(f) != ports(g) || check(f, &program.weights).len() < check(g, &after.weights).len() {
                return Err(format!("{names:?}: function `{}` has other ports or new errors", f.name));
            }
        }
    }
    Ok(())
}

proptest::proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn any_program_of_names_survives(edges in proptest::collection::vec((0usize..8, 0usize..40, 0usize..40), 1..60)) {
        // Ops over one type, reading anything before them: every pass that shares and removes has
        // something to do.
        let mut b = ferrane_mil::Builder::new("main", Opset::IOS18);
        let ty = ferrane_mil::Type::tensor(ferrane_mil::DataType::Fp16, &[2, 2]);
        let mut values = vec![b.input("x", ty.clone()).unwrap(), b.input("y", ty).unwrap()];
        for (op, i, j) in edges {
            let (x, y) = (values[i % values.len()], values[j % values.len()]);
            values.push(match op {
                0 => b.add("v", x, y),
                1 => b.mul("v", x, y),
                2 => b.identity("v", x),
                3 => b.transpose("v", x, &[1, 0]),
                4 => b.reshape("v", x, &[2, 2]),
                5 => b.concat("v", &[x], 0),
                6 => b.mul("v", x, Constant::fp16(1.0)),
                _ => b.relu("v", x),
            }.unwrap());
        }
        let last = values[values.len() - 1];
        let middle = values[values.len() / 2];
        let program = b.finish(&[("a", last), ("b", middle), ("c", last)]).unwrap();
        keeps_valid(&program).unwrap();
    }
}
