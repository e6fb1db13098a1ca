//! Operations, blocks and regions, and their bytes (BytecodeFormat, "IR Section").

use super::cursor::{Cursor, within};
use super::emit::Emitter;
use super::{AttributeId, OpNameId, SectionId, TypeId};
use crate::error::{Error, Result};

/// How deep regions may nest. Files of coreai-core 1.0.0b3 nest about ten deep.
const MAX_DEPTH: usize = 128;

/// An operation of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BytecodeOp {
    /// The name, in [`Bytecode::op_names`](super::Bytecode::op_names).
    pub name: OpNameId,
    /// The location, which is an attribute.
    pub location: AttributeId,
    /// The dictionary of attributes that are no properties, if any.
    pub attributes: Option<AttributeId>,
    /// The properties, in [`Bytecode::properties`](super::Bytecode::properties), if any.
    pub properties: Option<u32>,
    /// The values that the operation defines, with their types.
    pub results: Vec<Definition>,
    /// The values that it reads. In a region that is not isolated they may be defined later.
    pub operands: Vec<ValueId>,
    /// Indices of blocks of the region that the operation may continue with.
    pub successors: Vec<u32>,
    /// Orders of the uses of results, if they differ from the order of the file.
    pub use_orders: Option<Vec<UseOrder>>,
    /// The regions, whose meaning the operation defines: bodies, branches, expansions.
    pub regions: Vec<Region>,
    /// Whether the regions cannot see values from outside.
    pub isolated: bool,
}

/// A value: the result of an operation or the argument of a block. Numbers are unique in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueId(pub u32);

/// A value where it is defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The number that operands refer to.
    pub value: ValueId,
    /// The type, which is stated only here: operands have that of their definition.
    pub ty: TypeId,
}

/// The order of the uses of one value of a list of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UseOrder {
    /// The position of the value in its list.
    pub index: u64,
    /// Whether `order` has pairs of positions, or a position for each use.
    pub pairs: bool,
    /// Positions of uses, from the last one that MLIR's reader adds.
    pub order: Vec<u64>,
}

/// A list of blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// The blocks; the first is entered first.
    pub blocks: Vec<Block>,
}

/// A list of operations with arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The values that the operation around the block, or a branch to it, defines.
    pub arguments: Vec<Argument>,
    /// Orders of the uses of arguments, if they differ from the order of the file.
    pub use_orders: Option<Vec<UseOrder>>,
    /// The operations in the order of execution; the last one ends the block.
    pub operations: Vec<BytecodeOp>,
}

/// An argument of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument {
    /// The value and its type.
    pub definition: Definition,
    /// The location; `None` if it is not known.
    pub location: Option<AttributeId>,
}

// Bits of the mask of an operation (BytecodeFormat, "Operation Encoding").
const HAS_ATTRIBUTES: u8 = 1;
const HAS_RESULTS: u8 = 2;
const HAS_OPERANDS: u8 = 4;
const HAS_SUCCESSORS: u8 = 8;
const HAS_REGIONS: u8 = 0x10;
const HAS_USE_ORDERS: u8 = 0x20;
const HAS_PROPERTIES: u8 = 0x40;
const KNOWN_BITS: u8 = 0x7f;

/// Lengths of the tables that operations refer to.
pub(super) struct Tables {
    pub(super) op_names: usize,
    pub(super) attributes: usize,
    pub(super) types: usize,
    pub(super) properties: usize,
}

/// The values that a position can refer to.
#[derive(Default)]
struct Scope {
    /// `visible[i]` is the value that operands call `i`.
    visible: Vec<ValueId>,
    /// The index in `visible` of the next value that is defined, for each open region.
    open: Vec<(usize, usize)>,
}

/// Reads operations and gives each value a number of its own.
pub(super) struct Reader {
    tables: Tables,
    scopes: Vec<Scope>,
    values: u32,
    depth: usize,
    /// The length of all operations in bytes, of which each value takes one or more.
    length: usize,
    /// The number of values that open regions announce and do not define yet.
    owed: usize,
}

impl Reader {
    pub(super) fn new(tables: Tables) -> Self {
        let scopes = vec![Scope { open: vec![(0, 0)], ..Scope::default() }];
        Self { tables, scopes, values: 0, depth: 0, length: 0, owed: 0 }
    }

    /// The outermost block, and the number of values of the file.
    pub(super) fn read(mut self, mut cursor: Cursor<'_>) -> Result<(Block, u32)> {
        self.length = cursor.remaining();
        let (count, has_arguments) = cursor.flagged()?;
        if has_arguments {
            return Err(Error::form(cursor.offset(), "the outermost block has arguments"));
        }
        let operations = self.operations(&mut cursor, count, 0)?;
        cursor.finish("the operations")?;
        Ok((Block { operations, ..Block::default() }, self.values))
    }

    fn operations(&mut self, cursor: &mut Cursor<'_>, count: u64, blocks: usize) -> Result<Vec<BytecodeOp>> {
        let count = cursor.bounded(cursor.offset(), count, "operations")?;
        let mut operations = Vec::new();
        for _ in 0..count {
            operations.push(self.operation(cursor, blocks)?);
        }
        Ok(operations)
    }

    fn operation(&mut self, cursor: &mut Cursor<'_>, blocks: usize) -> Result<BytecodeOp> {
        let start = cursor.offset();
        let name = OpNameId(cursor.index(self.tables.op_names, "operation name")?);
        let mask = cursor.byte()?;
        if mask & !KNOWN_BITS != 0 {
            return Err(Error::form(start, format!("the mask {mask:#04x} of an operation has unknown bits")));
        }
        let has = |bit| mask & bit != 0;
        let location = AttributeId(cursor.index(self.tables.attributes, "attribute")?);
        let attributes = match has(HAS_ATTRIBUTES) {
            true => Some(AttributeId(cursor.index(self.tables.attributes, "attribute")?)),
            false => None,
        };
        let properties = match has(HAS_PROPERTIES) {
            true => Some(cursor.index(self.tables.properties, "entry of properties")?),
            false => None,
        };
        let mut types = Vec::new();
        if has(HAS_RESULTS) {
            for _ in 0..cursor.count("results")? {
                types.push(TypeId(cursor.index(self.tables.types, "type")?));
            }
        }
        let mut operands = Vec::new();
        if has(HAS_OPERANDS) {
            for _ in 0..cursor.count("operands")? {
                operands.push(self.operand(cursor)?);
            }
        }
        let mut successors = Vec::new();
        if has(HAS_SUCCESSORS) {
            for _ in 0..cursor.count("successors")? {
                successors.push(cursor.index(blocks, "block")?);
            }
        }
        let use_orders = match has(HAS_USE_ORDERS) {
            true => Some(use_orders(cursor, types.len())?),
            false => None,
        };
        let mut results = Vec::new();
        for ty in types {
            results.push(Definition { value: self.define(start)?, ty });
        }
        let (mut regions, mut isolated) = (Vec::new(), false);
        if has(HAS_REGIONS) {
            let at = cursor.offset();
            let (count, flag) = cursor.flagged()?;
            isolated = flag;
            for _ in 0..cursor.bounded(at, count, "regions")? {
                regions.push(self.nested(cursor, isolated)?);
            }
        }
        let operation = BytecodeOp {
            name,
            location,
            attributes,
            properties,
            results,
            operands,
            successors,
            use_orders,
            regions,
            isolated,
        };
        Ok(operation)
    }

    fn operand(&mut self, cursor: &mut Cursor<'_>) -> Result<ValueId> {
        let at = cursor.offset();
        let index = cursor.varint()?;
        let visible = self.scopes.last().map_or(&[][..], |scope| &scope.visible);
        Ok(visible[within(at, index, visible.len(), "value")? as usize])
    }

    /// The next value of the innermost region.
    fn define(&mut self, at: usize) -> Result<ValueId> {
        let scope = self.scopes.last_mut().and_then(|scope| Some((&scope.visible, scope.open.last_mut()?)));
        match scope {
            Some((visible, (next, end))) if *next < *end => {
                *next += 1;
                self.owed -= 1;
                Ok(visible[*next - 1])
            }
            _ => Err(Error::form(at, "a region defines more values than it announces")),
        }
    }

    fn nested(&mut self, cursor: &mut Cursor<'_>, isolated: bool) -> Result<Region> {
        let at = cursor.offset();
        if self.depth == MAX_DEPTH {
            return Err(Error::form(at, format!("regions nest deeper than {MAX_DEPTH}")));
        }
        self.depth += 1;
        let region = if isolated {
            let mut section = super::section(cursor, Some(SectionId::Ir))?.1;
            self.scopes.push(Scope::default());
            let region = self.region(&mut section)?;
            self.scopes.pop();
            section.finish("a region")?;
            region
        } else {
            self.region(cursor)?
        };
        self.depth -= 1;
        Ok(region)
    }

    fn region(&mut self, cursor: &mut Cursor<'_>) -> Result<Region> {
        let count = cursor.count("blocks")?;
        if count == 0 {
            return Ok(Region::default());
        }
        let at = cursor.offset();
        // Each value has a type, which takes a byte or more. Regions inside share the bytes of
        // those around them, so that all of them together announce no more values than there are
        // bytes.
        let values = cursor.count("values")?;
        self.owed += values;
        if self.owed > self.length {
            let (owed, length) = (self.owed, self.length);
            return Err(Error::truncated(at, format!("regions announce {owed} values in {length} bytes")));
        }
        let first = self.values;
        self.values = u32::try_from(values)
            .ok()
            .and_then(|values| first.checked_add(values))
            .ok_or_else(|| Error::form(at, format!("{values} values are too many")))?;
        let Some(scope) = self.scopes.last_mut() else { return Ok(Region::default()) };
        let start = scope.visible.len();
        scope.visible.extend((first..self.values).map(ValueId));
        scope.open.push((start, start + values));
        let mut blocks = Vec::new();
        for _ in 0..count {
            blocks.push(self.block(cursor, count)?);
        }
        let Some(scope) = self.scopes.last_mut() else { return Ok(Region { blocks }) };
        let missing = scope.open.pop().map_or(0, |(next, end)| end - next);
        if missing > 0 {
            return Err(Error::form(at, format!("a region announces {values} values, {missing} are missing")));
        }
        scope.visible.truncate(start);
        Ok(Region { blocks })
    }

    fn block(&mut self, cursor: &mut Cursor<'_>, blocks: usize) -> Result<Block> {
        let (operations, has_arguments) = cursor.flagged()?;
        let (mut arguments, mut orders) = (Vec::new(), None);
        if has_arguments {
            for _ in 0..cursor.count("arguments")? {
                let at = cursor.offset();
                let (ty, located) = cursor.flagged()?;
                let ty = TypeId(within(at, ty, self.tables.types, "type")?);
                let location = match located {
                    true => Some(AttributeId(cursor.index(self.tables.attributes, "attribute")?)),
                    false => None,
                };
                arguments.push(Argument { definition: Definition { value: self.define(at)?, ty }, location });
            }
            match cursor.byte()? {
                0 => {}
                HAS_USE_ORDERS => orders = Some(use_orders(cursor, arguments.len())?),
                other => return Err(Error::form(cursor.offset() - 1, format!("{other:#04x} is no mask of a block"))),
            }
        }
        let operations = self.operations(cursor, operations, blocks)?;
        Ok(Block { arguments, use_orders: orders, operations })
    }
}

fn use_orders(cursor: &mut Cursor<'_>, values: usize) -> Result<Vec<UseOrder>> {
    let count = if values == 1 { 1 } else { cursor.count("orders of uses")? };
    let mut orders = Vec::new();
    for _ in 0..count {
        let index = if values == 1 { 0 } else { u64::from(cursor.index(values, "value")?) };
        let at = cursor.offset();
        let (count, pairs) = cursor.flagged()?;
        let mut order = Vec::new();
        for _ in 0..cursor.bounded(at, count, "uses")? {
            order.push(cursor.varint()?);
        }
        orders.push(UseOrder { index, pairs, order });
    }
    Ok(orders)
}

/// Writes operations, and numbers the values of each scope from 0.
#[derive(Default)]
pub(super) struct Writer {
    /// What operands call each value, by its number.
    names: std::collections::HashMap<ValueId, u64>,
    /// The next number of the scope.
    next: u64,
}

impl Writer {
    pub(super) fn write(&mut self, block: &Block) -> Emitter {
        let mut out = Emitter::default();
        out.flagged(block.operations.len() as u64, false);
        for operation in &block.operations {
            self.operation(operation, &mut out);
        }
        out
    }

    fn operation(&mut self, operation: &BytecodeOp, out: &mut Emitter) {
        out.varint(u64::from(operation.name.0));
        let bit = |bit, set| if set { bit } else { 0 };
        out.bytes.push(
            bit(HAS_ATTRIBUTES, operation.attributes.is_some())
                | bit(HAS_RESULTS, !operation.results.is_empty())
                | bit(HAS_OPERANDS, !operation.operands.is_empty())
                | bit(HAS_SUCCESSORS, !operation.successors.is_empty())
                | bit(HAS_REGIONS, !operation.regions.is_empty())
                | bit(HAS_USE_ORDERS, operation.use_orders.is_some())
                | bit(HAS_PROPERTIES, operation.properties.is_some()),
        );
        out.varint(u64::from(operation.location.0));
        if let Some(attributes) = operation.attributes {
            out.varint(u64::from(attributes.0));
        }
        if let Some(properties) = operation.properties {
            out.varint(u64::from(properties));
        }
        let mut list = |items: &mut dyn ExactSizeIterator<Item = u64>| {
            if items.len() > 0 {
                out.varint(items.len() as u64);
                items.for_each(|item| out.varint(item));
            }
        };
        list(&mut operation.results.iter().map(|r| u64::from(r.ty.0)));
        // A value that is defined nowhere is written as the number that no reader accepts.
        list(&mut operation.operands.iter().map(|v| self.names.get(v).copied().unwrap_or(u64::MAX)));
        list(&mut operation.successors.iter().map(|s| u64::from(*s)));
        if let Some(orders) = &operation.use_orders {
            write_use_orders(orders, operation.results.len(), out);
        }
        if operation.regions.is_empty() {
            return;
        }
        out.flagged(operation.regions.len() as u64, operation.isolated);
        for region in &operation.regions {
            if operation.isolated {
                let (mut inner, mut section) = (Writer::default(), Emitter::default());
                inner.region(region, &mut section);
                out.section(SectionId::Ir as u8, section);
            } else {
                self.region(region, out);
            }
        }
    }

    fn region(&mut self, region: &Region, out: &mut Emitter) {
        out.varint(region.blocks.len() as u64);
        if region.blocks.is_empty() {
            return;
        }
        let before = self.next;
        for block in &region.blocks {
            let results = block.operations.iter().flat_map(|o| &o.results);
            for definition in block.arguments.iter().map(|a| &a.definition).chain(results) {
                self.names.insert(definition.value, self.next);
                self.next += 1;
            }
        }
        out.varint(self.next - before);
        for block in &region.blocks {
            let has_arguments = !block.arguments.is_empty();
            out.flagged(block.operations.len() as u64, has_arguments);
            if has_arguments {
                out.varint(block.arguments.len() as u64);
                for argument in &block.arguments {
                    out.flagged(u64::from(argument.definition.ty.0), argument.location.is_some());
                    if let Some(location) = argument.location {
                        out.varint(u64::from(location.0));
                    }
                }
                out.bytes.push(if block.use_orders.is_some() { HAS_USE_ORDERS } else { 0 });
                if let Some(orders) = &block.use_orders {
                    write_use_orders(orders, block.arguments.len(), out);
                }
            }
            for operation in &block.operations {
                self.operation(operation, out);
            }
        }
        self.next = before;
    }
}

fn write_use_orders(orders: &[UseOrder], values: usize, out: &mut Emitter) {
    if values != 1 {
        out.varint(orders.len() as u64);
    }
    for order in orders {
        if values != 1 {
            out.varint(order.index);
        }
        out.flagged(order.order.len() as u64, order.pairs);
        order.order.iter().for_each(|item| out.varint(*item));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_regions_share_the_bytes_for_their_values() {
        // Each operation has a region that announces 600 values and holds the next operation.
        let mut bytes = vec![0x05];
        for _ in 0..100 {
            bytes.extend_from_slice(&[0x01, HAS_REGIONS, 0x01, 0x05, 0x03, 0x62, 0x09, 0x05]);
        }
        bytes.resize(1700, 0);
        let tables = Tables { op_names: 1, attributes: 1, types: 1, properties: 0 };
        let error = Reader::new(tables).read(Cursor::new(&bytes, 0)).unwrap_err();
        assert!(error.to_string().contains("regions announce 1800 values in 1700 bytes"), "{error}");
    }
}
