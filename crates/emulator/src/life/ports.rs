//! Ports as the profile's compiler would order and pad them, and the surfaces that the machine
//! accepts.

use ferrane_device::{Bindings, Port, Procedure, Result};
use ferrane_machine::profile::PortOrder;

use super::Life;
use crate::plan::Ports;

impl Life {
    /// Orders ports and pads rows as the profile says. Without limits they stay as in the program.
    pub(crate) fn arrange(&self, ports: &mut Ports) -> Result<()> {
        if self.has_limits() {
            let (inputs, outputs) = (self.profile.input_order.value, self.profile.output_order.value);
            ports.sort(|ports| order(ports, inputs), |ports| order(ports, outputs));
            ports.align(self.profile.row_alignment.value)?;
        }
        if self.faults.reversed {
            ports.sort(|ports| ports.reverse(), |ports| ports.reverse());
        }
        Ok(())
    }

    /// Why an evaluation over these surfaces fails on the machine, if it does.
    pub(super) fn misfit(&self, procedure: &Procedure, bindings: &Bindings) -> Option<String> {
        let size = |port: &Port| Some((port.name.clone(), bindings.surface(&port.name)?.memory().bytes().len()));
        let least = self.profile.min_surface.value;
        let small =
            procedure.inputs.iter().chain(&procedure.outputs).filter_map(size).find(|(_, bytes)| *bytes < least);
        if let Some((name, bytes)) = small {
            return Some(format!("the surface of `{name}` has {bytes} bytes, and this machine wants at least {least}"));
        }
        let sides = [
            (&procedure.inputs, self.profile.uniform_inputs.value, "inputs"),
            (&procedure.outputs, self.profile.uniform_outputs.value, "outputs"),
        ];
        sides.into_iter().filter(|(_, uniform, _)| *uniform).find_map(|(ports, _, what)| {
            let mut sizes = ports.iter().filter_map(size);
            let (first, wanted) = sizes.next()?;
            let (other, found) = sizes.find(|(_, bytes)| *bytes != wanted)?;
            Some(format!(
                "the surfaces of `{first}` and `{other}` have {wanted} and {found} bytes, and this machine wants all {what} of one \
                 size"
            ))
        })
    }
}

/// Ties keep the program's order.
fn order(ports: &mut [&Port], order: PortOrder) {
    match order {
        PortOrder::Alphabetical => ports.sort_by(|a, b| a.name.cmp(&b.name)),
        PortOrder::AscendingSize => ports.sort_by_key(|p| p.layout.allocation),
        PortOrder::DescendingSize => ports.sort_by_key(|p| std::cmp::Reverse(p.layout.allocation)),
        // The attributes are up to the compiler; this one keeps the program's order.
        _ => {}
    }
}
