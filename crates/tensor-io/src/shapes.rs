//! The shape of each input of a function, from its values.

use ferrane_mil::{Dim, Function, Type};

use crate::{Error, Result, TensorSource};

/// The shapes of the values for inputs of unknown extents, for
/// [`choose_shapes`](ferrane_mil::package::choose_shapes): those of files and of nested literals.
///
/// # Errors
/// [`Error::Input`]: a file cannot be read.
pub fn given_shapes(function: &Function, sources: &[(String, TensorSource)]) -> Result<Vec<(String, Vec<usize>)>> {
    let mut shapes = Vec::new();
    for value in function.inputs.iter().map(|v| function.value(*v)) {
        let open = matches!(&value.ty, Type::Tensor { shape, .. } if shape.contains(&Dim::Unknown));
        let Some((name, source)) = sources.iter().find(|(name, _)| open && *name == value.name) else { continue };
        let found = source.shape(name, &value.ty);
        let found = found.map_err(|error| Error::Input { name: name.clone(), error: Box::new(error) })?;
        shapes.extend(found.map(|shape| (name.clone(), shape)));
    }
    Ok(shapes)
}
