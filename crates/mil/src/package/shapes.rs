//! Which shapes the inputs of a function may have, and the choice of one.
//!
//! A program writes an extent that may vary as `?`. Which values it may take, and which it has by
//! default, is said by the description of a package: shapes in a list (`EnumeratedShapes` in
//! coremltools), or a range for each extent (`RangeDim`); see `FeatureTypes.proto` of coremltools
//! 9.0. [`input_shapes`] puts both together, [`choose_shapes`] takes a choice from it, and
//! [`specialize`](crate::specialize()) makes the function of that choice.

use std::fmt;
use std::str::FromStr;

use ferrane_diag::did_you_mean;

use super::describe::{Description, Feature, FeatureType};
use crate::program::{Dim, Function, Type};
use crate::specialize::admits;

/// The most extents of a shape that is chosen: far above MIL's limit of 5.
const MAX_RANK: usize = 64;
/// The most shapes that a message lists.
const LISTED: usize = 16;

/// The shapes that a port accepts, as a description says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllowedShapes {
    /// The default shape only, if the description has one.
    #[default]
    Default,
    /// One of these, each with its extents outermost first.
    OneOf(Vec<Vec<usize>>),
    /// Each extent in its range.
    Ranges(Vec<ExtentRange>),
}

/// A range of extents, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentRange {
    /// The smallest extent, in elements of the axis.
    pub least: usize,
    /// The largest extent; `None` for no limit.
    pub most: Option<usize>,
}

impl ExtentRange {
    /// The range of one extent.
    pub fn only(extent: usize) -> ExtentRange {
        ExtentRange { least: extent, most: Some(extent) }
    }

    /// True for an extent in the range.
    pub fn contains(self, extent: usize) -> bool {
        extent >= self.least && self.most.is_none_or(|most| extent <= most)
    }
}

/// `8`, `8..64`, or `8..` without a limit.
impl fmt::Display for ExtentRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.most {
            Some(most) if most == self.least => write!(f, "{most}"),
            Some(most) => write!(f, "{}..{most}", self.least),
            None => write!(f, "{}..", self.least),
        }
    }
}

/// The shapes that one input of a function may have.
#[derive(Clone, Debug, PartialEq)]
pub struct InputShape {
    /// Name of the input.
    pub name: String,
    /// The extents in the program; `?` for those that may vary.
    pub declared: Vec<Dim>,
    /// The name of each extent, where the source of the program names extents that several inputs
    /// share. Core ML has no names, so [`input_shapes`] leaves this empty.
    pub symbols: Vec<Option<String>>,
    /// The shape if none is chosen; `None` if an extent varies and there is no default.
    pub default: Option<Vec<usize>>,
    /// What the description allows, of those shapes that agree with `declared`.
    pub allowed: AllowedShapes,
}

impl InputShape {
    /// True if no extent varies.
    pub fn is_fixed(&self) -> bool {
        !self.declared.contains(&Dim::Unknown)
    }

    /// True if the input accepts this shape.
    pub fn admits(&self, shape: &[usize]) -> bool {
        admits(&self.declared, shape)
            && match &self.allowed {
                AllowedShapes::Default => true,
                // The default is the first of the list where coremltools wrote it.
                AllowedShapes::OneOf(shapes) => {
                    shapes.iter().any(|s| s == shape) || self.default.as_deref() == Some(shape)
                }
                AllowedShapes::Ranges(ranges) => {
                    ranges.len() == shape.len() && ranges.iter().zip(shape).all(|(range, n)| range.contains(*n))
                }
            }
    }
}

/// `1x3x16x16`.
pub(super) fn show(shape: &[usize]) -> String {
    shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x")
}

/// `1x3x16x16 (default) or 1x3x24x32`, or `1x3x8..64x8..64 (default 1x3x16x16)`.
impl fmt::Display for InputShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = self.default.as_deref().map(show);
        match &self.allowed {
            AllowedShapes::OneOf(shapes) => {
                let name = |s: &Vec<usize>| match self.default.as_ref() == Some(s) {
                    true => format!("{} (default)", show(s)),
                    false => show(s),
                };
                let mut names: Vec<String> = shapes.iter().take(LISTED).map(name).collect();
                match (shapes.len().saturating_sub(LISTED), names.pop()) {
                    (0, Some(last)) if names.is_empty() => f.write_str(&last),
                    (0, Some(last)) => write!(f, "{} or {last}", names.join(", ")),
                    (more, last) => {
                        names.extend(last);
                        write!(f, "{} or one of {more} more", names.join(", "))
                    }
                }
            }
            allowed => {
                let extents: Vec<String> = match allowed {
                    AllowedShapes::Ranges(ranges) => ranges.iter().map(ExtentRange::to_string).collect(),
                    _ => self.declared.iter().map(extent).collect(),
                };
                f.write_str(&extents.join("x"))?;
                default.filter(|_| !self.is_fixed()).map_or(Ok(()), |shape| write!(f, " (default {shape})"))
            }
        }
    }
}

fn extent(dim: &Dim) -> String {
    if let Dim::Fixed(n) = dim { n.to_string() } else { "?".into() }
}

/// The shapes that the tensor inputs of a function may have, in the function's order. Without a
/// description, an extent that varies takes any value.
pub fn input_shapes(function: &Function, description: Option<&Description>) -> Vec<InputShape> {
    let ports = description.map(Description::functions).unwrap_or_default();
    let features = ports.into_iter().find(|p| p.function == function.name).map(|p| p.inputs).unwrap_or_default();
    let values = function.inputs.iter().map(|v| function.value(*v));
    let one = |(name, declared): (&String, &Vec<Dim>)| {
        let feature = features.iter().find(|f| f.name == *name);
        let (default, allowed) = feature.map_or((None, AllowedShapes::Default), |f| described(f, declared));
        let fixed: Option<Vec<usize>> =
            declared.iter().map(|d| if let Dim::Fixed(n) = d { Some(*n) } else { None }).collect();
        InputShape {
            name: name.clone(),
            declared: declared.clone(),
            symbols: Vec::new(),
            default: fixed.or(default),
            allowed,
        }
    };
    let tensors = values.filter_map(|v| match &v.ty {
        Type::Tensor { shape, .. } => Some((&v.name, shape)),
        _ => None,
    });
    tensors.map(one).collect()
}

/// Default and allowed shapes of a feature, as far as they agree with the program's extents.
fn described(feature: &Feature, declared: &[Dim]) -> (Option<Vec<usize>>, AllowedShapes) {
    let shape = |extents: &[i64]| {
        let extents: Option<Vec<usize>> = extents.iter().map(|n| usize::try_from(*n).ok()).collect();
        extents.filter(|s| admits(declared, s))
    };
    // The first axes of an image, batch and channels, are those of the program.
    let image = |height: i64, width: i64| {
        let leading: Vec<i64> =
            declared.iter().take(2).map(|d| if let Dim::Fixed(n) = d { *n as i64 } else { 1 }).collect();
        shape(&[&leading[..], &[height, width]].concat())
    };
    match &feature.ty {
        FeatureType::MultiArray { shape: default, allowed, .. } => {
            let allowed = match allowed {
                AllowedShapes::OneOf(shapes) => {
                    AllowedShapes::OneOf(shapes.iter().filter(|s| admits(declared, s)).cloned().collect())
                }
                AllowedShapes::Ranges(ranges) if ranges.len() == declared.len() => {
                    AllowedShapes::Ranges(ranges.clone())
                }
                _ => AllowedShapes::Default,
            };
            (shape(default), allowed)
        }
        FeatureType::Image(i) => {
            let allowed = match &i.sizes {
                AllowedShapes::OneOf(sizes) => {
                    let sizes = sizes.iter().filter_map(|s| match s[..] {
                        [height, width] => image(i64::try_from(height).ok()?, i64::try_from(width).ok()?),
                        _ => None,
                    });
                    AllowedShapes::OneOf(sizes.collect())
                }
                AllowedShapes::Ranges(ranges) if ranges.len() == 2 && declared.len() == 4 => {
                    let leading = declared.iter().take(2).map(|d| match d {
                        Dim::Fixed(n) => ExtentRange::only(*n),
                        Dim::Unknown => ExtentRange { least: 1, most: None },
                    });
                    AllowedShapes::Ranges(leading.chain(ranges.iter().copied()).collect())
                }
                _ => AllowedShapes::Default,
            };
            (image(i.height, i.width), allowed)
        }
        _ => (None, AllowedShapes::Default),
    }
}

/// A choice of extents: all of an input's, `image=1x3x224x224`, or one that has a name, `seq=128`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeChoice {
    /// The input or the named extent.
    pub name: String,
    /// The extents, outermost first; one for a named extent.
    pub extents: Vec<usize>,
}

impl ShapeChoice {
    /// Choices that are separated by commas: `ids=1x128,mask=1x128`, `batch=1,seq=128`.
    ///
    /// # Errors
    /// [`ShapeError::Text`].
    pub fn parse_list(text: &str) -> Result<Vec<ShapeChoice>, ShapeError> {
        text.split(',').map(str::parse).collect()
    }
}

impl FromStr for ShapeChoice {
    type Err = ShapeError;

    fn from_str(text: &str) -> Result<ShapeChoice, ShapeError> {
        let bad = || ShapeError::Text { text: text.trim().to_string() };
        let (name, extents) = text.trim().rsplit_once('=').ok_or_else(bad)?;
        let extents: Option<Vec<usize>> = extents
            .split(['x', 'X', '×'])
            .take(MAX_RANK + 1)
            .map(|n| n.trim().parse().ok().filter(|n| *n <= i32::MAX as usize))
            .collect();
        let name = name.trim().to_string();
        let extents = extents.filter(|e| e.len() <= MAX_RANK && !name.is_empty()).ok_or_else(bad)?;
        Ok(ShapeChoice { name, extents })
    }
}

/// Why extents cannot be chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// Text that is no choice.
    #[error("`{text}` chooses no shape; write INPUT=1x3x224x224 for an input, or NAME=128 for a named extent")]
    Text {
        /// What was given as a choice.
        text: String,
    },
    /// A name that is neither an input nor a named extent.
    #[error("`{name}` is neither an input nor a named extent{hint}")]
    Unknown {
        /// The name that a choice gives, before its `=`.
        name: String,
        /// Similar names, and those that there are.
        hint: String,
    },
    /// A named extent that was given several extents.
    #[error("`{name}` is one extent of {inputs}; give one number")]
    Several {
        /// The name of the extent, before the `=` of the choice.
        name: String,
        /// The inputs that have it.
        inputs: String,
    },
    /// A shape that the input does not accept.
    #[error("the input `{input}` cannot have the shape {shape}; it may have {allowed}")]
    NotAllowed {
        /// Name of the input.
        input: String,
        /// The shape, as `1x3x224x224`.
        shape: String,
        /// The shapes that it accepts.
        allowed: String,
    },
}

/// A shape for each input whose extents vary: the one that a choice names, else that of the tensor
/// which is `given` for it, else the default. An input for which there is none of these is left
/// out.
///
/// # Errors
/// A [`ShapeError`]: an unknown name, or a shape that the input does not accept, which is also
/// checked for inputs whose extents do not vary.
pub fn choose_shapes(
    inputs: &[InputShape],
    choices: &[ShapeChoice],
    given: &[(String, Vec<usize>)],
) -> Result<Vec<(String, Vec<usize>)>, ShapeError> {
    let mut chosen = Vec::new();
    for choice in choices {
        known(inputs, choice)?;
    }
    for input in inputs {
        let whole = choices.iter().find(|c| c.name == input.name).map(|c| &c.extents);
        let Some(shape) = chosen_shape(input, whole, choices, given) else { continue };
        // What is given for an input of fixed extents is checked where it is read.
        if (whole.is_some() || !input.is_fixed()) && !input.admits(&shape) {
            let allowed = input.to_string();
            return Err(ShapeError::NotAllowed { input: input.name.clone(), shape: show(&shape), allowed });
        }
        if !input.is_fixed() {
            chosen.push((input.name.clone(), shape));
        }
    }
    Ok(chosen)
}

/// The shape of one input; `None` if an extent that varies has no value.
fn chosen_shape(
    input: &InputShape,
    whole: Option<&Vec<usize>>,
    choices: &[ShapeChoice],
    given: &[(String, Vec<usize>)],
) -> Option<Vec<usize>> {
    if let Some(whole) = whole {
        return Some(whole.clone());
    }
    let given = given.iter().find(|(name, _)| *name == input.name).map(|(_, shape)| shape);
    if let Some(other) = given.filter(|g| g.len() != input.declared.len()) {
        return Some(other.clone());
    }
    let base = given.or(input.default.as_ref());
    let extent = |(i, declared): (usize, &Dim)| {
        let symbol = input.symbols.get(i).and_then(Option::as_ref);
        let named = symbol.and_then(|s| choices.iter().find(|c| c.name == *s)).and_then(|c| c.extents.first());
        let fixed = if let Dim::Fixed(n) = declared { Some(n) } else { None };
        named.or_else(|| base.and_then(|b| b.get(i))).or(fixed).copied()
    };
    input.declared.iter().enumerate().map(extent).collect()
}

/// Refuses a choice whose name nothing has, or of several extents for one.
fn known(inputs: &[InputShape], choice: &ShapeChoice) -> Result<(), ShapeError> {
    let ShapeChoice { name, extents } = choice;
    if inputs.iter().any(|i| i.name == *name) {
        return Ok(());
    }
    let has = |i: &&InputShape| i.symbols.iter().flatten().any(|s| s == name);
    let holders: Vec<&str> = inputs.iter().filter(has).map(|i| i.name.as_str()).collect();
    match (holders.is_empty(), extents.len()) {
        (false, 1) => Ok(()),
        (false, _) => Err(ShapeError::Several { name: name.clone(), inputs: holders.join(", ") }),
        (true, _) => {
            let symbols = inputs.iter().flat_map(|i| i.symbols.iter().flatten().map(String::as_str));
            let mut names: Vec<&str> = inputs.iter().map(|i| i.name.as_str()).chain(symbols).collect();
            let mut seen = std::collections::HashSet::new();
            names.retain(|n| seen.insert(*n));
            let hint = format!("{} (there are {})", did_you_mean(name, names.iter().copied()), names.join(", "));
            Err(ShapeError::Unknown { name: name.clone(), hint })
        }
    }
}
