//! The description of a model: ports with the types that an app sees, functions, metadata.
//!
//! A description that was read is kept byte for byte, including fields that are not shown here, and
//! written unchanged.

use std::fmt;

use prost::Message as _;

use super::proto::{self, FeatureKind};
use super::shapes::{AllowedShapes, ExtentRange};
use crate::opset::Opset;
use crate::program::{DataType, Dialect, Dim, Function, Program, Type, ValueId};

/// The ModelDescription of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    bytes: Vec<u8>,
    /// Other fields of the model message that holds the description.
    pub(super) rest: Vec<u8>,
    message: proto::ModelDescription,
}

/// The ports of one function.
#[derive(Clone, Debug, PartialEq)]
pub struct Ports {
    /// Name of the function.
    pub function: String,
    /// Inputs other than states.
    pub inputs: Vec<Feature>,
    /// Outputs, in the order of the function.
    pub outputs: Vec<Feature>,
    /// States; empty before specification 9.
    pub states: Vec<Feature>,
}

/// An input, output or state as an app sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Feature {
    /// Its name, that of the function's port.
    pub name: String,
    /// The author's description of it.
    pub description: String,
    /// Type as an app sees it.
    pub ty: FeatureType,
    /// It may be left out.
    pub optional: bool,
}

/// The type of a [`Feature`] (coreml-containers §1).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum FeatureType {
    /// An int64.
    Int64,
    /// An fp64.
    Double,
    /// A string (UTF-8).
    String,
    /// An image, which an app passes as a pixel buffer.
    Image(ImageType),
    /// A multiarray, also that of a state.
    MultiArray {
        /// Element type, if MIL has it.
        dtype: Option<DataType>,
        /// Default shape; empty if the description has none.
        shape: Vec<i64>,
        /// The shapes that it may have.
        allowed: AllowedShapes,
    },
    /// A dictionary with int64 or string keys.
    Dictionary,
    /// A sequence of int64 values or strings.
    Sequence,
    /// A type that this version does not know.
    Other,
}

/// An image port: what a pixel buffer is for the program's tensor `[1, C, H, W]`
/// (`FeatureTypes.proto` and the guide "Image Input and Output" of coremltools 9.0).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageType {
    /// Pixels in a row.
    pub width: i64,
    /// Number of rows of pixels.
    pub height: i64,
    /// Order and number of the channels; `None` if this version does not know it.
    pub color: Option<ColorSpace>,
    /// The sizes that it may have, each `[height, width]`.
    pub sizes: AllowedShapes,
}

/// `RGB image, 6 wide and 8 high`.
impl fmt::Display for ImageType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let color = self.color.map_or("unknown", ColorSpace::name);
        write!(f, "{color} image, {} wide and {} high", self.width, self.height)
    }
}

/// The channels of an image port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColorSpace {
    /// One channel, values from 0 to 255.
    Gray,
    /// Red, green, blue, values from 0 to 255.
    Rgb,
    /// Blue, green, red, values from 0 to 255.
    Bgr,
    /// One channel of fp16 values, which are not scaled.
    GrayFp16,
}

impl ColorSpace {
    /// Every color space, with its number in the message.
    const ALL: [(ColorSpace, i32); 4] =
        [(ColorSpace::Gray, 10), (ColorSpace::Rgb, 20), (ColorSpace::Bgr, 30), (ColorSpace::GrayFp16, 40)];

    /// Number of channels: 1 or 3.
    pub fn channels(self) -> usize {
        if matches!(self, ColorSpace::Rgb | ColorSpace::Bgr) { 3 } else { 1 }
    }

    /// The name for a reader: `RGB`.
    pub fn name(self) -> &'static str {
        match self {
            ColorSpace::Gray => "gray",
            ColorSpace::Rgb => "RGB",
            ColorSpace::Bgr => "BGR",
            ColorSpace::GrayFp16 => "gray fp16",
        }
    }
}

/// The largest description that is read, in bytes; real ones are small.
const MAX_BYTES: usize = 1 << 24;

/// coreml-containers §1.
const ARRAY_TYPES: [(DataType, i32); 5] = [
    (DataType::Fp16, 65552),
    (DataType::Fp32, 65568),
    (DataType::Fp64, 65600),
    (DataType::Int8, 131080),
    (DataType::Int32, 131104),
];

/// The metadata key for version and dialect of the text, used if the opset does not determine them:
/// the container has no field for them.
const TEXT_KEY: &str = "ferrane.mil-text";

impl Description {
    pub(super) fn read(bytes: &[u8], rest: Vec<u8>) -> Result<Description, String> {
        if bytes.len() > MAX_BYTES {
            return Err(format!("the model's description has {} bytes, more than {MAX_BYTES}", bytes.len()));
        }
        let message = proto::ModelDescription::decode(bytes).map_err(|e| format!("the model's description: {e}"))?;
        Ok(Description { bytes: bytes.to_vec(), rest, message })
    }

    /// The description of a program's ports. States are those of its parameters; a port of rank 0
    /// has the shape `[1]`, as in coremltools. A program of one function `main` is described as
    /// such, any other by its functions (specification 9).
    ///
    /// # Errors
    /// A port of a type that Core ML's multiarrays do not have, or an input whose extents are not
    /// all known.
    pub fn of(program: &Program) -> Result<Description, String> {
        let mut message = proto::ModelDescription::default();
        match program.functions.as_slice() {
            [main] if main.name == "main" => {
                (message.input, message.output, message.state) = ports(main)?;
            }
            functions => {
                for f in functions {
                    let (input, output, state) = ports(f)?;
                    let name = f.name.clone();
                    message.functions.push(proto::FunctionDescription { name, input, output, state });
                }
                let default = program.function("main").or(functions.first());
                message.default_function_name = default.map_or(String::new(), |f| f.name.clone());
            }
        }
        Ok(Description { bytes: message.encode_to_vec(), rest: Vec::new(), message })
    }

    /// The ports of each function; a model that names no functions has one, `main`.
    pub fn functions(&self) -> Vec<Ports> {
        let m = &self.message;
        let list = |features: &[proto::FeatureDescription]| features.iter().map(feature).collect();
        if m.functions.is_empty() {
            let function = "main".to_string();
            return vec![Ports { function, inputs: list(&m.input), outputs: list(&m.output), states: list(&m.state) }];
        }
        let one = |f: &proto::FunctionDescription| Ports {
            function: f.name.clone(),
            inputs: list(&f.input),
            outputs: list(&f.output),
            states: list(&f.state),
        };
        m.functions.iter().map(one).collect()
    }

    /// The function that runs when none is named.
    pub fn default_function(&self) -> &str {
        let name = &self.message.default_function_name;
        if name.is_empty() { "main" } else { name }
    }

    /// The metadata of the model: `description`, `version`, `author` and `license` if present, then
    /// the keys that its author added.
    pub fn metadata(&self) -> Vec<(&str, &str)> {
        let Some(m) = &self.message.metadata else { return Vec::new() };
        let own = [
            ("description", &m.short_description),
            ("version", &m.version_string),
            ("author", &m.author),
            ("license", &m.license),
        ];
        let own = own.into_iter().filter(|(_, v)| !v.is_empty()).map(|(k, v)| (k, v.as_str()));
        own.chain(m.user_defined.iter().map(|e| (e.key.as_str(), e.value.as_str()))).collect()
    }

    /// Adds entries to the metadata that the author defines, which an app reads by their keys; an
    /// entry with a key that is there already comes after it.
    #[must_use]
    pub fn with_metadata<K: Into<String>, V: Into<String>>(
        mut self,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let entry = |(key, value): (K, V)| proto::StringEntry { key: key.into(), value: value.into() };
        let metadata = proto::Metadata { user_defined: entries.into_iter().map(entry).collect(), ..Default::default() };
        // Concatenated messages are merged, and what is not shown here stays.
        let note = proto::ModelDescription { metadata: Some(metadata.clone()), ..Default::default() };
        self.bytes.extend_from_slice(&note.encode_to_vec());
        self.message.metadata.get_or_insert_default().user_defined.extend(metadata.user_defined);
        self
    }

    /// Version and dialect of the text of the program that this describes: as noted in the
    /// metadata, otherwise as Apple's compiler prints its opset (coreml-containers §4).
    pub(super) fn text_form(&self, program: &Program) -> ((u32, u32), Dialect) {
        let entries = self.message.metadata.as_ref().map_or(&[][..], |m| &m.user_defined);
        let noted = entries.iter().rev().find(|e| e.key == TEXT_KEY).and_then(|e| parse_form(&e.value));
        noted.unwrap_or_else(|| {
            let opset = program.functions.first().and_then(|f| f.opset_tag().known());
            match opset {
                Some(opset) if opset < Opset::IOS18 => ((1, 0), Dialect::Verbose),
                _ => ((1, 3), Dialect::Shorthand),
            }
        })
    }

    /// The bytes to write with a program, with version and dialect of its text in the metadata if
    /// the opset does not determine them.
    pub(super) fn bytes_for(&self, program: &Program) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        if self.text_form(program) != (program.version, program.dialect) {
            let (major, minor) = program.version;
            let dialect = if program.dialect == Dialect::Verbose { "verbose" } else { "shorthand" };
            let entry = proto::StringEntry { key: TEXT_KEY.to_string(), value: format!("{major}.{minor} {dialect}") };
            let metadata = proto::Metadata { user_defined: vec![entry], ..Default::default() };
            // Concatenated messages are merged.
            let note = proto::ModelDescription { metadata: Some(metadata), ..Default::default() };
            bytes.extend_from_slice(&note.encode_to_vec());
        }
        bytes
    }

    /// Whether functions and ports have the same names as those of the program.
    pub(super) fn agrees(&self, program: &Program) -> Result<(), String> {
        let described = self.functions();
        if described.len() != program.functions.len() {
            return Err(format!("the description has {} functions, not {}", described.len(), program.functions.len()));
        }
        for f in &program.functions {
            let ports = described.iter().find(|p| p.function == f.name);
            let ports = ports.ok_or_else(|| format!("the description has no function `{}`", f.name))?;
            let (states, inputs) = split(f);
            let outputs = f.body().outputs.clone();
            for (what, said, there) in [
                ("inputs", &ports.inputs, inputs),
                ("states", &ports.states, states),
                ("outputs", &ports.outputs, outputs),
            ] {
                let mut said: Vec<&str> = said.iter().map(|p| p.name.as_str()).collect();
                let mut there: Vec<&str> = there.iter().map(|v| f.value(*v).name.as_str()).collect();
                said.sort_unstable();
                there.sort_unstable();
                if said != there {
                    return Err(format!("the description's {what} of `{}` are {said:?}, not {there:?}", f.name));
                }
            }
        }
        Ok(())
    }

    /// The lowest specification version that supports this description (coreml-containers §1).
    pub(super) fn least_version(&self) -> i32 {
        let ports = self.functions();
        let features = ports.iter().flat_map(|p| p.inputs.iter().chain(&p.outputs));
        let types = features.map(|f| match f.ty {
            FeatureType::MultiArray { dtype: Some(DataType::Fp16), .. } => 7,
            FeatureType::MultiArray { dtype: Some(DataType::Int8), .. } => 10,
            _ => 6,
        });
        let new = !self.message.functions.is_empty() || ports.iter().any(|p| !p.states.is_empty());
        types.max().unwrap_or(6).max(if new { 9 } else { 6 })
    }
}

fn parse_form(text: &str) -> Option<((u32, u32), Dialect)> {
    let (version, dialect) = text.split_once(' ')?;
    let (major, minor) = version.split_once('.')?;
    let dialect = match dialect {
        "verbose" => Dialect::Verbose,
        "shorthand" => Dialect::Shorthand,
        _ => return None,
    };
    Some(((major.parse().ok()?, minor.parse().ok()?), dialect))
}

fn feature(f: &proto::FeatureDescription) -> Feature {
    let array = |a: &proto::ArrayFeatureType| FeatureType::MultiArray {
        dtype: ARRAY_TYPES.iter().find(|(_, c)| *c == a.data_type).map(|(d, _)| *d),
        shape: a.shape.clone(),
        allowed: array_shapes(a),
    };
    let ty = match f.r#type.as_ref().and_then(|t| t.kind.as_ref()) {
        Some(FeatureKind::Int64(_)) => FeatureType::Int64,
        Some(FeatureKind::Double(_)) => FeatureType::Double,
        Some(FeatureKind::String(_)) => FeatureType::String,
        Some(FeatureKind::Image(i)) => FeatureType::Image(image(i)),
        Some(FeatureKind::MultiArray(a)) => array(a),
        Some(FeatureKind::Dictionary(_)) => FeatureType::Dictionary,
        Some(FeatureKind::Sequence(_)) => FeatureType::Sequence,
        Some(FeatureKind::State(s)) => s.array_type.as_ref().map_or(FeatureType::Other, array),
        None => FeatureType::Other,
    };
    let optional = f.r#type.as_ref().is_some_and(|t| t.is_optional);
    Feature { name: f.name.clone(), description: f.short_description.clone(), ty, optional }
}

fn array_shapes(a: &proto::ArrayFeatureType) -> AllowedShapes {
    let extents = |s: &proto::Shape| s.shape.iter().map(|n| usize::try_from(*n).ok()).collect::<Option<Vec<_>>>();
    match (&a.enumerated, &a.range) {
        (Some(list), _) => AllowedShapes::OneOf(list.shapes.iter().filter_map(extents).collect()),
        (None, Some(range)) => AllowedShapes::Ranges(range.ranges.iter().map(extent_range).collect()),
        (None, None) => AllowedShapes::Default,
    }
}

/// An upper bound below 0 is none (`SizeRange` in `FeatureTypes.proto`).
fn extent_range(r: &proto::SizeRange) -> ExtentRange {
    let most = (r.upper >= 0).then(|| usize::try_from(r.upper).unwrap_or(usize::MAX));
    ExtentRange { least: usize::try_from(r.lower).unwrap_or(usize::MAX), most }
}

fn image(i: &proto::ImageFeatureType) -> ImageType {
    let size = |s: &proto::ImageSize| Some(vec![usize::try_from(s.height).ok()?, usize::try_from(s.width).ok()?]);
    let range = |r: &Option<proto::SizeRange>| r.as_ref().map_or(ExtentRange { least: 1, most: None }, extent_range);
    let sizes = match (&i.enumerated_sizes, &i.size_range) {
        (Some(list), _) => AllowedShapes::OneOf(list.sizes.iter().filter_map(size).collect()),
        (None, Some(r)) => AllowedShapes::Ranges(vec![range(&r.height), range(&r.width)]),
        (None, None) => AllowedShapes::Default,
    };
    let color = ColorSpace::ALL.iter().find(|(_, n)| *n == i.color_space).map(|(c, _)| *c);
    ImageType { width: i.width, height: i.height, color, sizes }
}

/// States and other inputs.
fn split(f: &Function) -> (Vec<ValueId>, Vec<ValueId>) {
    f.inputs.iter().partition(|v| matches!(f.value(**v).ty, Type::State(_)))
}

type Features = Vec<proto::FeatureDescription>;

fn ports(f: &Function) -> Result<(Features, Features, Features), String> {
    let (states, inputs) = split(f);
    let list = |values: &[ValueId], unknown: bool| -> Result<Features, String> {
        values.iter().map(|v| port(&f.value(*v).name, &f.value(*v).ty, unknown)).collect()
    };
    Ok((list(&inputs, false)?, list(&f.body().outputs, true)?, list(&states, false)?))
}

/// `unknown`: the shape may be left open.
fn port(name: &str, ty: &Type, unknown: bool) -> Result<proto::FeatureDescription, String> {
    let kind = match ty {
        Type::State(inner) => {
            FeatureKind::State(proto::StateFeatureType { array_type: Some(array(name, inner, false)?) })
        }
        Type::Tensor { dtype: DataType::String, shape } if shape.is_empty() => FeatureKind::String(proto::Empty {}),
        Type::Tensor { dtype: DataType::Int64, shape } if shape.is_empty() => FeatureKind::Int64(proto::Empty {}),
        _ => FeatureKind::MultiArray(array(name, ty, unknown)?),
    };
    let r#type = proto::FeatureType { kind: Some(kind), is_optional: false };
    Ok(proto::FeatureDescription { name: name.to_string(), short_description: String::new(), r#type: Some(r#type) })
}

fn array(name: &str, ty: &Type, unknown: bool) -> Result<proto::ArrayFeatureType, String> {
    let Type::Tensor { dtype, shape } = ty else {
        return Err(format!("the port `{name}` is a {ty}; a description of it must be given"));
    };
    let code = ARRAY_TYPES.iter().find(|(d, _)| d == dtype).map(|(_, c)| *c);
    let data_type = code.ok_or_else(|| format!("the port `{name}` is a {ty}, and no multiarray holds {dtype}"))?;
    let extents: Option<Vec<i64>> =
        shape.iter().map(|d| if let Dim::Fixed(n) = d { Some(*n as i64) } else { None }).collect();
    let shape = match extents {
        Some(extents) if extents.is_empty() => vec![1],
        Some(extents) => extents,
        None if unknown => Vec::new(),
        None => return Err(format!("the input `{name}` is a {ty}; a description with its shapes must be given")),
    };
    Ok(proto::ArrayFeatureType { shape, data_type, ..Default::default() })
}
