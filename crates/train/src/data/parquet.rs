//! Documents of Parquet files: the strings of one column, row group by row group.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use parquet::basic::{Compression, Type};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader as _, SerializedFileReader};

use super::Error;
use super::documents::{BadRows, DocumentPiece, Documents};

/// Number of rows that are decoded at once.
const ROWS: usize = 256;
/// Number of columns that an error names.
const NAMES: usize = 20;

/// The documents of a file.
pub(super) struct Parquet {
    path: PathBuf,
    file: SerializedFileReader<File>,
    /// Index of the column of text.
    column: usize,
    /// Whether its values may be absent.
    nullable: bool,
    /// Number of row groups that were begun.
    group: usize,
    reader: Option<ColumnReaderImpl<ByteArrayType>>,
    /// Decoded rows, the next one last; `None` for an absent value.
    rows: Vec<Option<ByteArray>>,
    /// Number of rows returned, and of all rows.
    row: u64,
    of: u64,
    bytes: u64,
}

impl Parquet {
    /// Opens a file, whose text is in the column `field`; a field of a struct is `OUTER.INNER`.
    pub(super) fn open(path: &Path, file: File, field: &str) -> Result<Parquet, Error> {
        let bytes = file.metadata().map_err(|e| super::shards::failed(path, e))?.len();
        if bytes == 0 {
            return Err(Error::Empty(path.to_path_buf()));
        }
        let file = guarded(path, || SerializedFileReader::new(file))?;
        let metadata = file.metadata();
        let schema = metadata.file_metadata().schema_descr();
        let columns = schema.columns();
        let Some(column) = columns.iter().position(|column| column.path().string() == field) else {
            let names = columns.iter().map(|column| format!("`{}`", column.path().string()));
            let found = names.take(NAMES).collect::<Vec<_>>().join(", ");
            return Err(Error::NoColumn { path: path.to_path_buf(), column: field.to_string(), found });
        };
        let descriptor = &columns[column];
        let kind = descriptor.physical_type();
        if kind != Type::BYTE_ARRAY || descriptor.max_rep_level() > 0 {
            let kind = if descriptor.max_rep_level() > 0 { "a list".into() } else { kind.to_string() };
            return Err(Error::NotText { path: path.to_path_buf(), column: field.to_string(), kind });
        }
        let (nullable, of) = (descriptor.max_def_level() > 0, metadata.file_metadata().num_rows().max(0) as u64);
        for group in metadata.row_groups() {
            let compression = group.columns().get(column).map(|column| column.compression());
            if let Some(unread @ (Compression::ZSTD(_) | Compression::BROTLI(_) | Compression::LZO)) = compression
                && !(cfg!(feature = "zstd") && matches!(unread, Compression::ZSTD(_)))
            {
                let codec = unread.to_string();
                let codec = codec.split('(').next().unwrap_or_default().to_string();
                return Err(Error::Compression { path: path.to_path_buf(), codec });
            }
        }
        let path = path.to_path_buf();
        Ok(Parquet { path, column, nullable, group: 0, reader: None, rows: Vec::new(), row: 0, of, bytes, file })
    }

    /// Decodes the next rows; false at the end of the file.
    fn fill(&mut self) -> Result<bool, Error> {
        let Parquet { path, file, column, nullable, group, reader, rows, .. } = self;
        loop {
            let Some(open) = reader else {
                if *group >= file.num_row_groups() {
                    return Ok(false);
                }
                let opened = guarded(path, || file.get_row_group(*group)?.get_column_reader(*column))?;
                *group += 1;
                let ColumnReader::ByteArrayColumnReader(opened) = opened else {
                    return Err(Error::Parquet { path: path.clone(), reason: "row groups have other types".into() });
                };
                *reader = Some(opened);
                continue;
            };
            let (mut values, mut levels) = (Vec::new(), Vec::new());
            let most = open_level(file, *column);
            let (records, _, _) =
                guarded(path, || open.read_records(ROWS, nullable.then_some(&mut levels), None, &mut values))?;
            if records == 0 {
                *reader = None;
                continue;
            }
            let mut values = values.into_iter();
            match nullable {
                true => rows.extend(levels.iter().map(|level| if *level == most { values.next() } else { None })),
                false => rows.extend(values.map(Some)),
            }
            rows.reverse();
            return Ok(true);
        }
    }
}

/// The definition level of a value that is present.
fn open_level(file: &SerializedFileReader<File>, column: usize) -> i16 {
    file.metadata().file_metadata().schema_descr().column(column).max_def_level()
}

impl Documents for Parquet {
    fn next(&mut self, bad: &mut BadRows) -> Result<Option<DocumentPiece>, Error> {
        loop {
            let Some(value) = self.rows.pop() else {
                if self.fill()? {
                    continue;
                }
                return Ok(None);
            };
            self.row += 1;
            let Some(value) = value else { continue };
            match std::str::from_utf8(value.data()) {
                Ok("") => {}
                Ok(text) => return Ok(Some(DocumentPiece { text: text.to_string(), begins: true, row: 0 })),
                Err(e) => {
                    let reason = format!("not UTF-8 at byte {}", e.valid_up_to());
                    bad.add(&format!("row {}", self.row), &reason)?;
                }
            }
        }
    }

    fn read(&self) -> u64 {
        (self.bytes as f64 * (self.row as f64 / self.of.max(1) as f64).min(1.0)) as u64
    }
}

/// Calls the Parquet library. A panic of it on a damaged file becomes an error.
fn guarded<T>(path: &Path, call: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, Error> {
    let failed = |reason: String| Error::Parquet { path: path.to_path_buf(), reason };
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|e| failed(e.to_string().trim_start_matches("Parquet error: ").to_string())),
        Err(_) => Err(failed("its pages are inconsistent".into())),
    }
}
