//! Files around compiled programs: files of the Linux driver, FlatBuffers, and the parts of
//! compiled models.

use ferrane_hwx::anec::{Anec, FIRST_PORT};
use ferrane_hwx::bundle::{self, coreml, e5, espresso, flat, network};
use ferrane_hwx::describe;

/// Any bytes are a file of the Linux driver or rejected. A file that is read is written as the same
/// bytes. The container made from it has the same descriptors and constants, and the conversion
/// back reproduces them if every counted buffer has tiles.
///
/// # Panics
/// If a property does not hold.
pub fn hwx_anec(data: &[u8]) {
    let Ok(anec) = Anec::read(data) else { return };
    assert!(anec.write() == data, "reading and writing changes the file");
    let tasks = anec.decode();
    let Ok(hwx) = anec.to_hwx() else { return };
    describe::prose(&hwx, describe::Detail { registers: true });
    let (section, first) = hwx.task_sections().pop().expect("a container of a program has its descriptors");
    assert_eq!(hwx.content(&section), anec.text);
    assert_eq!(hwx.tasks(&section, first).ok(), tasks.ok());
    // A buffer without tiles is left out, which moves those after it.
    let counted = FIRST_PORT..FIRST_PORT + (anec.inputs + anec.outputs) as usize;
    let whole = anec.tiles.iter().enumerate().skip(FIRST_PORT).all(|(i, tiles)| counted.contains(&i) == (*tiles > 0));
    if let Ok(back) = Anec::from_hwx(&hwx, anec.payload_at)
        && whole
    {
        assert_eq!(
            (&back.text, &back.constants),
            (&anec.text, &anec.constants),
            "the conversion back changes the payload"
        );
        assert_eq!((back.first_size, back.payload_at), (anec.first_size, anec.payload_at));
    }
}

/// Any bytes are a FlatBuffer or rejected, and likewise every other part of a bundle. Every
/// reported offset lies in the file, each table is reported once, and a part that is recognized is
/// read or rejected by its own reader.
///
/// # Panics
/// If a property does not hold.
pub fn hwx_bundle(data: &[u8]) {
    let _ = bundle::recognize(data, data.len() as u64);
    if let Ok(walk) = flat::walk(data) {
        assert_eq!(walk.tables.first().map(|t| t.at), Some(walk.root));
        let mut places: Vec<usize> = walk.tables.iter().map(|t| t.at).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), walk.tables.len(), "a table is reported twice");
        for table in &walk.tables {
            assert!(table.at + table.size <= data.len());
            for field in &table.fields {
                assert!(field.at >= table.at && field.at + field.room <= table.at + table.size);
                let known = |at: &usize| !walk.complete || places.binary_search(at).is_ok();
                match &field.value {
                    flat::FieldValue::Table(at) => assert!(known(at)),
                    flat::FieldValue::Tables(list) => assert!(list.iter().all(known)),
                    flat::FieldValue::Nested(at, length) => assert!(at + length <= data.len()),
                    _ => {}
                }
            }
        }
    }
    let _ = e5::E5Program::read(data);
    let _ = (coreml::ModelHeader::read(data), coreml::ModelAnalytics::read(data), network::read(data));
    if let Ok(weights) = espresso::EspressoWeights::read(data) {
        assert!(weights.blobs.iter().all(|(_, range)| range.end <= data.len()));
    }
    let _ = (espresso::EspressoNet::read(data), espresso::EspressoPacked::read(data));
}
