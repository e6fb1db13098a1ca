//! Event files of TensorBoard: curves of the records and texts of the model.
//!
//! A file is a sequence of framed protobuf messages: a length, its checksum, the message, its
//! checksum. Checksums are CRC-32C, rotated and offset, so that a checksum of data that contain
//! checksums is not degenerate. Every record is written at once, so a kill loses none.
//!
//! A process writes a file of its own. The first message after the version says at which step it
//! begins; TensorBoard drops what earlier files of the same folder have from that step on, as for a
//! run that was resumed from a checkpoint.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crc::{CRC_32_ISCSI, Crc};
use prost::Message as _;

use super::{Record, Sink};

const CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// The version of the format that a file begins with.
const VERSION: &str = "brain.Event:2";
/// `SessionLog.status` of a process that begins.
const START: i32 = 1;
/// `DataType` of tensors of strings.
const STRINGS: i32 = 7;
/// `SummaryMetadata.data_class` of tensors.
const TENSOR: i32 = 2;

#[derive(Clone, PartialEq, prost::Message)]
struct Event {
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(string, optional, tag = "3")]
    file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<Summary>,
    #[prost(message, optional, tag = "7")]
    session_log: Option<SessionLog>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct SessionLog {
    #[prost(int32, tag = "1")]
    status: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<SummaryValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct SummaryValue {
    #[prost(string, tag = "1")]
    tag: String,
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
    #[prost(message, optional, tag = "8")]
    tensor: Option<TensorProto>,
    #[prost(message, optional, tag = "9")]
    metadata: Option<SummaryMetadata>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct TensorProto {
    #[prost(int32, tag = "1")]
    dtype: i32,
    #[prost(message, optional, tag = "2")]
    shape: Option<Shape>,
    #[prost(bytes = "vec", repeated, tag = "8")]
    string_val: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Shape {
    #[prost(message, repeated, tag = "2")]
    dim: Vec<Dim>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Dim {
    #[prost(int64, tag = "1")]
    size: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct SummaryMetadata {
    #[prost(message, optional, tag = "1")]
    plugin_data: Option<PluginData>,
    #[prost(int32, tag = "4")]
    data_class: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PluginData {
    #[prost(string, tag = "1")]
    plugin_name: String,
}

impl SummaryValue {
    fn scalar(tag: &str, value: f64) -> SummaryValue {
        SummaryValue { tag: tag.into(), simple_value: Some(value as f32), ..SummaryValue::default() }
    }

    fn text(tag: &str, text: &str) -> SummaryValue {
        let plugin = PluginData { plugin_name: "text".into() };
        let shape = Shape { dim: vec![Dim { size: 1 }] };
        SummaryValue {
            tag: tag.into(),
            tensor: Some(TensorProto { dtype: STRINGS, shape: Some(shape), string_val: vec![text.into()] }),
            metadata: Some(SummaryMetadata { plugin_data: Some(plugin), data_class: TENSOR }),
            ..SummaryValue::default()
        }
    }
}

/// Writes the records of a process to an event file of its own.
pub struct EventFile {
    path: PathBuf,
    file: File,
    begun: bool,
}

impl EventFile {
    /// Creates the folder, if necessary, and a new file in it.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn create(folder: &Path) -> io::Result<EventFile> {
        fs::create_dir_all(folder)?;
        let (seconds, process) = (now() as u64, std::process::id());
        for number in 0.. {
            // Readers recognize the name by `tfevents` and order files by it.
            let path = folder.join(format!("events.out.tfevents.{seconds:010}.ferrane.{process}.{number}"));
            match File::create_new(&path) {
                Ok(file) => {
                    let mut created = EventFile { path, file, begun: false };
                    created.write(&Event { file_version: Some(VERSION.into()), ..Event::default() })?;
                    return Ok(created);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn write(&mut self, event: &Event) -> io::Result<()> {
        let bytes = Event { wall_time: now(), ..event.clone() }.encode_to_vec();
        self.file.write_all(&framed(&bytes))
    }
}

impl Sink for EventFile {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        let step = i64::try_from(record.step).unwrap_or(i64::MAX);
        let begins = !std::mem::replace(&mut self.begun, true);
        let session_log = Some(SessionLog { status: START });
        let begin = if begins { self.write(&Event { step, session_log, ..Event::default() }) } else { Ok(()) };
        let summary = Some(Summary { value: values(record) });
        let written = begin.and_then(|()| self.write(&Event { step, summary, ..Event::default() }));
        written.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", self.path.display())))
    }
}

/// The values of a record under the tags that TensorBoard groups them by.
fn values(record: &Record) -> Vec<SummaryValue> {
    let process = record.process.as_ref();
    let scalars = [
        ("loss/training", record.loss),
        ("loss/validation", record.valid_loss),
        ("optimizer/gradient_norm", record.grad_norm),
        ("optimizer/learning_rate", Some(record.lr)),
        ("optimizer/loss_scale", Some(record.loss_scale)),
        ("optimizer/skipped", Some(f64::from(u8::from(record.skipped)))),
        ("speed/tokens_per_second", Some(record.tokens_per_second)),
        ("speed/gflops", process.map(|p| p.gflops)),
        ("process/busy_cores", process.and_then(|p| p.cores)),
        ("process/resident_bytes", process.and_then(|p| p.resident).map(|bytes| bytes as f64)),
    ];
    let scalars = scalars.iter().filter_map(|(tag, value)| Some(SummaryValue::scalar(tag, (*value)?)));
    let sensors = process.and_then(|p| p.sensors.as_ref());
    let power = sensors.into_iter().flat_map(|s| &s.power);
    let power = power.map(|p| SummaryValue::scalar(&format!("power_watts/{}", p.domain.name()), p.watts));
    let hottest = sensors.and_then(|s| s.temperatures.first());
    let hottest = hottest.map(|t| SummaryValue::scalar("process/hottest_celsius", t.celsius));
    let parts = process.map(|p| p.parts_ms.parts()).into_iter().flatten().filter(|(_, ms)| *ms > 0.0);
    let parts = parts.map(|(name, ms)| SummaryValue::scalar(&format!("time_ms/{}", name.replace(' ', "_")), ms));
    let scalars = scalars.chain(power).chain(hottest);
    scalars.chain(parts).chain(record.sample.as_deref().map(|text| SummaryValue::text("sample", text))).collect()
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// A message in its frame.
fn framed(bytes: &[u8]) -> Vec<u8> {
    let length = (bytes.len() as u64).to_le_bytes();
    [&length[..], &masked(&length), bytes, &masked(bytes)].concat()
}

fn masked(bytes: &[u8]) -> [u8; 4] {
    CRC.checksum(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{PartTimes, ProcessRecord};

    /// CRC-32C bit by bit, as its definition has it.
    fn crc32c(bytes: &[u8]) -> u32 {
        let step = |crc: u32| if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
        !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
    }

    /// The messages of a file, whose checksums are right.
    fn frames(mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let check = |data: &[u8], stored: &[u8]| {
            let unmasked = u32::from_le_bytes(stored.try_into().unwrap()).wrapping_sub(0xa282_ead8).rotate_left(15);
            assert_eq!(unmasked, crc32c(data));
        };
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
            check(&bytes[..8], &bytes[8..12]);
            check(&bytes[12..12 + length], &bytes[12 + length..16 + length]);
            found.push(bytes[12..12 + length].to_vec());
            bytes = &bytes[16 + length..];
        }
        found
    }

    #[derive(Debug, Clone, PartialEq)]
    enum Field {
        Number(u64),
        Bytes(Vec<u8>),
    }

    /// The fields of a protobuf message by number, read without the types above.
    fn fields(mut bytes: &[u8]) -> Vec<(u64, Field)> {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let (mut value, mut shift) = (0, 0);
            loop {
                let byte = bytes[0];
                *bytes = &bytes[1..];
                value |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    return value;
                }
            }
        }
        fn take(bytes: &mut &[u8], count: usize) -> Vec<u8> {
            let (taken, rest) = bytes.split_at(count);
            *bytes = rest;
            taken.to_vec()
        }
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let field = match key & 7 {
                0 => Field::Number(varint(&mut bytes)),
                1 => Field::Number(u64::from_le_bytes(take(&mut bytes, 8).try_into().unwrap())),
                2 => {
                    let count = varint(&mut bytes) as usize;
                    Field::Bytes(take(&mut bytes, count))
                }
                5 => Field::Number(u64::from(u32::from_le_bytes(take(&mut bytes, 4).try_into().unwrap()))),
                other => panic!("wire type {other}"),
            };
            found.push((key >> 3, field));
        }
        found
    }

    fn get(fields: &[(u64, Field)], number: u64) -> Option<Field> {
        fields.iter().find(|(found, _)| *found == number).map(|(_, field)| field.clone())
    }

    fn inner(fields: &[(u64, Field)], number: u64) -> Vec<u8> {
        match get(fields, number) {
            Some(Field::Bytes(bytes)) => bytes,
            other => panic!("field {number} is {other:?}"),
        }
    }

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        // RFC 3720, appendix B.4.
        assert_eq!((CRC.checksum(&[0; 32]), CRC.checksum(&[0xff; 32])), (0x8a91_36aa, 0x62a8_ab43));
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn a_file_has_what_the_records_have() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("new");
        let mut file = EventFile::create(&folder).unwrap();
        let parts_ms = PartTimes { device_forward: 2.5, ..PartTimes::default() };
        let process = Some(ProcessRecord { gflops: 3.0, parts_ms, ..ProcessRecord::default() });
        let sample = Some("Once upon a time".to_string());
        let first = Record { step: 7, loss: Some(1.5), lr: 0.25, process, sample, ..Record::default() };
        file.record(&first).unwrap();
        file.record(&Record { step: 8, loss: None, skipped: true, ..Record::default() }).unwrap();
        let other = EventFile::create(&folder).unwrap();
        assert_ne!(other.path(), file.path());
        let name = file.path().file_name().unwrap().to_string_lossy().into_owned();
        assert!(name.starts_with("events.out.tfevents.") && name.split('.').nth(3).unwrap().len() == 10, "{name}");

        let events: Vec<_> = frames(&fs::read(file.path()).unwrap()).iter().map(|e| fields(e)).collect();
        assert_eq!(events.len(), 4);
        for event in &events {
            let Some(Field::Number(bits)) = get(event, 1) else { panic!("no time") };
            assert!((now() - f64::from_bits(bits)).abs() < 60.0);
        }
        assert_eq!(inner(&events[0], 3), b"brain.Event:2");
        assert_eq!((get(&events[1], 2), inner(&events[1], 7)), (Some(Field::Number(7)), vec![8, 1]));
        let tags = |event: &[(u64, Field)]| -> Vec<(String, Option<f32>)> {
            let values = fields(&inner(event, 5)).into_iter().map(|(_, value)| match value {
                Field::Bytes(bytes) => fields(&bytes),
                other => panic!("{other:?}"),
            });
            let value = |value: Vec<(u64, Field)>| {
                let number = get(&value, 2).map(|field| match field {
                    Field::Number(bits) => f32::from_bits(bits as u32),
                    other => panic!("{other:?}"),
                });
                (String::from_utf8(inner(&value, 1)).unwrap(), number)
            };
            values.map(value).collect()
        };
        let found = tags(&events[2]);
        for (tag, value) in [
            ("loss/training", 1.5),
            ("optimizer/learning_rate", 0.25),
            ("speed/gflops", 3.0),
            ("time_ms/device_forward", 2.5),
        ] {
            assert!(found.contains(&(tag.to_string(), Some(value))), "{tag}: {found:?}");
        }
        assert!(found.contains(&("sample".to_string(), None)) && !found.iter().any(|(tag, _)| tag.contains("staging")));
        let bytes = inner(&events[2], 5);
        assert!(bytes.windows(16).any(|part| part == b"Once upon a time") && bytes.windows(4).any(|p| p == b"text"));
        let skipped = tags(&events[3]);
        assert!(skipped.contains(&("optimizer/skipped".into(), Some(1.0))), "{skipped:?}");
        assert!(!skipped.iter().any(|(tag, _)| tag == "loss/training"), "{skipped:?}");
    }
}
