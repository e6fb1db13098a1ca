//! Programs of cases.

use std::collections::BTreeMap;

use ferrane_mil::{Constant, DataType, Program};
use ferrane_onnx::{Model, Options, Tensor, codes, port_names};

use super::case::Case;

/// Why a case has no program.
#[derive(Clone, Debug)]
pub enum Refused {
    /// MIL has no op for the operator, or none for this form of it.
    Unmapped(String),
    /// The lowering has a bug, or the registry rejects the ops that it makes.
    Broken(String),
}

/// A program with the values of its inputs. Output `i` of the program is output `i` of the case.
pub struct Lowered {
    /// The program. Its only function is `main`.
    pub program: Program,
    /// The value of each input, by name.
    pub inputs: Vec<(String, Constant)>,
}

/// The program of a case. The lowering says which inputs it has to know; they become constants, and
/// it runs again.
///
/// # Errors
/// See [`Refused`].
pub fn lower(case: &Case) -> Result<Lowered, Refused> {
    let model = Model::from_bytes(&case.model, None).map_err(|e| Refused::Broken(e.to_string()))?;
    let mut options = Options::default();
    // Names of extents are bound by what the inputs have.
    for (port, (_, tensor)) in model.inputs().iter().zip(&case.inputs) {
        for (axis, dimension) in port.shape.iter().flatten().enumerate() {
            let name = match dimension {
                ferrane_onnx::Dimension::Fixed(_) => continue,
                ferrane_onnx::Dimension::Named(name) => name.clone(),
                ferrane_onnx::Dimension::Unknown => format!("{}.{axis}", port.name),
            };
            options = options.dimension(&name, tensor.shape().get(axis).copied().unwrap_or(1));
        }
    }
    let program = loop {
        let refusals = match model.to_mil(&options) {
            Ok(program) => break program,
            Err(refusals) => refusals.all,
        };
        let mut learnt = false;
        for name in refusals.iter().flat_map(|r| &r.needs) {
            if let Some((_, tensor)) = case.inputs.iter().find(|(n, _)| n == name) {
                learnt |= options.values.insert(name.to_string(), tensor.clone()).is_none();
            }
        }
        if !learnt {
            let first = &refusals[0];
            return Err(match first.code == codes::INVALID_MODEL {
                true => Refused::Broken(first.reason.clone()),
                false => Refused::Unmapped(first.reason.clone()),
            });
        }
    };
    let names = port_names(model.inputs().iter().map(|p| p.name.as_str()));
    let main = &program.functions[0];
    let mut types: BTreeMap<&str, DataType> = BTreeMap::new();
    for &input in &main.inputs {
        let value = main.value(input);
        types.insert(&value.name, value.ty.dtype().unwrap_or(DataType::Fp32));
    }
    let mut inputs = Vec::new();
    for (name, (_, tensor)) in names.iter().zip(&case.inputs) {
        if let Some(dtype) = types.get(name.as_str()) {
            inputs.push((name.clone(), constant(*dtype, tensor).map_err(Refused::Unmapped)?));
        }
    }
    Ok(Lowered { program, inputs })
}

fn constant(dtype: DataType, tensor: &Tensor) -> Result<Constant, String> {
    let values = tensor.values();
    let bytes: Vec<u8> = match dtype {
        DataType::Fp32 => values.iter().flat_map(|&v| (v as f32).to_le_bytes()).collect(),
        DataType::Fp16 => values.iter().flat_map(|&v| ferrane_host::f16::from_f64(v).to_le_bytes()).collect(),
        _ => {
            if values.iter().any(|&v| v < f64::from(i32::MIN) || v > f64::from(i32::MAX)) {
                return Err(format!("a value of type {} does not fit int32", tensor.element()));
            }
            values.iter().flat_map(|&v| (v as i32).to_le_bytes()).collect()
        }
    };
    Ok(Constant::raw(dtype, tensor.shape(), &bytes))
}
