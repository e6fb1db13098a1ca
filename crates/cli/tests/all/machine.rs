//! `check --machine` and `explain`: programs against machines.

use serde_json::Value;

use crate::place::Place;

const HEAD: &str = "program(1.3)\n[buildInfo = dict<string, string>({{\"coremlc-version\", \"3505.4.1\"}})]\n{\n";

/// A text with one function over `a`, fp16 [1, 64, 1, 64].
fn text(opset: &str, body: &str) -> String {
    format!("{HEAD}    func main<{opset}>(tensor<fp16, [1, 64, 1, 64]> a) {{\n        {body}\n    }} -> (z);\n}}\n")
}

fn place() -> Place {
    let place = Place::new();
    let unary = |op: &str| format!("tensor<fp16, [1, 64, 1, 64]> z = {op}(x = a)[name = string(\"z\")];");
    place.write("fine.mil", text("ios16", &unary("relu")));
    place.write("tan.mil", text("ios16", &unary("tan")));
    place.write("rsqrt.mil", text("ios16", &unary("rsqrt")));
    place.write(
        "square.mil",
        text("ios16", "tensor<fp16, [1, 64, 1, 64]> z = mul(x = a, y = a)[name = string(\"z\")];"),
    );
    place
}

#[test]
fn findings_stand_at_their_line_with_claims_and_the_way_out() {
    let place = place();
    let fine = place.run("check --machine m4-macos15-inmem fine.mil").ok();
    assert_eq!(fine.out, "fine.mil: ok (1 function, 1 op)\n");
    let found = place.run("check --machine m4-macos15-inmem fine.mil rsqrt.mil");
    assert_eq!(found.code, Some(1));
    for part in [
        "error E0412: `rsqrt` without `epsilon`",
        "--> rsqrt.mil:5:",
        "= rsqrt(x = a)",
        "the compile fails: ANECCompile() FAILED (C047)",
        "instead: the default written out",
        "rsqrt.mil: 1 error, 0 warnings",
    ] {
        assert!(found.out.contains(part), "{part}:\n{}", found.out);
    }
    // Through Core ML it runs elsewhere.
    let elsewhere = place.run("check --machine m4-macos15-coreml tan.mil").ok();
    assert!(elsewhere.out.contains("note E0411") && elsewhere.out.contains("CPU or the GPU"), "{}", elsewhere.out);
}

#[test]
fn findings_as_json_and_sarif() {
    let place = place();
    let found = place.run("check --machine m4 --format json rsqrt.mil");
    assert_eq!(found.code, Some(1));
    let line: Value = serde_json::from_str(&found.out).unwrap();
    assert_eq!((&line["target"], &line["ok"], &line["errors"]), (&"m4-macos15-inmem".into(), &false.into(), &1.into()));
    let finding = &line["findings"][0];
    assert_eq!((&finding["code"], &finding["effect"]), (&"E0412".into(), &"compile-error".into()));
    assert_eq!((&finding["op"], &finding["value"], &finding["fixable"]), (&"rsqrt".into(), &"z".into(), &true.into()));
    assert_eq!((&finding["claims"][0], &finding["span"]["line"]), (&"C047".into(), &5.into()));
    let found = place.run("check --machine m4 --format sarif fine.mil rsqrt.mil");
    assert_eq!(found.code, Some(1));
    let log: Value = serde_json::from_str(&found.out).unwrap();
    let run = &log["runs"][0];
    let rule = &run["tool"]["driver"]["rules"][0];
    assert_eq!((&log["version"], &rule["id"]), (&"2.1.0".into(), &"E0412".into()));
    // Where the manifest names a repository, the rule has an address there.
    let address = rule.get("helpUri").map(|uri| uri.as_str().unwrap().ends_with("docs/errors.md#e0412"));
    assert_eq!(address, ferrane::machine::explain::address(ferrane::diag::Code(412)).map(|_| true));
    let result = &run["results"][0];
    assert_eq!((&result["ruleId"], &result["level"]), (&"E0412".into(), &"error".into()));
    assert_eq!(result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"], "rsqrt.mil");
    assert_eq!(result["locations"][0]["physicalLocation"]["region"]["startLine"], 5);
}

#[test]
fn strict_counts_every_claim_and_says_why_the_profile_does_not() {
    let place = place();
    place.run("check --machine m4 rsqrt.mil fine.mil");
    let found = place.run("check --machine m4 --strict fine.mil");
    assert_eq!(found.code, Some(1));
    assert!(found.out.contains("E0401") && found.out.contains("the profile overrules this"), "{}", found.out);
}

#[test]
fn bounds_lead_to_overflow() {
    let place = place();
    place.run("check --machine m4 square.mil").ok();
    let may = place.run("check --machine m4 --bounds a=-300..300 square.mil").ok();
    assert!(may.out.contains("warning E0491") && may.out.contains("may pass 65504"), "{}", may.out);
    let does = place.run("check --machine m4 --bounds a=300..400 square.mil");
    assert_eq!(does.code, Some(1));
    assert!(does.out.contains("do pass 65504"), "{}", does.out);
    let wrong = place.run("check --machine m4 --bounds a=3 square.mil");
    assert!(wrong.code == Some(2) && wrong.err.contains("NAME=LOW..HIGH"), "{}", wrong.err);
}

#[test]
fn fix_writes_back_what_checks_better() {
    let place = place();
    place.run("check --machine m4 --fix rsqrt.mil").ok();
    let text = String::from_utf8(place.read("rsqrt.mil")).unwrap();
    assert!(text.contains("epsilon = "), "{text}");
    let before = place.read("tan.mil");
    assert_eq!(place.run("check --machine m4 --fix tan.mil").code, Some(1));
    assert_eq!(place.read("tan.mil"), before);
    // The dialect, too, and the result is what the machine takes.
    let fixed = place.run("check --machine m1-macos26-inmem --fix fine.mil").ok();
    assert!(fixed.err.contains("verbose dialect"), "{}", fixed.err);
    assert!(String::from_utf8(place.read("fine.mil")).unwrap().starts_with("program(1.0)"));
}

#[test]
fn measured_values_stand_above_the_profile() {
    let place = place();
    place.write("mine.toml", "[[overlay]]\n[overlay.ops]\nrelu = { value = \"refused\", claims = [\"C048\"] }\n");
    let found = place.run("check --machine m4 --machine-file mine.toml fine.mil");
    assert!(found.code == Some(1) && found.out.contains("the compiler refuses `relu`"), "{}", found.out);
    place.write("broken.toml", "[[overlay");
    assert!(place.run("check --machine m4 --machine-file broken.toml fine.mil").err.contains("profile file"));
    let unknown = place.run("check --machine m44 fine.mil");
    assert!(unknown.code == Some(1) && unknown.err.contains("no profile `m44`"), "{}", unknown.err);
    assert_eq!(place.run("check --strict fine.mil").code, Some(2));
}

#[test]
fn codes_are_explained() {
    let place = place();
    let long = place.run("explain E0421").ok().out;
    for part in ["E0421: ", "16384", "What happens: ", "C022", "Instead: "] {
        assert!(long.contains(part), "{part}:\n{long}");
    }
    assert!(place.run("explain e0204").ok().out.contains("no such op"));
    let unknown = place.run("explain E0999");
    assert!(unknown.code == Some(1) && unknown.err.contains("unknown code `E0999`"), "{}", unknown.err);
}
