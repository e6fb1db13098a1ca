//! Streamed replies.

use ferrane_serve::ServerOptions;
use serde_json::{Value, json};

use crate::common::{chat, complete, server};

#[tokio::test]
async fn a_streamed_completion_is_the_whole_one() {
    let server = server(ServerOptions::default());
    let router = server.router();
    let mut asked = json!({"prompt": "a cat", "max_tokens": 20, "seed": 3, "n": 2, "ignore_eos": true, "stop": "zq"});
    let whole = complete(&router, asked.clone()).await.ok();
    asked["stream"] = json!(true);
    asked["stream_options"] = json!({"include_usage": true});
    let events = complete(&router, asked).await.events();
    for index in 0..2 {
        let of = |e: &&Value| e["choices"][0]["index"] == index;
        let text: String = events.iter().filter(of).filter_map(|e| e["choices"][0]["text"].as_str()).collect();
        assert_eq!(whole["choices"][index]["text"], text);
        let last = events.iter().rfind(of).unwrap();
        assert_eq!(last["choices"][0]["finish_reason"], whole["choices"][index]["finish_reason"]);
    }
    let (last, id) = (events.last().unwrap(), &events[0]["id"]);
    // The slot still held the prompt, of which the last token is computed again.
    let mut usage = whole["usage"].clone();
    usage["prompt_tokens_details"]["cached_tokens"] = json!(usage["prompt_tokens"].as_u64().unwrap() - 1);
    assert_eq!((&last["choices"], &last["usage"]), (&json!([]), &usage));
    assert!(events.iter().all(|e| e["id"] == *id && e["object"] == "text_completion"));
    assert_ne!(whole["id"], *id);
}

#[tokio::test]
async fn a_streamed_chat_begins_with_the_role() {
    let server = server(ServerOptions::default());
    let router = server.router();
    let mut asked = json!({
        "messages": [{"role": "user", "content": "a cat"}], "max_completion_tokens": 20, "seed": 3, "logprobs": true,
        "top_logprobs": 2, "ignore_eos": true,
    });
    let whole = chat(&router, asked.clone()).await.ok();
    asked["stream"] = json!(true);
    let events = chat(&router, asked).await.events();
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    assert!(events.iter().all(|e| e["object"] == "chat.completion.chunk" && e.get("usage").is_none()));
    let text: String = events.iter().filter_map(|e| e["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(whole["choices"][0]["message"]["content"], text);
    let entries: Vec<Value> =
        events.iter().filter_map(|e| e["choices"][0]["logprobs"]["content"].as_array()).flatten().cloned().collect();
    assert_eq!(whole["choices"][0]["logprobs"]["content"], Value::from(entries));
    let reasons: Vec<&Value> = events.iter().map(|e| &e["choices"][0]["finish_reason"]).collect();
    assert!(reasons[..reasons.len() - 1].iter().all(|r| r.is_null()) && reasons[reasons.len() - 1] == "length");
}
