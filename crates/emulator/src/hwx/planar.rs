//! The planar engine: element-wise operations of two sources, reductions, windows, copies, each
//! followed by a factor and a summand.

use ferrane_device::Result;
use ferrane_host::f16;
use ferrane_hwx::task::OperandRole;

use super::step::{After, Op};
use super::task::Task;

impl Task<'_> {
    /// The operation of the planar engine, and the extents of its result.
    pub(super) fn planar(&self, source: [usize; 4], result: [usize; 4]) -> Result<(Op, [usize; 4])> {
        let fields = &self.fields;
        let pe = |field: &str| fields.field("PE", "PECfg", field).unwrap_or(0);
        let [pool, op, cond, first, second] = ["Pool", "Op", "Cond", "Src1", "Src2"].map(pe);
        let refuse = |why: &str| self.refuse("PE", "PECfg", why);
        let unknown = fields.register("PE", "PECfg").unwrap_or(0)
            & !fields.generation().named("PE", "PECfg").map_or(0, |(r, _)| r.known());
        if unknown != 0 {
            return Err(refuse(&format!("what the bits {unknown:#x} do to a result is not known")));
        }
        if first != 0 {
            return Err(refuse("this Src1 is not known"));
        }
        // H13 has the same field, but it has no name there.
        let kind = fields.register("Common", "Cfg").unwrap_or(0) >> 4 & 0xf;
        let kind_refused = || Err(self.refuse("Common", "Cfg", "this task type of the planar engine is not known"));
        match (kind, pool, second) {
            (3, 0, 3) if op == 0 && self.comparison().is_some() => {
                self.single_window()?;
                self.note("PE.PECfg: that comparisons give 1 and 0 is reported, no sample has one");
                Ok((Op::Compare(self.comparison().unwrap_or_default()), result))
            }
            (3, 0, 2 | 3) if cond == 0 => {
                self.single_window()?;
                let name = match (op, second) {
                    (0, 2) => "add",
                    (0, _) => "sub",
                    (1, 2) => "mul",
                    (2, 2) => "maximum",
                    (3, 2) => "minimum",
                    _ => return Err(refuse("this operation on two sources is not known")),
                };
                if fields.location(OperandRole::Source2).is_none() {
                    return Err(refuse("there is no second source"));
                }
                Ok((Op::Binary(name), result))
            }
            (2 | 3, 0, 0) if op == 0 && fields.word("PE", "PECfg", "Cond").as_deref() == Some("abs") => {
                self.single_window()?;
                self.note("PE.PECfg: that this word is the magnitude is reported, no sample has it");
                Ok((Op::Unary("abs"), result))
            }
            (2, 0, 0) if (cond, op) == (0, 0) => Ok((Op::Copy, result)),
            (1 | 5, 1..=3, 0) if cond == 0 && self.window().is_none_or(|[w, h, ..]| (w, h) != (1, 1)) => {
                self.pool(pool, op, source, result)
            }
            (5, _, 0) if cond == 0 => self.reduction(pool, op, source, result),
            (1 | 2 | 3 | 5, ..) => Err(refuse("this combination is not known")),
            _ => kind_refused(),
        }
    }

    /// A reduction along the columns. A mean is reported to reduce a plane of several rows to one
    /// value; for other reductions it is not known whether they stop at the end of a row.
    fn reduction(&self, pool: u32, op: u32, source: [usize; 4], result: [usize; 4]) -> Result<(Op, [usize; 4])> {
        let [g, c, h, w] = source;
        self.single_window()?;
        if result != source || (h, w) == (1, 1) {
            return Err(self.refuse(
                "Common",
                self.either(["OutDim", "OutWidth"]),
                "a reduction says the extents of its source",
            ));
        }
        let scale = self.final_scale();
        let row = |name| (Op::Reduce { name, axes: &[3] }, [g, c, h, 1]);
        let found = match (pool, op) {
            (2, 0) if h == 1 => row("reduce_max"),
            (3, 0) if h == 1 => row("reduce_min"),
            (0, 0) if h == 1 && scale == 1.0 => row("reduce_sum"),
            (0 | 1, 0) if is_part(scale, w) => row("reduce_mean"),
            (0 | 1, 0) if is_part(scale, h.saturating_mul(w)) => {
                (Op::Reduce { name: "reduce_mean", axes: &[2, 3] }, [g, c, 1, 1])
            }
            (0 | 2 | 3, 0) if h > 1 => {
                let register = self.either(["InDim", "InHeight"]);
                return Err(self.refuse(
                    "Common",
                    register,
                    "whether a reduction continues from row to row is not known",
                ));
            }
            _ => return Err(self.refuse("PE", "PECfg", "this reduction is not known")),
        };
        self.note(match &found.0 {
            Op::Reduce { name: "reduce_mean", .. } => {
                "PE.PEFinalScale: a sum times the part of one element is the mean (reported, no sample has it)"
            }
            _ => "Common.Cfg: task type 5 reduces along the columns (read from samples)",
        });
        Ok(found)
    }

    /// The factor of the result; 1 if the register is not set.
    fn final_scale(&self) -> f32 {
        self.fields.float("PE", "PEFinalScale", "Scale").map_or(1.0, |v| v as f32)
    }

    /// A pooling. Its kind is established; its position is assumed to be that of a convolution's
    /// window.
    fn pool(&self, pool: u32, op: u32, source: [usize; 4], result: [usize; 4]) -> Result<(Op, [usize; 4])> {
        let refuse = |why: &str| self.refuse("Common", "ConvCfg", why);
        let [w, h, sx, sy] = self.window().ok_or_else(|| refuse("a window or stride of 0 is not known"))?;
        let [px, py] = ["Px", "Py"].map(|f| self.fields.field("Common", "ConvCfg", f).unwrap_or(0) as usize);
        let right = self.behind(source[3], w, sx, px, result[3])?;
        let pad = [py, self.behind(source[2], h, sy, py, result[2])?, px, right];
        let mode = self.fields.field("L2", self.l2_control(), "PaddingMode").unwrap_or(0);
        // An average counts the zeros. Samples have mode 1 with a maximum, where padding must not
        // add a value.
        if pad != [0; 4] && !matches!((pool, mode), (1, 0) | (2, 1)) {
            return Err(refuse("what windows read beyond the edges is not known"));
        }
        if op != 0 || result[..2] != source[..2] {
            return Err(self.refuse("PE", "PECfg", "a window is applied to each channel separately"));
        }
        let form = match pool {
            1 => "avg_pool",
            2 => "max_pool",
            _ => "min",
        };
        self.note("PE.PECfg: that windows lie as those of a convolution is a guess");
        Ok((Op::Pool { form, kernel: [h, w], strides: [sy, sx], pad }, result))
    }

    /// The op of a comparison, if this is one. H13's conditions are reported to differ, so only
    /// H16's are decoded.
    fn comparison(&self) -> Option<&'static str> {
        let names = [
            ("lt", "less"),
            ("gt", "greater"),
            ("ne", "not_equal"),
            ("eq", "equal"),
            ("le", "less_equal"),
            ("ge", "greater_equal"),
        ];
        let found = self.fields.word("PE", "PECfg", "Cond").filter(|_| !self.is_old())?;
        names.iter().find(|(word, _)| *word == found).map(|(_, name)| *name)
    }

    fn single_window(&self) -> Result<()> {
        let padded = ["Px", "Py"].iter().any(|f| self.fields.field("Common", "ConvCfg", f).is_some_and(|p| p != 0));
        if padded || self.window() != Some([1; 4]) {
            return Err(self.refuse("Common", "ConvCfg", "what a window does here is not known"));
        }
        Ok(())
    }

    pub(super) fn after_planar(&self, op: &Op) -> Result<After> {
        let fields = &self.fields;
        let mut after = After::default();
        let (bias, scale) = if self.is_old() {
            (("PEBiasScale", "Bias"), ("PEBiasScale", "Scale"))
        } else {
            (("PEBias", "Bias"), ("PEScale", "Scale"))
        };
        let float = |(register, field): (&str, &str), neutral: f32| {
            // A register that a descriptor of H16 does not set is neutral.
            fields.float("PE", register, field).map_or(neutral, |v| v as f32)
        };
        for (register, field, neutral) in [("PEPreScale", "PreScale", 1.0), ("PEEpsilon", "Epsilon", 0.0)] {
            if float((register, field), neutral) != neutral {
                return Err(self.refuse("PE", register, "when it takes effect is not known"));
            }
        }
        // A mean is the sum times this factor.
        let end = self.final_scale();
        let taken = match op {
            Op::Pool { form: "avg_pool", kernel: [h, w], .. } => is_part(end, h * w),
            Op::Reduce { name: "reduce_mean", .. } => true,
            _ => end == 1.0,
        };
        if !taken {
            return Err(self.refuse("PE", "PEFinalScale", "when it takes effect is not known"));
        }
        let (bias_value, scale_value) = (float(bias, 0.0), float(scale, 1.0));
        for (register, value) in [(bias.0, bias_value), (scale.0, scale_value)] {
            if f16::from_f32(value).to_f32() != value || !value.is_finite() {
                return Err(self.refuse(
                    "PE",
                    register,
                    "a factor or summand that is not a finite fp16 value is not known",
                ));
            }
        }
        if bias_value != 0.0 && scale_value != 1.0 {
            return Err(self.refuse("PE", bias.0, "whether the summand or the factor comes first is not known"));
        }
        after.bias = Some(bias_value).filter(|b| *b != 0.0);
        after.scale = Some(scale_value).filter(|s| *s != 1.0);
        match (fields.field("PE", "PECfg", "Nonlinear").unwrap_or(0), op) {
            (0, _) => {}
            (1, Op::Reduce { name: "reduce_sum", .. }) if after == After::default() => {
                // Reported as ReLU; but in softmax samples the sum of exponentials has it, and the
                // result is the product with it.
                self.note(
                    "PE.PECfg: Nonlinear 1 after a sum inverts it (read from the softmax samples; ReLU is reported)",
                );
                after.inverse = true;
            }
            _ => {
                return Err(self.refuse(
                    "PE",
                    "PECfg",
                    "this Nonlinear is not known here: ReLU is reported, a sample disproves it",
                ));
            }
        }
        Ok(after)
    }
}

/// True if the factor turns a sum of `count` elements into their mean: `1 / count` in fp32, or with
/// H16's shorter mantissa.
fn is_part(factor: f32, count: usize) -> bool {
    let part = 1.0 / count as f32;
    count > 1 && (factor == part || factor.to_bits() == part.to_bits() & !0x1fff)
}
