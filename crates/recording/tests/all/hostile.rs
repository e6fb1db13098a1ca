//! Files that are not recordings, and recordings that are damaged.

use std::collections::HashMap;

use ferrane_emulator::Numerics;
use ferrane_recording::{RecordingError, Summary, read};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::{Value, json};

use super::{bytes, emulator, input, product, record};

const KEY: &str = "ferrane.trace";

/// A recording's file with its header changed, and tensors renamed, retyped or left out.
fn changed(
    file: &[u8],
    header: impl FnOnce(&mut Value),
    tensor: impl Fn(&str) -> Option<(String, Dtype)>,
) -> Result<ferrane_recording::Recording, RecordingError> {
    let whole = SafeTensors::deserialize(file).unwrap();
    let (_, index) = SafeTensors::read_metadata(file).unwrap();
    let mut words: Value = serde_json::from_str(&index.metadata().as_ref().unwrap()[KEY]).unwrap();
    header(&mut words);
    let mut views = Vec::new();
    for (name, view) in whole.iter() {
        let Some((name, dtype)) = tensor(name) else { continue };
        let (old, new) = (view.dtype().bitsize(), dtype.bitsize());
        let mut shape = view.shape().to_vec();
        if let Some(last) = shape.last_mut() {
            *last = *last * old / new;
        }
        views.push((name, TensorView::new(dtype, shape, view.data()).unwrap()));
    }
    let metadata = HashMap::from([(KEY.to_string(), words.to_string())]);
    read(safetensors::serialize(views, Some(metadata)).unwrap())
}

/// The file without a change.
fn same(name: &str) -> Option<(String, Dtype)> {
    let dtype = match name {
        "program" => Dtype::U8,
        "time/wall_ns" => Dtype::U64,
        _ if name.starts_with("weights/") => Dtype::U8,
        _ => Dtype::F16,
    };
    Some((name.to_string(), dtype))
}

fn file() -> Vec<u8> {
    bytes(&record(&emulator(Numerics::Fast), &product(), &input(), 1))
}

#[test]
fn a_file_that_is_cut_off_is_no_recording() {
    let file = file();
    // Every length of the header, and some of the rest.
    let header = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize + 8;
    for cut in (0..header).chain((header..file.len()).step_by(97)) {
        assert!(matches!(read(file[..cut].to_vec()), Err(RecordingError::Container(_))), "{cut}");
    }
    let mut longer = file;
    longer.push(0);
    assert!(matches!(read(longer), Err(RecordingError::Container(_))));
}

#[test]
fn absurd_sizes_are_refused() {
    for length in [u64::MAX, u64::MAX - 8, 1 << 40, 100_000_001] {
        let mut file = length.to_le_bytes().to_vec();
        file.extend_from_slice(b"{}");
        assert!(matches!(read(file), Err(RecordingError::Container(_))), "{length}");
    }
    for entry in [
        r#"{"dtype":"F16","shape":[18446744073709551615,2],"data_offsets":[0,4]}"#,
        r#"{"dtype":"F16","shape":[2],"data_offsets":[0,18446744073709551615]}"#,
        r#"{"dtype":"F16","shape":[2],"data_offsets":[4,0]}"#,
    ] {
        let head = format!(r#"{{"program":{entry}}}"#);
        let mut file = (head.len() as u64).to_le_bytes().to_vec();
        file.extend_from_slice(head.as_bytes());
        file.extend_from_slice(&[0; 4]);
        assert!(matches!(read(file), Err(RecordingError::Container(_))), "{entry}");
    }
}

#[test]
fn another_version_says_who_reads_it() {
    let newer = |words: &mut Value| {
        *words = json!({"version": 2, "ferrane": "9.1.0", "all else": "is for that version to say"});
    };
    let error = changed(&file(), newer, same).map(|_| ()).unwrap_err();
    assert!(matches!(&error, RecordingError::Version { found: 2, writer } if writer == "9.1.0"));
    let told = error.to_string();
    assert!(told.contains("reads version 1") && told.contains("Ferrane 9.1.0 wrote it"), "{told}");
    let none = |words: &mut Value| drop(words.as_object_mut().unwrap().remove("version"));
    assert!(matches!(changed(&file(), none, same), Err(RecordingError::Header(_))));
    // Fields that a newer writer adds to this version are ignored.
    let more = |words: &mut Value| words["color"] = json!("red");
    assert!(changed(&file(), more, same).is_ok());
}

#[test]
fn other_files_are_named_for_what_they_are() {
    let bytes = [0u8; 4];
    let plain = TensorView::new(Dtype::F16, vec![2], &bytes).unwrap();
    let file = safetensors::serialize([("x", plain)], None).unwrap();
    assert!(matches!(read(file), Err(RecordingError::NotARecording)));
    assert!(matches!(read(b"program(1.3) {}".to_vec()), Err(RecordingError::Container(_))));
}

#[test]
fn paths_that_lead_out_are_refused() {
    for path in ["../w.bin", "@model_path/../../w.bin", "/etc/w.bin", "@model_path/weights/../../w.bin", ""] {
        let moved = |name: &str| {
            let (old, dtype) = same(name)?;
            Some((if name.starts_with("weights/") { format!("weights/{path}") } else { old }, dtype))
        };
        assert!(matches!(changed(&file(), |_| (), moved), Err(RecordingError::Path(p)) if p == path), "{path}");
    }
}

#[test]
fn tensors_must_be_what_the_header_says() {
    for gone in ["program", "input/a", "output/y"] {
        let left = |name: &str| same(name).filter(|_| name != gone);
        let error = changed(&file(), |_| (), left).map(|_| ()).unwrap_err();
        assert!(matches!(&error, RecordingError::Tensor { name, .. } if name == gone), "{error}");
    }
    for (odd, dtype) in [("program", Dtype::I8), ("time/wall_ns", Dtype::F64), ("input/a", Dtype::C64)] {
        let retyped = |name: &str| same(name).map(|(n, d)| (n, if name == odd { dtype } else { d }));
        let error = changed(&file(), |_| (), retyped).map(|_| ()).unwrap_err();
        assert!(matches!(&error, RecordingError::Tensor { name, .. } if name == odd), "{error}");
    }
    // A weight that is missing, or a text that is none, is found when the program is asked for.
    let bare = changed(&file(), |_| (), |name| same(name).filter(|_| !name.starts_with("weights/"))).unwrap();
    assert!(matches!(bare.program(), Err(RecordingError::Text(_))));
}

/// A file with a few of its bytes changed, or a part of it repeated, is read or refused, never
/// more.
#[test]
fn changed_bytes_are_no_trouble() {
    let (whole, mut rng) = (file(), ferrane_host::random::Rng::new(3));
    let head = u64::from_le_bytes(whole[..8].try_into().unwrap()) + 8;
    let (mut good, mut bad) = (0, 0);
    for i in 0..3000 {
        let mut file = whole.clone();
        for _ in 0..=i % 3 {
            // Mostly the header: every byte of it means something.
            let at = rng.below(if i % 10 == 0 { file.len() as u64 } else { head }) as usize;
            file[at] = if i % 2 == 0 { rng.below(256) as u8 } else { b"0123456789[]{},:\"-"[rng.below(18) as usize] };
        }
        match read(file) {
            Ok(recording) => {
                good += 1;
                assert!(recording.outputs.iter().all(|(_, t)| Summary::of(t).elements == t.elements().count()));
                // Whatever it is, it is one or the other.
                let _ = recording.program();
            }
            Err(_) => bad += 1,
        }
    }
    assert!(good > 0 && bad > 0, "{good} {bad}");
}
