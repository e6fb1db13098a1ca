//! Circles among the files of a crate, and the limits that ARCHITECTURE.md sets.
//!
//! A circle is a strongly connected component of the import graph: each of its files needs every
//! other one, so none can be understood, tested or moved by itself.

use std::path::Path;

use super::imports::ImportGraph;
use crate::markdown::{Page, code_spans};
use crate::report::Finding;

/// The heading of ARCHITECTURE.md below which the limits are.
pub(super) const HEADING: &str = "Circles";

/// The limits that ARCHITECTURE.md states.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Limits {
    /// Crate, the largest circle allowed, and the line that says so.
    pub(super) sizes: Vec<(String, usize, usize)>,
    /// Folders whose files may form a circle of any size among themselves: `crates/ane/src/bind`.
    pub(super) families: Vec<String>,
}

impl Limits {
    /// Reads the list items below the heading: "No circle of more than 4 files in `mil`, `host`."
    /// and "The files of `crates/ane/src/bind` may form one: …".
    pub(super) fn read(page: &Page) -> Result<Self, Finding> {
        let section = page.section(HEADING).ok_or_else(|| {
            let remedy = "list there \"- No circle of more than 4 files in `mil`.\"";
            Finding::new(&page.path, 0, format!("there is no heading \"{HEADING}\""), remedy)
        })?;
        let mut limits = Self::default();
        for (line, item) in items(&section) {
            let words = item.trim_start_matches("- ");
            if let Some(rest) = words.strip_prefix("No circle of more than ") {
                let size = rest.split(' ').next().and_then(|n| n.parse().ok()).ok_or_else(|| {
                    Finding::new(&page.path, line, "this limit has no number", "write \"more than 4 files\"")
                })?;
                limits.sizes.extend(code_spans(rest).into_iter().map(|c| (c.to_owned(), size, line)));
            } else if let Some(rest) = words.strip_prefix("The files of ") {
                limits.families.extend(code_spans(rest).first().map(|&folder| folder.to_owned()));
            }
        }
        Ok(limits)
    }
}

/// The list items of a section, each joined into one line.
fn items(section: &[(usize, crate::markdown::LineKind, &str)]) -> Vec<(usize, String)> {
    let mut items: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (line, _, text) in section {
        if text.starts_with("- ") {
            items.push((*line, (*text).to_owned()));
            open = true;
        } else if text.trim().is_empty() {
            open = false;
        } else if let Some((_, item)) = items.last_mut().filter(|_| open) {
            item.push(' ');
            item.push_str(text.trim());
        }
    }
    items
}

/// The circles of a graph as file indices, the largest first. Files in no circle are left out.
pub(super) fn circles(graph: &ImportGraph) -> Vec<Vec<usize>> {
    let mut targets = vec![Vec::new(); graph.tree.files.len()];
    for (from, to) in graph.edges.keys() {
        targets[*from].push(*to);
    }
    let mut circles: Vec<_> = components(&targets).into_iter().filter(|c| c.len() > 1).collect();
    circles.sort_by_key(|c| (std::cmp::Reverse(c.len()), c.clone()));
    circles
}

/// The strongly connected components of a graph (Tarjan 1972), each sorted. Depth is bounded by
/// the number of files of a crate.
fn components(targets: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut search = Search {
        targets,
        index: vec![None; targets.len()],
        low: vec![0; targets.len()],
        on_stack: vec![false; targets.len()],
        stack: Vec::new(),
        next: 0,
        found: Vec::new(),
    };
    for node in 0..targets.len() {
        if search.index[node].is_none() {
            search.visit(node);
        }
    }
    search.found
}

struct Search<'g> {
    targets: &'g [Vec<usize>],
    index: Vec<Option<usize>>,
    low: Vec<usize>,
    on_stack: Vec<bool>,
    stack: Vec<usize>,
    next: usize,
    found: Vec<Vec<usize>>,
}

impl Search<'_> {
    fn visit(&mut self, node: usize) {
        self.index[node] = Some(self.next);
        self.low[node] = self.next;
        self.next += 1;
        self.stack.push(node);
        self.on_stack[node] = true;
        for &target in &self.targets[node] {
            match self.index[target] {
                None => {
                    self.visit(target);
                    self.low[node] = self.low[node].min(self.low[target]);
                }
                Some(index) if self.on_stack[target] => self.low[node] = self.low[node].min(index),
                Some(_) => {}
            }
        }
        if Some(self.low[node]) == self.index[node] {
            let mut component = Vec::new();
            while let Some(member) = self.stack.pop() {
                self.on_stack[member] = false;
                component.push(member);
                if member == node {
                    break;
                }
            }
            component.sort_unstable();
            self.found.push(component);
        }
    }
}

/// Reports each circle above its crate's limit. `page` is ARCHITECTURE.md.
pub(super) fn check(graph: &ImportGraph, limits: &Limits, page: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Some((_, limit, line)) = limits.sizes.iter().find(|(name, ..)| *name == graph.package) else {
        return findings;
    };
    for circle in circles(graph) {
        let within = |folder: &String| circle.iter().all(|file| graph.tree.files[*file].path.starts_with(folder));
        if circle.len() <= *limit || limits.families.iter().any(within) {
            continue;
        }
        let files: Vec<String> = circle.iter().map(|file| graph.short(*file)).collect();
        let message = format!(
            "`{}` has a circle of {} files, and line {line} of {} allows {limit}: {}",
            graph.package,
            circle.len(),
            page.display(),
            files.join(", "),
        );
        let remedy = format!(
            "`cargo xtask floors --graph {}` lists the names that tie it; move what several of these files need into a file that needs none of them",
            graph.package,
        );
        findings.push(Finding::new(&graph.tree.files[circle[0]].path, 0, message, remedy));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_are_found() {
        let targets = vec![vec![1], vec![2], vec![0, 3], vec![4], vec![3], vec![]];
        let mut found = components(&targets);
        found.sort();
        assert_eq!(found, [vec![0, 1, 2], vec![3, 4], vec![5]]);
    }

    #[test]
    fn limits_are_read_from_the_list() {
        let text = "## Circles\n\nProse.\n\n- No circle of more than 4 files in `mil`,\n  `host`.\n- No circle of more than 23 files in `emulator`.\n- The files of `crates/ane/src/bind` may form one.\n";
        let limits = Limits::read(&Page::parse(Path::new("A.md"), text)).unwrap();
        let sizes = [("mil".to_owned(), 4, 5), ("host".to_owned(), 4, 5), ("emulator".to_owned(), 23, 7)];
        assert_eq!(limits.sizes, sizes);
        assert_eq!(limits.families, ["crates/ane/src/bind"]);
        assert!(Limits::read(&Page::parse(Path::new("A.md"), "# None\n")).is_err());
        let broken = Page::parse(Path::new("A.md"), "## Circles\n- No circle of more than few files in `mil`.\n");
        assert_eq!(Limits::read(&broken).unwrap_err().line, 2);
    }
}
