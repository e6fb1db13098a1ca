#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| ferrane_suite::fuzz::gguf(data));
