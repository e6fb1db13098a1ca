//! Errors, properties, and the recorded ids in the data folder.

use std::path::Path;
use std::time::Instant;

use ferrane_llm::tokenizer::Tokenizer;
use ferrane_testdata::Suite;
use proptest::prelude::*;

use super::*;

fn tokenizer() -> Tokenizer {
    Tokenizer::train("the cat sat on the mat, and the cat ran away. The End! é", 290).unwrap()
}

/// Data in the cache `cache`.
fn source<'a>(tokenizer: Option<&'a Tokenizer>, cache: &'a Path) -> Source<'a> {
    Source { cache: Some(cache), ..Source::new(tokenizer, tokenizer.map_or(512, Tokenizer::vocab_size)) }
}

/// Files of ids `TEXT_TOKENIZER.u16` (or `.u32`) next to `TEXT.txt`, with
/// `tokenizers/TOKENIZER.bin` or `.model`: the text encodes to exactly those ids.
#[test]
fn texts_encode_to_the_recorded_ids() {
    let Some(mut suite) = Suite::open("text ids", "text") else { return };
    let folder = suite.folder().to_path_buf();
    let tokenizers = folder.join("../tokenizers");
    let mut names: Vec<String> =
        std::fs::read_dir(&folder).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    for recorded in names.iter().filter(|name| name.ends_with(".u16") || name.ends_with(".u32")) {
        let stem = recorded.rsplit_once('.').unwrap().0;
        let pair = stem.rmatch_indices('_').find_map(|(at, _)| {
            let text = folder.join(format!("{}.txt", &stem[..at]));
            let ends = [".bin", ".model"].map(|end| tokenizers.join(format!("{}{end}", &stem[at + 1..])));
            let tokenizer = ends.into_iter().find(|path| path.is_file())?;
            text.is_file().then_some((text, tokenizer))
        });
        let Some((text, vocabulary)) = pair else {
            suite.skip(recorded, "no text and tokenizer of this name");
            continue;
        };
        suite.case(recorded, compare(&folder.join(recorded), &text, &vocabulary));
    }
    suite.finish();
}

fn compare(recorded: &Path, text: &Path, vocabulary: &Path) -> Result<(), String> {
    let tokenizer = Tokenizer::open(vocabulary).map_err(|e| e.to_string())?;
    let cache = tempfile::tempdir().map_err(|e| e.to_string())?;
    let want = Ids::open(recorded, &source(Some(&tokenizer), cache.path())).map_err(|e| e.to_string())?;
    let text = std::fs::read_to_string(text).map_err(|e| e.to_string())?;
    let start = Instant::now();
    let ids = Ids::from_text(&text, &tokenizer);
    let seconds = start.elapsed().as_secs_f64();
    // The limit is far above the usual time and far below that of a quadratic scan.
    if seconds > 20.0 {
        return Err(format!("encoding took {seconds:.1} s"));
    }
    match ids.iter().zip(want.iter()).position(|(a, b)| a != b) {
        None if ids.len() == want.len() => Ok(()),
        None => Err(format!("{} ids, expected {}", ids.len(), want.len())),
        Some(at) => Err(format!("id {at} differs")),
    }
}

#[test]
fn documents_are_what_lies_between_separators() {
    let text = "\u{feff}one\n\n<|endoftext|>\n two \r\n<|endoftext|>\n<|endoftext|>three<|endoftext|>\n";
    assert_eq!(documents(text).collect::<Vec<_>>(), ["one", " two ", "three"]);
    let tokenizer = tokenizer();
    let ids: Vec<u32> = Ids::from_text(text, &tokenizer).iter().collect();
    let want: Vec<u32> =
        ["one", " two ", "three"].iter().flat_map(|d| [vec![1], tokenizer.encode(d)].concat()).collect();
    assert_eq!(ids, want);
}

fn cached(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    paths.sort();
    paths
}

#[test]
fn text_is_encoded_once() {
    let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = folder.path().join("story.txt");
    std::fs::write(&path, "the cat sat on the mat").unwrap();
    let tokenizer = tokenizer();
    let open = |tokenizer: &Tokenizer| {
        let mut encoded = 0;
        let mut listen = |event: &DataEvent| encoded += u32::from(matches!(event, DataEvent::Encoding { .. }));
        let ids = Ids::open_with(&path, &source(Some(tokenizer), cache.path()), &mut listen).unwrap();
        (ids.iter().collect::<Vec<_>>(), encoded)
    };
    let want = [vec![1], tokenizer.encode("the cat sat on the mat")].concat();
    assert_eq!(open(&tokenizer), (want.clone(), 1));
    assert_eq!(open(&tokenizer), (want.clone(), 0));
    let file = cached(cache.path())[0].clone();
    let whole = std::fs::read(&file).unwrap();

    // Opening reads the cache: changed ids are returned, a damaged file is written again.
    let mut changed = whole.clone();
    changed[2] ^= 1;
    std::fs::write(&file, &changed).unwrap();
    let (found, encoded) = open(&tokenizer);
    assert!(found != want && found[1] == want[1] ^ 1 && encoded == 0);
    let beyond = [&[255, 255], &whole[2..]].concat();
    let longer = [&whole[..2], &whole].concat();
    let cuts = (0..whole.len()).map(|cut| whole[..cut].to_vec());
    let flipped = (2 * want.len()..whole.len()).map(|at| {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        bytes
    });
    for damaged in [beyond, longer].into_iter().chain(cuts).chain(flipped) {
        std::fs::write(&file, &damaged).unwrap();
        assert_eq!(open(&tokenizer), (want.clone(), 1), "{damaged:?}");
        assert!(std::fs::read(&file).unwrap() == whole, "the cache is written again");
    }

    // Another text or another tokenizer uses another file; the data's folder is left alone.
    std::fs::write(&path, "the cat ran").unwrap();
    open(&tokenizer);
    open(&Tokenizer::train("another text", 280).unwrap());
    assert_eq!((cached(cache.path()).len(), cached(folder.path()).len()), (3, 1));

    let user = IdsCache::at(cache.path());
    std::fs::write(cache.path().join("notes.txt"), "not of the cache").unwrap();
    let usage = user.usage().unwrap();
    assert_eq!(usage.files, 3);
    assert_eq!((user.clear().unwrap(), user.usage().unwrap().files), (usage, 0));
    assert_eq!(cached(cache.path()).len(), 1);
}

#[cfg(unix)]
#[test]
fn a_cache_that_is_read_only_is_reported_and_left_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = folder.path().join("story.txt");
    std::fs::write(&path, "the cat sat").unwrap();
    let mode = |mode| std::fs::set_permissions(cache.path(), std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o555);
    let tokenizer = tokenizer();
    let mut notes = Vec::new();
    let mut listen = |event: &DataEvent| {
        if let DataEvent::Note(text) = event {
            notes.push(text.clone());
        }
    };
    let kept = Ids::open_with(&path, &source(Some(&tokenizer), cache.path()), &mut listen).unwrap();
    assert_eq!(kept.window(0, 3).unwrap(), [vec![1], tokenizer.encode("the cat sat")].concat()[..4]);
    assert!(
        notes.len() == 1 && notes[0].contains("cannot be written to") && notes[0].contains("set FERRANE_CACHE_DIR")
    );
    assert_eq!(cached(cache.path()).len(), 0);
    mode(0o755);
    // A file is no folder.
    let odd = Ids::open_with(&path, &source(Some(&tokenizer), &path), &mut |_| {}).unwrap();
    assert_eq!(odd.digest(), kept.digest());
}

#[test]
fn formats() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let all = |path: &Path, format| {
        let ids = Ids::open(path, &Source { format, ..source(None, path) }).unwrap();
        ids.iter().collect::<Vec<_>>()
    };
    let bytes = [1, 0, 2, 0, 0, 1, 0, 0];
    for name in ["a.u16", "a.bin", "a.BIN"] {
        assert_eq!(all(&file(name, &bytes), Format::Auto), [1, 2, 256, 0]);
    }
    let wide = file("a.u32", &[1, 0, 0, 0, 0, 1, 0, 0]);
    assert_eq!(all(&wide, Format::Auto), [1, 256]);
    assert_eq!(all(&wide, Format::U16), [1, 0, 256, 0]);
    assert_eq!(all(&file("a.txt", &bytes[..4]), Format::U16), [1, 2]);
    let ids = Ids::open(&wide, &source(None, &wide)).unwrap();
    let window = |start, seq| ids.window(start, seq).unwrap();
    assert_eq!((window(0, 1), window(1, 5), window(9, 1)), (vec![1, 256], vec![256], vec![]));
    assert_eq!(ids.digest(), Ids::from_slice(&[1, 256]).digest());
    assert_eq!("u32".parse::<Format>().unwrap(), Format::U32);
    assert!("u8".parse::<Format>().unwrap_err().to_string().contains("auto, text, jsonl, parquet, u16 and u32"));
}

#[test]
fn errors_name_the_place_and_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let (tokenizer, cache) = (tokenizer(), tempfile::tempdir().unwrap());
    let said = |name: &str, bytes: &[u8], source: &Source<'_>| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let error = Ids::open(&path, source).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
        error
    };
    let text = source(Some(&tokenizer), cache.path());
    let missing = Ids::open(folder.path().join("none.txt"), &text).unwrap_err();
    assert!(matches!(missing, Error::Missing(_)) && missing.to_string().contains("give `data`"));
    assert!(matches!(Ids::open(folder.path(), &text), Err(Error::NoShards(_))));
    for name in ["e.txt", "e.u16", "e.u32"] {
        assert!(said(name, b"", &text).contains("empty"));
    }
    for blank in ["\n\n", "\u{feff}", "\n<|endoftext|>\n"] {
        assert!(said("blank.txt", blank.as_bytes(), &text).contains("empty"));
    }
    assert!(said("x.txt", b"text", &source(None, cache.path())).contains("give `tokenizer`"));
    assert!(said("b.txt", b"caf\xc3\xa9 \xff!", &text).contains("not UTF-8 at byte 6"));
    assert!(said("c.txt", b"cut \xc3", &text).contains("not UTF-8 at byte 4"));
    assert!(said("o.u16", &[1, 0, 2], &text).contains("3 bytes are not a whole number of 2-byte ids"));
    assert!(said("o.u32", &[1, 0, 0, 0, 2, 0], &text).contains("6 bytes are not a whole number of 4-byte ids"));
    let beyond = said("v.u16", &[1, 0, 0, 2, 255, 255], &source(None, cache.path()));
    assert!(beyond.contains("id 512 at position 1 is beyond the vocabulary of 512"), "{beyond}");
}

#[test]
fn splits() {
    // The numbers for the recorded TinyStories ids, as scripts/peers/torch_baseline.py computes
    // them.
    let split = Split::new(1_904_363, Split::TRAIN, 256).unwrap();
    assert_eq!((split.train.clone(), split.valid.clone()), (0..1_809_144, 1_809_144..1_904_363));
    let windows = split.windows(256, 256);
    assert_eq!((windows.len(), windows[0], windows[1] - windows[0]), (256, 1_809_144, (95_219 - 257) / 256));
    assert_eq!(split.positions(256), 1_809_144 - 256);

    let error = Split::new(9, Split::TRAIN, 4).unwrap_err().to_string();
    assert!(
        error.contains("9 token ids are too few") && error.contains("need 10") && error.contains("`seq`"),
        "{error}"
    );
    assert!(Split::new(0, Split::TRAIN, usize::MAX).is_err());
    let short = Split::new(10, Split::TRAIN, 4).unwrap();
    assert_eq!((short.train.clone(), short.valid.clone(), short.windows(8, 4)), (0..5, 5..10, vec![5]));
    assert_eq!(Split::new(10, f64::NAN, 4).unwrap(), short);
    assert_eq!(Split::new(20, Split::TRAIN, 4).unwrap().windows(0, 4), [] as [usize; 0]);
}

#[test]
fn samplers_cover_and_continue() {
    let windows = Corpus::from(Ids::from_slice(&[1; 30])).windows(0.5, 4).unwrap();
    let mut sampler = Sampler::new(7);
    let mut seen = [0; 11];
    (0..2000).for_each(|_| seen[sampler.draw(&windows).start] += 1);
    assert!(seen.iter().all(|&count| count > 100), "{seen:?}");
    let stored = serde_json::to_string(&sampler.state()).unwrap();
    let mut again = Sampler::from_state(&serde_json::from_str(&stored).unwrap());
    assert_eq!(again.drawn(), 2000);
    let draws = |s: &mut Sampler| (0..50).map(|_| s.draw(&windows)).collect::<Vec<_>>();
    assert_eq!(draws(&mut sampler), draws(&mut again));
    assert_ne!(draws(&mut Sampler::new(1)), draws(&mut Sampler::new(2)));
}

#[test]
fn evaluation_windows() {
    // All windows that fit without overlap, or a given number of them, evenly spaced.
    assert_eq!(Split::evaluation(41, 10, 0).unwrap(), [0, 10, 20, 30]);
    assert_eq!(Split::evaluation(41, 10, 2).unwrap(), [0, 15]);
    assert_eq!(Split::evaluation(11, 10, 9).unwrap(), [0]);
    assert!(matches!(Split::evaluation(10, 10, 0), Err(Error::NoWindow { found: 10, need: 11 })));
    assert!(matches!(Split::evaluation(10, 0, 0), Err(Error::NoWindow { .. })));
}

proptest! {
    #[test]
    fn split_windows_lie_inside(count in 2usize..5000, train in -0.5f64..1.5, seq in 0usize..300, windows in 0usize..400) {
        if let Ok(split) = Split::new(count, train, seq) {
            prop_assert_eq!((split.train.end, split.valid.end), (split.valid.start, count));
            let starts = split.windows(windows, seq);
            prop_assert!(starts.iter().all(|&s| s >= split.valid.start && s + seq < split.valid.end));
            prop_assert!(starts.windows(2).all(|w| w[0] < w[1]));
            prop_assert_eq!(starts.is_empty(), windows == 0);
            let corpus = Corpus::from(Ids::from_slice(&vec![1; count]));
            let at = Sampler::new(count as u64).draw(&corpus.windows(train, seq).unwrap());
            prop_assert!(at.start + seq < split.train.end && corpus.window(at, seq).unwrap().len() == seq + 1);
        } else {
            prop_assert!(count < 2 * (seq + 1));
        }
    }

    /// Any bytes in any format give ids inside the vocabulary, or an error.
    #[test]
    fn any_file_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64), format in 0usize..6) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        std::fs::write(&path, &bytes).unwrap();
        let tokenizer = tokenizer();
        let format = [Format::Auto, Format::Text, Format::U16, Format::U32, Format::Jsonl, Format::Parquet][format];
        let cache = folder.path().join("cache");
        if let Ok(ids) = Ids::open(&path, &Source { format, ..source(Some(&tokenizer), &cache) }) {
            prop_assert!(!ids.is_empty() && ids.iter().all(|id| (id as usize) < tokenizer.vocab_size()));
        }
    }
}
