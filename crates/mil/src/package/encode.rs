//! Encodes a program as protobuf, and its constants into one weight file.
//!
//! `coreml_update_state` is an op of converters, not of the container: it is written as
//! `write_state` and `read_state`, as coremltools 9.0 does, and read back as these two.

use std::collections::HashMap;
use std::io::{self, Write};

use prost::bytes::Bytes;

use super::opset_to_core_ml;
use super::proto::{self, Binding, Content, Immediate, bytes};
use super::value::{immediate, write_tensor, write_type};
use super::write::records;
use crate::program::{Arg, BlockId, Constant, DataType, Function, Op, Payload, Program, ValueId};
use crate::verify::MAX_DEPTH;
use crate::weights::{WeightId, blob};

/// Constants with fewer elements are stored in the model itself (coremltools 9.0,
/// backend/mil/load.py).
const STORED_FROM: usize = 10;
/// The path by which programs name the weight file of a package.
const FILE: &str = "@model_path/weights/weight.bin";

/// Where the encoder stores constants.
pub(super) enum Store<'a> {
    /// All of them in the message.
    Inline,
    /// The larger ones in a weight file, the others in the message.
    File(WeightFile<'a>),
}

/// The records of a weight file to write, which borrow their payloads from the program.
#[derive(Default)]
pub(super) struct WeightFile<'a> {
    records: Vec<(DataType, usize, &'a [u8])>,
    places: HashMap<WeightId, u64>,
    end: u64,
}

impl<'a> WeightFile<'a> {
    fn add(&mut self, dtype: DataType, elements: usize, bytes: &'a [u8]) -> u64 {
        let offset = blob::align(self.end.max(blob::ALIGNMENT as u64));
        self.end = offset + (blob::ALIGNMENT + bytes.len()) as u64;
        self.records.push((dtype, elements, bytes));
        offset
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Writes the file; payloads are not copied.
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        blob::write(out, &self.records)
    }
}

pub(super) struct Encoder<'a> {
    program: &'a Program,
    pub(super) store: Store<'a>,
    /// Blob files hold 16- and 32-bit integers from specification 9 (iOS 18) on.
    specification_version: i32,
}

type Written<T> = Result<T, String>;

impl<'a> Encoder<'a> {
    pub(super) fn new(program: &'a Program, store: Store<'a>, specification_version: i32) -> Encoder<'a> {
        Encoder { program, store, specification_version }
    }

    pub(super) fn program(&mut self) -> Written<proto::Program> {
        let program = self.program;
        self.place_records();
        let mut functions = Vec::with_capacity(program.functions.len());
        for f in &program.functions {
            let function = self.function(f).map_err(|e| format!("function `{}`: {e}", f.name))?;
            functions.push(bytes(proto::FunctionEntry { key: f.name.clone(), value: Some(function) }));
        }
        Ok(proto::Program { version: 1, functions, attributes: self.attributes(&program.attributes, false)? })
    }

    /// The records that ops use, in the order of their files and offsets, so that a program that
    /// was read keeps its weight file; inline constants that belong in the file follow.
    fn place_records(&mut self) {
        let weights = &self.program.weights;
        let Store::File(file) = &mut self.store else { return };
        for id in records(self.program) {
            if let (Some(bytes), Some(dtype), Some(elements)) =
                (weights.bytes(id), weights.dtype(id), weights.elements(id))
            {
                let offset = file.add(dtype, elements, bytes);
                file.places.insert(id, offset);
            }
        }
    }

    fn function(&mut self, f: &'a Function) -> Written<proto::Function> {
        let mut block_specializations = Vec::with_capacity(f.bodies.len());
        for (opset, body) in &f.bodies {
            let block = self.block(f, *body, 0)?;
            block_specializations.push(bytes(proto::BlockEntry { key: opset_to_core_ml(opset), value: Some(block) }));
        }
        Ok(proto::Function {
            inputs: named(f, &f.inputs),
            opset: opset_to_core_ml(f.opset_tag()),
            block_specializations,
            attributes: self.attributes(&f.attributes, false)?,
        })
    }

    fn block(&mut self, f: &'a Function, id: BlockId, depth: usize) -> Written<proto::Block> {
        if depth > MAX_DEPTH {
            return Err(format!("blocks nest deeper than {MAX_DEPTH}"));
        }
        let block = f.block(id);
        let mut operations = Vec::with_capacity(block.ops.len());
        for &op in &block.ops {
            self.op(f, f.op(op), depth, &mut operations)?;
        }
        let outputs = block.outputs.iter().map(|v| f.value(*v).name.clone()).collect();
        Ok(proto::Block { inputs: named(f, &block.inputs), outputs, operations, attributes: Vec::new() })
    }

    fn op(&mut self, f: &'a Function, op: &'a Op, depth: usize, out: &mut Vec<Bytes>) -> Written<()> {
        if op.name == "coreml_update_state" {
            out.extend(update_state(f, op)?.map(bytes));
            return Ok(());
        }
        // The data of compressed constants are stored in the weight file, whether they are
        // arguments or attributes.
        let stored = op.name == "const" || op.name.starts_with("constexpr_");
        let mut inputs = Vec::with_capacity(op.args.len());
        for (name, arg) in &op.args {
            let bindings = match arg {
                Arg::Value(v) => vec![by_name(f, *v)],
                Arg::List(vs) => vs.iter().map(|v| by_name(f, *v)).collect(),
                Arg::Const(c) => {
                    let value = self.value(c, stored)?;
                    vec![proto::BindingMessage { binding: Some(Binding::Value(Box::new(value))) }]
                }
            };
            inputs.push(entry(name, bindings));
        }
        let mut blocks = Vec::with_capacity(op.blocks.len());
        for &block in &op.blocks {
            blocks.push(bytes(self.block(f, block, depth + 1)?));
        }
        let attributes = self.attributes(&op.attributes, stored)?;
        out.push(bytes(proto::Operation {
            r#type: op.name.clone(),
            inputs,
            outputs: named(f, &op.outputs),
            blocks,
            attributes,
        }));
        Ok(())
    }

    fn attributes(&mut self, attributes: &'a [(String, Constant)], stored: bool) -> Written<Vec<Bytes>> {
        let one = |(name, constant): &'a (String, Constant)| {
            Ok(bytes(proto::ValueEntry { key: name.clone(), value: Some(self.value(constant, stored)?) }))
        };
        attributes.iter().map(one).collect()
    }

    fn value(&mut self, constant: &'a Constant, stored: bool) -> Written<proto::Value> {
        let ty = constant.ty();
        Ok(match constant {
            Constant::Tensor { payload: Payload::Strings(strings), .. } => {
                let strings = proto::Strings { values: strings.to_vec() };
                tensor(&ty, proto::TensorElements::Strings(strings))
            }
            Constant::Tensor { payload: Payload::Bytes(packed), .. } => {
                let dtype = ty.dtype().unwrap_or(DataType::UInt8);
                let elements = ty.elements().unwrap_or(0);
                match &mut self.store {
                    Store::File(file)
                        if stored && elements >= STORED_FROM && storable(dtype, self.specification_version) =>
                    {
                        let offset = file.add(dtype, elements, packed);
                        in_file(&ty, offset)
                    }
                    _ => tensor(&ty, write_tensor(dtype, packed)),
                }
            }
            Constant::Tensor { payload: Payload::Weight(id), .. } => {
                let weights = &self.program.weights;
                let (path, at) = weights.location(*id).unwrap_or(("?", 0));
                let missing = || format!("the bytes of the weight at {at} of \"{path}\" are not there");
                let packed = weights.bytes(*id).ok_or_else(missing)?;
                let (dtype, elements) = (weights.dtype(*id).ok_or_else(missing)?, ty.elements().unwrap_or(0));
                match &mut self.store {
                    Store::File(file) => {
                        let offset = match file.places.get(id) {
                            Some(offset) => *offset,
                            // Inside of a list or dictionary, for which no record was reserved.
                            None => file.add(dtype, elements, packed),
                        };
                        in_file(&ty, offset)
                    }
                    Store::Inline => tensor(&ty, write_tensor(dtype, packed)),
                }
            }
            Constant::List(_, items) => {
                let values = items.iter().map(|c| self.value(c, false).map(bytes)).collect::<Written<_>>()?;
                immediate(&ty, Immediate::List(proto::Values { values }))
            }
            Constant::Tuple(items) => {
                let values = items.iter().map(|c| self.value(c, false).map(bytes)).collect::<Written<_>>()?;
                immediate(&ty, Immediate::Tuple(proto::Values { values }))
            }
            Constant::Dict(_, entries) => {
                let pair = |(k, v): &'a (Constant, Constant)| {
                    let (key, value) = (self.value(k, false)?, self.value(v, false)?);
                    Ok(bytes(proto::KeyValuePair { key: Some(key), value: Some(value) }))
                };
                let values = entries.iter().map(pair).collect::<Written<_>>()?;
                immediate(&ty, Immediate::Dictionary(proto::DictionaryValue { values }))
            }
        })
    }
}

/// Whether Core ML reads this element type from a weight file in a specification version.
fn storable(dtype: DataType, specification_version: i32) -> bool {
    match dtype {
        DataType::Fp16 | DataType::Fp32 | DataType::UInt8 | DataType::Int8 => true,
        // coremltools keeps bools in the model.
        DataType::Bool => false,
        _ => specification_version >= 9 && blob::code(dtype).is_some(),
    }
}

fn tensor(ty: &crate::program::Type, tensor: proto::TensorElements) -> proto::Value {
    immediate(ty, Immediate::Tensor(proto::TensorMessage { value: Some(tensor) }))
}

fn in_file(ty: &crate::program::Type, offset: u64) -> proto::Value {
    let file = proto::BlobFile { file_name: FILE.to_string(), offset };
    proto::Value { r#type: Some(write_type(ty)), content: Some(Content::BlobFile(file)) }
}

fn named(f: &Function, values: &[ValueId]) -> Vec<Bytes> {
    let one = |v: &ValueId| {
        let value = f.value(*v);
        bytes(proto::NamedValueType { name: value.name.clone(), r#type: Some(write_type(&value.ty)) })
    };
    values.iter().map(one).collect()
}

fn by_name(f: &Function, value: ValueId) -> proto::BindingMessage {
    proto::BindingMessage { binding: Some(Binding::Name(f.value(value).name.clone())) }
}

fn entry(name: &str, arguments: Vec<proto::BindingMessage>) -> Bytes {
    bytes(proto::ArgumentEntry { key: name.to_string(), value: Some(proto::Argument { arguments }) })
}

/// `write_state` and, for the result, `read_state`.
fn update_state(f: &Function, op: &Op) -> Written<[proto::Operation; 2]> {
    let argument = |name: &str| match op.arg(name) {
        Some(Arg::Value(v)) => Ok(by_name(f, *v)),
        _ => Err(format!("op `coreml_update_state`: `{name}` must be a value")),
    };
    let label = op.attribute("name").and_then(Constant::as_str).map(str::to_string);
    let label = label.or_else(|| op.outputs.first().map(|v| f.value(*v).name.clone())).unwrap_or_default();
    let name = |label: &str| {
        let constant = Constant::string(label);
        let strings = proto::TensorElements::Strings(proto::Strings { values: vec![label.to_string()] });
        vec![bytes(proto::ValueEntry { key: "name".to_string(), value: Some(tensor(&constant.ty(), strings)) })]
    };
    Ok([
        proto::Operation {
            r#type: "write_state".to_string(),
            inputs: vec![entry("input", vec![argument("state")?]), entry("data", vec![argument("value")?])],
            outputs: Vec::new(),
            blocks: Vec::new(),
            attributes: name(&format!("{label}_write_state")),
        },
        proto::Operation {
            r#type: "read_state".to_string(),
            inputs: vec![entry("input", vec![argument("state")?])],
            outputs: named(f, &op.outputs),
            blocks: Vec::new(),
            attributes: name(&label),
        },
    ])
}
