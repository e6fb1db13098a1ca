//! What a program is made for.

use std::collections::BTreeMap;

use ferrane_mil::Opset;

/// ConversionOptions of [`Asset::to_mil`](crate::Asset::to_mil). The default makes a program for
/// iOS 18 of a model whose inputs have fixed extents.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ConversionOptions {
    /// The number of each extent that the file leaves open, named by its input and axis: `x.0`.
    pub dimensions: BTreeMap<String, usize>,
    /// The opset of the program; iOS 18 if `None`.
    pub opset: Option<Opset>,
}

impl ConversionOptions {
    /// With a number for an extent.
    pub fn dimension(mut self, name: &str, extent: usize) -> ConversionOptions {
        self.dimensions.insert(name.to_string(), extent);
        self
    }

    /// With the numbers of a list such as `x.0=1,x.1=128`, or with shapes, as in `x=1x128`.
    ///
    /// # Errors
    /// An item is neither, or an extent has two numbers.
    pub fn dimension_list(mut self, list: &str) -> Result<ConversionOptions, String> {
        for item in list.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let wrong = || format!("`{item}` gives no extents; write `x.0=1` for one, `x=1x128` for all");
            let (name, extents) = item.rsplit_once('=').ok_or_else(wrong)?;
            let extents: Result<Vec<usize>, _> = extents.split('x').map(|n| n.trim().parse()).collect();
            let (name, extents) = (name.trim(), extents.map_err(|_| wrong())?);
            let is_axis = name.rsplit_once('.').is_some_and(|(_, axis)| axis.parse::<usize>().is_ok());
            if name.is_empty() || is_axis && extents.len() != 1 {
                return Err(wrong());
            }
            for (axis, &extent) in extents.iter().enumerate() {
                let name = if is_axis { name.to_string() } else { format!("{name}.{axis}") };
                if self.dimensions.insert(name.clone(), extent).is_some_and(|old| old != extent) {
                    return Err(format!("`{name}` has two numbers"));
                }
            }
        }
        Ok(self)
    }

    /// With this opset of the program.
    pub fn opset(mut self, opset: Opset) -> ConversionOptions {
        self.opset = Some(opset);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_axes_or_inputs() {
        let options = ConversionOptions::default().dimension_list("x=2x3, y.1=4,").unwrap();
        let found: Vec<(&str, usize)> = options.dimensions.iter().map(|(k, v)| (k.as_str(), *v)).collect();
        assert_eq!(found, [("x.0", 2), ("x.1", 3), ("y.1", 4)]);
        for wrong in ["x", "x=", "x=-1", "=2", "x.0=2x3", "x=2,x=3", "x=2x"] {
            assert!(ConversionOptions::default().dimension_list(wrong).is_err(), "{wrong}");
        }
    }
}
