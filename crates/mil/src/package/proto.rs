//! The protobuf messages of an ML Program and of a model's description, written by hand: field
//! numbers as in coreml-containers §1 and §2, checked against the descriptors of coremltools 9.0.
//!
//! Maps are declared as they are on the wire, as repeated entries of key and value, so that the
//! order of arguments and attributes, which text shows, is preserved.
//!
//! Repeated messages are kept as bytes that share the memory of the file, and are decoded one at a
//! time by [`part`]: an error stops the reader at that message, and a file of two-byte messages
//! takes a few times its own size, not a structure for each message.

use prost::bytes::Bytes;
use prost::{Message, Oneof};

/// One of the messages that a field repeats.
pub(super) fn part<M: Message + Default>(bytes: &Bytes) -> Result<M, String> {
    M::decode(bytes.clone()).map_err(|e| e.to_string())
}

/// A message as its field keeps it.
pub(super) fn bytes(message: impl Message) -> Bytes {
    message.encode_to_vec().into()
}

/// An entry of `map<string, V>`.
macro_rules! entry {
    ($(#[$doc:meta])* $name:ident, $value:ty) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Message)]
        pub(super) struct $name {
            #[prost(string, tag = "1")]
            pub(super) key: String,
            #[prost(message, optional, tag = "2")]
            pub(super) value: Option<$value>,
        }
    };
}
entry!(FunctionEntry, Function);
entry!(BlockEntry, Block);
entry!(ValueEntry, Value);
entry!(ArgumentEntry, Argument);

#[derive(Clone, PartialEq, Message)]
pub(super) struct Program {
    #[prost(int64, tag = "1")]
    pub(super) version: i64,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(super) functions: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "4")]
    pub(super) attributes: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Function {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub(super) inputs: Vec<Bytes>,
    #[prost(string, tag = "2")]
    pub(super) opset: String,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub(super) block_specializations: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "4")]
    pub(super) attributes: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Block {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub(super) inputs: Vec<Bytes>,
    #[prost(string, repeated, tag = "2")]
    pub(super) outputs: Vec<String>,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub(super) operations: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "4")]
    pub(super) attributes: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Argument {
    #[prost(message, repeated, tag = "1")]
    pub(super) arguments: Vec<BindingMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct BindingMessage {
    #[prost(oneof = "Binding", tags = "1, 2")]
    pub(super) binding: Option<Binding>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Binding {
    #[prost(string, tag = "1")]
    Name(String),
    #[prost(message, tag = "2")]
    Value(Box<Value>),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Operation {
    #[prost(string, tag = "1")]
    pub(super) r#type: String,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(super) inputs: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub(super) outputs: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "4")]
    pub(super) blocks: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "5")]
    pub(super) attributes: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct NamedValueType {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, optional, tag = "2")]
    pub(super) r#type: Option<ValueType>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ValueType {
    #[prost(oneof = "TypeKind", tags = "1, 2, 3, 4, 5")]
    pub(super) kind: Option<TypeKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum TypeKind {
    #[prost(message, tag = "1")]
    Tensor(Box<TensorType>),
    #[prost(message, tag = "2")]
    List(Box<ListType>),
    #[prost(message, tag = "3")]
    Tuple(TupleType),
    #[prost(message, tag = "4")]
    Dictionary(Box<DictionaryType>),
    #[prost(message, tag = "5")]
    State(Box<StateType>),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TensorType {
    #[prost(int32, tag = "1")]
    pub(super) data_type: i32,
    #[prost(int64, tag = "2")]
    pub(super) rank: i64,
    #[prost(message, repeated, tag = "3")]
    pub(super) dimensions: Vec<Dimension>,
    #[prost(bytes = "bytes", repeated, tag = "4")]
    pub(super) attributes: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TupleType {
    #[prost(message, repeated, tag = "1")]
    pub(super) types: Vec<ValueType>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ListType {
    #[prost(message, optional, boxed, tag = "1")]
    pub(super) r#type: Option<Box<ValueType>>,
    #[prost(message, optional, tag = "2")]
    pub(super) length: Option<Dimension>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DictionaryType {
    #[prost(message, optional, boxed, tag = "1")]
    pub(super) key_type: Option<Box<ValueType>>,
    #[prost(message, optional, boxed, tag = "2")]
    pub(super) value_type: Option<Box<ValueType>>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StateType {
    #[prost(message, optional, boxed, tag = "1")]
    pub(super) wrapped_type: Option<Box<ValueType>>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Dimension {
    #[prost(oneof = "Extent", tags = "1, 2")]
    pub(super) extent: Option<Extent>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Extent {
    #[prost(message, tag = "1")]
    Constant(ConstantDimension),
    #[prost(message, tag = "2")]
    Unknown(UnknownDimension),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ConstantDimension {
    #[prost(uint64, tag = "1")]
    pub(super) size: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct UnknownDimension {
    #[prost(bool, tag = "1")]
    pub(super) variadic: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Value {
    #[prost(message, optional, tag = "2")]
    pub(super) r#type: Option<ValueType>,
    #[prost(oneof = "Content", tags = "3, 5")]
    pub(super) content: Option<Content>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Content {
    #[prost(message, tag = "3")]
    Immediate(ImmediateMessage),
    #[prost(message, tag = "5")]
    BlobFile(BlobFile),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct BlobFile {
    #[prost(string, tag = "1")]
    pub(super) file_name: String,
    #[prost(uint64, tag = "2")]
    pub(super) offset: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ImmediateMessage {
    #[prost(oneof = "Immediate", tags = "1, 2, 3, 4")]
    pub(super) value: Option<Immediate>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Immediate {
    #[prost(message, tag = "1")]
    Tensor(TensorMessage),
    #[prost(message, tag = "2")]
    Tuple(Values),
    #[prost(message, tag = "3")]
    List(Values),
    #[prost(message, tag = "4")]
    Dictionary(DictionaryValue),
}

/// The messages `TupleValue` and `ListValue`, which have the same fields.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Values {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub(super) values: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DictionaryValue {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub(super) values: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValuePair {
    #[prost(message, optional, tag = "1")]
    pub(super) key: Option<Value>,
    #[prost(message, optional, tag = "2")]
    pub(super) value: Option<Value>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TensorMessage {
    #[prost(oneof = "TensorElements", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub(super) value: Option<TensorElements>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum TensorElements {
    #[prost(message, tag = "1")]
    Floats(Floats),
    #[prost(message, tag = "2")]
    Ints(Ints),
    #[prost(message, tag = "3")]
    Bools(Bools),
    #[prost(message, tag = "4")]
    Strings(Strings),
    #[prost(message, tag = "5")]
    LongInts(LongInts),
    #[prost(message, tag = "6")]
    Doubles(Doubles),
    #[prost(message, tag = "7")]
    Bytes(RawBytes),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Floats {
    #[prost(float, repeated, tag = "1")]
    pub(super) values: Vec<f32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Ints {
    #[prost(int32, repeated, tag = "1")]
    pub(super) values: Vec<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Bools {
    #[prost(bool, repeated, tag = "1")]
    pub(super) values: Vec<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Strings {
    #[prost(string, repeated, tag = "1")]
    pub(super) values: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LongInts {
    #[prost(int64, repeated, tag = "1")]
    pub(super) values: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Doubles {
    #[prost(double, repeated, tag = "1")]
    pub(super) values: Vec<f64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RawBytes {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) values: Vec<u8>,
}

// The description of a model.

#[derive(Clone, PartialEq, Message)]
pub(super) struct ModelDescription {
    #[prost(message, repeated, tag = "1")]
    pub(super) input: Vec<FeatureDescription>,
    #[prost(message, repeated, tag = "10")]
    pub(super) output: Vec<FeatureDescription>,
    #[prost(message, repeated, tag = "13")]
    pub(super) state: Vec<FeatureDescription>,
    #[prost(message, repeated, tag = "20")]
    pub(super) functions: Vec<FunctionDescription>,
    #[prost(string, tag = "21")]
    pub(super) default_function_name: String,
    #[prost(message, optional, tag = "100")]
    pub(super) metadata: Option<Metadata>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FunctionDescription {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) input: Vec<FeatureDescription>,
    #[prost(message, repeated, tag = "3")]
    pub(super) output: Vec<FeatureDescription>,
    #[prost(message, repeated, tag = "6")]
    pub(super) state: Vec<FeatureDescription>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FeatureDescription {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) short_description: String,
    #[prost(message, optional, tag = "3")]
    pub(super) r#type: Option<FeatureType>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FeatureType {
    #[prost(oneof = "FeatureKind", tags = "1, 2, 3, 4, 5, 6, 7, 8")]
    pub(super) kind: Option<FeatureKind>,
    #[prost(bool, tag = "1000")]
    pub(super) is_optional: bool,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum FeatureKind {
    #[prost(message, tag = "1")]
    Int64(Empty),
    #[prost(message, tag = "2")]
    Double(Empty),
    #[prost(message, tag = "3")]
    String(Empty),
    #[prost(message, tag = "4")]
    Image(ImageFeatureType),
    #[prost(message, tag = "5")]
    MultiArray(ArrayFeatureType),
    #[prost(message, tag = "6")]
    Dictionary(Empty),
    #[prost(message, tag = "7")]
    Sequence(Empty),
    #[prost(message, tag = "8")]
    State(StateFeatureType),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ImageFeatureType {
    #[prost(int64, tag = "1")]
    pub(super) width: i64,
    #[prost(int64, tag = "2")]
    pub(super) height: i64,
    #[prost(int32, tag = "3")]
    pub(super) color_space: i32,
    #[prost(message, optional, tag = "21")]
    pub(super) enumerated_sizes: Option<EnumeratedImageSizes>,
    #[prost(message, optional, tag = "31")]
    pub(super) size_range: Option<ImageSizeRange>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EnumeratedImageSizes {
    #[prost(message, repeated, tag = "1")]
    pub(super) sizes: Vec<ImageSize>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ImageSize {
    #[prost(uint64, tag = "1")]
    pub(super) width: u64,
    #[prost(uint64, tag = "2")]
    pub(super) height: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ImageSizeRange {
    #[prost(message, optional, tag = "1")]
    pub(super) width: Option<SizeRange>,
    #[prost(message, optional, tag = "2")]
    pub(super) height: Option<SizeRange>,
}

/// An upper bound below 0 is none.
#[derive(Clone, PartialEq, Message)]
pub(super) struct SizeRange {
    #[prost(uint64, tag = "1")]
    pub(super) lower: u64,
    #[prost(int64, tag = "2")]
    pub(super) upper: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EnumeratedShapes {
    #[prost(message, repeated, tag = "1")]
    pub(super) shapes: Vec<Shape>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Shape {
    #[prost(int64, repeated, tag = "1")]
    pub(super) shape: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ShapeRange {
    #[prost(message, repeated, tag = "1")]
    pub(super) ranges: Vec<SizeRange>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ArrayFeatureType {
    #[prost(int64, repeated, tag = "1")]
    pub(super) shape: Vec<i64>,
    #[prost(int32, tag = "2")]
    pub(super) data_type: i32,
    #[prost(message, optional, tag = "21")]
    pub(super) enumerated: Option<EnumeratedShapes>,
    #[prost(message, optional, tag = "31")]
    pub(super) range: Option<ShapeRange>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StateFeatureType {
    #[prost(message, optional, tag = "1")]
    pub(super) array_type: Option<ArrayFeatureType>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Metadata {
    #[prost(string, tag = "1")]
    pub(super) short_description: String,
    #[prost(string, tag = "2")]
    pub(super) version_string: String,
    #[prost(string, tag = "3")]
    pub(super) author: String,
    #[prost(string, tag = "4")]
    pub(super) license: String,
    #[prost(message, repeated, tag = "100")]
    pub(super) user_defined: Vec<StringEntry>,
}

/// An entry of `map<string, string>`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct StringEntry {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}
