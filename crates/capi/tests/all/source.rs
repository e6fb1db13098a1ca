//! Properties of the sources that the compiler does not check.

use std::fs;

use crate::cc::crate_folder;

/// Every function that C calls is wrapped in a guard, or is on the list of functions that cannot
/// panic. A new function without a guard fails here.
#[test]
fn a_guard_stands_around_every_function() {
    // They read a value or only forward.
    const BARE: [&str; 8] = [
        "ferrane_version",
        "ferrane_last_status",
        "ferrane_last_error",
        "ferrane_last_remedy",
        "ferrane_compile_count",
        "ferrane_reset_compile_count",
        "ane_bridge_get_compile_count",
        "ane_bridge_reset_compile_count",
    ];
    let mut seen = 0;
    for entry in fs::read_dir(crate_folder().join("src")).expect("sources") {
        let text = fs::read_to_string(entry.expect("a file").path()).expect("text");
        for function in text.split("#[unsafe(no_mangle)]\n").skip(1) {
            let name = function.split("fn ").nth(1).and_then(|f| f.split('(').next()).expect("a function");
            let body = function.split_once("{\n").expect("a body").1.split("\n}\n").next().expect("an end");
            let guarded = body.trim_start().starts_with("guard(") || body.trim_start().starts_with("guarded(");
            // The fp16 builders of the bridge, which differ in one flag.
            let passed_on = body.contains("unsafe { fp16(src, rows, cols, out_len");
            assert!(guarded || passed_on || BARE.contains(&name), "{name} has no guard");
            seen += 1;
        }
    }
    assert_eq!(seen, crate::header::functions().len());
}
