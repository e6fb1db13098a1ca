//! Descriptions of programs: prose, JSON, pictures and differences.

use ferrane_hwx::container::Hwx;
use ferrane_hwx::describe::{self, Detail, HwxReport, NamedLocation};
use ferrane_hwx::text;
use ferrane_testdata::Suite;

use crate::{samples, synthetic};

fn h13() -> Hwx {
    Hwx::read(&synthetic::h13()).unwrap()
}

#[test]
fn words_name_tensors_and_geometry() {
    let text = describe::prose(&h13(), Detail::default());
    for line in [
        "compiled program for H13 (A14, M1)",
        "by zin_ane_compiler v4.2, target h13",
        "program net, 2 tasks",
        "input  image: fp16[1, 3, 1, 1], 0xc0 bytes, row 0x40, plane 0x40, bar 5",
        "output probs@output: fp16[1, 3, 1, 1], 0xc0 bytes, row 0x40, plane 0x40, bar 4",
        "constants __TEXT,__const, bar 1",
        "task 1 at 0x300",
        "1×1 convolution: image → probs@output",
        "reads image: 3 channels of 1×1 fp16, strides row 0x40, plane 0x40, depth 0xc0",
        "weights __TEXT,__const: 1 lane,",
        "writes probs@output: 3 channels of 1×1 fp16",
        "unknown load commands, kept as bytes: 0x77",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("Common.ConvCfg"));
    let all = describe::prose(&h13(), Detail { registers: true });
    assert!(all.contains("Common.ConvCfg = 0x5000a021 (Kw 1, Kh 1, Sx 1"), "{all}");

    let text = describe::prose(&Hwx::read(&synthetic::h16()).unwrap(), Detail::default());
    for line in [
        "compiled program for H16 (A17 Pro, M4)",
        "element-wise multiplication: L2 (default), L2 (default) → y + 0x40",
        "reads x: 64 channels of 1×1",
        "then multiplies by 1.44",
        "9 lanes",
        "__KERN_0,__kern_0",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[test]
fn json_says_the_same() {
    let json = describe::json(&h13());
    assert_eq!(json["generation"], "h13");
    assert_eq!(json["programs"][0]["bindings"]["ports"][0]["tensor"]["nchwd"], serde_json::json!([1, 3, 1, 1, 1]));
    let task = &json["texts"][0]["tasks"][0];
    assert_eq!(task["sources"][0]["place"], serde_json::json!({ "buffer": { "name": "image", "offset": 0 } }));
    assert_eq!(task["registers"]["Common.ConvCfg"], 0x5000_a021);
    assert_eq!(task["kernel"]["lanes"], serde_json::json!([[0, 0, 0]]));
}

#[test]
fn pictures_connect_tasks_and_buffers() {
    let dot = describe::dot(&h13());
    for line in ["b0 [shape = box, style = rounded, label = \"image\"]", "b0 -> t0;", "t0 -> b2;", "b1 -> t1;"] {
        assert!(dot.contains(line), "{line} is not in\n{dot}");
    }
    // Markup in a hostile name is escaped.
    let text = text::print(&h13()).replace("\"image\"", "\"<a>&b\\x22\"");
    let odd = text::assemble(&text).unwrap();
    let svg = describe::svg(&odd);
    assert!(svg.contains("&lt;a&gt;&amp;b&quot;") && !svg.contains("<a>"), "{svg}");
    assert!(describe::dot(&odd).contains("label = \"<a>&b\\\"\""));
    assert_eq!(svg.matches("<rect").count(), 1 + 3 + 2);
}

#[test]
fn differences_are_told_by_name() {
    assert_eq!(describe::diff(&h13(), &h13()), []);
    let text = text::print(&h13());
    let other = text.replacen("ConvCfg { Kw = 1;", "ConvCfg { Kw = 3;", 1).replacen("    hex \"00", "    hex \"01", 1);
    let other = other.replacen("bar 4 = ", "bar 6 = ", 1);
    let told: Vec<String> =
        describe::diff(&h13(), &text::assemble(&other).unwrap()).iter().map(|d| d.to_string()).collect();
    for line in [
        "task 0, Common.ConvCfg.Kw: 1 → 3",
        "program net, bar   4: probs@output → nothing",
        "program net, bar   6: nothing → probs@output",
    ] {
        assert!(told.iter().any(|t| t == line), "{line} is not in {told:#?}");
    }
    assert!(
        told.iter()
            .any(|t| t.starts_with("contents of __TEXT,__const: 0xc0 bytes, 1 of them different, from 0x0 on: 00"))
    );
    assert_eq!(told.len(), 4, "{told:#?}");
}

/// Every task of every sample has a description of its operation and operands; a task reads or
/// writes each tensor of the program.
#[test]
fn samples_are_told() {
    let Some(mut suite) = Suite::open("hwx-words", "hwx") else { return };
    for (name, bytes) in samples::programs(&suite) {
        let Some(hwx) = samples::read(&mut suite, &name, &bytes) else { continue };
        let report = HwxReport::of(&hwx);
        let check = || {
            let mut met = std::collections::BTreeSet::new();
            for task in report.texts.iter().flat_map(|t| &t.tasks) {
                if task.engine == "unknown" || task.sources.is_empty() || task.destination.is_none() {
                    return Err(format!("task {} has no description: {}", task.id, task.summary));
                }
                let places = task.sources.iter().chain(&task.destination).map(|o| &o.place);
                // The second operand of a matrix product is read as its kernel.
                let places = places.chain(task.kernel.iter().filter_map(|k| k.place.as_ref()));
                met.extend(places.filter_map(|p| match p {
                    NamedLocation::Buffer { name, .. } => Some(name.clone()),
                    NamedLocation::L2 { .. } => None,
                }));
            }
            for port in report.programs.iter().flat_map(|p| &p.bindings.ports) {
                if !met.contains(&port.name) {
                    return Err(format!("no task reads or writes {}", port.name));
                }
            }
            if !describe::diff(&hwx, &hwx).is_empty() {
                return Err("it differs from itself".to_string());
            }
            Ok(())
        };
        suite.case(&name, check());
    }
    suite.finish();
}

/// The outputs quoted in docs/hwx.md equal the descriptions of the samples that they name.
#[test]
fn documented_outputs_are_what_is_said() {
    let Some(mut suite) = Suite::open("hwx-docs", "hwx") else { return };
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/hwx.md");
    let page = std::fs::read_to_string(path).expect("docs/hwx.md");
    // A block that begins with a file name.
    for block in page.split("```text\n").skip(1) {
        let Some((name, said)) = block.split("```").next().and_then(|b| b.split_once('\n')) else { continue };
        let Some(file) = name.strip_prefix("$ ").and_then(|n| n.split(' ').next_back()) else { continue };
        let Ok(bytes) = std::fs::read(suite.folder().join(file)) else {
            suite.skip(file, "it is not in this folder");
            continue;
        };
        let told = Hwx::read(&bytes).map(|hwx| describe::prose(&hwx, Detail::default())).map_err(|e| e.to_string());
        suite.case(file, told.and_then(|t| if t == said { Ok(()) } else { Err(format!("it is now\n{t}")) }));
    }
    suite.finish();
}
