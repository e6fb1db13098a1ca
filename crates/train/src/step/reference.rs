//! The plain fp32 model as an engine without a device: slow, and the oracle for the pipeline.

use std::time::Instant;

use ferrane_llm::config::Config;
use ferrane_llm::reference::{Error, Reference};
use ferrane_llm::weights::Weights;

use super::{Engine, MicroStep, Parts, StepError, counted};
use crate::optim::Gradients;

/// Runs [`ferrane_llm::reference`]. It keeps nothing of a step, so staging does nothing.
///
/// It reports no `max_dy`, because fp32 needs no loss scale.
#[derive(Debug, Clone)]
pub struct ReferenceEngine {
    config: Config,
    /// Gradients of all weights, from which those of adapters or of some tensors follow; allocated
    /// with the first window of a run that trains these.
    whole: Option<Weights>,
}

impl ReferenceEngine {
    /// An engine for models of this configuration.
    pub fn new(config: Config) -> Self {
        ReferenceEngine { config, whole: None }
    }
}

impl Engine for ReferenceEngine {
    fn stage(&mut self, _weights: &Weights) -> Result<(), StepError> {
        Ok(())
    }

    fn micro_step(
        &mut self,
        weights: &Weights,
        gradients: &mut Gradients,
        inputs: &[u32],
        targets: &[u32],
        loss_scale: f32,
    ) -> Result<MicroStep, StepError> {
        let begun = Instant::now();
        let model = Reference::new(&self.config, weights).map_err(failed)?;
        let scale = f64::from(loss_scale) * (counted(targets) as f64 / targets.len().max(1) as f64);
        let whole = gradients.frozen().is_empty();
        let loss = match gradients.begin_adapters() {
            None if whole => model.accumulate(inputs, targets, scale, gradients.sums(&self.config)).map_err(failed)?,
            None => {
                let whole = zeroed(&mut self.whole, &self.config);
                let loss = model.accumulate(inputs, targets, scale, whole).map_err(failed)?;
                gradients.add(&self.config, whole);
                loss
            }
            Some((adapters, sums, first)) => {
                let whole = zeroed(&mut self.whole, &self.config);
                let loss = model.accumulate(inputs, targets, scale, whole).map_err(failed)?;
                let project = adapters.project(whole, sums, first);
                project.map_err(|e| StepError::Shape(e.to_string()))?;
                loss
            }
        } as f32;
        // The reference does not measure parts; all of its work is on the CPU.
        let parts = Parts { elementwise: begun.elapsed(), ..Parts::default() };
        Ok(MicroStep { loss, finite: loss.is_finite(), max_dy: 0.0, parts })
    }

    fn loss(&mut self, weights: &Weights, inputs: &[u32], targets: &[u32]) -> Result<f32, StepError> {
        let model = Reference::new(&self.config, weights).map_err(failed)?;
        Ok(model.loss(inputs, targets).map_err(failed)? as f32)
    }
}

/// Gradients of zero for all weights.
fn zeroed<'a>(whole: &'a mut Option<Weights>, config: &Config) -> &'a mut Weights {
    let whole = whole.get_or_insert_with(|| Weights::zeros(config));
    whole.tensors_mut(config).into_iter().for_each(|tensor| tensor.data.fill(0.0));
    whole
}

fn failed(error: Error) -> StepError {
    match error {
        Error::Token { token, position, vocab } => StepError::Token { id: token, position, vocab },
        other => StepError::Shape(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrane_llm::config::preset;
    use ferrane_llm::weights::Init;

    #[test]
    fn scales_gradients_and_refuses_ids() {
        let config = Config { dim: 16, head_dim: 2, hidden: 8, vocab: 10, layers: 1, ..preset("stories260k").unwrap() };
        let weights = Weights::init(&config, Init::Normal { std: 0.3 }, 1);
        let mut engine = ReferenceEngine::new(config.clone());
        engine.stage(&weights).unwrap();
        let mut step = |scale, gradients: &mut Gradients| {
            engine.micro_step(&weights, gradients, &[1, 2, 3], &[2, 3, 9], scale).unwrap()
        };
        let (mut one, mut many) = (Gradients::new(&config), Gradients::new(&config));
        let found = step(1.0, &mut one);
        step(64.0, &mut many);
        assert!(found.finite && found.loss > 0.0);
        let (one, many) = (one.values().unwrap(), many.values().unwrap());
        assert!(one.layers[0].wq.iter().any(|g| *g != 0.0));
        // A power of two scales every intermediate exactly.
        for (one, many) in one.tensors(&config).iter().zip(many.tensors(&config)) {
            assert!(one.data.iter().zip(many.data).all(|(a, b)| a * 64.0 == *b), "{}", one.name);
        }
        assert_eq!(engine.loss(&weights, &[1, 2, 3], &[2, 3, 9]).unwrap(), found.loss);
        let error = engine.loss(&weights, &[1, 2, 3], &[2, 10, 9]).unwrap_err();
        assert!(matches!(error, StepError::Token { id: 10, position: 1, vocab: 10 }));
        assert!(matches!(engine.loss(&weights, &[1], &[]), Err(StepError::Shape(_))));
    }
}
