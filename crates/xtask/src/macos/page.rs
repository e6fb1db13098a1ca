//! The rules that a built file must keep, and docs/macos.md, which lists what the files ask for.
//!
//! The lists depend on the compiler, whose standard library imports more or less from one version
//! to the next. So the page says which compiler wrote it and is compared under that one only; the
//! rules hold under each.

use std::fmt::Write as _;
use std::path::Path;

use super::image::Image;
use super::{LIBRARY, MINIMUM, sdk};
use crate::workspace::Result;

const BEGIN: &str = "<!-- written by `cargo xtask macos imports --bless` -->\n";
const END: &str = "<!-- end -->\n";

/// Reads the files in `out`, reports each broken rule, and compares or writes the page.
pub(super) fn imports(root: &Path, out: &Path, compiler: &str, bless: bool) -> Result<()> {
    let header = root.join("crates/capi/include/ferrane.h");
    let header = std::fs::read_to_string(&header).map_err(|e| format!("cannot read {}: {e}", header.display()))?;
    let mut wrong = Vec::new();
    let mut list = format!("As built by Rust {compiler} on Linux.\n");
    for name in ["ferrane", LIBRARY] {
        let path = out.join(name);
        let data = std::fs::read(&path)
            .map_err(|e| format!("cannot read {}: {e}; `cargo xtask macos build` makes it", path.display()))?;
        let image = Image::parse(&data).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut broken = breaches(&image);
        if name == LIBRARY {
            broken.extend(interface(&image, &header));
        }
        wrong.extend(broken.into_iter().map(|what| format!("{name}: {what}")));
        let symbols: usize = image.imports.values().map(Vec::len).sum();
        println!("{name}: {} bytes, {} libraries, {symbols} imported symbols", data.len(), image.libraries.len());
        describe(&mut list, name, &image);
    }
    if !wrong.is_empty() {
        return Err(wrong.join("\n"));
    }
    if cfg!(target_vendor = "apple") {
        println!("docs/macos.md is about the build on Linux and was not compared");
        return Ok(());
    }
    let page = root.join("docs/macos.md");
    let text = std::fs::read_to_string(&page).map_err(|e| format!("cannot read {}: {e}", page.display()))?;
    let (before, rest) = text.split_once(BEGIN).ok_or("docs/macos.md has no place for the lists")?;
    let (lists, after) = rest.split_once(END).ok_or("docs/macos.md has no end of the lists")?;
    let list = format!("\n{list}\n");
    if bless {
        return std::fs::write(&page, [before, BEGIN, &list, END, after].concat())
            .map_err(|e| format!("cannot write {}: {e}", page.display()));
    }
    let first = |lists: &str| lists.trim_start().lines().next().map(str::to_owned);
    if first(lists) != first(&list) {
        println!("docs/macos.md was written with another compiler and was not compared");
    } else if lists != list {
        let old: Vec<&str> = lists.lines().collect();
        let new: Vec<&str> = list.lines().collect();
        let gone = old.iter().filter(|line| !new.contains(line)).map(|line| format!("- {line}"));
        let come = new.iter().filter(|line| !old.contains(line)).map(|line| format!("+ {line}"));
        let changed: Vec<String> = gone.chain(come).collect();
        return Err(format!(
            "docs/macos.md does not say what the files ask for:\n{}\n`cargo xtask macos imports --bless` writes it again; read what changed",
            changed.join("\n")
        ));
    }
    Ok(())
}

/// What is wrong with an image.
fn breaches(image: &Image) -> Vec<String> {
    let mut wrong = Vec::new();
    let known = sdk::libraries();
    for library in &image.libraries {
        if library.contains("/PrivateFrameworks/") {
            wrong.push(format!("loads the private framework {library}, which is to be opened at run time only"));
        } else if !known.iter().any(|k| k.path == library) {
            wrong.push(format!("loads {library}, which is not in stubs.txt"));
        }
    }
    if !image.two_level {
        wrong.push("looks symbols up in every library".to_owned());
    }
    for (library, symbols) in &image.imports {
        let exported = known.iter().find(|k| k.path == library).map(|k| k.symbols.as_slice()).unwrap_or_default();
        let strangers = symbols.iter().filter(|symbol| !exported.contains(&symbol.as_str()));
        // On a Mac the system's own stubs are linked, and what they export is the system's to say.
        if cfg!(target_vendor = "apple") && !library.is_empty() {
            continue;
        }
        let place = if library.is_empty() { "no library" } else { library };
        wrong.extend(strangers.map(|symbol| format!("takes {symbol} from {place}, against stubs.txt")));
    }
    if image.minimum.as_deref() != Some(MINIMUM) {
        wrong.push(format!("says it runs from macOS {:?}, not {MINIMUM}", image.minimum));
    }
    match &image.signature {
        None => wrong.push("is not signed, so macOS kills it on arm64".to_owned()),
        Some(signature) if !signature.ad_hoc => wrong.push("is signed with a certificate".to_owned()),
        Some(signature) if !signature.intact => wrong.push("was changed after it was signed".to_owned()),
        Some(_) => {}
    }
    wrong
}

/// What is wrong with the C interface: its name, and functions of the header that it does not
/// export.
fn interface(image: &Image, header: &str) -> Vec<String> {
    let name = format!("@rpath/{LIBRARY}");
    let mut wrong = Vec::new();
    if image.install_name.as_deref() != Some(&name) {
        wrong.push(format!("is looked up as {:?}, not {name}", image.install_name));
    }
    let mut functions: Vec<&str> = header
        .split_inclusive(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter_map(|word| word.strip_suffix('('))
        .filter(|word| word.starts_with("ferrane_") || word.starts_with("ane_bridge_"))
        .collect();
    functions.sort_unstable();
    functions.dedup();
    let missing =
        functions.iter().filter(|function| !image.exports.iter().any(|e| e.strip_prefix('_') == Some(function)));
    wrong.extend(missing.map(|function| format!("does not export {function}")));
    wrong
}

/// Writes an image's lists.
fn describe(list: &mut String, name: &str, image: &Image) {
    let _ = write!(list, "\n### {name}\n\nLoad commands:\n\n```text\n");
    for command in &image.commands {
        let _ = writeln!(list, "{command}");
    }
    list.push_str("```\n");
    for (library, symbols) in &image.imports {
        let _ = write!(list, "\n{} symbols from `{library}`:\n\n```text\n", symbols.len());
        let mut width = 0;
        for symbol in symbols {
            if width + symbol.len() > 118 {
                list.push('\n');
                width = 0;
            } else if width > 0 {
                list.push(' ');
            }
            width += symbol.len() + 1;
            list.push_str(symbol);
        }
        list.push_str("\n```\n");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::image::Signature;
    use super::*;

    fn image() -> Image {
        let system = "/usr/lib/libSystem.B.dylib".to_owned();
        Image {
            commands: Vec::new(),
            install_name: Some(format!("@rpath/{LIBRARY}")),
            libraries: vec![system.clone()],
            imports: BTreeMap::from([(system, vec!["_malloc".to_owned()])]),
            exports: vec!["_ferrane_open".to_owned()],
            two_level: true,
            minimum: Some(MINIMUM.to_owned()),
            signature: Some(Signature { ad_hoc: true, intact: true }),
        }
    }

    #[test]
    fn each_broken_rule_is_reported() {
        assert_eq!(breaches(&image()), Vec::<String>::new());
        let engine = "/System/Library/PrivateFrameworks/AppleNeuralEngine.framework/Versions/A/AppleNeuralEngine";
        type Change<'a> = &'a dyn Fn(&mut Image);
        let broken: [(&str, Change<'_>); 7] = [
            ("private framework", &|image| image.libraries.push(engine.to_owned())),
            ("not in stubs.txt", &|image| image.libraries.push("/usr/lib/libz.1.dylib".to_owned())),
            ("in every library", &|image| image.two_level = false),
            ("_malloc from no library", &|image| {
                image.imports = BTreeMap::from([(String::new(), vec!["_malloc".to_owned()])])
            }),
            ("from macOS", &|image| image.minimum = Some("26.0".to_owned())),
            ("not signed", &|image| image.signature = None),
            ("changed after", &|image| image.signature = Some(Signature { ad_hoc: true, intact: false })),
        ];
        for (message, change) in broken {
            let mut image = image();
            change(&mut image);
            let wrong = breaches(&image);
            assert!(wrong.len() == 1 && wrong[0].contains(message), "{message}: {wrong:?}");
        }
    }

    #[test]
    fn the_library_exports_what_the_header_declares() {
        let header = "/* x */\nFERRANE_API FerraneStatus ferrane_open(const char *name);\nint ane_bridge_init(void);";
        assert_eq!(interface(&image(), header), ["does not export ane_bridge_init"]);
        let anonymous = Image { install_name: None, ..image() };
        assert_eq!(interface(&anonymous, ""), [format!("is looked up as None, not @rpath/{LIBRARY}")]);
    }
}
