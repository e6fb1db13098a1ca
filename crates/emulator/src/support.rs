//! Which ops are executed, and how. Read off the tables that execute them, so that it cannot say anything else.

use ferrane_device::Error;
use ferrane_mil::{Opset, ops};

use crate::{host, interpret, plan};

/// How the emulator executes an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Support {
    /// By steps or views of a plan.
    Plan,
    /// By one function over whole tensors, in a plan or out of it.
    Kernel,
    /// Only where the function is interpreted: control flow and lists.
    Interpreter,
    /// Not at all; why.
    Refused(&'static str),
}

/// Why ops have no numeric meaning that could be executed.
const REFUSED: &[(&str, &str)] =
    &[("classify", "it gives a dictionary of class names, which is neither a tensor nor a list of them")];

/// How an op is executed. An op that the opset does not have is refused.
pub fn support(op: &str, opset: Opset) -> Support {
    if ops::find(op, opset).is_none() {
        return Support::Refused("the opset has no such op");
    }
    if op == "const" || plan::has_steps(op) {
        Support::Plan
    } else if host::kernel(op).is_some() {
        Support::Kernel
    } else if interpret::has_own(op) {
        Support::Interpreter
    } else {
        Support::Refused(reason(op))
    }
}

fn reason(op: &str) -> &'static str {
    REFUSED.iter().find(|(n, _)| *n == op).map_or("there are neither steps nor a kernel for it", |(_, reason)| reason)
}

/// The error of an op that is not executed.
pub(crate) fn refusal(op: &str) -> Error {
    plan::unsupported(op, format!("is not implemented by the emulator: {}", reason(op)))
}
