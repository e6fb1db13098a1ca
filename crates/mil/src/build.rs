//! The builder: programs from code. It checks every op against the registry as it is added.
//!
//! Names are made unique, so that a piece of a program can be built twice. A constant argument
//! becomes a `const` op named after op and argument (`scores_transpose_y`), the form that every
//! engine accepts. A call that fails adds nothing.

mod blocks;
mod calls;

pub use blocks::OpenBlock;
pub use calls::{Conv, ReducedDims, Transpose};

use std::collections::{HashMap, HashSet};

use crate::error::MilError;
use crate::op;
use crate::ops::{self, InferContext, Presence};
use crate::opset::{Opset, OpsetTag};
use crate::program::{
    Arg, Block, BlockId, Constant, DataType, Dialect, Function, Op, OpId, Payload, Program, Type, Value, ValueDef,
    ValueId,
};
use crate::weights::{WeightId, Weights};

/// The `buildInfo` of published programs (mil-text §1).
const BUILD_INFO: [(&str, &str); 4] = [
    ("coremlc-component-MIL", "3510.2.1"),
    ("coremlc-version", "3505.4.1"),
    ("coremltools-component-milinternal", ""),
    ("coremltools-version", "9.0"),
];

/// The usual `buildInfo` dictionary.
pub fn build_info() -> Constant {
    let string = || Box::new(Type::scalar(DataType::String));
    let entries = BUILD_INFO.iter().map(|(k, v)| (Constant::string(k), Constant::string(v))).collect();
    Constant::Dict(Type::Dict(string(), string()), entries)
}

/// Builds a program of one function.
#[derive(Clone, Debug)]
pub struct Builder {
    function: Function,
    opset: Opset,
    weights: Weights,
    /// The names that are taken, each with the number that a repetition of it tries first: all
    /// smaller ones are taken.
    names: HashMap<String, usize>,
    /// The block that ops are added to: the body, or a nested block while it is built.
    block: BlockId,
}

impl From<ValueId> for Arg {
    fn from(value: ValueId) -> Arg {
        Arg::Value(value)
    }
}

impl From<Constant> for Arg {
    fn from(constant: Constant) -> Arg {
        Arg::Const(constant)
    }
}

impl From<Vec<ValueId>> for Arg {
    fn from(values: Vec<ValueId>) -> Arg {
        Arg::List(values)
    }
}

impl From<&[ValueId]> for Arg {
    fn from(values: &[ValueId]) -> Arg {
        Arg::List(values.to_vec())
    }
}

impl Builder {
    /// An empty function `name` in an opset. [`Opset`] parses: `"ios18".parse()?`.
    pub fn new(name: &str, opset: Opset) -> Builder {
        let function = Function {
            name: name.to_string(),
            bodies: vec![(OpsetTag::Known(opset), BlockId(0))],
            blocks: vec![Block::default()],
            ..Function::default()
        };
        Builder { function, opset, weights: Weights::new(), names: HashMap::new(), block: BlockId(0) }
    }

    /// As [`Builder::new`], with existing weights, whose records keep their ids: so the functions
    /// of one program are built one after the other.
    pub fn over(name: &str, opset: Opset, weights: Weights) -> Builder {
        Builder { weights, ..Builder::new(name, opset) }
    }

    /// Adds a parameter. Its name is part of the interface, so it must be an identifier that is not
    /// taken.
    ///
    /// # Errors
    /// [`MilError::Name`].
    pub fn input(&mut self, name: &str, ty: Type) -> Result<ValueId, MilError> {
        self.check_name(name)?;
        if self.names.insert(name.to_string(), 1).is_some() {
            return Err(MilError::Name { name: name.to_string(), reason: "is taken".into() });
        }
        let position = self.function.inputs.len() as u32;
        let id = self.value(name.to_string(), ty, ValueDef::Input(position));
        self.function.inputs.push(id);
        Ok(id)
    }

    /// Adds a `const` op.
    ///
    /// # Errors
    /// [`MilError::Constant`] when the bytes disagree with the type.
    pub fn constant(&mut self, name: &str, value: Constant) -> Result<ValueId, MilError> {
        check_constant(name, &value, &self.weights)?;
        let name = self.unique(name);
        Ok(self.push_const(name, value))
    }

    /// Adds a `const` op whose elements lie in a blob file, record offset 64. `path` is spelled as
    /// in text: `@model_path/weights/mask.bin`. `bytes` are row-major little-endian elements.
    ///
    /// # Errors
    /// [`MilError::Constant`] when the number of bytes disagrees with the type, or a blob file
    /// cannot hold the element type.
    pub fn weight(
        &mut self,
        name: &str,
        path: &str,
        dtype: DataType,
        shape: &[usize],
        bytes: impl Into<std::sync::Arc<[u8]>>,
    ) -> Result<ValueId, MilError> {
        let bytes = bytes.into();
        if Type::tensor(dtype, shape).bytes() != Some(bytes.len()) {
            let reason = format!("{} bytes for {}", bytes.len(), Type::tensor(dtype, shape));
            return Err(MilError::Constant { name: name.to_string(), reason });
        }
        check_stored(name, dtype)?;
        let id = self.weights.add(path, dtype, bytes);
        self.weight_record(name, dtype, shape, id)
    }

    /// Adds a `const` op over a record that is already in the weights (see
    /// [`Builder::weights_mut`]), so that several constants can share one.
    ///
    /// # Errors
    /// [`MilError::Constant`] when record and type disagree.
    pub fn weight_record(
        &mut self,
        name: &str,
        dtype: DataType,
        shape: &[usize],
        id: WeightId,
    ) -> Result<ValueId, MilError> {
        check_stored(name, dtype)?;
        self.constant(name, Constant::weight(dtype, shape, id))
    }

    /// The weights, for adding records.
    pub fn weights_mut(&mut self) -> &mut Weights {
        &mut self.weights
    }

    /// The type of a value.
    pub fn ty(&self, id: ValueId) -> &Type {
        &self.function.value(id).ty
    }

    /// True if a `const` op defines the value.
    pub(crate) fn is_const(&self, id: ValueId) -> bool {
        self.function.constant(id).is_some()
    }

    /// The extents of a value.
    ///
    /// # Errors
    /// [`MilError::Shape`] when they are not all known.
    pub fn shape(&self, id: ValueId) -> Result<Vec<usize>, MilError> {
        self.ty(id).shape().ok_or_else(|| MilError::shape("shape", format!("{} has unknown extents", self.ty(id))))
    }

    /// A scalar of the element type of `like`, for arithmetic with it: fp16 (rounded to nearest
    /// even), fp32 or int32.
    ///
    /// # Errors
    /// [`MilError::Constant`] for another element type.
    pub fn scalar_like(&self, like: ValueId, value: f32) -> Result<Constant, MilError> {
        match self.ty(like).dtype() {
            Some(DataType::Fp16) => Ok(Constant::fp16(value)),
            Some(DataType::Fp32) => Ok(Constant::fp32(value)),
            Some(DataType::Int32) => Ok(Constant::int32(value as i32)),
            _ => Err(MilError::Constant {
                name: value.to_string(),
                reason: format!("no scalar arithmetic with {}", self.ty(like)),
            }),
        }
    }

    /// Adds an op with one result.
    ///
    /// # Errors
    /// A check of the registry fails, or the op has several results.
    pub fn op<'n>(
        &mut self,
        op: &str,
        name: &str,
        args: impl IntoIterator<Item = (&'n str, Arg)>,
    ) -> Result<ValueId, MilError> {
        let args = collect(args);
        let types = self.infer(op, &args)?;
        if types.len() != 1 {
            return Err(MilError::shape(op, format!("has {} results, not one", types.len())));
        }
        Ok(self.push(op, name, args, types)[0])
    }

    /// Adds an op with any number of results, named `name_0`, `name_1`, … when there are several.
    ///
    /// # Errors
    /// A check of the registry fails.
    pub fn ops<'n>(
        &mut self,
        op: &str,
        name: &str,
        args: impl IntoIterator<Item = (&'n str, Arg)>,
    ) -> Result<Vec<ValueId>, MilError> {
        let args = collect(args);
        let types = self.infer(op, &args)?;
        Ok(self.push(op, name, args, types))
    }

    /// Completes the program: the values become the outputs, with these names, in this order. A
    /// value that is already an input or another output is passed through `identity`.
    ///
    /// # Errors
    /// [`MilError::Name`] for a name that is not an identifier, occurs twice or is that of an
    /// input; [`MilError::Invalid`] if there are no outputs.
    pub fn finish(mut self, outputs: &[(&str, ValueId)]) -> Result<Program, MilError> {
        for (i, (name, _)) in outputs.iter().enumerate() {
            self.check_name(name)?;
            let is_input = self.function.inputs.iter().any(|v| self.function.value(*v).name == *name);
            if is_input || outputs[..i].iter().any(|(n, _)| n == name) {
                let reason = if is_input { "is an input" } else { "is an output already" };
                return Err(MilError::Name { name: name.to_string(), reason: reason.into() });
            }
        }
        let mut fixed: Vec<ValueId> = self.function.inputs.clone();
        for (name, value) in outputs {
            if value.index() >= self.function.values.len() {
                return Err(MilError::Invalid { reason: format!("output `{name}` is a value of another program") });
            }
            let value =
                if fixed.contains(value) { self.op(op::IDENTITY, name, [("x", Arg::Value(*value))])? } else { *value };
            fixed.push(value);
            self.rename(value, name);
            self.function.blocks[0].outputs.push(value);
        }
        let program = Program {
            version: (1, 3),
            dialect: Dialect::Shorthand,
            attributes: vec![("buildInfo".to_string(), build_info())],
            functions: vec![self.function],
            weights: self.weights,
        };
        crate::verify::verify(&program)?;
        Ok(program)
    }

    fn infer(&self, op: &str, args: &[(String, Arg)]) -> Result<Vec<Type>, MilError> {
        let def = ops::lookup(op, self.opset)?;
        if op == op::CONST {
            return Err(MilError::shape(op, "is added by `constant` and `weight`"));
        }
        for (name, arg) in args {
            let known = match arg {
                Arg::Value(v) => v.index() < self.function.values.len(),
                Arg::List(vs) => !vs.is_empty() && vs.iter().all(|v| v.index() < self.function.values.len()),
                Arg::Const(c) => {
                    check_constant(name, c, &self.weights)?;
                    true
                }
            };
            if !known {
                return Err(MilError::shape(op, format!("argument `{name}` names no value of this program")));
            }
        }
        let (function, weights) = (&self.function, &self.weights);
        ops::infer(&InferContext { function, weights, def, args, attributes: &[], blocks: &[] })
    }

    fn push(&mut self, op: &str, name: &str, args: Vec<(String, Arg)>, types: Vec<Type>) -> Vec<ValueId> {
        let label = self.unique(name);
        let args = self.spell_defaults(op, args);
        let args = args
            .into_iter()
            .map(|(argument, arg)| {
                let arg = match arg {
                    Arg::Const(c) => {
                        let name = self.unique(&format!("{label}_{argument}"));
                        Arg::Value(self.push_const(name, c))
                    }
                    other => other,
                };
                (argument, arg)
            })
            .collect();
        let id = OpId(self.function.ops.len() as u32);
        let several = types.len() > 1;
        let outputs = types
            .into_iter()
            .enumerate()
            .map(|(i, ty)| {
                let name = if several { self.unique(&format!("{label}_{i}")) } else { label.clone() };
                self.value(name, ty, ValueDef::Op(id, i as u32))
            })
            .collect::<Vec<_>>();
        let attributes = vec![("name".to_string(), Constant::string(&label))];
        self.push_op(Op {
            name: op.to_string(),
            args,
            attributes,
            outputs: outputs.clone(),
            blocks: Vec::new(),
            span: None,
        });
        outputs
    }

    /// Adds the defaults that engines expect to be written.
    fn spell_defaults(&self, op: &str, mut args: Vec<(String, Arg)>) -> Vec<(String, Arg)> {
        let Some(def) = ops::find(op, self.opset) else { return args };
        let domain = |name: &str| match args.iter().find(|(n, _)| n == name) {
            Some((_, Arg::Value(v))) => self.ty(*v).dtype(),
            Some((_, Arg::Const(c))) => c.ty().dtype(),
            _ => None,
        };
        let dtype = domain("x").unwrap_or(DataType::Fp16);
        for param in def.params.iter().filter(|p| p.spelled) {
            if let Presence::Default(value) = param.presence
                && !args.iter().any(|(n, _)| n == param.name)
            {
                args.push((param.name.to_string(), Arg::Const(value.constant(dtype))));
            }
        }
        args
    }

    fn push_const(&mut self, name: String, value: Constant) -> ValueId {
        let id = OpId(self.function.ops.len() as u32);
        let output = self.value(name.clone(), value.ty(), ValueDef::Op(id, 0));
        let attributes = vec![("name".to_string(), Constant::string(&name)), ("val".to_string(), value)];
        self.push_op(Op {
            name: op::CONST.to_string(),
            args: Vec::new(),
            attributes,
            outputs: vec![output],
            blocks: Vec::new(),
            span: None,
        });
        output
    }

    fn push_op(&mut self, op: Op) {
        let id = OpId(self.function.ops.len() as u32);
        self.function.ops.push(op);
        self.function.blocks[self.block.index()].ops.push(id);
    }

    fn value(&mut self, name: String, ty: Type, def: ValueDef) -> ValueId {
        let id = ValueId(self.function.values.len() as u32);
        self.function.values.push(Value { name, ty, def });
        id
    }

    fn check_name(&self, name: &str) -> Result<(), MilError> {
        if is_identifier(name) {
            return Ok(());
        }
        Err(MilError::Name { name: name.to_string(), reason: "is not an identifier".into() })
    }

    /// An identifier that is not taken, derived from `name`.
    fn unique(&mut self, name: &str) -> String {
        let base = identifier(name);
        let Some(&first) = self.names.get(&base) else {
            self.names.insert(base.clone(), 1);
            return base;
        };
        let mut n = first;
        let mut candidate = format!("{base}_{n}");
        while self.names.contains_key(&candidate) {
            n += 1;
            candidate = format!("{base}_{n}");
        }
        self.names.insert(base, n + 1);
        self.names.insert(candidate.clone(), 1);
        candidate
    }

    fn rename(&mut self, value: ValueId, name: &str) {
        if self.function.value(value).name == name {
            return;
        }
        // Only a name that is taken is looked for among all values.
        let taken = self.names.contains_key(name);
        if taken && let Some(other) = self.function.values.iter().position(|v| v.name == name) {
            let fresh = self.unique(name);
            self.set_name(ValueId(other as u32), fresh);
        }
        self.names.entry(name.to_string()).or_insert(1);
        self.set_name(value, name.to_string());
    }

    fn set_name(&mut self, value: ValueId, name: String) {
        if let ValueDef::Op(op, 0) = self.function.value(value).def
            && let Some((_, label)) = self.function.ops[op.index()].attributes.iter_mut().find(|(n, _)| n == "name")
        {
            *label = Constant::string(&name);
        }
        self.function.values[value.index()].name = name;
    }
}

fn collect<'n>(args: impl IntoIterator<Item = (&'n str, Arg)>) -> Vec<(String, Arg)> {
    args.into_iter().map(|(n, a)| (n.to_string(), a)).collect()
}

/// Checks that a blob file can hold the element type.
fn check_stored(name: &str, dtype: DataType) -> Result<(), MilError> {
    if crate::weights::blob::code(dtype).is_some() {
        return Ok(());
    }
    Err(MilError::Constant { name: name.to_string(), reason: format!("a blob file holds no {dtype}") })
}

/// Letters, digits and `_`, not starting with a digit.
pub(crate) fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The nearest identifier: other characters become `_`.
fn identifier(name: &str) -> String {
    let mut base: String = name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect();
    if !base.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        base.insert(0, '_');
    }
    base
}

/// The names in a program for the names of ports in a model: the same where they are identifiers
/// and not taken; else other characters become `_`, and a number makes them unique.
pub fn port_names<'a>(ports: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut taken = HashSet::new();
    let ports: Vec<&str> = ports.into_iter().collect();
    taken.extend(ports.iter().filter(|n| is_identifier(n)).map(|n| n.to_string()));
    let mut seen = HashSet::new();
    ports
        .iter()
        .map(|&name| {
            if is_identifier(name) && seen.insert(name.to_string()) {
                return name.to_string();
            }
            let base = identifier(name);
            let mut unique = base.clone();
            let mut n = 1;
            while !taken.insert(unique.clone()) {
                unique = format!("{base}_{n}");
                n += 1;
            }
            unique
        })
        .collect()
}

/// Checks that the bytes, strings or record of a tensor constant agree with its type.
pub(crate) fn check_constant(name: &str, value: &Constant, weights: &Weights) -> Result<(), MilError> {
    let Constant::Tensor { ty, payload } = value else { return Ok(()) };
    let fail = |reason: String| Err(MilError::Constant { name: name.to_string(), reason });
    let found = match payload {
        Payload::Strings(s) => {
            return match ty.dtype() == Some(DataType::String) && ty.elements() == Some(s.len()) {
                true => Ok(()),
                false => fail(format!("{} strings for {ty}", s.len())),
            };
        }
        Payload::Bytes(b) => b.len(),
        Payload::Weight(id) => match (weights.bytes(*id), weights.dtype(*id)) {
            (_, Some(dtype)) if Some(dtype) != ty.dtype() => {
                return fail(format!("the record's element type differs from {ty}"));
            }
            (Some(b), _) => b.len(),
            (None, Some(_)) if ty.elements() == weights.elements(*id) => return Ok(()),
            (None, Some(_)) => return fail(format!("the record's size differs from {ty}")),
            (None, None) => return fail("the weights have no such record".into()),
        },
    };
    match ty.bytes() == Some(found) {
        true => Ok(()),
        false => fail(format!("{found} bytes for {ty}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fp16(shape: &[usize]) -> Type {
        Type::tensor(DataType::Fp16, shape)
    }

    #[test]
    fn builds_attention_scores() -> Result<(), MilError> {
        let mut b = Builder::new("main", Opset::IOS18);
        let q = b.input("q", fp16(&[1, 8, 16, 64]))?;
        let k = b.input("k", fp16(&[1, 8, 16, 64]))?;
        let s =
            b.op("matmul", "scores", [("x", q.into()), ("y", k.into()), ("transpose_y", Constant::bool(true).into())])?;
        assert_eq!(b.ty(s), &fp16(&[1, 8, 16, 16]));
        let p = b.softmax("probs", s, -1)?;
        let program = b.finish(&[("out", p)])?;
        let main = program.function("main").expect("main");
        let names: Vec<&str> = main.values.iter().map(|v| v.name.as_str()).collect();
        // The published kernels write both flags.
        assert_eq!(names, ["q", "k", "scores_transpose_y", "scores_transpose_x", "scores", "probs_axis", "out"]);
        assert_eq!(main.op(OpId(4)).attribute("name").and_then(Constant::as_str), Some("out"));
        Ok(())
    }

    #[test]
    fn refuses_what_is_wrong_and_adds_nothing() -> Result<(), MilError> {
        let mut b = Builder::new("main", Opset::IOS18);
        let x = b.input("x", fp16(&[2, 3]))?;
        let before = b.function.ops.len();
        assert!(
            matches!(b.op("sofmax", "y", [("x", x.into())]), Err(MilError::UnknownOp { suggestion: Some(s), .. }) if s == "softmax")
        );
        assert!(matches!(b.op("relu", "y", []), Err(MilError::MissingArgument { .. })));
        assert!(matches!(b.op("relu", "y", [("X", x.into())]), Err(MilError::UnknownArgument { .. })));
        let y = b.op("add", "y", [("x", x.into()), ("y", Constant::fp32(1.0).into())]);
        assert!(matches!(y, Err(MilError::ArgumentType { .. })), "{y:?}");
        assert!(matches!(b.op("matmul", "y", [("x", x.into()), ("y", x.into())]), Err(MilError::Shape { .. })));
        let bad = Constant::raw(DataType::Fp16, &[3], &[0; 4]);
        assert!(matches!(b.op("add", "y", [("x", x.into()), ("y", bad.into())]), Err(MilError::Constant { .. })));
        assert!(matches!(b.input("x", fp16(&[1])), Err(MilError::Name { .. })));
        assert_eq!(b.function.ops.len(), before);
        let old = Builder::new("main", Opset::IOS17).op("scaled_dot_product_attention", "y", []);
        assert!(matches!(old, Err(MilError::LaterOp { .. })));
        Ok(())
    }

    #[test]
    fn repeated_names_are_numbered() {
        let mut b = Builder::new("main", Opset::IOS18);
        let names = ["v_2", "v", "v", "v", "v_1", "v", "v-1"].map(|name| b.unique(name));
        assert_eq!(names, ["v_2", "v", "v_1", "v_3", "v_1_1", "v_4", "v_1_2"]);
        // Each name is found at once, however often it was given.
        let many: Vec<String> = (0..100_000).map(|_| b.unique("w")).collect();
        assert_eq!(many.last().map(String::as_str), Some("w_99999"));
    }

    #[test]
    fn outputs_take_their_names() -> Result<(), MilError> {
        let mut b = Builder::new("main", Opset::IOS18);
        let x = b.input("x", fp16(&[2]))?;
        let y = b.add("out", x, x)?;
        let z = b.mul("z", y, x)?;
        // `out` is wanted for z: y gives way. x and a second use of z pass through identity.
        let p = b.finish(&[("out", z), ("again", z), ("copy", x)])?;
        let main = &p.functions[0];
        let names: Vec<&str> = main.body().outputs.iter().map(|v| main.value(*v).name.as_str()).collect();
        assert_eq!(names, ["out", "again", "copy"]);
        assert_eq!(main.value(y).name, "out_1");
        Ok(())
    }

    #[test]
    fn a_weight_is_of_a_type_that_a_blob_file_holds() -> Result<(), MilError> {
        let mut b = Builder::new("main", Opset::IOS18);
        for dtype in [DataType::Int64, DataType::UInt64, DataType::Fp64] {
            let refused = b.weight("w", "w.bin", dtype, &[1], vec![0; 8]);
            assert!(matches!(refused, Err(MilError::Constant { .. })), "{dtype}");
        }
        assert!(b.weights_mut().is_empty());
        b.weight("w", "w.bin", DataType::Bool, &[2], vec![0, 1]).map(|_| ())
    }
}
