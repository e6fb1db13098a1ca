//! ONNX models.

use ferrane_mil::{check, print, verify};
use ferrane_onnx::{Dimension, Model, Options};

/// Any bytes are a model or rejected. A model has a program or refusals; a program passes the
/// verifier and the checks of the registry, and can be printed.
///
/// # Panics
/// If a property does not hold.
pub fn onnx(data: &[u8]) {
    let Ok(model) = Model::from_bytes(data, None) else { return };
    let mut options = Options::default();
    for port in model.inputs() {
        for (axis, dimension) in port.shape.iter().flatten().enumerate() {
            options = match dimension {
                Dimension::Fixed(_) => options,
                Dimension::Named(name) => options.dimension(name, 2),
                Dimension::Unknown => options.dimension(&format!("{}.{axis}", port.name), 2),
            };
        }
    }
    let program = match model.to_mil(&options) {
        Ok(program) => program,
        Err(refusals) => {
            assert!(!refusals.all.is_empty(), "a refusal has a reason");
            let _ = refusals.to_string();
            return;
        }
    };
    verify(&program).expect("a program that was made passes the verifier");
    for function in &program.functions {
        assert!(check(function, &program.weights).is_empty(), "a program that was made passes the checks");
    }
    let _ = print(&program);
}
