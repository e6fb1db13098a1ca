//! Conversations as training data: which tokens count, in the data, in the loss and in a run.

use std::fs;
use std::sync::atomic::AtomicBool;

use ferrane_emulator::Numerics;
use ferrane_llm::chat::Template;
use ferrane_llm::compaction::Compaction;
use ferrane_llm::config::Config;
use ferrane_llm::layout::{Residual, Shape};
use ferrane_llm::weights::native;
use ferrane_train::data::{Ids, MESSAGES_FIELD, Source};
use ferrane_train::optim::Gradients;
use ferrane_train::run::RunOptions;
use ferrane_train::session::{Session, SessionError, SessionOptions};
use ferrane_train::step::{Engine, IGNORED, Pipeline, ReferenceEngine};

use crate::data::Place;
use crate::gradients::{PIPELINES, check, emulator};
use crate::run::{random_weights, tiny, window};

const TEMPLATE: &str = "{% for m in messages %}[{{ m.role }}]{{ m.content }}.\n{% endfor %}\
    {% if add_generation_prompt %}[assistant]{% endif %}";

fn row(turns: &[(&str, &str)]) -> String {
    let message = |(role, content): &(&str, &str)| serde_json::json!({"role": role, "content": content});
    serde_json::json!({ "messages": turns.iter().map(message).collect::<Vec<_>>() }).to_string()
}

#[test]
fn only_answers_count_and_broken_rows_are_left_out() {
    let place = Place::new();
    let template = Template::new(TEMPLATE).unwrap();
    let source = Source { template: Some(&template), field: MESSAGES_FIELD, ..place.source() };
    let rows = [
        row(&[("user", "the cat"), ("assistant", "sat on"), ("user", "the mat"), ("assistant", "ran")]),
        "{\"messages\": null}".into(),
        "{\"messages\": []}".into(),
        row(&[("user", "no answer")]),
        "{\"messages\": \"text\"}".into(),
        "{\"messages\": [{\"content\": \"no role\"}]}".into(),
        "{\"messages\": [".into(),
        "{\"text\": \"the cat\"}".into(),
        row(&[("assistant", "The End")]),
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": 3}".into(),
    ];
    let path = place.write("chat.jsonl", rows.join("\n"));
    for opened in ["encoded", "cached"] {
        let (ids, notes) = place.open(&path, &source).unwrap();
        let tokenizer = source.tokenizer.unwrap();
        let texts = ["[user]the cat.\n[assistant]sat on.\n[user]the mat.\n[assistant]ran.\n", "[assistant]The End.\n"];
        assert_eq!(ids, texts.iter().flat_map(|text| tokenizer.encode_chat(text)).collect::<Vec<_>>(), "{opened}");
        let [note] = notes.as_slice() else { panic!("{notes:?}") };
        for words in ["6 broken rows", "line 4: the conversation has no answer", "line 5: `messages` is not a list"] {
            assert!(note.contains(words), "no {words:?} in {note}");
        }
        let ids = Ids::open(&path, &source).unwrap();
        let (inputs, targets) = ids.sample(0, ids.len() - 1).unwrap();
        assert_eq!(inputs, ids.iter().take(ids.len() - 1).collect::<Vec<_>>());
        let counted: Vec<u32> = targets.iter().copied().filter(|id| *id != IGNORED).collect();
        assert_eq!(tokenizer.decode(&counted).replace(' ', ""), "saton.\nran.\nTheEnd.\n", "{opened}");
        assert!(targets.iter().zip(ids.iter().skip(1)).all(|(target, id)| *target == IGNORED || *target == id));
    }
    // The same file as texts, and with another template, has other ids in the cache.
    let texts = Source { bad_rows: 20, ..place.source() };
    assert_eq!(place.open(&path, &texts).unwrap().0, place.ids(&["the cat"]));
    let other = Template::new(&TEMPLATE.replace('[', "<")).unwrap();
    let source = Source { template: Some(&other), ..source };
    assert!(place.source().tokenizer.unwrap().decode(&place.open(&path, &source).unwrap().0).contains("<user]"));
    // Too many broken rows, and what holds no conversations.
    place.refuses(&path, &Source { bad_rows: 2, ..source }, &["more than `bad_rows` allows", "line 4"]);
    place.refuses(&place.write("a.txt", "the cat"), &source, &["JSON Lines"]);
    place.refuses(&place.write("a.u16", [1, 0, 2, 0]), &source, &["JSON Lines"]);
}

/// The parts of a window whose targets are left out in turns add up to the whole window.
#[test]
fn targets_that_do_not_count_have_no_loss_and_no_gradient() {
    let config = Config { tied: false, ..tiny() };
    let weights = random_weights(&config);
    let (inputs, targets) = window(12, config.vocab);
    let without = |keep: &dyn Fn(usize) -> bool| -> Vec<u32> {
        targets.iter().enumerate().map(|(i, id)| if keep(i) { *id } else { IGNORED }).collect()
    };
    let parts = [without(&|i| i % 3 == 0), without(&|i| i % 3 != 0)];
    let whole = |engine: &mut dyn Engine, bounds: (f64, f64)| {
        let mut all = Gradients::new(&config);
        let want = engine.micro_step(&weights, &mut all, &inputs, &targets, 64.0).unwrap();
        let (mut sums, mut loss) = (Gradients::new(&config), 0.0);
        for (part, counted) in parts.iter().zip([4.0, 8.0]) {
            let found = engine.micro_step(&weights, &mut sums, &inputs, part, 64.0).unwrap();
            assert!(found.finite);
            assert_eq!(engine.loss(&weights, &inputs, part).unwrap(), found.loss);
            loss += counted / 12.0 * f64::from(found.loss);
        }
        assert!((loss - f64::from(want.loss)).abs() < 1e-5, "{loss} and {}", want.loss);
        check(sums.values().unwrap(), all.values().unwrap(), &config, bounds.0, bounds.1).unwrap();
        // Nothing counts.
        let nothing = vec![IGNORED; 12];
        let mut none = Gradients::new(&config);
        let found = engine.micro_step(&weights, &mut none, &inputs, &nothing, 64.0).unwrap();
        assert!(found.loss == 0.0 && found.finite);
        let zero = |data: &[f32]| data.iter().all(|g| *g == 0.0);
        assert!(none.values().unwrap().tensors(&config).iter().all(|tensor| zero(tensor.data)));
    };
    // fp32 sums in another order.
    whole(&mut ReferenceEngine::new(config.clone()), (0.999_999, 1e-4));
    for (pipeline, form) in PIPELINES {
        let shape = Shape::new(config.clone(), 12, Residual::Fp32, form).with_pipeline(pipeline);
        let full = Compaction::disabled(config.vocab);
        let mut engine = Pipeline::new(&emulator(Numerics::Fast), shape, full, &weights).unwrap();
        // fp16 rounding of the gradients of both parts.
        whole(&mut engine, (0.999, 0.03));
        assert!(engine.loss(&weights, &targets[..12].iter().map(|_| IGNORED).collect::<Vec<_>>(), &targets).is_err());
    }
}

#[test]
fn a_model_learns_answers_and_no_questions() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::new();
    let tokenizer = place.source().tokenizer.unwrap().clone();
    let config = Config { vocab: tokenizer.vocab_size(), ..tiny() };
    let at = |name: &str| folder.path().join(name);
    native::save(&at("base.safetensors"), &config, &random_weights(&config)).unwrap();
    tokenizer.save(at("tokenizer.bin")).unwrap();
    fs::write(at("chat_template.jinja"), TEMPLATE).unwrap();
    let turns = |i: usize| [("user", ["the cat", "the mat"][i % 2]), ("assistant", ["sat away", "ran on"][i % 2])];
    let rows: Vec<String> = (0..60).map(|i| row(&turns(i))).collect();
    fs::write(at("chat.jsonl"), rows.join("\n")).unwrap();
    let run = RunOptions {
        steps: 60,
        accum: 2,
        seq: 16,
        lr: 1e-2,
        warmup: 2,
        eval_windows: 4,
        eval_every: 0,
        out: at("run"),
        ..RunOptions::default()
    };
    let options = SessionOptions {
        init: Some(at("base.safetensors")),
        data: vec![at("chat.jsonl").into()],
        data_cache: Some(at("cache")),
        chat: true,
        run,
        ..SessionOptions::default()
    };
    let mut session = Session::begin(options.clone(), None, &mut |_| {}).unwrap();
    let summary = session.run(&mut |_| {}, &AtomicBool::new(false)).unwrap();
    // The answers follow from the questions; random weights have about ln 290 = 5.7.
    assert!(summary.validation.unwrap().1 < 2.0, "{:?}", summary.validation);
    drop(session);
    // The template is found again when the run is resumed.
    Session::resume(at("run"), None, &mut |_| {}).unwrap();
    fs::remove_file(at("chat_template.jinja")).unwrap();
    let other = SessionOptions { run: RunOptions { out: at("other"), ..options.run.clone() }, ..options.clone() };
    let error = Session::begin(other, None, &mut |_| {}).err().unwrap();
    assert!(matches!(error, SessionError::NoTemplate), "{error}");
    // Answers only in the part for validation.
    fs::write(at("template"), TEMPLATE).unwrap();
    fs::write(at("long.jsonl"), row(&[("user", &"the cat ".repeat(400)), ("assistant", "the")])).unwrap();
    let silent = SessionOptions {
        run: RunOptions { out: at("silent"), seq: 8, ..options.run.clone() },
        chat_template: Some(at("template")),
        data: vec![at("long.jsonl").into()],
        ..options
    };
    let mut session = Session::begin(silent, None, &mut |_| {}).unwrap();
    let error = session.run(&mut |_| {}, &AtomicBool::new(false)).unwrap_err().to_string();
    assert!(error.contains("windows in a row have no token of an assistant"), "{error}");
}
