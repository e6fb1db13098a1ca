//! Tests of the reader, of dequantization and of the writer.

mod blocks;
mod hostile;
mod round_trip;
