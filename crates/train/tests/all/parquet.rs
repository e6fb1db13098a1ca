//! Parquet files as training data: every form of them, and damaged ones.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use ferrane_llm::random::Rng;
use ferrane_train::data::Source;
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use crate::data::Place;

/// A Parquet file with the columns `id` and `text` in row groups of two.
fn write_parquet(path: &Path, rows: &[Option<&[u8]>], properties: WriterProperties) {
    let kind = if rows.iter().all(Option::is_some) { "REQUIRED" } else { "OPTIONAL" };
    let schema = format!(
        "message m {{ REQUIRED INT64 id; {kind} BINARY text (UTF8); REQUIRED group s {{ REQUIRED BINARY t; }} }}"
    );
    let schema = Arc::new(parse_message_type(&schema).unwrap());
    let mut writer = SerializedFileWriter::new(File::create(path).unwrap(), schema, Arc::new(properties)).unwrap();
    for rows in rows.chunks(2) {
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(&vec![1; rows.len()], None, None).unwrap();
        column.close().unwrap();
        let values: Vec<ByteArray> = rows.iter().flatten().map(|bytes| ByteArray::from(bytes.to_vec())).collect();
        let levels: Vec<i16> = rows.iter().map(|row| i16::from(row.is_some())).collect();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&values, (kind == "OPTIONAL").then_some(&levels), None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let inner: Vec<ByteArray> = rows.iter().map(|_| ByteArray::from("inner")).collect();
        column.typed::<ByteArrayType>().write_batch(&inner, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.close().unwrap();
}

fn compressed(compression: Compression) -> WriterProperties {
    WriterProperties::builder().set_compression(compression).build()
}

#[test]
fn parquet_of_every_form_is_read() {
    let place = Place::new();
    let path = place.path("a.parquet");
    let all = ["the cat", "sat on", "the é mat", "the cat", "ran"];
    let rows: Vec<Option<&[u8]>> = all.iter().map(|row| Some(row.as_bytes())).collect();
    for compression in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(Default::default()),
        Compression::LZ4,
        Compression::LZ4_RAW,
    ] {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            for dictionary in [true, false] {
                let properties = WriterProperties::builder().set_compression(compression).set_writer_version(version);
                write_parquet(&path, &rows, properties.set_dictionary_enabled(dictionary).build());
                place.reads(&path, &all);
            }
        }
    }
    let some: [Option<&[u8]>; 6] = [None, Some(b"the cat"), Some(b""), None, Some(b"bad \xff"), Some(b"ran")];
    write_parquet(&path, &some, compressed(Compression::SNAPPY));
    let (ids, notes) = place.open(&path, &place.source()).unwrap();
    assert_eq!(ids, place.ids(&["the cat", "ran"]));
    assert!(notes[0].ends_with("a.parquet: 1 broken row is left out: row 5: not UTF-8 at byte 4"), "{notes:?}");
    let inner = Source { field: "s.t", ..place.source() };
    assert_eq!(place.open(&path, &inner).unwrap().0, place.ids(&["inner"; 6]));
    let words = ["no column `body`; give `data_field` one of `id`, `text`, `s.t`"];
    place.refuses(&path, &Source { field: "body", ..place.source() }, &words);
    let words = ["the column `id` holds INT64, not strings"];
    place.refuses(&path, &Source { field: "id", ..place.source() }, &words);
    write_parquet(&path, &[None, None], compressed(Compression::SNAPPY));
    place.refuses(&path, &place.source(), &["a.parquet: the data file is empty"]);
}

#[test]
fn files_of_other_programs_are_read() {
    let place = Place::new();
    let path = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    let rows = ["the cat", "sat on the é mat", "𝄞", "the cat", "ran\nand\tran", "the end"];
    place.reads(&path("rows.parquet"), &rows);
    let titles = Source { field: "meta.title", ..place.source() };
    let want: Vec<String> = (0..9).map(|i| format!("title {i}")).collect();
    let want: Vec<&str> = want.iter().map(String::as_str).collect();
    assert_eq!(place.open(&path("rows.parquet"), &titles).unwrap().0, place.ids(&want));
    let list = Source { field: "tags.list.element", ..place.source() };
    place.refuses(&path("rows.parquet"), &list, &["the column `tags.list.element` holds a list, not strings"]);
    if cfg!(feature = "zstd") {
        place.reads(&path("zstd.parquet"), &rows);
    } else {
        place.refuses(
            &path("zstd.parquet"),
            &place.source(),
            &["compressed with ZSTD", "or build with the feature `zstd`"],
        );
    }
}

#[test]
fn damaged_parquet_is_refused() {
    let place = Place::new();
    let path = place.path("a.parquet");
    let text = "the cat sat on the mat ".repeat(20);
    let rows: Vec<Option<&[u8]>> = (0..40).map(|i| (i % 7 > 0).then_some(&text.as_bytes()[i..])).collect();
    for compression in [Compression::SNAPPY, Compression::GZIP(Default::default()), Compression::UNCOMPRESSED] {
        write_parquet(&path, &rows, compressed(compression));
        let whole = fs::read(&path).unwrap();
        let cut = place.path("cut.parquet");
        for length in (1..whole.len()).step_by(61) {
            fs::write(&cut, &whole[..length]).unwrap();
            place.refuses(&cut, &place.source(), &["cut.parquet: not a valid Parquet file", "get or write"]);
        }
        // A changed byte may be in a string or in a part that is not read.
        let mut random = Rng::new(9);
        for _ in 0..150 {
            let mut bytes = whole.clone();
            for _ in 0..1 + random.below(4) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.below(256) as u8;
            }
            fs::write(&cut, &bytes).unwrap();
            let _ = place.open(&cut, &place.source());
        }
    }
}
