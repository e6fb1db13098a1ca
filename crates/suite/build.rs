//! Collects the Rust code of the pages, which runs as doc tests of this crate.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md")];
    collect(&root.join("docs"), &mut pages);
    pages.sort();
    let mut code = String::new();
    for page in pages {
        println!("cargo:rerun-if-changed={}", page.display());
        let text = fs::read_to_string(&page).expect("a page is text");
        for block in text.split("\n```rust\n").skip(1) {
            let block = block.split("\n```").next().unwrap_or_default();
            // Code that uses `?` needs a result, which a page has no reason to show.
            code += &format!("```rust\n{block}\n# Ok::<(), Box<dyn std::error::Error>>(())\n```\n\n");
        }
    }
    assert!(!code.is_empty(), "the pages have no Rust code");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("pages.md");
    fs::write(out, code).expect("cargo's folder can be written");
}

fn collect(folder: &Path, pages: &mut Vec<PathBuf>) {
    println!("cargo:rerun-if-changed={}", folder.display());
    for entry in fs::read_dir(folder).expect("docs/ is a folder") {
        let path = entry.expect("docs/ can be listed").path();
        if path.is_dir() {
            collect(&path, pages);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
}
