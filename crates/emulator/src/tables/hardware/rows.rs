//! Softmax and reductions by a machine's rules.

use ferrane_arith::{Function as Known, Reduction as Sums, Rules};

use super::{Hardware, index, results};
use crate::plan::step::{Reduce, Reduction, Unary};
use crate::tables::FAST;
use crate::tables::rows::reduce_row;

impl Hardware {
    /// Softmax of a row of fp16 values.
    pub(crate) fn softmax(&self, row: &mut [f32]) {
        self.enter(row);
        if !self.rules.tables {
            return self.rules.softmax(row);
        }
        let exp = self.function(Unary::Exp);
        let exp = results(&exp);
        self.rules.softmax_with(row, |x| exp[index(x)]);
    }

    /// A reduction of a row of fp16 values, as fp16.
    pub(crate) fn reduce(&self, step: &Reduce, row: &mut [f32]) -> f32 {
        self.enter(row);
        let rules = &self.rules;
        // A product and its sum are one matrix product against ones: the sum is wide (emulator §2).
        let wide = Rules { reduce_sum: Sums::Wide, ..rules.clone() };
        let sum = |row: &[f32]| if step.of_product { wide.reduce_sum(row) } else { rules.reduce_sum(row) };
        let count = row.len() as f32;
        match step.reduction {
            Reduction::Sum => sum(row),
            Reduction::Mean if step.of_product || rules.reduce_sum == Sums::Wide => {
                rules.rounding.f64(rules.wide_sum(row) / f64::from(count))
            }
            Reduction::Mean => rules.result(sum(row) / count),
            Reduction::L1 => {
                row.iter_mut().for_each(|v| *v = v.abs());
                sum(row)
            }
            Reduction::SumSquare => wide.reduce_sum(self.squares(row)),
            Reduction::L2 => {
                let total = wide.reduce_sum(self.squares(row));
                rules.function(Known::Sqrt, total).unwrap_or_else(|| rules.result(total.sqrt()))
            }
            Reduction::LogSum => {
                let total = sum(row);
                rules.function(Known::Log, total).unwrap_or_else(|| rules.result(total.ln()))
            }
            other => rules.result(reduce_row(&FAST, other, row)),
        }
    }

    fn squares<'a>(&self, row: &'a mut [f32]) -> &'a [f32] {
        row.iter_mut().for_each(|v| *v = self.rules.result(*v * *v));
        row
    }
}
