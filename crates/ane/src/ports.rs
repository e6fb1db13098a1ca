//! The ports of a loaded program: their order and layouts.
//!
//! Order, symbols and strides are those that the model reports ([`crate::attributes`]), because the
//! engine has its own rules for ordering and padding. Element types and extents are the program's.
//! If a model reports no strides, rows are padded to the profile's `row_alignment`; if it reports
//! nothing, ports are in the program's order.

use ferrane_device::{Error, ErrorKind, Layout, Port, Procedure, Result};
use ferrane_mil::{DataType, Function, Program, Type, ValueId};

use crate::attributes::{Attributes, PortAttributes, Tree, layout};
use crate::bind::foundation::{List, Map, Number, Text};
use crate::bind::{Object, Wrap as _};

/// The largest number of values in a tree; attributes of real models have some hundreds per port.
const VALUES: usize = 1 << 20;

/// The largest nesting depth; attributes have five levels.
const DEPTH: usize = 16;

/// A port as the program declares it.
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

/// The declared ports of every function.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for ports that cannot be surfaces.
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
/// [`ErrorKind::Load`] if the model's report is invalid or disagrees with the program.
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
        // Symbols are numbered across procedures: with one port each, procedure N has the symbol N
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

/// The alignment of surfaces for marked ports, in bytes.
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

/// Converts an object of Foundation to plain values, at most `left` of them.
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
            // Keys that are not strings are ignored.
            let Ok(key) = key.cast::<Text>() else { continue };
            if let Some(value) = map.get(&key)? {
                entries.push((key.read()?, tree(&value, depth, left)?));
            }
        }
        return Ok(Tree::Map(entries));
    }
    Ok(Tree::Other)
}
