//! The report as one HTML page: no script, no external resources, light or dark as the browser
//! prefers.

use std::fmt::Write as _;

use ferrane_diag::escape_xml;

use super::text::{counts, error, mark, ty};
use super::{Audit, AuditRow, Deviation, plot, short};

const STYLE: &str = "\
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #ffffff; --faint: #6a737d; --rule: #d8dee4; --warn: #b42318; --warnbg: #fdecea;
  --n0: #1f6feb; --n1: #c2570c; --n2: #1a7f37; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #0d1117; --faint: #8b949e; --rule: #30363d; --warn: #ff7b72;
  --warnbg: #3b1a1a; --n0: #6ca4f8; --n1: #f0954f; --n2: #56d364; } }
body { margin: 2rem auto; max-width: 76rem; padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; } code { font-size: 0.95em; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 0.88rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.25rem 0.6rem; text-align: left; border-bottom: 1px solid var(--rule); vertical-align: middle; white-space: nowrap; }
td.number { text-align: right; } .faint, dd { color: var(--faint); } dd { margin: 0 0 0.5rem 1.5rem; } dt { font-weight: 600; }
tr.parts td { background: var(--warnbg); } .mark { color: var(--warn); font-weight: 600; }
.key { margin-right: 1.2rem; } svg text.axis { font: 11px system-ui, sans-serif; fill: var(--faint); }
svg .grid { stroke: var(--rule); } svg .limit { stroke: var(--warn); stroke-dasharray: 5 4; }
svg .run { fill: none; stroke-width: 1.3; } svg .alone.parts { stroke: var(--warn); stroke-width: 2.5; }
svg .alone.n0, svg rect.n0 { fill: var(--n0); } svg .run.n0 { stroke: var(--n0); } .key.n0 { color: var(--n0); }
svg .alone.n1, svg rect.n1 { fill: var(--n1); } svg .run.n1 { stroke: var(--n1); } .key.n1 { color: var(--n1); }
svg .alone.n2, svg rect.n2 { fill: var(--n2); } svg .run.n2 { stroke: var(--n2); } .key.n2 { color: var(--n2); }
";

const WORDS: [(&str, &str); 7] = [
    (
        "alone",
        "The op by itself: its operands are the exact ones rounded to fp16, its result is compared with what exact arithmetic makes \
         of the same operands. So it names the op that loses something, not those that come after it.",
    ),
    ("run", "The value at its place in a run under that arithmetic, compared with the exact run. Victims show here."),
    (
        "ulps",
        "Steps of fp16 at the largest exact magnitude of the value. One rounding errs by at most ½. Histograms count elements by \
         steps at their own magnitude. Integers: how many are wrong.",
    ),
    ("overflow", "Finite in exact arithmetic, here infinite or held at the largest value."),
    ("special", "NaN or infinite in exact arithmetic and something else here, or NaN here only."),
    ("to zero", "Not zero in exact arithmetic, zero here."),
    ("subnormal", "Not zero and below 2⁻¹⁴, where fp16 has fewer digits."),
];

impl Audit {
    /// The report as one HTML page with plots, without scripts and external resources. `program`
    /// names the program in the title.
    pub fn html(&self, program: &str) -> String {
        page(program, self)
    }
}

/// The page for a report on `program`, complete HTML.
fn page(program: &str, found: &Audit) -> String {
    let title = escape_xml(&format!("{program}: numerics of {} on {}", found.function, found.profile));
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<ul>\n"
    );
    for sentence in found.summary() {
        let _ = writeln!(page, "<li>{}</li>", escape_xml(&sentence));
    }
    page += "</ul>\n<h2>Error along the program</h2>\n<p>";
    for (i, numerics) in found.numerics.iter().enumerate() {
        let _ = write!(page, "<span class=\"key n{i}\">{}: ● alone ○ run</span>", numerics.name());
    }
    let _ = write!(
        page,
        "<span class=\"faint\">in ulps of the value's largest magnitude; the dashed line is the threshold, {}</span></p>\n\
         <div class=\"wide\">\n{}</div>\n",
        short(found.threshold),
        plot::errors(found)
    );
    page += "<h2>Values in program order</h2>\n<div class=\"wide\">\n<table>\n<thead><tr><th>op</th><th>value</th><th>type</th>\
             <th>unit</th><th>exact from</th><th>to</th>";
    for numerics in &found.numerics {
        let name = numerics.name();
        let _ = write!(page, "<th>{name} alone</th><th>run</th><th>rms</th><th>elements by ulps</th><th></th>");
    }
    page += "</tr></thead>\n<tbody>\n";
    found.rows.iter().for_each(|row| self::row(&mut page, found, row));
    page += "</tbody>\n</table>\n</div>\n<h2>Words</h2>\n<dl>\n";
    for (word, meaning) in WORDS {
        let _ = writeln!(page, "<dt>{word}</dt><dd>{meaning}</dd>");
    }
    page += "</dl>\n</body>\n</html>\n";
    page
}

fn row(page: &mut String, found: &Audit, row: &AuditRow) {
    let parts = row.readings.iter().any(|r| r.cause.is_some());
    let note = row.note.map(|n| format!(" <span class=\"faint\">({})</span>", n.text())).unwrap_or_default();
    let output = if row.is_output { " <span class=\"faint\">output</span>" } else { "" };
    let unit = format!("{:?}", row.unit).to_lowercase();
    let _ = write!(
        page,
        "<tr{}><td>{}</td><td><code>{}</code>{output}{note}</td><td>{}</td><td>{unit}</td>\
         <td class=\"number\">{}</td><td class=\"number\">{}</td>",
        if parts { " class=\"parts\"" } else { "" },
        escape_xml(&row.op),
        escape_xml(&row.value),
        ty(row),
        short(row.exact.min),
        short(row.exact.max),
    );
    for (i, reading) in row.readings.iter().enumerate() {
        let local = reading.local.as_ref();
        let told = local.map(counts).unwrap_or_default();
        let rms = |d: &Deviation| short(d.rms);
        let _ = write!(
            page,
            "<td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td>{}</td>\
             <td><span class=\"mark\">{}</span> {told}</td>",
            error(row, local),
            error(row, reading.accumulated.as_ref()),
            local.map_or("-".into(), rms),
            local.map_or(String::new(), |d| plot::histogram(row, i, d)),
            mark(found, i, row),
        );
    }
    page.push_str("</tr>\n");
}
