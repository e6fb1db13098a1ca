//! The activations of a text, layer after layer.

use ferrane_host::gemm::GemmError;

use crate::config::Config;
use crate::reference::{self, LayerInputs};
use crate::weights::{Layer, Part};

use super::feedback::Hessian;

/// The residual stream of each window of a text, before a layer.
pub(super) struct Calibration {
    pub(super) streams: Vec<Vec<f32>>,
}

/// Sums over the activations that the matrices of a layer read.
pub(super) struct LayerHessians {
    normed: Hessian,
    attended: Hessian,
    /// `None` for experts: each reads a part of the text, which is too little for sums of its own.
    middle_normed: Option<Hessian>,
    gated: Option<Hessian>,
}

impl LayerHessians {
    /// The sums for a matrix; `None` for other tensors, and for experts.
    pub(super) fn of(&self, part: Part) -> Option<&Hessian> {
        match part {
            Part::Wq | Part::Wk | Part::Wv => Some(&self.normed),
            Part::Wo => Some(&self.attended),
            Part::W1 | Part::W3 => self.middle_normed.as_ref(),
            Part::W2 => self.gated.as_ref(),
            _ => None,
        }
    }
}

impl Calibration {
    /// The sums of a layer; the streams stay before it.
    pub(super) fn hessians(&self, config: &Config, index: usize, layer: &Layer) -> Result<LayerHessians, GemmError> {
        let dense = config.experts(index).is_none();
        let mut sums = LayerHessians {
            normed: Hessian::new(config.dim),
            attended: Hessian::new(config.q_dim()),
            middle_normed: dense.then(|| Hessian::new(config.dim)),
            gated: dense.then(|| Hessian::new(config.hidden)),
        };
        for stream in &self.streams {
            let LayerInputs { normed, attended, middle_normed, gated } =
                reference::layer(config, index, layer, &mut stream.clone());
            sums.normed.add(&normed)?;
            sums.attended.add(&attended)?;
            if let (Some(middle), Some(down)) = (&mut sums.middle_normed, &mut sums.gated) {
                middle.add(&middle_normed)?;
                down.add(&gated)?;
            }
        }
        Ok(sums)
    }

    /// Moves the streams past a layer.
    pub(super) fn advance(&mut self, config: &Config, index: usize, layer: &Layer) {
        for stream in &mut self.streams {
            reference::layer(config, index, layer, stream);
        }
    }
}
