//! The attributes that the engine reports for a loaded model, a property tree. The fuzzer writes it
//! as JSON.

use ferrane_ane::attributes::{Attributes, Tree, layout};
use ferrane_mil::DataType;
use serde_json::Value;

fn tree(value: Value) -> Tree {
    match value {
        Value::String(text) => Tree::Text(text),
        Value::Number(number) => number.as_i64().map_or(Tree::Other, Tree::Number),
        Value::Array(elements) => Tree::List(elements.into_iter().map(tree).collect()),
        Value::Object(entries) => Tree::Map(entries.into_iter().map(|(key, value)| (key, tree(value))).collect()),
        Value::Null | Value::Bool(_) => Tree::Other,
    }
}

/// Any tree is read or rejected. A layout made from it passes its own check, and all its bytes lie
/// inside its allocation.
///
/// # Panics
/// If a property does not hold.
pub fn attributes(data: &[u8]) {
    let Ok(value) = serde_json::from_slice(data) else { return };
    let Ok(attributes) = Attributes::read(&tree(value)) else { return };
    for port in attributes.procedures.iter().flat_map(|p| p.inputs.iter().chain(&p.outputs)) {
        let Some(axes) = &port.axes else { continue };
        let dtype = axes.dtype.unwrap_or(DataType::Fp16);
        let [batches, channels, depth, height, width] = axes.extents;
        // The tensor itself, and shapes that must be distinguished from it or folded into it.
        let shapes = [
            vec![batches, channels, depth, height, width],
            vec![batches, channels, height, width],
            vec![channels, height, width],
            vec![channels.saturating_mul(height), width],
            vec![width],
            Vec::new(),
        ];
        for shape in shapes {
            if let Ok(layout) = layout(&port.name, dtype, &shape, axes) {
                layout.check().expect("a layout that was made can be");
                assert!(layout.elements() == 0 || layout.span() <= layout.allocation, "{layout:?}");
            }
        }
    }
}
