//! The endpoints.

mod body;
mod chat;
mod completions;
mod embeddings;
mod guard;
mod page;
mod tokenize;

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use tower_http::cors::{AllowOrigin, CorsLayer};

pub use guard::{Peer, is_ours};

use crate::app::App;
use crate::error::{ApiError, json_response};
use crate::request::unknown_model;
use crate::schedule::Phase;
use crate::scrape::METRICS_TYPE;

pub fn router(app: Arc<App>) -> Router {
    let mut router = Router::new()
        .route("/v1/chat/completions", post(chat::chat))
        .route("/v1/completions", post(completions::completions))
        .route("/v1/embeddings", post(embeddings::embeddings))
        .route("/v1/models", get(models))
        .route("/v1/models/{name}", get(model))
        .route("/tokenize", post(tokenize::tokenize))
        .route("/detokenize", post(tokenize::detokenize))
        .route("/tokenizer_info", get(tokenize::info))
        .route("/metrics", get(metrics))
        .route("/health", get(health))
        .route("/", get(page::page))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(app.clone(), guard::guard));
    if !app.options.origins.is_empty() {
        router = router.layer(cors(&app.options.origins));
    }
    // Outermost, so that refusals are counted as well.
    router.layer(from_fn_with_state(app.clone(), guard::count)).with_state(app)
}

/// Lets pages of the origins call the server.
fn cors(origins: &[String]) -> CorsLayer {
    let allowed = match origins.iter().any(|origin| origin == "*") {
        true => AllowOrigin::any(),
        // The options have been checked, so every origin is a header's value.
        false => AllowOrigin::list(origins.iter().filter_map(|origin| origin.parse().ok())),
    };
    CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([Method::GET, Method::POST])
        .allow_headers([header::AUTHORIZATION, header::CONTENT_TYPE])
}

fn model_object(app: &App) -> Value {
    json!({
        "id": app.name, "object": "model", "created": app.created, "owned_by": "ferrane",
        "context_length": app.context,
    })
}

async fn models(State(app): State<Arc<App>>) -> Response {
    json_response(StatusCode::OK, &json!({"object": "list", "data": [model_object(&app)]}))
}

async fn model(State(app): State<Arc<App>>, name: Result<Path<String>, PathRejection>) -> Result<Response, ApiError> {
    // What does not decode is no name.
    let name = name.map_or_else(|_| String::new(), |Path(name)| name);
    if name != app.name {
        return Err(unknown_model(&name, &app.name));
    }
    Ok(json_response(StatusCode::OK, &model_object(&app)))
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    ([(header::CONTENT_TYPE, METRICS_TYPE)], app.metrics.text()).into_response()
}

async fn health(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    match app.queue.phase() {
        Phase::Open => Ok(json_response(StatusCode::OK, &json!({"status": "ok"}))),
        Phase::Draining | Phase::Stopped => Err(ApiError::ending()),
    }
}

async fn unknown(method: Method, uri: Uri) -> ApiError {
    ApiError::refused(StatusCode::NOT_FOUND, format!("unknown request URL: {method} {}", uri.path()))
        .code("unknown_url")
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    let message = format!("{} does not accept {method}", uri.path());
    ApiError::refused(StatusCode::METHOD_NOT_ALLOWED, message).code("method_not_allowed")
}
