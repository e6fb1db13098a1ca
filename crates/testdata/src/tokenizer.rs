//! A small `tokenizer.json`, for tests of chats.

use serde_json::{Map, Value, json};

/// A byte-level vocabulary without merges: the 256 bytes, then `specials` from 256 on. Ids of bytes
/// follow the order of the alphabet that spells them, so `a` is not 97. `begin`, if given, is put
/// in front of every text by the post-processor.
pub fn byte_tokenizer(specials: &[&str], begin: Option<&str>) -> Value {
    let own = |b: u8| matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let printable = (0..=255u8).filter(|b| own(*b)).map(char::from);
    let others = ('\u{100}'..).take((0..=255u8).filter(|b| !own(*b)).count());
    let pieces = printable.chain(others).map(String::from);
    let vocab: Map<String, Value> = pieces.zip(0..).map(|(piece, id)| (piece, Value::from(id))).collect();
    let id = |name: &str| specials.iter().position(|other| *other == name).map(|at| at + 256);
    let added: Vec<Value> = specials
        .iter()
        .map(|name| {
            json!({"id": id(name), "content": name, "single_word": false, "lstrip": false, "rstrip": false,
                   "normalized": false, "special": true})
        })
        .collect();
    let post_processor = begin.map(|name| {
        json!({
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": name, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {name: {"id": name, "ids": [id(name)], "tokens": [name]}},
        })
    });
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": post_processor,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": []},
    })
}
