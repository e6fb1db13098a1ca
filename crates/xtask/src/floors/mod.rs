//! `cargo xtask floors`: who may know whom, among crates, modules and files.
//!
//! The rules are data of ARCHITECTURE.md: a table of crates, a table of modules for the crates that
//! have one, and the largest circle of files that a crate may have. The check compares them with
//! every Cargo.toml and with the imports that it parses out of the sources.

mod circles;
mod imports;
mod modules;
mod packages;

#[cfg(test)]
mod tests;

use std::path::Path;

use serde_json::{Value, json};

use self::circles::Limits;
use self::imports::ImportGraph;
use crate::arguments::Arguments;
use crate::markdown::Page;
use crate::report::{Finding, conclude};
use crate::workspace::{self, Result};

const PAGE: &str = "ARCHITECTURE.md";

const USAGE: &str = "\
usage: cargo xtask floors [--json] [--graph CRATE]

Compares ARCHITECTURE.md with the sources:
  crates   a crate depends only on crates of floors below its own (the table below \"The crates\")
  modules  a module imports only from floors below its own (the tables below \"Modules of `CRATE`\")
  circles  files that need each other, and their largest number (the list below \"Circles\")

options
  --json         print the import graphs and circles of all crates as JSON, without the checks
  --graph CRATE  print the crate's imports, file by file, with the names used; edges of a circle are marked with *";

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let arguments = Arguments::parse(arguments, &["--json"], &["--graph"], USAGE)?;
    if let Some(extra) = arguments.positional.first() {
        return Err(format!("unexpected argument `{extra}`\n\n{USAGE}"));
    }
    let root = workspace::root()?;
    if let Some(package) = arguments.value("--graph") {
        print!("{}", listing(&ImportGraph::read(&root, package)?));
        return Ok(());
    }
    let graphs = graphs(&root)?;
    if arguments.has("--json") {
        println!("{}", Value::Array(graphs.iter().map(as_json).collect()));
        return Ok(());
    }
    for graph in &graphs {
        for circle in circles::circles(graph) {
            let files: Vec<String> = circle.iter().map(|file| graph.short(*file)).collect();
            println!("{}: circle of {} files: {}", graph.package, circle.len(), files.join(", "));
        }
    }
    conclude("floors", findings(&root, &graphs)?)
}

/// `cargo xtask floors --help`.
pub(crate) fn usage() -> &'static str {
    USAGE
}

fn graphs(root: &Path) -> Result<Vec<ImportGraph>> {
    workspace::packages(root)?.iter().map(|package| ImportGraph::read(root, &package.folder)).collect()
}

fn findings(root: &Path, graphs: &[ImportGraph]) -> Result<Vec<Finding>> {
    let page = Page::read(root, Path::new(PAGE))?;
    let mut findings = packages::check(root, &page)?;
    for graph in graphs {
        findings.extend(modules::check(graph, &page));
    }
    match Limits::read(&page) {
        Ok(limits) => {
            for (name, _, line) in &limits.sizes {
                if !graphs.iter().any(|graph| graph.package == *name) {
                    findings.push(Finding::new(PAGE, *line, format!("there is no crate `{name}`"), "remove the limit"));
                }
            }
            findings.extend(graphs.iter().flat_map(|graph| circles::check(graph, &limits, Path::new(PAGE))));
        }
        Err(finding) => findings.push(finding),
    }
    Ok(findings)
}

/// The imports of each file, one line per file used.
fn listing(graph: &ImportGraph) -> String {
    let circles = circles::circles(graph);
    let mut text = String::new();
    let mut last = None;
    for ((from, to), names) in &graph.edges {
        if last.replace(*from) != Some(*from) {
            text += &format!("{}\n", graph.short(*from));
        }
        let circular = circles.iter().any(|circle| circle.contains(from) && circle.contains(to));
        let names: Vec<String> = names.iter().map(|(name, line)| format!("{name}:{line}")).collect();
        text += &format!("  {} {}: {}\n", if circular { '*' } else { ' ' }, graph.short(*to), names.join(" "));
    }
    for circle in circles {
        let files: Vec<String> = circle.iter().map(|file| graph.short(*file)).collect();
        text += &format!("circle of {} files: {}\n", circle.len(), files.join(", "));
    }
    text
}

fn as_json(graph: &ImportGraph) -> Value {
    let files: Vec<String> = (0..graph.tree.files.len()).map(|file| graph.short(file)).collect();
    let edges: Vec<Value> = graph
        .edges
        .iter()
        .map(|((from, to), names)| json!({ "from": files[*from], "to": files[*to], "names": names }))
        .collect();
    let circles: Vec<Vec<&String>> =
        circles::circles(graph).iter().map(|circle| circle.iter().map(|file| &files[*file]).collect()).collect();
    json!({ "crate": graph.package, "files": files, "edges": edges, "circles": circles })
}
