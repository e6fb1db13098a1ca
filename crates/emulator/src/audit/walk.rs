//! Runs the arithmetics through the function in lockstep, op by op.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferrane_device::{Error, Result};
use ferrane_machine::{Unit, select};
use ferrane_mil::{Constant, DataType, Function, OpId, Program, ValueDef, ValueId, Weights};

use super::compare::{Deviation, HALF_MAX, ValueStats};
use super::{Audit, AuditOptions, AuditRow, Cause, Note, Reading};
use crate::call::{CallArguments, found};
use crate::interpret::{self, Analysis, Cache, Observed};
use crate::tensor_ops::{Data, HeapTensor};
use crate::{Emulator, EmulatorOptions, Numerics};

/// One arithmetic: its emulator, and the caches of its two readings.
struct Column {
    numerics: Numerics,
    emulator: Emulator,
    caches: [Cache; 2],
}

impl Column {
    fn new(numerics: Numerics, options: &AuditOptions) -> Column {
        let AuditOptions { profile, memory, iterations, .. } = options.clone();
        let emulator =
            Emulator::new(EmulatorOptions { numerics, profile, memory, iterations, ..EmulatorOptions::default() });
        Column { numerics, emulator, caches: [Cache::default(), Cache::default()] }
    }
}

/// The two readings of one arithmetic, running.
struct Pair<'a> {
    numerics: Numerics,
    /// The whole function. For `exact`, what every value should be.
    run: Observed<'a>,
    /// Gets the rounded values of `exact` before each op. For `exact`, what a local result should
    /// be.
    local: Observed<'a>,
}

/// What all of them run.
struct Way<'a> {
    function: &'a Function,
    weights: &'a Weights,
    analysis: &'a Analysis,
    inputs: &'a [Arc<HeapTensor>],
    states: &'a [Arc<HeapTensor>],
}

impl<'a> Pair<'a> {
    fn new(way: &Way<'a>, column: &'a Column) -> Result<Pair<'a>> {
        let settings = (column.emulator.table(), column.emulator.bounds());
        let begin = |cache| {
            let mut observed = Observed::new(way.function, way.weights, way.analysis, cache, settings)?;
            observed.bind(way.inputs, way.states).map(|()| observed)
        };
        let [run, local] = &column.caches;
        Ok(Pair { numerics: column.numerics, run: begin(run)?, local: begin(local)? })
    }

    fn step(&mut self, op: OpId) -> Result<()> {
        let named = |e: Error| e.labeled(self.numerics.name());
        self.run.step(op).and_then(|()| self.local.step(op)).map_err(named)
    }
}

pub(super) fn audit(
    program: &Program,
    function: &str,
    given: &[(String, Constant)],
    states: &BTreeMap<String, Constant>,
    options: &AuditOptions,
) -> Result<Audit> {
    let function = found(program, function)?;
    let bound = CallArguments::new(function, &program.weights, given, states)?;
    let inputs: Vec<Arc<HeapTensor>> = bound.inputs.into_iter().map(Arc::new).collect();
    let analysis = Analysis::new(function);
    interpret::refuse(function, &analysis)?;
    let selection = select(function, &options.profile);

    let reference = Column::new(Numerics::Exact, options);
    let columns: Vec<Column> = options.numerics.iter().map(|&n| Column::new(n, options)).collect();
    let way = Way { function, weights: &program.weights, analysis: &analysis, inputs: &inputs, states: &bound.states };
    let mut exact = Pair::new(&way, &reference)?;
    let mut others = columns.iter().map(|column| Pair::new(&way, column)).collect::<Result<Vec<Pair<'_>>>>()?;

    let mut rows = Vec::new();
    for (place, &id) in function.body().ops.iter().enumerate() {
        if function.op(id).name == "const" || !analysis.is_live(id) {
            continue;
        }
        exact.step(id)?;
        others.iter_mut().try_for_each(|pair| pair.step(id))?;
        let unit = selection.get(id).map_or(Unit::Host, |s| s.unit);
        for &output in &function.op(id).outputs {
            rows.extend(row(function, (place, id, output), unit, options.threshold, &exact, &others));
        }
        exact.local.follow(&exact.run, id, &rounded)?;
        for pair in &mut others {
            pair.local.follow(&exact.local, id, &|tensor| tensor)?;
        }
        for pair in others.iter_mut().chain([&mut exact]) {
            pair.run.leave(id);
            pair.local.leave(id);
        }
    }
    let mut joined = Vec::new();
    for (pair, column) in others.iter().zip(&columns).filter(|(pair, _)| pair.numerics == Numerics::Hardware) {
        let run = column.emulator.call(program, &function.name, given, &mut states.clone())?;
        for (&output, (name, constant)) in function.body().outputs.iter().zip(&run) {
            let both = HeapTensor::from_constant(constant, &program.weights).zip(pair.run.tensor(output));
            let apart = |(run, stepped): (HeapTensor, Arc<HeapTensor>)| {
                // A machine returns NaN as infinity.
                let (run, stepped) = (without_nan(run), without_nan(Arc::unwrap_or_clone(stepped)));
                Deviation::of(&run, &stepped).is_some_and(|d| cause(&d, run.dtype, options.threshold).is_some())
            };
            if both.is_some_and(apart) {
                joined.push(name.clone());
            }
        }
    }
    Ok(Audit {
        function: function.name.clone(),
        profile: options.profile.subject.name.clone(),
        numerics: options.numerics.clone(),
        threshold: options.threshold,
        mac_ceiling: options.profile.mac_ceiling.value as f64,
        joined,
        rows,
    })
}

/// The row of one value. `None` for lists.
fn row(
    function: &Function,
    (place, id, output): (usize, OpId, ValueId),
    unit: Unit,
    threshold: f64,
    exact: &Pair<'_>,
    others: &[Pair<'_>],
) -> Option<AuditRow> {
    let (whole, alone) = (exact.run.tensor(output)?, exact.local.tensor(output)?);
    let compare = |exact: &HeapTensor, found: Option<Arc<HeapTensor>>| found.and_then(|f| Deviation::of(exact, &f));
    let readings: Vec<Reading> = others
        .iter()
        .map(|pair| {
            let local = compare(&alone, pair.local.tensor(output));
            let accumulated = compare(&whole, pair.run.tensor(output));
            let cause = local.as_ref().map_or(Some(Cause::Shape), |d| cause(d, alone.dtype, threshold));
            Reading { local, accumulated, cause }
        })
        .collect();
    let op = function.op(id);
    let note = if !op.blocks.is_empty() {
        Some(Note::Blocks)
    } else if readings.iter().any(|r| r.local.is_none() || r.accumulated.is_none()) {
        Some(Note::Extents)
    } else if unit == Unit::Mac && is_beside_int8(function, id) {
        Some(Note::Int8Crop)
    } else {
        None
    };
    Some(AuditRow {
        place,
        op: op.name.clone(),
        value: function.value(output).name.clone(),
        dtype: whole.dtype,
        shape: whole.shape.clone(),
        unit,
        is_output: function.body().outputs.contains(&output),
        note,
        exact: ValueStats::of(&whole),
        readings,
    })
}

fn without_nan(mut tensor: HeapTensor) -> HeapTensor {
    if let Data::Floats(values) = &mut tensor.data {
        values.iter_mut().filter(|v| v.is_nan()).for_each(|v| *v = f32::INFINITY);
    }
    tensor
}

/// True if an operand is unpacked from 8-bit numbers: some machines then crop the other operand.
fn is_beside_int8(function: &Function, op: OpId) -> bool {
    function.op(op).operands().any(|value| {
        let ValueDef::Op(maker, _) = function.value(value).def else { return false };
        let maker = function.op(maker);
        let data = maker.attribute("quantized_data").or_else(|| {
            function.arg_constant(maker, "quantized_data").or_else(|| function.arg_constant(maker, "data"))
        });
        let dtype = data.and_then(|d| d.ty().dtype());
        maker.name.starts_with("constexpr_") && matches!(dtype, Some(DataType::Int8 | DataType::UInt8))
    })
}

/// Why a local reading deviates from exact.
fn cause(d: &Deviation, dtype: DataType, threshold: f64) -> Option<Cause> {
    if d.overflow > d.saturated {
        Some(Cause::Overflow)
    } else if d.saturated > 0 {
        Some(Cause::Saturation)
    } else if d.special > 0 {
        Some(Cause::Special)
    } else if !dtype.is_float() {
        (d.differ > 0).then_some(Cause::Integer)
    } else if d.peak_ulps <= threshold {
        None
    } else if d.vanished == d.max {
        Some(Cause::Underflow)
    } else {
        Some(Cause::Error)
    }
}

/// The operands of a local reading: fp16 values on the grid, and those beyond it at its end.
fn rounded(tensor: Arc<HeapTensor>) -> Arc<HeapTensor> {
    if tensor.dtype != DataType::Fp16 {
        return tensor;
    }
    let mut tensor = Arc::unwrap_or_clone(tensor);
    if let Data::Floats(values) = &mut tensor.data {
        let end = HALF_MAX as f32;
        values.iter_mut().filter(|v| v.is_finite()).for_each(|v| *v = v.clamp(-end, end));
    }
    tensor.settle(true);
    Arc::new(tensor)
}
