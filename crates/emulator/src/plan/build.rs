//! The state of a lowering: buffers, views of values, and the steps so far.

use std::sync::Arc;

use ferrane_device::{Error, ErrorKind, Result};
use ferrane_mil::{Arg, Constant, DataType, Function, Op, Opset, Type, ValueDef, ValueId, Weights};

use super::args::{Args, floats};
use super::bytes::ByteOperands;
use super::member::Open;
use super::ports::Ports;
use crate::ir::{
    Buffer, CodedWeight, ConstantContent, Group, MemorySpace, Nest, Policy, Step, StepKind, Storage, View, is_dense,
    row_major,
};
use crate::refusal::unsupported;

/// The highest rank of a value. Lowering a `tile` doubles it internally.
pub(super) const MAX_RANK: usize = 8;

/// Limits on constant folding: the folded constants of a function may have at most the larger of
/// `FOLD_FLOOR` bytes and `FOLD_TIMES` times the constants that the program states. Widening and
/// reordering every weight stay well below.
const FOLD_FLOOR: usize = 1 << 20;
const FOLD_TIMES: usize = 8;

/// The result of a lowering.
pub(super) struct Lowered<'a> {
    pub buffers: Vec<Buffer<'a>>,
    pub steps: Vec<Step>,
    /// Steps that depend only on constants, to be run once.
    pub initial: Vec<Step>,
}

pub(super) struct Lowering<'a> {
    pub function: &'a Function,
    pub weights: &'a Weights,
    pub policy: Policy<'a>,
    pub opset: Opset,
    pub buffers: Vec<Buffer<'a>>,
    /// The view of each value, once it is known.
    pub views: Vec<Option<View>>,
    /// The home of each value: the view where it must end up, if any.
    pub homes: Vec<Option<View>>,
    /// The concats so far, from the last one on: the axis, the values, and the home.
    pub concats: Vec<(usize, Vec<ValueId>, View)>,
    /// Dense strides that suit the readers of a value without a home.
    pub orders: Vec<Option<Vec<isize>>>,
    /// Values with their channels last (`images`).
    pub images: Vec<bool>,
    /// Results of `pad` that only a convolution reads, which pads for itself.
    pub padding: Vec<bool>,
    /// Copies of images with their channels last.
    pub turned: Vec<(View, View)>,
    /// Number of readers of each value, including the function's outputs.
    pub uses: Vec<usize>,
    /// Weights of products that stay codes, by value.
    pub coded: Vec<Option<Arc<CodedWeight>>>,
    /// What products of codes with codes read, by result, until they are lowered.
    pub bytes: Vec<Option<ByteOperands<'a>>>,
    /// Codes that such a product reads, by value.
    pub multiplied: Vec<bool>,
    /// fp32 copies of constant operands of products.
    pub wide: Vec<(View, View)>,
    pub open: Vec<Open>,
    pub steps: Vec<Step>,
    pub initial: Vec<Step>,
    /// Bytes of the constants that the program states.
    pub stated: usize,
    folded: usize,
    /// Position in the body of the op that is being lowered.
    pub at: usize,
    /// The op that is being lowered and its first result, for messages.
    pub label: (String, String),
}

impl<'a> Lowering<'a> {
    pub(super) fn new(function: &'a Function, weights: &'a Weights, policy: Policy<'a>) -> Result<Lowering<'a>> {
        let opset = function.opset().map_err(|e| Error::new(ErrorKind::Unsupported, e.to_string()))?;
        let count = function.values.len();
        Ok(Lowering {
            function,
            weights,
            policy,
            opset,
            buffers: Vec::new(),
            views: vec![None; count],
            homes: vec![None; count],
            concats: Vec::new(),
            orders: vec![None; count],
            images: vec![false; count],
            padding: vec![false; count],
            turned: Vec::new(),
            uses: vec![0; count],
            coded: vec![None; count],
            bytes: vec![None; count],
            multiplied: vec![false; count],
            wide: Vec::new(),
            open: Vec::new(),
            steps: Vec::new(),
            initial: Vec::new(),
            stated: 0,
            folded: 0,
            at: 0,
            label: Default::default(),
        })
    }

    pub(super) fn run(mut self, ports: &Ports) -> Result<Lowered<'a>> {
        let procedure = &ports.procedure;
        let mut inputs = ports.inputs.iter().filter_map(|&i| Some((i, procedure.inputs.get(i)?)));
        let mut states = procedure.states.iter().enumerate();
        for &value in &self.function.inputs {
            let view = match self.function.value(value).ty {
                Type::State(_) => states.next().map(|(i, port)| self.surface(MemorySpace::State(i), &port.layout)),
                _ => inputs.next().map(|(i, port)| self.surface(MemorySpace::Input(i), &port.layout)),
            };
            self.views[value.index()] = view.transpose()?;
        }
        let mut outputs = Vec::new();
        for (i, port) in ports.outputs.iter().filter_map(|&i| Some((i, procedure.outputs.get(i)?))) {
            outputs.push(self.surface(MemorySpace::Output(i), &port.layout)?);
        }
        self.count_uses();
        self.find_images()?;
        self.find_homes(&outputs)?;
        let ops = &self.function.body().ops;
        for (at, &id) in ops.iter().enumerate() {
            let op = self.function.op(id);
            if op.name == "const" || !self.is_needed(op) {
                continue;
            }
            self.at = at;
            let value = op.outputs.first().map_or("", |v| &self.function.value(*v).name);
            self.label = (op.name.clone(), value.to_string());
            for &output in &op.outputs {
                self.shape(output)?;
            }
            self.lower(op)?;
        }
        for (&value, output) in self.function.body().outputs.iter().zip(&outputs) {
            self.label = ("output".into(), self.function.value(value).name.clone());
            let view = self.view(value)?;
            if !view.same_elements(output) {
                self.copy(&view, output)?;
            }
        }
        self.flush_all()?;
        Ok(Lowered { buffers: self.buffers, steps: self.steps, initial: self.initial })
    }

    fn surface(&mut self, space: MemorySpace, layout: &ferrane_device::Layout) -> Result<View> {
        let storage = Storage::of(layout.dtype).ok_or_else(|| unsupported("main", "a port has no element type"))?;
        check_shape("main", &layout.shape)?;
        let size = storage.bytes();
        if layout.strides.iter().any(|stride| stride % size != 0) {
            return Err(unsupported(
                "main",
                format!("the strides of a port, {:?} bytes, split elements", layout.strides),
            ));
        }
        let elements = layout.allocation / size;
        let buffer = self.add(Buffer { space, storage, elements, sole: false, data: None, start: 0 });
        let mut view = View::dense(buffer, storage, &layout.shape);
        // The stride of an extent of 1 is never used: it stays the dense one, so that packed ports
        // are dense views.
        for ((stride, &bytes), &extent) in view.strides.iter_mut().zip(&layout.strides).zip(&layout.shape) {
            if extent > 1 {
                *stride = (bytes / size) as isize;
            }
        }
        Ok(view)
    }

    /// Counts the uses by ops that an output depends on, directly or not.
    fn count_uses(&mut self) {
        let body = self.function.body();
        for output in &body.outputs {
            self.uses[output.index()] += 1;
        }
        for &id in body.ops.iter().rev() {
            let op = self.function.op(id);
            if self.is_needed(op) {
                // Codes that may be dequantized a second time need memory of their own.
                let again = op.name == "dequantize" && self.rule(|rules| rules.qdq_defect);
                let bytes = self.byte_operands(op);
                for value in op.operands() {
                    let Some(value) = bytes.as_ref().map_or(Some(value), |bytes| bytes.read_for(value)) else {
                        continue;
                    };
                    self.uses[value.index()] += 1 + usize::from(again);
                }
                if let (Some(bytes), Some(y)) = (bytes, op.outputs.first()) {
                    self.multiplied[bytes.x.index()] = true;
                    self.bytes[y.index()] = Some(bytes);
                }
            }
        }
    }

    /// True for an op that an output or a state depends on.
    pub(super) fn is_needed(&self, op: &Op) -> bool {
        changes_state(&op.name) || op.outputs.iter().any(|v| self.uses[v.index()] > 0)
    }

    pub(super) fn args(&self, op: &'a Op) -> Result<Args<'a>> {
        Args::new(self.function, self.weights, self.opset, op)
    }

    /// The extents of a value, which must be known.
    pub(super) fn shape(&self, value: ValueId) -> Result<Vec<usize>> {
        let value = self.function.value(value);
        let shape = value.ty.shape().ok_or_else(|| {
            self.fail(format!("`{}` is a {}; the emulator wants tensors with known extents", value.name, value.ty))
        })?;
        check_shape(&self.label.0, &shape)?;
        Ok(shape)
    }

    pub(super) fn dtype(&self, value: ValueId) -> Result<DataType> {
        let value = self.function.value(value);
        value.ty.dtype().ok_or_else(|| self.fail(format!("`{}` is a {}, not a tensor", value.name, value.ty)))
    }

    /// How a value is stored between ops.
    pub(super) fn storage(&self, value: ValueId) -> Result<Storage> {
        let dtype = self.dtype(value)?;
        self.policy
            .storage(dtype)
            .ok_or_else(|| self.fail(format!("has values of type {dtype}, which the emulator lacks")))
    }

    pub(super) fn fail(&self, reason: impl std::fmt::Display) -> Error {
        unsupported(&self.label.0, reason)
    }

    fn add(&mut self, buffer: Buffer<'a>) -> usize {
        self.buffers.push(buffer);
        self.buffers.len() - 1
    }

    /// A new buffer for intermediate values.
    pub(super) fn fresh(&mut self, storage: Storage, shape: &[usize], strides: Option<Vec<isize>>) -> View {
        let elements = shape.iter().product();
        let buffer =
            self.add(Buffer { space: MemorySpace::Arena, storage, elements, sole: true, data: None, start: 0 });
        let strides = strides.filter(|s| is_dense(shape, s)).unwrap_or_else(|| row_major(shape));
        View { buffer, storage, offset: 0, shape: shape.to_vec(), strides }
    }

    /// A new buffer with the content of a constant.
    pub(super) fn constant(&mut self, storage: Storage, shape: &[usize], data: ConstantContent<'a>) -> View {
        let elements = shape.iter().product::<usize>();
        self.stated += elements.saturating_mul(storage.bytes());
        let buffer = self.add(Buffer {
            space: MemorySpace::Constant,
            storage,
            elements,
            sole: false,
            data: Some(data),
            start: 0,
        });
        View::dense(buffer, storage, shape)
    }

    pub(super) fn constant_floats(&mut self, shape: &[usize], values: &[f32]) -> View {
        self.constant(Storage::F32, shape, ConstantContent::Made(bytemuck::cast_slice(values).to_vec()))
    }

    /// The view that a value is to be written to: its home, or a new buffer.
    pub(super) fn result(&mut self, value: ValueId) -> Result<View> {
        if let Some(home) = &self.homes[value.index()] {
            return Ok(home.clone());
        }
        let (storage, shape) = (self.storage(value)?, self.shape(value)?);
        let order = self.orders[value.index()].clone();
        Ok(self.fresh(storage, &shape, order))
    }

    /// The view of a value. Emits the open group that computes it, if any.
    pub(super) fn view(&mut self, value: ValueId) -> Result<View> {
        self.flush_for(value)?;
        if let Some(view) = &self.views[value.index()] {
            return Ok(view.clone());
        }
        let constant = self.function.constant(value).ok_or_else(|| {
            let name = &self.function.value(value).name;
            Error::new(ErrorKind::InvalidProgram, format!("`{name}` is used before it is computed"))
        })?;
        let view = self.stage(value, constant)?;
        self.views[value.index()] = Some(view.clone());
        Ok(view)
    }

    /// The view of an argument: a value or an inline literal.
    pub(super) fn operand(&mut self, args: &Args<'a>, op: &'a Op, name: &str) -> Result<View> {
        match op.arg(name) {
            Some(Arg::Const(constant)) => self.stage_as(constant, false),
            _ => match args.value(name) {
                Some(value) => self.view(value),
                None => Err(args.unsupported(format!("argument `{name}` must be one value"))),
            },
        }
    }

    fn stage(&mut self, value: ValueId, constant: &'a Constant) -> Result<View> {
        // Weights of products are kept as fp32: otherwise the product would widen them at every
        // evaluation.
        let product = |op: &Op| matches!(op.name.as_str(), "matmul" | "linear" | "conv");
        let ops = &self.function.body().ops;
        let large = constant.ty().elements().is_some_and(|n| n >= 1024);
        let widen = large
            && ops
                .iter()
                .any(|&id| product(self.function.op(id)) && self.function.op(id).operands().any(|v| v == value));
        self.stage_as(constant, widen)
    }

    /// A constant in memory.
    pub(super) fn stage_as(&mut self, constant: &'a Constant, widen: bool) -> Result<View> {
        let ty = constant.ty();
        let (Some(dtype), Some(shape)) = (ty.dtype(), ty.shape()) else {
            return Err(self.fail(format!("a constant of type {ty} is not a tensor")));
        };
        check_shape(&self.label.0, &shape)?;
        let storage = self.policy.storage(dtype);
        let missing = || unsupported("const", format!("the elements of a constant of type {ty} are not there"));
        if dtype == DataType::Fp16 && widen {
            let bytes = constant.bytes(self.weights).filter(|b| Some(b.len()) == ty.bytes()).ok_or_else(missing)?;
            return Ok(self.constant(Storage::F32, &shape, ConstantContent::Widened(bytes)));
        }
        if dtype == DataType::Fp16 && storage == Some(Storage::F32) {
            let values = floats(constant, self.weights).ok_or_else(missing)?;
            return Ok(self.constant_floats(&shape, &values));
        }
        let storage =
            storage.ok_or_else(|| self.fail(format!("has a constant of type {dtype}, which the emulator lacks")))?;
        let bytes = constant.bytes(self.weights).ok_or_else(missing)?;
        if Some(bytes.len()) != ty.bytes() {
            return Err(missing());
        }
        Ok(self.constant(storage, &shape, ConstantContent::Stated(bytes)))
    }

    /// True for values known at compile time.
    pub(super) fn is_constant(&self, view: &View) -> bool {
        self.buffers[view.buffer].space == MemorySpace::Constant
    }

    /// Appends a step. A step that reads only constants runs at compile time, unless that would
    /// make much larger constants than the program states: a short text may declare any size, and
    /// only an evaluation can refuse it.
    pub(super) fn push(&mut self, kind: StepKind, reads: Vec<View>, writes: Vec<View>) -> Result<()> {
        let (op, value) = self.label.clone();
        let step = Step { op, value, reads, writes, kind };
        let known = step.reads.iter().all(|v| self.is_constant(v));
        let sole = step
            .writes
            .iter()
            .all(|v| self.buffers[v.buffer].sole && self.buffers[v.buffer].space == MemorySpace::Arena);
        let bytes = step.writes.iter().map(|v| self.buffers[v.buffer].bytes()).try_fold(self.folded, |sum, bytes| {
            sum.checked_add(bytes?).filter(|&sum| sum <= FOLD_FLOOR.max(self.stated.saturating_mul(FOLD_TIMES)))
        });
        if let (true, true, Some(bytes)) = (known, sole, bytes) {
            self.folded = bytes;
            for view in &step.writes {
                self.buffers[view.buffer].space = MemorySpace::Constant;
            }
            self.initial.push(step);
        } else {
            self.steps.push(step);
        }
        Ok(())
    }

    /// `to`, or a new dense buffer if a step with these reads cannot write there.
    pub(super) fn apart(&mut self, to: &View, reads: &[View]) -> View {
        if reads.iter().any(|read| read.overlaps(to)) {
            self.fresh(to.storage, &to.shape.clone(), None)
        } else {
            to.clone()
        }
    }

    /// Copies elements, converting floats.
    pub(super) fn copy(&mut self, from: &View, to: &View) -> Result<()> {
        // Slots that interleave in one buffer (a value that occurs twice in a concat along the last
        // axis) are copied through a third buffer.
        let around = self.apart(to, std::slice::from_ref(from));
        if around.buffer != to.buffer {
            self.copy(from, &around)?;
            return self.copy(&around, to);
        }
        if from.storage == to.storage {
            let nest = Nest::new(&to.shape, &[to, from], 1, None);
            self.push(StepKind::Move(nest), vec![from.clone()], vec![to.clone()])
        } else if from.storage.is_float() && to.storage.is_float() {
            let group = Group::conversion(to, from);
            self.push(StepKind::Group(group), vec![from.clone()], vec![to.clone()])
        } else {
            Err(self.fail("moves elements between types"))
        }
    }

    /// A dense row-major copy, or the view itself if it is one already (and of that storage).
    pub(super) fn dense(&mut self, view: &View, storage: Storage) -> Result<View> {
        let packed = row_major(&view.shape);
        let is =
            view.storage == storage && (0..packed.len()).all(|i| view.shape[i] == 1 || view.strides[i] == packed[i]);
        if is {
            return Ok(view.clone());
        }
        let to = self.fresh(storage, &view.shape, None);
        self.copy(view, &to)?;
        Ok(to)
    }

    /// A constant operand of a product as fp32.
    pub(super) fn widened(&mut self, view: &View) -> Result<View> {
        if view.storage != Storage::F16 || !self.is_constant(view) {
            return Ok(view.clone());
        }
        if let Some((_, wide)) = self.wide.iter().find(|(v, _)| v == view) {
            return Ok(wide.clone());
        }
        let to = self.fresh(Storage::F32, &view.shape, None);
        self.copy(view, &to)?;
        self.wide.push((view.clone(), to.clone()));
        Ok(to)
    }

    /// Records that a value was written to `at`, and copies it to its home if that is elsewhere.
    pub(super) fn settle(&mut self, value: ValueId, at: View) -> Result<()> {
        let at = match self.homes[value.index()].clone() {
            Some(home) if !home.same_elements(&at) => {
                self.copy(&at, &home)?;
                home
            }
            _ => at,
        };
        self.views[value.index()] = Some(at);
        Ok(())
    }

    /// Defines a value as a view of `source`: `alias`, or a copy of the elements of `source` in
    /// order if strides cannot express it.
    pub(super) fn alias(&mut self, value: ValueId, source: &View, alias: Option<View>) -> Result<()> {
        if let Some(alias) = alias {
            return self.settle(value, alias);
        }
        let to = self.result(value)?;
        let seen = to.reshaped(&source.shape);
        let (to, seen) = match seen {
            Some(seen) => (to, seen),
            None => {
                let plain = self.fresh(source.storage, &to.shape.clone(), None);
                let seen = View { shape: source.shape.clone(), strides: row_major(&source.shape), ..plain.clone() };
                (plain, seen)
            }
        };
        self.copy(source, &seen)?;
        self.settle(value, to)
    }

    /// True if a value is computed by an op of this function: the lowering may choose where it is
    /// written.
    pub(super) fn is_computed(&self, value: ValueId) -> bool {
        match self.function.value(value).def {
            ValueDef::Op(op, _) => {
                let name = &self.function.op(op).name;
                name != "const" && !name.starts_with("constexpr_")
            }
            _ => false,
        }
    }
}

/// True for ops that run for their effect on a state, even if their result is unused.
pub(crate) fn changes_state(op: &str) -> bool {
    matches!(op, "coreml_update_state" | "write_state")
}

fn check_shape(op: &str, shape: &[usize]) -> Result<()> {
    let total = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).filter(|&n| n <= isize::MAX as usize / 16);
    if shape.len() > MAX_RANK || total.is_none() {
        return Err(unsupported(op, format!("shape {shape:?} is too large (the highest rank is {MAX_RANK})")));
    }
    if shape.contains(&0) {
        return Err(unsupported(op, format!("shape {shape:?} has no elements")));
    }
    Ok(())
}
