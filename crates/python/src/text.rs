//! Language models: text that continues a prompt, in pieces.

use std::sync::Arc;

use ferrane::llm::model;
use ferrane::llm::sample::{Sampler, Sampling};
use pyo3::prelude::*;

use crate::error::{self, failed};
use crate::fork::unlocked;
use crate::queue::TextQueue;

/// A language model with its tokenizer.
#[pyclass(frozen, module = "ferrane._native")]
pub struct LanguageModel {
    model: Arc<model::Model>,
    /// `None` for the reference.
    device: Option<ferrane::Device>,
}

#[pymethods]
impl LanguageModel {
    #[new]
    #[pyo3(signature = (path, tokenizer = None, device = "emulator"))]
    fn new(
        py: Python<'_>,
        path: std::path::PathBuf,
        tokenizer: Option<std::path::PathBuf>,
        device: &str,
    ) -> PyResult<LanguageModel> {
        let opened = unlocked(py, || match tokenizer {
            Some(tokenizer) => model::Model::open_with_tokenizer(path, tokenizer),
            None => model::Model::open(path),
        })?;
        let device = unlocked(py, || ferrane::open_or_reference(device))?.map_err(|e| error::open(&e))?;
        Ok(LanguageModel { model: Arc::new(opened.map_err(failed)?), device })
    }

    /// Begins to continue a text by at most so many tokens.
    #[pyo3(signature = (prompt, tokens, temperature, top_p, top_k, seed))]
    fn stream(
        &self,
        py: Python<'_>,
        prompt: String,
        tokens: usize,
        temperature: f32,
        top_p: f32,
        top_k: Option<usize>,
        seed: Option<u64>,
    ) -> PyResult<Pieces> {
        unlocked(py, || ())?;
        let sampling = Sampling { temperature, top_p, top_k, seed, ..Sampling::default() };
        let sampler = Sampler::new(&sampling).map_err(failed)?;
        let (model, device) = (Arc::clone(&self.model), self.device.clone());
        let text = |e: &dyn std::fmt::Display| e.to_string();
        let stream = TextQueue::spawn("ferrane-generate", move |send| {
            let generator = model.generator(device.as_ref(), Default::default(), sampler);
            let mut generator = generator.map_err(|e| text(&e))?;
            for piece in generator.generate(&prompt, tokens).map_err(|e| text(&e))? {
                if !send(piece.map_err(|e| text(&e))?.text) {
                    break;
                }
            }
            Ok(())
        })?;
        Ok(Pieces(stream))
    }
}

/// Pieces of text, as they are generated.
#[pyclass(frozen, module = "ferrane._native")]
pub struct Pieces(TextQueue);

#[pymethods]
impl Pieces {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.0.next(py)
    }

    /// Ends the generation, and waits for its thread.
    fn close(&self, py: Python<'_>) {
        self.0.close(py);
    }
}
