//! Lowers transposed convolutions with constant weights to convolutions.
//!
//! With a stride of `s`, a result at `q` (counted from where the full result begins) gets products
//! with the taps `t` for which `q - t` is a multiple of `s`. So the results of one phase, those
//! with the same remainder of `q`, are a convolution of the input with every `s`-th tap, in reverse
//! order, and a copy puts them between those of the other phases.

use ferrane_device::Result;
use ferrane_host::conv;
use ferrane_mil::Op;

use super::args::Args;
use super::build::Lowering;
use super::conv::KnownWeights;
use super::images::channels_last;
use crate::ir::{PackedConv, StepKind, View, WeightBytes};

/// The most phases of all axes together: each is a step and a copy.
const MOST_PHASES: usize = 64;

/// One axis of a transposed convolution.
#[derive(Clone, Copy)]
struct Axis {
    input: usize,
    output: usize,
    kernel: usize,
    stride: usize,
    /// Elements of the full result before the first one that is kept.
    before: usize,
}

/// The results of one phase along an axis.
#[derive(Clone, Copy)]
struct Phase {
    /// Its taps are this one and every `stride`-th after it.
    tap: usize,
    taps: usize,
    /// The first result, and how many there are.
    first: usize,
    count: usize,
    /// Zeros before the input, or elements of it that are left out.
    pad: usize,
    skipped: usize,
}

impl Axis {
    /// The phases that have results. `None` if one of them has no taps or no input.
    fn phases(&self) -> Option<Vec<Phase>> {
        let with_results = (0..self.stride).filter(|tap| self.first(*tap) < self.output);
        with_results.map(|tap| self.phase(tap)).collect()
    }

    /// The first result whose distance from a tap is a multiple of the stride.
    fn first(&self, tap: usize) -> usize {
        (tap + self.stride - self.before % self.stride) % self.stride
    }

    fn phase(&self, tap: usize) -> Option<Phase> {
        let Axis { input, output, kernel, stride, before } = *self;
        let first = self.first(tap);
        let taps = kernel.checked_sub(tap).filter(|&left| left > 0)?.div_ceil(stride);
        // The input under the last tap of that result, and whether zeros lie before it.
        let under = (first + before).checked_sub(tap)? / stride;
        let (pad, skipped) = ((taps - 1).saturating_sub(under), under.saturating_sub(taps - 1));
        let count = (output - first).div_ceil(stride);
        (skipped < input).then_some(Phase { tap, taps, first, count, pad, skipped })
    }
}

impl<'a> Lowering<'a> {
    /// Lowers a transposed convolution; false if it is not one that convolutions can compute.
    pub(super) fn conv_transpose(&mut self, op: &'a Op, args: &Args<'a>) -> Result<bool> {
        let y = op.outputs[0];
        let Some(weights) = self.known_weights(args).filter(|_| self.images[y.index()]) else { return Ok(false) };
        let x = self.operand(args, op, "x")?;
        let shape = self.shape(y)?;
        let groups = usize::try_from(args.int("groups")?).unwrap_or(1).max(1);
        let Some(axes) = self.transposed_axes(args, &x, &shape, &weights)? else { return Ok(false) };
        let rank = x.shape.len();
        let fits = x.storage.is_float()
            && weights.shape.len() == rank
            && weights.shape[0] == x.shape[1]
            && x.shape[1].is_multiple_of(groups)
            && weights.shape[1].checked_mul(groups) == Some(shape[1]);
        let Some(phases) = axes.iter().map(Axis::phases).collect::<Option<Vec<_>>>() else { return Ok(false) };
        let count = phases.iter().try_fold(1usize, |n, phases| n.checked_mul(phases.len()));
        if !fits || count.is_none_or(|n| n > MOST_PHASES) {
            return Ok(false);
        }
        let Ok(values) = weights.data.with(|weights| weights.to_f32()) else { return Ok(false) };
        let strides: Vec<usize> = axes.iter().map(|axis| axis.stride).collect();
        let filter = Filter { values: &values, shape: &weights.shape, groups, strides: &strides };
        let mut convs = Vec::new();
        for phase in product(&phases) {
            let wanted = conv::ConvShape {
                channels: x.shape[1],
                outputs: shape[1],
                groups,
                input: phase.iter().zip(&axes).map(|(phase, axis)| axis.input - phase.skipped).collect(),
                output: phase.iter().map(|phase| phase.count).collect(),
                kernel: phase.iter().map(|phase| phase.taps).collect(),
                strides: vec![1; axes.len()],
                dilations: vec![1; axes.len()],
                pad: phase.iter().map(|phase| phase.pad).collect(),
            };
            let weights = filter.of_phase(&phase);
            let Some(conv) = conv::Conv::channels_last(wanted, conv::Weights::F32(&weights).is_tame()) else {
                return Ok(false);
            };
            convs.push((phase, conv, weights));
        }
        let x = self.with_channels_last(&x)?;
        let (to, layout) = self.image_result(y, &shape, true, std::slice::from_ref(&x))?;
        let alone = convs.len() == 1;
        self.buffers[to.buffer].sole &= alone;
        for (phase, conv, weights) in convs {
            let mut seen = x.clone();
            let mut place = to.clone();
            for (a, (phase, axis)) in phase.iter().zip(&axes).enumerate() {
                seen = seen.sliced(2 + a, phase.skipped, 1, axis.input - phase.skipped);
                place = place.sliced(2 + a, phase.first, axis.stride as isize, phase.count);
            }
            let weights = KnownWeights { shape: Vec::new(), data: WeightBytes::Made(weights) };
            let (step, reads) = self.packed_step(op, args, seen, conv, weights)?;
            if alone {
                self.push(StepKind::PackedConv(PackedConv { layout, ..step }), reads, vec![to.clone()])?;
                continue;
            }
            let order = channels_last(&place.shape);
            let part = self.fresh(to.storage, &place.shape, Some(order));
            let step = PackedConv { layout: conv::Layout::ChannelsLast(shape[1]), ..step };
            self.push(StepKind::PackedConv(step), reads, vec![part.clone()])?;
            self.copy(&part, &place)?;
        }
        self.settle(y, to)?;
        Ok(true)
    }

    /// The axes, if taps are neighbors and every phase has one.
    fn transposed_axes(
        &self,
        args: &Args<'a>,
        x: &View,
        shape: &[usize],
        weights: &KnownWeights<'_>,
    ) -> Result<Option<Vec<Axis>>> {
        let spatial = shape.len() - 2;
        let list = |name: &str, count: usize, default: i64| -> Result<Option<Vec<usize>>> {
            let values = args.ints_if(name)?.unwrap_or_else(|| vec![default; count]);
            let values: Option<Vec<usize>> = values.into_iter().map(|v| usize::try_from(v).ok()).collect();
            Ok(values.filter(|values| values.len() == count))
        };
        let lists = (list("strides", spatial, 1)?, list("dilations", spatial, 1)?, list("pad", 2 * spatial, 0)?);
        let (Some(strides), Some(dilations), Some(pad)) = lists else { return Ok(None) };
        if weights.shape.len() != shape.len() || x.shape.len() != shape.len() || dilations.iter().any(|&d| d != 1) {
            return Ok(None);
        }
        let pad_type = args.text("pad_type")?;
        let mut axes = Vec::with_capacity(spatial);
        for a in 0..spatial {
            let (input, output, kernel, stride) = (x.shape[2 + a], shape[2 + a], weights.shape[2 + a], strides[a]);
            if stride == 0 || kernel < stride || stride > MOST_PHASES {
                return Ok(None);
            }
            let before = match pad_type.as_str() {
                "valid" => 0,
                "custom" => pad[2 * a],
                "same" => (input - 1).saturating_mul(stride).saturating_add(kernel).saturating_sub(output) / 2,
                _ => return Ok(None),
            };
            axes.push(Axis { input, output, kernel, stride, before });
        }
        Ok(Some(axes))
    }
}

/// All ways to choose one phase for each axis.
fn product(phases: &[Vec<Phase>]) -> Vec<Vec<Phase>> {
    phases.iter().fold(vec![Vec::new()], |all, phases| {
        let with = |before: &Vec<Phase>| {
            let before = before.clone();
            phases.iter().map(move |phase| [&before[..], &[*phase]].concat()).collect::<Vec<_>>()
        };
        all.iter().flat_map(with).collect()
    })
}

/// The weights of a transposed convolution, `[input, output of a group, taps]`.
struct Filter<'w> {
    values: &'w [f32],
    shape: &'w [usize],
    groups: usize,
    strides: &'w [usize],
}

impl Filter<'_> {
    /// The weights of a phase as those of a convolution: `[output, input of a group, taps]`, with
    /// the taps in reverse order.
    fn of_phase(&self, phase: &[Phase]) -> Vec<f32> {
        let (inputs, outputs) = (self.shape[0] / self.groups, self.shape[1]);
        let all: usize = self.shape[2..].iter().product();
        // The tap of each weight of the phase.
        let mut taps = vec![0];
        for ((phase, stride), extent) in phase.iter().zip(self.strides).zip(&self.shape[2..]) {
            let along = (0..phase.taps).rev().map(|m| phase.tap + stride * m);
            taps = taps.iter().flat_map(|tap| along.clone().map(move |at| tap * extent + at)).collect();
        }
        let mut made = Vec::with_capacity(self.groups * outputs * inputs * taps.len());
        for (group, output) in (0..self.groups).flat_map(|g| (0..outputs).map(move |o| (g, o))) {
            for input in 0..inputs {
                let row = ((group * inputs + input) * outputs + output) * all;
                made.extend(taps.iter().map(|tap| self.values[row + tap]));
            }
        }
        made
    }
}
