//! What lies around compiled programs: files of the Linux driver, FlatBuffers, and the parts of compiled models.

use ferrane_hwx::anec::{Anec, PORTS};
use ferrane_hwx::bundle::{self, coreml, e5, espresso, flat, network};
use ferrane_hwx::disasm;

/// Any bytes are a file of the Linux driver or are refused. What is read is written as it was, and a container around it has the same
/// descriptors and constants, which the way back gives again if every buffer that is counted has tiles.
///
/// # Panics
/// If not.
pub fn hwx_anec(data: &[u8]) {
    let Ok(anec) = Anec::read(data) else { return };
    assert!(anec.write() == data, "reading and writing changes the file");
    let tasks = anec.decode();
    let Ok(hwx) = anec.to_hwx() else { return };
    disasm::words(&hwx, disasm::Detail { registers: true });
    let (section, first) = hwx.texts().pop().expect("a container of a program has its descriptors");
    assert_eq!(hwx.content(&section), anec.text);
    assert_eq!(hwx.tasks(&section, first).ok(), tasks.ok());
    // A buffer without tiles is left out, and those behind it get other places.
    let counted = PORTS..PORTS + (anec.inputs + anec.outputs) as usize;
    let whole = anec.tiles.iter().enumerate().skip(PORTS).all(|(i, tiles)| counted.contains(&i) == (*tiles > 0));
    if let Ok(back) = Anec::of(&hwx, anec.begins)
        && whole
    {
        assert_eq!((&back.text, &back.constants), (&anec.text, &anec.constants), "a way back that changes the payload");
        assert_eq!((back.first_size, back.begins), (anec.first_size, anec.begins));
    }
}

/// Any bytes are a FlatBuffer or are refused, and so for each other part of a bundle. Every place that is told lies in the file, each
/// table is told once, and what is recognised is read or refused by its own reader.
///
/// # Panics
/// If not.
pub fn hwx_bundle(data: &[u8]) {
    let _ = bundle::recognise(data, data.len() as u64);
    if let Ok(walk) = flat::walk(data) {
        assert_eq!(walk.tables.first().map(|t| t.at), Some(walk.root));
        let mut places: Vec<usize> = walk.tables.iter().map(|t| t.at).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), walk.tables.len(), "a table is told twice");
        for table in &walk.tables {
            assert!(table.at + table.size <= data.len());
            for field in &table.fields {
                assert!(field.at >= table.at && field.at + field.room <= table.at + table.size);
                let known = |at: &usize| !walk.complete || places.binary_search(at).is_ok();
                match &field.value {
                    flat::Value::Table(at) => assert!(known(at)),
                    flat::Value::Tables(list) => assert!(list.iter().all(known)),
                    flat::Value::Nested(at, length) => assert!(at + length <= data.len()),
                    _ => {}
                }
            }
        }
    }
    let _ = e5::E5::read(data);
    let _ = (coreml::Data::read(data), coreml::Analytics::read(data), network::read(data));
    if let Ok(weights) = espresso::Weights::read(data) {
        assert!(weights.blobs.iter().all(|(_, range)| range.end <= data.len()));
    }
    let _ = (espresso::Net::read(data), espresso::Packed::read(data));
}
