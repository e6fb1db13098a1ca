//! Cases of limits: the device behaves as its own profile states.
//!
//! *Limits* cases hold on every device. *Enforced* cases hold on a device that rejects what its
//! profile does not allow. They use up the compile budget of the process, so they need a process of
//! their own.

use ferrane_device::{Bindings, CompileOptions, Device, ErrorKind, Layout, Port, ProgramSource};
use ferrane_diag::Severity;
use ferrane_machine::profile::PortOrder;
use ferrane_machine::{CheckOptions, check};
use ferrane_mil::{Program, Weights, parse};

use super::{Case, Outcome, Promise, Rounding, expect, function, program, surfaces, words};

/// Whether the machine accepts the program at all. How it fails a program that it rejects is not
/// tested by these cases.
fn takes(device: &Device, program: &Program) -> bool {
    check(program, device.profile(), &CheckOptions::default()).iter().all(|f| f.severity != Severity::Error)
}

/// The most programs that a case makes to reach a limit. A profile with a higher limit is skipped.
const MOST: usize = 512;

pub(super) fn cases() -> Vec<Case> {
    let enforced = |name, run| Case { name, promise: Promise::Enforced, run };
    vec![
        Case { name: "rows are laid out by the profile", promise: Promise::Limits, run: rows },
        enforced("ports are in the profile's order", order),
        enforced("surfaces have the profile's sizes", sizes),
        enforced("the profile's number of requests are in flight", depth),
        enforced("the profile's number of programs are loaded", loaded),
        enforced("the compile budget ends", budget),
    ]
}

fn rows(device: &Device, _: Rounding) -> Outcome {
    let statement = "        tensor<fp16, [1, 3, 1, 5]> y = identity(x = x)[name = string(\"y\")];";
    let text = program(&function("main", "tensor<fp16, [1, 3, 1, 5]> x", statement, "y"));
    let source = parse(text, &Weights::new()).map_err(|e| e.to_string())?;
    if !takes(device, &source) {
        return Ok(());
    }
    let executable = device.load(&source, "rows").map_err(words)?;
    for name in ["x", "y"] {
        let layout = &executable.port(name).map_err(words)?.layout;
        let alignment = device.profile().row_alignment.value;
        expect(
            name,
            layout.clone(),
            Layout::with_row_alignment(layout.dtype, &layout.shape, alignment).map_err(words)?,
        )?;
    }
    Ok(())
}

/// A program with two sums of inputs of different sizes: the orders of names, of sizes and of
/// positions all differ.
fn sums() -> std::result::Result<Program, String> {
    let statements = "        tensor<fp16, [1, 64, 64]> q = add(x = a, y = d)[name = string(\"q\")];
        tensor<fp16, [1, 32, 64]> p = add(x = c, y = b)[name = string(\"p\")];";
    let inputs = "tensor<fp16, [1, 64, 64]> d, tensor<fp16, [1, 32, 64]> b, tensor<fp16, [1, 64, 64]> a, tensor<fp16, [1, 32, 64]> c";
    // Parsed first: how a machine treats the text's spelling is not tested here.
    parse(program(&function("main", inputs, statements, "q, p")), &Weights::new()).map_err(|e| e.to_string())
}

fn order(device: &Device, _: Rounding) -> Outcome {
    let source = sums()?;
    if !takes(device, &source) {
        return Ok(());
    }
    let executable = device.load(&source, "sums").map_err(words)?;
    let procedure = executable.procedure("main").map_err(words)?;
    let profile = device.profile();
    let names = |ports: &[Port]| ports.iter().map(|p| p.name.clone()).collect::<String>();
    let inputs = match profile.input_order.value {
        PortOrder::Alphabetical => "abcd",
        PortOrder::AscendingSize => "bcda",
        PortOrder::DescendingSize => "dabc",
        _ => "dbac",
    };
    let outputs = match profile.output_order.value {
        PortOrder::Alphabetical | PortOrder::AscendingSize => "pq",
        _ => "qp",
    };
    expect("inputs", names(&procedure.inputs), inputs.to_string())?;
    expect("outputs", names(&procedure.outputs), outputs.to_string())?;
    for ports in [&procedure.inputs, &procedure.outputs] {
        expect("symbols", ports.iter().map(|p| p.symbol).collect::<Vec<_>>(), (0..ports.len() as u32).collect())?;
    }
    Ok(())
}

fn sizes(device: &Device, _: Rounding) -> Outcome {
    let source = sums()?;
    if !takes(device, &source) {
        return Ok(());
    }
    let executable = device.load(&source, "sums").map_err(words)?;
    executable.bind(None).and_then(|b| b.evaluate()).map_err(words)?;
    // Surfaces sized by the ports alone, which some machines reject.
    let procedure = executable.procedure("main").map_err(words)?;
    let mut bindings = Bindings::new();
    for port in procedure.ports() {
        bindings = bindings.bind(&port.name, &device.surface(&port.layout).map_err(words)?);
    }
    let profile = device.profile();
    let small = procedure.ports().any(|p| p.layout.allocation < profile.min_surface.value);
    let fails = small || profile.uniform_inputs.value || profile.uniform_outputs.value;
    let result = executable.prepare(bindings).and_then(|r| r.evaluate());
    let found = result.map(drop).map_err(|e| (e.kind(), e.status()));
    expect("evaluation", found, if fails { Err((ErrorKind::Evaluate, Some(0x1d))) } else { Ok(()) })
}

fn depth(device: &Device, _: Rounding) -> Outcome {
    let source = sums()?;
    if !takes(device, &source) {
        return Ok(());
    }
    let Some(events) = device.events() else { return Ok(()) };
    let go = events.create().map_err(words)?;
    let executable = device.load(&source, "sums").map_err(words)?;
    let request = || executable.prepare(surfaces(device, &executable)?.0.wait(&go, 1));
    let mut submitted = Vec::new();
    for _ in 0..device.profile().queue_depth.value {
        submitted.push(request().and_then(|r| r.submit()).map_err(words)?);
    }
    let more = request().and_then(|r| r.submit()).map(drop).map_err(|e| e.kind());
    go.signal(1);
    expect("one more", more, Err(ErrorKind::QueueFull))?;
    submitted.into_iter().try_for_each(|s| s.wait().map(drop)).map_err(words)
}

/// A program whose text differs for every `number`, so that each compile counts.
fn numbered(number: usize) -> std::result::Result<Program, String> {
    let statement = format!(
        "        tensor<fp16, [1, 32, 64]> y = mul(x = x, y = x)[name = string(\"y\")];
        tensor<fp16, [1, 32, 64]> n{number} = add(x = y, y = x)[name = string(\"n{number}\")];"
    );
    let text = program(&function("main", "tensor<fp16, [1, 32, 64]> x", &statement, &format!("n{number}")));
    parse(text, &Weights::new()).map_err(|e| e.to_string())
}

fn loaded(device: &Device, _: Rounding) -> Outcome {
    let Some(most) = device.profile().max_loaded.value.0.filter(|most| *most <= MOST) else { return Ok(()) };
    let source = numbered(0)?;
    if !takes(device, &source) {
        return Ok(());
    }
    let artifact = device.compile(ProgramSource::Program(&source), &CompileOptions::default()).map_err(words)?;
    let held = (0..most).map(|_| artifact.load()).collect::<Result<Vec<_>, _>>().map_err(words)?;
    let more = artifact.load().map(drop).map_err(|e| (e.kind(), e.status()));
    expect("one more", more, Err((ErrorKind::Load, Some(0x20004))))?;
    if let Some(first) = held.first() {
        first.unload().map_err(words)?;
    }
    artifact.load().map(drop).map_err(words)
}

/// Spends the budget of the process, so it must be the last case: nothing can be compiled after it.
fn budget(device: &Device, _: Rounding) -> Outcome {
    let profile = device.profile();
    if !takes(device, &numbered(0)?) {
        return Ok(());
    }
    let Some(budget) = profile.compile_budget.value.0.filter(|budget| *budget <= MOST) else { return Ok(()) };
    let mut held = Vec::new();
    let refused = (1..=budget + 1).find_map(|number| {
        let source = numbered(number).ok()?;
        let compiled = device.compile(ProgramSource::Program(&source), &CompileOptions::default());
        compiled.map(|artifact| held.push(artifact)).err()
    });
    // Where compiles are not given back, those of earlier cases count, too.
    expect("refused", refused.map(|e| e.kind()), Some(ErrorKind::CompileBudget))?;
    if profile.budget_returns.value {
        expect("compiles", held.len(), budget)?;
        held.clear();
        let source = numbered(0)?;
        return device.compile(ProgramSource::Program(&source), &CompileOptions::default()).map(drop).map_err(words);
    }
    let load = held.first().map(|artifact| artifact.load().map(drop).map_err(|e| e.kind()));
    expect("a load after it", load, Some(Err(ErrorKind::CompileBudget)))
}
