//! Packages that coremltools converted from PyTorch (`scripts/export_flow.py`), against what
//! PyTorch computed: recurrence, loops, branches, lists, states, flexible shapes, images, class
//! labels.

use std::path::{Path, PathBuf};

use ferrane_device::{Call, Device, Returned, Tensor};
use ferrane_emulator::{Emulator, EmulatorOptions};
use ferrane_mil::classifier::{self, Classifier, Label};
use ferrane_mil::package::{self, ColorSpace, Description, ShapeChoice, choose_shapes, input_shapes};
use ferrane_mil::{Dim, Program, check, specialize};
use ferrane_tensor_io::{Fit, Image, TensorSource, Unnamed, arguments, given_shapes, read, with_images};

/// An error of fp32 sums in another order, of values around 1.
const FP32: f32 = 1e-5;
/// Some roundings to fp16, 2^-11 each, add up.
const FP16: f32 = 2e-3;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/converted")
}

/// A package that is right, its function `main`, and its description.
fn opened(name: &str) -> (Program, Description) {
    let opened = package::open(folder().join(format!("{name}.mlpackage"))).unwrap();
    let function = opened.program.function("main").unwrap();
    let found: Vec<_> = check(function, &opened.program.weights).into_iter().map(|(_, e)| e.to_string()).collect();
    assert_eq!(found, Vec::<String>::new(), "{name}");
    (opened.program, opened.description.unwrap())
}

fn emulator() -> Emulator {
    Emulator::new(EmulatorOptions::default())
}

/// The program for the shapes that the choices name, the values have, or the description prefers.
fn shaped(
    program: &Program,
    description: &Description,
    choices: &str,
    sources: &[(String, TensorSource)],
) -> Result<Program, String> {
    let function = program.function("main").unwrap();
    let choices = match choices {
        "" => Vec::new(),
        text => ShapeChoice::parse_list(text).map_err(|e| e.to_string())?,
    };
    let given = given_shapes(function, sources).unwrap();
    let chosen =
        choose_shapes(&input_shapes(function, Some(description)), &choices, &given).map_err(|e| e.to_string())?;
    specialize(program, "main", &chosen, &emulator()).map_err(|e| e.to_string())
}

fn run(program: &Program, sources: &[(String, TensorSource)], unnamed: Unnamed) -> Returned {
    let call = arguments(program.function("main").unwrap(), sources, unnamed).unwrap();
    Device::new(emulator()).call(program, call).unwrap()
}

/// The largest difference, as a share of the largest magnitude or of 1.
fn distance(found: &Tensor, wanted: &Tensor) -> f32 {
    assert_eq!(found.shape(), wanted.shape());
    let (found, wanted) = (found.to_f32(), wanted.to_f32());
    let scale = wanted.iter().fold(1f32, |m, v| m.max(v.abs()));
    found
        .iter()
        .zip(&wanted)
        .map(|(a, b)| if (a - b).is_nan() { f32::INFINITY } else { (a - b).abs() })
        .fold(0.0, f32::max)
        / scale
}

/// Runs every recorded case of a package; returns their number.
fn cases(name: &str, tolerance: f32) -> usize {
    let (program, description) = opened(name);
    for case in 0.. {
        let file = folder().join(format!("{name}.{case}.npz"));
        if !file.exists() {
            return case;
        }
        let function = program.function("main").unwrap();
        let names = function.inputs.iter().map(|v| function.value(*v).name.clone());
        let sources: Vec<_> =
            names.map(|n| (n.clone(), TensorSource::File(file.clone(), Some(format!("in.{n}"))))).collect();
        let fixed = shaped(&program, &description, "", &sources).unwrap();
        let (fixed, _) = classifier::detach(&fixed, "main").unwrap().map_or((fixed, None), |(p, c)| (p, Some(c)));
        let returned = run(&fixed, &sources, Unnamed::Refuse);
        assert!(!returned.outputs.is_empty());
        for (output, found) in &returned.outputs {
            let off = distance(found, &read(&file, &format!("out.{output}")).unwrap());
            assert!(off <= tolerance, "{name}, case {case}: `{output}` is off by {off}");
        }
    }
    0
}

#[test]
fn recurrent_networks_compute_what_pytorch_does() {
    for name in ["lstm", "lstm_states", "gru", "gru_layers", "gru_states", "rnn"] {
        assert_eq!(cases(name, FP32), 1, "{name}");
    }
    assert_eq!(cases("gru_fp16", FP16), 1);
    for name in ["lstm_length", "gru_length"] {
        assert_eq!(cases(name, FP32), 3, "{name}");
    }
}

#[test]
fn loops_branches_and_lists_compute_what_pytorch_does() {
    for (name, count) in
        [("while", 1), ("while_one", 2), ("for", 1), ("branch", 2), ("branch_in_loop", 1), ("lists", 1)]
    {
        assert_eq!(cases(name, FP32), count, "{name}");
    }
}

#[test]
fn a_state_accumulates() {
    let (program, _) = opened("state");
    let device = Device::new(emulator());
    let x = Tensor::fp16(&[1, 4], &[1.0, 2.0, -3.0, 0.5]).unwrap();
    let mut state = Tensor::zeros(ferrane_mil::DataType::Fp16, [1, 4]).unwrap();
    for call in 1..=3u8 {
        let returned = device.call(&program, Call::new().input("x", x.clone()).state("acc", state)).unwrap();
        let sum: Vec<f32> = x.to_f32().iter().map(|v| v * f32::from(call)).collect();
        assert_eq!(returned.states.get("acc").unwrap().to_f32(), sum);
        assert_eq!(returned.outputs.get("y").unwrap().to_f32(), sum.iter().map(|v| v * 2.0).collect::<Vec<_>>());
        state = returned.states.get("acc").unwrap().clone();
    }
}

#[test]
fn flexible_shapes_compute_what_pytorch_does() {
    for name in ["conv_enumerated", "conv_range", "attention"] {
        assert_eq!(cases(name, FP32), 3, "{name}");
    }
}

/// Without control flow no extent stays unknown, not even of what is reshaped to computed extents.
#[test]
fn a_chosen_shape_reaches_every_value() {
    for (name, shape) in
        [("conv_enumerated", "x=1x3x24x32"), ("conv_range", "x=1x3x9x40"), ("attention", "ids=3x5,mask=3x5")]
    {
        let (program, description) = opened(name);
        let fixed = shaped(&program, &description, shape, &[]).unwrap();
        let function = fixed.function("main").unwrap();
        let open: Vec<_> = function.values.iter().filter(|v| v.ty.shape().is_none() && v.ty.rank().is_some()).collect();
        assert!(open.is_empty(), "{name}: {open:?}");
        assert_eq!(check(function, &fixed.weights).len(), 0);
    }
    // A loop over variables whose extents do not change has known extents, too.
    let (program, description) = opened("gru_length");
    let fixed = shaped(&program, &description, "x=1x9x6", &[]).unwrap();
    let function = fixed.function("main").unwrap();
    assert_eq!(function.value(function.body().outputs[0]).ty.shape(), Some(vec![1, 9, 5]));
}

#[test]
fn the_default_shape_and_the_allowed_ones_are_those_of_the_description() {
    let (program, description) = opened("conv_enumerated");
    let inputs = input_shapes(program.function("main").unwrap(), Some(&description));
    assert_eq!(inputs[0].to_string(), "1x3x16x16 (default), 1x3x24x32 or 2x3x8x8");
    assert_eq!(inputs[0].declared, [Dim::Unknown, Dim::Fixed(3), Dim::Unknown, Dim::Unknown]);
    let fixed = shaped(&program, &description, "", &[]).unwrap();
    let x = fixed.function("main").unwrap().inputs[0];
    assert_eq!(fixed.function("main").unwrap().value(x).ty.shape(), Some(vec![1, 3, 16, 16]));

    for (name, choice, message) in [
        (
            "conv_enumerated",
            "x=1x3x20x20",
            "cannot have the shape 1x3x20x20; it may have 1x3x16x16 (default), 1x3x24x32 or 2x3x8x8",
        ),
        ("conv_range", "x=1x3x8x65", "cannot have the shape 1x3x8x65; it may have 1x3x8..64x8..64 (default 1x3x16x16)"),
        ("conv_range", "x=1x3x8", "cannot have the shape 1x3x8; it may have"),
        ("conv_range", "y=1x3x8x8", "`y` is neither an input nor a named extent, did you mean `x`? (there are x)"),
        ("conv_range", "x=1xx8", "`x=1xx8` chooses no shape"),
        ("conv_range", "x=", "chooses no shape"),
        ("attention", "ids=2x6,mask=2x5", "with these shapes of the inputs"),
    ] {
        let (program, description) = opened(name);
        let error = shaped(&program, &description, choice, &[]).map(|_| ()).unwrap_err();
        assert!(error.contains(message), "{choice}: {error}");
    }
}

fn photo(color: &str) -> Vec<f32> {
    let name = folder().join("photo.npz");
    let pixels = read(&name, if color == "gray" { "gray" } else { "png" }).unwrap();
    let values = pixels.to_f32();
    let channels = if color == "gray" { 1 } else { 3 };
    // Rows of pixels become planes of channels.
    let at = |c: usize, i: usize| values[i * channels + if color == "bgr" { 2 - c } else { c }];
    (0..channels).flat_map(|c| (0..48).map(move |i| (c, i))).map(|(c, i)| at(c, i)).collect()
}

fn with_photo(name: &str, file: &str, fit: Fit) -> (Program, Description, Vec<(String, TensorSource)>) {
    let (program, description) = opened(name);
    let source = TensorSource::parse(folder().join(file).to_str().unwrap()).unwrap();
    let sources = vec![("image".to_string(), source)];
    let sources = with_images(sources, program.function("main").unwrap(), Some(&description), fit);
    (program, description, sources)
}

#[test]
fn images_reach_the_program_in_its_order_of_channels() {
    for color in ["rgb", "bgr", "gray"] {
        let (program, _, sources) = with_photo(&format!("image_{color}"), "photo.png", Fit::Exact);
        let returned = run(&program, &sources, Unnamed::Refuse);
        let (scale, bias) = if color == "gray" { (1.0, [0.0; 3]) } else { (1.0 / 128.0, [0.1f32, 0.2, 0.3]) };
        let wanted: Vec<f32> = photo(color).iter().enumerate().map(|(i, v)| (v * scale + bias[i / 48]) * 0.5).collect();
        let found = returned.outputs.get("y").unwrap();
        let wanted = Tensor::fp32(found.shape(), &wanted).unwrap();
        let off = distance(found, &wanted);
        assert!(off <= FP32, "{color}: off by {off}");
    }
}

#[test]
fn an_image_chooses_the_shape_or_is_resized() {
    for name in ["image_enumerated", "image_range"] {
        let shape = |file: &str, choice: &str, fit: Fit| {
            let (program, description, sources) = with_photo(name, file, fit);
            let fixed = shaped(&program, &description, choice, &sources)?;
            let returned = run(&fixed, &sources, Unnamed::Refuse);
            let (_, found) = returned.outputs.iter().next().unwrap();
            Ok::<_, String>(found.shape().to_vec())
        };
        assert_eq!(shape("photo.png", "", Fit::Exact).unwrap(), [1, 4, 8, 6], "{name}");
        assert_eq!(shape("photo.jpg", "", Fit::Resize).unwrap(), [1, 4, 16, 16], "{name}");
        assert_eq!(shape("photo.png", "image=1x3x8x6", Fit::Resize).unwrap(), [1, 4, 8, 6], "{name}");
    }
    let (program, _, sources) = with_photo("image_rgb", "photo.png", Fit::Exact);
    let image = Image::decode(&std::fs::read(folder().join("photo.png")).unwrap()).unwrap();
    let wide = image.resized(12, 8).unwrap().tensor(ColorSpace::Rgb).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("wide.png");
    std::fs::write(&path, ferrane_tensor_io::image::to_png(&wide, ColorSpace::Rgb).unwrap()).unwrap();
    let function = program.function("main").unwrap();
    let wide = TensorSource::Image { path, color: Some(ColorSpace::Rgb), fit: Fit::Exact };
    let error = arguments(function, &[(sources[0].0.clone(), wide)], Unnamed::Refuse).unwrap_err().to_string();
    assert!(error.contains("12 wide and 8 high, the input takes 6 wide and 8 high"), "{error}");
}

/// Decoders of JPEG differ in the last bit of the inverse cosine transform and of the conversion to
/// RGB, which is a few steps of 255; Pillow rounds its filter weights.
#[test]
fn images_are_decoded_and_resized_as_by_pillow() {
    let pixels = |name: &str| read(folder().join("photo.npz"), name).unwrap().to_f32();
    let image = |file: &str| Image::decode(&std::fs::read(folder().join(file)).unwrap()).unwrap();
    let rows = |image: &Image| {
        let planes = image.tensor(ColorSpace::Rgb).unwrap().to_f32();
        let plane = image.width() * image.height();
        (0..plane * 3).map(|i| planes[i % 3 * plane + i / 3]).collect::<Vec<_>>()
    };
    let within = |a: &[f32], b: &[f32], most: f32| {
        assert_eq!(a.len(), b.len());
        assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() <= most), "{a:?}\n{b:?}");
    };
    within(&rows(&image("photo.png")), &pixels("png"), 0.0);
    within(&rows(&image("photo.jpg")), &pixels("jpg"), 3.0);
    within(&rows(&image("photo.png").resized(16, 16).unwrap()), &pixels("resized"), 1.0);
}

#[test]
fn class_labels_go_with_their_probabilities() {
    for (name, labels) in [
        ("classifier_words", ["cat", "dog", "tree frog"].map(|t| Label::Text(t.into()))),
        ("classifier_numbers", [3, 10, -5].map(Label::Number)),
    ] {
        assert_eq!(cases(name, FP16), 1, "{name}");
        let (program, _) = opened(name);
        let (detached, classifier) = classifier::detach(&program, "main").unwrap().unwrap();
        assert_eq!(classifier.labels, labels);
        assert_eq!(classifier.label_output, "classLabel");
        assert_eq!(Classifier::of(detached.function("main").unwrap()), None);
        let outputs = &detached.function("main").unwrap().body().outputs;
        assert_eq!(outputs.len(), 1);
        let ranked = classifier.ranked(&[0.25, 0.5, 0.25]).unwrap();
        assert_eq!(ranked, [(&labels[1], 0.5), (&labels[0], 0.25), (&labels[2], 0.25)]);
        let ranked = classifier.ranked(&[f32::NAN, -1.0, f32::NEG_INFINITY]).unwrap();
        assert_eq!(ranked.iter().map(|(l, _)| *l).collect::<Vec<_>>(), [&labels[1], &labels[2], &labels[0]]);
        assert!(classifier.ranked(&[1.0]).is_err());
    }
}
