//! Access to the convolution weights of a program, task by task.

use half::f16;

use crate::container::{Hwx, Section};
use crate::describe::{HwxReport, NamedLocation};
use crate::error::{Error, Result};
use crate::weights::Lanes;

/// The location of the weights that a task reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The index of the task, counted over all sections of descriptors.
    pub task: usize,
    /// The section that holds them.
    pub section: Section,
    /// Layout and shape of the weights in the section; an error if their order is not established.
    pub lanes: Result<Lanes>,
}

impl Hwx {
    /// The weights of all convolutions, in the order of the tasks.
    ///
    /// # Errors
    /// E0704 if the chain of descriptors is broken.
    pub fn filters(&self) -> Result<Vec<Filter>> {
        let (report, sections) = (HwxReport::of(self), self.sections());
        let (mut kernels, mut number) = (Vec::new(), 0);
        for ((text, first), told) in self.task_sections().into_iter().zip(&report.texts) {
            let Some(generation) = self.generation() else { continue };
            for (task, told) in self.tasks(&text, first)?.iter().zip(&told.tasks) {
                if let Some(NamedLocation::Buffer { name, .. }) =
                    told.kernel.as_ref().and_then(|kernel| kernel.place.as_ref())
                    && let Some(section) = sections.iter().find(|s| s.label() == *name)
                {
                    let lanes = Lanes::of_task(generation, task);
                    kernels.push(Filter { task: number, section: section.clone(), lanes });
                }
                number += 1;
            }
        }
        Ok(kernels)
    }

    /// The weights `[Cout, Cin, Kh, Kw]` of a convolution.
    ///
    /// # Errors
    /// E0705 if their order is not established, or a lane does not lie in the section.
    pub fn filter_weights(&self, kernel: &Filter) -> Result<Vec<f16>> {
        kernel.lanes.clone()?.unpack(self.content(&kernel.section))
    }

    /// Replaces the weights of a convolution. A function table before the weights of a lane is
    /// kept.
    ///
    /// # Errors
    /// As [`Hwx::filter_weights`], E0705 for a wrong number of weights, and E0703 if the section
    /// reaches beyond the file.
    pub fn set_filter_weights(&mut self, kernel: &Filter, weights: &[f16]) -> Result<()> {
        let lanes = kernel.lanes.clone()?;
        let table = lanes.table(self.content(&kernel.section)).copied();
        let start = u64::from(kernel.section.offset);
        let content = start.checked_add(kernel.section.size).and_then(|end| self.bytes_mut(start..end));
        let content =
            content.ok_or_else(|| Error::range(start, "the section of the weights reaches beyond the file"))?;
        lanes.pack_into(weights, table.as_ref(), content)
    }
}
