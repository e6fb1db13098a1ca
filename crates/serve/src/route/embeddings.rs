//! `POST /v1/embeddings`.
//!
//! The vector of a text is the normed state of the model after its last token, scaled
//! to length 1: a model that predicts has read the whole text only there.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use ferrane_diag::base64;
use ferrane_llm::sample::Sampling;
use serde_json::{Value, json};

use super::body;
use crate::app::App;
use crate::error::{ApiError, json_response};
use crate::request::Embedding;
use crate::schedule::{Client, Event, OutputKind, Plan};

/// Computes a vector for each text.
pub async fn embeddings(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    request: Request,
) -> Result<Response, ApiError> {
    let body = body::json(request, app.options.body).await?;
    let asked = Embedding::read(body, &app.name, app.model.config.dim, app.options.choices)?;
    let shared = app.clone();
    let prepared = tokio::task::spawn_blocking(move || {
        let ids = asked.inputs.iter().map(|input| shared.prompt_ids("input", input));
        ids.collect::<Result<Vec<_>, _>>().map(|ids| (asked, ids))
    });
    let (asked, prompts) = prepared.await.map_err(|e| ApiError::internal(e.to_string()))??;
    let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
    app.room("input", longest, Some(0))?;
    let (count, tokens) = (prompts.len(), prompts.iter().map(Vec::len).sum::<usize>());
    let plan = Plan {
        sampling: Sampling::greedy(),
        stop: Vec::new(),
        stop_ids: Vec::new(),
        max_tokens: 0,
        logprobs: None,
        echo: false,
        output: OutputKind::Hidden,
        constraint: None,
    };
    let mut events = app.submit(&client, prompts, plan, 1)?;
    let mut vectors = vec![Value::Null; count];
    let mut open = count;
    while open > 0 {
        match events.recv().await {
            Some(Event::Hidden { choice, state: Some(state) }) => vectors[choice] = vector(&state, asked.base64),
            Some(Event::Hidden { state: None, .. }) => {
                let message = "this server's device does not return the state that embeddings are made of";
                return Err(ApiError::refused(StatusCode::NOT_IMPLEMENTED, message).code("unsupported"));
            }
            Some(Event::End { .. }) => open -= 1,
            Some(Event::Failed(error)) => return Err(error),
            Some(Event::Prompt { .. } | Event::Piece { .. }) => {}
            None => return Err(ApiError::internal("the server stopped computing this request")),
        }
    }
    let entry = |(index, vector)| json!({"object": "embedding", "index": index, "embedding": vector});
    let data: Vec<Value> = vectors.into_iter().enumerate().map(entry).collect();
    let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
    Ok(json_response(StatusCode::OK, &json!({"object": "list", "data": data, "model": app.name, "usage": usage})))
}

/// A state, scaled to length 1.
fn vector(state: &[f32], as_base64: bool) -> Value {
    let length = state.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>().sqrt();
    let scaled = state.iter().map(|&v| if length > 0.0 { (f64::from(v) / length) as f32 } else { v });
    match as_base64 {
        true => base64(&scaled.flat_map(f32::to_le_bytes).collect::<Vec<u8>>()).collect::<String>().into(),
        false => scaled.map(Value::from).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_have_length_one() {
        assert_eq!(vector(&[3.0, -4.0], false), json!([0.6f32, -0.8f32]));
        assert_eq!(vector(&[0.0, 0.0], false), json!([0.0f32, 0.0f32]));
        // 1.0 is 0x3f800000, least significant byte first.
        assert_eq!(vector(&[2.0], true), json!("AACAPw=="));
    }
}
