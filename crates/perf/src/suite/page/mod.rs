//! Reports as an HTML page: what was measured where, the plots that people draw of such numbers,
//! and all rows as tables.

mod plots;
mod tables;

use std::collections::BTreeMap;

use ferrane_page::{Facts, PlotPage};

use super::compare::letter;
use super::report::SuiteReport;

/// A page that shows these reports, complete HTML in one file that loads nothing. `names` are what
/// the reports are called, such as their files; a report without a name is called by its device.
pub fn page(reports: &[SuiteReport], names: &[String]) -> String {
    plot_page(reports, names).html()
}

fn plot_page(reports: &[SuiteReport], names: &[String]) -> PlotPage {
    let named = |i: usize| names.get(i).filter(|n| !n.is_empty()).unwrap_or(&reports[i].device).clone();
    let mut page = PlotPage::default();
    page.title = "Benchmarks of an engine".into();
    page.subtitle = match reports {
        [one] => one.device.clone(),
        _ => format!("{} reports", reports.len()),
    };
    page.sources = (0..reports.len()).map(named).collect();
    page.warnings = warnings(reports);
    page.facts = reports.iter().enumerate().map(|(i, report)| facts(i, report, &page.sources)).collect();
    page.plots = plots::plots(reports);
    page.tables = tables::tables(reports);
    page
}

/// The letter of a report and a colon, if there are several.
fn of(i: usize, reports: &[SuiteReport]) -> String {
    if reports.len() > 1 { format!("{}: ", letter(i)) } else { String::new() }
}

fn warnings(reports: &[SuiteReport]) -> Vec<String> {
    let mut all = Vec::new();
    for (i, report) in reports.iter().enumerate() {
        let mut wrong: BTreeMap<&str, usize> = BTreeMap::new();
        report.wrong().for_each(|(name, _)| *wrong.entry(name).or_default() += 1);
        if !wrong.is_empty() {
            let each: Vec<String> = wrong.iter().map(|(name, count)| format!("{name} {count}")).collect();
            all.push(format!("{}wrong results ({}): do not use their times", of(i, reports), each.join(", ")));
        }
    }
    all
}

fn facts(i: usize, report: &SuiteReport, sources: &[String]) -> Facts {
    let title = if sources.len() > 1 { format!("{}: {}", letter(i), sources[i]) } else { sources[i].clone() };
    let emulated = report.device.starts_with("emulator");
    let times = if emulated { "of an emulator; the device's clock is that of the modeled machine" } else { "" };
    let computer = report.computer_line();
    let rows = [
        // A community benchmark has its computer as device.
        ("device", if computer.starts_with(&report.device) { String::new() } else { report.device.clone() }),
        ("profile", report.profile.clone()),
        ("chip", report.chip.clone()),
        ("computer", computer.clone()),
        ("times", times.into()),
        ("measured", report.timestamp.clone().unwrap_or_default()),
        ("written by", if report.ferrane.is_empty() { String::new() } else { format!("Ferrane {}", report.ferrane) }),
        ("stopped", if report.stopped { "before all benchmarks had run".into() } else { String::new() }),
    ];
    let rows = rows.into_iter().filter(|(_, value)| !value.is_empty()).map(|(name, value)| (name.to_string(), value));
    Facts { title, rows: rows.collect() }
}

#[cfg(test)]
mod tests {
    use ferrane_page::{Plot, SeriesKind};
    use serde_json::{Value, json};

    use super::*;
    use crate::suite::{PublishedValue, SuiteCheck, SuiteResult, SuiteRow, SuiteTimes};

    fn row(kernel: &str, config: &[(&str, Value)], gflop: f64, ms: f64) -> SuiteRow {
        let mut row = SuiteRow::new(kernel, config);
        row.evaluation = Some(SuiteTimes { median_ms: ms, lowest_ms: ms * 0.5, highest_ms: ms * 3.0, repeats: 9 });
        row.predicted_ms = Some(ms / 2.0);
        row.rate("gflop", gflop);
        row.published.push(PublishedValue {
            chip: "m4".into(),
            metric: "ms".into(),
            value: ms / 4.0,
            source: "a/b".into(),
        });
        row
    }

    fn conv(channels: u32, depth: u32, ms: f64) -> SuiteRow {
        let gflop = 2.0 * f64::from(channels * channels) * 64.0 * f64::from(depth) / 1e9;
        row("conv", &[("channels", json!(channels)), ("positions", json!(64)), ("depth", json!(depth))], gflop, ms)
    }

    fn report() -> SuiteReport {
        let mut report = SuiteReport::parse(r#"{"schema_version": 1, "system": {"chip": "Apple M4"}}"#).unwrap();
        let result = |name: &str, rows| SuiteResult { rows, skipped: None, ..SuiteResult::skipped(name, "Why?", "") };
        let mut gain =
            row("w8a8", &[("channels", json!(512)), ("positions", json!(1024)), ("depth", json!(8))], 1.0, 0.2);
        gain.rate("gain", 1.5);
        gain.rate("predicted_gain", 1.7);
        let path =
            row("paths", &[("channels", json!(64)), ("positions", json!(32)), ("path", json!("standard"))], 0.0, 0.1);
        let mut wrong = conv(4096, 1, 1.0);
        wrong.check = Some(SuiteCheck { reference: "loops".into(), error: 1.0, tolerance: 1e-3 });
        let widths = vec![conv(512, 1, 0.1), conv(1024, 1, 0.1), conv(2048, 1, 0.2), conv(3072, 1, 0.4), wrong];
        let sram = SuiteResult {
            findings: crate::suite::fits::findings(&widths, crate::suite::fits::streaming),
            ..result("sram-probe", widths)
        };
        report.results = vec![
            result("inmem", vec![conv(256, 1, 0.1), conv(512, 1, 0.2)]),
            result("peak", vec![conv(512, 32, 0.2), conv(512, 64, 0.3)]),
            sram,
            result("int8-depth", vec![gain]),
            result("paths", vec![path]),
        ];
        report
    }

    #[track_caller]
    fn plot<'a>(page: &'a PlotPage, words: &str) -> &'a Plot {
        let all: Vec<&str> = page.plots.iter().map(|p| p.title.as_str()).collect();
        page.plots.iter().find(|p| p.title.contains(words)).unwrap_or_else(|| panic!("no {words} in {all:?}"))
    }

    fn values(plot: &Plot, kind: SeriesKind) -> Vec<(f64, f64)> {
        plot.series.iter().filter(|s| s.kind == kind).flat_map(|s| s.points.iter().map(|p| (p.x, p.y))).collect()
    }

    #[test]
    fn each_plot_has_what_was_measured_predicted_and_published() {
        let page = plot_page(&[report()], &[]);
        let width = plot(&page, "width");
        assert_eq!(values(width, SeriesKind::Measured), [(256.0, 0.1), (512.0, 0.2)]);
        assert_eq!(values(width, SeriesKind::Predicted), [(256.0, 0.05), (512.0, 0.1)]);
        assert_eq!(values(width, SeriesKind::Published), [(256.0, 0.025), (512.0, 0.05)]);
        let text = &width.series[0].points[0].text;
        assert!(text.contains("0.100 ms") && text.contains("9 evaluations") && text.contains("channels 256"), "{text}");
        let published = width.series.iter().find(|s| s.kind == SeriesKind::Published).unwrap();
        assert!(published.points[0].text.contains("m4, a/b"), "{}", published.points[0].text);

        assert_eq!(values(plot(&page, "512 channels"), SeriesKind::Measured), [(32.0, 0.2), (64.0, 0.3)]);
        let sram = plot(&page, "time of a convolution");
        assert_eq!((values(sram, SeriesKind::Measured)[0], sram.marks.len()), ((0.5, 0.1), 1));
        assert!(sram.series[0].points[4].label.contains("4096") && sram.series[0].points[4].wrong);
        // 2 MiB in 0.1 ms.
        let streaming = values(plot(&page, "streaming"), SeriesKind::Measured);
        assert!((streaming[1].1 - 20.97).abs() < 0.01, "{streaming:?}");
        let gains = plot(&page, "int8 over depth");
        assert_eq!(values(gains, SeriesKind::Measured), [(8.0, 1.5)]);
        assert_eq!(values(gains, SeriesKind::Predicted), [(8.0, 1.7)]);
        let paths = plot(&page, "dispatching");
        assert_eq!(
            (paths.groups.as_slice(), values(paths, SeriesKind::Measured)),
            (&["channels 64, positions 32, path standard".to_string()][..], vec![(0.0, 0.1)])
        );
        // 512 channels: 33.6 MFLOP over 512 KiB of weights and two times 64 KiB of activations.
        let roofline = values(plot(&page, "Roofline"), SeriesKind::Measured);
        let one = roofline.iter().find(|(x, _)| (*x - 51.2).abs() < 0.1).unwrap_or_else(|| panic!("{roofline:?}"));
        assert!((one.1 - 33_554_432.0 / 0.2e9).abs() < 1e-5, "{one:?}");
    }

    #[test]
    fn wrong_results_and_all_rows_are_shown() {
        let page = plot_page(&[report()], &["m4.json".into()]);
        assert_eq!(page.warnings, ["wrong results (sram-probe 1): do not use their times"]);
        let rows: usize = page.tables.iter().filter(|t| t.title != "Findings").map(|t| t.rows.len()).sum();
        assert_eq!(rows, report().results.iter().map(|r| r.rows.len()).sum::<usize>());
        let wrong = page.tables.iter().flat_map(|t| t.rows.iter().flatten()).find(|c| c.wrong).unwrap();
        assert!(wrong.text.contains("wrong: error 1.0e0 against loops"), "{}", wrong.text);
        assert_eq!((page.facts[0].title.as_str(), page.sources.as_slice()), ("m4.json", &["m4.json".to_string()][..]));
    }

    #[test]
    fn several_reports_share_plots_and_tables() {
        let mut other = report();
        other.device = "emulator (fast)".into();
        let page = plot_page(&[report(), other], &["a.json".into()]);
        assert_eq!(page.sources, ["a.json", "emulator (fast)"]);
        let width = plot(&page, "width");
        let sources: Vec<usize> =
            width.series.iter().filter(|s| s.kind == SeriesKind::Measured).map(|s| s.source).collect();
        assert_eq!(sources, [0, 1]);
        assert_eq!(values(width, SeriesKind::Published).len(), 2, "a value is published once");
        assert!(page.facts[1].rows.iter().any(|(name, value)| name == "times" && value.contains("emulator")));
        assert!(page.warnings[1].starts_with("B: "));
        let table = page.tables.iter().find(|t| t.title == "inmem").unwrap();
        let letters: Vec<&str> = table.rows.iter().map(|row| row[1].text.as_str()).collect();
        assert_eq!(letters, ["A", "B", "A", "B"]);
    }

    #[test]
    fn odd_reports_have_pages() {
        assert!(page(&[], &[]).starts_with("<!DOCTYPE html>"));
        let mut odd = report();
        for row in odd.results.iter_mut().flat_map(|r| &mut r.rows) {
            row.config.clear();
            row.rates = [("gflop".to_string(), json!("many"))].into_iter().collect();
        }
        assert!(page(&[odd, report()], &[]).contains("</html>"));
    }
}
