//! Errors: those of the API, in OpenAI's shape, and those of a server that cannot begin.

use std::path::PathBuf;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// Why a server cannot begin or continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model has no tokenizer, or its logits cannot be computed.
    #[error(transparent)]
    Model(#[from] ferrane_llm::generate::Error),
    /// A file of API keys cannot be read.
    #[error("{}: {source}", path.display())]
    Keys {
        /// Path of the file.
        path: PathBuf,
        /// The cause, as the system reports it.
        source: std::io::Error,
    },
    /// A file of API keys has no key, so that every request would be refused.
    #[error("{}: no key; write one on each line, lines that begin with # are ignored", .0.display())]
    NoKeys(PathBuf),
    /// An option has a value that a server cannot work with.
    #[error("`{name}` {value}: {rule}")]
    Option {
        /// Name of the field of [`crate::ServerOptions`].
        name: &'static str,
        /// The value that was given.
        value: String,
        /// The values that are accepted.
        rule: &'static str,
    },
    /// The thread that owns the model ended before the model was ready.
    #[error("the thread that owns the model ended unexpectedly")]
    Thread,
    /// The system refuses the thread, the runtime or the listener that a server needs.
    #[error("the system refuses what the server needs: {0}")]
    Io(#[from] std::io::Error),
}

/// An error that a client gets: a status, and `{"error": {"message", "type", "param", "code"}}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub status: StatusCode,
    pub kind: &'static str,
    pub message: String,
    pub param: Option<String>,
    pub code: Option<&'static str>,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { status, kind, message: message.into(), param: None, code: None }
    }

    /// The client's request is wrong; `param` names the field.
    pub fn invalid(param: &str, message: impl Into<String>) -> ApiError {
        let param = Some(param.to_string());
        ApiError { param, ..ApiError::malformed(message) }
    }

    /// The client's request is wrong as a whole.
    pub fn malformed(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// The request is one of OpenAI's that this server does not carry out.
    pub fn unsupported(param: &str, message: impl Into<String>) -> ApiError {
        ApiError::invalid(param, message).code("unsupported_parameter")
    }

    /// The request is refused with this status.
    pub fn refused(status: StatusCode, message: impl Into<String>) -> ApiError {
        ApiError::new(status, "invalid_request_error", message)
    }

    /// The server cannot take the request now.
    pub fn busy(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message).code("rate_limit_exceeded")
    }

    /// The server is ending.
    pub fn ending() -> ApiError {
        let message = "the server is shutting down";
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", message).code("shutting_down")
    }

    /// The time of the request is over.
    pub fn late(seconds: u64) -> ApiError {
        let message = format!("the request took longer than the {seconds} seconds that the server allows");
        ApiError::new(StatusCode::GATEWAY_TIMEOUT, "server_error", message).code("timeout")
    }

    /// The model or the server failed.
    pub fn internal(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    /// The same error with a code.
    pub fn code(self, code: &'static str) -> ApiError {
        ApiError { code: Some(code), ..self }
    }

    /// The body of the reply, which is also the last event of a stream that fails.
    pub fn json(&self) -> Value {
        json!({"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}})
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = json_response(self.status, &self.json());
        let again = match self.status {
            // A slot is likely to become free soon; a server that ends may be replaced by another.
            StatusCode::TOO_MANY_REQUESTS => Some("1"),
            StatusCode::SERVICE_UNAVAILABLE => Some("5"),
            StatusCode::UNAUTHORIZED => {
                response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                None
            }
            _ => None,
        };
        if let Some(again) = again {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(again));
        }
        response
    }
}

/// A reply of JSON.
pub(crate) fn json_response(status: StatusCode, value: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}
