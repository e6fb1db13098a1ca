//! The tokenizer as a service: `POST /tokenize`, `POST /detokenize`, `GET /tokenizer_info`.
//!
//! These are vLLM's, for programs that count or choose tokens without files of the model.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use ferrane_llm::tokenizer::Tokenizer;
use serde_json::{Value, json};

use super::body;
use crate::app::App;
use crate::error::{ApiError, json_response};
use crate::request::{Detokenize, Tokenize};

/// The tokens of a text. Names of control tokens are these tokens.
pub async fn tokenize(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let body = body::json(request, app.options.body).await?;
    let asked = Tokenize::read(body, &app.name)?;
    let shared = app.clone();
    let encoded = tokio::task::spawn_blocking(move || {
        let tokenizer = tokenizer(&shared)?;
        let mut ids = if asked.begin { tokenizer.begin().to_vec() } else { Vec::new() };
        let named = [tokenizer.bos(), tokenizer.eos()].into_iter().flatten();
        match named.into_iter().find(|id| name(tokenizer, *id) == asked.text) {
            Some(id) => ids.push(id),
            None => ids.extend(tokenizer.encode_chat(&asked.text)),
        }
        Ok::<_, ApiError>(ids)
    });
    let ids = encoded.await.map_err(|e| ApiError::internal(e.to_string()))??;
    let reply = json!({"tokens": ids, "count": ids.len(), "max_model_len": app.context});
    Ok(json_response(StatusCode::OK, &reply))
}

/// The text of tokens.
pub async fn detokenize(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let body = body::json(request, app.options.body).await?;
    let asked = Detokenize::read(body, &app.name)?;
    let shared = app.clone();
    let decoded = tokio::task::spawn_blocking(move || tokenizer(&shared).map(|t| t.decode(&asked.ids)));
    let text = decoded.await.map_err(|e| ApiError::internal(e.to_string()))??;
    Ok(json_response(StatusCode::OK, &json!({"prompt": text})))
}

/// The control tokens that begin and end a text, by name.
pub async fn info(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let tokenizer = tokenizer(&app)?;
    let named = |id: Option<u32>| id.map_or(Value::Null, |id| name(tokenizer, id).into());
    let reply = json!({
        "bos_token": named(tokenizer.bos()), "eos_token": named(tokenizer.eos()), "pad_token": null,
        "vocab_size": tokenizer.vocab_size(), "max_model_len": app.context,
    });
    Ok(json_response(StatusCode::OK, &reply))
}

fn tokenizer(app: &App) -> Result<&Tokenizer, ApiError> {
    app.model.tokenizer().map_err(|e| ApiError::internal(e.to_string()))
}

/// The name of a control token; the usual one for a vocabulary that has no names of them.
fn name(tokenizer: &Tokenizer, id: u32) -> String {
    let known = tokenizer.controls().iter().find(|name| tokenizer.id_of(name) == Some(id));
    let usual = if Some(id) == tokenizer.bos() { "<s>" } else { "</s>" };
    known.map_or(usual, String::as_str).to_string()
}
