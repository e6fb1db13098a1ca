//! Language models: text that continues a prompt, in pieces.

use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};

use ferrane::llm::model;
use ferrane::llm::sample::{Sampler, Sampling};
use pyo3::prelude::*;

use crate::error::{self, failed};

/// Pieces that are generated ahead of the reader.
const AHEAD: usize = 16;

/// A language model with its tokenizer.
#[pyclass(frozen, module = "ferrane._native")]
pub struct LanguageModel {
    model: Arc<model::Model>,
    device: ferrane::Device,
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
        let opened = py.detach(|| match tokenizer {
            Some(tokenizer) => model::Model::open_with_tokenizer(path, tokenizer),
            None => model::Model::open(path),
        });
        let device = py.detach(|| ferrane::open(device)).map_err(|e| error::device(&e))?;
        Ok(LanguageModel { model: Arc::new(opened.map_err(failed)?), device })
    }

    /// Begins to continue a text by at most so many tokens.
    #[pyo3(signature = (prompt, tokens, temperature, top_p, top_k, seed))]
    fn stream(
        &self,
        prompt: String,
        tokens: usize,
        temperature: f32,
        top_p: f32,
        top_k: Option<usize>,
        seed: Option<u64>,
    ) -> PyResult<Pieces> {
        let sampling = Sampling { temperature, top_p, top_k, seed, ..Sampling::default() };
        let sampler = Sampler::new(&sampling).map_err(failed)?;
        let (model, device) = (Arc::clone(&self.model), self.device.clone());
        let (to, from) = sync_channel(AHEAD);
        std::thread::Builder::new()
            .name("ferrane-generate".into())
            .spawn(move || {
                let pieces = || -> Result<(), String> {
                    let mut generator =
                        model.generator(Some(&device), Default::default(), sampler).map_err(|e| e.to_string())?;
                    for piece in generator.generate(&prompt, tokens).map_err(|e| e.to_string())? {
                        // The reader has dropped the iterator.
                        if to.send(Ok(piece.map_err(|e| e.to_string())?.text)).is_err() {
                            break;
                        }
                    }
                    Ok(())
                };
                if let Err(error) = pieces() {
                    let _ = to.send(Err(error));
                }
            })
            .map_err(failed)?;
        Ok(Pieces(Mutex::new(from)))
    }
}

/// Pieces of text, as they are generated.
#[pyclass(frozen, module = "ferrane._native")]
pub struct Pieces(Mutex<Receiver<Result<String, String>>>);

#[pymethods]
impl Pieces {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let next = py.detach(|| self.0.lock().ok().and_then(|from| from.recv().ok()));
        next.transpose().map_err(failed)
    }
}
