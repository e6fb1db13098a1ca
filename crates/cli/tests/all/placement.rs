//! `ferrane place`.

use serde_json::{Value, json};

use crate::place::Place;

const NET: &str = r#"program(1.3)
{
    func main<ios18>(tensor<fp16, [1024, 1024]> x) {
        bool no = const()[name = string("no"), val = bool(false)];
        tensor<fp16, [1024, 1024]> y = matmul(transpose_x = no, transpose_y = no, x = x, y = x)[name = string("y")];
        tensor<fp16, [1024, 1024]> z = tan(x = y)[name = string("z")];
        tensor<fp16, [1024, 1024]> w = matmul(transpose_x = no, transpose_y = no, x = z, y = x)[name = string("w")];
    } -> (w);
}
"#;

#[test]
fn each_op_has_a_place_and_one_change_is_best() {
    let place = Place::new();
    place.write("net.mil", NET);
    let told = place.run("place net.mil --machine m4").ok();
    for word in ["engine", "cpu", "not eligible", "transfer 0 -> 1", "best change: replace z", "m4-macos15-coreml"] {
        assert!(told.out.contains(word), "{word}: {}", told.out);
    }
    let json = place.run("place net.mil --units all --json").ok().objects().remove(0);
    let runs: Vec<&Value> = json["ops"].as_array().unwrap().iter().map(|op| &op["runs_on"]).collect();
    assert_eq!(runs, [&json!("engine"), &json!("cpu-or-gpu"), &json!("engine")]);
    assert_eq!(json["change"]["segments"], json!([3, 1]));
    let unknown = place.run("place net.mil --framework coreai --json").ok().objects().remove(0);
    assert_eq!(unknown["ops"][0]["runs_on"], Value::Null);
}

/// The data of a page that the command wrote.
fn data(place: &Place, name: &str) -> Value {
    let html = std::fs::read_to_string(place.path(name)).unwrap();
    let (_, rest) = html.split_once("id=\"data\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn a_page_has_what_the_commands_say() {
    let place = Place::new();
    place.write("net.mil", NET);
    let placed = place.run("place net.mil --html placed.html --json").ok();
    assert!(placed.err.contains("written to placed.html") && placed.objects().len() == 1);
    let page = data(&place, "placed.html");
    let summary = &page["summary"];
    assert_eq!(
        (&summary["on_engine"], &summary["off_engine"], &summary["segments"]),
        (&json!(2), &json!(1), &json!(3))
    );
    assert_eq!(page["graphs"][0]["nodes"][2]["line"], 6);
    assert!(page["first"][0]["title"].as_str().unwrap().starts_with("Replace 1 op"), "{}", page["first"]);

    let checked = place.run("check --machine m4 net.mil --html checked.html");
    assert_eq!(checked.code, Some(1));
    let page = data(&place, "checked.html");
    assert_eq!((&page["summary"]["machine"], &page["summary"]["errors"]), (&json!("m4-macos15-inmem"), &json!(1)));
    let tan = &page["graphs"][0]["nodes"][2];
    assert_eq!(
        (&tan["op"], &page["findings"][tan["findings"][0].as_u64().unwrap() as usize]["code"]),
        (&json!("tan"), &json!("E0411"))
    );

    place.run("check --machine m4 net.mil net.mil --html both.html").refused(1, &["one program"]);
    place.run("check net.mil --html page.html").refused(2, &["--machine"]);
    place.write("wrong.mil", NET.replace("tan(", "tann("));
    let wrong = place.run("check --machine m4 wrong.mil --html wrong.html");
    assert!(wrong.code == Some(1) && wrong.err.contains("not written") && !place.path("wrong.html").exists());
}

#[test]
fn a_record_shows_what_left_the_engine() {
    let place = Place::new();
    place.write("old.mil", NET.replace("tan(", "relu("));
    place.write("new.mil", NET);
    place.run("place old.mil --record old.json").ok();
    place.run("place new.mil --record new.json").ok();
    place.run("place --diff old.json old.json").ok();
    let worse = place.run("place --diff old.json new.json");
    assert_eq!(worse.code, Some(1));
    assert!(worse.out.contains("z (tan) left the engine: engine -> cpu"), "{}", worse.out);
    let json = place.run("place --diff new.json old.json --json").ok().objects().remove(0);
    assert_eq!((&json["segments"], &json["on_engine"]), (&json!([3, 1]), &json!([2, 3])));
    place.run("place --diff old.json old.mil").refused(2, &["not a placement"]);
    place.run("place --diff old.json absent.json").refused(2, &["absent.json"]);
}

#[test]
fn what_cannot_be_placed_is_refused() {
    let place = Place::new();
    place.write("net.mil", NET);
    place.run("place").refused(1, &["--diff"]);
    place.run("place net.mil --machine m99").refused(1, &["m99"]);
    place.run("place net.mil --function absent").refused(1, &["absent"]);
    place.run("place net.mil --framework tflite").refused(2, &["coreml, coreai"]);
}

/// Core ML's plan needs a Mac; elsewhere the command says so.
#[cfg(not(target_vendor = "apple"))]
#[test]
fn a_plan_comes_from_a_mac() {
    let place = Place::new();
    place.write("net.mil", NET);
    place.run("place net.mil --plan").refused(1, &["Core ML, a framework of macOS; this is"]);
    place.run("place net.mil --plan --framework coreai").refused(1, &["Core AI publishes no plan"]);
}
