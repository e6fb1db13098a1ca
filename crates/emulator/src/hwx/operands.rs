//! The locations of a task's operands, and how they are read and written.

use ferrane_device::{Error, Result};
use ferrane_hwx::task::{Location, OperandRole};

use super::memory::{Buffers, IN_L2, Span, turned};
use super::step::Op;
use super::task::Task;

/// fp16 in a buffer, without the interleave: FmtMode 1, Truncate 3, MemFmt 2; results add two bits
/// for the padding. The second source of H13 has 0x2030 (spec: hwx.md 2.2, 2.3).
const HALVES: [u32; 3] = [0x2031, 0x0030_2031, 0x2030];
/// The bits of the interleave.
const INTERLEAVE: u32 = 0xf << 24;

/// How the planar engine sees a source.
struct View {
    /// It has one element along these axes (groups, channels, rows, columns) and is broadcast.
    spread: [bool; 4],
    /// Channels and columns are exchanged.
    turned: bool,
}

impl Task<'_> {
    /// A source of a task over these extents.
    pub(super) fn source(&self, role: OperandRole, extents: [usize; 4], op: &Op, buffers: &Buffers) -> Result<Span> {
        let view = self.view(role, extents, op)?;
        let mut own = extents;
        own.iter_mut().zip(view.spread).filter(|(_, spread)| *spread).for_each(|(extent, _)| *extent = 1);
        let span = self.span(role, own, view.turned, buffers)?;
        buffers.readable(&span).map_err(|why| self.misplaced(role, &why))?;
        Ok(span)
    }

    /// The result of an operation, which is written.
    pub(super) fn result(&self, extents: [usize; 4], op: &Op, buffers: &mut Buffers) -> Result<Span> {
        let span = self.span(OperandRole::Result, extents, self.turned(op)?, buffers)?;
        buffers.write(&span).map_err(|why| self.misplaced(OperandRole::Result, &why))?;
        Ok(span)
    }

    fn routing(&self, field: &str) -> u32 {
        self.fields.field("Common", "PEBroadcast", field).unwrap_or(0)
    }

    /// The planar engine's view of a source.
    fn view(&self, role: OperandRole, extents: [usize; 4], op: &Op) -> Result<View> {
        let (axes, turned) = match role {
            OperandRole::Source2 => ("Src2Broadcast", "Src2Transpose"),
            _ => ("Src1Broadcast", "Src1Transpose"),
        };
        let (axes, turned) = (self.routing(axes), self.routing(turned) == 1);
        // Columns, rows, depth, channels; there is no depth here.
        let spread = [false, axes & 8 != 0, axes & 2 != 0, axes & 1 != 0];
        let refuse = |why: &str| Err(self.refuse("Common", "PEBroadcast", why));
        if axes != 0 && !op.takes_two() {
            return refuse("what spreading the only source does is not known");
        }
        let others = self.routing("Src1Broadcast") & self.routing("Src2Broadcast");
        if [(8, 1), (2, 2), (1, 3)].iter().any(|(bit, axis)| others & bit != 0 && extents[*axis] > 1) {
            return refuse("both sources have one element along an axis where the result has more");
        }
        if axes & 1 != 0 {
            self.note("Common.PEBroadcast: a source with one column is spread over all (read from samples)");
        }
        if axes & !1 != 0 {
            self.note("Common.PEBroadcast: that these bits spread a source over rows or channels is reported, no sample has them");
        }
        if turned {
            self.note("Common.PEBroadcast: a source whose channels and columns are exchanged (reported, and read from one sample)");
        }
        Ok(View { spread, turned })
    }

    /// True if the result is written with channels and columns exchanged.
    fn turned(&self, op: &Op) -> Result<bool> {
        let cfg = |field: &str| self.fields.field("Common", "Cfg", field) == Some(1);
        let convolves = self.fields.convolves() == Some(true);
        let turned = cfg("ResultTranspose");
        // The second bit is reported to control which engines get rows first. Weights from the file
        // are distributed to the engines; no sample has both.
        let filled = cfg("FillLowerNEFirst");
        if (turned || filled) && !convolves || filled && matches!(op, Op::Conv { .. }) {
            return Err(self.refuse("Common", "Cfg", "what its bits 28 and 29 do to a result here is not known"));
        }
        if turned {
            // In five tasks of four samples, bytes remain the same tensor only if columns become
            // channels; three of the tasks have the inverse, too.
            self.note(
                "Common.Cfg.ResultTranspose: channels and columns are exchanged (reported, and read from samples)",
            );
        }
        let planar = self.routing("ResultTranspose") == 1;
        if planar {
            self.note("Common.PEBroadcast.ResultTranspose: channels and columns are exchanged (reported, and read from one sample)");
        }
        Ok(turned || planar)
    }

    /// The location in L2 of a first source that is read from a buffer and kept in L2, if it is:
    /// SourceType 1.
    pub(super) fn kept(&self, extents: [usize; 4], buffers: &mut Buffers) -> Result<Option<Span>> {
        let register = if self.is_old() { "SourceCfg" } else { "Source1Cfg" };
        let comes = matches!(self.fields.location(OperandRole::Source1), Some(Location::Buffer { .. }));
        if !comes || self.fields.field("L2", register, "SourceType") != Some(1) {
            return Ok(None);
        }
        if self.routing("Src1Transpose") == 1 || self.routing("Src1Broadcast") != 0 {
            return Err(self.refuse("Common", "PEBroadcast", "how such a source stays in L2 is not known"));
        }
        if self.interleave(OperandRole::Source1)? != 1 {
            return Err(self.refuse("L2", register, "how interleaved channels lie in L2 is not known"));
        }
        let names = if self.is_old() { "Source" } else { "Source1" };
        let stride = |what: &str, extent: usize| {
            let name = format!("{names}{what}Stride");
            match self.fields.register("L2", &name) {
                _ if extent == 1 => Ok(0),
                Some(stride) if stride > 0 => Ok(stride as usize),
                _ => Err(self.refuse("L2", &name, "it is not said, or 0, and what that means is not known")),
            }
        };
        let [g, c, h, _] = extents;
        let strides = [stride("Group", g)?, stride("Channel", c)?, stride("Row", h)?];
        let base = format!("{names}Base");
        let address = self.fields.register("L2", &base).unwrap_or(0) as usize;
        let span = Span { buffer: IN_L2, base: address, extents, strides, interleave: 1, turned: false };
        buffers.write(&span).map_err(|why| self.refuse("L2", &base, &why))?;
        self.note(&format!("L2.{register}: SourceType 1 keeps the source in L2 (read from samples)"));
        Ok(Some(span))
    }

    fn misplaced(&self, role: OperandRole, why: &str) -> Error {
        let old = self.is_old();
        let (block, register) = match (self.fields.location(role), role) {
            (Some(Location::L2 { .. }) | None, OperandRole::Source1) => {
                ("L2", if old { "SourceBase" } else { "Source1Base" })
            }
            (Some(Location::L2 { .. }) | None, OperandRole::Source2) => ("L2", "Source2Base"),
            (Some(Location::L2 { .. }) | None, OperandRole::Result) => ("L2", "ResultBase"),
            (_, OperandRole::Source1) => ("TileDMASrc", if old { "BaseAddr" } else { "Source1BaseLo" }),
            (_, OperandRole::Source2) => ("TileDMASrc", if old { "Src2DMAConfig" } else { "Source2BaseLo" }),
            (_, OperandRole::Result) => ("TileDMADst", if old { "BaseAddr" } else { "BaseLo" }),
        };
        self.refuse(block, register, why)
    }

    /// The location of an operand with these extents.
    fn span(&self, role: OperandRole, extents: [usize; 4], is_turned: bool, buffers: &Buffers) -> Result<Span> {
        let old = self.is_old();
        let location = self.fields.location(role);
        let location = location.ok_or_else(|| self.misplaced(role, "nothing says where it lies"))?;
        self.configured(role, location)?;
        let (buffer, base, interleave) = match location {
            // Without an address it is 0: chains of tasks write and read there.
            Location::L2 { address } => (IN_L2, u64::from(address.unwrap_or(0)), 1),
            Location::Buffer { bar, offset } => {
                let buffer =
                    buffers.at(bar).ok_or_else(|| self.misplaced(role, &format!("BAR {bar} is not a buffer")))?;
                (buffer, offset, self.interleave(role)?)
            }
        };
        let field = match role {
            OperandRole::Source1 => "InFmt",
            OperandRole::Source2 => "Src2Fmt",
            OperandRole::Result => "OutFmt",
        };
        if self
            .fields
            .field("Common", "ChCfg", field)
            .is_some_and(|format| format != 2 && !(old && role == OperandRole::Source2 && format == 0))
        {
            return Err(self.refuse("Common", "ChCfg", &format!("{field} is not fp16; only that is run")));
        }
        let (block, names) = self.fields.stride_names(role);
        let said = self.fields.strides(role);
        // Row, plane and group of the registers; groups, planes and rows of a span.
        let [groups, channels, rows, columns] = turned(extents, is_turned);
        let stride = |axis: usize, count: usize| -> Result<usize> {
            match said[axis] {
                _ if count == 1 => Ok(0),
                Some(stride) if stride > 0 && stride.is_multiple_of(2) => Ok(stride as usize),
                _ => Err(self.refuse(block, &names[axis], "it is not said, or 0, and what that means is not known")),
            }
        };
        let planes = channels.div_ceil(interleave);
        let strides = [stride(3, groups)?, stride(1, planes)?, stride(0, rows)?];
        // The interpretation of the bits is checked against the strides: a row must end before the
        // next plane begins.
        let row = columns.saturating_mul(2 * interleave);
        if (is_turned || interleave > 1) && planes > 1 && strides[1] < row {
            return Err(self.refuse(block, &names[1], &format!("planes overlap: a row has {row:#x} bytes")));
        }
        let base = usize::try_from(base).unwrap_or(usize::MAX);
        Ok(Span { buffer, base, extents, strides, interleave, turned: is_turned })
    }

    /// Channels of a plane of an operand in a buffer, whose elements are fp16.
    fn interleave(&self, role: OperandRole) -> Result<usize> {
        let old = self.is_old();
        let (block, register) = match role {
            OperandRole::Source1 => ("TileDMASrc", if old { "Fmt" } else { "Source1Fmt" }),
            OperandRole::Source2 => ("TileDMASrc", if old { "Src2Fmt" } else { "Source2Fmt" }),
            OperandRole::Result => ("TileDMADst", "Fmt"),
        };
        if !self.fields.register(block, register).is_some_and(|word| HALVES.contains(&(word & !INTERLEAVE))) {
            return Err(self.refuse(block, register, "only fp16 is run"));
        }
        let said = self.fields.field(block, register, "Interleave").unwrap_or(0);
        // L2's register has the interleave as well. H13 has one register for both sources.
        let told = self.l2_field(role, "DMAInterleave").filter(|_| !(old && role == OperandRole::Source2));
        if said > 1 && told.is_some_and(|told| told != said) {
            return Err(self.refuse(block, register, "L2 has a different interleave"));
        }
        if said > 1 {
            self.note(&format!("{block}.{register}: channels stand side by side in planes (read from one sample)"));
        }
        Ok(said.max(1) as usize)
    }

    /// The register of L2 that describes an operand.
    fn l2_register(&self, role: OperandRole) -> &'static str {
        match role {
            // H13 has one for both sources.
            OperandRole::Source1 | OperandRole::Source2 if self.is_old() => "SourceCfg",
            OperandRole::Source1 => "Source1Cfg",
            OperandRole::Source2 => "Source2Cfg",
            OperandRole::Result => "ResultCfg",
        }
    }

    fn l2_field(&self, role: OperandRole, field: &str) -> Option<u32> {
        self.fields.field("L2", self.l2_register(role), field)
    }

    /// Checks L2's configuration of an operand against its location.
    fn configured(&self, role: OperandRole, location: Location) -> Result<()> {
        if self.is_old() && role == OperandRole::Source2 {
            return Ok(());
        }
        let refuse = |why: &str| Err(self.refuse("L2", self.l2_register(role), why));
        let kind = if role == OperandRole::Result { "ResultType" } else { "SourceType" };
        let Some(found) = self.l2_field(role, kind) else { return Ok(()) };
        match (location, found) {
            (Location::L2 { .. }, 0) if self.l2_field(role, "DMAInterleave").is_some_and(|n| n > 1) => {
                refuse("how interleaved channels lie in L2 is not known")
            }
            (Location::L2 { .. }, 0) | (Location::Buffer { .. }, 1 | 2) => Ok(()),
            _ => refuse(&format!("its {kind} and the descriptor differ about where the operand lies")),
        }
    }
}
