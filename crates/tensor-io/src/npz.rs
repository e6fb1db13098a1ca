//! NumPy's `.npz` files: a ZIP archive of `.npy` files, stored or deflated.

use std::io::{Cursor, Read, Write};

use ferrane_device::{Tensor, Tensors};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use crate::{Error, Result, npy};

/// Bytes of an entry that are read to see its header: more than any header that NumPy writes.
const HEADER: u64 = 1 << 16;
/// Bytes that a compressed entry may inflate to; a few megabytes can claim to hold terabytes.
const INFLATED: u64 = 4 << 30;

fn bad(error: zip::result::ZipError) -> Error {
    Error::Format(format!("not an .npz file, or a damaged one: {error}"))
}

/// Reads the tensor of that name, `x` for the entry `x.npy`.
pub(crate) fn read(file: &[u8], name: &str) -> Result<Tensor> {
    let mut archive = ZipArchive::new(Cursor::new(file)).map_err(bad)?;
    let entry = format!("{name}.npy");
    let found = archive.index_for_name(&entry).or_else(|| archive.index_for_name(name));
    let Some(index) = found else { return Err(unknown(&archive, name)) };
    let entry = archive.by_index(index).map_err(bad)?;
    let compressed = entry.compression() != CompressionMethod::Stored;
    // The size that the archive claims is not trusted: the header says how much is wanted.
    let mut entry = entry.take(HEADER);
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes)?;
    let length = npy::length(&bytes)? as u64;
    if compressed && length > INFLATED {
        let message =
            format!("`{name}` would inflate to {length} bytes, at most {INFLATED} are read; save it uncompressed");
        return Err(Error::Format(message));
    }
    entry.set_limit(length.saturating_sub(bytes.len() as u64));
    entry.read_to_end(&mut bytes)?;
    npy::read(&bytes)
}

fn unknown(archive: &ZipArchive<Cursor<&[u8]>>, name: &str) -> Error {
    let names = archive.file_names().filter_map(std::result::Result::ok);
    let mut names: Vec<String> = names.map(|n| n.strip_suffix(".npy").unwrap_or(&n).to_string()).collect();
    names.sort_unstable();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    crate::safetensors::unknown(name, &names)
}

/// Writes an archive of stored entries, as `numpy.savez` does.
pub(crate) fn write(tensors: &Tensors) -> Result<Vec<u8>> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored).large_file(true);
    for (name, tensor) in tensors {
        archive.start_file(format!("{name}.npy"), options).map_err(bad)?;
        archive.write_all(&npy::write(tensor)?)?;
    }
    Ok(archive.finish().map_err(bad)?.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensors() -> Tensors {
        let x = Tensor::fp16(&[2, 2], &[1.0, 2.0, 3.0, 4.0]).unwrap();
        let ids = Tensor::int32(&[3], &[7, 8, 9]).unwrap();
        Tensors::from([("x", x), ("ids", ids)])
    }

    #[test]
    fn named_tensors_come_back() {
        let file = write(&tensors()).unwrap();
        for (name, tensor) in &tensors() {
            assert_eq!(read(&file, name).unwrap(), *tensor);
            assert_eq!(read(&file, &format!("{name}.npy")).unwrap(), *tensor);
        }
        let error = read(&file, "idx").unwrap_err().to_string();
        assert!(error.contains("did you mean `ids`") && error.contains("ids, x"), "{error}");
    }

    #[test]
    fn compressed_archives_are_read() {
        let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
        let zeros = Tensor::fp32(&[1000], &[0.0; 1000]).unwrap();
        archive.start_file("z.npy", options).unwrap();
        archive.write_all(&npy::write(&zeros).unwrap()).unwrap();
        let file = archive.finish().unwrap().into_inner();
        assert!(file.len() < 1000);
        assert_eq!(read(&file, "z").unwrap(), zeros);
    }

    #[test]
    fn an_entry_is_inflated_no_further_than_its_header_says() {
        // 64 MiB of zeros after an array of two elements.
        let mut entry = npy::write(&Tensor::fp32(&[2], &[1.0, 2.0]).unwrap()).unwrap();
        entry.resize(entry.len() + (64 << 20), 0);
        let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
        archive.start_file("x.npy", options).unwrap();
        archive.write_all(&entry).unwrap();
        let file = archive.finish().unwrap().into_inner();
        assert_eq!(read(&file, "x").unwrap().to_f32(), [1.0, 2.0]);
        // A header that promises more than there is.
        let huge = b"\x93NUMPY\x01\x00\x4e\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }         \n";
        let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
        archive.start_file("x.npy", options).unwrap();
        archive.write_all(huge).unwrap();
        let file = archive.finish().unwrap().into_inner();
        assert!(read(&file, "x").is_err());
    }

    #[test]
    fn broken_archives_are_refused() {
        let file = write(&tensors()).unwrap();
        for cut in 0..file.len() {
            assert!(read(&file[..cut], "x").is_err(), "{cut}");
        }
        for at in 0..file.len() {
            let mut broken = file.clone();
            broken[at] ^= 0xFF;
            // Whatever comes of it, it is not a panic.
            let _ = read(&broken, "x");
        }
    }
}
