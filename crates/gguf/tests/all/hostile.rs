//! Files that lie: each is refused with a message that names the place, and without memory for
//! what it claims to hold.

use ferrane_gguf::{Error, GgufHeader};

/// A file put together from its parts.
struct Parts {
    version: u32,
    tensors: u64,
    pairs: u64,
    body: Vec<u8>,
}

impl Parts {
    fn file(&self) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend(self.version.to_le_bytes());
        file.extend(self.tensors.to_le_bytes());
        file.extend(self.pairs.to_le_bytes());
        file.extend(&self.body);
        file
    }
}

fn string(text: &str) -> Vec<u8> {
    let mut out = (text.len() as u64).to_le_bytes().to_vec();
    out.extend(text.as_bytes());
    out
}

fn refused(tensors: u64, pairs: u64, body: Vec<u8>) -> String {
    let file = Parts { version: 3, tensors, pairs, body }.file();
    GgufHeader::read(&file).unwrap_err().to_string()
}

fn pair(key: &str, ty: u32, value: &[u8]) -> Vec<u8> {
    [string(key), ty.to_le_bytes().to_vec(), value.to_vec()].concat()
}

fn tensor(name: &str, extents: &[u64], ty: u32, offset: u64) -> Vec<u8> {
    let mut out = string(name);
    out.extend((extents.len() as u32).to_le_bytes());
    extents.iter().for_each(|n| out.extend(n.to_le_bytes()));
    out.extend(ty.to_le_bytes());
    out.extend(offset.to_le_bytes());
    out
}

/// A file of one list of tensors and so many zero bytes after them.
fn with_data(list: &[Vec<u8>], zeros: usize) -> Result<GgufHeader, Error> {
    let mut body = list.concat();
    // The header has 24 bytes, and data begin at a multiple of 32.
    body.resize((24 + body.len()).next_multiple_of(32) - 24 + zeros, 0);
    GgufHeader::read(&Parts { version: 3, tensors: list.len() as u64, pairs: 0, body }.file())
}

fn refused_data(list: &[Vec<u8>], zeros: usize) -> String {
    with_data(list, zeros).unwrap_err().to_string()
}

#[test]
fn versions() {
    assert!(matches!(GgufHeader::read(b""), Err(Error::Magic)));
    assert!(matches!(GgufHeader::read(b"GGML\x03\0\0\0"), Err(Error::Magic)));
    assert!(matches!(GgufHeader::read(b"GGUF\x03\0"), Err(Error::Truncated { .. })));
    for (version, needle) in [(1, "version 1;"), (4, "version 4;"), (3u32.swap_bytes(), "version 3, big-endian")] {
        let error = GgufHeader::read(&Parts { version, tensors: 0, pairs: 0, body: vec![] }.file()).unwrap_err();
        assert!(error.to_string().contains(needle), "{error}");
    }
    for version in [2, 3] {
        let header = GgufHeader::read(&Parts { version, tensors: 0, pairs: 0, body: vec![] }.file()).unwrap();
        assert_eq!((header.version(), header.tensors().len()), (version, 0));
    }
}

#[test]
fn counts_beyond_the_file() {
    assert!(refused(1 << 63, 0, vec![]).contains("the number 9223372036854775808 is above 0"));
    assert!(refused(0, u64::MAX, vec![0; 100]).contains("the number of keys"));
    assert!(refused(0, 1, u64::MAX.to_le_bytes().to_vec()).contains("the rest of the file can hold"));
    let long = [u64::MAX.to_le_bytes().to_vec(), vec![0; 20]].concat();
    assert!(refused(0, 1, long).contains("key 0, at byte 24: the string is longer"));
    let strings = [8u32.to_le_bytes().to_vec(), (1u64 << 60).to_le_bytes().to_vec()].concat();
    assert!(refused(0, 1, pair("a", 9, &strings)).contains("the key `a`"));
    // Each element is counted with its smallest size.
    for (ty, size) in [(0u32, 1), (2, 2), (4, 4), (12, 8), (8, 8), (9, 12)] {
        let body = |count: u64| {
            let elements = [ty.to_le_bytes().to_vec(), count.to_le_bytes().to_vec(), vec![0; 4 * size]].concat();
            refused(0, 1, pair("key", 9, &elements))
        };
        assert!(body(5).contains("the number 5 is above 4"), "{}", body(5));
    }
}

#[test]
fn values_that_cannot_be() {
    assert!(refused(0, 1, pair("a", 13, &[0; 8])).contains("unknown type 13"));
    assert!(refused(0, 1, pair("a", 7, &[2])).contains("a truth value of 2"));
    assert!(refused(0, 1, pair("a", 6, &[0; 3])).contains("ends inside the key `a`"));
    assert!(
        refused(0, 2, [pair("a", 0, &[1]), pair("a", 0, &[1])].concat()).contains("`a`, at byte 38: it occurs twice")
    );
    let text = [2u64.to_le_bytes().to_vec(), vec![0xff, 0xfe]].concat();
    assert!(refused(0, 1, pair("a", 8, &text)).contains("not UTF-8"));
    let control = refused(0, 1, pair("a\u{1b}[2J", 13, &[0; 8]));
    assert!(!control.contains('\u{1b}'), "{control:?}");
    let deep: Vec<u8> =
        (0..100).flat_map(|_| [9u32.to_le_bytes().to_vec(), 1u64.to_le_bytes().to_vec()].concat()).collect();
    assert!(refused(0, 1, pair("a", 9, &deep)).contains("nest deeper than 8"));
    for alignment in [0u32, 3, 33] {
        let message = refused(0, 1, pair("general.alignment", 4, &alignment.to_le_bytes()));
        assert!(message.contains("not a power of two"), "{message}");
    }
    assert!(refused(0, 1, pair("general.alignment", 10, &[0; 8])).contains("general.alignment"));
}

#[test]
fn tensors_that_cannot_be() {
    let max = 1u64 << 63;
    assert!(with_data(&[tensor("t", &[4, 2], 0, 0)], 32).is_ok());
    assert!(refused_data(&[tensor("t", &[4, 2], 0, 0)], 31).contains("do not lie inside the file"));
    assert!(refused_data(&[tensor("t", &[max, 2], 0, 0)], 32).contains("overflow"));
    assert!(refused_data(&[tensor("t", &[max], 27, 0)], 32).contains("overflow"));
    // A zero excuses nothing, wherever it stands.
    for extents in [[0, max, 2], [max, 0, 2], [max, 2, 0]] {
        assert!(refused_data(&[tensor("t", &extents, 0, 0)], 32).contains("overflow"), "{extents:?}");
    }
    assert!(refused_data(&[tensor("t", &[1 << 40], 24, 0)], 32).contains("do not lie inside the file"));
    assert!(refused_data(&[tensor("t", &[1, 1, 1, 1, 1], 0, 0)], 32).contains("5 axes"));
    assert!(refused_data(&[tensor("t", &[4], 0, 16)], 64).contains("the offset 16 is not a multiple of 32"));
    assert!(refused_data(&[tensor("t", &[4], 0, u64::MAX - 31)], 64).contains("do not lie inside the file"));
    assert!(refused_data(&[tensor("t", &[4], 4, 0)], 64).contains("its type 4 is unknown"));
    assert!(refused_data(&[tensor("t", &[16, 2], 2, 0)], 64).contains("whole blocks of 32 values, as Q4_0 has them"));
    let twice = [tensor("t", &[4], 0, 0), tensor("t", &[4], 0, 32)];
    assert!(refused_data(&twice, 64).contains("the name occurs twice"));
    let overlap = [tensor("t", &[16], 0, 0), tensor("u", &[4], 0, 32)];
    assert!(
        refused_data(&overlap, 64).contains("`u`, at byte 128: its bytes overlap those of `t`"),
        "{}",
        refused_data(&overlap, 64)
    );
    // Empty tensors overlap nothing, whatever their other extents.
    assert_eq!(with_data(&[tensor("t", &[0, max - 1], 0, 0), tensor("u", &[4], 0, 0)], 16).unwrap().tensors().len(), 2);
    assert!(refused_data(&[tensor(&"x".repeat(500), &[4], 4, 0)], 64).len() < 200);
}
