//! Damaged files: an error or a file that can be used, and nothing else.

use ferrane_coreai::build::Builder;
use ferrane_coreai::bytecode::{AttributeId, Block, BytecodeOp, Region, TypeId};
use ferrane_coreai::dialect::{ElementType, Field};
use ferrane_coreai::summary::Summary;
use ferrane_coreai::{Bytecode, ConversionOptions, text};

use crate::samples::samples;

/// Reads a file and, if that works, uses all of it.
fn use_all(bytes: &[u8]) {
    let Ok(file) = Bytecode::read(bytes) else { return };
    text::program(&file);
    text::generic(&file, text::Locations::Show);
    Summary::of(&file);
    let _ = file.to_mil(&ConversionOptions::default());
    let written = file.write();
    let again = Bytecode::read(&written).expect("what was written is read");
    assert_eq!(again.write(), written);
}

#[test]
fn every_prefix_is_refused() {
    for (name, bytes) in samples() {
        for end in 0..bytes.len() {
            assert!(Bytecode::read(&bytes[..end]).is_err(), "{name}: {end} bytes");
        }
    }
}

#[test]
fn changed_bytes_do_no_harm() {
    for (_, bytes) in samples().into_iter().filter(|(_, bytes)| bytes.len() < 700) {
        for at in 0..bytes.len() {
            for change in [0x01, 0x02, 0x10, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= change;
                use_all(&changed);
            }
        }
    }
}

#[test]
fn errors_name_an_offset() {
    let (_, bytes) = samples().swap_remove(0);
    let offset = |bytes: &[u8]| Bytecode::read(bytes).unwrap_err().offset.unwrap();
    assert_eq!(offset(b"ML\xefS"), 0);
    assert_eq!(offset(&[&bytes[..4], &[0x0f]].concat()), 4);
    assert!(offset(&bytes[..bytes.len() - 1]) > 0);
}

#[test]
fn announced_lengths_allocate_nothing() {
    // A string section that announces 2^62 strings.
    let mut bytes = b"ML\xefR\x0d\0".to_vec();
    bytes.extend_from_slice(&[0x00, 0x13, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f]);
    assert!(Bytecode::read(&bytes).is_err());
}

#[test]
fn attributes_that_contain_themselves_are_cut() {
    let mut builder = Builder::new();
    // Each array holds the one before it four times; the first holds itself.
    let mut last = AttributeId(builder.file().attributes.len() as u32);
    builder.attribute(5, vec![Field::Attributes(vec![last; 4])]);
    for _ in 0..100 {
        last = builder.attribute(5, vec![Field::Attributes(vec![last; 4])]);
    }
    let mut operation = builder.file().body.operations[0].clone();
    assert!(builder.replace_property(&mut operation, "version", last));
    builder.body_mut().operations[0] = operation;
    let written = builder.finish().write();
    let text = text::generic(&Bytecode::read(&written).unwrap(), text::Locations::Hide);
    assert!(text.contains('…') && text.len() < 1 << 22, "{} bytes", text.len());
}

/// The function that a builder added last.
fn last_function<'b>(builder: &'b mut Builder<'_>) -> &'b mut BytecodeOp {
    builder.body_mut().operations[0].regions[0].blocks[0].operations.last_mut().expect("a function")
}

/// The attribute that names something.
fn text_attribute(builder: &mut Builder<'_>, text: &str) -> AttributeId {
    let id = builder.string(text);
    builder.attribute(1, vec![Field::String(id)])
}

#[test]
fn nested_groups_without_names_are_printed_once() {
    let mut builder = Builder::new();
    let ty = builder.tensor(&[Some(2)], ElementType::Float32);
    let mut graph = builder.graph("main", &[("x", ty)]);
    let x = graph.inputs()[0];
    let name = text_attribute(&mut builder, "name");
    let none = builder.attribute(5, vec![Field::Attributes(Vec::new())]);
    let properties = [("arg_attrs", none), ("delegate_id", name), ("res_attrs", none)];
    let y = builder.op(&mut graph, "dataflow.isolated_group_v1", &[x], &properties, ty);
    builder.output(graph, &[("y", y)]);
    let operations = &mut last_function(&mut builder).regions[0].blocks[0].operations;
    let mut group = BytecodeOp { properties: None, results: Vec::new(), ..operations[0].clone() };
    for _ in 0..40 {
        let outer = group.clone();
        let block = Block { operations: vec![group], ..Block::default() };
        group = BytecodeOp { regions: vec![Region { blocks: vec![block] }], ..outer };
    }
    operations.insert(0, group);
    let written = builder.finish().write();
    let text = text::program(&Bytecode::read(&written).unwrap());
    assert_eq!(text.matches("isolated_group").count(), 42, "{text}");
}

#[test]
fn constants_of_many_axes_are_printed() {
    let mut builder = Builder::new();
    let ty = builder.tensor(&[Some(1); 200_000], ElementType::Float32);
    let mut graph = builder.graph("main", &[]);
    let x = builder.constant(&mut graph, ty, &1.0f32.to_le_bytes());
    builder.output(graph, &[("y", x)]);
    use_all(&builder.finish().write());
}

#[test]
fn lists_that_are_named_again_and_again_are_cut() {
    const COUNT: usize = 40_000;
    let mut builder = Builder::new();
    let ty = builder.tensor(&[Some(2)], ElementType::Float32);
    let inputs: Vec<(&str, TypeId)> = vec![("x", ty); COUNT];
    let mut graph = builder.graph("main", &inputs);
    let x = graph.inputs()[0];
    let y = builder.op(&mut graph, "primitive.add_v1", &[x, x], &[], ty);
    builder.output(graph, &[("y", y)]);
    let leaf = text_attribute(&mut builder, "leaf");
    let inner = builder.attribute(5, vec![Field::Attributes(vec![leaf; COUNT])]);
    let outer = builder.attribute(5, vec![Field::Attributes(vec![inner; COUNT])]);
    let mut function = last_function(&mut builder).clone();
    assert!(builder.replace_property(&mut function, "argAttrs", outer));
    assert!(builder.replace_property(&mut function, "resAttrs", outer));
    *last_function(&mut builder) = function;
    use_all(&builder.finish().write());
}

#[test]
fn types_and_names_of_a_summary_are_bounded_together() {
    let mut builder = Builder::new();
    // Each type holds the one before it four times.
    let mut ty = builder.tensor(&[Some(2)], ElementType::Float32);
    for _ in 0..40 {
        ty = builder.ty(30, vec![Field::Types(vec![ty; 2]), Field::Types(vec![ty; 2])]);
    }
    let graph = builder.graph("main", &[("x", ty); 200]);
    let x = graph.inputs()[0];
    builder.output(graph, &[("y", x)]);
    let written = builder.finish().write();
    let summary = Summary::of(&Bytecode::read(&written).unwrap());
    let function = &summary.functions[0];
    let ports = function.inputs.iter().chain(&function.outputs);
    let length: usize = ports.map(|(name, ty)| name.len() + ty.len()).sum();
    assert!(length < 1 << 22, "{length} bytes");
    assert_eq!(function.inputs.last().unwrap().1, "…");
}

#[test]
fn names_do_not_steer_a_terminal() {
    let mut builder = Builder::new();
    let ty = builder.tensor(&[Some(2)], ElementType::Float32);
    let graph = builder.graph("ma\u{1b}[2Jin", &[("x\u{9b}", ty)]);
    let x = graph.inputs()[0];
    builder.output(graph, &[("y", x)]);
    let written = builder.finish().write();
    let summary = Summary::of(&Bytecode::read(&written).unwrap());
    assert_eq!(summary.functions[0].name, "ma\u{1b}[2Jin");
    let text = summary.to_string();
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
}
