//! `ferrane bench suite` and what is done with its reports: compare, report, convert. No test looks
//! at a speed.

use serde_json::{Value, json};

use crate::place::Place;

/// Measures the smallest convolutions of some benchmarks.
fn measure(place: &Place, names: &str, file: &str) -> Value {
    place.run(&format!("bench suite {names} --most-gflop 0.05 --repeat 3 --out {file}")).ok();
    serde_json::from_slice(&place.read(file)).unwrap()
}

/// The report with each time of `inmem` multiplied.
fn slower(report: &Value, factor: f64) -> Value {
    let mut report = report.clone();
    for row in report["results"][0]["rows"].as_array_mut().unwrap() {
        for time in ["median_ms", "lowest_ms", "highest_ms"] {
            let ms = row["evaluation"][time].as_f64().unwrap();
            row["evaluation"][time] = json!(ms * factor);
        }
    }
    report
}

#[test]
fn reports_are_compared_row_by_row() {
    let place = Place::new();
    let report = measure(&place, "inmem", "a.json");
    place.write("b.json", slower(&report, 1.5).to_string());
    let shown = place.run("bench compare a.json b.json").ok();
    for words in ["A  a.json: emulator", "B  b.json: emulator", "B/A", "inmem: conv channels 256", "1.50", "findings"] {
        assert!(shown.out.contains(words), "no `{words}` in {}", shown.out);
    }
    let slower_by = |percent: u32| place.run(&format!("bench compare a.json b.json --worse-than {percent}"));
    let found = slower_by(10);
    assert_eq!(found.code, Some(1), "{}", found.err);
    assert!(
        found.out.contains("worse than in a.json by more than 10 %:\n  b.json: inmem: conv channels"),
        "{}",
        found.out
    );
    slower_by(60).ok();
    place.run("bench compare b.json a.json --worse-than 0").ok();

    let line = "bench compare a.json b.json a.json --worse-than 10 --clock caller --json";
    let found = place.run(line);
    assert_eq!(found.code, Some(1));
    let found: Value = serde_json::from_str(&found.out).unwrap();
    assert_eq!((found["reports"].as_array().unwrap().len(), &found["reports"][1]["name"]), (3, &json!("b.json")));
    assert_eq!(found["rows"][0]["ratios"], json!([1.0, 1.5, 1.0]));
    assert_eq!(found["worse"].as_array().unwrap().len(), report["results"][0]["rows"].as_array().unwrap().len());

    // A report can come from standard input.
    let piped = place.shell("\"$FERRANE\" bench compare a.json - < b.json").ok();
    assert!(piped.out.contains("B  -: emulator"), "{}", piped.out);
}

#[test]
fn what_cannot_be_compared_is_refused_with_status_2() {
    let place = Place::new();
    let mut report = measure(&place, "inmem", "a.json");
    place.write("text.json", "not JSON");
    place.write("other.json", r#"{"format": "ferrane-doctor"}"#);
    report["version"] = json!(99);
    place.write("newer.json", report.to_string());
    let with = |file: &str| place.run(&format!("bench compare a.json {file}"));
    with("none.json").refused(2, &["none.json: no such file"]);
    with("text.json").refused(2, &["text.json: expected", "line 1 column"]);
    with("other.json").refused(2, &["other.json: it is neither", "its format is `ferrane-doctor`"]);
    with("newer.json").refused(2, &["newer.json: version 99 is not known"]);
    with("a.json --worse-than -1").refused(2, &["--worse-than -1: give a percentage"]);
    place.run("bench compare a.json").refused(2, &["2 values required"]);
    place.run("bench report text.json -o page.html").refused(1, &["text.json"]);
    place.run("bench report a.json -o none/page.html").refused(1, &["none/page.html"]);
}

#[test]
fn a_page_shows_reports_of_both_kinds() {
    let place = Place::new();
    measure(&place, "inmem sram-probe", "mine.json");
    place.run("bench convert mine.json -o theirs.json").ok();
    let shown = place.run("bench report mine.json theirs.json -o page.html").ok();
    assert_eq!(shown.out, "the page is in page.html\n");
    let page = String::from_utf8(place.read("page.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("Content-Security-Policy"));
    let data = page.split("id=\"data\">").nth(1).and_then(|rest| rest.split("</script>").next()).unwrap();
    let data: Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["sources"], json!(["mine.json", "theirs.json"]));
    let titles: Vec<&str> = data["plots"].as_array().unwrap().iter().map(|p| p["title"].as_str().unwrap()).collect();
    assert!(titles.contains(&"Roofline") && titles.contains(&"Dispatch over width"), "{titles:?}");
}

#[test]
fn a_community_benchmark_has_the_rows_of_two_benchmarks() {
    let place = Place::new();
    measure(&place, "inmem sram-probe", "mine.json");
    place.run("bench convert mine.json -o theirs.json --user some-one").ok();
    let written: Value = serde_json::from_slice(&place.read("theirs.json")).unwrap();
    assert_eq!((&written["schema_version"], &written["username"]), (&json!(1), &json!("some-one")));
    assert!(written["system"]["chip"].as_str().unwrap().starts_with("emulated "), "{written}");
    let rows = written["benchmarks"]["sram_probe"].as_array().unwrap();
    assert_eq!(rows.iter().map(|r| r["channels"].as_u64().unwrap()).collect::<Vec<_>>(), [256, 512]);
    let time = written["timestamp"].as_str().unwrap();
    assert!(time.starts_with("20") && time.ends_with('Z') && time.len() == 20, "{time}");
    // Its rows are those of the suite.
    let found = place.run("bench compare mine.json theirs.json --clock caller --json").ok();
    let found: Value = serde_json::from_str(&found.out).unwrap();
    let both = found["rows"].as_array().unwrap().iter().filter(|row| row["ratios"][1].is_number()).count();
    assert_eq!(both, 2, "{found}");
    let back = place.run("bench convert theirs.json --to suite").ok();
    let back: Value = serde_json::from_str(&back.out).unwrap();
    assert_eq!((&back["format"], &back["results"][0]["name"]), (&json!("ferrane-bench-suite"), &json!("sram-probe")));

    place.run("bench convert mine.json --user a/b").refused(1, &["user name `a/b`"]);
    place.run("bench convert mine.json --to suite --user me").refused(1, &["--user is for --to community"]);
    measure(&place, "inmem", "other.json");
    place.run("bench convert other.json").refused(1, &["other.json: the report has no times of `sram-probe`"]);
}
