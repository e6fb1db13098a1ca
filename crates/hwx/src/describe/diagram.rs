//! Tasks and buffers as a picture: DOT for Graphviz, and SVG that needs no other program.
//!
//! A task is a box, a buffer a rounded box. Arrows lead from the buffers that a task reads to the
//! task, and from the task to the buffers that it writes. Each address of the engine's own memory
//! counts as a buffer, so tasks that pass results there are connected.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ferrane_diag::escape_xml;

use super::report::{HwxReport, NamedLocation, TaskReport};

/// The buffers of a report and the arrows between buffers and tasks.
struct Graph<'a> {
    tasks: Vec<&'a TaskReport>,
    /// The name of each buffer, whether a task reads it, and whether a task writes it.
    buffers: Vec<(String, bool, bool)>,
    /// Indices of buffer and task; true for a write.
    arrows: Vec<(usize, usize, bool)>,
}

/// The name of the buffer at a location. Offsets into a buffer are the same buffer; each address of
/// the engine's memory is its own.
fn name(place: &NamedLocation) -> String {
    match place {
        NamedLocation::Buffer { name, .. } => name.clone(),
        other => other.to_string(),
    }
}

fn graph(report: &HwxReport) -> Graph<'_> {
    let tasks: Vec<&TaskReport> = report.texts.iter().flat_map(|t| &t.tasks).collect();
    let mut indices: BTreeMap<String, usize> = BTreeMap::new();
    let mut graph = Graph { tasks, buffers: Vec::new(), arrows: Vec::new() };
    for (i, task) in graph.tasks.clone().into_iter().enumerate() {
        let constants = task.kernel.iter().filter_map(|k| k.place.as_ref()).chain(&task.table);
        let reads = task.sources.iter().map(|s| &s.place).chain(constants).map(|p| (name(p), false));
        let writes = task.destination.iter().map(|d| (name(&d.place), true));
        for (name, written) in reads.chain(writes) {
            let buffers = &mut graph.buffers;
            let at = *indices.entry(name).or_insert_with_key(|name| {
                buffers.push((name.clone(), false, false));
                buffers.len() - 1
            });
            let (_, is_read, is_written) = &mut buffers[at];
            *if written { is_written } else { is_read } = true;
            let same = graph.arrows.iter().rev().take_while(|(_, task, _)| *task == i);
            if !same.clone().any(|arrow| *arrow == (at, i, written)) {
                graph.arrows.push((at, i, written));
            }
        }
    }
    graph
}

/// The label of a task: its number and operation.
fn label(i: usize, task: &TaskReport) -> String {
    let operation = task.summary.split_once(": ").map_or(task.summary.as_str(), |(o, _)| o);
    format!("{i}: {operation}")
}

pub(super) fn dot(report: &HwxReport) -> String {
    let graph = graph(report);
    let quote = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let mut out = String::from("digraph tasks {\n    node [fontname = \"sans-serif\"];\n");
    for (i, (name, _, _)) in graph.buffers.iter().enumerate() {
        let _ = writeln!(out, "    b{i} [shape = box, style = rounded, label = {}];", quote(name));
    }
    for (i, task) in graph.tasks.iter().enumerate() {
        let _ = writeln!(out, "    t{i} [shape = box, label = {}];", quote(&label(i, task)));
    }
    for (buffer, task, written) in &graph.arrows {
        let _ = match written {
            true => writeln!(out, "    t{task} -> b{buffer};"),
            false => writeln!(out, "    b{buffer} -> t{task};"),
        };
    }
    out.push_str("}\n");
    out
}

/// Cuts a line to at most `most` characters.
fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most { text.to_string() } else { text.chars().take(most - 1).chain(['…']).collect() }
}

/// Tasks are stacked vertically; buffers that are only read are on the left, written ones on the
/// right.
pub(super) fn svg(report: &HwxReport) -> String {
    const LEFT: usize = 20;
    const MIDDLE: usize = 300;
    const RIGHT: usize = 800;
    const NARROW: usize = 200;
    const WIDE: usize = 400;
    const STEP: usize = 60;
    const HIGH: usize = 40;
    let graph = graph(report);
    let mut columns = [0, 0];
    let place = |(_, _, written): &(String, bool, bool)| {
        let column = usize::from(*written);
        columns[column] += 1;
        (if *written { RIGHT } else { LEFT }, 20 + STEP * (columns[column] - 1))
    };
    let buffers: Vec<(usize, usize)> = graph.buffers.iter().map(place).collect();
    let rows = graph.tasks.len().max(columns[0]).max(columns[1]).max(1);
    let (width, height) = (RIGHT + NARROW + 20, 20 + STEP * rows);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n<defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" \
         markerWidth=\"8\" markerHeight=\"8\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\"/></marker></defs>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (buffer, task, written) in &graph.arrows {
        let (x, y) = buffers[*buffer];
        let row = 20 + STEP * task + HIGH / 2;
        let right = x == RIGHT;
        let (from, to) = (if right { x } else { x + NARROW }, if right { MIDDLE + WIDE } else { MIDDLE });
        // Reads from the right side are drawn a little lower than writes, so both arrows are
        // visible.
        let shift = if right && !written { 8 } else { 0 };
        let ends = [(from, y + HIGH / 2 + shift), (to, row + shift)];
        let [a, b] = if *written { [ends[1], ends[0]] } else { ends };
        let _ = writeln!(
            out,
            "<path d=\"M{} {}L{} {}\" stroke=\"#555\" fill=\"none\" marker-end=\"url(#arrow)\"/>",
            a.0, a.1, b.0, b.1
        );
    }
    let mut draw = |x: usize, y: usize, wide: usize, round: usize, fill: &str, text: &str| {
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{wide}\" height=\"{HIGH}\" rx=\"{round}\" fill=\"{fill}\" stroke=\"#333\"/>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            x + wide / 2,
            y + HIGH / 2 + 5,
            escape_xml(&cut(text, wide / 7))
        );
    };
    for ((name, _, _), (x, y)) in graph.buffers.iter().zip(&buffers) {
        draw(*x, *y, NARROW, 12, "#eef4ff", name);
    }
    for (i, task) in graph.tasks.iter().enumerate() {
        draw(MIDDLE, 20 + STEP * i, WIDE, 0, "#fff6e5", &label(i, task));
    }
    out.push_str("</svg>\n");
    out
}
