//! Limits, keys, names and origins.

use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use ferrane_serve::{LOOPBACK_HOSTS, ServerOptions};
use serde_json::json;

use crate::common::{complete, get, post, send, server};
use crate::scripted::Script;

/// ServerOptions that differ from the default.
fn options(change: impl FnOnce(&mut ServerOptions)) -> ServerOptions {
    let mut options = ServerOptions::default();
    change(&mut options);
    options
}

#[tokio::test]
async fn a_full_queue_refuses_with_the_time_to_wait() {
    let script = Script { delay: Duration::from_millis(30), ..Script::new(&"a".repeat(60)) };
    let server = script.server(options(|o| o.queue = 2));
    let router = server.router();
    let asked = json!({"prompt": [5, 6], "max_tokens": 8});
    let mut running = Vec::new();
    // One runs, two wait.
    for count in 1..=3 {
        let (clone, asked) = (router.clone(), asked.clone());
        running.push(tokio::spawn(async move { complete(&clone, asked).await }));
        while script.calls.load(Ordering::SeqCst) == 0 || (count > 1 && waiting(&router).await < count - 1) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    let refused = complete(&router, asked.clone()).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(
        (refused.error()["code"].as_str(), &refused.headers[header::RETRY_AFTER]),
        (Some("rate_limit_exceeded"), &header::HeaderValue::from_static("1"))
    );
    for task in running {
        task.await.unwrap().ok();
    }
    complete(&router, asked).await.ok();
}

/// Number of sequences that wait, by the metric.
async fn waiting(router: &axum::Router) -> usize {
    let text = get(router, "/metrics").await.text;
    let line = text.lines().find_map(|line| line.strip_prefix("ferrane_waiting_sequences ")).unwrap();
    line.parse().unwrap()
}

#[tokio::test]
async fn a_request_has_a_time() {
    let script = Script { delay: Duration::from_millis(20), ..Script::new(&"a".repeat(80)) };
    let server = script.server(options(|o| o.request_time = Duration::from_millis(150)));
    let router = server.router();
    let reply = complete(&router, json!({"prompt": [5, 6], "max_tokens": 80})).await;
    assert_eq!((reply.status, reply.error()["code"].as_str()), (StatusCode::GATEWAY_TIMEOUT, Some("timeout")));
    // A stream has begun with success, so its last event is the error.
    let asked = json!({"prompt": [5, 6], "max_tokens": 80, "stream": true});
    let reply = complete(&router, asked).await;
    assert_eq!(reply.status, StatusCode::OK);
    let last = reply.text.trim_end().rsplit("\n\n").next().unwrap().strip_prefix("data: ").unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(last).unwrap()["error"]["code"], "timeout");
    complete(&router, json!({"prompt": [5, 6], "max_tokens": 1})).await.ok();
}

#[tokio::test]
async fn a_body_has_a_size() {
    let server = server(options(|o| o.body = 200));
    let router = server.router();
    let reply = complete(&router, json!({"prompt": "a".repeat(200)})).await;
    assert_eq!(
        (reply.status, reply.error()["code"].as_str()),
        (StatusCode::PAYLOAD_TOO_LARGE, Some("request_too_large"))
    );
    complete(&router, json!({"prompt": "a", "max_tokens": 1})).await.ok();
}

#[tokio::test]
async fn keys_are_needed_where_they_are_given() {
    let server = server(options(|o| o.keys = vec!["sk-one".into(), "sk-two".into()]));
    let router = server.router();
    for path in ["/v1/models", "/metrics"] {
        let reply = get(&router, path).await;
        assert_eq!((reply.status, reply.error()["code"].as_str()), (StatusCode::UNAUTHORIZED, Some("invalid_api_key")));
        assert_eq!(reply.headers[header::WWW_AUTHENTICATE], "Bearer");
    }
    let with = |key: &str| {
        Request::get("/v1/models").header(header::AUTHORIZATION, format!("Bearer {key}")).body(Body::empty()).unwrap()
    };
    assert_eq!(send(&router, with("sk-two")).await.status, StatusCode::OK);
    assert_eq!(send(&router, with("sk-three")).await.status, StatusCode::UNAUTHORIZED);
    // The page asks for a key, and a supervisor has none.
    assert!(get(&router, "/").await.text.contains("data-key=\"yes\""));
    get(&router, "/health").await.ok();
}

#[tokio::test]
async fn other_names_are_refused() {
    let server = server(options(|o| o.hosts = LOOPBACK_HOSTS.map(str::to_string).to_vec()));
    let router = server.router();
    let asked = |host: &str| Request::get("/v1/models").header(header::HOST, host).body(Body::empty()).unwrap();
    assert_eq!(send(&router, asked("127.0.0.1:8080")).await.status, StatusCode::OK);
    assert_eq!(send(&router, asked("localhost")).await.status, StatusCode::OK);
    let refused = send(&router, asked("rebound.example:8080")).await;
    assert_eq!((refused.status, refused.error()["code"].as_str()), (StatusCode::FORBIDDEN, Some("host_not_allowed")));
}

#[tokio::test]
async fn origins_are_allowed_by_name() {
    let ask = |method: Method, origin: &str| {
        Request::builder()
            .method(method)
            .uri("/v1/models")
            .header(header::ORIGIN, origin)
            .header(header::ACCESS_CONTROL_REQUEST_METHOD, "POST")
            .body(Body::empty())
            .unwrap()
    };
    let closed = server(ServerOptions::default());
    let reply = send(&closed.router(), ask(Method::GET, "http://a.example")).await;
    assert!(reply.headers.get(header::ACCESS_CONTROL_ALLOW_ORIGIN).is_none());
    let open = server(options(|o| o.origins = vec!["http://a.example".into()]));
    let router = open.router();
    let reply = send(&router, ask(Method::OPTIONS, "http://a.example")).await;
    assert_eq!(reply.headers[header::ACCESS_CONTROL_ALLOW_ORIGIN], "http://a.example");
    let reply = send(&router, ask(Method::OPTIONS, "http://b.example")).await;
    assert!(reply.headers.get(header::ACCESS_CONTROL_ALLOW_ORIGIN).is_none());
}

#[tokio::test]
async fn a_model_without_a_template_only_continues() {
    use ferrane_serve::{Server, Setup};
    let server =
        Server::new(crate::common::model(), None, Default::default(), Setup::default(), ServerOptions::default())
            .unwrap();
    let router = server.router();
    let asked = json!({"model": "tiny", "messages": [{"role": "user", "content": "a"}]});
    let error = post(&router, "/v1/chat/completions", asked).await.error();
    assert!(error["message"].as_str().unwrap().contains("no chat template"), "{error}");
    assert!(get(&router, "/").await.text.contains("data-chat=\"no\""));
    complete(&router, json!({"prompt": "a", "max_tokens": 1})).await.ok();
}
