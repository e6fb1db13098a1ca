//! `ferrane cost`.

use serde_json::{Value, json};

use crate::place::{Place, TINY};

const NET: &str = r#"program(1.3)
{
    func main<ios18>(tensor<fp16, [1, 8, 1, 64]> x, tensor<fp16, [8, 8, 1, 1]> w) {
        tensor<fp16, [1, 8, 1, 64]> y = conv(x = x, weight = w)[name = string("y")];
        tensor<fp16, [1, 8, 1, 64]> r = relu(x = y)[name = string("r")];
        int32 axis = const()[name = string("axis"), val = int32(1)];
        tensor<fp16, [1, 8, 1, 64]> z = softmax(x = r, axis = axis)[name = string("z")];
    } -> (z);
}
"#;

#[test]
fn a_program_has_a_time_for_each_op() {
    let place = Place::new();
    place.write("net.mil", NET);
    let told = place.run("cost --machine m4-max net.mil").ok();
    for word in ["conv", "softmax", "dispatch", "m4-max", "compile", "energy"] {
        assert!(told.out.contains(word), "{word}: {}", told.out);
    }
    let json = place.run("cost --machine m4 net.mil --json --svg roof.svg").ok().objects().remove(0);
    let ops = json["ops"].as_array().unwrap();
    let times: f64 = ops.iter().map(|op| op["us"].as_f64().unwrap()).sum();
    let total = json["total_us"].as_f64().unwrap();
    // The first microseconds of the ops pass during the dispatch.
    let [dispatch, hidden] = ["dispatch_us", "hidden_us"].map(|name| json[name].as_f64().unwrap());
    assert!((total - dispatch - times + hidden).abs() < 1e-6 && hidden > 0.0, "{json}");
    assert_eq!(ops.iter().map(|op| &op["flops"]).max_by_key(|f| f.as_u64()).unwrap(), 2 * 8 * 8 * 64);
    // The relu rides on the convolution.
    assert_eq!(ops.iter().find(|op| op["op"] == "relu").unwrap()["bound"], Value::Null);
    assert!(String::from_utf8(place.read("roof.svg")).unwrap().starts_with("<svg"));
}

#[test]
fn the_function_that_is_named_is_costed() {
    let place = Place::new();
    let wide = NET.replace("main", "wide").replace("1, 64]", "1, 4096]");
    let (_, second) = wide.split_once("{\n").unwrap();
    place.write("net.mil", NET.replace("-> (z);\n}\n", &format!("-> (z);\n{second}")));
    let flops = |more: &str| {
        let json = place.run(&format!("cost --machine m4 net.mil --json{more}")).ok().objects().remove(0);
        json["flops"].as_f64().unwrap()
    };
    assert_eq!(flops(""), flops(" --function main"));
    assert_eq!(flops(" --function wide"), 64.0 * flops(""));
    place.run("cost net.mil --function wade").refused(1, &["--function wade", "did you mean `wide`"]);
}

#[test]
fn what_cannot_be_told_is_refused() {
    let place = Place::new();
    place.write("net.mil", NET.replace("[1, 8, 1, 64]", "[?, 8, 1, 64]"));
    place.write("good.mil", NET);
    place.run("cost net.mil").refused(1, &["no fixed size"]);
    place.run("cost --machine m99 good.mil").refused(1, &["m99"]);
    place.run("cost").refused(1, &["--published"]);
    place.write("numbers.json", "{}");
    place.run("cost --published numbers.json").refused(1, &["array"]);
}

#[test]
fn published_numbers_stand_beside_predicted_ones() {
    let place = Place::new();
    let record = |what: &str, config: Value, metric: &str, value: f64, unit: &str| json!({"source": "s", "chip": "M4", "what": what, "config": config, "metric": metric, "value": value, "unit": unit});
    let records = json!([
        record("inmem_peak", json!({"channels": 512, "spatial": 64, "depth": 128}), "ms_per_eval", 0.376, "ms"),
        record("training", json!({"model": "Stories110M", "pipeline": "dynamic"}), "ms_per_step", 91.0, "ms/step"),
        record("training", json!({"model": "Qwen3-0.6B", "pipeline": "dynamic"}), "ms_per_step", 412.0, "ms/step"),
        record("golden loss", json!({}), "loss", 5.0, "nats"),
    ]);
    place.write("numbers.json", records.to_string());
    let json = place.run("cost --published numbers.json --json").ok().objects().remove(0);
    let rows = json["rows"].as_array().unwrap();
    for (row, record) in rows.iter().zip(records.as_array().unwrap()) {
        assert_eq!(&row["record"], record);
        // The whole steps are held to a fifth, the kernel to the model's bound of 15 %.
        if let Some(predicted) = row["predicted"].as_f64() {
            let published = row["published"].as_f64().unwrap();
            let bound = if row["unit"] == "ms" { 0.15 } else { 0.2 };
            assert!((predicted / published - 1.0).abs() <= bound, "{row}");
        }
    }
    assert_eq!(rows.iter().filter(|r| r["predicted"].is_number()).count(), 3);
    assert!(rows[3]["reason"].as_str().unwrap().contains("loss"));
    let told = place.run("cost --published numbers.json").ok();
    assert!(told.out.contains("3 of 4") && told.out.contains("Qwen3-0.6B"), "{}", told.out);
}

#[test]
fn training_tells_what_a_chip_would_take() {
    let place = Place::new();
    let told = place.run(&format!("{TINY} --machine m4 --out run --json")).ok();
    let predicted = told.objects().into_iter().find(|o| o["event"] == "predicted").unwrap();
    // Ten dispatches a layer at least, at a floor of tens of µs each.
    assert!(predicted["engine_ms"].as_f64().unwrap() > 0.1);
    assert!(predicted["ms_per_step"].as_f64() > predicted["engine_ms"].as_f64());
    assert!(predicted["measured_ms"].as_f64().unwrap() > 0.0);
    place.run(&format!("{TINY} --machine nope --out other")).refused(1, &["nope"]);
}
