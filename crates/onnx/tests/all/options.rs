//! Options of a conversion.

use ferrane_mil::{Opset, Type};
use ferrane_onnx::{Dimension, ElementType, Options, Tensor, codes};

use crate::common::{model, node, port, read};

#[test]
fn open_extents_are_listed_and_bound_by_name() {
    let model = read(model(vec![node("Relu", "x", "y")], vec![port("x", &[-1, 4])], vec![port("y", &[-1, 4])], vec![]));
    let model = model.expect("reads");
    assert_eq!(model.inputs()[0].shape, Some(vec![Dimension::Named("N".into()), Dimension::Fixed(4)]));
    let refused = model.to_mil(&Options::default()).expect_err("N has no number");
    assert_eq!(refused.all[0].code, codes::OPEN_DIMENSION);
    assert!(refused.to_string().contains("N=1"), "{refused}");
    let program = model.to_mil(&Options::default().dimension("N", 3)).expect("lowers");
    let main = &program.functions[0];
    assert_eq!(main.value(main.inputs[0]).ty, Type::tensor(ferrane_mil::DataType::Fp32, &[3, 4]));
    let misspelled = model.to_mil(&Options::default().dimension("M", 3)).expect_err("no such extent");
    assert!(misspelled.to_string().contains("no such extent"), "{misspelled}");
}

#[test]
fn lists_of_extents_are_parsed() {
    let options = Options::default().dimension_list("batch=1, seq=128").expect("a list");
    assert_eq!((options.dimensions["batch"], options.dimensions["seq"]), (1, 128));
    for wrong in ["batch", "batch=x", "=1", "batch=-1", "a=1,a=2"] {
        assert!(Options::default().dimension_list(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn everything_without_a_program_is_listed_at_once() {
    let nodes = vec![
        node("StringSplit", "x", "a"),
        node("Relu", "a", "b"),
        node("Unique", "x", "c"),
        node("Nonsense", "b", "d"),
        node("Add", "c d", "y"),
        node("Det", "x", "unused"),
    ];
    let model = read(model(nodes, vec![port("x", &[4])], vec![port("y", &[4])], vec![])).expect("reads");
    let refused = model.to_mil(&Options::default()).expect_err("three nodes have no program");
    let operators: Vec<&str> = refused.all.iter().map(|r| r.operator.as_str()).collect();
    assert_eq!(operators, ["StringSplit", "Unique", "Nonsense"]);
    assert!(refused.all.iter().all(|r| r.code == codes::UNMAPPED_NODE && !r.reason.is_empty()));
}

/// Each of 20,000 refusals depends on another place of a chain, and on a node that reads one name
/// as often. The effort of their searches is bounded.
#[test]
fn many_values_that_must_be_known_are_listed_in_time() {
    const COUNT: usize = 20_000;
    let mut nodes = vec![node("Sum", &"r ".repeat(COUNT), "r0")];
    for i in 1..COUNT {
        nodes.push(node("Neg", &format!("r{}", i - 1), &format!("r{i}")));
    }
    nodes.extend((0..COUNT).map(|i| node("Tile", &format!("x r{i}"), &format!("t{i}"))));
    let names: Vec<String> = (0..COUNT).map(|i| format!("t{i}")).collect();
    nodes.push(node("Sum", &names.join(" "), "y"));
    let mut repeats = port("r", &[1]);
    if let Some(t) = repeats.r#type.as_mut().and_then(|t| t.tensor_type.as_mut()) {
        t.elem_type = ElementType::Int64.number();
    }
    let model = read(model(nodes, vec![port("x", &[4]), repeats], vec![port("y", &[4])], vec![])).expect("reads");
    let refused = model.to_mil(&Options::default()).expect_err("the repeats are not known");
    assert_eq!(refused.all.len(), COUNT);
    assert_eq!((&refused.all[0].needs, refused.all[0].code), (&vec!["r".to_string()], codes::NOT_KNOWN));
}

/// A sequence cannot be chosen by a condition that only a run knows, and a loop that collects needs
/// its count.
#[test]
fn what_sequences_and_collections_depend_on_must_be_known() {
    use ferrane_onnx::proto::{AttributeProto, GraphProto, NodeProto, bytes};
    let scalar = |name: &str, element: ElementType| {
        let mut scalar = port(name, &[]);
        if let Some(t) = scalar.r#type.as_mut().and_then(|t| t.tensor_type.as_mut()) {
            t.elem_type = element.number();
        }
        scalar
    };
    let graph = |nodes: Vec<NodeProto>, inputs: Vec<_>, outputs: &[&str]| GraphProto {
        node: nodes.into_iter().map(bytes).collect(),
        input: inputs.into_iter().map(bytes).collect(),
        output: outputs.iter().map(|name| bytes(port(name, &[2]))).collect(),
        ..GraphProto::default()
    };
    let with = |mut node: NodeProto, graphs: Vec<(&str, GraphProto)>| {
        let attribute = |(name, graph): (&str, GraphProto)| {
            bytes(AttributeProto { name: name.into(), r#type: 5, g: Some(bytes(graph)), ..AttributeProto::default() })
        };
        node.attribute = graphs.into_iter().map(attribute).collect();
        node
    };
    let pick = |items: &str, name: &str| graph(vec![node("SequenceConstruct", items, name)], vec![], &[name]);
    let chosen = with(node("If", "go", "s"), vec![("then_branch", pick("x x", "a")), ("else_branch", pick("x", "b"))]);
    let nodes = vec![chosen, node("ConcatFromSequence", "s", "y")];
    let body = graph(
        vec![node("Identity", "go_in", "go_out"), node("Exp", "x", "seen")],
        vec![scalar("turn", ElementType::Int64), scalar("go_in", ElementType::Bool)],
        &["go_out", "seen"],
    );
    let turns =
        vec![with(NodeProto { input: vec!["n".into(), String::new()], ..node("Loop", "", "y") }, vec![("body", body)])];
    for (nodes, input, value, rows) in
        [(nodes, scalar("go", ElementType::Bool), 1.0, 4), (turns, scalar("n", ElementType::Int64), 3.0, 3)]
    {
        let name = input.name.clone();
        let model = read(model(nodes, vec![port("x", &[2]), input], vec![port("y", &[2])], vec![])).expect("reads");
        let refused = model.to_mil(&Options::default()).expect_err("it is not known");
        assert_eq!((refused.all[0].code, &refused.all[0].needs), (codes::NOT_KNOWN, &vec![name.clone()]), "{refused}");
        let element = if name == "n" { ElementType::Int64 } else { ElementType::Bool };
        let value = Tensor::new(element, &[], vec![value]).expect("a scalar");
        let program = model.to_mil(&Options::default().value(&name, value)).expect("lowers");
        let main = &program.functions[0];
        assert_eq!(main.value(main.body().outputs[0]).ty.shape().expect("a tensor")[0], rows, "{name}");
    }
}

#[test]
fn a_value_that_must_be_known_is_named_and_can_be_fixed() {
    let shape = {
        let mut shape = port("shape", &[2]);
        if let Some(t) = shape.r#type.as_mut().and_then(|t| t.tensor_type.as_mut()) {
            t.elem_type = ElementType::Int64.number();
        }
        shape
    };
    let model =
        model(vec![node("Reshape", "x shape", "y")], vec![port("x", &[4]), shape], vec![port("y", &[2, 2])], vec![]);
    let model = read(model).expect("reads");
    let refused = model.to_mil(&Options::default()).expect_err("the shape is not known");
    assert_eq!(refused.all[0].needs, ["shape"]);
    let value = Tensor::new(ElementType::Int64, &[2], vec![2.0, 2.0]).expect("a tensor");
    let program = model.to_mil(&Options::default().value("shape", value)).expect("lowers");
    assert_eq!(program.functions[0].inputs.len(), 1);
}

#[test]
fn older_opsets_get_older_ops() {
    let path = crate::common::folder().join("quantized.onnx");
    let model = ferrane_onnx::Model::open(path).expect("reads");
    let program = model.to_mil(&Options::default().opset(Opset::IOS17)).expect("lowers");
    assert_eq!(program.functions[0].opset().ok(), Some(Opset::IOS17));
    assert!(program.functions[0].ops.iter().any(|op| op.name == "constexpr_affine_dequantize"));
}
