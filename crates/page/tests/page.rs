//! The page of programs: structure, totals, and that no name leaves its place. What a browser makes
//! of it is checked by scripts/page/check.mjs.

use ferrane_diag::Source;
use ferrane_machine::placement::PlaceOptions;
use ferrane_machine::{CheckOptions, Profile};
use ferrane_mil::{Program, Weights, parse};
use ferrane_page::NetworkPage;
use serde_json::Value;

/// A network of two parts, of which the second takes a gather between convolutions.
const GATHER: &str = r#"program(1.3)
{
    func main<ios18>(tensor<fp16, [1, 512, 64, 64]> x) {
        tensor<int32, [2]> places = const()[name = string("places"), val = tensor<int32, [2]>([0, 1])];
        int32 axis = const()[name = string("axis"), val = int32(1)];
        tensor<fp16, [1, 512, 64, 64]> a = relu(x = x)[name = string("a")];
        tensor<fp16, [1, 2, 64, 64]> g = gather(x = a, indices = places, axis = axis)[name = string("g")];
        tensor<fp16, [1, 2, 64, 64]> t = tan(x = g)[name = string("t")];
        tensor<fp16, [1, 2, 64, 64]> y = add(x = t, y = g)[name = string("y")];
    } -> (y, a);
}
"#;

const BRANCHES: &str = r#"program(1.3)
{
    func main<ios18>(tensor<fp16, [4]> x, bool p) {
        tensor<fp16, [4]> outer = relu(x = x)[name = string("outer")];
        tensor<fp16, [4]> y = cond(pred = p)[name = string("y")] () {
            tensor<fp16, [4]> a = tan(x = outer)[name = string("a")];
        } -> (a) () {
        } -> (outer);
    } -> (y);
    func other<ios18>(tensor<fp16, [4]> x) {
        tensor<fp16, [4]> z = relu(x = x)[name = string("z")];
    } -> (z);
}
"#;

fn program(text: &str) -> Program {
    parse(text, &Weights::new()).unwrap_or_else(|e| panic!("{e:?}"))
}

fn examined<'a>(program: &'a Program, machine: &str) -> NetworkPage<'a> {
    let mut page = NetworkPage::new("net.mil", program);
    page.examine(&Profile::find(machine).unwrap(), &CheckOptions::default(), &PlaceOptions::default());
    page
}

fn nodes(graph: &Value) -> Vec<&Value> {
    graph["nodes"].as_array().unwrap().iter().collect()
}

fn node<'a>(graph: &'a Value, name: &str) -> &'a Value {
    let found = nodes(graph).into_iter().find(|n| n["name"] == name && n["kind"] != "output");
    found.unwrap_or_else(|| panic!("no node {name}"))
}

#[test]
fn nodes_are_ops_and_ports_and_constants_belong_to_their_readers() {
    let program = program(GATHER);
    let data = NetworkPage::new("net.mil", &program).json();
    let graph = &data["graphs"][0];
    let names: Vec<&str> = nodes(graph).iter().map(|n| n["op"].as_str().or(n["kind"].as_str()).unwrap()).collect();
    assert_eq!(names, ["input", "relu", "gather", "tan", "add", "output", "output"]);
    assert_eq!(graph["edges"], serde_json::json!([[0, 1], [1, 2], [2, 3], [3, 4], [2, 4], [4, 5], [1, 6]]));
    let places = node(graph, "g")["in"].as_array().unwrap().iter().find(|i| i[1] == "places").unwrap();
    assert_eq!(places[3], "[0, 1]");
    let ty = places[2].as_u64().unwrap() as usize;
    assert_eq!(data["types"][ty], "2 int32");
    assert_eq!((&data["summary"]["ops"], &data["summary"]["placed_for"]), (&Value::from(4), &Value::Null));
    assert!(data["causes"].as_array().unwrap().is_empty() && data["first"].as_array().unwrap().is_empty());
}

#[test]
fn totals_are_those_of_the_placement_and_of_the_check() {
    let program = program(GATHER);
    let page = examined(&program, "m4-macos15-inmem");
    let data = page.json();
    let summary = &data["summary"];
    let placement = &page.placements[0];
    assert_eq!((&summary["placed"], &summary["on_engine"]), (&Value::from(4), &Value::from(placement.on_engine())));
    assert_eq!(summary["off_engine"], placement.off_engine());
    let off: u64 = data["causes"].as_array().unwrap().iter().map(|c| c["count"].as_u64().unwrap()).sum();
    assert_eq!(off as usize, 4 - placement.on_engine());
    // Each finding about an op is on its node, and nowhere else.
    let findings = data["findings"].as_array().unwrap();
    assert_eq!(findings.len(), page.findings.len());
    assert!(findings.iter().any(|f| f["code"].as_str().unwrap().starts_with("E04")));
    for (i, finding) in findings.iter().enumerate() {
        let at = &finding["at"];
        let on: Vec<usize> = (0..nodes(&data["graphs"][0]).len())
            .filter(|n| nodes(&data["graphs"][0])[*n]["findings"].as_array().is_some_and(|f| f.contains(&i.into())))
            .collect();
        let wanted: Vec<usize> = at.as_array().map(|at| at[1].as_u64().unwrap() as usize).into_iter().collect();
        assert_eq!(on, wanted, "{finding}");
        assert!(data["codes"][finding["code"].as_str().unwrap()]["text"].is_string());
    }
    let gather = node(&data["graphs"][0], "g");
    assert_eq!((&gather["on"], &gather["why"][0]), (&Value::from("cpu"), &Value::from("op gather")));
    let segments = data["placements"][0]["segments"].as_array().unwrap();
    assert_eq!(segments.len(), placement.segments.len());
    assert!(data["first"].as_array().unwrap().iter().any(|p| p["code"].is_string() && p["count"].as_u64() > Some(0)));
}

#[test]
fn blocks_and_functions_have_graphs_of_their_own() {
    let program = program(BRANCHES);
    let data = examined(&program, "m4").json();
    let names: Vec<&str> = data["graphs"].as_array().unwrap().iter().map(|g| g["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["main", "cond y: if true", "cond y: if false", "other"]);
    let cond = node(&data["graphs"][0], "y");
    assert_eq!(cond["blocks"], serde_json::json!([1, 2]));
    // The op reads what its blocks take from outside.
    assert!(data["graphs"][0]["edges"].as_array().unwrap().contains(&serde_json::json!([2, 3])));
    assert_eq!(data["graphs"][1]["parent"], serde_json::json!([0, 3]));
    assert_eq!(node(&data["graphs"][1], "outer")["kind"], "outer value");
    assert_eq!(data["placements"].as_array().unwrap().len(), 2);
    assert_eq!(node(&data["graphs"][3], "z")["op"], "relu");
}

#[test]
fn the_line_of_the_text_and_the_measures_of_others_are_on_nodes() {
    let program = program(GATHER);
    let source = Source::new("net.mil", GATHER);
    let mut page = examined(&program, "m4");
    page.source = Some(&source);
    page.ulps.insert(("main".into(), "t".into()), 3.25);
    page.ulps.insert(("main".into(), "y".into()), f64::INFINITY);
    page.origins.insert(("main".into(), "g".into()), "model.py:12".into());
    let data = page.json();
    let graph = &data["graphs"][0];
    assert_eq!((&node(graph, "a")["line"], &node(graph, "y")["line"]), (&Value::from(6), &Value::from(9)));
    assert_eq!(
        (&node(graph, "t")["ulps"], &node(graph, "g")["origin"]),
        (&Value::from(3.25), &Value::from("model.py:12"))
    );
    assert!(node(graph, "y")["ulps"].as_f64().unwrap() > 1e300);
    assert!(node(graph, "a")["us"].as_f64().unwrap() > 0.0);
}

/// The text of the data in a page.
fn embedded(html: &str) -> &str {
    let (_, rest) = html.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
    rest.split_once("</script>").unwrap().0
}

#[test]
fn hostile_names_stay_names() {
    let mut program = program(GATHER);
    let hostile = "</script><script>alert(1)</script><!-- {{script}} & \u{2028}\"'";
    let function = &mut program.functions[0];
    for value in &mut function.values {
        value.name = format!("{hostile}{}", value.name);
    }
    function.name = hostile.into();
    for op in function.ops.iter_mut().filter(|op| op.name == "tan") {
        op.name = hostile.into();
        op.attributes.push((hostile.into(), ferrane_mil::Constant::string(hostile)));
    }
    let mut page = NetworkPage::new(hostile, &program);
    page.examine(&Profile::find("m4").unwrap(), &CheckOptions::default(), &PlaceOptions::default());
    let html = page.html();
    // Exactly the page's own elements, which open and close.
    assert_eq!((html.matches("<script").count(), html.matches("</script").count()), (2, 2));
    assert!(!html.contains("<!--") && !html.contains("alert(1)</"));
    let data: Value = serde_json::from_str(embedded(&html)).unwrap();
    assert_eq!(data, page.json());
    assert_eq!(data["title"], hostile);
    assert!(nodes(&data["graphs"][0]).iter().any(|n| n["op"] == hostile));
}

#[test]
fn a_page_loads_nothing_and_allows_only_its_own_parts() {
    let program = program(GATHER);
    let html = examined(&program, "m4").html();
    let policy = html.split("http-equiv=\"Content-Security-Policy\" content=\"").nth(1).unwrap();
    let policy = policy.split('"').next().unwrap();
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-") && !policy.contains("unsafe"), "{policy}");
    for attribute in [" src=", " style=\"", " onclick=", "<link", "<img", "@import", "url("] {
        assert!(!html.contains(attribute), "{attribute}");
    }
    assert!(!html.contains("{{"), "a mark of the template is left");
}

/// Ops in a chain with residuals, as text.
fn chain(ops: usize) -> String {
    let mut text = String::from("program(1.3)\n{\nfunc main<ios18>(tensor<fp16, [1, 8, 4, 4]> v0) {\n");
    for i in 1..=ops {
        let skip = if i % 7 == 0 && i > 6 { i - 5 } else { i - 1 };
        let line =
            format!("tensor<fp16, [1, 8, 4, 4]> v{i} = add(x = v{}, y = v{skip})[name = string(\"v{i}\")];\n", i - 1);
        text += &line;
    }
    text + &format!("}} -> (v{ops});\n}}\n")
}

#[test]
fn a_page_grows_with_its_network() {
    let sizes = [1000, 2000].map(|ops| {
        let program = program(&chain(ops));
        let page = examined(&program, "m4");
        let data = page.json();
        assert_eq!(data["graphs"][0]["layers"], ops as u64 + 2);
        page.html().len()
    });
    // Without what is the same in every page.
    let fixed = NetworkPage::new("", &program("program(1.3) { }")).html().len();
    let [small, large] = sizes.map(|size| (size - fixed) as f64);
    assert!(large < 2.3 * small && small < 1000.0 * 1000.0, "{small} {large}");
}

#[test]
fn a_program_without_functions_has_an_empty_page() {
    let program = program("program(1.3) { }");
    let data = examined(&program, "m4").json();
    assert!(data["graphs"].as_array().unwrap().is_empty());
    assert_eq!(data["summary"]["ops"], 0);
}
