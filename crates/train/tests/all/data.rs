//! Data of every format, through the public interface: what is read, what is left out, and what is
//! refused with which remedy.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use ferrane_llm::tokenizer::Tokenizer;
use ferrane_train::data::{Corpus, DataEvent, DataSet, Error, Format, Ids, Sampler, SamplerState, Source};

pub struct Place {
    folder: tempfile::TempDir,
    cache: tempfile::TempDir,
    tokenizer: Tokenizer,
}

impl Place {
    pub fn new() -> Place {
        let tokenizer = Tokenizer::train("the cat sat on the mat, and the cat ran away. The End! é", 290).unwrap();
        Place { folder: tempfile::tempdir().unwrap(), cache: tempfile::tempdir().unwrap(), tokenizer }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), bytes).unwrap();
        self.path(name)
    }

    pub fn source(&self) -> Source<'_> {
        let cache = Some(self.cache.path());
        Source { cache, ..Source::new(Some(&self.tokenizer), self.tokenizer.vocab_size()) }
    }

    /// The ids and notes of a set.
    pub fn open(&self, path: &Path, source: &Source<'_>) -> Result<(Vec<u32>, Vec<String>), Error> {
        let mut notes = Vec::new();
        let mut listen = |event: &DataEvent| {
            if let DataEvent::Note(text) = event {
                notes.push(text.clone());
            }
        };
        let ids = Ids::open_with(path, source, &mut listen)?;
        Ok((ids.iter().collect(), notes))
    }

    /// The ids of these documents.
    pub fn ids(&self, documents: &[&str]) -> Vec<u32> {
        documents.iter().flat_map(|document| [vec![1], self.tokenizer.encode(document)].concat()).collect()
    }

    #[track_caller]
    pub fn reads(&self, path: &Path, documents: &[&str]) {
        let (ids, notes) = self.open(path, &self.source()).unwrap();
        assert_eq!(ids, self.ids(documents), "{}", self.tokenizer.decode(&ids));
        assert_eq!(notes, [] as [String; 0]);
    }

    #[track_caller]
    pub fn refuses(&self, path: &Path, source: &Source<'_>, words: &[&str]) {
        let error = self.open(path, source).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "no {words:?} in {error}");
    }
}

#[test]
fn json_lines_are_read_as_json() {
    let place = Place::new();
    let rows = [
        "\u{feff}{\"text\": \"the \\u0063at\", \"id\": 1}",
        "",
        "  {\"meta\": {\"text\": \"not this\"}, \"text\": \"sat \\ud834\\udd1e on\\nthe\\tmat\"}  \r",
        "{\"text\": null}",
        "{\"text\": \"\"}",
        "{\"te\\u0078t\": \"\\u00e9 <|endoftext|>\", \"x\": [1, {\"y\": 1e999}]}",
        "{\"text\": \"first\", \"text\": \"last\"}",
    ];
    let path = place.write("a.jsonl", rows.join("\n"));
    place.reads(&path, &["the cat", "sat 𝄞 on\nthe\tmat", "é <|endoftext|>", "last"]);
    place.reads(&place.write("a.ndjson", "{\"text\": \"the end\"}\n"), &["the end"]);
    let other = place.write("b.jsonl", "{\"text\": \"no\", \"content\": \"the mat\"}\n");
    let source = Source { field: "content", ..place.source() };
    assert_eq!(place.open(&other, &source).unwrap().0, place.ids(&["the mat"]));
    // The field belongs to the name in the cache.
    place.reads(&other, &["no"]);
}

#[test]
fn broken_rows_are_left_out_up_to_a_limit() {
    let place = Place::new();
    let rows = [
        "{\"text\": \"the cat\"}",
        "{\"text\": 7}",
        "{\"body\": \"x\", \"id\": 3}",
        "{\"text\": \"cut",
        "[\"text\"]",
        "{\"text\": \"lone \\ud800 half\"}",
        "{\"text\": [\"a\"]}",
        "{\"text\": \"a\"} {\"text\": \"b\"}",
        "{}",
        "{\"text\": \"ran\"}",
    ];
    let mut bytes = rows.join("\n").into_bytes();
    bytes.extend(b"\n{\"text\": \"\xff\"}\n");
    let path = place.write("rows.jsonl", &bytes);
    for _encoded_and_from_the_cache in 0..2 {
        let (ids, notes) = place.open(&path, &place.source()).unwrap();
        assert_eq!(ids, place.ids(&["the cat", "ran"]));
        let [note] = notes.as_slice() else { panic!("{notes:?}") };
        for words in [
            "rows.jsonl: 9 broken rows are left out: line 2: `text` is a number, not a string",
            "line 3: no field `text`; the row has `body`, `id`",
            "line 4: EOF while parsing a string (column 13); …",
        ] {
            assert!(note.contains(words), "no {words:?} in {note}");
        }
        let strict = Source { bad_rows: 8, ..place.source() };
        let words =
            ["rows.jsonl: 9 broken rows are more than `bad_rows`", "line 2: `text` is a number", "`data_field`"];
        place.refuses(&path, &strict, &words);
    }
    let all_broken = place.write("none.jsonl", "{\"a\": 1}\n{\"b\": 2}\n");
    place.refuses(
        &all_broken,
        &place.source(),
        &["none.jsonl: 2 broken rows", "line 1: no field `text`; the row has `a`"],
    );
    // The limit is that of a set.
    let folder = place.path("set");
    place.write("set/a.jsonl", "{\"text\": \"a\"}\n1\n2\n");
    place.write("set/b.jsonl", "{\"text\": \"b\"}\n3\n");
    let most = |bad_rows| Source { bad_rows, ..place.source() };
    assert_eq!(place.open(&folder, &most(3)).unwrap().1.len(), 2);
    place.refuses(&folder, &most(2), &["b.jsonl: 1 broken row"]);
}

#[test]
fn hostile_lines_take_little_memory_and_no_stack() {
    let place = Place::new();
    let mut long = b"{\"text\": \"".to_vec();
    long.resize(100 << 20, b'a');
    let path = place.write("long.jsonl", &long);
    drop(long);
    place.refuses(&path, &place.source(), &["line 1: longer than 16 MiB"]);
    let deep = "[".repeat(2_000_000);
    let objects = "{\"a\":".repeat(1_000_000);
    let rows = [format!("{{\"x\": {deep}"), format!("{{\"text\": {deep}"), format!("{{\"text\": {objects}"), deep];
    let path = place.write("deep.jsonl", rows.join("\n") + "\n{\"text\": \"the end\"}\n");
    let (ids, notes) = place.open(&path, &place.source()).unwrap();
    assert_eq!(ids, place.ids(&["the end"]));
    assert!(notes[0].contains("4 broken rows"), "{notes:?}");
}

#[test]
fn a_folder_is_read_in_the_order_of_its_names() {
    let place = Place::new();
    let folder = place.path("shards");
    place.write("shards/b.jsonl", "{\"text\": \"second\"}\n");
    place.write("shards/a-first.txt", "first");
    place.write("shards/c.u16", [5, 0, 6, 0]);
    place.write("shards/d.ndjson", "{\"text\": \"fourth\"}");
    place.write("shards/e.u32", [7, 0, 0, 0]);
    place.write("shards/.hidden.txt", "hidden");
    place.write("shards/dataset_info.json", "{}");
    place.write("shards/inner/x.txt", "not searched");
    let want = [place.ids(&["first", "second"]), vec![5, 6], place.ids(&["fourth"]), vec![7]].concat();
    assert_eq!(place.open(&folder, &place.source()).unwrap(), (want.clone(), vec![]));
    let ids = Ids::open(&folder, &place.source()).unwrap();
    for start in 0..want.len() + 2 {
        for seq in 0..want.len() {
            let end = (start + seq + 1).min(want.len());
            assert_eq!(ids.window(start, seq).unwrap(), want[start.min(end)..end], "{start} {seq}");
        }
    }
    place.write("shards/f.txt", "");
    let (found, notes) = place.open(&folder, &place.source()).unwrap();
    assert!(found == want && notes.len() == 1 && notes[0].contains("f.txt: the file is empty"), "{notes:?}");
    place.write("shards/g.txt", "more");
    assert_ne!(Ids::open(&folder, &place.source()).unwrap().digest(), ids.digest());
    fs::create_dir(place.path("bare")).unwrap();
    place.write("bare/readme.rst", "no data");
    place.refuses(&place.path("bare"), &place.source(), &["bare: the folder has no data files", ".parquet"]);
    place.write("blank/a.txt", "\n\n");
    place.refuses(&place.path("blank"), &place.source(), &["blank: the data file is empty"]);
    let words = ["a-first.txt: text needs a tokenizer"];
    place.refuses(&folder, &Source { tokenizer: None, ..place.source() }, &words);
}

#[test]
fn sets_are_named_with_their_weights() {
    let set = |text: &str| text.parse::<DataSet>();
    let named = |path: &str, weight| DataSet { path: path.into(), weight };
    assert_eq!(set("a.jsonl").unwrap(), named("a.jsonl", None));
    assert_eq!(set("a.jsonl=2").unwrap(), named("a.jsonl", Some(2.0)));
    assert_eq!(set("x=y/b=0.25").unwrap(), named("x=y/b", Some(0.25)));
    assert_eq!(set("x=y").unwrap(), named("x=y", None));
    for bad in ["a=0", "a=-1", "a=NaN", "a=inf"] {
        let error = set(bad).unwrap_err().to_string();
        assert!(error.starts_with("a: the weight ") && error.contains("must be finite and positive"), "{error}");
    }
    let place = Place::new();
    let odd = place.write("odd=3", "the cat");
    assert_eq!(set(odd.to_str().unwrap()).unwrap(), named(odd.to_str().unwrap(), None));
    let open = |sets: &[DataSet]| Corpus::open(sets, &place.source(), &mut |_| {}).map(drop);
    let mixed = open(&[named("a", Some(1.0)), named("b", None)]).unwrap_err().to_string();
    assert!(mixed.contains("b: this set has no weight and others have"), "{mixed}");
    assert!(matches!(open(&[]), Err(Error::NoSet)));
    assert!(matches!(open(&[named("a", Some(f64::NAN))]), Err(Error::Weight { .. })));
    let short = Corpus::open(&[odd.clone().into(), odd.into()], &place.source(), &mut |_| {}).unwrap();
    let error = short.windows(0.9, 50).unwrap_err().to_string();
    assert!(error.contains("odd=3: ") && error.contains("are too few"), "{error}");
}

#[test]
fn weights_decide_how_often_a_set_is_drawn() {
    let place = Place::new();
    let ids = |first: u16, count: u16| (first..first + count).flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let (a, b) = (place.write("a.u16", ids(0, 200)), place.write("b.u16", ids(200, 20)));
    let draws = |weights: Option<[f64; 2]>, from: Option<&SamplerState>, count: usize| {
        let of = |set: usize| weights.map(|weights| weights[set]);
        let sets = [DataSet { path: a.clone(), weight: of(0) }, DataSet { path: b.clone(), weight: of(1) }];
        let corpus =
            Corpus::open(&sets, &Source { format: Format::U16, ..Source::new(None, 512) }, &mut |_| {}).unwrap();
        let windows = corpus.windows(0.5, 4).unwrap();
        let mut sampler = from.map_or_else(|| Sampler::new(7), Sampler::from_state);
        let positions: Vec<_> = (0..count).map(|_| sampler.draw(&windows)).collect();
        for at in &positions {
            let found = corpus.window(*at, 4).unwrap();
            let first = (if at.set == 0 { 0 } else { 200 } + at.start) as u32;
            assert_eq!(found, (first..first + 5).collect::<Vec<_>>());
            assert!(at.start + 4 < if at.set == 0 { 100 } else { 10 }, "a training window: {at:?}");
        }
        (positions, sampler.state(), corpus.digest(), windows.validation(8), corpus.evaluation(4, 8).unwrap())
    };
    let share = |weights| {
        let (positions, ..) = draws(weights, None, 6000);
        positions.iter().filter(|at| at.set == 1).count() as f64 / 6000.0
    };
    // The standard deviation of a share of 6000 draws is at most 0.0065; four of them are allowed.
    for (weights, want) in
        [(None, 6.0 / 102.0), (Some([1.0, 1.0]), 0.5), (Some([1.0, 3.0]), 0.75), (Some([9.0, 1.0]), 0.1)]
    {
        assert!((share(weights) - want).abs() < 0.026, "{weights:?}: {} for {want}", share(weights));
    }
    let weights = Some([1.0, 3.0]);
    let (whole, _, digest, validation, evaluation) = draws(weights, None, 500);
    let (first, state, ..) = draws(weights, None, 123);
    let (rest, ..) = draws(weights, Some(&state), 377);
    assert_eq!([first, rest].concat(), whole);
    let of = |positions: &[ferrane_train::data::Position]| positions.iter().filter(|at| at.set == 1).count();
    assert_eq!((validation.len(), of(&validation)), (8, 6));
    assert_eq!((evaluation.len(), of(&evaluation)), (6, 4), "20 ids have four windows of 5");
    assert_ne!(digest, draws(Some([1.0, 2.0]), None, 1).2, "weights belong to the data");
    assert_ne!(digest, draws(None, None, 1).2);
}

#[test]
fn a_file_of_ids_that_changes_is_noticed() {
    let place = Place::new();
    let path = place.write("a.u16", [1, 0].repeat(5000));
    let ids = Ids::open(&path, &place.source()).unwrap();
    assert_eq!(ids.window(9, 3).unwrap(), [1; 4]);
    File::options().write(true).open(&path).unwrap().set_len(100).unwrap();
    let error = ids.window(9, 3).unwrap_err().to_string();
    assert!(
        error.contains("a.u16: the file changed") && error.contains("continue from the last checkpoint"),
        "{error}"
    );
    // A file that is removed stays readable.
    #[cfg(unix)]
    {
        let path = place.write("b.u16", [1, 0].repeat(5000));
        let ids = Ids::open(&path, &place.source()).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(ids.window(9, 3).unwrap(), [1; 4]);
    }
}
