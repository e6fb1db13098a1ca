//! Programs with casts around them, outlines, echoes.

use ferrane_mil::boundary::{ECHO_INPUT, ECHO_OUTPUT, multiarrays, outline, with_echo};
use ferrane_mil::{Program, Weights, check, parse, print};

fn program(body: &str) -> Program {
    let head = "program(1.3)\n[buildInfo = dict<string, string>({{\"coremlc-version\", \"3505.4.1\"}})]\n{\n";
    parse(format!("{head}    func main<ios17>({body}}}\n"), &Weights::new()).unwrap()
}

/// It is a program that can be printed, read again and checked.
fn sound(program: &Program) -> String {
    let text = print(program);
    let again = parse(&text, &program.weights).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(print(&again), text);
    for function in &again.functions {
        assert!(check(function, &again.weights).is_empty(), "{text}");
    }
    text
}

/// Inputs and outputs as `name: type`.
fn ports(program: &Program) -> [Vec<String>; 2] {
    let f = &program.functions[0];
    let list = |ids: &[ferrane_mil::ValueId]| {
        ids.iter().map(|v| f.value(*v)).map(|v| format!("{}: {}", v.name, v.ty)).collect()
    };
    [list(&f.inputs), list(&f.body().outputs)]
}

const MIXED: &str = "tensor<fp16, [1, 4]> x, tensor<fp16, []> s, tensor<int32, [4]> i, tensor<fp32, [1, 4]> z) {
        tensor<fp16, [1, 4]> x_fp16 = mul(x = x, y = s)[name = string(\"m\")];
        tensor<fp16, [1, 4]> y = relu(x = x_fp16)[name = string(\"y\")];
        tensor<bool, [1, 4]> b = greater(x = y, y = s)[name = string(\"b\")];
        tensor<int32, [4]> j = add(x = i, y = i)[name = string(\"j\")];
        tensor<fp32, [1, 4]> w = relu(x = z)[name = string(\"w\")];
    } -> (y, b, j, w);\n";

#[test]
fn ports_become_fp32_and_keep_names_shapes_and_order() {
    let program = program(MIXED);
    let wide = multiarrays(&program).unwrap();
    let text = sound(&wide);
    let expected = [
        ["x: tensor<fp32, [1, 4]>", "s: tensor<fp32, [1]>", "i: tensor<int32, [4]>", "z: tensor<fp32, [1, 4]>"],
        ["y: tensor<fp32, [1, 4]>", "b: tensor<fp32, [1, 4]>", "j: tensor<int32, [4]>", "w: tensor<fp32, [1, 4]>"],
    ];
    assert_eq!(ports(&wide), expected.map(|side| side.map(String::from).to_vec()), "{text}");
    // Nothing is cast that need not be, and what has its ports is left alone.
    assert_eq!(text.matches("= cast(").count(), 4, "{text}");
    assert_eq!(print(&multiarrays(&wide).unwrap()), text);
    // What the program computed, it computes in the same types.
    assert!(text.contains("tensor<fp16, [1, 4]> y_fp16 = relu("), "{text}");
    assert!(text.contains("\"y_fp16\")];") && text.contains("\"y\")];"), "{text}");
}

#[test]
fn an_outline_has_the_ports_and_nothing_else() {
    let program = program(MIXED);
    let outline = outline(&program.functions[0]).unwrap();
    let text = sound(&outline);
    assert_eq!(ports(&outline), ports(&multiarrays(&program).unwrap()));
    assert_eq!(text.matches("= fill(").count(), 4);
}

#[test]
fn an_echo_comes_beside_what_the_program_has() {
    let wide = multiarrays(&program(MIXED)).unwrap();
    let echo = with_echo(&wide, "main").unwrap();
    let text = sound(&echo);
    let [inputs, outputs] = ports(&echo);
    assert_eq!(inputs[4], format!("{ECHO_INPUT}: tensor<fp32, [1]>"));
    assert_eq!(outputs[4], format!("{ECHO_OUTPUT}: tensor<fp32, [1]>"));
    assert!(text.contains(&format!("{ECHO_OUTPUT} = add(")), "{text}");
    assert!(with_echo(&echo, "main").is_err(), "the names are taken");
    assert!(with_echo(&wide, "other").is_err());
}

#[test]
fn what_is_no_multiarray_is_refused_by_name() {
    let refused = |body: &str, part: &str| {
        let error = multiarrays(&program(body)).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    refused(
        "tensor<fp16, [?, 4]> x) {\n        tensor<fp16, [?, 4]> y = relu(x = x)[name = string(\"y\")];\n    } -> (y);\n",
        "`x`",
    );
    refused(
        "tensor<fp16, [4]> x) {\n        tensor<fp16, [4]> y = relu(x = x)[name = string(\"y\")];\n    } -> (y, x);\n",
        "`x`",
    );
    refused(
        "tensor<string, []> x) {\n        tensor<string, []> y = identity(x = x)[name = string(\"y\")];\n    } -> (y);\n",
        "`x`",
    );
}
