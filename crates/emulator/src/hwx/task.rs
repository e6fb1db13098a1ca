//! The registers of a task, and notes and errors about them.

use std::cell::RefCell;

use ferrane_device::Error;
use ferrane_hwx::registers::RecordFormat;
use ferrane_hwx::task::{Task as Descriptor, TaskView};

use crate::refusal::refused;

/// The fields of a task, and the notes on its result.
pub(super) struct Task<'a> {
    pub fields: TaskView<'a>,
    /// The unchecked assumptions on which its result rests.
    pub notes: RefCell<Vec<String>>,
}

impl<'a> Task<'a> {
    pub(super) fn new(generation: &'static ferrane_hwx::registers::Generation, task: &'a Descriptor) -> Task<'a> {
        Task { fields: TaskView::new(generation, task), notes: RefCell::default() }
    }

    pub(super) fn id(&self) -> u32 {
        self.fields.head("Identity", "TID").unwrap_or(0)
    }

    /// An error that names a register and what it holds.
    pub(super) fn refuse_at(&self, address: u32, why: &str) -> Error {
        let generation = self.fields.generation();
        let value = self.fields.set().get(&address).copied().or(generation.register(address).and_then(|r| r.0.default));
        let value = value.map_or("not set".to_string(), |v| format!("{v:#x}"));
        refused(format!("task {}: {} ({address:#x}) = {value}: {why}", self.id(), generation.label(address)))
    }

    /// Like [`refuse_at`](Self::refuse_at), by name.
    pub(super) fn refuse(&self, block: &str, register: &str, why: &str) -> Error {
        match self.fields.generation().address(block, register) {
            Some(address) => self.refuse_at(address, why),
            None => refused(format!("task {}: {block}.{register}: {why}", self.id())),
        }
    }

    /// The first of these registers that the generation has.
    pub(super) fn either<'n>(&self, names: [&'n str; 2]) -> &'n str {
        let known = |n: &&&str| self.fields.generation().address("Common", n).is_some();
        names.iter().find(known).copied().unwrap_or(names[0])
    }

    pub(super) fn note(&self, what: &str) {
        self.notes.borrow_mut().push(format!("task {}: {what}", self.id()));
    }

    pub(super) fn is_old(&self) -> bool {
        self.fields.generation().record_format == RecordFormat::ByteAddressed
    }

    pub(super) fn l2_control(&self) -> &'static str {
        if self.is_old() { "L2Cfg" } else { "L2Control" }
    }
}
