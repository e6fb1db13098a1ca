//! Texts of random models under a grammar: they follow it, whatever the vocabulary.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::LazyLock;

use crate::gradients::{plain, random_weights};
use ferrane_llm::chat::{Chat, ChatOptions, Finish, Message, Template};
use ferrane_llm::config::Config;
use ferrane_llm::grammar::{Constraint, Error, Grammar, GrammarTokens};
use ferrane_llm::model::Model;
use ferrane_llm::random::Rng;
use ferrane_llm::sample::{Sampler, Sampling};
use ferrane_llm::tokenizer::Tokenizer;
use ferrane_llm::weights::native;
use ferrane_testdata::tokenizer::byte_tokenizer;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

const SPECIALS: [&str; 3] = ["<|im_start|>", "<|im_end|>", "<s>"];

/// The three kinds of vocabulary, each with all bytes, and with longer pieces where it has any.
static TOKENIZERS: LazyLock<[Tokenizer; 3]> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, byte_tokenizer(&SPECIALS, None).to_string()).unwrap();
    let text = "{\"name\": \"Lily\", \"age\": 4, \"tags\": [true, false, null]} once upon a time ".repeat(4);
    [Tokenizer::open(&path).unwrap(), sentencepiece(), Tokenizer::train(&text, 340).unwrap()]
});
static TOKENS: LazyLock<Vec<GrammarTokens>> =
    LazyLock::new(|| TOKENIZERS.iter().map(|t| GrammarTokens::new(t, None).unwrap()).collect());

/// A SentencePiece model (BPE) with byte fallback, as its protobuf.
fn sentencepiece() -> Tokenizer {
    let mut file = Vec::new();
    let mut piece = |name: &str, kind: u8| {
        let mut body = vec![0x0a, name.len() as u8];
        body.extend_from_slice(name.as_bytes());
        // The score, an fp32, and the kind.
        body.extend_from_slice(&[0x15, 0, 0, 0, 0, 0x18, kind]);
        file.extend_from_slice(&[0x0a, body.len() as u8]);
        file.extend_from_slice(&body);
    };
    [("<unk>", 2), ("<s>", 3), ("</s>", 3)].iter().for_each(|(name, kind)| piece(name, *kind));
    (0..256).for_each(|byte| piece(&format!("<0x{byte:02X}>"), 6));
    let words =
        ["\u{2581}", "{", "}", "\"", "\":", ",", "\u{2581}{", "\u{2581}\"", "1", "é", "na", "name", "\u{2581}tr", "ue"];
    words.iter().for_each(|name| piece(name, 1));
    // The kind of model, BPE, and byte fallback.
    file.extend_from_slice(&[0x12, 5, 0x18, 2, 0x98, 0x02, 1]);
    Tokenizer::from_sentencepiece(&file).unwrap()
}

fn allowed(mask: &[u32], id: u32) -> bool {
    mask.get(id as usize / 32).is_some_and(|word| word >> (id % 32) & 1 == 1)
}

/// Draws a text of at most `most` tokens from random logits. Returns it with whether it is
/// complete; `ends` sees each text that could end.
fn draw(
    tokenizer: &Tokenizer,
    mut constraint: Constraint,
    seed: u64,
    most: usize,
    ends: &mut dyn FnMut(&str),
) -> (String, bool) {
    let mut rng = Rng::new(seed);
    let mut sampler = Sampler::new(&Sampling { seed: Some(seed), ..Sampling::default() }).unwrap();
    let end = tokenizer.eos().into_iter().chain(tokenizer.id_of("<|im_end|>")).next().unwrap();
    let mut bytes = Vec::new();
    for _ in 0..most {
        let logits: Vec<f32> = (0..tokenizer.vocab_size() + 3).map(|_| 6.0 * rng.uniform() as f32).collect();
        let mask = constraint.mask(&[end]).unwrap();
        if allowed(mask, end) {
            ends(std::str::from_utf8(&bytes).unwrap());
        }
        let id = sampler.sample_masked(&logits, Some(mask)).unwrap();
        if id == end {
            return (String::from_utf8(bytes).unwrap(), true);
        }
        let piece = tokenizer.piece(id).unwrap();
        assert!(!piece.is_empty(), "a control token");
        bytes.extend_from_slice(piece);
        constraint.accept(id).unwrap();
        if constraint.is_complete() {
            let text = String::from_utf8(bytes).unwrap();
            ends(&text);
            return (text, true);
        }
    }
    (String::from_utf8_lossy(&bytes).into_owned(), false)
}

/// Whether a schema accepts a value, for the keywords that [`schemas`] makes.
fn accepts(root: &Value, schema: &Value, value: &Value) -> bool {
    let count = |name: &str, default: usize| schema[name].as_u64().map_or(default, |n| n as usize);
    let between = |n: usize, least: &str, most: &str| (count(least, 0)..=count(most, usize::MAX)).contains(&n);
    if let Some(path) = schema["$ref"].as_str() {
        return accepts(root, root.pointer(path.trim_start_matches('#')).unwrap(), value);
    }
    if let Some(options) = schema["anyOf"].as_array() {
        return options.iter().any(|option| accepts(root, option, value));
    }
    if let Some(options) = schema["enum"].as_array() {
        return options.contains(value);
    }
    match (schema["type"].as_str().unwrap(), value) {
        ("null", Value::Null) | ("boolean", Value::Bool(_)) => true,
        ("integer", Value::Number(n)) => {
            let (least, most) = (schema["minimum"].as_i64().unwrap(), schema["maximum"].as_i64().unwrap());
            // `-0` is an integer that is read as a float.
            let found = n.as_f64().filter(|n| n.fract() == 0.0).map(|n| n as i64);
            found.is_some_and(|n| (least..=most).contains(&n))
        }
        ("string", Value::String(text)) => between(text.chars().count(), "minLength", "maxLength"),
        ("array", Value::Array(items)) => {
            between(items.len(), "minItems", "maxItems")
                && items.iter().all(|item| accepts(root, &schema["items"], item))
        }
        ("object", Value::Object(fields)) => {
            let required = schema["required"].as_array().unwrap();
            required.iter().all(|name| fields.contains_key(name.as_str().unwrap()))
                && fields.iter().all(|(name, field)| {
                    schema["properties"].get(name).is_some_and(|inner| accepts(root, inner, field))
                })
        }
        _ => false,
    }
}

/// Schemas of texts that end soon.
fn schemas() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({"type": "null"})),
        Just(json!({"type": "boolean"})),
        (-200i64..200, 0i64..5000).prop_map(|(n, more)| json!({"type": "integer", "minimum": n, "maximum": n + more})),
        (0u64..3, 0u64..5).prop_map(|(n, more)| json!({"type": "string", "minLength": n, "maxLength": n + more})),
        Just(json!({"enum": ["a\"\\b", "", "é漢", 12, -1, true, null]})),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            (inner.clone(), 0u64..2, 0u64..3).prop_map(
                |(items, n, more)| json!({"type": "array", "items": items, "minItems": n, "maxItems": n + more})
            ),
            prop::collection::vec(inner.clone(), 1..3).prop_map(|options| json!({"anyOf": options})),
            prop::collection::vec((inner, any::<bool>()), 0..4).prop_map(|fields| {
                let name = |i: usize| ["name", "a b", "\"", "é"][i].to_string();
                let required: Vec<String> = (0..fields.len()).filter(|i| fields[*i].1).map(name).collect();
                let fields: Map<String, Value> =
                    fields.into_iter().enumerate().map(|(i, (schema, _))| (name(i), schema)).collect();
                json!({"type": "object", "properties": fields, "required": required, "additionalProperties": false})
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_text_under_a_schema_parses_and_is_valid(schema in schemas(), seed in 0u64..1000) {
        for (tokenizer, tokens) in TOKENIZERS.iter().zip(&*TOKENS) {
            let constraint = tokens.compile(&Grammar::JsonSchema(schema.clone())).unwrap();
            let check = |text: &str| {
                let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text:?} {schema}"));
                assert!(accepts(&schema, &schema, &value), "{value} {schema}");
            };
            let (text, complete) = draw(tokenizer, constraint, seed, 2000, &mut |text| check(text));
            prop_assert!(complete, "{} {}", text, schema);
            check(&text);
        }
    }

    #[test]
    fn a_text_under_a_regular_expression_matches(seed in 0u64..1000) {
        let date = |text: &str| {
            let digits = |part: &str| part.chars().all(|c| c.is_ascii_digit());
            let parts: Vec<&str> = text.split('-').collect();
            text.is_ascii() && text.len() == 10 && parts.len() == 3 && parts[0].len() == 4 && parts.iter().all(|p| digits(p))
        };
        for (tokenizer, tokens) in TOKENIZERS.iter().zip(&*TOKENS) {
            let constraint = tokens.compile(&Grammar::Regex("[0-9]{4}-[0-9]{2}-[0-9]{2}".into())).unwrap();
            let (text, complete) = draw(tokenizer, constraint, seed, 20, &mut |text| assert!(date(text), "{text}"));
            prop_assert!(complete && date(&text), "{}", text);
        }
    }
}

#[test]
fn references_and_recursion_are_followed() {
    let schema = json!({
        "$defs": {"tree": {
            "type": "object",
            "properties": {
                "leaf": {"type": "boolean"},
                "next": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 1},
            },
            "required": ["leaf", "next"], "additionalProperties": false,
        }},
        "$ref": "#/$defs/tree",
    });
    let mut deep = 0;
    for (tokenizer, tokens) in TOKENIZERS.iter().zip(&*TOKENS) {
        let constraint = tokens.compile(&Grammar::JsonSchema(schema.clone())).unwrap();
        for seed in 0..8 {
            let (text, complete) = draw(tokenizer, constraint.clone(), seed, 4000, &mut |_| {});
            let value: Value = serde_json::from_str(&text).unwrap();
            assert!(complete && accepts(&schema, &schema, &value), "{text}");
            deep += usize::from(text.matches("next").count() > 1);
        }
    }
    assert!(deep > 0);
}

#[test]
fn a_grammar_in_the_syntax_of_lark() {
    let lark = "start: greeting \" \" NAME\ngreeting: \"hello\" | \"good day\"\nNAME: /[A-Z][a-z]{2,4}/";
    for (tokenizer, tokens) in TOKENIZERS.iter().zip(&*TOKENS) {
        let constraint = tokens.compile(&Grammar::Lark(lark.into())).unwrap();
        let (text, complete) = draw(tokenizer, constraint, 3, 40, &mut |_| {});
        let (greeting, name) = text.rsplit_once(' ').unwrap();
        assert!(complete && ["hello", "good day"].contains(&greeting) && (3..=5).contains(&name.len()), "{text}");
    }
}

#[test]
fn spaces_between_tokens_of_json_are_few() {
    // A model that writes spaces and line ends wherever it may.
    let tokenizer = &TOKENIZERS[0];
    let mut constraint = TOKENS[0].compile(&Grammar::JsonObject).unwrap();
    let [space, newline, open] = [" ", "\n", "{"].map(|text| tokenizer.encode(text)[0]);
    constraint.accept(open).unwrap();
    let mut run = 0;
    for _ in 0..100 {
        let mask = constraint.mask(&[]).unwrap();
        let Some(id) = [newline, space].into_iter().find(|id| allowed(mask, *id)) else { break };
        constraint.accept(id).unwrap();
        run += 1;
    }
    assert_eq!(run, 21);
}

#[test]
fn hostile_grammars_are_refused_and_end() {
    let tokens = &TOKENS[0];
    let schema = |schema: Value| Grammar::JsonSchema(schema);
    let wide: Map<String, Value> = (0..200_000).map(|i| (format!("p{i}"), json!({}))).collect();
    let patterns: Map<String, Value> = (0..40).map(|i| (format!("^{i}$"), json!({}))).collect();
    let refused = [
        schema(json!([])),
        schema(json!({"type": "bogus"})),
        schema(json!({"type": "string", "pattern": "(?=x)"})),
        schema(json!({"type": "string", "pattern": "("})),
        schema(json!({"type": "string", "format": "no-such-format"})),
        schema(json!({"type": "integer", "minimum": 3, "maximum": 2})),
        schema(json!({"not": {}})),
        schema(json!({"type": "array", "uniqueItems": true})),
        schema(json!({"if": {"type": "null"}, "then": {}})),
        schema(json!({"$ref": "https://example.com/schema.json"})),
        schema(json!({"$ref": "#/$defs/absent"})),
        schema(json!({"$ref": "#"})),
        schema(json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"})),
        schema(json!({"type": "object", "properties": wide})),
        schema(json!({"items": {"type": "object", "patternProperties": patterns}})),
        schema(json!({"oneOf": [{"type": "string"}, {"enum": ["a"]}]})),
        Grammar::Regex("".into()),
        Grammar::Regex("(".into()),
        Grammar::Regex(r"(?<=a)b".into()),
        Grammar::Regex("a".repeat(300_000)),
        Grammar::Lark("".into()),
        Grammar::Lark("start: missing".into()),
        Grammar::Lark("start: \"a".into()),
        Grammar::Lark("start: <|no_such_token|>".into()),
    ];
    let mut accepted = Vec::new();
    for grammar in refused {
        let begun = std::time::Instant::now();
        let text = format!("{grammar:?}").chars().take(120).collect::<String>();
        match tokens.compile(&grammar) {
            Err(error @ Error::Grammar { .. }) => eprintln!("{:?} {text}: {error}", begun.elapsed()),
            other => accepted.push(format!("{other:?} {:?} {text}", begun.elapsed())),
        }
    }
    assert!(accepted.is_empty(), "{accepted:#?}");
    // A text without an end, or with a distant one, is cut by the number of tokens.
    for endless in [
        json!({"type": "array", "items": {"$ref": "#"}, "minItems": 1, "maxItems": 1}),
        json!({"type": "string", "minLength": 1_000_000_000, "maxLength": 2_000_000_000}),
    ] {
        let (text, complete) = draw(&TOKENIZERS[0], tokens.compile(&schema(endless)).unwrap(), 1, 90, &mut |_| {});
        assert!(!complete && text.starts_with(['[', '"']), "{text}");
    }
}

/// Schemas that are large or that multiply: each is compiled or refused, and soon.
#[test]
fn large_schemas_end() {
    let either = |i: usize| json!({"anyOf": [{"type": "string", "maxLength": i}, {"type": "integer", "minimum": i}]});
    let wide: Map<String, Value> = (0..10_000).map(|i| (format!("p{i}"), json!({"type": "null"}))).collect();
    let words: Vec<String> = (0..15_000).map(|i| format!("word {i}")).collect();
    // Each definition is two values.
    let chain: Map<String, Value> = (0..2000)
        .map(|i| (format!("d{i}"), json!({"$ref": format!("#/$defs/d{}", i + 1)})))
        .chain([("d2000".to_string(), json!({"type": "boolean"}))])
        .collect();
    let object = |i: usize| {
        let names: Map<String, Value> = (0..450).map(|j| (format!("p{i}_{j}"), json!({"type": "null"}))).collect();
        json!({"type": "object", "properties": names})
    };
    let patterns: Map<String, Value> = (0..30).map(|i| (format!("^x{i}(a|b)*$"), json!({"type": "null"}))).collect();
    let doubled: Map<String, Value> = (0..40)
        .map(|i| {
            let next = json!({"$ref": format!("#/$defs/d{}", i + 1)});
            (
                format!("d{i}"),
                json!({"allOf": [{"anyOf": [next, {"type": "null"}]}, {"anyOf": [next, {"type": "null"}]}]}),
            )
        })
        .chain([("d40".to_string(), json!({"type": "boolean"}))])
        .collect();
    let deep = (0..120).fold(json!({"type": "null"}), |inner, _| json!({"type": "array", "items": inner}));
    for schema in [
        json!({"allOf": (0..24).map(either).collect::<Vec<_>>()}),
        json!({"type": "object", "properties": wide}),
        json!({"allOf": (0..4).map(object).collect::<Vec<_>>()}),
        json!({"anyOf": (0..4).map(object).collect::<Vec<_>>()}),
        json!({"type": "object", "patternProperties": patterns}),
        json!({"oneOf": (0..2000).map(|i| json!({"const": i})).collect::<Vec<_>>()}),
        json!({"enum": words}),
        json!({"$defs": chain, "$ref": "#/$defs/d0"}),
        json!({"$defs": doubled, "$ref": "#/$defs/d0"}),
        deep,
        json!({"type": "string", "pattern": "(a|aa)*".repeat(2000)}),
        json!({"type": "string", "pattern": format!("{}a{}", "(a?){50}".repeat(40), ".{500}".repeat(10))}),
    ] {
        let begun = std::time::Instant::now();
        let found = TOKENS[0].compile(&Grammar::JsonSchema(schema.clone()));
        let text: String = schema.to_string().chars().take(80).collect();
        eprintln!("{:?} {text}: {:?}", begun.elapsed(), found.as_ref().map(|_| ()));
        // The first token of a text; a limit may be met there instead.
        if let Ok(mut constraint) = found {
            let mask = constraint.mask(&[]).map(<[u32]>::to_vec);
            assert!(mask.is_err() || mask.is_ok_and(|mask| mask.iter().any(|word| *word != 0)), "{text}");
        }
        let elapsed = begun.elapsed();
        assert!(elapsed < std::time::Duration::from_secs(60), "{elapsed:?} {text}");
    }
}

/// A model of random weights in a folder, with one of the tokenizers.
fn model(folder: &Path, tokenizer: &Tokenizer) -> Model {
    let config = Config { vocab: tokenizer.vocab_size(), max_seq: 256, ..plain() };
    native::save(&folder.join("model.safetensors"), &config, &random_weights(&config, 3)).unwrap();
    tokenizer.save(folder.join(tokenizer.file_name())).unwrap();
    Model::open(folder).unwrap()
}

#[test]
fn generated_texts_follow_the_grammar() {
    let schema = json!({
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 4}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["name", "age"], "additionalProperties": false,
    });
    for tokenizer in &*TOKENIZERS {
        let folder = tempfile::tempdir().unwrap();
        let model = model(folder.path(), tokenizer);
        let tokens = model.grammar_tokens().unwrap();
        let constraint = tokens.compile(&Grammar::JsonSchema(schema.clone())).unwrap();
        let sampler = Sampler::new(&Sampling { seed: Some(4), ..Sampling::default() }).unwrap();
        let generator = model.generator(None, Default::default(), sampler).unwrap();
        let mut generator = generator.constrain(constraint);
        for _ in 0..3 {
            let pieces: Vec<_> = generator.generate("a", 200).unwrap().collect::<Result<_, _>>().unwrap();
            let text: String = pieces.iter().map(|piece| piece.text.as_str()).collect();
            let value: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text:?}"));
            assert!(accepts(&schema, &schema, &value), "{value}");
            // No token is computed after the text is complete.
            assert!(pieces.iter().filter(|piece| piece.id.is_some()).count() < 200);
        }
        // The number of tokens may end the text earlier.
        let cut: String = generator.generate("a", 5).unwrap().map(|piece| piece.unwrap().text).collect();
        assert!(cut.starts_with('{') && serde_json::from_str::<Value>(&cut).is_err(), "{cut}");
    }
}

#[test]
fn answers_follow_the_grammar() {
    let template = Template::new("{% for m in messages %}{{ m.content }}\n{% endfor %}").unwrap();
    for tokenizer in &*TOKENIZERS {
        let folder = tempfile::tempdir().unwrap();
        let model = model(folder.path(), tokenizer);
        let grammar = Grammar::Regex(" ?(yes|no)".into());
        let constraint = model.grammar_tokens().unwrap().compile(&grammar).unwrap();
        let sampling = Sampling { seed: Some(1), ..Sampling::default() };
        let options = ChatOptions {
            sampling,
            max_tokens: Some(9),
            template: Some(template.clone()),
            constraint: Some(constraint),
            ..ChatOptions::default()
        };
        let mut chat = Chat::new(&model, None, Default::default(), options.clone()).unwrap();
        for _ in 0..4 {
            let answer = chat.say("Well?", |_| ControlFlow::Continue(())).unwrap();
            assert!(["yes", "no"].contains(&answer.text.trim_start()), "{answer:?}");
            assert_eq!(answer.finish, Finish::Stop);
        }
        let mut chat =
            Chat::new(&model, None, Default::default(), ChatOptions { max_tokens: Some(1), ..options }).unwrap();
        assert_eq!(chat.say("Well?", |_| ControlFlow::Continue(())).unwrap().finish, Finish::Length);
    }
}

#[test]
fn a_vocabulary_without_bytes_may_have_no_token() {
    // Only these three tokens may be drawn.
    let tokenizer = &TOKENIZERS[0];
    let only: Vec<u32> = ["y", "e", "s"].iter().flat_map(|text| tokenizer.encode(text)).collect();
    let tokens = GrammarTokens::new(tokenizer, Some(&only)).unwrap();
    let mut constraint = tokens.compile(&Grammar::Regex("yes|no".into())).unwrap();
    let mask = constraint.mask(&[]).unwrap().to_vec();
    assert_eq!((0..300).filter(|id| allowed(&mask, *id)).collect::<Vec<u32>>(), only[..1]);
    assert!(matches!(tokens.compile(&Grammar::Regex("no".into())), Err(Error::Grammar { .. })));
    let mut stuck = tokens.compile(&Grammar::Regex("yellow".into())).unwrap();
    stuck.accept(only[0]).unwrap();
    stuck.accept(only[1]).unwrap();
    assert_eq!(stuck.mask(&[257]), Err(Error::NoToken));
    let mut wrong = tokens.compile(&Grammar::Regex("yes".into())).unwrap();
    assert!(matches!(wrong.accept(only[1]), Err(Error::Text(_))));
}

/// Published templates write calls in their own forms, which become grammars.
#[test]
fn calls_are_written_as_templates_do() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/chat");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let sources: Value = serde_json::from_str(&read("sources.json")).unwrap();
    let tool = json!({"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}});
    let mut found = Vec::new();
    for name in sources.as_object().unwrap().keys() {
        let source = read(&format!("{name}.jinja"));
        let template = Template::new(&source).unwrap();
        let template = template.with_tokens(sources[name]["tokens"].as_object().unwrap().clone()).at(0);
        match template.call_form(&TOKENIZERS[0], std::slice::from_ref(&tool), &Map::new()) {
            Ok(form) => found.push(format!("{name}: {:?} {:?} {:?}", form.before, form.between, form.after)),
            Err(error) => found.push(format!("{name}: {error}")),
        }
    }
    insta::assert_snapshot!(found.join("\n"));
}

#[test]
fn a_call_is_forced_by_a_grammar() {
    let template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}{% for c in m.tool_calls or [] %}\
        <s>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}\n{% endfor %}<|im_end|>\n\
        {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    let (tokenizer, tokens) = (&TOKENIZERS[0], &TOKENS[0]);
    let form = Template::new(template).unwrap().call_form(tokenizer, &[], &Map::new()).unwrap();
    assert_eq!((form.before.as_str(), form.after.as_str()), ("<s>\n{\"name\": \"", "}"));
    let schema = json!({"properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["n"], "additionalProperties": false});
    let constraint = tokens.compile(&form.grammar(tokenizer, &[("f", Some(&schema)), ("g", None)])).unwrap();
    // The control token comes first, and only it.
    let mut first = constraint.clone();
    let mask = first.mask(&[257]).unwrap().to_vec();
    let control = tokenizer.id_of("<s>").unwrap();
    assert_eq!((0..300).filter(|id| allowed(&mask, *id)).collect::<Vec<u32>>(), [control]);
    first.accept(control).unwrap();
    let mut names = std::collections::BTreeSet::new();
    for seed in 0..12 {
        let (text, complete) = draw(tokenizer, first.clone(), seed, 200, &mut |_| {});
        assert!(complete, "{text}");
        let call: Value = serde_json::from_str(&text).unwrap();
        match call["name"].as_str().unwrap() {
            "f" => assert!((1..=9).contains(&call["arguments"]["n"].as_i64().unwrap()), "{text}"),
            _ => assert_eq!(call, json!({"name": "g", "arguments": {}})),
        }
        names.insert(call["name"].to_string());
    }
    assert_eq!(names.len(), 2);
    let none = Template::new("{% for m in messages %}{{ m.content }}{% endfor %}").unwrap();
    assert!(none.call_form(tokenizer, &[], &Map::new()).is_err());
    assert!(none.render(&[Message::new("user", "a")], &[], true, &Map::new()).is_ok());
}
