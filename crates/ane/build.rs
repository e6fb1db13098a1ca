//! With the feature `objc-runtime`, objc2 requests `-lobjc` and `-lgnustep-base` from the linker.
//! This script provides two empty archives; the symbols come from this crate.
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let apple = std::env::var("CARGO_CFG_TARGET_VENDOR").is_ok_and(|v| v == "apple");
    if apple || std::env::var_os("CARGO_FEATURE_OBJC_RUNTIME").is_none() {
        return;
    }
    let Some(out) = std::env::var_os("OUT_DIR") else { return };
    for name in ["objc", "gnustep-base"] {
        let path = std::path::Path::new(&out).join(format!("lib{name}.a"));
        if let Err(error) = std::fs::write(&path, b"!<arch>\n") {
            println!("cargo:warning=cannot write {}: {error}", path.display());
        }
    }
    println!("cargo:rustc-link-search=native={}", out.display());
}
