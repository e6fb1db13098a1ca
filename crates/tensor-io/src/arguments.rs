//! The arguments of a function, from a source for each input.

use ferrane_device::{Call, Tensor, Tensors};
use ferrane_mil::Function;
use ferrane_mil::program::Type;

use crate::{Error, Result, TensorSource};

/// The value of an input that no source names. States without a source begin as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unnamed {
    /// [`Error::Missing`].
    Refuse,
    /// Random values; input `i` of the function, counted from 0, has this seed plus `i`.
    Random(u64),
}

/// A call of a function with a tensor for each input, and for each state that a source names.
///
/// ```
/// use ferrane_mil::{Weights, parse};
/// use ferrane_tensor_io::{TensorSource, Unnamed, arguments};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let text = "program(1.3)\n[buildInfo = dict<string, string>({{\"a\", \"b\"}})]\n{
///     func main<ios18>(tensor<fp16, [1, 4]> x, tensor<fp16, [1, 4]> y) {
///         tensor<fp16, [1, 4]> z = add(x = x, y = y)[name = string(\"z\")];
///     } -> (z);\n}";
/// let program = parse(text, &Weights::new())?;
/// let x = ("x".to_string(), TensorSource::parse("[1, 2, 3, 4]")?);
/// let call = arguments(&program.functions[0], &[x], Unnamed::Random(7))?;
/// assert_eq!(call.given_inputs().get("x")?.to_f32(), [1.0, 2.0, 3.0, 4.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::Unknown`] for a source that names no input, [`Error::Missing`], [`Error::Input`].
pub fn arguments(function: &Function, sources: &[(String, TensorSource)], unnamed: Unnamed) -> Result<Call> {
    let inputs = || function.inputs.iter().map(|v| function.value(*v));
    let ports: Vec<(&str, &Type)> = inputs().map(|v| (v.name.as_str(), &v.ty)).collect();
    let mut call = Call::new().function(&function.name);
    for (name, tensor) in values(&function.name, &ports, sources, unnamed)? {
        let state = inputs().any(|v| v.name == name && matches!(v.ty, Type::State(_)));
        call = if state { call.state(name, tensor) } else { call.input(name, tensor) };
    }
    Ok(call)
}

/// A tensor for each of some ports. `owner` names what has the ports, for messages.
///
/// # Errors
/// As [`arguments`].
pub fn values(
    owner: &str,
    ports: &[(&str, &Type)],
    sources: &[(String, TensorSource)],
    unnamed: Unnamed,
) -> Result<Tensors> {
    if let Some((name, _)) = sources.iter().find(|(n, _)| ports.iter().all(|(port, _)| port != n)) {
        let near = ferrane_diag::did_you_mean(name, ports.iter().map(|(port, _)| *port));
        let known = ports.iter().map(|(port, _)| *port).collect::<Vec<_>>().join(", ");
        return Err(Error::Unknown(format!("`{owner}` has no input `{name}`{near} (there are {known})")));
    }
    let (mut tensors, mut missing) = (Tensors::new(), Vec::new());
    for (i, &(port, ty)) in ports.iter().enumerate() {
        let given = sources.iter().find(|(n, _)| n == port).map(|(_, source)| source);
        let random;
        let source = match (given, unnamed) {
            (Some(source), _) => source,
            (None, _) if matches!(ty, Type::State(_)) => continue,
            (None, Unnamed::Random(seed)) => {
                random = TensorSource::Random { seed: seed.wrapping_add(i as u64), bounds: None };
                &random
            }
            (None, Unnamed::Refuse) => {
                missing.push((port.to_string(), ty.clone()));
                continue;
            }
        };
        tensors.insert(port, tensor(source, port, ty)?);
    }
    if missing.is_empty() { Ok(tensors) } else { Err(Error::Missing { owner: owner.to_string(), inputs: missing }) }
}

fn tensor(source: &TensorSource, name: &str, ty: &Type) -> Result<Tensor> {
    source.tensor(name, ty).map_err(|error| Error::Input { name: name.to_string(), error: Box::new(error) })
}
