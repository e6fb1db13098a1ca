//! Lets Apple's linker leave Python's symbols to the interpreter that loads the library. Other
//! linkers do so by themselves.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_CFG_TARGET_VENDOR").is_some_and(|vendor| vendor == "apple") {
        println!("cargo:rustc-cdylib-link-arg=-undefined");
        println!("cargo:rustc-cdylib-link-arg=dynamic_lookup");
    }
}
