//! Exported programs through the emulator, compared with the fp32 reference.

use crate::checkpoints::{ids, name};
use crate::device::relative_difference;
use crate::families::folders;
use crate::kernels::emulator;
use ferrane_device::{Call, Device, Tensor, Tensors};
use ferrane_diag::Severity;
use ferrane_emulator::Numerics;
use ferrane_llm::config::{Config, preset};
use ferrane_llm::export::{self, Exported, Options, WeightEncoding};
use ferrane_llm::reference::Reference;
use ferrane_llm::weights::container::Container;
use ferrane_llm::weights::{Init, Weights, load};
use ferrane_machine::{Profile, check};
use ferrane_mil::package;

/// Positions of a prompt's window.
const WINDOW: usize = 8;

/// Families that can be exported, each with its sequence of 40 tokens.
fn models() -> Vec<(String, Config, Weights, Vec<u32>)> {
    let all = folders().into_iter().map(|folder| {
        let (config, weights) = load(&folder, None).unwrap();
        let tokens = ids(&Container::open(&folder.join("logits.safetensors")).unwrap(), "tokens").unwrap();
        (name(&folder), config, weights, tokens)
    });
    all.filter(|(_, config, ..)| config.experts.is_none()).collect()
}

/// Calls a function; the states of one call are those of the next, whichever function it calls.
struct Session<'a> {
    exported: &'a Exported,
    executable: ferrane_device::Executable,
    states: Tensors,
}

impl<'a> Session<'a> {
    fn new(device: &Device, exported: &'a Exported) -> Self {
        let executable = device.load(&exported.program, "export").unwrap();
        Session { exported, executable, states: Tensors::new() }
    }

    fn run(&mut self, function: &str, tokens: &[u32], position: usize, last: Option<usize>) -> Vec<f32> {
        let int = |n: usize| Tensor::int32(&[1], &[n as i32]).unwrap();
        let ids: Vec<i32> = tokens.iter().map(|id| *id as i32).collect();
        let mut call = Call::new().function(function).states(self.states.clone());
        call =
            call.input("input_ids", Tensor::int32(&[1, ids.len()], &ids).unwrap()).input("current_pos", int(position));
        if let Some(last) = last {
            call = call.input("last_index", int(last));
        }
        let returned = self.executable.call(call).unwrap();
        self.states = returned.states.clone();
        returned.get("logits").unwrap().to_f32()
    }

    /// Feeds a prompt window after window, the last one filled up, and returns its logits.
    fn prompt(&mut self, tokens: &[u32]) -> Vec<f32> {
        let (window, mut logits) = (self.exported.prefill, Vec::new());
        for (i, part) in tokens.chunks(window).enumerate() {
            let mut filled = part.to_vec();
            filled.resize(window, 3);
            logits = self.run("prefill", &filled, i * window, Some(part.len() - 1));
        }
        logits
    }
}

fn exported(config: &Config, weights: &Weights, encoding: WeightEncoding) -> Exported {
    let options = Options { weights: encoding, prefill: Some(WINDOW), context: None };
    export::export_weights(config, weights, &options, &mut |_| {}).unwrap()
}

/// The largest difference to the reference over a prompt of `prompt` tokens and the tokens after
/// it, each decoded by itself, in parts of the range of the logits.
fn worst(exported: &Exported, config: &Config, weights: &Weights, tokens: &[u32], prompt: usize) -> f32 {
    let expected = Reference::new(config, weights).unwrap().logits(tokens).unwrap();
    let row = |at: usize| &expected[at * config.vocab..(at + 1) * config.vocab];
    let mut session = Session::new(&emulator(Numerics::Fast), exported);
    let mut worst = relative_difference(&session.prompt(&tokens[..prompt]), row(prompt - 1)).unwrap();
    for (at, token) in tokens.iter().enumerate().skip(prompt) {
        let found = session.run("decode", &[*token], at, None);
        worst = worst.max(relative_difference(&found, row(at)).unwrap());
    }
    worst
}

#[test]
fn every_family_computes_the_logits_of_the_reference() {
    let models = models();
    assert!(models.len() >= 11);
    for (name, config, weights, tokens) in models {
        let exported = exported(&config, &weights, WeightEncoding::Fp16);
        // A whole window, then 32 tokens; and several windows, the last one filled up.
        let differences = [WINDOW, 19].map(|prompt| worst(&exported, &config, &weights, &tokens, prompt));
        eprintln!("{name}: {differences:?} of the range");
        assert!(differences.iter().all(|difference| *difference < 1e-2), "{name}: {differences:?}");
    }
}

/// Random weights of few values a row are as hard to compress as weights get, and the scores of
/// these models are large, so the bounds are wide; what matters is that the sum is computed with
/// the right scales, and that more bits are closer.
#[test]
fn compressed_weights_are_close() {
    for (name, config, weights, tokens) in models().into_iter().filter(|(name, ..)| name == "llama3" || name == "phi3")
    {
        let plain = exported(&config, &weights, WeightEncoding::Fp16);
        let difference = |encoding: WeightEncoding| {
            let small = exported(&config, &weights, encoding);
            let difference = worst(&small, &config, &weights, &tokens, WINDOW);
            let (bytes, of) = (small.weight_bytes, plain.weight_bytes);
            eprintln!("{name} {}: {difference:.1e} of the range, {bytes} bytes of {of}", encoding.name());
            assert!(bytes < of * 7 / 10, "{name} {encoding:?}: {bytes} bytes");
            difference
        };
        let int8 = difference(WeightEncoding::Int8);
        let (six, four, int4) = (
            difference(WeightEncoding::Palette6),
            difference(WeightEncoding::Palette4),
            difference(WeightEncoding::Int4),
        );
        assert!(int8 < 0.1 && six < 0.25 && four < 0.8 && int4 < 0.8, "{name}: {int8} {six} {four} {int4}");
        assert!(int8 < six && six < four && six < int4, "{name}: {int8} {six} {four} {int4}");
    }
}

#[test]
fn a_package_is_read_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    for (name, config, weights, tokens) in models() {
        for encoding in WeightEncoding::ALL {
            let mut exported = exported(&config, &weights, encoding);
            let path = folder.path().join(format!("{name}-{}.mlpackage", encoding.name()));
            exported.write(&path, false).unwrap();
            assert!(exported.write(&path, false).is_err(), "an existing package was replaced");
            let opened = package::open(&path).unwrap();
            let description = opened.description.unwrap();
            assert_eq!(description.default_function(), "decode");
            assert!(description.metadata().contains(&("ferrane.prefill", "8")));
            let stored: u64 = std::fs::metadata(path.join("Data/com.apple.CoreML/weights/weight.bin")).unwrap().len();
            // The two functions share the weights.
            assert!(stored < exported.weight_bytes * 3 / 2 + (1 << 16), "{stored} {}", exported.weight_bytes);
            let before = Session::new(&emulator(Numerics::Fast), &exported).prompt(&tokens[..5]);
            exported.program = opened.program;
            assert_eq!(
                Session::new(&emulator(Numerics::Fast), &exported).prompt(&tokens[..5]),
                before,
                "{name} {encoding:?}"
            );
        }
    }
}

/// Calls the parts of a model one after the other, and returns the logits of the last one.
fn call_parts(parts: &mut [Session<'_>], function: &str, tokens: &[u32], position: usize, last: usize) -> Vec<f32> {
    let int = |n: usize| Tensor::int32(&[1], &[n as i32]).unwrap();
    let ids: Vec<i32> = tokens.iter().map(|id| *id as i32).collect();
    let mut from = ("input_ids", Tensor::int32(&[1, ids.len()], &ids).unwrap());
    let count = parts.len();
    for (i, part) in parts.iter_mut().enumerate() {
        let mut call = Call::new().function(function).input(from.0, from.1.clone());
        if !part.exported.layers.is_empty() {
            call = call.states(part.states.clone()).input("current_pos", int(position));
        }
        if i + 1 == count && function == "prefill" {
            call = call.input("last_index", int(last));
        }
        let returned = part.executable.call(call).unwrap();
        part.states = returned.states.clone();
        from = ("hidden", returned.get(if i + 1 == count { "logits" } else { "hidden_out" }).unwrap().clone());
    }
    from.1.to_f32()
}

/// From two packages to one for each layer, the embedding and the classifier.
#[test]
fn parts_compute_what_the_whole_computes() {
    let device = emulator(Numerics::Fast);
    let mut most = 0;
    // Its layers are larger than its embedding.
    let config = preset("stories260k").unwrap();
    let deep = Weights::init(&config, Init::Normal { std: 0.1 }, 3);
    let deep = ("stories260k".to_string(), config, deep, (1..40).collect());
    for (name, config, weights, tokens) in models().into_iter().chain([deep]) {
        // A short context, because the masks of these small models are as large as their layers.
        let options = Options { weights: WeightEncoding::Int8, prefill: Some(WINDOW), context: Some(4 * WINDOW) };
        let whole = export::export_weights(&config, &weights, &options, &mut |_| {}).unwrap();
        let parts = |bytes| export::export_weight_parts(&config, &weights, &options, bytes, &mut |_| {});
        let least = parts(1).unwrap_err().to_string();
        assert!(least.starts_with("`chunk_bytes` = 1 is too small for the embedding, which takes up to"), "{least}");
        let mut counts = Vec::new();
        let mut bytes = 2 * whole.weight_bytes;
        loop {
            let parts = match parts(bytes) {
                Ok(parts) => parts,
                Err(error) if error.to_string().contains("is too small for") => break,
                Err(error) => panic!("{name} in {bytes} bytes: {error}"),
            };
            assert!(parts.iter().all(|part| part.weight_bytes <= bytes), "{name}: more than {bytes} bytes");
            let layers: Vec<usize> = parts.iter().flat_map(|part| part.layers.clone()).collect();
            assert_eq!(layers, (0..config.layers).collect::<Vec<_>>());
            if counts.last() != Some(&parts.len()) {
                counts.push(parts.len());
                let mut alone = Session::new(&device, &whole);
                let mut all: Vec<_> = parts.iter().map(|part| Session::new(&device, part)).collect();
                let window = &tokens[..WINDOW];
                // The emulator may sum in another order, which a rounding to fp16 can show.
                let same = |a: Vec<f32>, b: Vec<f32>| {
                    assert!(relative_difference(&a, &b).unwrap() < 1e-3, "{name} in {counts:?}")
                };
                let expected = alone.run("prefill", window, 0, Some(WINDOW - 2));
                same(call_parts(&mut all, "prefill", window, 0, WINDOW - 2), expected);
                for (at, token) in tokens.iter().enumerate().take(WINDOW + 2).skip(WINDOW - 1) {
                    let expected = alone.run("decode", &[*token], at, None);
                    same(call_parts(&mut all, "decode", &[*token], at, 0), expected);
                }
            }
            bytes = bytes * 19 / 20;
        }
        eprintln!("{name}: in {counts:?} parts");
        assert!(counts[0] == 1 && counts.len() > 1, "{name}: {counts:?}");
        most = most.max(counts.last().copied().unwrap());
    }
    assert!(most > 4, "at most {most} parts");
}

#[test]
fn wrong_options_and_models_are_named() {
    let (_, config, weights, _) = models().swap_remove(0);
    let refused = |context, prefill| {
        let options = Options { context, prefill, ..Options::default() };
        export::export_weights(&config, &weights, &options, &mut |_| {}).unwrap_err().to_string()
    };
    assert!(refused(Some(1 << 20), None).contains("`context` = 1048576 must be from 2"));
    assert!(refused(Some(48), Some(32)).contains("multiple of the window of 32"));
    assert!(refused(None, Some(1)).contains("`prefill` = 1 must be from 2"));
    let mut far = weights.clone();
    far.layers[0].wq[3] = 1e9;
    let error = export::export_weights(&config, &far, &Options::default(), &mut |_| {}).unwrap_err().to_string();
    assert!(error.starts_with("tensor layers.0.wq: 1000000000"), "{error}");
    let folder = folders().into_iter().find(|folder| folder.ends_with("qwen3-moe")).unwrap();
    let (config, weights) = load(&folder, None).unwrap();
    let error = export::export_weights(&config, &weights, &Options::default(), &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("mixture of experts"), "{error}");
}

/// Through Core ML, on M4: what the checker says of the program of each family, and of one with a
/// vocabulary that takes several products.
#[test]
fn the_machine_accepts_every_family() {
    let profile = Profile::find("m4-macos15-coreml").unwrap();
    let mut models = models();
    let (_, mut config, mut weights, tokens) = models[3].clone();
    config.vocab = 65_600;
    weights.embed.resize(config.vocab * config.dim, 0.01);
    if let Some(classifier) = &mut weights.classifier {
        classifier.resize(config.vocab * config.dim, 0.01);
    }
    models.push(("several parts".into(), config, weights, tokens));
    for (name, config, weights, _) in models {
        for encoding in [WeightEncoding::Fp16, WeightEncoding::Int8, WeightEncoding::Palette4, WeightEncoding::Palette6]
        {
            let exported = exported(&config, &weights, encoding);
            let found = check(&exported.program, &profile, &Default::default());
            for finding in &found {
                let (value, message) = (finding.value.as_deref().unwrap_or(""), &finding.message);
                eprintln!("{name} {}: {:?} {} {value}: {message}", encoding.name(), finding.severity, finding.code);
            }
            assert!(found.iter().all(|finding| finding.severity == Severity::Note), "{name} {encoding:?}");
        }
    }
}
