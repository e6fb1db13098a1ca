//! `ferrane run --audit`: the report as text, JSON and a page.

use serde_json::Value;

use crate::place::Place;

/// 300 squared is no fp16 value; the square root of what exact arithmetic holds is one.
const SQUARE: &str = r#"program(1.3)
{
    func main<ios18>(tensor<fp16, [4]> x, state<tensor<fp16, [4]>> s) {
        tensor<fp16, [4]> z = square(x = x)[name = string("z")];
        tensor<fp16, [4]> root = sqrt(x = z)[name = string("root")];
        tensor<fp16, [4]> held = read_state(input = s)[name = string("held")];
        tensor<fp16, [4]> y = add(x = root, y = held)[name = string("y")];
        tensor<int32, [4]> n = cast(x = y, dtype = string("int32"))[name = string("n")];
    } -> (y, n);
}
"#;

const RUN: &str = "run square.mil --audit -i x=[300,1,-400,0.0001]";

fn place() -> Place {
    let place = Place::new();
    place.write("square.mil", SQUARE);
    place
}

fn keys(object: &Value) -> Vec<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn the_table_marks_the_op_and_the_summary_says_why() {
    let place = place();
    let out = place.run(&format!("{RUN} --state s=[1,1,1,1] --machine m1")).ok().out;
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("main on m1-") && lines[0].ends_with("5 values against exact"), "{out}");
    let at = |op: &str| lines.iter().position(|l| l.starts_with(op)).unwrap_or_else(|| panic!("no {op} in {out}"));
    // Program order.
    assert!(at("square") < at("sqrt") && at("sqrt") < at("read_state") && at("add") < at("cast"));
    let square = lines[at("square")];
    for words in ["z", "fp16[4]", "160000", "first", "2 overflow", "1 to zero"] {
        assert!(square.contains(words), "no `{words}` in {square}");
    }
    assert!(!lines[at("sqrt")].contains("first") && !lines[at("sqrt")].contains("overflow"), "{out}");
    assert!(out.contains("fast: square `z` overflows: 2 of 4 elements are beyond 65504"), "{out}");
    assert!(out.contains("Scale an operand by 1/8"), "{out}");
}

#[test]
fn every_field_of_the_json_is_there_and_right() {
    let place = place();
    let run = format!("{RUN} --json --threshold 8");
    let run = place.run(&run).ok();
    assert_eq!(run.err, "");
    let report = &run.objects()[0];
    let mut wanted = vec![
        "program",
        "function",
        "profile",
        "threshold",
        "numerics",
        "bins",
        "joined",
        "summary",
        "first",
        "worst",
        "values",
    ];
    let mut found = keys(report);
    wanted.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, wanted);
    assert_eq!((&report["program"], &report["function"]), (&"square.mil".into(), &"main".into()));
    assert_eq!((&report["profile"], &report["threshold"]), (&"m4-macos15-inmem".into(), &8.0.into()));
    assert_eq!(report["numerics"], serde_json::json!(["fast", "hardware"]));
    assert_eq!(report["first"], serde_json::json!({"fast": "z", "hardware": "z"}));
    assert_eq!(report["joined"], serde_json::json!([]));
    assert_eq!(report["bins"].as_array().unwrap().len() + 2, 15);
    assert_eq!((keys(&report["worst"]), &report["worst"]["fast"]), (vec!["fast", "hardware"], &"root".into()));
    assert_eq!(report["summary"].as_array().unwrap().len(), 2);
    assert!(report["summary"][0].as_str().unwrap().starts_with("fast: square `z` overflows"));
    let values = report["values"].as_array().unwrap();
    let names: Vec<&str> = values.iter().map(|v| v["value"].as_str().unwrap()).collect();
    assert_eq!(names, ["z", "root", "held", "y", "n"]);
    let z = &values[0];
    assert_eq!(
        (&z["place"], &z["op"], &z["dtype"], &z["unit"], &z["output"], &z["note"]),
        (&0.into(), &"square".into(), &"fp16".into(), &"planar".into(), &false.into(), &Value::Null)
    );
    assert_eq!(z["shape"], serde_json::json!([4]));
    // 0.0001 is 1.0001659e-4 in fp16, 1678 steps of 2^-24; exact arithmetic squares that.
    let small = 1678.0 * 2f64.powi(-24);
    let square = f64::from((small * small) as f32);
    assert_eq!(
        z["exact"],
        serde_json::json!({"elements": 4, "min": square, "max": 160000.0, "peak": 160000.0, "least": square, "beyond": 2,
            "subnormal": 1, "not_finite": 0})
    );
    assert_eq!(keys(&z["readings"]), ["fast", "hardware"]);
    let reading = &z["readings"]["fast"];
    assert_eq!((keys(reading).len(), &reading["cause"]), (3, &"overflow".into()));
    let local = &reading["local"];
    assert_eq!(local, &reading["accumulated"]);
    let mut histogram = vec![0; 15];
    // 1 is exact, 1e-8 becomes zero by less than half a step of 2^-24, two are infinite.
    (histogram[0], histogram[1], histogram[14]) = (1, 1, 2);
    let ulps = square * 2f64.powi(24);
    assert_eq!(
        local,
        &serde_json::json!({"elements": 4, "max": square, "rms": local["rms"], "relative": local["relative"],
            "max_ulps": ulps, "peak_ulps": square / 128.0, "histogram": histogram, "overflow": 2, "saturated": 0,
            "special": 0, "underflow": 1, "vanished": square, "subnormal": 0, "differ": 3,
            "worst": {"index": [0], "exact": 90000.0, "found": "inf"}})
    );
    assert!((local["rms"].as_f64().unwrap() - square / 2f64.sqrt()).abs() < 1e-6 * square);
    assert!((local["relative"].as_f64().unwrap() - square).abs() < 1e-6 * square);
    assert_eq!(values[3]["output"], true);
    // The root is a victim: infinite in the run, right by itself.
    let root = &values[1]["readings"]["fast"];
    assert_eq!((&root["accumulated"]["overflow"], &root["local"]["overflow"]), (&2.into(), &0.into()));
    assert_eq!(root["cause"], Value::Null);
}

#[test]
fn the_page_is_whole_and_stands_alone() {
    let place = place();
    let out = place.run(&format!("{RUN} --html audit.html")).ok().out;
    assert!(out.ends_with("written to audit.html\n"), "{out}");
    let page = String::from_utf8(place.read("audit.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>"));
    balanced(&page);
    for words in
        ["square", "sqrt", "read_state", "add", "cast", "<code>z</code>", "<code>n</code>", "overflows: 2 of 4"]
    {
        assert!(page.contains(words), "no `{words}`");
    }
    assert_eq!(page.matches("<svg class=\"errors\"").count(), 1);
    // A histogram for each value and arithmetic, and two marks in the plot.
    let histograms = page.matches("<svg class=\"histogram\"").count();
    assert_eq!(histograms, 2 * 5);
    assert_eq!(page.matches("<circle").count(), 2 * histograms);
    assert!(page.contains("prefers-color-scheme: dark"));
    for outside in ["<script", "http:", "https:", "src=", "url(", "<link", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
    // The same run gives the same page.
    place.run(&format!("{RUN} --html other.html")).ok();
    assert_eq!(place.read("other.html"), page.as_bytes());
}

/// Every tag is closed by its like, and every `&` is one of the four that are written.
#[track_caller]
fn balanced(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    for piece in page.split('<').skip(1) {
        let (tag, _) = piece.split_once('>').expect("a tag ends");
        let name = tag.split([' ', '\n', '/']).find(|n| !n.is_empty()).unwrap();
        if tag.starts_with('!') || tag.ends_with('/') {
            continue;
        }
        match tag.strip_prefix('/') {
            None => open.push(name),
            Some(end) => assert_eq!(open.pop(), Some(end)),
        }
    }
    assert!(open.is_empty(), "{open:?}");
    for rest in page.split('&').skip(1) {
        assert!(["amp;", "lt;", "gt;", "quot;"].iter().any(|e| rest.starts_with(e)), "&{}", &rest[..8]);
    }
}

/// Attention's scores before they are scaled down: exact and fast arithmetic hold them.
const SCORES: &str = r#"program(1.3)
{
    func main<ios18>(tensor<fp16, [4, 8]> q, tensor<fp16, [4, 8]> k) {
        bool yes = const()[val = bool(true)];
        bool no = const()[val = bool(false)];
        tensor<fp16, [4, 4]> scores = matmul(x = q, y = k, transpose_x = no, transpose_y = yes)[name = string("scores")];
        fp16 small = const()[val = fp16(0x1p-12)];
        tensor<fp16, [4, 4]> y = mul(x = scores, y = small)[name = string("y")];
    } -> (y);
}
"#;

#[test]
fn the_machine_is_the_profiles() {
    let place = Place::new();
    place.write("scores.mil", SCORES);
    let out = place.run("run scores.mil --audit -i q=72 -i k=64 --machine m5").ok().out;
    assert!(out.contains("fast: no op deviates from exact by itself"), "{out}");
    for words in ["hardware: matmul `scores` overflows: 16 of 16", "on m5-", "ends at 32768; exact values reach 36864"]
    {
        assert!(out.contains(words), "no `{words}` in {out}");
    }
    // The run itself shows what the report explains.
    let run = |options: &str| place.run(&format!("run scores.mil -i q=72 -i k=64 --json {options}")).ok().objects();
    assert_eq!(run("--numerics hardware --machine m5")[0]["outputs"][0]["not_finite"], 16);
    assert_eq!(run("--numerics fast")[0]["outputs"][0]["max"], 9.0);
    assert_eq!(run("--machine m5")[0]["outputs"][0]["max"], 9.0);
}

#[test]
fn a_program_that_is_fine_is_said_to_be() {
    let place = place();
    let out = place.run("run square.mil --audit -i x=random:1").ok().out;
    assert!(out.contains("fast: no op deviates from exact by itself"), "{out}");
    assert!(out.contains("hardware: no op deviates from exact by itself"), "{out}");
    assert!(!out.contains("first") && out.contains("worst"), "{out}");
}

#[test]
fn what_does_not_go_together_is_refused() {
    let place = place();
    place.run("run square.mil --audit -i x=ones --device ane-or-emulator").refused(1, &["--audit is the emulator's"]);
    place.run("run square.mil --audit").refused(1, &["no value for these inputs", "x"]);
    place.run(&format!("{RUN} --machine m9")).refused(1, &["machine=m9", "did you mean `m1`?"]);
    let twice = format!("{RUN} --machine m1 --device emulator?machine=m1");
    place.run(&twice).refused(1, &["--machine is an option of the emulator"]);
    for line in [
        format!("{RUN} --output out"),
        format!("{RUN} --numerics exact"),
        "run square.mil -i x=ones --html a.html".into(),
        format!("{RUN} --threshold inf"),
    ] {
        assert_eq!(place.run(&line).code, Some(2), "{line}");
    }
    place.run(&format!("{RUN} --html none/there/a.html")).refused(1, &["none/there"]);
}
