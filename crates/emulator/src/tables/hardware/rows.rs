//! Softmax and reductions by a machine's rules.

use ferrane_arith::{Function as Known, Reduction as Sums, Rules};
use ferrane_host::vectorize;

use super::{Hardware, index, results};
use crate::ir::{Reduce, Reduction, Unary};
use crate::tables::FAST;
use crate::tables::rows::{STRIP, combine, reduce_row};

impl Hardware {
    /// Softmax of a row of fp16 values.
    pub(crate) fn softmax(&self, row: &mut [f32]) {
        self.enter(row);
        if !self.rules.tables {
            return self.rules.softmax(row);
        }
        let exp = self.function(Unary::Exp);
        let exp = results(&exp);
        vectorize!(self.rules.softmax_with(row, |x| exp[index(x)]));
    }

    /// A reduction of a row of fp16 values, as fp16.
    pub(crate) fn reduce(&self, step: &Reduce, row: &mut [f32]) -> f32 {
        self.enter(row);
        let rules = &self.rules;
        // A product and its sum are one matrix product with ones: the sum is wide (numerics §2).
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

    /// Reduces neighboring columns, row after row: `rows` calls its visitor with each row.
    pub(crate) fn columns(
        &self,
        step: &Reduce,
        to: &mut [f32],
        length: usize,
        rows: impl FnOnce(&mut dyn FnMut(usize, &mut [f32])),
    ) {
        let rules = &self.rules;
        if matches!(step.reduction, Reduction::Max | Reduction::Min) {
            return rows(&mut |n, row| {
                self.enter(row);
                combine(step.reduction, n == 0, to, row);
            });
        }
        let squares = step.reduction == Reduction::SumSquare;
        if rules.reduce_sum == Sums::Narrow && !step.of_product && !squares {
            to.fill(0.0);
            rows(&mut |_, row| {
                self.enter(row);
                vectorize!({
                    for (sum, &v) in to.iter_mut().zip(&*row) {
                        *sum = rules.result(*sum + v);
                    }
                });
            });
            if step.reduction == Reduction::Mean {
                to.iter_mut().for_each(|v| *v = rules.result(*v / length as f32));
            }
            return;
        }
        let mut sums = [0.0f64; STRIP];
        rows(&mut |_, row| {
            self.enter(row);
            vectorize!({
                for (sum, &v) in sums.iter_mut().zip(&*row) {
                    *sum += f64::from(if squares { rules.result(v * v) } else { v });
                }
            });
        });
        let count = if step.reduction == Reduction::Mean { length as f64 } else { 1.0 };
        for (v, &sum) in to.iter_mut().zip(&sums) {
            let sum = if rules.nan_to_inf && sum.is_nan() { 0.0 } else { sum };
            *v = rules.rounding.f64(sum / count);
        }
    }

    fn squares<'a>(&self, row: &'a mut [f32]) -> &'a [f32] {
        row.iter_mut().for_each(|v| *v = self.rules.result(*v * *v));
        row
    }
}
