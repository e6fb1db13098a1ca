//! Several sequences on a device, computed together: the same answers as one after another.

use axum::Router;
use ferrane_device::Device;
use ferrane_emulator::{Emulator, EmulatorOptions};
use ferrane_llm::decode;
use ferrane_serve::{Server, ServerOptions};
use serde_json::{Value, json};

use crate::common::{complete, get, model, named, post, setup};

fn server(slots: usize) -> Server {
    let device = Device::new(Emulator::new(EmulatorOptions::default()));
    let decode = decode::Options { slots, ..Default::default() };
    Server::new(model(), Some(device), decode, setup(), ServerOptions::default()).unwrap()
}

const PROMPTS: [&str; 5] = ["once upon", "a cat", "the garden", "once upon a time", "b"];

fn asked(prompt: &str) -> Value {
    json!({"prompt": prompt, "max_tokens": 24, "temperature": 0, "ignore_eos": true})
}

async fn alone(router: &Router) -> Vec<Value> {
    let mut replies = Vec::new();
    for prompt in PROMPTS {
        replies.push(complete(router, asked(prompt)).await.ok()["choices"].clone());
    }
    replies
}

#[tokio::test]
async fn clients_together_get_what_each_gets_alone() {
    let expected = alone(&server(1).router()).await;
    let server = server(4);
    let router = server.router();
    for _ in 0..3 {
        let tasks: Vec<_> = PROMPTS
            .map(|prompt| {
                let router = router.clone();
                tokio::spawn(async move { complete(&router, asked(prompt)).await.ok()["choices"].clone() })
            })
            .into();
        for (task, expected) in tasks.into_iter().zip(&expected) {
            assert_eq!(task.await.unwrap(), *expected);
        }
    }
    // What the slots hold by now was not computed again.
    let metrics = get(&router, "/metrics").await.text;
    let reused = metrics.lines().find_map(|line| line.strip_prefix("ferrane_reused_prompt_tokens_total "));
    assert!(reused.is_some_and(|count| count.parse::<f64>().unwrap() > 0.0), "{metrics}");
}

#[tokio::test]
async fn a_device_scores_prompts_and_returns_states() {
    let server = server(2);
    let router = server.router();
    let reference = crate::common::server(ServerOptions::default());
    let reference = reference.router();
    let scored = json!({"prompt": "the little cat", "echo": true, "logprobs": 1, "max_tokens": 2, "temperature": 0});
    let embedded = named(json!({"input": "a cat"}));
    let probs = |reply: Value| reply["choices"][0]["logprobs"]["token_logprobs"].as_array().unwrap().clone();
    let (ours, theirs) = (complete(&router, scored.clone()).await.ok(), complete(&reference, scored).await.ok());
    let state = |reply: Value| reply["data"][0]["embedding"].as_array().unwrap().clone();
    let ours = [probs(ours), state(post(&router, "/v1/embeddings", embedded.clone()).await.ok())];
    let theirs = [probs(theirs), state(post(&reference, "/v1/embeddings", embedded).await.ok())];
    for (ours, theirs) in ours.iter().flatten().zip(theirs.iter().flatten()) {
        match (ours.as_f64(), theirs.as_f64()) {
            // fp16 between the requests of two layers; log-probabilities here are below 10.
            (Some(a), Some(b)) => assert!((a - b).abs() < 3e-2, "{a} {b}"),
            (a, b) => assert_eq!(a, b),
        }
    }
}
