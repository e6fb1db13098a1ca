//! Weight gradients, computed in parallel with the step.
//!
//! A weight gradient is a product of two activations over the tokens of a window, `[a, S] · [b,
//! S]ᵀ`. It does not need the device, so it is a job of the thread pool: idle threads take the
//! oldest job, and the step's own thread helps when it has nothing else to do, so there is never
//! more than one thread per core. A micro-step has exactly one product for each matrix and only
//! that product writes it, so the order of sums does not depend on timing.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ferrane_host::f16;
use ferrane_host::gemm::{Epilogue, GemmError, Operand, Output, View, ViewMut, gemm};
use ferrane_host::pool::Scope;
use ferrane_host::sync::lock;
use ferrane_llm::weights::Part;

use crate::lora::{Adapters, Factors};
use crate::metrics::timeline::{SpanKind, Tracer};

/// An operand of a product: an activation `[channels, S]`.
pub enum ProductRows<'a> {
    /// As the device computed it, in fp16.
    Half(&'a [f16]),
    /// As the CPU computed it, in fp32; the buffer is returned to [`Jobs`] after the product.
    Owned(Vec<f32>),
}

impl ProductRows<'_> {
    fn view(&self, s: usize) -> Result<Operand<'_>, GemmError> {
        Ok(match self {
            ProductRows::Half(v) => Operand::F16(View::row_major(v, v.len() / s, s)?),
            ProductRows::Owned(v) => Operand::F32(View::row_major(v, v.len() / s, s)?),
        })
    }
}

/// Where a product of activations goes.
pub enum GradientSink<'a> {
    /// The gradient of the whole matrix, `[rows of lhs, rows of rhs]`.
    Matrix(&'a mut [f32]),
    /// The gradients of an adapter of the matrix.
    Adapter { factors: &'a Factors, sums: &'a mut Factors, scale: f32 },
    /// Nowhere: the matrix is frozen.
    Frozen,
}

/// The adapters of a layer, with their gradients, that no product writes yet.
#[derive(Default)]
pub struct LayerAdapters<'a> {
    rest: Vec<(&'a Factors, &'a mut Factors)>,
    scale: f32,
}

impl<'a> LayerAdapters<'a> {
    /// The adapters of each layer; none for layers beyond the adapters' ones.
    pub fn of(adapters: Option<(&'a Adapters, &'a mut Adapters)>) -> Vec<LayerAdapters<'a>> {
        let Some((values, sums)) = adapters else { return Vec::new() };
        let scale = values.scale() as f32;
        let layers = values.layers().iter().zip(sums.layers_mut());
        layers.map(|(values, sums)| LayerAdapters { rest: values.iter().zip(sums).collect(), scale }).collect()
    }

    /// The sink of a part's gradient: its adapter, else its matrix if that has a gradient.
    pub fn sink(&mut self, part: Part, matrix: &'a mut [f32]) -> GradientSink<'a> {
        match self.rest.iter().position(|(factors, _)| factors.part == part) {
            Some(at) => {
                let (factors, sums) = self.rest.swap_remove(at);
                GradientSink::Adapter { factors, sums, scale: self.scale }
            }
            None if matrix.is_empty() => GradientSink::Frozen,
            None => GradientSink::Matrix(matrix),
        }
    }
}

/// State shared by the jobs of a step: spare buffers, time spent, and an error, if any.
#[derive(Default)]
pub struct Jobs {
    spare: Mutex<Vec<Vec<f32>>>,
    busy: AtomicU64,
    failed: Mutex<Option<GemmError>>,
}

impl Jobs {
    /// A buffer of `len` values with unspecified content.
    pub fn take(&self, len: usize) -> Vec<f32> {
        let mut spare = lock(&self.spare);
        let found = spare.iter().position(|b| b.len() == len).map(|i| spare.swap_remove(i));
        drop(spare);
        found.unwrap_or_else(|| vec![0.0; len])
    }

    /// Returns the buffers of operands for reuse.
    fn give_all(&self, operands: [ProductRows<'_>; 2]) {
        for rows in operands {
            if let ProductRows::Owned(buffer) = rows {
                lock(&self.spare).push(buffer);
            }
        }
    }

    /// Bytes of the spare buffers.
    pub fn bytes(&self) -> usize {
        let spare = lock(&self.spare);
        spare.iter().map(|b| b.len() * size_of::<f32>()).sum()
    }

    /// Time spent in products since the last call.
    ///
    /// # Errors
    /// The operands have inconsistent sizes, which is a bug in the step.
    pub fn finish(&self) -> Result<Duration, GemmError> {
        let busy = Duration::from_nanos(self.busy.swap(0, Ordering::Relaxed));
        match lock(&self.failed).take() {
            Some(error) => Err(error),
            None => Ok(busy),
        }
    }
}

/// The queue to which a step adds its products.
#[derive(Clone, Copy)]
pub struct Queue<'q, 'a> {
    pub scope: &'q Scope<'a>,
    pub jobs: &'a Jobs,
    pub tracer: Tracer<'a>,
    /// Number of tokens in the window.
    pub s: usize,
    /// Whether this is the first contribution of an accumulation, so that products overwrite.
    pub first: bool,
}

impl<'a> Queue<'_, 'a> {
    /// Queues `out += lhs · rhsᵀ`, or `out = lhs · rhsᵀ` if [`Queue::first`]; for an adapter, the
    /// products that give its gradients. They complete before the scope ends.
    pub fn product(&self, layer: usize, part: Part, out: GradientSink<'a>, lhs: ProductRows<'a>, rhs: ProductRows<'a>) {
        let Queue { jobs, tracer, s, first, .. } = *self;
        if matches!(out, GradientSink::Frozen) {
            jobs.give_all([lhs, rhs]);
            return;
        }
        self.scope.spawn(move |_| {
            let span = tracer.span(SpanKind::WeightGradient, part.name(), Some(layer));
            let begun = Instant::now();
            let result = match out {
                GradientSink::Matrix(out) => multiply(out, &lhs, &rhs, s, !first),
                GradientSink::Adapter { factors, sums, scale } => adapt(factors, sums, scale, &lhs, &rhs, s, !first),
                GradientSink::Frozen => Ok(()),
            };
            if let Err(error) = result {
                *lock(&jobs.failed) = Some(error);
            }
            jobs.busy.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
            drop(span);
            jobs.give_all([lhs, rhs]);
        });
    }
}

fn multiply(
    out: &mut [f32],
    lhs: &ProductRows<'_>,
    rhs: &ProductRows<'_>,
    s: usize,
    accumulate: bool,
) -> Result<(), GemmError> {
    let (lhs, rhs) = (lhs.view(s)?, rhs.view(s)?);
    let out = Output::F32(ViewMut::row_major(out, lhs.shape().0, rhs.shape().0)?);
    gemm(lhs, rhs.t(), out, Epilogue { accumulate, blocks: true, ..Epilogue::default() })
}

/// The gradients of `W = … + s·B·A` with output gradients `lhs` and inputs `rhs`:
/// `dB = s·lhs·(A·rhs)ᵀ`, `dA = s·(Bᵀ·lhs)·rhsᵀ`.
fn adapt(
    Factors { a, b, .. }: &Factors,
    sums: &mut Factors,
    scale: f32,
    lhs: &ProductRows<'_>,
    rhs: &ProductRows<'_>,
    s: usize,
    accumulate: bool,
) -> Result<(), GemmError> {
    let (lhs, rhs) = (lhs.view(s)?, rhs.view(s)?);
    let (rows, cols) = (lhs.shape().0, rhs.shape().0);
    let rank = b.len() / rows.max(1);
    let plain = Epilogue::default();
    let scaled = Epilogue { accumulate, scale, ..Epilogue::default() };
    let mut inner = vec![0.0; rank * s];
    let a = Operand::F32(View::row_major(a, rank, cols)?);
    gemm(a, rhs, Output::F32(ViewMut::row_major(&mut inner, rank, s)?), plain)?;
    let through_a = Operand::F32(View::row_major(&inner, rank, s)?);
    gemm(lhs, through_a.t(), Output::F32(ViewMut::row_major(&mut sums.b, rows, rank)?), scaled)?;
    let b = Operand::F32(View::row_major(b, rows, rank)?);
    gemm(b.t(), lhs, Output::F32(ViewMut::row_major(&mut inner, rank, s)?), plain)?;
    let through_b = Operand::F32(View::row_major(&inner, rank, s)?);
    gemm(through_b, rhs.t(), Output::F32(ViewMut::row_major(&mut sums.a, rank, cols)?), scaled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrane_host::pool;

    #[test]
    fn products_arrive_where_they_belong_and_buffers_come_back() {
        let jobs = Jobs::default();
        let half = [1.0f32, 2.0, 3.0, 4.0].map(f16::from_f32);
        let mut out = [5.0; 4];
        for (first, want) in [(true, [1.0, 2.0, 3.0, 4.0]), (false, [2.0, 4.0, 6.0, 8.0])] {
            pool::scope(|scope| {
                let mut unit = jobs.take(4);
                unit.copy_from_slice(&[1.0, 0.0, 0.0, 1.0]);
                let queue = Queue { scope, jobs: &jobs, tracer: Tracer::off(), s: 2, first };
                queue.product(
                    0,
                    Part::W1,
                    GradientSink::Matrix(&mut out),
                    ProductRows::Half(&half),
                    ProductRows::Owned(unit),
                );
            });
            assert_eq!(out, want);
        }
        jobs.finish().unwrap();
        assert_eq!((jobs.bytes(), jobs.take(3), jobs.take(4).len(), jobs.bytes()), (16, vec![0.0; 3], 4, 0));
        pool::scope(|scope| {
            let queue = Queue { scope, jobs: &jobs, tracer: Tracer::off(), s: 2, first: true };
            queue.product(
                0,
                Part::W1,
                GradientSink::Matrix(&mut out[..3]),
                ProductRows::Half(&half),
                ProductRows::Half(&half),
            );
        });
        assert!(jobs.finish().is_err() && jobs.finish().is_ok());
    }
}
