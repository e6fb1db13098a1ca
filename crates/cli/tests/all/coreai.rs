//! `.aimodel` folders: the commands that take a program take them like packages.

use ferrane::coreai::asset;
use ferrane::coreai::build::Builder;
use ferrane::coreai::dialect::ElementType;
use serde_json::json;

use crate::place::Place;

/// With `net.aimodel`, which computes `tanh(x + w)` of fp32 `[?, 8]` in `main` and `x · x` in
/// `square`; and `odd.aimodel`, which has operations that MIL does not have.
fn place() -> Place {
    let place = Place::new();
    let metadata = json!({"assetVersion": "2.0"});
    let mut builder = Builder::new();
    let (open, row) = (
        builder.tensor(&[None, Some(8)], ElementType::Float32),
        builder.tensor(&[Some(1), Some(8)], ElementType::Float32),
    );
    let mut main = builder.graph("main", &[("x", open)]);
    let x = main.inputs()[0];
    let weights: Vec<u8> = (0..8u8).flat_map(|n| (f32::from(n) / 8.0).to_le_bytes()).collect();
    let w = builder.weight(&mut main, "w", row, weights);
    let sum = builder.op(&mut main, "broadcasting_add_v1", &[x, w], &[], open);
    let y = builder.op(&mut main, "primitive.tanh_v1", &[sum], &[], open);
    builder.output(main, &[("y", y)]);
    let mut square = builder.graph("square", &[("x", row)]);
    let x = square.inputs()[0];
    let y = builder.op(&mut square, "primitive.mul_v1", &[x, x], &[], row);
    builder.output(square, &[("y", y)]);
    asset::write(place.path("net.aimodel"), &builder.finish(), &metadata).unwrap();

    let mut builder = Builder::new();
    let row = builder.tensor(&[Some(8)], ElementType::Float32);
    let mut main = builder.graph("main", &[("x", row)]);
    let x = main.inputs()[0];
    let real = builder.op(&mut main, "primitive.real_part_v1", &[x], &[], row);
    let fine = builder.op(&mut main, "primitive.tanh_v1", &[x], &[], row);
    let imaginary = builder.op(&mut main, "primitive.imaginary_part_v1", &[fine], &[], row);
    let sum = builder.op(&mut main, "primitive.add_v1", &[real, imaginary], &[], row);
    builder.output(main, &[("y", sum)]);
    asset::write(place.path("odd.aimodel"), &builder.finish(), &metadata).unwrap();
    place
}

#[test]
fn a_model_runs_and_is_checked_and_estimated() {
    let place = place();
    let ran = place.run("run net.aimodel --shape x=2x8 -i x=0 --json").ok().objects().remove(0);
    assert_eq!(ran["outputs"][0]["shape"], json!([2, 8]), "{ran}");
    let second = ran["outputs"][0]["first"][1].as_f64().unwrap();
    assert!((second - 0.125f64.tanh()).abs() < 1e-6, "{ran}");
    let ran = place.run("run net.aimodel --function square --shape x.0=1 -i x=3 --json").ok().objects().remove(0);
    assert_eq!(ran["outputs"][0]["first"][0], json!(9.0), "{ran}");
    for command in ["check net.aimodel --shape x=2x8", "check --machine m4 net.aimodel --shape x=2x8"] {
        place.run(command).ok();
    }
    let cost = place.run("cost net.aimodel --machine m4 --shape x=64x8 --json").ok().objects().remove(0);
    assert!(cost.to_string().contains("ms"), "{cost}");
    let audit = place.run("run net.aimodel --shape x=2x8 -i x=random:1 --audit --machine m4").ok().out;
    assert!(audit.contains("tanh"), "{audit}");
}

#[test]
fn a_package_of_a_model_gives_the_same_numbers() {
    let place = place();
    place.run("convert net.aimodel -o net.mlpackage --shape x=3x8").ok();
    let same = place.run("diff net.aimodel net.mlpackage --shape x=3x8 --run 2 --json").ok().objects().remove(0);
    assert_eq!((&same["same"], &same["outputs"][0]["max"]), (&json!(true), &json!(0.0)), "{same}");
    place.run("convert net.aimodel -o net.mil --shape x=3x8").ok();
    let text = String::from_utf8(place.read("net.mil")).unwrap();
    assert!(text.contains("func main<ios18>(tensor<fp32, [3, 8]> x)") && text.contains("func square"), "{text}");
    place.run("convert net.aimodel -o net16.mil --shape x=3x8 --fp16").refused(1, &["--fp16 is for ONNX models"]);
}

#[test]
fn extents_are_named_when_they_are_open() {
    let place = place();
    for command in ["run net.aimodel -i x=random:1", "check net.aimodel", "convert net.aimodel -o m.mil"] {
        let refused = place.run(command);
        assert_eq!(refused.code, Some(1), "{command}");
        let said = format!("{}{}", refused.out, refused.err);
        assert!(said.contains("E0907") && said.contains("`x.0`") && said.contains("x.0=1"), "{command}: {said}");
    }
    assert!(!place.path("m.mil").exists());
    place.run("run net.aimodel --shape x -i x=1").refused(1, &["--shape x", "write `x.0=1` for one"]);
    place.run("run net.aimodel --shape x=2x9 -i x=1").refused(1, &["E0907", "x.1 (extent): it is 8, not 9"]);
    place.run("run net.aimodel --shape x=2x8,y=3 -i x=1").refused(1, &["E0907", "no such extent"]);
    place.run("run none.aimodel -i x=1").refused(1, &["none.aimodel: no such file"]);
}

#[test]
fn everything_that_has_no_program_is_listed_at_once() {
    let place = place();
    for command in ["run odd.aimodel -i x=1", "convert odd.aimodel -o odd.mil", "check odd.aimodel"] {
        let refused = place.run(command);
        assert_eq!(refused.code, Some(1), "{command}");
        let said = format!("{}{}", refused.out, refused.err);
        for word in ["primitive.real_part_v1", "MIL has no complex numbers", "primitive.imaginary_part_v1", "E0908"] {
            assert!(said.contains(word), "{command}: no {word} in {said}");
        }
        assert!(!said.contains("tanh") && !said.contains("add_v1"), "{command}: {said}");
    }
    assert!(!place.path("odd.mil").exists());
}

#[test]
fn damaged_models_are_named() {
    let place = place();
    let whole = place.read("net.aimodel/main.mlirb");
    place.write("net.aimodel/main.mlirb", &whole[..whole.len() / 2]);
    for command in ["run", "check", "convert -o out.mil", "cost --machine m4"] {
        place.run(&format!("{command} net.aimodel --shape x=1x8")).refused(1, &["net.aimodel", "E09"]);
    }
}
