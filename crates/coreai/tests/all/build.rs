//! New programs and changed ones. That coreai-core loads them is checked by
//! `scripts/coreai/load.py`.

use ferrane_coreai::build::Builder;
use ferrane_coreai::dialect::ElementType;
use ferrane_coreai::{Bytecode, text};

use crate::samples::samples;

#[test]
fn a_program_of_our_own() {
    let mut builder = Builder::new();
    let ty = builder.tensor(&[None, Some(3)], ElementType::Float32);
    let mut graph = builder.graph("main", &[("x", ty)]);
    let x = graph.inputs()[0];
    let one = builder.tensor(&[], ElementType::Float32);
    let half = builder.constant(&mut graph, one, &0.5f32.to_le_bytes());
    let y = builder.op(&mut graph, "broadcasting_mul_v1", &[x, half], &[], ty);
    builder.output(graph, &[("y", y)]);
    let bytes = builder.finish().write();
    let wanted = r#"module {
  coreai.graph @main(%arg0: tensor<?x3xf32> {coreai.name = "x"}) -> (tensor<?x3xf32> {coreai.name = "y"}) {
    %0 = coreai.constant dense<5.000000e-01> : tensor<f32>
    %1 = coreai.decomposable.broadcasting_mul %arg0, %0 : (tensor<?x3xf32>, tensor<f32>) -> tensor<?x3xf32>
    coreai.output %1 : tensor<?x3xf32>
  }
}
"#;
    assert_eq!(text::program(&Bytecode::read(&bytes).unwrap()), wanted);
}

#[test]
fn a_function_is_added_and_the_rest_stays() {
    for (name, bytes) in samples() {
        let file = Bytecode::read(&bytes).unwrap();
        let before = text::program(&file);
        let mut builder = Builder::of(file);
        let ty = builder.tensor(&[Some(2)], ElementType::Float32);
        let mut graph = builder.graph("added", &[("x", ty)]);
        let x = graph.inputs()[0];
        let w = builder.weight(&mut graph, "w", ty, vec![0; 8]);
        let y = builder.op(&mut graph, "primitive.add_v1", &[x, w], &[], ty);
        builder.output(graph, &[("y", y)]);
        let written = builder.finish().write();
        let after = text::program(&Bytecode::read(&written).unwrap());
        assert!(after.starts_with(before.trim_end().trim_end_matches('}')), "{name}\n{after}");
        assert!(after.contains("coreai.constant dense_resource<w> : tensor<2xf32>"), "{name}");
    }
}

#[test]
fn a_constant_is_replaced() {
    let (_, bytes) = samples().into_iter().find(|(name, _)| name == "pad_reflect").unwrap();
    let mut builder = Builder::of(Bytecode::read(&bytes).unwrap());
    let value = builder.elements(&2.0f32.to_le_bytes(), true);
    let mut body = builder.file().body.clone();
    let graph = &mut body.operations[0].regions[0].blocks[0].operations[0];
    let constant = &mut graph.regions[0].blocks[0].operations[1];
    assert!(builder.replace_property(constant, "value", value));
    assert!(!builder.replace_property(constant, "values", value));
    *builder.body_mut() = body;
    let written = builder.finish().write();
    let text = text::program(&Bytecode::read(&written).unwrap());
    assert!(text.contains("%1 = coreai.constant dense<2.000000e+00> : tensor<f32>"), "{text}");
}

#[test]
#[should_panic(expected = "needs the property `value`")]
fn a_property_is_missing() {
    let mut builder = Builder::new();
    let ty = builder.tensor(&[], ElementType::Float32);
    let mut graph = builder.graph("main", &[]);
    builder.op(&mut graph, "primitive.constant_v1", &[], &[], ty);
}

#[test]
#[should_panic(expected = "has no property `alpha`")]
fn a_property_is_not_known() {
    let mut builder = Builder::new();
    let ty = builder.tensor(&[], ElementType::Float32);
    let mut graph = builder.graph("main", &[("x", ty)]);
    let (x, alpha) = (graph.inputs()[0], builder.elements(&[0; 4], true));
    builder.op(&mut graph, "primitive.add_v1", &[x, x], &[("alpha", alpha)], ty);
}

#[test]
#[should_panic(expected = "no value of the function")]
fn an_output_of_another_function() {
    let mut builder = Builder::new();
    let ty = builder.tensor(&[], ElementType::Float32);
    let other = builder.graph("other", &[("x", ty)]);
    let graph = builder.graph("main", &[("x", ty)]);
    builder.output(graph, &[("y", other.inputs()[0])]);
}
