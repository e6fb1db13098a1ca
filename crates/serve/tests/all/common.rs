//! A tiny model, a server over it, and requests without a socket.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, header};
use ferrane_llm::chat::Template;
use ferrane_llm::config::{Config, preset};
use ferrane_llm::model::Model;
use ferrane_llm::tokenizer::Tokenizer;
use ferrane_llm::weights::{Init, Weights, native};
use ferrane_serve::{Server, ServerOptions, Setup};
use serde_json::{Value, json};
use tower::ServiceExt as _;

/// Positions of the model's context.
pub const CONTEXT: usize = 96;

/// A template with marks that the tokenizer of the model spells letter by letter.
pub const TEMPLATE: &str = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}\
    {% for t in tools or [] %}tool {{ t.function.name }}\n{% endfor %}\
    {% if add_generation_prompt %}assistant:{% endif %}";

/// A model with random weights, opened from files as any other.
pub fn model() -> Model {
    let folder = tempfile::tempdir().unwrap();
    let text = "once upon a time there was a little cat who liked to play with the ball in the garden";
    let tokenizer = Tokenizer::train(&text.repeat(3), 300).unwrap();
    let base = preset("stories260k").unwrap();
    let vocab = tokenizer.vocab_size();
    let config =
        Config { dim: 16, hidden: 24, layers: 2, heads: 4, kv_heads: 2, head_dim: 4, vocab, max_seq: CONTEXT, ..base };
    let weights = Weights::init(&config, Init::Normal { std: 0.3 }, 5);
    native::save(&folder.path().join("tiny.safetensors"), &config, &weights).unwrap();
    tokenizer.save(folder.path().join("tokenizer.bin")).unwrap();
    Model::open(folder.path().join("tiny.safetensors")).unwrap()
}

/// The usual setup, with a chat template.
pub fn setup() -> Setup {
    let mut setup = Setup::default();
    setup.template = Some(Template::new(TEMPLATE).unwrap());
    setup
}

/// A server of the model in the reference.
pub fn server(options: ServerOptions) -> Server {
    Server::new(model(), None, Default::default(), setup(), options).unwrap()
}

#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: axum::http::HeaderMap,
    pub text: String,
}

impl Reply {
    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    /// The body of a success.
    #[track_caller]
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, StatusCode::OK, "{}", self.text);
        self.json()
    }

    /// The error, whose shape is checked.
    #[track_caller]
    pub fn error(&self) -> Value {
        let body = self.json();
        let error = &body["error"];
        assert!(error["message"].as_str().is_some_and(|m| !m.is_empty()), "{body}");
        assert!(error["type"].is_string() && body.as_object().unwrap().len() == 1, "{body}");
        for field in ["param", "code"] {
            assert!(error[field].is_null() || error[field].is_string(), "{body}");
        }
        assert!(error.as_object().unwrap().len() == 4 && !self.status.is_success(), "{body}");
        error.clone()
    }

    /// The objects of a stream, which must end properly.
    #[track_caller]
    pub fn events(&self) -> Vec<Value> {
        assert_eq!(self.status, StatusCode::OK, "{}", self.text);
        assert_eq!(self.headers[header::CONTENT_TYPE], "text/event-stream");
        let rest = self.text.strip_suffix("data: [DONE]\n\n").expect("a last event");
        let event = |part: &str| serde_json::from_str(part.strip_prefix("data: ").unwrap()).unwrap();
        rest.split_terminator("\n\n").map(event).collect()
    }
}

/// Sends a request to a router.
pub async fn send(router: &Router, request: Request<Body>) -> Reply {
    let response = router.clone().oneshot(request).await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    Reply { status, headers, text: String::from_utf8(bytes.to_vec()).unwrap() }
}

/// `GET`.
pub async fn get(router: &Router, path: &str) -> Reply {
    send(router, Request::get(path).body(Body::empty()).unwrap()).await
}

/// `POST` of JSON.
pub async fn post(router: &Router, path: &str, body: Value) -> Reply {
    post_text(router, path, body.to_string()).await
}

/// `POST` of a text that claims to be JSON.
pub async fn post_text(router: &Router, path: &str, body: String) -> Reply {
    let request = Request::post(path).header(header::CONTENT_TYPE, "application/json").body(body.into());
    send(router, request.unwrap()).await
}

/// `POST /v1/completions` with the name of the model added.
pub async fn complete(router: &Router, body: Value) -> Reply {
    post(router, "/v1/completions", named(body)).await
}

/// `POST /v1/chat/completions` with the name of the model added.
pub async fn chat(router: &Router, body: Value) -> Reply {
    post(router, "/v1/chat/completions", named(body)).await
}

/// A body with the name of the model.
pub fn named(mut body: Value) -> Value {
    body.as_object_mut().unwrap().entry("model").or_insert_with(|| json!("tiny"));
    body
}
