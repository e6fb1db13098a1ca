//! Requests that are wrong, each with an error of OpenAI's shape.

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use ferrane_serve::ServerOptions;
use serde_json::{Value, json};

use crate::common::{get, named, post, post_text, send, server};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";
const EMBEDDINGS: &str = "/v1/embeddings";

/// A chat with further fields.
fn chat(more: Value) -> Value {
    let mut body = json!({"model": "tiny", "messages": [{"role": "user", "content": "a"}]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// A completion with further fields.
fn completion(more: Value) -> Value {
    let mut body = json!({"model": "tiny", "prompt": "a"});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[tokio::test]
async fn each_wrong_field_is_named() {
    let server = server(ServerOptions::default());
    let router = server.router();
    let message = |message: Value| chat(json!({"messages": [message]}));
    let tool = |tool: Value| chat(json!({"tools": [tool]}));
    // Path, body, status, and the field that the error names.
    let cases: Vec<(&str, Value, u16, Option<&str>)> = vec![
        (COMPLETIONS, json!([1]), 400, None),
        (COMPLETIONS, json!("text"), 400, None),
        (COMPLETIONS, json!({"prompt": "a"}), 400, Some("model")),
        (COMPLETIONS, json!({"model": "gpt-4", "prompt": "a"}), 404, Some("model")),
        (COMPLETIONS, json!({"model": 1, "prompt": "a"}), 400, Some("model")),
        (COMPLETIONS, json!({"model": "tiny"}), 400, Some("prompt")),
        (COMPLETIONS, completion(json!({"prompt": {}})), 400, Some("prompt")),
        (COMPLETIONS, completion(json!({"prompt": []})), 400, Some("prompt")),
        (COMPLETIONS, completion(json!({"prompt": [1, "a"]})), 400, Some("prompt.0")),
        (COMPLETIONS, completion(json!({"prompt": [-1]})), 400, Some("prompt.0")),
        (COMPLETIONS, completion(json!({"prompt": [999999]})), 400, Some("prompt")),
        (COMPLETIONS, completion(json!({"prompt": [[]]})), 400, Some("prompt")),
        (COMPLETIONS, completion(json!({"max_tokens": -1})), 400, Some("max_tokens")),
        (COMPLETIONS, completion(json!({"max_tokens": "many"})), 400, Some("max_tokens")),
        (COMPLETIONS, completion(json!({"max_tokens": 18446744073709551615u64})), 400, Some("max_tokens")),
        (COMPLETIONS, completion(json!({"temperature": 2.5})), 400, Some("temperature")),
        (COMPLETIONS, completion(json!({"temperature": "hot"})), 400, Some("temperature")),
        (COMPLETIONS, completion(json!({"top_p": -0.1})), 400, Some("top_p")),
        (COMPLETIONS, completion(json!({"n": 0})), 400, Some("n")),
        (COMPLETIONS, completion(json!({"n": 17})), 400, Some("n")),
        (COMPLETIONS, completion(json!({"n": 9, "prompt": ["a", "b"]})), 400, Some("prompt")),
        (COMPLETIONS, completion(json!({"logprobs": true})), 400, Some("logprobs")),
        (COMPLETIONS, completion(json!({"logprobs": 21})), 400, Some("logprobs")),
        (COMPLETIONS, completion(json!({"stop": [""]})), 400, Some("stop")),
        (COMPLETIONS, completion(json!({"stop": ["a", 1]})), 400, Some("stop.1")),
        (COMPLETIONS, completion(json!({"stop": vec!["a"; 17]})), 400, Some("stop")),
        (COMPLETIONS, completion(json!({"logit_bias": {"x": 1}})), 400, Some("logit_bias.x")),
        (COMPLETIONS, completion(json!({"logit_bias": {"1": 101}})), 400, Some("logit_bias.1")),
        (COMPLETIONS, completion(json!({"seed": 1.5})), 400, Some("seed")),
        (COMPLETIONS, completion(json!({"stream": "yes"})), 400, Some("stream")),
        (COMPLETIONS, completion(json!({"stream_options": {}})), 400, Some("stream_options")),
        (COMPLETIONS, completion(json!({"stream": true, "stream_options": {"x": 1}})), 400, Some("stream_options.x")),
        (COMPLETIONS, completion(json!({"suffix": "end"})), 400, Some("suffix")),
        (COMPLETIONS, completion(json!({"best_of": 3})), 400, Some("best_of")),
        (COMPLETIONS, completion(json!({"presence_penalty": 3})), 400, Some("presence_penalty")),
        (COMPLETIONS, completion(json!({"temprature": 1})), 400, Some("temprature")),
        (CHAT, json!({"model": "tiny"}), 400, Some("messages")),
        (CHAT, json!({"model": "tiny", "messages": []}), 400, Some("messages")),
        (CHAT, json!({"model": "tiny", "messages": "hi"}), 400, Some("messages")),
        (CHAT, message(json!("hi")), 400, Some("messages.0")),
        (CHAT, message(json!({"content": "hi"})), 400, Some("messages.0.role")),
        (CHAT, message(json!({"role": "robot", "content": "hi"})), 400, Some("messages.0.role")),
        (CHAT, message(json!({"role": "user"})), 400, Some("messages.0.content")),
        (CHAT, message(json!({"role": "user", "content": 1})), 400, Some("messages.0.content")),
        (
            CHAT,
            message(json!({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]})),
            400,
            Some("messages.0.content.0.type"),
        ),
        (CHAT, message(json!({"role": "tool", "content": "1"})), 400, Some("messages.0.tool_call_id")),
        (CHAT, message(json!({"role": "user", "content": "a", "tool_calls": []})), 400, Some("messages.0.tool_calls")),
        (
            CHAT,
            message(json!({"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]})),
            400,
            Some("messages.0.tool_calls.0.function.name"),
        ),
        (CHAT, chat(json!({"tools": "f"})), 400, Some("tools")),
        (CHAT, tool(json!({"type": "code"})), 400, Some("tools.0.type")),
        (CHAT, tool(json!({"type": "function"})), 400, Some("tools.0.function")),
        (CHAT, tool(json!({"type": "function", "function": {"name": "a b"}})), 400, Some("tools.0.function.name")),
        (CHAT, chat(json!({"tool_choice": "auto"})), 400, Some("tool_choice")),
        (CHAT, chat(json!({"response_format": {"type": "xml"}})), 400, Some("response_format.type")),
        (CHAT, chat(json!({"top_logprobs": 3})), 400, Some("top_logprobs")),
        (CHAT, chat(json!({"max_tokens": 0})), 400, Some("max_tokens")),
        (CHAT, chat(json!({"functions": []})), 400, Some("functions")),
        (CHAT, chat(json!({"modalities": ["text", "audio"]})), 400, Some("modalities")),
        (EMBEDDINGS, json!({"model": "tiny"}), 400, Some("input")),
        (EMBEDDINGS, json!({"model": "tiny", "input": "a", "dimensions": 5}), 400, Some("dimensions")),
        (EMBEDDINGS, json!({"model": "tiny", "input": "a", "encoding_format": "hex"}), 400, Some("encoding_format")),
    ];
    for (path, body, status, param) in cases {
        let reply = post(&router, path, body.clone()).await;
        assert_eq!(reply.status.as_u16(), status, "{path} {body}: {}", reply.text);
        let error = reply.error();
        assert_eq!(error["param"].as_str(), param, "{path} {body}: {error}");
        assert_eq!(error["type"], "invalid_request_error", "{path} {body}");
    }
    // The server is as it was.
    post(&router, COMPLETIONS, completion(json!({"max_tokens": 1}))).await.ok();
}

#[tokio::test]
async fn bodies_that_are_no_json() {
    let server = server(ServerOptions::default());
    let router = server.router();
    let deep = "[".repeat(100_000);
    for text in ["", "{", "{\"model\": \"tiny\"", "nul", "\u{feff}{}", &deep, "{\"a\": 1e999}"] {
        let reply = post_text(&router, COMPLETIONS, text.into()).await;
        assert_eq!((reply.status, &reply.error()["code"]), (StatusCode::BAD_REQUEST, &json!("invalid_json")));
    }
    let request = Request::post(COMPLETIONS).header(header::CONTENT_TYPE, "application/json");
    let reply = send(&router, request.body(Body::from(vec![0xff, 0xfe])).unwrap()).await;
    assert_eq!(reply.error()["code"], "invalid_json");
    for kind in [None, Some("text/plain"), Some("application/x-www-form-urlencoded")] {
        let request = Request::post(COMPLETIONS);
        let request = kind.into_iter().fold(request, |r, kind| r.header(header::CONTENT_TYPE, kind));
        let reply = send(&router, request.body(completion(json!({})).to_string().into()).unwrap()).await;
        assert_eq!(
            (reply.status, reply.error()["code"] == "unsupported_media_type"),
            (StatusCode::UNSUPPORTED_MEDIA_TYPE, true)
        );
    }
}

#[tokio::test]
async fn wrong_paths_and_methods() {
    let server = server(ServerOptions::default());
    let router = server.router();
    for path in ["/v1/complete", "/v2/models", "/v1/chat/completions/", "/../etc/passwd"] {
        let reply = get(&router, path).await;
        assert_eq!((reply.status, &reply.error()["code"]), (StatusCode::NOT_FOUND, &json!("unknown_url")), "{path}");
    }
    for name in ["/v1/models/%ff", "/v1/models/other"] {
        assert_eq!(get(&router, name).await.error()["code"], "model_not_found");
    }
    let reply = get(&router, CHAT).await;
    assert_eq!((reply.status, &reply.error()["code"]), (StatusCode::METHOD_NOT_ALLOWED, &json!("method_not_allowed")));
    let reply = post(&router, "/v1/models", json!({})).await;
    assert_eq!(reply.status, StatusCode::METHOD_NOT_ALLOWED);
    reply.error();
    assert_eq!(post(&router, EMBEDDINGS, named(json!({"input": "a", "x": 1}))).await.error()["param"], "x");
}
