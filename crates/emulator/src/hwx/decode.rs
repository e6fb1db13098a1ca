//! Decodes a task: from registers to an operation and the locations of its operands.

use ferrane_device::Result;
use ferrane_hwx::task::OperandRole;

use super::kernel;
use super::memory::Buffers;
use super::step::{After, MemoryWeights, Op, TaskStep};
use super::task::Task;
use crate::refusal::refused;

impl Task<'_> {
    /// The task as a step over these buffers.
    pub(super) fn step(&self, buffers: &mut Buffers) -> Result<TaskStep> {
        super::rules::check(self)?;
        for (register, field) in
            [("Flags", "TDSkip"), ("KernelBars", "KBE1"), ("KernelBars", "KBE2"), ("KernelBars", "KBE3")]
        {
            if self.fields.head(register, field) == Some(1) {
                let why = "set, and what it does to a result is not known";
                return Err(refused(format!("task {}: {register}.{field} (0x1) of the header is {why}", self.id())));
            }
        }
        let [source, mut result] = self.extents()?;
        let (op, kernel, after, declared);
        match self.fields.convolves() {
            Some(true) => {
                for (block, register) in [("PE", "PECfg"), ("Common", "PEBroadcast")] {
                    self.idle(block, register, "the planar engine does not run in this task")?;
                }
                (op, kernel) = self.convolution(source, result, buffers)?;
                after = self.after_convolution(buffers)?;
                declared = result;
            }
            Some(false) => {
                (op, declared) = self.planar(source, result)?;
                kernel = None;
                after = self.after_planar(&op)?;
                result = declared;
            }
            None => return Err(refused(format!("task {}: nothing says which engine runs it", self.id()))),
        }
        let wanted = match &op {
            Op::Copy | Op::Unary(_) | Op::Binary(_) | Op::Compare(_) => source,
            _ => result,
        };
        if wanted != result {
            let (register, of) = (self.either(["OutDim", "OutWidth"]), format!("{source:?} and {result:?}"));
            return Err(self.refuse("Common", register, &format!("the shapes of source and result differ: {of}")));
        }
        let two = op.takes_two();
        let mut sources = vec![self.source(OperandRole::Source1, source, &op, buffers)?];
        if two {
            sources.push(self.source(OperandRole::Source2, source, &op, buffers)?);
        }
        let kept = self.kept(source, buffers)?;
        let span = self.result(declared, &op, buffers)?;
        let relu_first = self.relu_first(two)?;
        Ok(TaskStep { id: self.id(), op, relu_first, after, sources, kept, kernel, result: span })
    }

    /// Whether negative values of the sources become 0. H16 is reported to have a bit for each; H13
    /// has one bit.
    fn relu_first(&self, two: bool) -> Result<[bool; 2]> {
        let bit = |field| self.fields.field("L2", self.l2_control(), field) == Some(1);
        let relu = [bit("InputReLU"), bit("Source2ReLU")];
        if self.is_old() && relu[0] && two {
            let why = "which of two sources loses its negative values is not known";
            return Err(self.refuse("L2", self.l2_control(), why));
        }
        if relu[1] && !two {
            return Err(self.refuse("L2", self.l2_control(), "there is no second source"));
        }
        if relu.contains(&true) && two {
            self.note("L2.L2Control: which source loses its negative values is reported, no sample has it");
        }
        Ok(relu)
    }

    /// Refuses a nonzero register.
    fn idle(&self, block: &str, register: &str, why: &str) -> Result<()> {
        match self.fields.register(block, register) {
            None | Some(0) => Ok(()),
            Some(_) => Err(self.refuse(block, register, why)),
        }
    }

    /// Groups, channels, rows and columns of source and result.
    fn extents(&self) -> Result<[[usize; 4]; 2]> {
        let [source, result] = self.fields.shapes();
        let names = [
            [["InDim", "InWidth"], ["InDim", "InHeight"], ["Cin", "InChannels"]],
            [["OutDim", "OutWidth"], ["OutDim", "OutHeight"], ["Cout", "OutChannels"]],
        ];
        let groups = self.fields.field("Common", self.either(["GroupConvCfg", "NumGroups"]), "NumGroups").unwrap_or(1);
        if groups == 0 {
            return Err(self.refuse(
                "Common",
                self.either(["GroupConvCfg", "NumGroups"]),
                "a task has one group at least",
            ));
        }
        let mut all = [[groups as usize; 4]; 2];
        for (i, said) in [source, result].iter().enumerate() {
            for (axis, name) in names[i].iter().enumerate() {
                let extent = said[axis].filter(|n| *n > 0);
                let extent = extent
                    .ok_or_else(|| self.refuse("Common", self.either(*name), "an extent is not said, or is 0"))?;
                all[i][3 - axis] = extent as usize;
            }
        }
        Ok(all)
    }

    /// The operation of the convolution engines.
    fn convolution(
        &self,
        source: [usize; 4],
        result: [usize; 4],
        buffers: &Buffers,
    ) -> Result<(Op, Option<MemoryWeights>)> {
        let fields = &self.fields;
        let mac = |field: &str| fields.field("NE", "MACCfg", field);
        let point = mac("BinaryPoint");
        let known: &[u32] = if self.is_old() { &[0x1c, 0] } else { &[0x3c] };
        if point.is_none_or(|p| !known.contains(&p)) {
            return Err(self.refuse("NE", "MACCfg", "another binary point of the accumulator is not known"));
        }
        let unicast = match self.is_old() {
            true => fields.field("Common", "GroupConvCfg", "UnicastEn"),
            false => fields.field("Common", "Unicast", "UnicastEn"),
        };
        let bypass = match (mac("OpMode"), mac("KernelMode")) {
            (Some(0), Some(0)) => false,
            (Some(4), Some(1)) => true,
            _ => {
                return Err(self.refuse(
                    "NE",
                    "MACCfg",
                    "only convolutions (0) and the way past the multipliers (0xc) are known",
                ));
            }
        };
        if bypass {
            if self.window() != Some([1; 4]) {
                return Err(self.refuse("Common", "ConvCfg", "a window without weights is not known"));
            }
            return Ok((Op::Copy, None));
        }
        if unicast == Some(1) {
            let register = if self.is_old() { "GroupConvCfg" } else { "Unicast" };
            return Err(self.refuse("Common", register, "convolutions of single channels are not known"));
        }
        if kernel::from_memory(fields, buffers) {
            let (op, kernel) = kernel::product(self, source, result, buffers)?;
            return Ok((op, Some(kernel)));
        }
        let [_, _, h, w] = source;
        let [kw, kh, sx, sy] =
            self.window().ok_or_else(|| self.refuse("Common", "ConvCfg", "a stride of 0 is not known"))?;
        let pad = |field: &str| fields.field("Common", "ConvCfg", field).unwrap_or(0) as usize;
        let (px, py) = (pad("Px"), pad("Py"));
        let right = self.behind(w, kw, sx, px, result[3])?;
        let below = self.behind(h, kh, sy, py, result[2])?;
        let padded = [px, py, right, below].iter().any(|p| *p > 0);
        if padded && fields.field("L2", self.l2_control(), "PaddingMode").is_some_and(|m| m != 0) {
            return Err(self.refuse(
                "L2",
                self.l2_control(),
                "what another padding than 0 is filled with is not known",
            ));
        }
        let weights = kernel::weights(self, buffers)?;
        if (kw, kh) != (1, 1) {
            self.note("Common.ConvCfg: the order of the weights of a kernel larger than 1×1 is a guess");
        }
        Ok((Op::Conv { weights, strides: [sy, sx], pad: [py, below, px, right] }, None))
    }

    /// Width, height and strides of the window; `None` if one of them is 0.
    pub(super) fn window(&self) -> Option<[usize; 4]> {
        let window = ["Kw", "Kh", "Sx", "Sy"].map(|f| self.fields.field("Common", "ConvCfg", f).unwrap_or(0) as usize);
        window.iter().all(|n| *n > 0).then_some(window)
    }

    /// The padding at the end of an axis that gives the result its extent.
    pub(super) fn behind(
        &self,
        extent: usize,
        kernel: usize,
        stride: usize,
        before: usize,
        result: usize,
    ) -> Result<usize> {
        let reach = (result - 1).checked_mul(stride).and_then(|n| n.checked_add(kernel));
        let padded = extent + before;
        let fits = |reach: &usize| *reach < padded + kernel && *reach + stride > padded;
        match reach.filter(fits).filter(|_| before < kernel) {
            Some(reach) => Ok(reach.saturating_sub(padded)),
            None => {
                let why =
                    format!("a window of {kernel}, stride {stride}, padding {before} makes no {result} of {extent}");
                Err(self.refuse("Common", "ConvCfg", &why))
            }
        }
    }

    fn after_convolution(&self, buffers: &Buffers) -> Result<After> {
        let mut after = After::default();
        match self.fields.float("NE", "PostScale", "PostScale") {
            None => return Err(self.refuse("NE", "PostScale", "the default is not known")),
            Some(scale) if scale.is_finite() => after.scale = Some(scale as f32).filter(|s| *s != 1.0),
            Some(_) => return Err(self.refuse("NE", "PostScale", "it is not finite")),
        }
        match self.fields.field("NE", "MACCfg", "NonlinearMode") {
            Some(0) => {}
            Some(1) => after.relu = true,
            Some(2) => after.function = Some(kernel::function(self, buffers)?),
            _ => return Err(self.refuse("NE", "MACCfg", "this NonlinearMode is not known")),
        }
        Ok(after)
    }
}
