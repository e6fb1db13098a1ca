//! The data suite over `tokenizers/*_cases.json`, hostile files, and properties.
//!
//! `PREFIX_cases.json` belongs to whichever of `PREFIX.model`, `PREFIX.bin`,
//! `PREFIX_tokenizer.json` and `PREFIX_vocab.json` exist. The pre-tokenizer of a byte-level
//! vocabulary is inferred from the vocabulary (see [`PreTokenizer`]).

use std::collections::HashMap;
use std::path::Path;

use ferrane_testdata::Suite;
use proptest::prelude::*;
use prost::Message as _;
use serde_json::Value;

use super::sentencepiece::{ModelProto, NormalizerSpec, Piece, TrainerSpec};
use super::*;

pub(super) fn files(folder: &Path, end: &str) -> Vec<(String, PathBuf)> {
    let mut found: Vec<(String, PathBuf)> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter_map(|path| Some((path.file_name()?.to_str()?.strip_suffix(end)?.to_string(), path)))
        .collect();
    found.sort();
    found
}

#[test]
fn recorded_cases() {
    let Some(mut suite) = Suite::open("tokenizers", "tokenizers") else { return };
    let folder = suite.folder().to_path_buf();
    for (prefix, path) in files(&folder, "_cases.json") {
        let cases: Vec<Value> = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let names = [".model", ".bin", "_tokenizer.json", "_vocab.json"].map(|end| format!("{prefix}{end}"));
        let present: Vec<&String> = names.iter().filter(|name| folder.join(name).is_file()).collect();
        if present.is_empty() {
            suite.skip(&prefix, "no vocabulary of this name lies here");
        }
        for name in present {
            let tokenizer = match Tokenizer::open(folder.join(name)) {
                Ok(tokenizer) => tokenizer,
                Err(error) => {
                    suite.case(name, Err(error.to_string()));
                    continue;
                }
            };
            for (at, case) in cases.iter().enumerate() {
                suite.case(&format!("{name}#{at}"), check(&tokenizer, case));
            }
        }
    }
    suite.finish();
}

pub(super) fn check(tokenizer: &Tokenizer, case: &Value) -> Result<(), String> {
    let text = case["text"].as_str().ok_or("no text")?;
    let want: Vec<u32> =
        case["ids"].as_array().ok_or("no ids")?.iter().map(|id| id.as_u64().map_or(u32::MAX, |id| id as u32)).collect();
    let ids = tokenizer.encode(text);
    if ids != want {
        return Err(format!("{text:?}: expected {want:?}, got {ids:?}"));
    }
    let back = tokenizer.decode(&ids);
    if back == text { Ok(()) } else { Err(format!("{text:?} decodes to {back:?}")) }
}

/// A `tokenizer_config.json` of a longer prefix (`qwen3_` for `qwen_`) adds its tokens to the
/// vocabulary, survives saving, and its special tokens are found in text.
#[test]
fn configurations_add_their_tokens() {
    let Some(mut suite) = Suite::open("tokenizer configurations", "tokenizers") else { return };
    let folder = suite.folder().to_path_buf();
    let vocabularies = files(&folder, "_vocab.json");
    for (prefix, config) in files(&folder, "_tokenizer_config.json") {
        let Some((_, path)) = vocabularies.iter().find(|(short, _)| prefix.starts_with(short.as_str())) else {
            suite.skip(&prefix, "no vocabulary of this name lies here");
            continue;
        };
        let options = Options { config: Some(config.clone()), ..Options::default() };
        let result = Tokenizer::open_with(path, &options).map_err(|e| e.to_string()).and_then(|tokenizer| {
            let value: Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
            for (id, token) in value["added_tokens_decoder"].as_object().ok_or("no added tokens")? {
                let (id, content) = (id.parse::<u32>().unwrap(), token["content"].as_str().unwrap());
                let ids = tokenizer.encode(content);
                if ids != [id] {
                    return Err(format!("{content} is {id}, encoded as {ids:?}"));
                }
                let text = if token["special"] == true { "" } else { content };
                if tokenizer.decode(&ids) != text {
                    return Err(format!("{content} decodes to {:?}", tokenizer.decode(&ids)));
                }
            }
            if tokenizer.eos() != value["eos_token"].as_str().and_then(|name| tokenizer.id_of(name)) {
                return Err(format!("end of sequence is {:?}", tokenizer.eos()));
            }
            let temporary = tempfile::tempdir().unwrap();
            tokenizer.save(temporary.path().join("tokenizer.json")).map_err(|e| e.to_string())?;
            let again = Tokenizer::open(temporary.path()).map_err(|e| e.to_string())?;
            let same = again.digest() == tokenizer.digest() && again.vocab_size() == tokenizer.vocab_size();
            if same && again.eos() == tokenizer.eos() { Ok(()) } else { Err("saving changed it".into()) }
        });
        suite.case(&prefix, result);
    }
    suite.finish();
}

/// The merge loop of llama2.c: scan, merge the best pair, scan again.
fn scan(vocabulary: &[(Vec<u8>, f32)], mut ids: Vec<u32>) -> Vec<u32> {
    loop {
        let (mut best, mut found) = (-1e10f32, None);
        for at in 0..ids.len().saturating_sub(1) {
            let pair = [&vocabulary[ids[at] as usize].0[..], &vocabulary[ids[at + 1] as usize].0].concat();
            let id = vocabulary.iter().position(|(piece, _)| *piece == pair);
            if let Some(id) = id.filter(|&id| vocabulary[id].1 > best) {
                best = vocabulary[id].1;
                found = Some((at, id as u32));
            }
        }
        let Some((at, id)) = found else { return ids };
        ids[at] = id;
        ids.remove(at + 1);
    }
}

fn vocabulary(pieces: &[(&str, f32)]) -> Vec<(Vec<u8>, f32)> {
    let control = ["<unk>", "\n<s>\n", "\n</s>\n"].map(|name| (name.into(), 0.0));
    let bytes = (0..256).map(|byte| (format!("<0x{byte:02X}>").into_bytes(), 0.0));
    control.into_iter().chain(bytes).chain(pieces.iter().map(|(p, s)| (p.as_bytes().to_vec(), *s))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Few letters, few scores, many ties: the heap gives the same ids as the scan.
    #[test]
    fn merging_equals_the_scan(
        pieces in proptest::collection::vec(("[ab <>0x]{2,5}", prop_oneof![Just(-1.0f32), Just(-2.0), Just(0.0), Just(-0.0), Just(-2e10), Just(f32::NAN)]), 0..24),
        text in "[ab <>0xé]{0,40}",
    ) {
        let mut all = vec![("a", -9.0), ("b", -9.0), (" ", -9.0), ("<", 0.0), ("0", 0.0), ("x", 0.0)];
        all.extend(pieces.iter().map(|(p, s)| (p.as_str(), *s)));
        let vocabulary = vocabulary(&all);
        let tokenizer = Tokenizer::from_vocabulary(vocabulary.clone());
        let ids = tokenizer.encode(&text);
        let id = |name: &str| vocabulary.iter().position(|(p, _)| p == name.as_bytes()).map(|id| id as u32);
        let start: Vec<u32> = if text.is_empty() { vec![] } else {
            format!(" {text}").chars().flat_map(|c| match id(&c.to_string()) {
                Some(id) => vec![id],
                None => c.to_string().bytes().map(|b| u32::from(b) + 3).collect(),
            }).collect()
        };
        prop_assert_eq!(&ids, &scan(&vocabulary, start));
    }

    /// Arbitrary ids: the parts of a stream are text, and their concatenation equals the decoded
    /// text and that of the bytes.
    #[test]
    fn streams_add_up(ids in proptest::collection::vec(prop_oneof![0u32..300, 120u32..262, any::<u32>()], 0..60)) {
        let tokenizer = Tokenizer::from_vocabulary(vocabulary(&[(" ", -1.0), ("é", -2.0), (" a", -3.0)]));
        let mut stream = tokenizer.stream();
        let parts: Vec<String> = ids.iter().map(|&id| stream.push(id)).collect();
        let whole = parts.concat() + &stream.finish();
        prop_assert_eq!(&whole, &tokenizer.decode(&ids));
        let mut bytes = Vec::new();
        let mut at_start = true;
        for &id in &ids {
            at_start |= Some(id) == tokenizer.bos();
            let piece = tokenizer.piece(id).unwrap_or_default();
            let skip = usize::from(!piece.is_empty() && std::mem::take(&mut at_start) && piece[0] == b' ');
            bytes.extend_from_slice(&piece[skip..]);
            if piece.is_empty() && Some(id) == tokenizer.bos() { at_start = true; }
        }
        prop_assert_eq!(whole, String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn every_text_comes_back(text in any::<String>()) {
        let tokenizer = Tokenizer::from_vocabulary(vocabulary(&[(" ", -1.0), ("é", -2.0), (" a", -3.0), ("e", -3.0)]));
        prop_assert_eq!(tokenizer.decode(&tokenizer.encode(&text)), text);
    }

    /// A reader does not panic on any bytes.
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for read in [Tokenizer::from_llama2c, Tokenizer::from_sentencepiece] {
            if let Ok(tokenizer) = read(&bytes) {
                let ids = tokenizer.encode("a b\u{2581} é");
                prop_assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
            }
        }
    }

    /// Changed bytes in a `tokenizer.json`: refused, or all ids within the vocabulary.
    #[test]
    fn damaged_tokenizer_json_is_read_or_refused(changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..3), skip in any::<usize>()) {
        let mut file = tokenizer_json();
        // A short vocabulary makes the changes hit the structure.
        let vocabulary = file["model"]["vocab"].as_object_mut().unwrap();
        vocabulary.retain(|_, id| id.as_u64() >= Some(256));
        vocabulary.values_mut().for_each(|id| *id = Value::from(id.as_u64().unwrap_or(0) - 256));
        let mut bytes = file.to_string().into_bytes();
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = if byte < 128 { b"0123456789[]{},:\"anull-.e"[byte as usize % 25] } else { byte };
        }
        if skip.is_multiple_of(4) {
            bytes.remove(skip / 4 % bytes.len());
        }
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("tokenizer.json");
        std::fs::write(&path, bytes).unwrap();
        if let Ok(tokenizer) = Tokenizer::open(&path) {
            let ids = tokenizer.encode("a b\u{2581} é <s>");
            prop_assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
            tokenizer.decode(&ids);
        }
    }

    /// One changed byte in a model: refused, or all ids within the vocabulary.
    #[test]
    fn damaged_models_are_read_or_refused(at in 0usize..4000, byte in any::<u8>()) {
        let mut bytes = model(2, true, &[("\u{2581}", -1.0, 1), ("a", -2.0, 1), ("\u{2581}a", -3.0, 1)]).encode_to_vec();
        let count = bytes.len();
        bytes[at % count] = byte;
        if let Ok(tokenizer) = Tokenizer::from_sentencepiece(&bytes) {
            let ids = tokenizer.encode("a b\u{2581} é");
            prop_assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
        }
    }
}

#[test]
fn streams_hold_back_unfinished_characters() {
    let tokenizer = Tokenizer::from_vocabulary(vocabulary(&[(" ", 0.0)]));
    let mut stream = tokenizer.stream();
    let byte = |b: u8| u32::from(b) + 3;
    let parts: Vec<String> = [0xe2, 0x82, 0xac, 0xc3, b'x'].iter().map(|&b| stream.push(byte(b))).collect();
    assert_eq!(parts, ["", "", "€", "", "\u{fffd}x"]);
    assert_eq!(stream.push(byte(0xf0)), "");
    assert_eq!(stream.finish(), "\u{fffd}");
}

#[test]
fn the_space_after_the_beginning_goes() {
    let tokenizer = Tokenizer::from_vocabulary(vocabulary(&[(" ", 0.0), ("a", 0.0), (" a", 1.0)]));
    assert_eq!(tokenizer.encode("a a"), [261, 261]);
    assert_eq!(tokenizer.decode(&[261, 261]), "a a");
    assert_eq!(tokenizer.decode(&[1, 261, 261, 2, 1, 261]), "a aa");
    assert_eq!(tokenizer.encode(""), [] as [u32; 0]);
}

/// 200,000 equal letters are one run; a scan would need 10^10 lookups.
#[test]
fn long_runs_are_fast() {
    let tokenizer = Tokenizer::from_vocabulary(vocabulary(&[(" ", 0.0), ("a", 0.0), ("aa", -1.0), ("aaaa", -2.0)]));
    let text = "a".repeat(200_000);
    let ids = tokenizer.encode(&text);
    assert_eq!(ids.len(), 50_001);
    assert_eq!(tokenizer.decode(&ids), text);
}

#[test]
fn llama2c_files_survive_and_damage_is_named() {
    let all = vocabulary(&[(" ", -1.5), ("a", -2.0)]);
    let file = llama2c::write(&all);
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("tokenizer.bin");
    let tokenizer = Tokenizer::from_llama2c(&file).unwrap();
    tokenizer.save(&path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), file);
    assert_eq!(Tokenizer::open(temporary.path()).unwrap().digest(), tokenizer.digest());
    assert_eq!((tokenizer.vocab_size(), tokenizer.bos(), tokenizer.eos()), (261, Some(1), Some(2)));
    assert_eq!(tokenizer.id_of("a"), Some(260));

    let said = |bytes: &[u8]| Tokenizer::from_llama2c(bytes).unwrap_err().to_string();
    assert!(said(&file[..3]).contains("first four bytes"));
    assert!(said(&file[..4]).contains("no pieces"));
    assert!(said(&file[..file.len() - 1]).contains("id 260 has 1 bytes, the file ends before"));
    assert!(said(&file[..file.len() - 3]).contains("inside the record of id 260"));
    for length in [-1, i32::MAX, 1025] {
        let mut wild = file.clone();
        wild[8..12].copy_from_slice(&length.to_le_bytes());
        assert!(said(&wild).contains(&format!("id 0 has length {length}")), "{}", said(&wild));
    }
}

fn model(kind: i32, byte_fallback: bool, pieces: &[(&str, f32, i32)]) -> ModelProto {
    let piece = |name: &str, score, kind| Piece { piece: Some(name.into()), score: Some(score), kind: Some(kind) };
    let mut all = vec![piece("<unk>", 0.0, 2), piece("<s>", 0.0, 3), piece("</s>", 0.0, 3)];
    if byte_fallback {
        all.extend((0..256).map(|byte| piece(&format!("<0x{byte:02X}>"), 0.0, 6)));
    }
    all.extend(pieces.iter().map(|(name, score, kind)| piece(name, *score, *kind)));
    let trainer = TrainerSpec { model_type: Some(kind), byte_fallback: Some(byte_fallback), ..TrainerSpec::default() };
    let normalizer = NormalizerSpec { remove_extra_whitespaces: Some(false), ..NormalizerSpec::default() };
    ModelProto { pieces: all, trainer: Some(trainer), normalizer: Some(normalizer) }
}

fn opened(model: &ModelProto) -> Tokenizer {
    Tokenizer::from_sentencepiece(&model.encode_to_vec()).unwrap()
}

const PIECES: [(&str, f32, i32); 6] =
    [("\u{2581}", -1.0, 1), ("a", -2.0, 1), ("b", -3.0, 1), ("ab", -4.0, 1), ("\u{2581}ab", -5.0, 1), ("[x]", 0.0, 4)];

#[test]
fn sentencepiece_bpe() {
    let tokenizer = opened(&model(2, false, &PIECES));
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.vocab_size()), (Some(1), Some(2), 9));
    assert_eq!(tokenizer.encode("ab ab"), [7, 7]);
    assert_eq!(tokenizer.decode(&[1, 7, 7, 2]), "ab ab");
    // A run of unknown characters is one unknown piece; a user-defined piece never merges.
    assert_eq!(tokenizer.encode("a漢字b"), [3, 4, 0, 5]);
    assert_eq!(tokenizer.encode("a[x]b"), [3, 4, 8, 5]);
    assert_eq!(tokenizer.decode(&[3, 4, 0, 5]), "a \u{2047} b");
    let bytes = opened(&model(2, true, &PIECES));
    assert_eq!(bytes.encode("é"), [259, 3 + 0xc3, 3 + 0xa9]);
    assert_eq!(bytes.decode(&bytes.encode(" é漢 ab")), " é漢 ab");
}

/// "ab" is unused: it is an intermediate result for "▁ab", and is split into its parts if it
/// remains.
#[test]
fn sentencepiece_unused_pieces() {
    let mut pieces = PIECES;
    pieces[3].2 = 5;
    let tokenizer = opened(&model(2, false, &pieces));
    assert_eq!(tokenizer.encode("abab"), [7, 4, 5]);
}

#[test]
fn sentencepiece_unigram() {
    let tokenizer = opened(&model(1, false, &PIECES));
    // "▁ab" (-5) ties with -1 - 4, and the first path found wins the tie; "ab" (-4) beats "a" + "b"
    // (-5).
    assert_eq!(tokenizer.encode("ab"), [7]);
    assert_eq!(tokenizer.encode("aab"), [3, 4, 6]);
    assert_eq!(tokenizer.encode("a漢字b[x]"), [3, 4, 0, 5, 8]);
    assert_eq!(tokenizer.decode(&tokenizer.encode("ab aab")), "ab aab");
}

#[test]
fn sentencepiece_normalization() {
    let mut file = model(2, false, &PIECES);
    file.normalizer = Some(NormalizerSpec::default());
    let joined = opened(&file);
    assert_eq!(joined.encode("   ab   ab  "), [7, 7]);
    assert_eq!(joined.encode("   "), [] as [u32; 0]);
    file.normalizer = Some(NormalizerSpec {
        add_dummy_prefix: Some(false),
        remove_extra_whitespaces: Some(false),
        ..NormalizerSpec::default()
    });
    let plain = opened(&file);
    assert_eq!(plain.encode("ab ab"), [6, 7]);
    assert_eq!(plain.decode(&plain.encode(" ab  ab")), " ab  ab");
}

#[test]
fn sentencepiece_refusals() {
    let said = |model: &ModelProto| Tokenizer::from_sentencepiece(&model.encode_to_vec()).unwrap_err().to_string();
    assert!(said(&model(3, false, &PIECES)).contains("the word model type (3) is not supported"));
    assert!(said(&model(2, false, &[("a", 0.0, 1), ("a", 1.0, 1)])).contains("pieces 3 and 4 are both `a`"));
    assert!(said(&model(2, false, &[("", 0.0, 1)])).contains("piece 3 has 0 bytes"));
    assert!(said(&model(2, false, &[("a", f32::NAN, 1)])).contains("score NaN"));
    assert!(said(&ModelProto::default()).contains("no unknown piece"));
    let mut short = model(2, true, &PIECES);
    short.pieces.remove(3 + 0x41);
    assert!(said(&short).contains("without the piece <0x41>"));
    let good = model(2, true, &PIECES).encode_to_vec();
    assert!(Tokenizer::from_sentencepiece(&good[..good.len() - 1]).is_err());
}

fn byte_level(vocabulary: &str, merges: &str, config: Option<&str>, options: &Options) -> Result<Tokenizer, Error> {
    let temporary = tempfile::tempdir().unwrap();
    std::fs::write(temporary.path().join("x_vocab.json"), vocabulary).unwrap();
    std::fs::write(temporary.path().join("x_merges.txt"), merges).unwrap();
    if let Some(config) = config {
        std::fs::write(temporary.path().join("x_tokenizer_config.json"), config).unwrap();
    }
    let first = Tokenizer::open_with(temporary.path().join("x_vocab.json"), options);
    let second = Tokenizer::open_with(temporary.path().join("x_merges.txt"), options);
    assert_eq!(first.as_ref().ok().map(Tokenizer::digest), second.ok().map(|t| t.digest()));
    first
}

#[test]
fn byte_level_word_rules() {
    let vocabulary = r#"{"1":0,"2":1,"12":2,".":3,"a":4,".a":5}"#;
    let merges = "#version: 0.2\n1 2\n. a\n";
    let encode = |options: &Options, config: Option<&str>| {
        byte_level(vocabulary, merges, config, options).unwrap().encode("12.a")
    };
    let (gpt2, qwen2) = (vec![2, 3, 4], vec![0, 1, 5]);
    assert_eq!(encode(&Options::default(), None), gpt2, "two digits side by side");
    assert_eq!(encode(&Options::default(), Some(r#"{"tokenizer_class":"Qwen2Tokenizer"}"#)), qwen2);
    let told = Options { pre_tokenizer: Some(PreTokenizer::Qwen2), ..Options::default() };
    assert_eq!(encode(&told, None), qwen2);
    let single = byte_level(r#"{"1":0,"2":1,".":2,"a":3,".a":4}"#, ". a\n", None, &Options::default()).unwrap();
    assert_eq!(single.encode("12.a"), [0, 1, 4], "a mark before letters and no two digits");
}

#[test]
fn byte_level_refusals() {
    let said = |vocabulary: &str, merges: &str, config: Option<&str>| {
        byte_level(vocabulary, merges, config, &Options::default()).unwrap_err().to_string()
    };
    let good = r#"{"a":0,"b":1,"ab":2}"#;
    assert!(said(good, "a b c\n", None).contains("merges line 1: not two pieces"));
    assert!(said(good, "a b\n#version\n", None).contains("merges line 2"));
    assert!(said(good, "b a\n", None).contains("`ba` is not in the vocabulary"));
    assert!(said(r#"{"a":4000000000}"#, "", None).contains("has the id 4000000000"));
    assert!(said(r#"{"a":-1}"#, "", None).contains("not a whole number"));
    assert!(said(r#"{"a":0,"b":0}"#, "", None).contains("both have the id 0"));
    assert!(said("{}", "", None).contains("empty"));
    assert!(said(r#"{"a":"#, "", None).contains("EOF"));
    let config = r#"{"added_tokens_decoder":{"7":{"content":"<x>","special":true}}}"#;
    assert!(said(good, "a b\n", Some(config)).contains("`<x>` the id 7, but with this vocabulary it is 3"));
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("tokenizer.json");
    for (text, want) in [
        (r#"{"model":{"type":"WordPiece","vocab":{}}}"#, "model type `WordPiece`"),
        (r#"{"model":{"type":"BPE","vocab":{"a":0},"merges":[],"unk_token":"?"}}"#, "unknown token `?`"),
        (r#"{"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}}"#, "tokenizer"),
    ] {
        std::fs::write(&path, text).unwrap();
        let error = Tokenizer::open(&path).unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    }
}

/// A `tokenizer.json` in the SentencePiece spelling, like Llama's.
fn tokenizer_json() -> Value {
    let mut vocabulary: HashMap<String, u32> = (0..256).map(|b| (format!("<0x{b:02X}>"), b)).collect();
    for (id, name) in (256..).zip(["\u{2581}", "a", "\u{2581}a", "<unk>", "<s>", "</s>"]) {
        vocabulary.insert(name.into(), id);
    }
    let special = |id: u32, name: &str| serde_json::json!({"id": id, "content": name, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true});
    serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [special(260, "<s>"), special(261, "</s>")],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u{2581}"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"}]},
        "pre_tokenizer": null, "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": true, "byte_fallback": true, "vocab": vocabulary, "merges": ["\u{2581} a"]}
    })
}

#[test]
fn tokenizer_json_with_byte_fallback() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("tokenizer.json");
    std::fs::write(&path, tokenizer_json().to_string()).unwrap();
    let tokenizer = Tokenizer::open(temporary.path()).unwrap();
    assert_eq!((tokenizer.bos(), tokenizer.eos()), (Some(260), Some(261)));
    assert_eq!(tokenizer.encode("a é"), [258, 256, 0xc3, 0xa9]);
    assert_eq!(tokenizer.decode(&[260, 258, 256, 0xc3, 0xa9]), "a é");
}

#[test]
fn what_is_no_vocabulary_is_refused_with_a_remedy() {
    let temporary = tempfile::tempdir().unwrap();
    let said = |path: &Path| Tokenizer::open(path).unwrap_err().to_string();
    assert!(said(temporary.path()).contains("expected a llama2.c tokenizer.bin"));
    assert!(said(&temporary.path().join("none.bin")).contains("none.bin"));
    let path = temporary.path().join("text");
    for text in ["", "Once upon a time there was a girl.", "\0\0"] {
        std::fs::write(&path, text).unwrap();
        assert!(said(&path).contains("no tokenizer found"));
    }
}

#[test]
fn training_is_deterministic_and_complete() {
    let text = "the cat sat on the mat. the cat ran. \"the end,\" she said.\n".repeat(3);
    let first = Tokenizer::train(&text, 290).unwrap();
    assert_eq!(first.digest(), Tokenizer::train(&text, 290).unwrap().digest());
    assert_eq!(first.vocab_size(), 290);
    // " the" occurs three times per line, so its parts merge first.
    assert!(first.id_of("the").is_some() && first.id_of("he").is_some());
    assert_eq!(first.decode(&first.encode(&text)), text);
    assert!(first.encode(&text).len() * 4 < text.len() * 3);
    let small = Tokenizer::train(&text, 259).unwrap_err().to_string();
    assert!(small.contains("ask for 27"), "{small}");
    // On equal counts the pair whose bytes come first wins.
    let tied = Tokenizer::train("ab cd", 259 + 5 + 1).unwrap();
    assert!(tied.id_of(" c").is_some() && tied.id_of("ab").is_none() && tied.id_of("cd").is_none());
}
