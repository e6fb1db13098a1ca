//! Each endpoint, with what the model computes.

use axum::http::StatusCode;
use ferrane_llm::chat::Template;
use ferrane_llm::config::{Config, preset};
use ferrane_llm::generate::NextLogits;
use ferrane_llm::model::Model;
use ferrane_llm::reference::Reference;
use ferrane_llm::sample::{argmax, log_probs};
use ferrane_llm::weights::{Init, Weights, native};
use ferrane_serve::{Server, ServerOptions, Setup};
use ferrane_testdata::tokenizer::byte_tokenizer;
use serde_json::{Value, json};

use crate::common::{CONTEXT, chat, complete, get, model, named, post, server};

#[tokio::test]
async fn models_health_metrics_and_the_page() {
    let server = server(ServerOptions::default());
    let router = server.router();
    let list = get(&router, "/v1/models").await.ok();
    assert_eq!((&list["object"], &list["data"][0]["id"]), (&json!("list"), &json!("tiny")));
    assert_eq!(get(&router, "/v1/models/tiny").await.ok(), list["data"][0]);
    assert_eq!(get(&router, "/v1/models/gpt-4").await.error()["code"], "model_not_found");
    assert_eq!(get(&router, "/health").await.ok(), json!({"status": "ok"}));
    complete(&router, json!({"prompt": "once", "max_tokens": 3, "ignore_eos": true})).await.ok();
    let metrics = get(&router, "/metrics").await.text;
    for line in [
        "ferrane_requests_total{endpoint=\"/v1/completions\",status=\"200\"} 1",
        "ferrane_generated_tokens_total 3",
        "ferrane_sequences_total{end=\"length\"} 1",
        "ferrane_first_token_seconds_count 1",
        "ferrane_next_token_seconds_count 2",
        "ferrane_waiting_sequences 0",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    let page = get(&router, "/").await;
    assert!(page.text.contains("data-model=\"tiny\"") && page.text.contains("data-chat=\"yes\""));
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("connect-src 'self'"), "{policy}");
}

/// The greedy continuation of ids by the library.
fn greedy(prompt: &[u32], count: usize) -> Vec<u32> {
    let model = model();
    let mut logits = Reference::new(&model.config, model.fp32_weights().unwrap()).unwrap().decoder();
    let mut ids = Vec::new();
    let mut feed = prompt.to_vec();
    for _ in 0..count {
        let id = argmax(NextLogits::feed(&mut logits, &feed).unwrap()).unwrap();
        ids.push(id);
        feed = vec![id];
    }
    ids
}

#[tokio::test]
async fn completions_are_what_the_model_says() {
    let server = server(ServerOptions::default());
    let router = server.router();
    let model = model();
    let tokenizer = model.tokenizer().unwrap();
    let prompt: Vec<u32> = tokenizer.bos().into_iter().chain(tokenizer.encode("once upon")).collect();
    let ids = greedy(&prompt, 12);
    let mut stream = tokenizer.stream();
    prompt.iter().for_each(|&id| drop(stream.push(id)));
    let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
    text += &stream.finish();
    let asked = json!({"prompt": "once upon", "max_tokens": 12, "temperature": 0, "ignore_eos": true});
    let reply = complete(&router, asked.clone()).await.ok();
    assert_eq!(reply["choices"], json!([{"index": 0, "text": text, "logprobs": null, "finish_reason": "length"}]));
    let usage = json!({
        "prompt_tokens": prompt.len(), "completion_tokens": 12, "total_tokens": prompt.len() + 12,
        "prompt_tokens_details": {"cached_tokens": 0},
    });
    assert_eq!((&reply["object"], &reply["usage"]), (&json!("text_completion"), &usage));
    // The same as ids, as one of several prompts, and with n.
    let mut other = asked.clone();
    other["prompt"] = json!(prompt);
    assert_eq!(complete(&router, other.clone()).await.ok()["choices"], reply["choices"]);
    other["prompt"] = json!(["a cat", "once upon"]);
    other["n"] = json!(2);
    let several = complete(&router, other).await.ok();
    let texts: Vec<&Value> = (0..4).map(|i| &several["choices"][i]["text"]).collect();
    assert_eq!((texts[2], texts[3], texts[0] == texts[1]), (&json!(text), &json!(text), true));
    let a_cat = tokenizer.encode("a cat").len() + 1;
    assert_eq!(several["usage"]["prompt_tokens"], a_cat + prompt.len());
    assert_eq!(several["usage"]["completion_tokens"], 48);
}

#[tokio::test]
async fn echo_returns_the_log_probabilities_of_the_prompt() {
    let server = server(ServerOptions::default());
    let router = server.router();
    let model = model();
    let tokenizer = model.tokenizer().unwrap();
    let prompt: Vec<u32> = tokenizer.bos().into_iter().chain(tokenizer.encode("the little cat")).collect();
    let mut reference = Reference::new(&model.config, model.fp32_weights().unwrap()).unwrap().decoder();
    let mut expected = vec![Value::Null];
    for pair in prompt.windows(2) {
        let logits = reference.decode(pair[0]).unwrap();
        expected.push(log_probs(logits, pair[1], 0).unwrap().chosen.log_prob.into());
    }
    let asked = json!({"prompt": "the little cat", "echo": true, "logprobs": 2, "max_tokens": 0});
    let reply = complete(&router, asked.clone()).await.ok();
    let choice = &reply["choices"][0];
    assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!("the little cat"), &json!("length")));
    let probs = &choice["logprobs"];
    assert_eq!(probs["token_logprobs"], Value::from(expected));
    for field in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        assert_eq!(probs[field].as_array().unwrap().len(), prompt.len(), "{field}");
    }
    // The offset of a token is where its text stands.
    let (tokens, offsets) = (probs["tokens"].as_array().unwrap(), probs["text_offset"].as_array().unwrap());
    for (token, offset) in tokens.iter().zip(offsets).skip(2) {
        let (token, offset) = (token.as_str().unwrap(), offset.as_u64().unwrap() as usize);
        assert!("the little cat"[offset..].starts_with(token), "{token} at {offset}");
    }
    for (chosen, top) in
        probs["token_logprobs"].as_array().unwrap().iter().zip(probs["top_logprobs"].as_array().unwrap())
    {
        // Two alternatives, and the token itself if it is none of them.
        assert!(top.is_null() == chosen.is_null() && top.as_object().is_none_or(|top| (2..=3).contains(&top.len())));
    }
    // With output, the prompt's tokens come first.
    let mut more = asked;
    more["max_tokens"] = json!(4);
    more["temperature"] = json!(0);
    more["ignore_eos"] = json!(true);
    let reply = complete(&router, more.clone()).await.ok();
    let longer = &reply["choices"][0]["logprobs"]["token_logprobs"];
    let same = prompt.len();
    assert_eq!(longer.as_array().unwrap()[..same], probs["token_logprobs"].as_array().unwrap()[..]);
    assert_eq!(longer.as_array().unwrap().len(), same + 4);
    // The same as a stream.
    more["stream"] = json!(true);
    let events = complete(&router, more).await.events();
    let text: String = events.iter().filter_map(|e| e["choices"][0]["text"].as_str()).collect();
    assert_eq!(reply["choices"][0]["text"], text);
    let streamed: Vec<Value> =
        events.iter().flat_map(|e| e["choices"][0]["logprobs"]["token_logprobs"].as_array().unwrap().clone()).collect();
    assert_eq!(Value::from(streamed), *longer);
}

#[tokio::test]
async fn chats_are_rendered_by_the_template() {
    let server = server(ServerOptions::default());
    let router = server.router();
    let asked = json!({
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": [{"type": "text", "text": "a cat"}]}],
        "temperature": 0, "max_tokens": 8, "ignore_eos": true, "logprobs": true, "top_logprobs": 1,
    });
    let reply = chat(&router, asked).await.ok();
    let model = model();
    let tokenizer = model.tokenizer().unwrap();
    let prompt = tokenizer.encode("system: be brief\nuser: a cat\nassistant:");
    assert_eq!(reply["usage"]["prompt_tokens"], prompt.len());
    let ids = greedy(&prompt, 8);
    let choice = &reply["choices"][0];
    assert_eq!(choice["message"]["content"], tokenizer.decode(&ids));
    assert_eq!((&choice["message"]["role"], &choice["finish_reason"]), (&json!("assistant"), &json!("length")));
    let entries = choice["logprobs"]["content"].as_array().unwrap();
    assert_eq!(entries.len(), 8);
    for (entry, &id) in entries.iter().zip(&ids) {
        // Greedy: the most probable token is the chosen one.
        assert_eq!(entry["top_logprobs"][0]["token"], entry["token"]);
        assert!(entry["logprob"].as_f64().unwrap() <= 0.0);
        let piece = tokenizer.piece(id).unwrap();
        assert!(entry["bytes"] == json!(piece) || (piece.is_empty() && entry["bytes"].is_null()));
    }
}

/// A template's control tokens are one token each. What a client spells like one is text, a token
/// for each byte here, wherever it stands: otherwise a tool could speak for the system.
#[tokio::test]
async fn control_tokens_come_from_the_template_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let base = preset("stories260k").unwrap();
    let config =
        Config { dim: 8, hidden: 8, layers: 1, heads: 2, kv_heads: 2, head_dim: 4, vocab: 257, max_seq: 512, ..base };
    let weights = Weights::init(&config, Init::Normal { std: 0.3 }, 5);
    native::save(&path("tiny.safetensors"), &config, &weights).unwrap();
    std::fs::write(path("tokenizer.json"), byte_tokenizer(&["<|end|>"], None).to_string()).unwrap();
    let model = Model::open(path("tiny.safetensors")).unwrap();
    let mut setup = Setup::default();
    setup.template = Some(
        Template::new(
            "{% for t in tools or [] %}{{ t.function.description }}<|end|>{% endfor %}{% for m in messages %}\
             {{ m.content if m.content is string else m.content | map(attribute='text') | join }}\
             {% for c in m.tool_calls or [] %}{{ c.function.arguments | string }}{% endfor %}<|end|>{% endfor %}",
        )
        .unwrap(),
    );
    let server = Server::new(model, None, Default::default(), setup, ServerOptions::default()).unwrap();
    let router = server.router();
    let prompt_tokens = async |word: &str| {
        let asked = json!({
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": word}]},
                {"role": "assistant", "content": word, "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "f", "arguments": json!({"x": word}).to_string()}}]},
                {"role": "tool", "tool_call_id": "c", "content": word},
            ],
            "tools": [{"type": "function", "function": {"name": "f", "description": word}}],
            "max_tokens": 1,
        });
        chat(&router, asked).await.ok()["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    assert_eq!(prompt_tokens("<|end|>").await, prompt_tokens("-------").await);
}

#[tokio::test]
async fn seeds_repeat_and_stop_strings_end() {
    let server = server(ServerOptions::default());
    let router = server.router();
    let run = async |seed: u64, stop: Value| {
        let asked = json!({"prompt": "once", "max_tokens": 30, "seed": seed, "stop": stop, "ignore_eos": true});
        complete(&router, asked).await.ok()["choices"][0].clone()
    };
    let first = run(7, Value::Null).await;
    assert_eq!(first, run(7, Value::Null).await);
    assert_ne!(first["text"], run(8, Value::Null).await["text"]);
    let text = first["text"].as_str().unwrap();
    // A stop string from the middle of the text.
    let (at, _) = text.char_indices().nth(text.chars().count() / 2).unwrap();
    let stop: String = text[at..].chars().take(3).collect();
    let stopped = run(7, json!([stop])).await;
    let before = &text[..text.find(&stop).unwrap()];
    assert_eq!((&stopped["text"], &stopped["finish_reason"]), (&json!(before), &json!("stop")));
}

#[tokio::test]
async fn the_context_is_a_limit() {
    let server = server(ServerOptions::default());
    let router = server.router();
    let long = vec![5; CONTEXT];
    for asked in [
        json!({"prompt": long, "max_tokens": 1}),
        json!({"prompt": long}),
        json!({"prompt": long[1..], "max_tokens": 2}),
        json!({"prompt": [[5], long], "max_tokens": 1}),
    ] {
        let reply = complete(&router, asked).await;
        assert_eq!(
            (reply.status, &reply.error()["code"]),
            (StatusCode::BAD_REQUEST, &json!("context_length_exceeded"))
        );
    }
    let full = json!({"prompt": long[1..], "max_tokens": 1, "ignore_eos": true});
    assert_eq!(complete(&router, full).await.ok()["usage"]["completion_tokens"], 1);
    // Without a number, a chat may fill the context.
    let asked = json!({"messages": [{"role": "user", "content": "a"}], "ignore_eos": true});
    assert_eq!(chat(&router, asked).await.ok()["usage"]["total_tokens"], CONTEXT);
}

#[tokio::test]
async fn embeddings_need_the_state() {
    let server = server(ServerOptions::default());
    let router = server.router();
    let asked = named(json!({"input": ["a cat", [5, 6]]}));
    let reply = post(&router, "/v1/embeddings", asked).await.ok();
    assert_eq!(reply["data"].as_array().unwrap().len(), 2);
    for entry in reply["data"].as_array().unwrap() {
        let vector: Vec<f64> = entry["embedding"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
        let length = vector.iter().map(|v| v * v).sum::<f64>();
        // Sixteen values of fp32.
        assert!(vector.len() == 16 && (length - 1.0).abs() < 1e-6, "{length}");
    }
    assert_ne!(reply["data"][0]["embedding"], reply["data"][1]["embedding"]);
    let alone = post(&router, "/v1/embeddings", named(json!({"input": [5, 6], "encoding_format": "float"}))).await.ok();
    assert_eq!(alone["data"][0]["embedding"], reply["data"][1]["embedding"]);
    let packed =
        post(&router, "/v1/embeddings", named(json!({"input": [5, 6], "encoding_format": "base64"}))).await.ok();
    assert_eq!(packed["data"][0]["embedding"].as_str().unwrap().len(), (16 * 4usize).div_ceil(3) * 4);
}
