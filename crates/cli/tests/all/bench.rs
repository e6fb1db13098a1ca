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

    // The steps are those of the function that was asked for, and values that are not finite are
    // reported.
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
    place.run("bench program open.mil").refused(1, &["input `x`", "whose shape is open"]);
    place.run("bench program open.mil --input x=[[[[1]]]]").refused(1, &["input `x`"]);
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
    bench("p.mil --repeat 0").refused(1, &["--repeat 0: measures nothing"]);
    bench("p.mil --repeat 99999999999").refused(1, &["--repeat 99999999999: at most"]);
    bench("p.mil --input z=1").refused(1, &["`main` has no input `z`", "there are x, scale"]);
    bench("p.mil --device reference").refused(1, &["--device reference is for training"]);
    bench("p.mil --device emulator?faults=evaluate:1=0x1d").refused(1, &["0x1d"]);
    let huge = PROGRAM.replace("[1, 8, 1, 32]", "[1, 99999999, 1, 32]");
    place.write("huge.mil", huge);
    bench("huge.mil").refused(1, &["inputs have more than"]);
    place.write("broken.mil", &PROGRAM[..200]);
    bench("broken.mil").refused(1, &["broken.mil: the program is not right"]);
}

#[test]
fn dispatch_measures_each_way_of_evaluating() {
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
fn products_stand_beside_ceilings_of_the_same_run() {
    let place = Place::new();
    let line = "bench gemm --shape 8x16x32 --shape 3*4x5x6:nt --shape 1x64x32:tt --repeat 3 --json --roofline roof.svg";
    let found = one(&place, line);
    machine(&found);
    positive(&found["ceiling"], "gflops");
    let reads = found["ceiling"]["read_gb_per_s"].as_object().unwrap();
    assert!(reads.len() >= 2 && reads.values().all(|rate| rate.as_f64().unwrap() > 0.0), "{reads:?}");
    let products = found["products"].as_array().unwrap();
    let names: Vec<_> = products.iter().map(|p| (p["shape"].as_str().unwrap(), p["type"].as_str().unwrap())).collect();
    let shapes = ["8x16x32", "3*4x5x6:nt", "1x64x32:tt"];
    let expected: Vec<_> = shapes.iter().flat_map(|s| ["fp32", "fp16", "int8"].map(|t| (*s, t))).collect();
    assert_eq!(names, expected);
    for product in products {
        spread(product, "ms", 3);
        for name in ["gflops", "gb_per_s", "ceiling_share", "roof_share", "bytes"] {
            positive(product, name);
        }
    }
    // Each factor once, and the result.
    assert_eq!(products[0]["bytes"], 4 * (8 * 16 + 16 * 32 + 8 * 32));
    assert_eq!(products[5]["bytes"], 3 * (4 * 4 * 5 + 5 * 6 + 4 * 4 * 6));
    let plot = String::from_utf8(place.read("roof.svg")).unwrap();
    assert!(plot.starts_with("<svg") && plot.contains("3*4x5x6:nt") && plot.contains("GB/s"), "{plot}");

    let shown = place.run("bench gemm --shape 4x4x4 --type fp16 --repeat 1 --cold").ok();
    for words in ["GFLOP/s of fp32 multiply-adds", "reads, in GB/s", "4x4x4", "of roof"] {
        assert!(shown.out.contains(words), "no `{words}` in {}", shown.out);
    }
    let gemm = |what: &str| place.run(&format!("bench gemm {what}"));
    gemm("--shape 0x1x2").refused(2, &["'0x1x2' for '--shape <MxKxN>'", "extent of 0"]);
    gemm("--shape 1x2").refused(2, &["expected MxKxN"]);
    gemm("--shape 99999999999x1x1").refused(2, &["not a whole number from 1 to"]);
    gemm("--shape 1048576x1048576x2").refused(2, &["operations are more than"]);
    gemm("--shape 524288x1x524288 --repeat 1").refused(1, &["its matrices have more than"]);
    gemm("--shape 2x2x2 --repeat 0").refused(1, &["--repeat 0"]);
    gemm("--shape 2x2x2 --type fp64").refused(2, &["'fp64'", "int8"]);
    gemm("--shape 2x2x2 --repeat 1 --roofline none/x.svg").refused(1, &["none/x.svg"]);
}

#[test]
fn a_step_is_measured_with_each_pipeline() {
    let place = Place::new();
    for pipeline in ["dynamic", "static", "static-extras", "fused"] {
        let line = "bench step --model stories260k --vocab 100 --seq 16 --repeat 1 --json --pipeline";
        let found = one(&place, &format!("{line} {pipeline}"));
        assert_eq!(found["pipeline"], pipeline);
        spread(&found["micro_step"], "ms", 1);
        spread(&found["update"], "ms", 1);
    }
    let found = one(&place, "bench step --model stories260k --seq 16 --repeat 1 --json --device reference");
    assert_eq!(found.get("pipeline"), None);
    let shown = place.run("bench step --model stories260k --vocab 100 --seq 16 --repeat 1 --pipeline fused").ok();
    assert!(shown.out.starts_with("stories260k on emulator, fused pipeline: 16 tokens"), "{}", shown.out);
}

#[test]
fn a_sweep_has_points_and_a_line() {
    let place = Place::new();
    let line = "bench step --model stories260k --vocab 100 --seq 16 --repeat 1 --sweep layers --plot layers.svg --json";
    let found = one(&place, line);
    let layers: Vec<u64> = found["points"].as_array().unwrap().iter().map(|p| p["layers"].as_u64().unwrap()).collect();
    assert_eq!((layers, &found["sweep"]), (vec![1, 2, 3, 4, 5], &"layers".into()));
    spread(&found["points"][0]["micro_step"], "ms", 1);
    let fit = &found["micro_step_fit"];
    assert!(fit["ms_per_layer"].is_number() && fit["fixed_ms"].is_number(), "{fit}");
    assert!(fit["r2"].as_f64().unwrap() <= 1.0 && fit["worst_deviation"].as_f64().unwrap() >= 0.0, "{fit}");
    let plot = String::from_utf8(place.read("layers.svg")).unwrap();
    assert!(plot.starts_with("<svg") && plot.contains("layers"), "{plot}");

    let shown = place.run("bench step --model stories260k --vocab 100 --seq 8 --repeat 1 --sweep tokens").ok();
    for words in ["     8 tokens: micro-step", "ms a token, R²", "update: "] {
        assert!(shown.out.contains(words), "no `{words}` in {}", shown.out);
    }
    place.run("bench step --plot x.svg").refused(2, &["--sweep"]);
    place.run("bench step --sweep depth").refused(2, &["tokens", "layers"]);
}

#[test]
fn every_command_teaches_its_use() {
    let place = Place::new();
    let list = place.run("bench --help").ok();
    for command in ["step", "gemm", "program", "dispatch"] {
        assert!(list.out.contains(&format!("  {command} ")), "{}", list.out);
        let help = place.run(&format!("bench {command} --help")).ok();
        for words in ["--json", "--repeat", "Examples:"] {
            assert!(help.out.contains(words), "{command}: no `{words}` in {}", help.out);
        }
    }
    place.run("bench step --repeat 0").refused(1, &["--repeat 0"]);
}

#[test]
fn generation_is_held_against_the_rate_of_memory() {
    let place = Place::new();
    let line = "bench llm stories260k --type fp16,int8,int4 --prompt 40 --tokens 3 --batch 2,4 --machine m4 --json";
    let found = one(&place, line);
    machine(&found);
    assert_eq!((&found["prompt"], &found["tokens"]), (&40.into(), &3.into()));
    let mut bytes = Vec::new();
    for (run, weights) in found["runs"].as_array().unwrap().iter().zip(["fp16", "int8", "int4"]) {
        spread(&run["prefill"], "tokens_per_second", 5);
        spread(&run["decode"], "tokens_per_second", 9);
        spread(&run["read"], "gb_per_second", 9);
        positive(run, "bandwidth_share");
        bytes.push(positive(run, "weight_bytes_per_token"));
        assert_eq!(run["type"], weights);
        for (batch, sequences) in run["batches"].as_array().unwrap().iter().zip([2, 4]) {
            assert_eq!(batch["sequences"], sequences);
            spread(&batch["decode"], "tokens_per_second", 6);
            positive(batch, "times_one");
        }
    }
    // Units of rows of 64 weights and more are less than a tenth.
    assert!(bytes.len() == 3 && bytes[1] > 0.5 * bytes[0] && bytes[1] < 0.55 * bytes[0], "{bytes:?}");
    for (row, weights) in found["predicted"].as_array().unwrap().iter().zip(["fp16", "int8", "int4"]) {
        assert_eq!((&row["machine"], &row["type"]), (&"m4".into(), &weights.into()));
        assert!(positive(row, "prefill_tokens_per_second") > positive(row, "decode_tokens_per_second"), "{row}");
    }
    let text = place.run("bench llm stories260k --prompt 2 --tokens 1").ok().out;
    assert!(text.contains("prefill") && text.contains("a token reads"), "{text}");
    // A model's own weights.
    let bot = crate::chat::place();
    let found = one(&bot, "bench llm bot --prompt 8 --tokens 2 --json");
    assert_eq!(found["model"], "bot");
    place.run("bench llm --prompt 0").refused(1, &["--prompt 0", "give 1 to"]);
    let far = format!("bench llm --machine m4 --prompt {}", usize::MAX);
    place.run(&far).refused(1, &["--prompt 18446744073709551615", "give 1 to"]);
    place.run("bench llm --tokens 0").refused(1, &["--tokens 0"]);
    place.run("bench llm stories").refused(1, &["unknown preset"]);
    place.run("bench llm --device reference").refused(1, &["name a device"]);
    place.run("bench llm stories260k --batch 1").refused(1, &["--batch 1", "give 2 to 16"]);
    place.run("bench llm stories260k --machine m0").refused(1, &["--machine", "m0"]);
}

#[test]
fn the_suite_lists_measures_and_keeps_its_report() {
    let place = Place::new();
    let listed = place.run("bench suite --list").ok().out;
    for words in ["sram-probe", "inmem_bench (§2)", "Where do weights leave the chip"] {
        assert!(listed.contains(words), "{words} in {listed}");
    }
    place.run("bench suite inmen").refused(1, &["no benchmark `inmen`", "did you mean `inmem`?", "--list"]);
    place.run("bench suite --most-gflop 0").refused(1, &["--most-gflop must be a positive number"]);
    place.run("bench suite --repeat 0").refused(1, &["--repeat 0"]);
    let device = "--device emulator?machine=m4-max&pace=on";
    let line = format!("bench suite inmem sdpa-masks {device} --most-gflop 0.05 --repeat 3 --out suite.json");
    let outcome = place.run(&line).ok();
    for words in ["conv channels 256, positions 64, depth 1", "published", "floor_ms", "by `dispatch_us`", "suite.json"]
    {
        assert!(outcome.out.contains(words), "{words} in {}", outcome.out);
    }
    assert!(outcome.err.contains("[2/2] sdpa-masks"), "{}", outcome.err);
    let report: Value = serde_json::from_slice(&place.read("suite.json")).unwrap();
    assert_eq!((&report["format"], &report["chip"]), (&"ferrane-bench-suite".into(), &"m4-max".into()));
    let row = &report["results"][0]["rows"][0];
    spread(&row["evaluation"], "ms", 3);
    assert_eq!(row["device"]["median_ms"], row["predicted_ms"]);
    assert!(row["check"]["error"].as_f64().unwrap() < 1e-3, "{row}");
    assert!(row["published"][0]["source"].is_string(), "{row}");
    // A result that is wrong makes the command fail.
    let faulty = place
        .shell("\"$FERRANE\" bench suite causal-attention --repeat 1 --device 'emulator?faults=evaluate:from 1=nan'");
    assert_eq!(faulty.code, Some(1), "{}", faulty.out);
    assert!(faulty.out.contains("WRONG") && faulty.err.contains("the first in `causal-attention`"), "{}", faulty.err);
}

#[test]
fn a_report_of_the_doctor_has_the_benchmarks_and_is_examined() {
    let place = Place::new();
    let device = "--device emulator?machine=m4-max&pace=on";
    place.run(&format!("doctor {device} --probes concat --bench chaining --json report.json")).ok();
    let report: Value = serde_json::from_slice(&place.read("report.json")).unwrap();
    assert_eq!(report["benchmarks"]["results"][0]["name"], "chaining", "{report}");
    // It is still a machine.
    place.run("machine show report.json").ok();
    let shown = place.run("doctor --submit-check report.json");
    for words in ["m4-max-macos15-inmem", "ferrane doctor --probes", "--bench inmem,", "confirms"] {
        assert!(shown.out.contains(words), "{words} in {}", shown.out);
    }
    assert_eq!(shown.code, Some(1));
    assert!(shown.err.contains("not fit to be sent"), "{}", shown.err);
    place.run("doctor --bench inmen").refused(1, &["did you mean `inmem`?"]);
    place.write("other.json", "{}");
    place.run("doctor --submit-check other.json").refused(1, &["other.json", "no report of `ferrane doctor`"]);
}

#[test]
fn a_proof_says_what_speaks_for_an_engine() {
    let place = Place::new();
    place.write("p.mil", PROGRAM);
    let device = "--device emulator?machine=m4&pace=on&numerics=hardware";
    let shown = place.run(&format!("run p.mil --input x=random:1 --input scale=random:2 --proof {device}")).ok().out;
    for words in ["written", "follows-inputs", "cannot show", "the device reports 0.0", "no Neural Engine"] {
        assert!(shown.contains(words), "{words} in {shown}");
    }
    let found = one(&place, &format!("run p.mil --input x=random:1 --input scale=random:2 --proof --json {device}"));
    assert_eq!(found["on_engine"], false);
    assert_eq!(found["evidence"].as_array().unwrap().len(), 8, "{found}");
    place.run("run p.mil --proof --audit").refused(2, &["--proof", "--audit"]);
}
