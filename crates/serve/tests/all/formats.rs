//! Replies in a format: JSON, a schema, a call that is forced; and the tokenizer as a service.

use axum::http::StatusCode;
use ferrane_llm::chat::Template;
use ferrane_serve::{Server, ServerOptions};
use serde_json::{Value, json};

use crate::common::{CONTEXT, chat, complete, get, model, post, server, setup};
use crate::scripted::Script;

const MESSAGES: &str = r#"[{"role": "user", "content": "a"}]"#;

/// A schema of at most 30 tokens.
fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 20}, "s": {"enum": ["yes", "é"]}},
        "required": ["n", "s"], "additionalProperties": false,
    })
}

fn format(schema: Value) -> Value {
    json!({"type": "json_schema", "json_schema": {"name": "s", "strict": true, "schema": schema}})
}

/// A chat in the format of [`schema`], with further fields.
fn asked(more: Value) -> Value {
    let messages: Value = serde_json::from_str(MESSAGES).unwrap();
    let mut body = json!({"messages": messages, "response_format": format(schema()), "temperature": 1.5, "seed": 3});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[track_caller]
fn check(text: &str) {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let fields = value.as_object().unwrap();
    assert!(fields.len() == 2 && (0..=20).contains(&fields["n"].as_i64().unwrap()), "{text}");
    assert!([json!("yes"), json!("é")].contains(&fields["s"]), "{text}");
}

#[tokio::test]
async fn a_schema_holds_for_every_choice_and_in_streams() {
    let server = server(ServerOptions::default());
    let router = server.router();
    let reply = chat(&router, asked(json!({"n": 3, "logprobs": true, "top_logprobs": 1}))).await.ok();
    let choices = reply["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 3);
    let mut generated = 0;
    for choice in choices {
        let text = choice["message"]["content"].as_str().unwrap();
        check(text);
        assert_eq!(choice["finish_reason"], "stop");
        let entries = choice["logprobs"]["content"].as_array().unwrap();
        let bytes = entries.iter().flat_map(|e| e["bytes"].as_array().unwrap());
        let bytes: Vec<u8> = bytes.map(|b| b.as_u64().unwrap() as u8).collect();
        assert_eq!(String::from_utf8(bytes).unwrap(), text);
        // They are the model's own, so the alternative may be a token that the schema forbids.
        assert!(entries.iter().all(|e| e["logprob"].as_f64() <= e["top_logprobs"][0]["logprob"].as_f64()));
        generated += entries.len() as u64;
    }
    // No end token is needed where nothing can follow.
    assert_eq!(reply["usage"]["completion_tokens"], generated);
    let events = chat(&router, asked(json!({"n": 3, "stream": true}))).await.events();
    for (index, choice) in choices.iter().enumerate() {
        let own = events.iter().filter(|e| e["choices"][0]["index"] == index);
        let text: String = own.filter_map(|e| e["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(text, choice["message"]["content"].as_str().unwrap());
    }
    // The same for a completion.
    let body = json!({"prompt": ["a", "b"], "response_format": format(schema()), "max_tokens": 60});
    for choice in complete(&router, body).await.ok()["choices"].as_array().unwrap() {
        check(choice["text"].as_str().unwrap());
    }
}

#[tokio::test]
async fn a_text_in_a_format_may_end_early() {
    let server = server(ServerOptions::default());
    let router = server.router();
    let whole = chat(&router, asked(json!({}))).await.ok()["choices"][0]["message"]["content"].clone();
    let whole = whole.as_str().unwrap();
    let cut = chat(&router, asked(json!({"max_tokens": 4}))).await.ok()["choices"][0].clone();
    assert_eq!(cut["finish_reason"], "length");
    assert!(whole.starts_with(cut["message"]["content"].as_str().unwrap()));
    let stopped = chat(&router, asked(json!({"stop": "s"}))).await.ok()["choices"][0].clone();
    let before = &whole[..whole.find('s').unwrap()];
    assert_eq!((&stopped["message"]["content"], &stopped["finish_reason"]), (&json!(before), &json!("stop")));
    // A model that says something else, and one that would end at once.
    let words = format(json!({"enum": ["yes", "é"]}));
    for script in [Script::new("hello"), Script::new("")] {
        let server = script.server(ServerOptions::default());
        let reply = chat(&server.router(), asked(json!({"temperature": 0, "response_format": words}))).await.ok();
        let text = reply["choices"][0]["message"]["content"].as_str().unwrap();
        assert!(["\"yes\"", "\"é\""].contains(&text), "{text}");
    }
    // Any object; the model of this script closes it.
    let server = Script::new("{}").server(ServerOptions::default());
    let any = asked(json!({"response_format": {"type": "json_object"}, "temperature": 0}));
    let reply = chat(&server.router(), any).await.ok();
    assert_eq!(reply["choices"][0]["message"]["content"], "{}");
}

#[tokio::test]
async fn schemas_that_cannot_be_used_are_refused() {
    let server = server(ServerOptions::default());
    let router = server.router();
    for wrong in [
        json!({"type": "bogus"}),
        json!({"type": "string", "pattern": "("}),
        json!({"type": "string", "pattern": "(?=a)"}),
        json!({"if": {}, "then": {}}),
        json!({"$ref": "https://example.com/a.json"}),
        json!({"$ref": "#/$defs/none"}),
        json!({"$ref": "#"}),
        json!({"type": "integer", "minimum": 2, "maximum": 1}),
    ] {
        let reply = chat(&router, asked(json!({"response_format": format(wrong.clone())}))).await;
        let error = reply.error();
        assert_eq!((reply.status, &error["param"]), (StatusCode::BAD_REQUEST, &json!("response_format")), "{wrong}");
        assert_eq!(error["code"], "invalid_json_schema", "{wrong}");
    }
    // A schema in a schema in a schema: the body itself is refused.
    let deep = (0..200).fold(json!({}), |inner, _| json!({"items": inner}));
    assert!(chat(&router, asked(json!({"response_format": format(deep)}))).await.error()["message"].is_string());
    chat(&router, asked(json!({}))).await.ok();
}

/// Writes calls as Qwen's does.
const CALLS: &str = "{% for m in messages %}{{ m.role }}:{{ m.content or '' }}{% for c in m.tool_calls or [] %}\
    <tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}\n</tool_call>\
    {% endfor %}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}";

fn tools(choice: Value) -> Value {
    let parameters = json!({
        "type": "object", "properties": {"x": {"enum": [1, 2]}}, "required": ["x"], "additionalProperties": false,
    });
    let f = json!({"type": "function", "function": {"name": "f", "parameters": parameters, "strict": true}});
    let g = json!({"type": "function", "function": {"name": "g"}});
    asked(json!({"response_format": null, "tools": [f, g], "tool_choice": choice, "n": 4}))
}

#[tokio::test]
async fn a_call_is_forced() {
    let mut setup = setup();
    setup.template = Some(Template::new(CALLS).unwrap());
    let server = Server::new(model(), None, Default::default(), setup, ServerOptions::default()).unwrap();
    let router = server.router();
    let named = |name: &str| json!({"type": "function", "function": {"name": name}});
    for (choice, names) in [(json!("required"), vec!["f", "g"]), (named("f"), vec!["f"]), (named("g"), vec!["g"])] {
        let reply = chat(&router, tools(choice)).await.ok();
        for choice in reply["choices"].as_array().unwrap() {
            let calls = choice["message"]["tool_calls"].as_array().unwrap();
            assert!(calls.len() == 1 && choice["message"]["content"].is_null(), "{choice}");
            assert_eq!(choice["finish_reason"], "tool_calls");
            let name = calls[0]["function"]["name"].as_str().unwrap();
            let arguments: Value = serde_json::from_str(calls[0]["function"]["arguments"].as_str().unwrap()).unwrap();
            assert!(names.contains(&name), "{choice}");
            match name {
                "f" => assert!(arguments == json!({"x": 1}) || arguments == json!({"x": 2}), "{choice}"),
                _ => assert_eq!(arguments, json!({})),
            }
        }
    }
    let mut wrong = tools(named("f"));
    wrong["tools"][0]["function"]["parameters"]["properties"]["x"] = json!({"type": "bogus"});
    let error = chat(&router, wrong).await.error();
    assert_eq!((&error["param"], &error["code"]), (&json!("tools"), &json!("invalid_json_schema")));
    // A template that does not write calls.
    let server = crate::common::server(ServerOptions::default());
    let error = chat(&server.router(), tools(json!("required"))).await.error();
    assert_eq!((&error["param"], &error["code"]), (&json!("tool_choice"), &json!("unsupported_parameter")));
}

#[tokio::test]
async fn the_tokenizer_is_a_service() {
    let server = server(ServerOptions::default());
    let router = server.router();
    let model = model();
    let tokenizer = model.tokenizer().unwrap();
    let tokens = async |body: Value| post(&router, "/tokenize", body).await.ok()["tokens"].clone();
    let plain = tokenizer.encode("once upon");
    assert_eq!(tokens(json!({"prompt": "once upon", "add_special_tokens": false})).await, json!(plain));
    assert_eq!(tokens(json!({"prompt": "once upon"})).await, json!([&[1], plain.as_slice()].concat()));
    assert_eq!(tokens(json!({"prompt": "<s>", "add_special_tokens": false})).await, json!([1]));
    let info = get(&router, "/tokenizer_info").await.ok();
    assert_eq!((&info["bos_token"], &info["eos_token"]), (&json!("<s>"), &json!("</s>")));
    assert_eq!((&info["max_model_len"], &info["vocab_size"]), (&json!(CONTEXT), &json!(tokenizer.vocab_size())));
    let text = post(&router, "/detokenize", json!({"tokens": plain})).await.ok();
    assert_eq!(text["prompt"], "once upon");
    for (path, body, param) in [
        ("/tokenize", json!({}), "prompt"),
        ("/tokenize", json!({"prompt": "a", "model": "other"}), "model"),
        ("/detokenize", json!({"tokens": [1, "a"]}), "tokens.0"),
        ("/detokenize", json!({"tokens": "a"}), "tokens"),
    ] {
        assert_eq!(post(&router, path, body.clone()).await.error()["param"], param, "{body}");
    }
}

/// A harness adds up the log-probabilities of a prompt, all but the last entry, which is that of
/// one more token; also if that token ends the text.
#[tokio::test]
async fn an_echo_is_followed_by_one_token() {
    let server = Script::new("").server(ServerOptions::default());
    let body = json!({"prompt": [[1, 5, 6, 7]], "echo": true, "logprobs": 1, "max_tokens": 1, "temperature": 0});
    let choice = complete(&server.router(), body).await.ok()["choices"][0].clone();
    assert_eq!(choice["finish_reason"], "stop");
    let probs = &choice["logprobs"];
    for list in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        assert_eq!(probs[list].as_array().unwrap().len(), 5, "{list}");
    }
    assert_eq!((&probs["tokens"][4], &probs["token_logprobs"][0]), (&json!("token_id:2"), &Value::Null));
    assert!(probs["token_logprobs"][4].as_f64().unwrap() > -1e-6);
}
