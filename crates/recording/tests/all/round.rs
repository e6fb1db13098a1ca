//! From a device to a file and back to a device.

use ferrane_device::{Bindings, Device, Tensor, Tensors};
use ferrane_emulator::Numerics;
use ferrane_mil::{Bytes, DataType, Weights, parse};
use ferrane_recording::compare::Difference;
use ferrane_recording::{Answer, ExtractError, Job, Outcome, Recording, Stage, extract, open, replay, write};

use super::{again, emulator, failing, input, product, record};

fn differences(recording: &Recording, device: &Device, tolerance: u64) -> Vec<Difference> {
    match replay(recording, &recording.program().unwrap(), device, tolerance, 1).answer {
        Answer::Both(list) => list,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_same_device_agrees_to_the_bit() {
    for numerics in [Numerics::Fast, Numerics::Exact, Numerics::Hardware] {
        let device = emulator(numerics);
        let recording = again(&record(&device, &product(), &input(), 3));
        let Outcome::Ran { outputs, unsteady, .. } = &recording.header.outcome else { panic!() };
        assert_eq!((outputs.as_slice(), unsteady.len(), recording.wall.len()), (&["y".to_string()][..], 0, 3));
        let found = differences(&recording, &device, 0);
        assert_eq!((found.len(), found[0].elements, found[0].equal, found[0].max_ulp), (1, 64, 64, 0));
        assert!(replay(&recording, &recording.program().unwrap(), &device, 0, 1).agrees());
    }
}

/// What a device computes, through the seam alone.
fn direct(device: &Device) -> Vec<u16> {
    let executable = device.load(&product(), "").unwrap();
    let surfaces = device.surfaces(executable.procedure("main").unwrap()).unwrap();
    let mut bindings = Bindings::new();
    for (name, surface) in &surfaces {
        bindings = bindings.bind(*name, surface);
        if *name == "a" {
            let values = input().get("a").unwrap().to_f32();
            surface.write_f32(&values).unwrap();
        }
    }
    executable.prepare(bindings).unwrap().evaluate().unwrap();
    let y = surfaces.iter().find(|(name, _)| *name == "y").unwrap().1.read_f32().unwrap();
    y.into_iter().map(|v| ferrane_host::f16::from_f32(v).to_bits()).collect()
}

/// Two's complement of a sign and a magnitude: another way to the order of fp16 than the library's.
fn order(bits: u16) -> i32 {
    if bits & 0x8000 != 0 { 0x8000 - i32::from(bits) } else { i32::from(bits) }
}

#[test]
fn differences_are_those_of_an_independent_count() {
    let (fast, hardware) = (emulator(Numerics::Fast), emulator(Numerics::Hardware));
    let recording = again(&record(&fast, &product(), &input(), 1));
    let (a, b) = (direct(&fast), direct(&hardware));
    let apart: Vec<u64> = a.iter().zip(&b).map(|(a, b)| u64::from(order(*a).abs_diff(order(*b)))).collect();
    let most = *apart.iter().max().unwrap();
    assert!(most > 0, "the two must differ somewhere, or nothing is tested");
    for tolerance in [0, 1, most - 1, most] {
        let found = &differences(&recording, &hardware, tolerance)[0];
        assert_eq!(found.equal, a.iter().zip(&b).filter(|(a, b)| a == b).count());
        assert_eq!(found.max_ulp, most);
        assert_eq!(found.beyond, apart.iter().filter(|ulps| **ulps > tolerance).count());
        // Whole numbers below 2^53 divided once.
        assert_eq!(found.mean_ulp, apart.iter().sum::<u64>() as f64 / 64.0);
        assert_eq!(found.within(), tolerance == most);
        let at = apart.iter().position(|ulps| *ulps == most).unwrap();
        assert_eq!(found.worst.as_ref().unwrap().index, [0, 0, at / 16, at % 16]);
    }
}

#[test]
fn a_flipped_bit_is_found_where_it_is() {
    let device = emulator(Numerics::Fast);
    let whole = record(&device, &product(), &input(), 1);
    for (element, bit) in [(0, 0), (17, 3), (63, 9)] {
        let mut recording = whole.clone();
        let mut bytes = recording.outputs.get("y").unwrap().bytes().to_vec();
        bytes[2 * element + bit / 8] ^= 1 << (bit % 8);
        recording.outputs.insert("y", Tensor::new(DataType::Fp16, [1, 1, 4, 16], bytes).unwrap());
        let found = &differences(&again(&recording), &device, 0)[0];
        // A bit below the exponent moves the value by its weight, whatever the sign.
        assert_eq!((found.equal, found.max_ulp, found.beyond), (63, 1 << bit, 1));
        assert_eq!(found.worst.as_ref().unwrap().index, [0, 0, element / 16, element % 16]);
    }
}

#[test]
fn what_is_opened_stays_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("product.anetrace");
    let recording = record(&emulator(Numerics::Fast), &product(), &input(), 2);
    write(&recording, &path).unwrap();
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["product.anetrace"], "no temporary file is left");
    let opened = open(&path).unwrap();
    assert_eq!((&opened.header, &opened.wall), (&recording.header, &recording.wall));
    let mapped = |bytes: &Bytes| matches!(bytes, Bytes::Mapped(_));
    assert!(
        mapped(&opened.text)
            && mapped(opened.inputs.get("a").unwrap().bytes())
            && mapped(opened.outputs.get("y").unwrap().bytes())
    );
    assert!(mapped(&opened.weights[0].1));
    // Blob files begin where the bytes of a tensor may be used in place.
    assert_eq!(opened.weights[0].1.as_ptr() as usize % 64, 0);
    // The program's weights are those bytes.
    let program = opened.program().unwrap();
    let (file, id) = (&opened.weights[0].1, ferrane_mil::WeightId(0));
    let bytes = program.weights.bytes(id).unwrap();
    assert!(file.as_ptr_range().contains(&bytes.as_ptr()));
    assert_eq!(bytes, super::halves(512 * 16, 2));
}

#[test]
fn a_folder_is_new_and_holds_everything_once() {
    let recording = again(&record(&emulator(Numerics::Fast), &product(), &input(), 1));
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("a/b");
    let files = extract(&recording, &folder).unwrap();
    assert_eq!(std::fs::read(folder.join("program.mil")).unwrap(), &*recording.text);
    let outputs = ferrane_tensor_io::read(folder.join("outputs.safetensors"), "y").unwrap();
    assert_eq!(&outputs, recording.outputs.get("y").unwrap());
    assert!(files.iter().all(|file| file.is_file()) && files.ends_with(&[folder.join("recording.json")]), "{files:?}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), files.len());
    assert!(matches!(extract(&recording, &folder), Err(ExtractError::NotEmpty(path)) if path == folder));
    let with = |path: &str| {
        let mut other = recording.clone();
        other.weights.push((path.to_string(), Bytes::from(vec![7])));
        extract(&other, &parent.path().join(path.len().to_string())).unwrap_err()
    };
    assert!(matches!(with("@model_path/program.mil"), ExtractError::Twice(_)));
    assert!(matches!(with("@model_path/../up"), ExtractError::Recording(_)));
    assert!(!parent.path().join("up").exists());
    assert!(matches!(extract(&recording, &files[0]), Err(ExtractError::Io { path, .. }) if path == files[0]));
}

#[test]
fn a_refusal_is_recorded_with_the_machines_words() {
    let recording = again(&record(&failing("compile:1=fail"), &product(), &input(), 1));
    let Outcome::Failed(failure) = &recording.header.outcome else { panic!("{:?}", recording.header.outcome) };
    assert_eq!((failure.stage, failure.kind.as_str(), failure.code), (Stage::Compile, "E0602", Some(1)));
    assert!(failure.domain.is_some() && recording.outputs.is_empty() && recording.inputs.len() == 1);
    let answer = |device: &Device| replay(&recording, &recording.program().unwrap(), device, 0, 1);
    let alike = answer(&failing("compile:1=fail"));
    assert!(alike.agrees() && matches!(alike.answer, Answer::Neither(_, true)));
    let otherwise = answer(&failing("load:1=fail"));
    assert!(!otherwise.agrees() && matches!(otherwise.answer, Answer::Neither(_, false)));
    let runs = answer(&emulator(Numerics::Fast));
    assert!(!runs.agrees() && matches!(runs.answer, Answer::Here));
    let whole = record(&emulator(Numerics::Fast), &product(), &input(), 1);
    let fails = replay(&whole, &whole.program().unwrap(), &failing("evaluate:1=0x1d"), 0, 1);
    let Answer::There(failure) = &fails.answer else { panic!("{:?}", fails.answer) };
    assert_eq!((failure.stage, failure.status, fails.agrees()), (Stage::Evaluate, Some(0x1d), false));
}

#[test]
fn an_unsteady_machine_is_seen() {
    let recording = again(&record(&failing("evaluate:2=corrupt"), &product(), &input(), 4));
    let Outcome::Ran { unsteady, .. } = &recording.header.outcome else { panic!() };
    assert_eq!(unsteady, &[("y".to_string(), 1)]);
    assert!(differences(&recording, &emulator(Numerics::Fast), 0)[0].within(), "the first run is what is kept");
}

#[test]
fn states_begin_every_run_alike() {
    let text = r#"program(1.3)
[buildInfo = dict<string, string>({{"a", "b"}})]
{
    func main<ios18>(tensor<fp16, [1, 4]> x, state<tensor<fp16, [1, 4]>> s) {
        tensor<fp16, [1, 4]> old = read_state(input = s)[name = string("old")];
        tensor<fp16, [1, 4]> sum = add(x = old, y = x)[name = string("sum")];
        tensor<fp16, [1, 4]> new = coreml_update_state(state = s, value = sum)[name = string("new")];
        tensor<fp16, [1, 4]> y = mul(x = new, y = x)[name = string("y")];
    } -> (y);
}
"#;
    let program = parse(text, &Weights::new()).unwrap();
    let of = |name: &str, values: [f32; 4]| {
        let bytes: Vec<u8> = values.iter().flat_map(|v| ferrane_host::f16::from_f32(*v).to_le_bytes()).collect();
        Tensors::from([(name, Tensor::new(DataType::Fp16, [1, 4], bytes).unwrap())])
    };
    let (inputs, states) = (of("x", [1.0, 2.0, 3.0, 4.0]), of("s", [10.0, 20.0, 30.0, 40.0]));
    let (device, label) = (emulator(Numerics::Fast), "s.mil");
    let job = Job { program: &program, function: "main", label, inputs: &inputs, states: &states, runs: 3 };
    let recording = again(&Recording::record(&device, "emulator", &job).unwrap());
    let values = |list: &Tensors| list.iter().next().unwrap().1.to_f32();
    assert_eq!(values(&recording.left), [11.0, 22.0, 33.0, 44.0]);
    assert_eq!(values(&recording.outputs), [11.0, 44.0, 99.0, 176.0]);
    let Outcome::Ran { unsteady, .. } = &recording.header.outcome else { panic!() };
    assert!(unsteady.is_empty(), "{unsteady:?}");
    let found = differences(&recording, &device, 0);
    let names: Vec<&str> = found.iter().map(|d| d.name.as_str()).collect();
    assert_eq!((names, found.iter().all(Difference::within)), (vec!["y", "s"], true));
}
