//! Base 64 (RFC 4648 §4), in which MLIR prints data and policies of pages write hashes.

/// The digits of bytes in base 64, with padding.
///
/// ```
/// assert_eq!(ferrane_diag::base64(b"pages").collect::<String>(), "cGFnZXM=");
/// ```
pub fn base64(bytes: &[u8]) -> impl Iterator<Item = char> + '_ {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    bytes.chunks(3).flat_map(|chunk| {
        let word = chunk.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        (0..4).map(move |place| match place <= chunk.len() {
            true => char::from(DIGITS[(word >> (18 - 6 * place) & 63) as usize]),
            false => '=',
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_the_rfc() {
        // RFC 4648 §10.
        let vectors =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")];
        for (text, digits) in vectors {
            assert_eq!(base64(text.as_bytes()).collect::<String>(), digits);
        }
    }
}
