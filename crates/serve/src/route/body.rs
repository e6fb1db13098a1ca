//! The body of a request as JSON.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use serde_json::Value;
use tokio::time::timeout;
use tokio_stream::StreamExt;

use crate::error::ApiError;

/// Time that a client has to send a body.
const TIME: Duration = Duration::from_secs(30);

/// Reads the body of a request, at most `limit` bytes.
pub async fn json(request: Request, limit: usize) -> Result<Value, ApiError> {
    if !is_json(request.headers()) {
        // A page of another origin may send plain text without being asked, but not this type.
        let message = "the body must be JSON, with `Content-Type: application/json`";
        return Err(ApiError::refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, message).code("unsupported_media_type"));
    }
    let late = |_| {
        let message = format!("the body did not arrive within {} seconds", TIME.as_secs());
        ApiError::refused(StatusCode::REQUEST_TIMEOUT, message).code("timeout")
    };
    let bytes = timeout(TIME, collect(request.into_body(), limit)).await.map_err(late)??;
    serde_json::from_slice(&bytes)
        .map_err(|e| ApiError::malformed(format!("the body is not JSON: {e}")).code("invalid_json"))
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}

async fn collect(body: Body, limit: usize) -> Result<Vec<u8>, ApiError> {
    let mut bytes = Vec::new();
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|e| ApiError::malformed(format!("the body is incomplete: {e}")))?;
        if bytes.len() + chunk.len() > limit {
            let message = format!("the body is larger than {limit} bytes");
            return Err(ApiError::refused(StatusCode::PAYLOAD_TOO_LARGE, message).code("request_too_large"));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}
