//! C programs against the static and the shared library, and under valgrind if it is installed.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::cc::{Link, Workshop, archive, built, crate_folder, is_here, output, shared, skipped};
use crate::header::{functions, root};

fn example(name: &str) -> PathBuf {
    crate_folder().join("examples").join(name)
}

fn test(name: &str) -> PathBuf {
    crate_folder().join("tests/c").join(name)
}

#[test]
fn every_error_is_an_error() {
    let Some(workshop) = Workshop::new() else { return };
    assert_eq!(workshop.run(&test("errors.c"), Link::Static), "every error is an error\n");
}

#[test]
fn the_bridge_holds() {
    let Some(workshop) = Workshop::new() else { return };
    for link in [Link::Static, Link::Shared] {
        assert_eq!(workshop.run(&test("bridge.c"), link), "the bridge holds\n");
    }
}

#[test]
fn threads_agree() {
    let Some(workshop) = Workshop::new() else { return };
    assert_eq!(workshop.run(&test("threads.c"), Link::Shared), "threads agree\n");
}

#[test]
fn the_examples_run() {
    let Some(workshop) = Workshop::new() else { return };
    for link in [Link::Static, Link::Shared] {
        let printed = workshop.run(&example("sigmoid.c"), link);
        // The fp16 number nearest to 1 / (1 + e^-1) = 0.731059 is 0.730957.
        assert!(printed.starts_with("sigmoid(0) = 0.5\nsigmoid(1) = 0.730957\n"), "{printed}");
        assert!(printed.ends_with("sigmoid(60000) = 1\n"), "{printed}");
    }
    assert_eq!(workshop.run(&example("pipeline.c"), Link::Shared), "100 runs of two kernels on one device\n");
}

/// The device's name is an argument; for an unavailable device the program prints a remedy.
#[test]
fn the_example_takes_a_device() {
    let Some(workshop) = Workshop::new() else { return };
    let program = workshop.compile(&example("sigmoid.c"), Link::Static);
    output(Command::new(&program).arg("emulator?numerics=exact"));
    let failed = Command::new(&program).arg("emulatr").output().expect("it runs");
    let said = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert_eq!(failed.status.code(), Some(1));
    assert!(said.starts_with("E0612: unknown device `emulatr`, did you mean `emulator`?"), "{said}");
}

/// No access outside of memory, no use after free, no leak.
#[test]
fn valgrind_is_content() {
    let Some(workshop) = Workshop::new() else { return };
    if !is_here("valgrind") {
        return skipped("there is no valgrind");
    }
    for (source, link) in [
        (test("errors.c"), Link::Static),
        (test("bridge.c"), Link::Static),
        (test("threads.c"), Link::Static),
        (example("pipeline.c"), Link::Shared),
    ] {
        let program = workshop.compile(&source, link);
        // Memory of threads that are still waiting at exit is reported as possibly lost; memory
        // that is definitely lost is ours.
        let options = [
            "--error-exitcode=9",
            "--leak-check=full",
            "--errors-for-leak-kinds=definite",
            "--show-leak-kinds=definite",
            "-q",
        ];
        output(Command::new("valgrind").args(options).arg(program));
    }
}

/// The exported symbols are exactly the functions of the header.
#[test]
fn symbols_are_those_of_the_header() {
    if !is_here("nm") {
        return skipped("there is no nm");
    }
    let functions = functions();
    let symbols = |arguments: &[&str], library: PathBuf| -> BTreeSet<String> {
        let listed = output(Command::new("nm").args(arguments).arg(library));
        let name = |line: &str| {
            let mut words = line.split_whitespace().rev();
            let (name, kind) = (words.next()?, words.next()?);
            // Names on macOS begin with an underscore.
            let name = if cfg!(target_vendor = "apple") { name.strip_prefix('_')? } else { name };
            (kind != "U").then(|| name.to_string())
        };
        listed.lines().filter_map(name).collect()
    };
    // macOS has no option that hides the functions of a dependency.
    let own = |names: BTreeSet<String>| -> BTreeSet<String> {
        names.into_iter().filter(|name| !(cfg!(target_vendor = "apple") && name.starts_with("llg_"))).collect()
    };
    let dynamic: &[&str] = if cfg!(target_vendor = "apple") { &["-gU"] } else { &["-D", "--defined-only"] };
    assert_eq!(own(symbols(dynamic, shared())), functions);
    // A static library also exports the symbols of its dependencies.
    let held = symbols(&["-g", "--defined-only"], archive());
    assert!(functions.is_subset(&held));
    let ours = held.into_iter().filter(|s| s.starts_with("ferrane_") || s.starts_with("ane_bridge_"));
    assert_eq!(ours.collect::<BTreeSet<_>>(), functions);
}

/// C++ accepts the header as well.
#[test]
fn the_header_is_also_cpp() {
    if !is_here("c++") {
        return skipped("there is no C++ compiler");
    }
    let folder = tempfile::TempDir::new().expect("a folder");
    let source = folder.path().join("use.cpp");
    fs::write(&source, "#include <ferrane.h>\nint main() { return ferrane_close(nullptr); }\n").expect("written");
    let include = crate_folder().join("include");
    let mut command = Command::new("c++");
    command.args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"]).arg(include).arg(source);
    output(&mut command);
}

/// The example in docs/c-api.md is the file that is compiled here.
#[test]
fn the_documented_example_is_the_one_that_runs() {
    let page = fs::read_to_string(root().join("docs/c-api.md")).expect("the page");
    let code = fs::read_to_string(example("sigmoid.c")).expect("the example");
    assert!(page.contains(&format!("```c\n{code}```\n")), "docs/c-api.md shows another examples/sigmoid.c");
    assert!(code.lines().count() <= 35, "about thirty lines");
}

/// Whole programs of the pages compile and run.
#[test]
fn the_programs_of_the_pages_run() {
    let Some(workshop) = Workshop::new() else { return };
    let folder = tempfile::TempDir::new().expect("a folder");
    let (mut pending, mut pages, mut run) = (vec![root().join("docs")], Vec::new(), 0);
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(folder).expect("a folder of docs/") {
            let path = entry.expect("an entry").path();
            let kept = if path.is_dir() { &mut pending } else { &mut pages };
            kept.push(path);
        }
    }
    for page in pages.iter().filter(|page| page.extension().is_some_and(|extension| extension == "md")) {
        let text = fs::read_to_string(page).expect("the page");
        let blocks = text.split("\n```c\n").skip(1).filter_map(|rest| rest.split("\n```").next());
        for code in blocks.filter(|code| code.contains("int main(")) {
            let source = folder.path().join(format!("page{run}.c"));
            fs::write(&source, format!("{code}\n")).expect("written");
            workshop.run(&source, Link::Shared);
            run += 1;
        }
    }
    assert!(run >= 2, "docs/c-api.md and docs/guide/start.md have programs");
}

/// The needs of a package manager: installs into a folder, and builds the example with the flags of
/// pkg-config.
#[test]
fn an_installed_library_is_found() {
    let Some(workshop) = Workshop::new() else { return };
    if !is_here("pkg-config") || cfg!(target_vendor = "apple") {
        return skipped("there is no pkg-config");
    }
    let prefix = workshop.folder.path().join("usr");
    let install = root().join("scripts/install-capi.sh");
    output(Command::new("bash").arg(install).arg("--from").arg(built()).arg(&prefix));
    let ask = |option: &[&str]| {
        let mut command = Command::new("pkg-config");
        command.args(option).arg("ferrane").env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
        output(&mut command)
    };
    assert_eq!(ask(&["--modversion"]).trim(), env!("CARGO_PKG_VERSION"));
    let program = workshop.folder.path().join("installed");
    let mut command = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    command.arg(example("sigmoid.c")).arg("-o").arg(&program);
    command.args(ask(&["--cflags", "--libs"]).split_whitespace());
    output(&mut command);
    output(Command::new(&program).env("LD_LIBRARY_PATH", prefix.join("lib")));
    // Without the shared library: pkg-config also lists everything that the static one needs.
    let mut command = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    command.arg(example("sigmoid.c")).arg("-o").arg(&program);
    command.args(ask(&["--cflags"]).split_whitespace()).arg(prefix.join("lib/libferrane.a"));
    command.args(ask(&["--libs", "--static"]).split_whitespace().filter(|w| *w != "-lferrane"));
    output(&mut command);
    output(&mut Command::new(&program));
}
