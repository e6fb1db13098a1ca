//! Compiled programs, and what they keep across loads.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use ferrane_device::queue::Queue;
use ferrane_device::{Error, ErrorKind, Procedure, Result};
use ferrane_mil::Program;

use super::Life;
use super::fate::Fate;
use super::process::Ticket;
use super::staging::{Files, Products};
use crate::function::CompiledFunction;
use crate::interpret::Bounds;
use crate::pace::{self, Times};
use crate::plan::Ports;
use crate::refusal::checked;
use crate::tables::Table;

/// How a device compiles and runs programs.
#[derive(Clone)]
pub(crate) struct Recipe {
    pub life: Arc<Life>,
    pub queue: Arc<Queue>,
    pub timeout: Duration,
    pub table: Table,
    pub bounds: Bounds,
    /// Whether compiles, loads and evaluations take at least as long as on the machine.
    pub pace: bool,
}

/// A compiled program, shared by its artifact, its loads and its requests. It is immutable: a load
/// that finds other weights makes a new one.
pub(crate) struct CompiledProgram {
    pub functions: Vec<CompiledFunction>,
    pub procedures: Vec<Procedure>,
    pub kept: Arc<Kept>,
}

/// The parts of a program that do not depend on its weights.
pub(crate) struct Kept {
    pub recipe: Recipe,
    pub ticket: Option<Ticket>,
    pub fate: Fate,
    /// What the program takes on the machine; `None` without pacing.
    pub times: Option<Times>,
    pub evaluated: AtomicBool,
    /// The staged files, if any, and the program that is compiled again from them.
    files: Option<Files>,
    program: Option<Program>,
}

impl CompiledProgram {
    pub(super) fn new(recipe: Recipe, program: &Program, text: Option<&str>, key: &str) -> Result<CompiledProgram> {
        let begun = Instant::now();
        let fate = recipe.life.judge(program, text)?;
        let (functions, procedures) = functions(&recipe, program)?;
        let life = &recipe.life;
        let times = recipe.pace.then(|| Times::of(program, &life.profile)).transpose()?;
        let files = life.stage(key, program)?;
        let products = files.as_ref().map(|_| Products::new(key, program, &procedures));
        let staged = files.as_ref().zip(products.as_ref());
        // Temporary files belong to a program in use, perhaps of another device; only kept files
        // prove an earlier compile.
        let kept = staged.filter(|_| life.keeps_files());
        let before = kept.map_or(Ok(false), |(files, products)| files.hold(products))?;
        let ticket = if before { None } else { life.charge()? };
        if let Some((files, products)) = staged.filter(|_| !before) {
            files.add(products)?;
        }
        if let Some(times) = &times {
            pace::wait(begun + times.compile(before));
        }
        let program = (files.is_some() && life.reads_weights()).then(|| program.clone());
        Ok(CompiledProgram {
            functions,
            procedures,
            kept: Arc::new(Kept { recipe, ticket, fate, times, evaluated: AtomicBool::new(false), files, program }),
        })
    }

    /// The program as a load finds it: with the weights in its folder, if the machine reads them
    /// again.
    pub(super) fn loaded(self: &Arc<CompiledProgram>) -> Result<Arc<CompiledProgram>> {
        let begun = Instant::now();
        let loaded = self.read_again()?;
        if let Some(times) = &self.kept.times {
            pace::wait(begun + times.load(self.life().engine.is_first_load()));
        }
        Ok(loaded)
    }

    fn read_again(self: &Arc<CompiledProgram>) -> Result<Arc<CompiledProgram>> {
        let (Some(files), Some(program)) = (&self.kept.files, &self.kept.program) else { return Ok(self.clone()) };
        let Some(program) = files.changed(program)? else { return Ok(self.clone()) };
        let (functions, procedures) = functions(&self.kept.recipe, &program)?;
        Ok(Arc::new(CompiledProgram { functions, procedures, kept: self.kept.clone() }))
    }

    pub(super) fn life(&self) -> &Arc<Life> {
        &self.kept.recipe.life
    }
}

/// Compiles every function, with the ports that the machine gives it.
fn functions(recipe: &Recipe, program: &Program) -> Result<(Vec<CompiledFunction>, Vec<Procedure>)> {
    let one = |(id, function)| {
        checked(function, &program.weights)?;
        let mut ports = Ports::declared(id as u32, function)?;
        recipe.life.arrange(&mut ports)?;
        CompiledFunction::new(ports, function, &program.weights, &recipe.table, recipe.bounds)
    };
    let functions = program.functions.iter().enumerate().map(one).collect::<Result<Vec<_>>>()?;
    if functions.is_empty() {
        return Err(Error::new(ErrorKind::InvalidProgram, "the program has no function"));
    }
    let procedures = functions.iter().map(|b| b.procedure().clone()).collect();
    Ok((functions, procedures))
}
