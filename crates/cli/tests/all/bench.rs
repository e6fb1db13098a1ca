//! `ferrane bench`: what its reports hold, and what it refuses. No test looks at a speed.

use serde_json::Value;

use crate::place::Place;

/// Two functions; `odd` makes an infinity of everything.
const PROGRAM: &str = "program(1.3)
{
    func main<ios18>(tensor<fp16, [1, 8, 1, 32]> x, tensor<fp32, [32]> scale) {
        tensor<fp16, [32]> s = cast(x = scale, dtype = string(\"fp16\"))[name = string(\"s\")];
        tensor<fp16, [1, 8, 1, 32]> m = mul(x = x, y = s)[name = string(\"m\")];
        tensor<fp16, [1, 8, 1, 32]> y = softmax(x = m, axis = int32(-1))[name = string(\"y\")];
    } -> (y);
    func odd<ios18>(tensor<fp16, [1, 1, 1, 32]> x) {
        tensor<fp16, [1, 1, 1, 32]> y = real_div(x = x, y = fp16(0))[name = string(\"y\")];
    } -> (y);
}
";

/// The field `NAME` is a number above 0.
#[track_caller]
fn positive(object: &Value, name: &str) -> f64 {
    let value = object[name].as_f64().unwrap_or_else(|| panic!("no number {name} in {object}"));
    assert!(value > 0.0, "{name} in {object}");
    value
}

/// Median, lowest and highest are in order.
#[track_caller]
fn spread(object: &Value, unit: &str, repeats: u64) {
    let [low, middle, high] = ["lowest", "median", "highest"].map(|name| positive(object, &format!("{name}_{unit}")));
    assert!(low <= middle && middle <= high, "{object}");
    assert_eq!(object["repeats"], repeats, "{object}");
}

#[track_caller]
fn machine(object: &Value) {
    let machine = &object["machine"];
    assert!(machine["threads"].as_u64().unwrap() > 0 && machine["arch"].is_string(), "{machine}");
    assert!(machine["processor"].is_string() || !cfg!(target_os = "linux"), "{machine}");
}

#[track_caller]
fn one(place: &Place, line: &str) -> Value {
    let outcome = place.run(line).ok();
    assert_eq!(outcome.err, "");
    let mut objects = outcome.objects();
    assert_eq!(objects.len(), 1);
    objects.remove(0)
}

#[test]
fn any_program_is_timed_with_its_stages_and_steps() {
    let place = Place::new();
    place.write("p.mil", PROGRAM);
    let found = one(&place, "bench program p.mil --repeat 3 --steps --json");
    spread(&found, "ms", 3);
    machine(&found);
    for stage in ["read_ms", "compile_ms", "load_ms", "prepare_ms"] {
        positive(&found, stage);
    }
    assert_eq!((&found["function"], &found["not_finite"], &found["seed"]), (&"main".into(), &0.into(), &1.into()));
    let steps = found["steps"].as_array().unwrap();
    assert!(steps.iter().any(|s| s["op"] == "softmax" && s["value"] == "y"), "{found}");
    steps.iter().for_each(|step| assert!(step["us"].is_number() && step["read_bytes"].is_number(), "{step}"));

    // The steps are those of the function that was asked for, and what is not finite is told.
    let found = one(&place, "bench program p.mil --function odd --steps --json --repeat 1 --input x=1 --seed 9");
    assert_eq!(found["function"], "odd");
    let found = one(&place, "bench program p.mil --function odd --repeat 1 --json --input x=1");
    assert_eq!(found["not_finite"], 32);
    assert!(found.get("steps").is_none());

    let shown = place.run("bench program p.mil --steps").ok();
    for words in ["main of p.mil on emulator", "evaluation", "ms (", "once", "compile", "steps,", "softmax -> y"] {
        assert!(shown.out.contains(words), "no `{words}` in {}", shown.out);
    }
    let shown = place.run("bench program p.mil --function odd --repeat 2").ok();
    assert!(shown.out.contains("numbers of the outputs are not finite"), "{}", shown.out);

    // Extents that are open: the emulator calls it on arrays.
    place.write("open.mil", PROGRAM.replace("[1, 8, 1, 32]", "[1, ?, 1, 32]"));
    place.run("bench program open.mil").refused(1, &["input x", "whose shape is open"]);
    place.run("bench program open.mil --input x=[[[[1]]]]").refused(1, &["input x"]);
    let row = vec!["1"; 32].join(",");
    let found = one(&place, &format!("bench program open.mil --input x=[[[[{row}]]]] --repeat 2 --json"));
    spread(&found, "ms", 2);
}

#[test]
fn programs_that_cannot_be_timed() {
    let place = Place::new();
    place.write("p.mil", PROGRAM);
    let bench = |what: &str| place.run(&format!("bench program {what}"));
    bench("none.mil").refused(1, &["none.mil", "no such file"]);
    bench("p.mil --function mian").refused(1, &["did you mean `main`"]);
    bench("p.mil --repeat 0").refused(1, &["--repeat 0 measures nothing"]);
    bench("p.mil --repeat 99999999999").refused(1, &["--repeat 99999999999: at most"]);
    bench("p.mil --input z=1").refused(1, &["--input z: no such input (there are x, scale)"]);
    bench("p.mil --device reference").refused(1, &["--device reference is for training"]);
    bench("p.mil --device emulator?faults=evaluate:1=0x1d").refused(1, &["0x1d"]);
    let huge = PROGRAM.replace("[1, 8, 1, 32]", "[1, 99999999, 1, 32]");
    place.write("huge.mil", huge);
    bench("huge.mil").refused(1, &["inputs have more than"]);
    place.write("broken.mil", &PROGRAM[..200]);
    bench("broken.mil").refused(1, &["broken.mil: the program is not right"]);
}

#[test]
fn dispatch_tells_each_way_of_evaluating() {
    let place = Place::new();
    let found = one(&place, "bench dispatch --repeat 50 --json");
    machine(&found);
    for way in ["evaluate", "submit", "complete", "clock"] {
        spread(&found[way], "us", 50);
        assert!(positive(&found[way], "p99_us") >= found[way]["median_us"].as_f64().unwrap());
    }
    let shown = place.run("bench dispatch --repeat 10").ok();
    for words in ["median", "p99", "evaluate", "submit", "complete", "clock alone"] {
        assert!(shown.out.contains(words), "no `{words}` in {}", shown.out);
    }
    place.run("bench dispatch --repeat 0").refused(1, &["--repeat 0"]);
    place.run("bench dispatch --device nothing").refused(1, &["unknown device `nothing`"]);
    place.run("bench dispatch --device emulator?faults=evaluate:3=0x1d").refused(1, &["0x1d"]);
}

#[test]
fn every_command_teaches_its_use() {
    let place = Place::new();
    let list = place.run("bench --help").ok();
    for command in ["step", "program", "dispatch"] {
        assert!(list.out.contains(&format!("  {command} ")), "{}", list.out);
        let help = place.run(&format!("bench {command} --help")).ok();
        for words in ["--json", "--device", "--repeat"] {
            assert!(help.out.contains(words), "{command}: no `{words}` in {}", help.out);
        }
    }
    place.run("bench step --repeat 0").refused(1, &["--repeat 0"]);
}
