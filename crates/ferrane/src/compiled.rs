//! Compiled programs in either of their containers.

use ferrane_hwx::anec::Anec;
use ferrane_hwx::bundle::{FileKind, recognize};
use ferrane_hwx::{Hwx, Result};

/// Reads the bytes of a compiled program: a `.hwx` file, or one for the Linux driver (`.anec`),
/// around which a container is made.
///
/// # Errors
/// As [`Hwx::read`], or as [`Anec::read`] and [`Anec::to_hwx`].
pub fn read_compiled(bytes: &[u8]) -> Result<Hwx> {
    match recognize(bytes, bytes.len() as u64) {
        Some(FileKind::Anec) => Anec::read(bytes)?.to_hwx(),
        _ => Hwx::read(bytes),
    }
}

#[cfg(test)]
mod tests {
    use ferrane_hwx::anec::ANECC_PAYLOAD;
    use ferrane_hwx::builder::{BinaryOp, Operation, ProgramSpec, TensorSpec, build};

    use super::*;

    #[test]
    fn both_containers_are_read() {
        let input = |name: &str| TensorSpec { name: name.into(), nchw: [1, 8, 1, 64] };
        let (inputs, output) = (vec![input("a"), input("b")], "y".to_string());
        let op = Operation::Elementwise(BinaryOp::Add);
        let hwx = build(&ProgramSpec { name: "net".into(), inputs, output, op }).unwrap();
        assert_eq!(read_compiled(&hwx.write()), Ok(hwx.clone()));
        let anec = Anec::from_hwx(&hwx, ANECC_PAYLOAD).unwrap();
        assert_eq!(read_compiled(&anec.write()), anec.to_hwx());
        assert!(read_compiled(b"no program").is_err());
    }
}
