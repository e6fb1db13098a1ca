//! Blob files that others wrote.

use ferrane_mil::weights::blob::{find, metadata, records};
use ferrane_mil::weights::unpack;
use ferrane_mil::{Constant, DataType, Strictness, Weights};
use ferrane_testdata::Suite;
use serde_json::Value;

/// The element type that a coremltools method writes: `write_int8_data`.
fn written_type(method: &str) -> Option<DataType> {
    match method.strip_prefix("write_")?.strip_suffix("_data")? {
        "float" => Some(DataType::Fp32),
        name => DataType::from_name(name),
    }
}

fn values_of(dtype: DataType, shape: usize, bytes: &[u8]) -> Vec<f64> {
    match dtype {
        DataType::Fp32 => bytes.chunks(4).map(|b| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect(),
        // Recorded as bits.
        DataType::Fp16 | DataType::Bf16 => {
            bytes.chunks(2).map(|b| f64::from(u16::from_le_bytes([b[0], b[1]]))).collect()
        }
        d if d.bytes().is_none() => unpack(d, bytes, shape).into_iter().map(|v| v as f64).collect(),
        d => Constant::raw(d, &[shape], bytes).as_ints().unwrap().into_iter().map(|v| v as f64).collect(),
    }
}

#[test]
fn every_element_type_reads_as_written() {
    let Some(mut suite) = Suite::open("mil-blobs", "mil") else { return };
    let folder = suite.folder().to_path_buf();
    for index in crate::files(&folder, "_weight.json") {
        let blob = std::fs::read(index.with_extension("bin")).unwrap();
        let cases: Vec<Value> = serde_json::from_slice(&std::fs::read(&index).unwrap()).unwrap();
        let file = crate::id(&folder, &index);
        let listed = records(&blob).map(|r| r.len());
        suite.case(&file, if listed == Ok(cases.len()) { Ok(()) } else { Err(format!("{listed:?} records")) });
        let mut rewritten = Weights::new();
        for case in &cases {
            let method = case["method"].as_str().unwrap();
            let id = format!("{file}:{method}");
            let Some(dtype) = written_type(method) else {
                suite.skip(&id, "no such element type");
                continue;
            };
            let expected: Vec<f64> = case["values"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
            let offset = case["metadata_offset"].as_u64().unwrap();
            let found = find(&blob, offset, dtype, expected.len(), Strictness::Strict);
            suite.case(
                &id,
                match found {
                    Ok((range, _)) if values_of(dtype, expected.len(), &blob[range.clone()]) == expected => {
                        let id = rewritten.add_packed("w", dtype, expected.len(), blob[range].to_vec());
                        match rewritten.location(id) {
                            Some(("w", at)) if at == offset => Ok(()),
                            other => Err(format!("written to {other:?} instead of {offset}")),
                        }
                    }
                    Ok((range, _)) => Err(format!("{:?}", values_of(dtype, expected.len(), &blob[range]))),
                    Err(e) => Err(e.to_string()),
                },
            );
        }
        // Our writer gives the same file, byte for byte.
        let ours = &rewritten.files()[0].1;
        suite.case(&format!("{file}:rewritten"), if **ours == *blob { Ok(()) } else { Err("bytes differ".into()) });
    }
    for path in crate::files(&folder, "weights/weight.bin") {
        let blob = std::fs::read(&path).unwrap();
        suite.case(&crate::id(&folder, &path), records(&blob).map(|_| ()).map_err(|e| e.to_string()));
    }
    suite.finish();
}

#[test]
fn hand_made_files_need_leniency() {
    let Some(mut suite) = Suite::open("mil-blobs-lenient", "mil") else { return };
    let folder = suite.folder().to_path_buf();
    let odd = [crate::files(&folder, "_blob_ref.bin"), crate::files(&folder, "noncanonical_weight.bin")].concat();
    for path in odd {
        let blob = std::fs::read(&path).unwrap();
        let id = crate::id(&folder, &path);
        let strict = records(&blob);
        suite.case(&format!("{id}:strict"), if strict.is_err() { Ok(()) } else { Err("accepted".into()) });
        // Every record that starts with the sentinel is found; where a size is missing the rest of
        // the file is the payload.
        let starts = (0..blob.len().saturating_sub(63)).filter(|&i| metadata(&blob, i as u64).is_ok());
        for at in starts {
            let size = metadata(&blob, at as u64).unwrap().size as usize;
            let elements = if size > 0 { size } else { blob.len() - at - 64 } / 2;
            let found = find(&blob, at as u64, DataType::Fp16, elements, Strictness::Lenient);
            suite.case(
                &format!("{id}:{at}"),
                match found {
                    Ok((range, odd)) if range.start == at + 64 && (size > 0 || !odd.is_empty()) => Ok(()),
                    other => Err(format!("{other:?}")),
                },
            );
        }
    }
    suite.finish();
}
