//! Sets the name under which programs look up the shared library at run time.

/// Incremented when a program that was linked before would no longer run.
const ABI: u32 = 0;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // A linker that is called directly, not through a C compiler, takes its arguments unchanged.
    let direct = std::env::var("CARGO_ENCODED_RUSTFLAGS").is_ok_and(|flags| flags.contains("linker-flavor=ld64"));
    match std::env::var("CARGO_CFG_TARGET_OS").as_deref() {
        Ok("macos") if direct => {
            println!("cargo:rustc-cdylib-link-arg=-install_name");
            println!("cargo:rustc-cdylib-link-arg=@rpath/libferrane.{ABI}.dylib");
        }
        Ok("macos") => println!("cargo:rustc-cdylib-link-arg=-Wl,-install_name,@rpath/libferrane.{ABI}.dylib"),
        Ok("windows") => {}
        _ => {
            println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libferrane.so.{ABI}");
            // A dependency has C functions of its own, which programs must not find here.
            println!("cargo:rustc-cdylib-link-arg=-Wl,--exclude-libs=ALL");
        }
    }
}
