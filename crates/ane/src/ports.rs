//! Ports: which surfaces a loaded program takes, in which order and how laid out.
//!
//! Order and symbols are what the model reports (apple-runtime §11), because the engine orders ports by a rule of its own. Element
//! types and extents are the program's. Rows are laid out by the profile's `row_alignment`, since the strides that models report
//! contradict what runs were seen to read.

use ferrane_device::{Error, ErrorKind, Layout, Port, Procedure, Result};
use ferrane_mil::{Function, Program, Type, ValueId};

use crate::framework::{Foundation, Object};

/// Name and layout of each port of a function, in the program's order.
#[derive(Clone)]
pub(crate) struct Declared {
    name: String,
    inputs: Vec<(String, Layout)>,
    outputs: Vec<(String, Layout)>,
}

/// What the program declares.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for ports that a surface of the standard path cannot be.
pub(crate) fn declared(program: &Program, row_alignment: usize) -> Result<Vec<Declared>> {
    let port = |function: &Function, id: &ValueId| {
        let value = function.value(*id);
        let bad = |why: &str| Error::new(ErrorKind::Unsupported, why.to_string()).with_port(&value.name);
        match (&value.ty, value.ty.dtype(), value.ty.shape()) {
            (Type::State(_), ..) => Err(bad("the standard path has no states")),
            (_, Some(dtype), Some(shape)) => {
                Ok((value.name.clone(), Layout::with_row_alignment(dtype, &shape, row_alignment)?))
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

/// The procedures of a loaded model. A model that says nothing of itself has them in the program's order.
///
/// # Errors
/// [`ErrorKind::Load`] if the model reports ports that the program has not.
pub(crate) fn procedures(
    foundation: &Foundation,
    attributes: Option<&Object>,
    declared: &[Declared],
) -> Result<Vec<Procedure>> {
    let description = match attributes {
        Some(attributes) => foundation.get(attributes, "ANEFModelDescription")?,
        None => None,
    };
    match description {
        Some(description) => reported(foundation, &description, declared),
        None => Ok(declared.iter().enumerate().map(in_order).collect()),
    }
}

fn in_order((id, declared): (usize, &Declared)) -> Procedure {
    let ports = |ports: &[(String, Layout)]| {
        let port = |(i, (name, layout)): (usize, &(String, Layout))| Port {
            name: name.clone(),
            symbol: i as u32,
            layout: layout.clone(),
        };
        ports.iter().enumerate().map(port).collect()
    };
    let (inputs, outputs) = (ports(&declared.inputs), ports(&declared.outputs));
    Procedure { name: declared.name.clone(), id: id as u32, inputs, outputs, states: Vec::new() }
}

fn reported(foundation: &Foundation, description: &Object, declared: &[Declared]) -> Result<Vec<Procedure>> {
    let odd = |what: String| Error::new(ErrorKind::Load, format!("the loaded model reports {what}"));
    let get = |object: &Object, key: &str| foundation.get(object, key)?.ok_or_else(|| odd(format!("no `{key}`")));
    let names = |key: &str| -> Result<Vec<String>> {
        let list = foundation.elements(&get(description, key)?)?;
        // Outputs are reported as `name@output`.
        let bare = |o: &Object| Ok(foundation.text(o)?.trim_end_matches("@output").to_string());
        list.iter().map(bare).collect()
    };
    let input_names = names("kANEFModelInputSymbolsArrayKey")?;
    let output_names = names("kANEFModelOutputSymbolsArrayKey")?;
    let ids = get(description, "kANEFModelProcedureNameToIDMapKey")?;
    let mut by_id = Vec::new();
    for key in foundation.keys(&ids)? {
        let name = foundation.text(&key)?;
        let id = foundation.value(&get(&ids, &name)?)?;
        by_id.push((id, name));
    }
    let ports = |list: &Object, key: &str, names: &[String], known: &[(String, Layout)]| -> Result<Vec<Port>> {
        let symbols = foundation.elements(&get(list, key)?)?;
        let port = |symbol: &Object| {
            let symbol = foundation.value(symbol)?;
            let name = usize::try_from(symbol).ok().and_then(|i| names.get(i));
            let name = name.ok_or_else(|| odd(format!("the port {symbol} without a name")))?;
            let found = known.iter().find(|(n, _)| n == name);
            let (name, layout) = found.ok_or_else(|| odd(format!("the port `{name}`, which the program has not")))?;
            Ok(Port { name: name.clone(), symbol: symbol as u32, layout: layout.clone() })
        };
        let ports: Vec<Port> = symbols.iter().map(port).collect::<Result<_>>()?;
        if ports.len() != known.len() {
            return Err(odd(format!("{} ports where the program has {}", ports.len(), known.len())));
        }
        Ok(ports)
    };
    let mut procedures = Vec::new();
    for list in foundation.elements(&get(description, "ANEFModelProcedures")?)? {
        let id = foundation.value(&get(&list, "ANEFModelProcedureID")?)?;
        let name = by_id.iter().find(|(i, _)| *i == id).map(|(_, n)| n);
        let name = name.ok_or_else(|| odd(format!("the procedure {id} without a name")))?;
        let known = declared.iter().find(|d| d.name == *name);
        let known = known.ok_or_else(|| odd(format!("the procedure `{name}`, which the program has not")))?;
        let inputs = ports(&list, "ANEFModelInputSymbolIndexArray", &input_names, &known.inputs)?;
        let outputs = ports(&list, "ANEFModelOutputSymbolIndexArray", &output_names, &known.outputs)?;
        procedures.push(Procedure { name: name.clone(), id: id as u32, inputs, outputs, states: Vec::new() });
    }
    // The program's first function is the first procedure, whatever the order of the report.
    procedures.sort_by_key(|p| p.id);
    Ok(procedures)
}
