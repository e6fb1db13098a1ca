//! Type encodings of methods: parses the runtime's text into single types, and compares them with
//! the Rust types of a call.
//!
//! The runtime's text has a type and an offset for each of return value, receiver, selector and
//! arguments: `B40@0:8I16@20^@28`. Ours has no offsets: `B@:I@^@`. Only types are compared. `B`
//! stands for BOOL, whatever its letter on this system.

use objc2::encode::{EncodeArguments, EncodeReturn, Encoding};
use objc2::runtime::Bool;

/// Qualifiers that do not affect the size: const, in, inout, out, bycopy, byref, oneway, atomic.
const QUALIFIERS: &[u8] = b"rnNoORVA";

/// The single types of an encoding, without offsets and qualifiers. `None` if the text is not an
/// encoding.
pub fn split(encoding: &str) -> Option<Vec<&str>> {
    let bytes = encoding.as_bytes();
    let (mut types, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        while bytes.get(at).is_some_and(|b| QUALIFIERS.contains(b)) {
            at += 1;
        }
        let end = end_of_type(bytes, at)?;
        types.push(encoding.get(at..end)?);
        at = end;
        while bytes.get(at).is_some_and(|b| b.is_ascii_digit() || *b == b'-') {
            at += 1;
        }
    }
    Some(types)
}

/// The end of the type that begins at `at`.
fn end_of_type(bytes: &[u8], mut at: usize) -> Option<usize> {
    while bytes.get(at).is_some_and(|b| *b == b'^' || QUALIFIERS.contains(b)) {
        at += 1;
    }
    match bytes.get(at)? {
        b'@' => match bytes.get(at + 1) {
            Some(b'?') => Some(at + 2),
            Some(b'"') => Some(at + 3 + bytes.get(at + 2..)?.iter().position(|b| *b == b'"')?),
            _ => Some(at + 1),
        },
        b'{' | b'(' | b'[' => {
            let mut depth = 0usize;
            for (i, b) in bytes.iter().enumerate().skip(at) {
                match b {
                    b'{' | b'(' | b'[' => depth += 1,
                    b'}' | b')' | b']' => depth = depth.checked_sub(1)?,
                    _ => {}
                }
                if depth == 0 {
                    return Some(i + 1);
                }
            }
            None
        }
        b'a'..=b'z' | b'A'..=b'Z' | b'*' | b'#' | b':' | b'?' => Some(at + 1),
        _ => None,
    }
}

/// The encoding of a message with these arguments and this result.
pub(crate) fn sent<A: EncodeArguments, R: EncodeReturn>() -> Vec<Encoding> {
    let mut all = vec![R::ENCODING_RETURN, Encoding::Object, Encoding::Sel];
    all.extend_from_slice(A::ENCODINGS);
    all
}

/// True if an encoding, of the runtime or of our tables, has these types.
pub(crate) fn agrees(text: &str, types: &[Encoding]) -> bool {
    let same = |(text, encoding): (&&str, &Encoding)| {
        // A block is an object with a mark, which a lenient comparison would ignore.
        if *encoding == Encoding::Block || text.starts_with("@?") {
            return *encoding == Encoding::Block && text.starts_with("@?");
        }
        let bool = *text == "B" && *encoding == <Bool as objc2::encode::Encode>::ENCODING;
        // An encoding may name an object's class; the receiver of a class method may be encoded as
        // a class.
        let object = *encoding == Encoding::Object && (text.starts_with("@\"") || *text == "#");
        // An object is not a block, although a block is an object.
        let mixed = *encoding == Encoding::Block && *text != "@?";
        bool || object || (!mixed && encoding.equivalent_to_str(text))
    };
    split(text).is_some_and(|found| found.len() == types.len() && found.iter().zip(types).all(same))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_and_qualifiers_are_left_out() {
        // The encodings in apple-runtime §8, and one of Foundation's.
        assert_eq!(split("B52@0:8@16@24@32I40^@44").unwrap(), ["B", "@", ":", "@", "@", "@", "I", "^@"]);
        assert_eq!(split("@88@0:8@16@24@32@40@48@56@64@72@80").unwrap().len(), 12);
        assert_eq!(split("@32@0:8r^v16Q24").unwrap(), ["@", "@", ":", "^v", "Q"]);
        assert_eq!(split("@24@0:8^{__IOSurface=}16").unwrap()[3], "^{__IOSurface=}");
        assert_eq!(split("v16@\"NSString\"0:8@?16").unwrap(), ["v", "@\"NSString\"", ":", "@?"]);
        for wrong in ["{", "^", "@\"x", "[12", "}"] {
            assert_eq!(split(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn types_are_compared_one_by_one() {
        let types = sent::<(u32, *mut *mut objc2::runtime::AnyObject), Bool>();
        assert!(agrees("B28@0:8I16^@20", &types));
        for wrong in ["B@:i^@", "B@:I@", "v@:I^@", "B@:I^@@", "B@:I"] {
            assert!(!agrees(wrong, &types), "{wrong}");
        }
    }
}
