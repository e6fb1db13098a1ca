//! Conversations with a random model, whose answers are nonsense that a second computation must
//! repeat.

use crate::gradients::{plain, random_weights};
use crate::kernels::emulator;
use ferrane_emulator::Numerics;
use ferrane_llm::chat::{Chat, ChatError, ChatOptions, Finish, Message, Template};
use ferrane_llm::config::Config;
use ferrane_llm::generate::Tokens;
use ferrane_llm::model::Model;
use ferrane_llm::reference::Reference;
use ferrane_llm::sample::{Sampler, Sampling};
use ferrane_llm::weights::native;
use ferrane_testdata::tokenizer::byte_tokenizer;
use serde_json::{Map, json};
use std::ops::ControlFlow;
use std::path::Path;

const TEMPLATE: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
                        {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// A model of 258 ids in a folder.
fn model(folder: &Path, max_seq: usize) -> Model {
    let config = Config { vocab: 258, max_seq, ..plain() };
    native::save(&folder.join("model.safetensors"), &config, &random_weights(&config, 3)).unwrap();
    let write = |name: &str, text: String| std::fs::write(folder.join(name), text).unwrap();
    write("tokenizer.json", byte_tokenizer(&["<|im_start|>", "<|im_end|>"], None).to_string());
    let config = json!({"bos_token": null, "eos_token": "<|im_end|>", "chat_template": TEMPLATE});
    write("tokenizer_config.json", config.to_string());
    Model::open(folder).unwrap()
}

fn greedy(max_tokens: usize) -> ChatOptions {
    ChatOptions { sampling: Sampling::greedy(), max_tokens: Some(max_tokens), ..ChatOptions::default() }
}

fn show(_: &str) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn each_turn_continues_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path(), 512);
    let reference = Reference::new(&model.config, model.fp32_weights().unwrap()).unwrap();
    let device = emulator(Numerics::Exact);
    for device in [None, Some(&device)] {
        let mut chat = Chat::new(&model, device, Default::default(), greedy(9)).unwrap();
        chat.set_system("Be kind.");
        let mut shown = String::new();
        let first = chat.say("Hi <|im_end|>", |piece| {
            shown.push_str(piece);
            ControlFlow::Continue(())
        });
        let first = first.unwrap();
        assert_eq!((&shown, first.reused_tokens, first.finish), (&first.text, 0, Finish::Length));
        let second = chat.say("More", show).unwrap();
        assert_eq!(chat.messages().len(), 5);
        assert!(second.reused_tokens >= first.prompt_tokens, "{second:?}");
        // The same as from scratch.
        let tokenizer = model.tokenizer().unwrap();
        let template = Template::new(TEMPLATE).unwrap();
        let prompt = template.encode(tokenizer, &chat.messages()[..4], &[], true, &Map::new()).unwrap();
        assert_eq!(prompt.len(), second.prompt_tokens);
        // One for each message and one for the answer; the one that the user typed is none.
        assert_eq!(prompt.iter().filter(|id| **id == 256).count(), 5);
        assert_eq!(prompt.iter().filter(|id| **id == 257).count(), 4);
        let mut decoder = reference.decoder();
        let mut sampler = Sampler::new(&Sampling::greedy()).unwrap();
        let ids: Vec<u32> = Tokens::new(&mut decoder, &prompt, 9, &mut sampler, &[257]).map(Result::unwrap).collect();
        assert_eq!(tokenizer.decode(&ids), second.text);
        // Taken back and said again.
        chat.undo().unwrap();
        assert_eq!(chat.messages().len(), 3);
        assert_eq!(chat.say("More", show).unwrap().text, second.text);
        chat.reset();
        assert_eq!(chat.messages().len(), 1);
        assert!(matches!(chat.undo(), Err(ChatError::NothingToUndo)));
        chat.set_system("");
        assert!(chat.messages().is_empty());
    }
}

#[test]
fn an_answer_ends_for_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path(), 96);
    let answer = |options: ChatOptions| {
        let mut chat = Chat::new(&model, None, Default::default(), options).unwrap();
        chat.say("Hi", show).unwrap()
    };
    let whole = answer(greedy(20));
    assert_eq!((whole.finish, whole.tokens), (Finish::Length, 20));
    let middle: String = whole.text.chars().skip(5).take(2).collect();
    let stopped = answer(ChatOptions { stop: vec![middle.clone()], ..greedy(20) });
    assert_eq!(
        (stopped.finish, &stopped.text),
        (Finish::Stop, &whole.text[..whole.text.find(&middle).unwrap()].to_string())
    );
    // A bias makes the model end at once.
    let end = Sampling { logit_bias: [(257, 1e6)].into(), ..Sampling::greedy() };
    let ended = answer(ChatOptions { sampling: end, ..greedy(20) });
    assert_eq!((ended.finish, ended.text.as_str(), ended.tokens), (Finish::Stop, "", 0));
    let mut chat = Chat::new(&model, None, Default::default(), greedy(20)).unwrap();
    let cut = chat.say("Hi", |_| ControlFlow::Break(())).unwrap();
    assert!(cut.finish == Finish::Cancelled && whole.text.starts_with(&cut.text) && cut.text.len() < whole.text.len());
    assert_eq!(chat.messages()[1], Message::new("assistant", cut.text));
    // Up to the end of the context, and no further.
    let mut chat = Chat::new(&model, None, Default::default(), ChatOptions { max_tokens: None, ..greedy(1) }).unwrap();
    let filled = chat.say("Hi", show).unwrap();
    assert_eq!((filled.finish, filled.prompt_tokens + filled.tokens), (Finish::Length, 96));
    assert!(matches!(chat.say("Hi", show), Err(ChatError::TooLong { context: 96, .. })));
    assert_eq!(chat.messages().len(), 2);
}

#[test]
fn what_cannot_be_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path(), 96);
    let refuse = Template::new("{{ raise_exception('no') }}").unwrap();
    let mut chat =
        Chat::new(&model, None, Default::default(), ChatOptions { template: Some(refuse), ..greedy(1) }).unwrap();
    assert!(matches!(chat.say("Hi", show), Err(ChatError::Template(_))) && chat.messages().is_empty());
    let hot = Sampling { temperature: -1.0, ..Sampling::default() };
    assert!(matches!(chat.set_sampling(hot), Err(ChatError::Generate(_))));
    std::fs::remove_file(folder.path().join("tokenizer_config.json")).unwrap();
    let none = Chat::new(&model, None, Default::default(), greedy(1));
    assert!(matches!(none, Err(ChatError::NoTemplate)));
}
