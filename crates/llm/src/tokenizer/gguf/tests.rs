//! The recorded cases of `tokenizers/`, with the vocabularies written into GGUF files first; kinds,
//! settings and damage of our own.

use std::path::{Path, PathBuf};

use ferrane_gguf::{File, MetadataValue, Writer};
use ferrane_testdata::Suite;
use prost::Message as _;
use tempfile::TempDir;

use super::super::sentencepiece::ModelProto;
use super::super::tests::{check, files};
use super::*;

/// Metadata that make a file with a vocabulary.
#[derive(Clone, Default)]
struct Metadata(Vec<(String, MetadataValue)>);

impl Metadata {
    fn with(mut self, key: &str, value: impl Into<MetadataValue>) -> Metadata {
        let key = format!("tokenizer.ggml.{key}");
        self.0.retain(|(other, _)| *other != key);
        self.0.push((key, value.into()));
        self
    }

    fn without(mut self, key: &str) -> Metadata {
        self.0.retain(|(other, _)| *other != format!("tokenizer.ggml.{key}"));
        self
    }

    fn save(&self) -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        let mut writer = Writer::new();
        self.0.iter().for_each(|(key, value)| writer.metadata(key, value.clone()).unwrap());
        writer.save(&path).unwrap();
        (folder, path)
    }

    fn open(&self) -> Result<Tokenizer, Error> {
        self.open_with(&Options::default())
    }

    fn open_with(&self, options: &Options) -> Result<Tokenizer, Error> {
        let (_folder, path) = self.save();
        Tokenizer::open_with(&path, options)
    }

    fn refused(&self) -> String {
        self.open().map(|_| ()).unwrap_err().to_string()
    }
}

/// The metadata that llama.cpp's converter writes for a SentencePiece model.
fn of_sentencepiece(bytes: &[u8]) -> Metadata {
    let model = ModelProto::decode(bytes).unwrap();
    let normalizer = model.normalizer.unwrap();
    let tokens: Vec<String> = model.pieces.iter().map(|p| p.piece().to_string()).collect();
    Metadata::default()
        .with("model", "llama")
        .with("pre", "default")
        .with("tokens", tokens)
        .with("scores", model.pieces.iter().map(|p| p.score()).collect::<Vec<f32>>())
        .with("token_type", model.pieces.iter().map(|p| p.kind.unwrap_or(NORMAL)).collect::<Vec<i32>>())
        .with("bos_token_id", 1u32)
        .with("eos_token_id", 2u32)
        .with("add_bos_token", true)
        .with("add_space_prefix", normalizer.add_dummy_prefix.unwrap_or(true))
        .with("remove_extra_whitespaces", normalizer.remove_extra_whitespaces.unwrap_or(true))
}

/// Likewise for a byte-level vocabulary in two files.
fn of_merges(vocabulary: &Path, merges: &Path, pre: &str) -> Metadata {
    let ids: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(&std::fs::read(vocabulary).unwrap()).unwrap();
    let mut tokens = vec![String::new(); ids.len()];
    ids.iter().for_each(|(piece, id)| tokens[id.as_u64().unwrap() as usize] = piece.clone());
    let special = |token: &String| token.starts_with("<|") && token.ends_with("|>");
    let kinds: Vec<i32> = tokens.iter().map(|t| if special(t) { CONTROL } else { NORMAL }).collect();
    let merges = std::fs::read_to_string(merges).unwrap();
    let merges = merges.lines().filter(|line| !line.starts_with("#version") && !line.is_empty());
    Metadata::default()
        .with("model", "gpt2")
        .with("pre", pre)
        .with("merges", merges.collect::<Vec<&str>>())
        .with("token_type", kinds)
        .with("tokens", tokens)
}

#[test]
fn recorded_cases() {
    let Some(mut suite) = Suite::open("tokenizers in gguf", "tokenizers") else { return };
    let folder = suite.folder().to_path_buf();
    for (prefix, path) in files(&folder, "_cases.json") {
        let cases: Vec<serde_json::Value> = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let beside = |end: &str| Some(folder.join(format!("{prefix}{end}"))).filter(|path| path.is_file());
        let (metadata, own) = if let Some(model) = beside(".model") {
            (of_sentencepiece(&std::fs::read(&model).unwrap()), model)
        } else if let (Some(vocabulary), Some(merges)) = (beside("_vocab.json"), beside("_merges.txt")) {
            // The name of a published vocabulary that the prefix begins with.
            let pre = if prefix.starts_with("gpt") { "gpt-2" } else { "qwen2" };
            (of_merges(&vocabulary, &merges, pre), vocabulary)
        } else {
            suite.skip(&prefix, "no vocabulary of this name lies here");
            continue;
        };
        let (tokenizer, own) = match (metadata.open(), Tokenizer::open(&own)) {
            (Ok(a), Ok(b)) => (a, b),
            (Err(error), _) | (_, Err(error)) => {
                suite.case(&prefix, Err(error.to_string()));
                continue;
            }
        };
        for (at, case) in cases.iter().enumerate() {
            suite.case(&format!("{prefix}#{at}"), check(&tokenizer, case));
        }
        let same = own.vocab_size() == tokenizer.vocab_size()
            && (0..own.vocab_size() as u32).all(|id| own.piece(id) == tokenizer.piece(id));
        suite.case(&format!("{prefix} pieces"), if same { Ok(()) } else { Err("the pieces differ".into()) });
    }
    suite.finish();
}

/// `a` and `b` with their merge, a byte, and the usual control pieces.
fn small() -> Metadata {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(String::from).to_vec();
    tokens.extend((0..256).map(|byte| format!("<0x{byte:02X}>")));
    tokens.extend(["\u{2581}", "a", "b", "ab", "\u{2581}ab", "[x]", "<end>"].map(String::from));
    let mut kinds = vec![UNKNOWN, CONTROL, CONTROL];
    kinds.extend([6; 256]);
    kinds.extend([NORMAL, NORMAL, NORMAL, NORMAL, NORMAL, USER_DEFINED, CONTROL]);
    let mut scores = vec![0.0; 259];
    scores.extend([-1.0, -2.0, -3.0, -4.0, -5.0, 0.0, 0.0f32]);
    Metadata::default().with("model", "llama").with("tokens", tokens).with("token_type", kinds).with("scores", scores)
}

#[test]
fn sentencepiece_settings() {
    let tokenizer = small().open().unwrap();
    assert_eq!(tokenizer.encode("ab[x]b"), [263, 264, 261]);
    assert_eq!(tokenizer.encode("\n"), [259, 3 + 10]);
    assert_eq!(tokenizer.decode(&[1, 263, 263, 2]), "ab ab");
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.begin()), (Some(1), Some(2), &[1][..]));
    assert_eq!(tokenizer.ends(), [2]);
    let chat = small().with("eot_token_id", 265u32).with("eom_token_id", 2u32).with("add_bos_token", false);
    let chat = chat.with("add_space_prefix", false).open().unwrap();
    assert_eq!((chat.ends(), chat.begin()), (&[2, 265][..], &[][..]));
    assert_eq!(chat.encode("ab ab"), [262, 263]);
    // Double spaces stay unless the file says otherwise.
    assert_eq!(tokenizer.encode("a  b").len(), 5);
    let joined = small().with("remove_extra_whitespaces", true).open().unwrap();
    assert_eq!(joined.encode("a  b").len(), 4);
    // Without types and scores, the usual ids begin and end a text and stand for what is unknown.
    let plain = Metadata::default().with("model", "llama").with("tokens", vec!["u", "x", "y", "a"]).open().unwrap();
    assert_eq!((plain.bos(), plain.eos(), plain.encode("a?")), (Some(1), Some(2), vec![0, 3, 0]));
    let other = small().with("bos_token_id", 265u32).with("eos_token_id", 264u32).open().unwrap();
    assert_eq!((other.bos(), other.eos()), (Some(265), Some(264)));
    // It is saved in the form of SentencePiece.
    let folder = tempfile::tempdir().unwrap();
    tokenizer.save(folder.path().join("tokenizer.model")).unwrap();
    let again = Tokenizer::open(folder.path()).unwrap();
    assert_eq!((again.digest(), again.encode("ab ab")), (tokenizer.digest(), tokenizer.encode("ab ab")));
}

/// Bytes as pieces, some merges, and a special and a plain added piece.
fn byte_pieces() -> Metadata {
    let letters = ["a", "b", "1", "2", "3", "4", "!", "Ġ", "Ċ"];
    let merged = ["ab", "Ġa", "Ġab", "12", "123", "!a", "Ġb"];
    let tokens: Vec<&str> = letters.into_iter().chain(merged).chain(["<|end|>", "<tool>"]).collect();
    let mut kinds = vec![NORMAL; 16];
    kinds.extend([CONTROL, USER_DEFINED]);
    Metadata::default()
        .with("model", "gpt2")
        .with("pre", "gpt-2")
        .with("tokens", tokens)
        .with("token_type", kinds)
        .with("merges", vec!["Ġ a", "Ġa b", "a b", "1 2", "12 3", "! a", "Ġ b"])
        .with("eos_token_id", 16u32)
}

#[test]
fn pre_tokenizers() {
    let encode = |pre: &str, text: &str| byte_pieces().with("pre", pre).open().unwrap().encode(text);
    assert_eq!(encode("gpt-2", "1234 ab!a"), [13, 5, 11, 6, 0]);
    assert_eq!(encode("qwen2", "1234 ab!a"), [2, 3, 4, 5, 11, 14]);
    assert_eq!(encode("llama-bpe", "1234 ab!a"), [13, 5, 11, 14]);
    assert_eq!(encode("smollm", "1234 ab!a"), [2, 3, 4, 5, 11, 6, 0]);
    // Llama 3 takes a word that is a piece as it is, although merges lead elsewhere.
    let order = byte_pieces().with("merges", vec!["a b", "Ġ a", "1 2"]);
    assert_eq!(order.clone().with("pre", "llama-bpe").open().unwrap().encode(" ab"), [11]);
    assert_eq!(order.open().unwrap().encode(" ab"), [7, 9]);
    // Added pieces are found in text; only the special one has no text of its own.
    let tokenizer = byte_pieces().open().unwrap();
    assert_eq!(tokenizer.encode("a<|end|><tool>b"), [0, 16, 17, 1]);
    assert_eq!(tokenizer.decode(&[0, 16, 17, 1]), "a<tool>b");
    assert_eq!((tokenizer.eos(), tokenizer.bos(), tokenizer.ends()), (Some(16), None, &[16][..]));
    // A name that is not known is an error unless the caller knows better.
    let strange = byte_pieces().with("pre", "dolphin");
    assert!(strange.refused().contains("tokenizer.ggml.pre `dolphin` is not supported; supported: gpt-2"));
    let options = Options { pre_tokenizer: Some(PreTokenizer::Qwen2), ..Options::default() };
    assert_eq!(strange.open_with(&options).unwrap().encode("12"), [2, 3]);
    // Without a name, the pieces decide.
    assert_eq!(byte_pieces().without("pre").open().unwrap().encode("12"), [12]);
}

#[test]
fn damage_is_named() {
    let cases = [
        (small().with("model", "bert"), "`bert` is not supported"),
        (small().with("model", 3u32), "tokenizer.ggml.model is missing or not a string"),
        (small().without("tokens"), "tokenizer.ggml.tokens is missing"),
        (small().with("tokens", vec![1u32]), "tokenizer.ggml.tokens: [1 elements of u32] is not an array of strings"),
        (small().with("token_type", vec![1i32]), "[1 elements of i32] for 266 tokens"),
        (small().with("scores", vec![1.0f32]), "tokenizer.ggml.scores"),
        (small().with("bos_token_id", 266u32), "266 is not the id of one of 266 tokens"),
        (small().with("eot_token_id", u64::MAX), "tokenizer.ggml.eot_token_id"),
        (small().with("add_bos_token", 1u8), "neither true nor false"),
        (small().with("precompiled_charsmap", vec![1u8, 2]), "compiled rules"),
        (small().with("tokens", vec!["a"; 266]), "are both `a`"),
        (small().with("tokens", vec!["x".repeat(5000); 266]), "5000 bytes"),
        (byte_pieces().without("merges"), "tokenizer.ggml.merges is missing"),
        (byte_pieces().with("merges", vec!["a b", "ab"]), "merge 1: not two pieces: `ab`"),
        (byte_pieces().with("merges", vec!["a c"]), "`c` is not in the vocabulary"),
        (byte_pieces().with("tokens", vec!["a"; 18]), "are both `a`"),
    ];
    for (metadata, needle) in cases {
        let message = metadata.refused();
        assert!(message.contains(needle) && message.contains("model.gguf"), "{message}\n{needle}");
    }
    // A file without a vocabulary has none, and the search continues in its folder.
    let (folder, path) = Metadata::default().save();
    assert!(Tokenizer::find(&path).unwrap().is_none());
    assert!(matches!(Tokenizer::open(&path), Err(Error::NotFound(_))));
    small().open().unwrap().save(folder.path().join("tokenizer.model")).unwrap();
    assert_eq!(Tokenizer::find(&path).unwrap().unwrap().vocab_size(), 266);
    // A folder with one file is as good as the file.
    let (folder, _path) = byte_pieces().save();
    assert_eq!(Tokenizer::find(folder.path()).unwrap().unwrap().vocab_size(), 18);
    assert_eq!(Tokenizer::open(folder.path()).unwrap().vocab_size(), 18);
}

/// 100,000 added pieces are one automaton, not as many.
#[test]
fn many_added_pieces_are_fast() {
    let tokens: Vec<String> = (0..100_000).map(|n| format!("<|{n}|>")).collect();
    let metadata = Metadata::default()
        .with("model", "gpt2")
        .with("pre", "gpt-2")
        .with("token_type", vec![CONTROL; tokens.len()])
        .with("tokens", tokens)
        .with("merges", Vec::<String>::new());
    assert_eq!(metadata.open().unwrap().encode("<|77777|>"), [77_777]);
}

#[test]
fn templates_are_found_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let mut writer = Writer::new();
    writer.metadata("tokenizer.chat_template", MetadataValue::from("{{ messages }}")).unwrap();
    writer.metadata("tokenizer.chat_template.tool_use", MetadataValue::from("{{ tools }}")).unwrap();
    writer.save(&path).unwrap();
    let file = File::open(&path).unwrap();
    let template = |name| crate::weights::gguf::chat_template(&file, name);
    assert_eq!(template(None), Some("{{ messages }}"));
    assert_eq!((template(Some("tool_use")), template(Some("rag"))), (Some("{{ tools }}"), None));
}
