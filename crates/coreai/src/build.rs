//! New programs, and changes of programs that were read.
//!
//! A [`Builder`] adds entries to the tables of a file and operations to its body. What is there
//! already is used again, and nothing is removed. Operations that a program does not have yet get
//! the location of the builder: an empty file.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::bytecode::{
    Argument, AttributeId, Block, Bytecode, BytecodeOp, Definition, Dialect, DialectId, Emitter, EncodedEntry,
    GroupOwner, OpName, OpNameId, Region, Resource, ResourceGroup, ResourceId, ResourceValue, StringId, TypeId,
    ValueId,
};
use crate::dialect::{self, ATTRIBUTES, Decoded, ElementType, Field, Kind, TYPES, ops};

/// The version that a new program states: the newest that coreai-core 1.0.0b3 writes for any
/// operation, as a date.
const PROGRAM_VERSION: u64 = 20_260_409;

/// The alignment of weights in bytes, as coreai-core 1.0.0b3 writes it.
const ALIGNMENT: u32 = 16;

/// Adds to a file.
#[derive(Debug)]
pub struct Builder<'a> {
    file: Bytecode<'a>,
    dialect: DialectId,
    strings: HashMap<Vec<u8>, StringId>,
    attributes: HashMap<Vec<u8>, AttributeId>,
    types: HashMap<Vec<u8>, TypeId>,
    op_names: HashMap<&'static str, OpNameId>,
}

/// A function that is being built.
#[derive(Debug)]
pub struct Graph {
    name: String,
    inputs: Vec<String>,
    block: Block,
    /// Blocks around the open one, the outermost first.
    around: Vec<Block>,
    types: HashMap<ValueId, TypeId>,
}

impl Graph {
    /// The type of a value of the function.
    pub fn ty(&self, value: ValueId) -> Option<TypeId> {
        self.types.get(&value).copied()
    }

    /// The values of the inputs.
    pub fn inputs(&self) -> Vec<ValueId> {
        self.block.arguments.iter().map(|argument| argument.definition.value).collect()
    }
}

impl Default for Builder<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> Builder<'a> {
    /// Begins a program without functions.
    pub fn new() -> Self {
        let mut builder = Self::of(Bytecode::empty("Ferrane"));
        let version = builder.integer(PROGRAM_VERSION, 32);
        let properties = builder.properties("serialization.asset", &[("version", version)]);
        let asset = BytecodeOp {
            regions: vec![Region { blocks: vec![Block::default()] }],
            isolated: true,
            properties: Some(properties),
            ..builder.operation("serialization.asset")
        };
        builder.file.body.operations.push(asset);
        builder
    }

    /// Continues a program that was read.
    pub fn of(file: Bytecode<'a>) -> Self {
        let mut builder = Self {
            dialect: DialectId(0),
            strings: (0..).zip(&file.strings).map(|(i, s)| (s.to_vec(), StringId(i))).collect(),
            attributes: HashMap::new(),
            types: HashMap::new(),
            op_names: HashMap::new(),
            file,
        };
        let found = builder.file.dialects.iter().position(|d| builder.file.string(d.name) == dialect::NAME);
        builder.dialect = match found {
            Some(index) => DialectId(index as u32),
            None => {
                let name = builder.string(dialect::NAME);
                builder.file.dialects.push(Dialect { name, version: Some(Cow::Borrowed(dialect::VERSION)) });
                DialectId(builder.file.dialects.len() as u32 - 1)
            }
        };
        let own = |entry: &&EncodedEntry<'_>| entry.custom && entry.dialect == builder.dialect;
        for (index, entry) in (0..).zip(&builder.file.attributes).filter(|(_, e)| own(e)) {
            builder.attributes.entry(entry.bytes.to_vec()).or_insert(AttributeId(index));
        }
        for (index, entry) in (0..).zip(&builder.file.types).filter(|(_, e)| own(e)) {
            builder.types.entry(entry.bytes.to_vec()).or_insert(TypeId(index));
        }
        for index in (0..).take(builder.file.op_names.len()) {
            if let Some(op) = builder.file.op(OpNameId(index)) {
                builder.op_names.insert(op.name, OpNameId(index));
            }
        }
        builder
    }

    /// The file as it is now.
    pub fn file(&self) -> &Bytecode<'a> {
        &self.file
    }

    /// The file with everything that was added, to be written.
    pub fn finish(self) -> Bytecode<'a> {
        self.file
    }

    /// The index of a string, which is added if the file does not have it.
    pub fn string(&mut self, text: &str) -> StringId {
        if let Some(id) = self.strings.get(text.as_bytes()) {
            return *id;
        }
        let id = StringId(self.file.strings.len() as u32);
        self.file.strings.push(Cow::Owned(text.as_bytes().to_vec()));
        self.strings.insert(text.as_bytes().to_vec(), id);
        id
    }

    /// An attribute of the kind with this number.
    ///
    /// # Panics
    /// If there is no such kind; the numbers are those of [`ATTRIBUTES`].
    pub fn attribute(&mut self, code: u64, fields: Vec<Field<'_>>) -> AttributeId {
        let bytes = dialect::encode(&Decoded { kind: kind_of(ATTRIBUTES, code), fields });
        if let Some(id) = self.attributes.get(&bytes) {
            return *id;
        }
        let id = AttributeId(self.file.attributes.len() as u32);
        self.file.attributes.push(EncodedEntry {
            dialect: self.dialect,
            custom: true,
            bytes: Cow::Owned(bytes.clone()),
        });
        self.attributes.insert(bytes, id);
        id
    }

    /// A type of the kind with this number.
    ///
    /// # Panics
    /// If there is no such kind; the numbers are those of [`TYPES`].
    pub fn ty(&mut self, code: u64, fields: Vec<Field<'_>>) -> TypeId {
        let bytes = dialect::encode(&Decoded { kind: kind_of(TYPES, code), fields });
        if let Some(id) = self.types.get(&bytes) {
            return *id;
        }
        let id = TypeId(self.file.types.len() as u32);
        self.file.types.push(EncodedEntry { dialect: self.dialect, custom: true, bytes: Cow::Owned(bytes.clone()) });
        self.types.insert(bytes, id);
        id
    }

    /// The type of a tensor; `None` is an extent that is not known.
    pub fn tensor(&mut self, shape: &[Option<u64>], element: ElementType) -> TypeId {
        let code = element.kind().map_or(6, |kind| kind.code);
        let element = self.ty(code, Vec::new());
        let extents = shape.iter().map(|n| n.map_or(i64::MIN, |n| n as i64)).collect();
        self.ty(2, vec![Field::Signeds(extents), Field::Type(element)])
    }

    /// The type of a tensor of `nonzero` elements at the places where a mask has ones.
    pub fn sparse(&mut self, shape: &[u64], element: ElementType, nonzero: u64) -> TypeId {
        let numbers = [0, 1, 1, 0, nonzero].map(Field::Unsigned);
        let encoding = self.attribute(21, numbers.to_vec());
        let element = self.ty(element.kind().map_or(6, |kind| kind.code), Vec::new());
        let extents = shape.iter().map(|&n| n as i64).collect();
        self.ty(3, vec![Field::Signeds(extents), Field::Type(element), Field::Attribute(encoding)])
    }

    /// The type of a state that holds a tensor of this type.
    pub fn handle(&mut self, tensor: TypeId) -> TypeId {
        self.ty(31, vec![Field::Type(tensor)])
    }

    /// The type of an order of accesses to states.
    pub fn token(&mut self) -> TypeId {
        self.ty(32, Vec::new())
    }

    fn integer(&mut self, value: u64, width: u64) -> AttributeId {
        self.attribute(2, vec![Field::Unsigned(width), Field::Byte(1), Field::Bits(value)])
    }

    /// The properties of an operation, in the order of [`ops::OPS`].
    ///
    /// # Panics
    /// If one that the operation needs is missing, or it has none of a name.
    fn properties(&mut self, name: &str, values: &[(&str, AttributeId)]) -> u32 {
        let mut out = Emitter::default();
        let known = ops::op_named(name).map_or(&[][..], |op| op.properties);
        for (given, _) in values {
            let is_known = known.iter().any(|property| property.trim_start_matches('?') == *given);
            assert!(is_known, "the operation `{name}` has no property `{given}`");
        }
        for property in known {
            let (optional, wanted) = (property.starts_with('?'), property.trim_start_matches('?'));
            let value = values.iter().find(|(given, _)| *given == wanted).map(|(_, id)| u64::from(id.0));
            match (optional, value) {
                (true, Some(id)) => out.flagged(id, true),
                (true, None) => out.varint(0),
                (false, Some(id)) => out.varint(id),
                (false, None) => panic!("the operation `{name}` needs the property `{wanted}`"),
            }
        }
        self.file.properties.push(Cow::Owned(out.bytes));
        self.file.properties.len() as u32 - 1
    }

    /// An operation without operands, results and regions.
    fn operation(&mut self, name: &str) -> BytecodeOp {
        let empty = self.string("");
        let file = self.attribute(30, vec![Field::String(empty); 3]);
        let zero = || Field::Unsigned(0);
        let source = self.attribute(31, vec![Field::Attribute(file), zero(), zero(), zero(), zero()]);
        let scope = self.attribute(46, Vec::new());
        let (no, none) = (Field::Attributes(Vec::new()), Field::Attributes(Vec::new()));
        let location = self.attribute(40, vec![Field::Attribute(source), Field::Attribute(scope), no, none]);
        let op = ops::op_named(name).unwrap_or(&ops::OPS[0]);
        let name = match self.op_names.get(op.name) {
            Some(id) => *id,
            None => {
                let id = OpNameId(self.file.op_names.len() as u32);
                let name = self.string(op.name);
                self.file.op_names.push(OpName { dialect: self.dialect, name, registered: true });
                self.op_names.insert(op.name, id);
                id
            }
        };
        BytecodeOp {
            name,
            location,
            attributes: None,
            properties: None,
            results: Vec::new(),
            operands: Vec::new(),
            successors: Vec::new(),
            use_orders: None,
            regions: Vec::new(),
            isolated: false,
        }
    }

    fn value(&mut self) -> ValueId {
        self.file.values += 1;
        ValueId(self.file.values - 1)
    }

    /// Begins a function with these inputs.
    pub fn graph(&mut self, name: &str, inputs: &[(&str, TypeId)]) -> Graph {
        let location = Some(self.operation("dataflow.graph_v1").location);
        let mut graph = Graph {
            name: name.to_string(),
            inputs: inputs.iter().map(|(name, _)| name.to_string()).collect(),
            block: Block::default(),
            around: Vec::new(),
            types: HashMap::new(),
        };
        for (_, ty) in inputs {
            let value = self.value();
            graph.block.arguments.push(Argument { definition: Definition { value, ty: *ty }, location });
            graph.types.insert(value, *ty);
        }
        graph
    }

    /// Adds an operation, by the name in [`ops::OPS`], with one result.
    ///
    /// # Panics
    /// If there is no such operation, if a property that it needs is missing, or if it has none of
    /// a name.
    pub fn op(
        &mut self,
        graph: &mut Graph,
        name: &str,
        operands: &[ValueId],
        properties: &[(&str, AttributeId)],
        result: TypeId,
    ) -> ValueId {
        self.ops(graph, name, operands, properties, &[result], Vec::new())[0]
    }

    /// Adds an operation as [`Builder::op`] does, with any number of results and with blocks, each
    /// of which is a region. coreai-core 1.0.0b3 does not load operations such as `relu_v1` and
    /// `broadcasting_add_v1` without the block that states what they compute.
    ///
    /// # Panics
    /// As [`Builder::op`].
    pub fn ops(
        &mut self,
        graph: &mut Graph,
        name: &str,
        operands: &[ValueId],
        properties: &[(&str, AttributeId)],
        results: &[TypeId],
        blocks: Vec<Block>,
    ) -> Vec<ValueId> {
        assert!(ops::op_named(name).is_some(), "there is no operation `{name}`");
        let results: Vec<Definition> = results.iter().map(|&ty| Definition { value: self.value(), ty }).collect();
        graph.types.extend(results.iter().map(|result| (result.value, result.ty)));
        let values = results.iter().map(|result| result.value).collect();
        let mut operation = BytecodeOp {
            operands: operands.to_vec(),
            results,
            // Only branches and loops see the values around their blocks.
            isolated: !blocks.is_empty() && !name.starts_with("controlflow."),
            regions: blocks.into_iter().map(|block| Region { blocks: vec![block] }).collect(),
            ..self.operation(name)
        };
        if !properties.is_empty() || ops::op_named(name).is_some_and(|op| !op.properties.is_empty()) {
            operation.properties = Some(self.properties(name, properties));
        }
        graph.block.operations.push(operation);
        values
    }

    /// Begins a block with these arguments: operations are added to it until it is closed. Values
    /// of the blocks around it may be used in blocks of branches and loops.
    pub fn open_block(&mut self, graph: &mut Graph, arguments: &[TypeId]) -> Vec<ValueId> {
        let location = Some(self.operation("dataflow.graph_v1").location);
        let mut block = Block::default();
        for &ty in arguments {
            let value = self.value();
            block.arguments.push(Argument { definition: Definition { value, ty }, location });
            graph.types.insert(value, ty);
        }
        let values = block.arguments.iter().map(|argument| argument.definition.value).collect();
        graph.around.push(std::mem::replace(&mut graph.block, block));
        values
    }

    /// Ends the block that was opened last with an operation that gives its results, such as
    /// `dataflow.yield_v1`.
    ///
    /// # Panics
    /// If no block was opened.
    pub fn close_block(&mut self, graph: &mut Graph, terminator: &str, values: &[ValueId]) -> Block {
        let end = BytecodeOp { operands: values.to_vec(), ..self.operation(terminator) };
        graph.block.operations.push(end);
        match graph.around.pop() {
            Some(around) => std::mem::replace(&mut graph.block, around),
            None => panic!("no block of `{}` was opened", graph.name),
        }
    }

    /// A constant from the little-endian bytes of its elements, stored with the operation.
    pub fn constant(&mut self, graph: &mut Graph, ty: TypeId, bytes: &[u8]) -> ValueId {
        let value = self.elements(bytes, false);
        self.op(graph, "primitive.constant_v1", &[], &[("value", value)], ty)
    }

    /// Elements as an attribute; with `splat` one element for all.
    pub fn elements(&mut self, bytes: &[u8], splat: bool) -> AttributeId {
        self.attribute(6, vec![Field::Byte(u8::from(splat)), Field::Bytes(Cow::Borrowed(bytes))])
    }

    /// A constant whose elements are a resource of this name, which borrows them.
    pub fn weight(&mut self, graph: &mut Graph, key: &str, ty: TypeId, bytes: impl Into<Cow<'a, [u8]>>) -> ValueId {
        let key = self.string(key);
        let resource = Resource { key, value: ResourceValue::Blob { alignment: ALIGNMENT, bytes: bytes.into() } };
        let owner = GroupOwner::Dialect(self.dialect);
        // The last group, so that the indices of other resources stay.
        match self.file.resources.last_mut().filter(|group| group.owner == owner) {
            Some(group) => group.resources.push(resource),
            None => self.file.resources.push(ResourceGroup { owner, resources: vec![resource] }),
        }
        let count: usize = self.file.resources.iter().map(|group| group.resources.len()).sum();
        let value = self.attribute(7, vec![Field::Resource(ResourceId(count as u32 - 1))]);
        self.op(graph, "primitive.constant_v1", &[], &[("value", value)], ty)
    }

    /// Ends a function, which gets these outputs, and adds it to the program.
    ///
    /// # Panics
    /// If an output is no value of the function.
    pub fn output(&mut self, graph: Graph, outputs: &[(&str, ValueId)]) {
        let Graph { name, inputs, mut block, types, .. } = graph;
        let values = outputs.iter().map(|(_, value)| *value).collect();
        let end = BytecodeOp { operands: values, ..self.operation("dataflow.output_v1") };
        block.operations.push(end);
        let operands = block.arguments.iter().map(|argument| argument.definition.ty).collect();
        let type_of = |(output, value): &(&str, ValueId)| match types.get(value) {
            Some(ty) => *ty,
            None => panic!("the output `{output}` of `{name}` is no value of the function"),
        };
        let results = outputs.iter().map(type_of).collect();
        let function = self.ty(30, vec![Field::Types(results), Field::Types(operands)]);
        let inputs: Vec<AttributeId> = inputs.iter().map(|name| self.named(name)).collect();
        let outputs: Vec<AttributeId> = outputs.iter().map(|(name, _)| self.named(name)).collect();
        let no = self.integer(0, 1);
        let name = self.string(&name);
        let values = [
            ("argAttrs", self.attribute(5, vec![Field::Attributes(inputs)])),
            ("externalize", no),
            ("functionType", self.attribute(4, vec![Field::Type(function)])),
            ("isPrivate", no),
            ("name", self.attribute(1, vec![Field::String(name)])),
            ("noInline", no),
            ("paramDecls", self.attribute(5, vec![Field::Attributes(Vec::new())])),
            ("resAttrs", self.attribute(5, vec![Field::Attributes(outputs)])),
        ];
        let properties = self.properties("dataflow.graph_v1", &values);
        let graph = BytecodeOp {
            properties: Some(properties),
            regions: vec![Region { blocks: vec![block] }],
            isolated: true,
            ..self.operation("dataflow.graph_v1")
        };
        let asset =
            self.file.body.operations.iter_mut().flat_map(|o| &mut o.regions).flat_map(|r| &mut r.blocks).next();
        match asset {
            Some(block) => block.operations.push(graph),
            None => self.file.body.operations.push(graph),
        }
    }

    /// The attributes of an input or output: its name.
    fn named(&mut self, name: &str) -> AttributeId {
        let (key, name) = (self.string("aicode.name"), self.string(name));
        let value = self.attribute(1, vec![Field::String(name)]);
        let entry = self.attribute(9, vec![Field::String(key), Field::Attributes(vec![value])]);
        self.attribute(5, vec![Field::Attributes(vec![entry])])
    }

    /// Gives an operation another value for one of its properties. `false` if it does not have it.
    pub fn replace_property(&mut self, operation: &mut BytecodeOp, name: &str, value: AttributeId) -> bool {
        let (Some(op), Some(found)) = (self.file.op(operation.name), self.file.properties_of(operation)) else {
            return false;
        };
        if !found.iter().any(|property| property.name == name) {
            return false;
        }
        let kept = found.into_iter().filter_map(|property| Some((property.name, property.value?)));
        let mut values: Vec<(&str, AttributeId)> = kept.filter(|(n, _)| *n != name).collect();
        values.push((name, value));
        operation.properties = Some(self.properties(op.name, &values));
        true
    }

    /// The outermost operations, to be changed.
    pub fn body_mut(&mut self) -> &mut Block {
        &mut self.file.body
    }
}

fn kind_of(table: &'static [Kind], code: u64) -> &'static Kind {
    match table.iter().find(|kind| kind.code == code) {
        Some(kind) => kind,
        None => panic!("there is no kind {code}"),
    }
}
