//! Ports: which surfaces a loaded program takes, in which order and how laid out.
//!
//! Order, symbols and strides are what the model reports ([`crate::attributes`]), because the
//! engine orders and pads by rules of its own. Element types and extents are the program's. A model
//! that reports no strides has rows laid out by the profile's `row_alignment`; one that reports
//! nothing at all has its ports in the program's order.

use ferrane_device::{Error, ErrorKind, Layout, Port, Procedure, Result};
use ferrane_mil::{DataType, Function, Program, Type, ValueId};

use crate::attributes::{Attributes, PortAttributes, Tree, layout};
use crate::bind::foundation::{List, Map, Number, Text};
use crate::bind::{Object, Wrap as _};

/// Values that a tree may have; attributes of real models have some hundreds for each port.
const VALUES: usize = 1 << 20;

/// How deep it may be nested; attributes have five levels.
const DEPTH: usize = 16;

/// What a program says of a port.
#[derive(Clone)]
struct Wanted {
    name: String,
    dtype: DataType,
    shape: Vec<usize>,
}

/// The ports of a function, in the program's order.
#[derive(Clone)]
pub(crate) struct Declared {
    name: String,
    inputs: Vec<Wanted>,
    outputs: Vec<Wanted>,
}

/// What the program declares.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for ports that a surface cannot be.
pub(crate) fn declared(program: &Program) -> Result<Vec<Declared>> {
    let port = |function: &Function, id: &ValueId| {
        let value = function.value(*id);
        let bad = |why: &str| Error::new(ErrorKind::Unsupported, why.to_string()).with_port(&value.name);
        match (&value.ty, value.ty.dtype(), value.ty.shape()) {
            (Type::State(_), ..) => Err(bad("requests of the engine have no states")),
            (_, Some(dtype), Some(shape)) => {
                Layout::packed(dtype, &shape).map_err(|e| bad(e.message()))?;
                Ok(Wanted { name: value.name.clone(), dtype, shape })
            }
            _ => Err(bad("ports are tensors with known extents")),
        }
    };
    let function = |f: &Function| {
        let inputs = f.inputs.iter().map(|v| port(f, v)).collect::<Result<_>>()?;
        let outputs = f.body().outputs.iter().map(|v| port(f, v)).collect::<Result<_>>()?;
        Ok(Declared { name: f.name.clone(), inputs, outputs })
    };
    program.functions.iter().map(function).collect()
}

/// The procedures of a loaded model.
///
/// # Errors
/// [`ErrorKind::Load`] if the model reports what makes no sense or is not the program's.
pub(crate) fn procedures(
    attributes: Option<&Map>,
    declared: &[Declared],
    row_alignment: usize,
) -> Result<Vec<Procedure>> {
    let attributes = match attributes {
        Some(attributes) => {
            let mut left = VALUES;
            Attributes::read(&tree(attributes.object(), DEPTH, &mut left)?)?
        }
        None => Attributes::default(),
    };
    if attributes.procedures.is_empty() {
        // Symbols count on from one procedure to the next: procedure N of one port has the symbol N
        // (claim C012).
        let (mut inputs, mut outputs) = (0, 0);
        let in_order = |(id, declared)| in_order(id, declared, (&mut inputs, &mut outputs), row_alignment);
        return declared.iter().enumerate().map(in_order).collect();
    }
    let odd = |what: String| Error::new(ErrorKind::Load, format!("the loaded model reports {what}"));
    let mut procedures = Vec::new();
    for reported in attributes.procedures {
        let known = declared.iter().find(|d| d.name == reported.name);
        let known =
            known.ok_or_else(|| odd(format!("the procedure `{}`, which the program has not", reported.name)))?;
        let side = |ports: &[PortAttributes], known: &[Wanted]| -> Result<Vec<Port>> {
            if ports.len() != known.len() {
                return Err(odd(format!("{} ports where the program has {}", ports.len(), known.len())));
            }
            ports.iter().map(|port| placed(port, known, row_alignment)).collect()
        };
        let (inputs, outputs) = (side(&reported.inputs, &known.inputs)?, side(&reported.outputs, &known.outputs)?);
        procedures.push(Procedure { name: reported.name, id: reported.id, inputs, outputs, states: Vec::new() });
    }
    Ok(procedures)
}

/// Bytes that surfaces of ports with that mark are aligned to.
const MARKED: usize = 16 << 10;

fn placed(port: &PortAttributes, known: &[Wanted], row_alignment: usize) -> Result<Port> {
    let wanted = known.iter().find(|w| w.name == port.name).ok_or_else(|| {
        let message = format!("the loaded model reports the port `{}`, which the program has not", port.name);
        Error::new(ErrorKind::Load, message)
    })?;
    let mut layout = match &port.axes {
        Some(axes) => layout(&port.name, wanted.dtype, &wanted.shape, axes)?,
        None => Layout::with_row_alignment(wanted.dtype, &wanted.shape, row_alignment)?,
    };
    if port.aligned_16k {
        layout.allocation = layout.allocation.checked_next_multiple_of(MARKED).unwrap_or(layout.allocation);
    }
    Ok(Port { name: port.name.clone(), symbol: port.symbol, layout })
}

fn in_order(id: usize, declared: &Declared, next: (&mut u32, &mut u32), row_alignment: usize) -> Result<Procedure> {
    let ports = |ports: &[Wanted], next: &mut u32| {
        let port = |wanted: &Wanted| {
            let layout = Layout::with_row_alignment(wanted.dtype, &wanted.shape, row_alignment)?;
            let symbol = *next;
            *next += 1;
            Ok(Port { name: wanted.name.clone(), symbol, layout })
        };
        ports.iter().map(port).collect::<Result<Vec<_>>>()
    };
    let (inputs, outputs) = (ports(&declared.inputs, next.0)?, ports(&declared.outputs, next.1)?);
    Ok(Procedure { name: declared.name.clone(), id: id as u32, inputs, outputs, states: Vec::new() })
}

/// An object of Foundation as plain values, at most `left` of them.
fn tree(object: &Object, depth: usize, left: &mut usize) -> Result<Tree> {
    let (Some(depth), Some(less)) = (depth.checked_sub(1), left.checked_sub(1)) else {
        return Err(Error::new(ErrorKind::Load, "the loaded model reports more than can be looked at"));
    };
    *left = less;
    if object.is(c"NSString") {
        return Ok(Tree::Text(object.clone().cast::<Text>()?.read()?));
    }
    if object.is(c"NSNumber") {
        return Ok(Tree::Number(object.clone().cast::<Number>()?.value()?));
    }
    if object.is(c"NSArray") {
        let elements = object.clone().cast::<List>()?.elements()?;
        return Ok(Tree::List(elements.iter().map(|e| tree(e, depth, left)).collect::<Result<_>>()?));
    }
    if object.is(c"NSDictionary") {
        let map = object.clone().cast::<Map>()?;
        let mut entries = Vec::new();
        for key in map.keys()??.elements()? {
            // Keys of another kind are of no use to us.
            let Ok(key) = key.cast::<Text>() else { continue };
            if let Some(value) = map.get(&key)? {
                entries.push((key.read()?, tree(&value, depth, left)?));
            }
        }
        return Ok(Tree::Map(entries));
    }
    Ok(Tree::Other)
}
