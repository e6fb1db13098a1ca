//! The four dispatches, and ports as models report them.

use ferrane_ane_fake::{Call, session};
use ferrane_device::{Bindings, ErrorKind, Layout};
use ferrane_mil::DataType;

use crate::path::{bindings, compile, failure, text};

#[test]
fn each_way_runs_the_same_request_by_its_own_call() {
    let ways = [
        ("standard", Call::Evaluate),
        ("realtime", Call::EvaluateRealTime),
        ("process-request", Call::ProcessRequest),
        ("direct", Call::EvaluateDirect),
    ];
    for (word, call) in ways {
        let fake = session();
        let device = ferrane_ane_fake::open(&format!("dispatch={word}")).unwrap();
        assert_eq!(device.name().contains(word), word != "standard", "{}", device.name());
        let executable = compile(&device, &text()).unwrap().load().unwrap();
        let (bindings, [x, _, y, _]) = bindings(&device, &executable);
        let request = executable.prepare(bindings).unwrap();
        for value in [1.0, -2.5] {
            x.write_f32(&[value; 32]).unwrap();
            request.evaluate().unwrap();
            assert_eq!(y.read_f32().unwrap(), [value; 32], "{word}");
        }
        request.submit().unwrap().wait().unwrap();
        assert_eq!(fake.count(call), 3, "{word}");
        let others: usize = ways.iter().filter(|(_, c)| *c != call).map(|(_, c)| fake.count(*c)).sum();
        assert_eq!(others, 0, "{word}");

        // A failure is the engine's in every dispatch; requests from before a reload run after it.
        let words =
            "ANEProgramProcessRequestDirect() Failed with status=0x1d : statusType=0x9: Program Inference error";
        fake.fail(call, "com.apple.appleneuralengine", 8, words);
        assert_eq!(failure(request.evaluate()).status(), Some(0x1d), "{word}");
        executable.reload().unwrap();
        assert_eq!(executable.state() as u8, 3);
        request.evaluate().unwrap();
        drop((request, executable));
        let brackets = if word == "realtime" { 2 } else { 0 };
        assert_eq!((fake.count(Call::BeginRealTime), fake.count(Call::EndRealTime)), (brackets, brackets), "{word}");
    }
}

#[test]
fn padded_rows_are_where_the_model_says() {
    let fake = session();
    fake.row_alignment(64);
    let device = ferrane_ane_fake::open("").unwrap();
    let executable = compile(&device, &text()).unwrap().load().unwrap();
    let layout = &executable.port("x").unwrap().layout;
    assert_eq!(*layout, Layout::with_row_alignment(DataType::Fp16, &[1, 4, 1, 8], 64).unwrap());
    let (bindings, [x, a, y, b]) = bindings(&device, &executable);
    let values: Vec<f32> = (0..32).map(|i| i as f32).collect();
    x.write_f32(&values).unwrap();
    a.write_f32(&values[16..]).unwrap();
    executable.prepare(bindings).unwrap().evaluate().unwrap();
    assert_eq!((y.read_f32().unwrap(), b.read_f32().unwrap()), (values.clone(), values[16..].to_vec()));
    // The second row begins 64 bytes after the first, and the bytes between them are untouched.
    let access = y.read().unwrap();
    assert_eq!(access.bytes()[64..66], 0x4800u16.to_le_bytes());
    assert!(access.bytes()[16..64].iter().all(|b| *b == 0));

    // A packed surface does not fit such a port.
    let packed = device.surface(&Layout::packed(DataType::Fp16, &[1, 4, 1, 8]).unwrap()).unwrap();
    let wrong = Bindings::new().bind("x", &packed).bind("a", &a).bind("y", &y).bind("b", &b);
    assert_eq!(failure(executable.prepare(wrong)).kind(), ErrorKind::Binding);
}

#[test]
fn a_model_without_layouts_has_those_of_the_profile() {
    let fake = session();
    fake.without_layouts();
    let device = ferrane_ane_fake::open("").unwrap();
    let executable = compile(&device, &text()).unwrap().load().unwrap();
    let alignment = device.profile().row_alignment.value;
    let expected = Layout::with_row_alignment(DataType::Fp16, &[1, 4, 1, 8], alignment).unwrap();
    assert_eq!(executable.port("x").unwrap().layout, expected);
    // Order and symbols are still the model's.
    assert_eq!(executable.procedures()[0].inputs[0].name, "a");
}

#[test]
fn ports_of_every_rank_keep_their_elements() {
    let fake = session();
    for alignment in [1, 64] {
        fake.row_alignment(alignment);
        let device = ferrane_ane_fake::open("").unwrap();
        for shape in [&[6][..], &[3, 5], &[2, 3, 5], &[2, 3, 2, 5], &[2, 3, 2, 2, 5], &[1, 7, 1, 1], &[1, 1, 1, 3]] {
            let extents = format!("{shape:?}");
            let text = format!(
                "{}{{\n    func main<ios18>(tensor<fp16, {extents}> x) {{\n        tensor<fp16, {extents}> y = \
                 identity(x = x)[name = string(\"y\")];\n    }} -> (y);\n}}\n",
                crate::path::HEAD
            );
            let executable = compile(&device, &text).unwrap().load().unwrap();
            let procedure = &executable.procedures()[0];
            let surfaces = device.surfaces(procedure).unwrap();
            let bound = surfaces.iter().fold(Bindings::new(), |b, (name, surface)| b.bind(*name, surface));
            let values: Vec<f32> = (0..shape.iter().product()).map(|i: usize| i as f32 - 1.0).collect();
            surfaces[0].1.write_f32(&values).unwrap();
            executable.prepare(bound).unwrap().evaluate().unwrap();
            assert_eq!(surfaces[1].1.read_f32().unwrap(), values, "{shape:?} in rows of {alignment}");
        }
    }
}
