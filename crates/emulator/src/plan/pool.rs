//! Lowers poolings.
//!
//! Poolings of floats whose results are dense are computed by `host::conv`, which is prepared here.
//! The rules of a machine and integers take the general routine of the step.

use std::sync::Arc;

use ferrane_device::Result;
use ferrane_host::conv;
use ferrane_mil::Op;

use super::args::Args;
use super::build::Lowering;
use crate::ir::{Pool, PoolForm, StepKind, View, Window};

impl<'a> Lowering<'a> {
    pub(super) fn pool(&mut self, op: &'a Op, args: &Args<'a>) -> Result<()> {
        let y = op.outputs[0];
        let x = self.operand(args, op, "x")?;
        let shape = self.shape(y)?;
        let kernel = args.ints("kernel_sizes")?.into_iter().map(|k| k.max(1) as usize).collect();
        let window = self.window(args, &x.shape[2..], &shape[2..], kernel)?;
        let form = match op.name.as_str() {
            "max_pool" => PoolForm::Max,
            "l2_pool" => PoolForm::L2,
            _ => PoolForm::Average(args.flag("exclude_padding_from_average")?),
        };
        let round = self.policy.rounds(self.dtype(y)?);
        let floats = x.storage.is_float() && self.storage(y)?.is_float() && self.policy.rules.is_none();
        let Some(images) = (if floats { images(&x, &shape, form, &window) } else { None }) else {
            return self.plain(y, vec![x], StepKind::Pool(Pool { form, window, round, images: None }));
        };
        let last = self.images[y.index()];
        let reads = vec![if last { self.with_channels_last(&x)? } else { x }];
        let (to, layout) = self.image_result(y, &shape, last, &reads)?;
        self.push(
            StepKind::Pool(Pool { form, window, round, images: Some((images, layout)) }),
            reads,
            vec![to.clone()],
        )?;
        self.settle(y, to)
    }
}

/// The pooling of one image, if its shape is one that [`conv::Pooling`] takes.
fn images(x: &View, shape: &[usize], form: PoolForm, window: &Window) -> Option<Arc<conv::Pooling>> {
    let function = match form {
        PoolForm::Max => conv::PoolFunction::Max,
        PoolForm::Average(true) => conv::PoolFunction::Mean,
        PoolForm::Average(false) => conv::PoolFunction::MeanWithPadding(window.padded.clone()),
        PoolForm::L2 => conv::PoolFunction::L2,
    };
    let wanted = conv::ConvShape {
        channels: x.shape[1],
        outputs: shape[1],
        groups: x.shape[1],
        input: x.shape[2..].to_vec(),
        output: shape[2..].to_vec(),
        kernel: window.kernel.clone(),
        strides: window.strides.clone(),
        // A pooling has none.
        dilations: vec![1; window.kernel.len()],
        pad: window.pad.clone(),
    };
    conv::Pooling::new(wanted, function).map(Arc::new)
}
