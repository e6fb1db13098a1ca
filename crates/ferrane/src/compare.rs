//! How far two programs are from each other in numbers.

use ferrane_device::{Device, Error, Tensor, TensorDistance, Tensors};
use ferrane_mil::{DataType, Function, Program};
use ferrane_tensor_io::{Unnamed, arguments};

/// An output of two programs.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputDistance {
    /// Name of the function.
    pub function: String,
    /// Name of the output in the first program.
    pub output: String,
    /// The distance of the second program's tensor from that of the first.
    pub distance: TensorDistance,
}

/// Why two programs cannot be compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// A function of the first program that the second one does not have.
    #[error("the second program has no function `{0}` to run")]
    Function(String),
    /// A function that has other outputs.
    #[error("`{function}` has {first} outputs in one program and {second} in the other")]
    Outputs {
        /// Name of the function.
        function: String,
        /// The number of outputs in the first program.
        first: usize,
        /// The number of outputs in the second program.
        second: usize,
    },
    /// An input for which there are no random values, such as one of unknown extents.
    #[error(transparent)]
    Tensor(#[from] ferrane_tensor_io::Error),
    /// A program that the device does not run.
    #[error("{0}")]
    Device(#[from] Error),
}

/// Runs every function of the first program, and those of the same names of the second, on the same
/// random inputs, and returns how far the outputs are from each other.
///
/// Inputs correspond by their position, outputs by their names, or by their position if the second
/// program has no such name. So a renamed port makes no difference. Neither does another element
/// type: outputs of fp16 and fp32 are compared as fp32.
///
/// ```
/// use ferrane::mil::{Builder, DataType, Opset, Type};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let program = |op: &str| -> Result<_, Box<dyn std::error::Error>> {
///     let mut b = Builder::new("main", Opset::IOS18);
///     let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 8]))?;
///     let y = b.op(op, "y", [("x", x.into())])?;
///     Ok(b.finish(&[("y", y)])?)
/// };
/// let device = ferrane::open("emulator")?;
/// let found = ferrane::compare(&device, &program("tanh")?, &program("sigmoid")?, 1)?;
/// assert!(found[0].output == "y" && !found[0].distance.is_within(0.01));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// A [`CompareError`].
pub fn compare(
    device: &Device,
    first: &Program,
    second: &Program,
    seed: u64,
) -> Result<Vec<OutputDistance>, CompareError> {
    let outputs = |program: &Program, function: &Function| -> Result<Tensors, CompareError> {
        Ok(device.call(program, arguments(function, &[], Unnamed::Random(seed))?)?.outputs)
    };
    let mut found = Vec::new();
    for function in &first.functions {
        let other = second.function(&function.name).ok_or_else(|| CompareError::Function(function.name.clone()))?;
        let (left, right) = (outputs(first, function)?, outputs(second, other)?);
        if left.len() != right.len() {
            let function = function.name.clone();
            return Err(CompareError::Outputs { function, first: left.len(), second: right.len() });
        }
        for (i, (output, x)) in left.iter().enumerate() {
            let Some(y) = right.find(output).or_else(|| right.iter().nth(i).map(|(_, y)| y)) else { continue };
            let (function, output) = (function.name.clone(), output.clone());
            found.push(OutputDistance { function, output, distance: distance(x, y)? });
        }
    }
    Ok(found)
}

/// The distance of two outputs, as fp32 if they are floating point of different types.
fn distance(x: &Tensor, y: &Tensor) -> Result<TensorDistance, CompareError> {
    let float = |tensor: &Tensor| matches!(tensor.dtype(), DataType::Fp16 | DataType::Fp32);
    if x.dtype() != y.dtype() && float(x) && float(y) {
        return Ok(TensorDistance::of(&x.cast(DataType::Fp32)?, &y.cast(DataType::Fp32)?));
    }
    Ok(TensorDistance::of(x, y))
}

#[cfg(test)]
mod tests {
    use ferrane_mil::{Builder, Opset, Type};

    use super::*;

    /// `outputs` name the result of `op`, whose input is `input`.
    fn program(function: &str, input: &str, op: &str, outputs: &[&str]) -> Program {
        let mut b = Builder::new(function, Opset::IOS18);
        let x = b.input(input, Type::tensor(DataType::Fp32, &[1, 4])).unwrap();
        let y = outputs.iter().map(|name| (*name, b.op(op, name, [("x", x.into())]).unwrap()));
        let y: Vec<_> = y.collect();
        b.finish(&y).unwrap()
    }

    #[test]
    fn a_renamed_port_makes_no_difference() {
        let device = crate::open("emulator").unwrap();
        let first = program("main", "x", "tanh", &["y", "z"]);
        let found = compare(&device, &first, &program("main", "a", "tanh", &["b", "c"]), 7).unwrap();
        assert_eq!(found.iter().map(|d| d.output.as_str()).collect::<Vec<_>>(), ["y", "z"]);
        assert!(found.iter().all(|d| d.distance.max == 0.0 && d.distance.scale > 0.0), "{found:?}");
        let found = compare(&device, &first, &program("main", "x", "sin", &["y", "z"]), 7).unwrap();
        assert!(found.iter().all(|d| d.distance.max > 0.0), "{found:?}");
    }

    #[test]
    fn outputs_of_different_element_types_are_compared() {
        let device = crate::open("emulator").unwrap();
        let half = |input: DataType| {
            let mut b = Builder::new("main", Opset::IOS18);
            let x = b.input("x", Type::tensor(input, &[1, 4])).unwrap();
            let y = b.op("tanh", "y", [("x", x.into())]).unwrap();
            b.finish(&[("y", y)]).unwrap()
        };
        let found = compare(&device, &half(DataType::Fp32), &half(DataType::Fp16), 7).unwrap();
        // Inputs and outputs are rounded to fp16.
        assert!(found[0].distance.max > 0.0 && found[0].distance.is_within(2e-3), "{found:?}");
    }

    #[test]
    fn other_functions_and_other_outputs_are_refused() {
        let device = crate::open("emulator").unwrap();
        let first = program("main", "x", "tanh", &["y"]);
        let error = compare(&device, &first, &program("other", "x", "tanh", &["y"]), 1).unwrap_err();
        assert!(matches!(error, CompareError::Function(name) if name == "main"));
        let error = compare(&device, &first, &program("main", "x", "tanh", &["y", "z"]), 1).unwrap_err();
        assert!(matches!(error, CompareError::Outputs { first: 1, second: 2, .. }), "{error}");
    }
}
