//! The compiled form of a model: the emulator's program, and the ports as the fake reports them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use ferrane_device::{
    Bindings, CompileOptions, Device, ErrorKind, Layout, Port, Procedure, ProgramSource, Request, Result, Surface,
};
use ferrane_emulator::{Emulator, EmulatorOptions};
use ferrane_mil::{DataType, Weights};

use crate::foundation::{Object, array, dictionary, number_object, numbers, string};
use crate::request::Binding;
use crate::session::{CallFailure, rows};
use crate::surface;

pub(crate) const ENGINE: &str = "com.apple.appleneuralengine";
pub(crate) const COMPILER: &str = "com.apple.appleneuralengine.compiler";
const PROCESS: &str =
    "processRequest:model:qos:qIndex:modelStringID:options:returnValue:error:: ANEProgramProcessRequestDirect()";

pub(crate) static EMULATOR: LazyLock<Device> = LazyLock::new(|| Device::new(Emulator::new(EmulatorOptions::default())));

pub(crate) fn failure(domain: &str, code: isize, text: impl Into<String>) -> CallFailure {
    CallFailure { domain: domain.into(), code, text: text.into() }
}

pub(crate) fn process_failure(status: u32) -> CallFailure {
    failure(ENGINE, 8, format!("{PROCESS} Failed with status={status:#x} : statusType=0x9: Program Inference error"))
}

pub(crate) fn compile_failure(why: &str) -> CallFailure {
    failure(COMPILER, 1, format!("_ANECompiler : ANECCompile() FAILED err=({why})"))
}

/// A port: its symbol, its layout in the caller's surface, and the emulator's surface.
struct PortMapping {
    name: String,
    symbol: u64,
    layout: Layout,
    surface: Surface,
}

struct CompiledProcedure {
    name: String,
    inputs: Vec<PortMapping>,
    outputs: Vec<PortMapping>,
    request: Request,
}

/// A compiled program with its procedures.
pub(crate) struct Compiled {
    entries: Vec<CompiledProcedure>,
    reports_layouts: bool,
}

impl Compiled {
    pub(crate) fn of(mil: &[u8], files: &BTreeMap<String, Vec<u8>>) -> std::result::Result<Compiled, CallFailure> {
        let mut weights = Weights::new();
        for (path, bytes) in files {
            weights.open_file(path, bytes.clone());
        }
        Compiled::with(ProgramSource::Text { mil, weights: &weights }).map_err(|e| match e.kind() {
            ErrorKind::InvalidProgram => compile_failure("InvalidMILProgram"),
            _ => compile_failure("CompilationFailure"),
        })
    }

    fn with(source: ProgramSource<'_>) -> Result<Compiled> {
        let (alignment, reports_layouts) = rows();
        let executable = EMULATOR.compile(source, &CompileOptions::default())?.load()?;
        let (mut inputs, mut outputs) = (0, 0);
        let mut entries = Vec::new();
        for procedure in executable.procedures() {
            let Procedure { name, inputs: takes, outputs: gives, .. } = procedure;
            let (takes, gives) = (places(takes, &mut inputs, alignment)?, places(gives, &mut outputs, alignment)?);
            let bind = |b: Bindings, p: &PortMapping| b.bind(&p.name, &p.surface);
            let bindings = takes.iter().chain(&gives).fold(Bindings::new().procedure(name), bind);
            let request = executable.prepare(bindings)?;
            entries.push(CompiledProcedure { name: name.clone(), inputs: takes, outputs: gives, request });
        }
        Ok(Compiled { entries, reports_layouts })
    }

    pub(crate) fn evaluate(
        &self,
        procedure: u64,
        inputs: &[Binding],
        outputs: &[Binding],
    ) -> std::result::Result<(), CallFailure> {
        let entry = self.entries.get(procedure as usize).ok_or_else(|| process_failure(0x2))?;
        let inputs = placed(&entry.inputs, inputs)?;
        let outputs = placed(&entry.outputs, outputs)?;
        let failed = |_| process_failure(0x16);
        for (place, base) in inputs {
            let mut access = place.surface.write().map_err(failed)?;
            let mut row = 0;
            while let (Some(from), Some(to)) = (place.layout.row(row), access.row_mut(row)) {
                // SAFETY: the caller's surface is as long as the layout requires (`placed`) and
                // lives during the call; the row of the emulator's surface is separate memory.
                unsafe {
                    std::ptr::copy_nonoverlapping(base.add(from.start), to.as_mut_ptr(), from.len().min(to.len()))
                };
                row += 1;
            }
        }
        entry.request.evaluate().map_err(failed)?;
        for (place, base) in outputs {
            let access = place.surface.read().map_err(failed)?;
            let mut row = 0;
            while let (Some(to), Some(from)) = (place.layout.row(row), access.row(row)) {
                // SAFETY: as above, in the other direction.
                unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), base.add(to.start), to.len().min(from.len())) };
                row += 1;
            }
        }
        Ok(())
    }

    /// The attributes that the model reports (apple-runtime §11).
    pub(crate) fn attributes(&self) -> Object {
        let side = |ports: fn(&CompiledProcedure) -> &[PortMapping], suffix: &str| {
            let all = || self.entries.iter().flat_map(ports);
            let names = array(all().map(|p| string(&format!("{}{suffix}", p.name))));
            (names, numbers(all().map(|_| 0)))
        };
        let (inputs, input_alignment) = side(|e| &e.inputs, "");
        let (outputs, output_alignment) = side(|e| &e.outputs, "@output");
        let symbols = |ports: &[PortMapping]| numbers(ports.iter().map(|p| p.symbol));
        let procedure = |(id, entry): (usize, &CompiledProcedure)| {
            dictionary(vec![
                ("ANEFModelInputSymbolIndexArray", symbols(&entry.inputs)),
                ("ANEFModelOutputSymbolIndexArray", symbols(&entry.outputs)),
                ("ANEFModelProcedureID", number_object(id as u64)),
            ])
        };
        let ids = self.entries.iter().enumerate().map(|(i, e)| (e.name.as_str(), number_object(i as u64))).collect();
        let description = dictionary(vec![
            ("ANEFModelInput16KAlignmentArray", input_alignment),
            ("ANEFModelOutput16KAlignmentArray", output_alignment),
            ("ANEFModelProcedures", array(self.entries.iter().enumerate().map(procedure))),
            ("kANEFModelInputSymbolsArrayKey", inputs),
            ("kANEFModelOutputSymbolsArrayKey", outputs),
            ("kANEFModelProcedureNameToIDMapKey", dictionary(ids)),
        ]);
        let network = |entry: &CompiledProcedure| {
            dictionary(vec![
                ("LiveInputList", array(entry.inputs.iter().map(|p| live(p, "")))),
                ("LiveOutputList", array(entry.outputs.iter().map(|p| live(p, "@output")))),
                ("Name", string(&entry.name).into_super().into()),
            ])
        };
        let mut parts = vec![("ANEFModelDescription", description)];
        if self.reports_layouts {
            parts.push(("NetworkStatusList", array(self.entries.iter().map(network))));
        }
        dictionary(parts)
    }
}

/// The ports sorted by name, independent of the program's order.
fn places(ports: &[Port], next: &mut u64, alignment: usize) -> Result<Vec<PortMapping>> {
    let sorted: BTreeMap<&str, &Port> = ports.iter().map(|p| (p.name.as_str(), p)).collect();
    let place = |(name, port): (&str, &Port)| {
        let symbol = *next;
        *next += 1;
        let layout = Layout::with_row_alignment(port.layout.dtype, &port.layout.shape, alignment)?;
        Ok(PortMapping { name: name.to_string(), symbol, layout, surface: EMULATOR.surface(&port.layout)? })
    };
    sorted.into_iter().map(place).collect()
}

/// An entry of a live list: batches, channels, depth, height and width of a tensor of rank 5 or
/// less.
fn live(place: &PortMapping, suffix: &str) -> Object {
    let shape = &place.layout.shape;
    let at = |from_end: usize| shape.len().checked_sub(from_end).and_then(|i| shape.get(i)).copied().unwrap_or(1);
    let [batches, channels, depth, height, width] = match shape.len() {
        5.. => [at(5), at(4), at(3), at(2), at(1)],
        4 => [at(4), at(3), 1, at(2), at(1)],
        // [a, b, c] is a batches of b channels of width c.
        _ => [at(3), at(2), 1, 1, at(1)],
    };
    let row = if shape.is_empty() {
        place.layout.element_bytes()
    } else {
        place.layout.allocation / (batches * channels * depth * height).max(1)
    };
    let ty = match place.layout.dtype {
        DataType::Fp16 => "Float16",
        DataType::Fp32 => "Float32",
        DataType::Int8 => "Int8",
        DataType::UInt8 => "UInt8",
        DataType::Int32 => "Int32",
        _ => "Other",
    };
    let name = || string(&format!("{}{suffix}", place.name)).into_super().into();
    let mut parts: Vec<(&str, Object)> = vec![("Symbol", name()), ("Name", name())];
    parts.push(("Type", string(ty).into_super().into()));
    let numbers = [
        ("Batches", batches),
        ("Channels", channels),
        ("Depth", depth),
        ("Height", height),
        ("Width", width),
        ("Interleave", 1),
        ("PlaneCount", channels),
        ("RowStride", row),
        ("DepthStride", row * height),
        ("PlaneStride", row * height * depth),
        ("BatchStride", row * height * depth * channels),
    ];
    parts.extend(numbers.map(|(key, value)| (key, number_object(value as u64))));
    dictionary(parts)
}

/// The memory of each port.
fn placed<'a>(
    ports: &'a [PortMapping],
    bound: &[Binding],
) -> std::result::Result<Vec<(&'a PortMapping, *mut u8)>, CallFailure> {
    if ports.len() != bound.len() {
        return Err(process_failure(0x1d));
    }
    let place = |port: &'a PortMapping| {
        let binding = bound.iter().find(|b| b.symbol == port.symbol).ok_or_else(|| process_failure(0x2))?;
        let (base, size) = surface::memory(binding.surface()).ok_or_else(|| process_failure(0x1d))?;
        if size < port.layout.allocation { Err(process_failure(0x1d)) } else { Ok((port, base)) }
    };
    ports.iter().map(place).collect()
}
