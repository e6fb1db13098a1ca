//! The floors of a crate's modules: ARCHITECTURE.md's table against the imports.
//!
//! Below "### Modules of `mil`" is a table of floor, module and contents. A module imports only
//! from modules of floors below its own. Modules joined by `+` in one cell are one unit on that
//! floor, whose parts may import each other. The root of the crate (`lib`) may import all; if a
//! module imports what `lib.rs` itself defines, the table must place `lib`.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::ImportGraph;
use crate::markdown::{Page, code_spans};
use crate::report::Finding;

/// Where the table places a module.
#[derive(Clone, Copy, Debug)]
struct Placement {
    floor: u32,
    /// Modules with the same number may import each other.
    unit: usize,
    line: usize,
}

/// The heading of a crate's table.
pub(super) fn heading(package: &str) -> String {
    format!("Modules of `{package}`")
}

/// Compares the imports with the crate's table. No findings if ARCHITECTURE.md has no table for it.
pub(super) fn check(graph: &ImportGraph, page: &Page) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Some(placed) = placements(page, &graph.package, &mut findings) else { return findings };
    let modules: BTreeSet<String> = (0..graph.tree.files.len()).map(|file| graph.top_module(file)).collect();
    for (file, source) in graph.tree.files.iter().enumerate() {
        let module = graph.top_module(file);
        let root = module == "lib" || module == "main";
        let top = graph.tree.modules[source.module].path.len() == 1;
        if top && !root && !placed.contains_key(&module) {
            let message = format!("module `{module}` is missing in the table \"{}\"", heading(&graph.package));
            findings.push(Finding::new(
                &source.path,
                0,
                message,
                format!("give it a floor in {}", page.path.display()),
            ));
        }
    }
    for (module, placement) in &placed {
        if !modules.contains(module) {
            let message = format!("`{}` has no module `{module}`", graph.package);
            findings.push(Finding::new(&page.path, placement.line, message, "remove it from the table"));
        }
    }
    for ((from, to), names) in &graph.edges {
        let (user, used) = (graph.top_module(*from), graph.top_module(*to));
        if user == used {
            continue;
        }
        let floor = |module: &String| placed.get(module).copied();
        let allowed = match (floor(&user), floor(&used)) {
            (Some(user), Some(used)) => user.unit == used.unit || user.floor > used.floor,
            // The roots import all; a module without a placement is reported already.
            (None, _) => true,
            (Some(_), None) => used != "lib" && used != "main",
        };
        if allowed {
            continue;
        }
        let (name, line) = names.iter().min_by_key(|(_, line)| **line).map_or(("", 0), |(n, l)| (n.as_str(), *l));
        let place = |module: &String| floor(module).map_or("no floor".to_owned(), |p| format!("floor {}", p.floor));
        let message = format!("`{user}` ({}) imports `{name}` of `{used}` ({})", place(&user), place(&used),);
        let remedy = format!(
            "a module imports only from floors below its own: move `{name}` down, or change the table \"{}\" in {}",
            heading(&graph.package),
            page.path.display(),
        );
        findings.push(Finding::new(&graph.tree.files[*from].path, line, message, remedy));
    }
    findings
}

fn placements(page: &Page, package: &str, findings: &mut Vec<Finding>) -> Option<BTreeMap<String, Placement>> {
    let rows = page.table(&heading(package))?;
    let mut placed = BTreeMap::new();
    let mut unit = 0;
    for row in rows {
        let floor = row.cells.first().and_then(|cell| cell.parse().ok());
        let (Some(floor), Some(cell)) = (floor, row.cells.get(1)) else {
            let remedy = "write `| 0 | `module` | what lives there |`";
            findings.push(Finding::new(&page.path, row.line, "this row has no floor", remedy));
            continue;
        };
        for part in cell.split(',') {
            unit += 1;
            for module in code_spans(part) {
                let placement = Placement { floor, unit, line: row.line };
                if placed.insert(module.to_owned(), placement).is_some() {
                    let message = format!("module `{module}` is in the table twice");
                    findings.push(Finding::new(&page.path, row.line, message, "remove one of them"));
                }
            }
        }
    }
    Some(placed)
}
