//! Generation with a cache on the emulator, compared with whole sequences of the reference, across
//! cache and window sizes.

use crate::checkpoints::{at_most, files, id, ids, largest_difference, model_beside, name, numbers, text};
use crate::device::relative_difference;
use crate::gradients::{everything, gemma, plain, random_weights, uneven};
use crate::kernels::emulator;
use ferrane_device::Device;
use ferrane_emulator::{Emulator, EmulatorOptions, Faults, Numerics, ProcessCounts};
use ferrane_host::f16;
use ferrane_llm::config::{Config, preset};
use ferrane_llm::decode::constants;
use ferrane_llm::decode::quantize::{HostMatrix, WeightType};
use ferrane_llm::decode::{ContextPolicy, Decoder, Options};
use ferrane_llm::forward::{self, Error, Forward};
use ferrane_llm::generate::{NextLogits as _, Tokens};
use ferrane_llm::reference::Reference;
use ferrane_llm::sample::{Sampler, Sampling, argmax};
use ferrane_llm::weights::container::Container;
use ferrane_llm::weights::{Slot, TensorKind, Weights, load};
use ferrane_machine::profile::Limit;
use ferrane_testdata::Suite;
use std::path::Path;

const INT8: Options =
    Options { weights: WeightType::Int8, context: None, slots: 1, adapter_rank: 0, policy: ContextPolicy::Shift };
const INT4: Options = Options { weights: WeightType::Int4, ..INT8 };

/// Largest difference of logits relative to their range: some roundings to fp16 for each of two
/// layers.
const CLOSE: f32 = 8e-3;

/// Small models whose context exceeds the smallest caches: one kv head for each query head or for
/// two, biases, QK-norm, a sliding window, tied and untied; layers that differ, and all of Gemma.
pub fn models() -> Vec<(Config, Weights)> {
    let many = Config { kv_heads: 4, ..plain() };
    let narrow = Config { sliding_window: Some(150), ..everything() };
    let wider = |config| Config { sliding_window: Some(150), ..config };
    [plain(), many, everything(), narrow, wider(uneven()), wider(gemma())]
        .map(|config| {
            let config = Config { max_seq: 600, ..config };
            let weights = random_weights(&config, 7);
            (config, weights)
        })
        .into()
}

/// `count` pseudo-random tokens of the model's vocabulary.
pub fn tokens(config: &Config, count: usize) -> Vec<u32> {
    (0..count).map(|i| ((i * i * 7 + i / 3) % config.vocab) as u32).collect()
}

/// The reference's last row of logits for each prefix length in `ends`.
fn rows(config: &Config, weights: &Weights, tokens: &[u32], ends: &[usize]) -> Vec<Vec<f32>> {
    let all = Reference::new(config, weights).unwrap().logits(tokens).unwrap();
    ends.iter().map(|&end| all[(end - 1) * config.vocab..end * config.vocab].to_vec()).collect()
}

/// Feeds pieces of these lengths and compares the logits after each with the reference's. Returns
/// the largest difference.
fn fed(device: &Device, (config, weights): &(Config, Weights), options: Options, pieces: &[usize]) -> f32 {
    let tokens = tokens(config, pieces.iter().sum());
    let ends: Vec<usize> = pieces.iter().scan(0, |at, n| Some(std::mem::replace(at, *at + n) + n)).collect();
    let expected = rows(config, weights, &tokens, &ends);
    let mut decoder = Decoder::new(device, config, weights, options).unwrap();
    let mut worst = 0.0f32;
    for ((end, count), expected) in ends.iter().zip(pieces).zip(&expected) {
        let logits = decoder.feed(&tokens[end - count..*end]).unwrap();
        worst = worst.max(relative_difference(logits, expected).unwrap());
    }
    assert_eq!(decoder.tokens(), tokens);
    worst
}

/// Single tokens across the first two caches; windows of both widths, padded and full, before and
/// after a cache's end.
const PIECES: [&[usize]; 4] =
    [&[1; 140], &[130, 1, 1, 3, 125, 1, 1], &[300, 1, 2, 40, 1], &[5, 122, 1, 1, 1, 256, 100, 1]];

#[test]
fn the_cache_gives_what_whole_sequences_give() {
    for model in models() {
        for numerics in [Numerics::Fast, Numerics::Exact] {
            for pieces in PIECES {
                let error = fed(&emulator(numerics), &model, Options::default(), pieces);
                // As for whole windows, activations, weights, keys and values are rounded to fp16
                // (4.9e-4) between the requests of two layers; this is the maximum over hundreds of
                // positions.
                assert!(error < CLOSE, "{numerics:?} {:?} {pieces:?}: {error}", model.0);
            }
        }
    }
}

/// A row as dequantized from int4, with scales in fp32 products as the programs have them.
fn int4_row(row: &mut [f32]) {
    let block = constants::block(row.len());
    let (mut codes, mut scales) = (vec![0u8; row.len().div_ceil(2)], vec![f16::ZERO; row.len() / block]);
    assert!(constants::encode_row(row, &mut codes, &mut scales));
    for (i, value) in row.iter_mut().enumerate() {
        let code = ((codes[i / 2] >> (4 * (i % 2)) << 4) as i8) >> 4;
        *value = f32::from(code) * scales[i / block].to_f32();
    }
}

/// The weights as dequantized from int4 in the layers, and from int8 elsewhere.
fn rounded_to_int4(config: &Config, weights: &Weights) -> Weights {
    let mut rounded = rounded(config, weights);
    for (tensor, before) in rounded.tensors_mut(config).into_iter().zip(weights.tensors(config)) {
        if tensor.kind == TensorKind::Matrix && tensor.name.starts_with("layers.") {
            tensor.data.copy_from_slice(before.data);
            tensor.data.chunks_mut(*tensor.shape.last().unwrap()).for_each(int4_row);
        }
    }
    rounded
}

/// A model whose matrices are large enough for products of codes.
fn wider() -> (Config, Weights) {
    let config = Config { dim: 64, hidden: 96, kv_heads: 2, head_dim: 16, max_seq: 600, ..everything() };
    let weights = random_weights(&config, 9);
    (config, weights)
}

#[test]
fn int4_gives_what_the_reference_gives_with_the_rounded_weights() {
    for (config, weights) in models().into_iter().chain([wider()]) {
        let model = (config.clone(), rounded_to_int4(&config, &weights));
        assert_ne!(model.1, rounded(&config, &weights));
        for numerics in [Numerics::Fast, Numerics::Exact] {
            for pieces in [PIECES[1], PIECES[2]] {
                // Quantizing again gives the same codes and scales.
                let error = fed(&emulator(numerics), &model, INT4, pieces);
                assert!(error < CLOSE, "{numerics:?} {config:?} {pieces:?}: {error}");
            }
        }
    }
}

/// `data/q4_0.gguf` is written by scripts/llm/q4_0.py.
#[test]
fn int4_keeps_the_codes_and_scales_of_q4_0() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/q4_0.gguf");
    let file = ferrane_gguf::File::open(path).unwrap();
    let tensor = file.tensor("weight").unwrap();
    let mut values = vec![0.0f32; tensor.elements()];
    file.read(tensor, &mut values).unwrap();
    // A block has its scale, then 16 bytes: value `i` is in the low bits of byte `i`, value `16 +
    // i` in the high ones.
    for (row, raw) in values.chunks(128).zip(file.raw(tensor).chunks(4 * 18)) {
        let (mut codes, mut scales) = (vec![0u8; 64], vec![f16::ZERO; 4]);
        assert!(constants::encode_row(row, &mut codes, &mut scales));
        for (b, raw) in raw.chunks(18).enumerate() {
            let is_zero = row[32 * b..][..32].iter().all(|value| *value == 0.0);
            assert!(is_zero || scales[b].to_le_bytes() == raw[..2], "{b}");
            for i in 0..32 {
                let stored = (raw[2 + i % 16] >> (4 * (i / 16)) & 15) as i8 - 8;
                let code = ((codes[16 * b + i / 2] >> (4 * (i % 2)) << 4) as i8) >> 4;
                assert!(code == stored || is_zero && code == 0, "block {b}, value {i}");
            }
        }
        let mut again = row.to_vec();
        int4_row(&mut again);
        assert_eq!(again, row);
    }
}

#[test]
fn int4_takes_a_program_for_each_layer() {
    let (config, weights) = wider();
    let device = |budget: usize| {
        let mut options = EmulatorOptions::default();
        options.budget = Some(Limit(Some(budget)));
        options.process = ProcessCounts::default();
        Device::new(Emulator::new(options))
    };
    // Two layers, two programs of each; a prompt's windows take more.
    let mut decoder = Decoder::new(&device(4), &config, &weights, INT4).unwrap();
    decoder.feed(&[1]).unwrap();
    let error = decoder.feed(&[1; 40]).unwrap_err();
    assert!(matches!(error, Error::Constants { layers: 2, .. }), "{error}");
    assert!(error.to_string().contains("int8 weights are inputs"), "{error}");
    assert!(matches!(Decoder::new(&device(3), &config, &weights, INT4), Err(Error::Constants { .. })));
}

/// The weights as dequantized from int8.
fn rounded(config: &Config, weights: &Weights) -> Weights {
    let mut rounded = weights.clone();
    for (slot, tensor) in Slot::list(config).into_iter().zip(rounded.tensors_mut(config)) {
        if matches!(tensor.kind, TensorKind::Matrix | TensorKind::Embedding) {
            let cols = *tensor.shape.last().unwrap();
            let size = [tensor.data.len() / cols, cols];
            let matrix = HostMatrix::new(weights, slot, size, WeightType::Int8).unwrap();
            tensor.data.chunks_mut(cols).enumerate().for_each(|(i, row)| matrix.row(i, row));
        }
    }
    rounded
}

#[test]
fn int8_gives_what_the_reference_gives_with_the_rounded_weights() {
    for (config, weights) in models() {
        let model = (config.clone(), rounded(&config, &weights));
        assert_ne!(model.1, weights);
        for numerics in [Numerics::Fast, Numerics::Exact] {
            for pieces in [PIECES[1], PIECES[2]] {
                // Quantizing again gives the same codes.
                let error = fed(&emulator(numerics), &model, INT8, pieces);
                assert!(error < CLOSE, "{numerics:?} {config:?} {pieces:?}: {error}");
            }
        }
    }
}

#[test]
fn hardware_numerics_take_both_types() {
    let model = models().remove(0);
    let model = (model.0.clone(), rounded(&model.0, &model.1));
    for options in [Options::default(), INT8] {
        let error = fed(&emulator(Numerics::Hardware), &model, options, &[40, 1, 1]);
        // Under these numerics products are rounded to multiples of 2⁻¹⁶, and functions come from
        // tables.
        assert!(error < 3e-2, "{options:?}: {error}");
    }
}

/// A turn of a schedule: the slots that are continued, and by how many tokens.
type Turn = &'static [(usize, usize)];

/// Sequences of different lengths that begin at different times, continue alone and together, in
/// any order of slots, across the ends of caches.
const TURNS: &[Turn] = &[
    &[(0, 5)],
    &[(0, 1), (2, 40)],
    &[(2, 1), (0, 1)],
    &[(1, 1), (0, 1), (2, 1)],
    &[(0, 1), (1, 2), (2, 1), (4, 130)],
    &[(4, 1), (1, 1)],
    &[(0, 1), (1, 1), (2, 1), (4, 1)],
    &[(3, 1), (4, 1)],
];

/// Runs the turns and compares each sequence's logits with the reference's. Returns the largest
/// difference.
fn together(device: &Device, (config, weights): &(Config, Weights), options: Options) -> f32 {
    let sequences: Vec<Vec<u32>> = (0..5).map(|s| tokens(config, 200 + s).split_off(s)).collect();
    let mut decoder = Decoder::new(device, config, weights, options).unwrap();
    let (mut ends, mut worst) = ([0; 5], 0.0f32);
    for turn in TURNS {
        let feeds: Vec<_> = turn.iter().map(|&(s, n)| (s, &sequences[s][ends[s]..ends[s] + n])).collect();
        let logits = decoder.feed_all(&feeds).unwrap().to_vec();
        assert_eq!(logits.len(), turn.len() * config.vocab);
        for (&(s, n), logits) in turn.iter().zip(logits.chunks(config.vocab)) {
            ends[s] += n;
            assert_eq!(decoder.slot_tokens(s), &sequences[s][..ends[s]]);
            let expected = rows(config, weights, &sequences[s], &[ends[s]]);
            worst = worst.max(relative_difference(logits, &expected[0]).unwrap());
        }
    }
    worst
}

#[test]
fn several_sequences_give_what_each_gives_alone() {
    for model in models() {
        for numerics in [Numerics::Fast, Numerics::Exact] {
            let error = together(&emulator(numerics), &model, Options { slots: 5, ..Options::default() });
            assert!(error < CLOSE, "{numerics:?} {:?}: {error}", model.0);
        }
        let model = (model.0.clone(), rounded(&model.0, &model.1));
        let error = together(&emulator(Numerics::Fast), &model, Options { slots: 16, ..INT8 });
        assert!(error < CLOSE, "int8 {:?}: {error}", model.0);
    }
}

#[test]
fn sequences_are_rewound_and_copied_without_computing_them_again() {
    let (config, weights) = models().remove(2);
    let device = emulator(Numerics::Fast);
    let mut decoder = Decoder::new(&device, &config, &weights, Options { slots: 3, ..Options::default() }).unwrap();
    let tokens = tokens(&config, 60);
    let expected = |tokens: &[u32]| rows(&config, &weights, tokens, &[tokens.len()]).remove(0);
    decoder.feed(&tokens[..50]).unwrap();
    decoder.copy(0, 2, 45).unwrap();
    assert_eq!(decoder.slot_tokens(2), &tokens[..45]);
    // The sequences continue differently: none sees what another wrote.
    decoder.rewind(0, 48);
    let mut other = tokens[..45].to_vec();
    for next in [3, 8, 4] {
        other.push(next);
        let at = decoder.tokens().len();
        let logits = decoder.feed_all(&[(2, &[next]), (0, &tokens[at..at + 1])]).unwrap().to_vec();
        let both = [expected(&other), expected(&tokens[..at + 1])].concat();
        assert!(relative_difference(&logits, &both).unwrap() < CLOSE);
    }
    // A copy into a slot with a longer sequence, and one of a slot onto itself.
    decoder.copy(2, 0, 20).unwrap();
    decoder.copy(0, 0, 10).unwrap();
    let logits = decoder.feed(&tokens[10..11]).unwrap();
    assert!(relative_difference(logits, &expected(&tokens[..11])).unwrap() < CLOSE);
}

#[test]
fn every_token_has_its_logits_if_all_are_wanted() {
    for (config, weights) in models() {
        let device = emulator(Numerics::Fast);
        let options = Options { slots: 2, context: Some(350), ..Options::default() };
        let mut decoder = Decoder::new(&device, &config, &weights, options).unwrap();
        let tokens = tokens(&config, 340);
        let all = Reference::new(&config, &weights).unwrap().logits(&tokens).unwrap();
        decoder.feed_all(&[(1, &tokens[..3])]).unwrap();
        let mut at = 3;
        for count in [1, 40, 290, 6] {
            let mut seen = Vec::new();
            let mut worst = 0.0f32;
            let mut each = |index: usize, logits: &[f32]| {
                seen.push(index);
                let expected = &all[(at + index) * config.vocab..][..config.vocab];
                worst = worst.max(relative_difference(logits, expected).unwrap());
            };
            decoder.feed_each(1, &tokens[at..at + count], &mut each).unwrap();
            assert_eq!(seen, (0..count).collect::<Vec<_>>());
            assert!(worst < CLOSE, "{count} {config:?}: {worst}");
            at += count;
        }
        // The sequence continues as one that was fed whole; a text beyond the context is refused.
        let refused = decoder.feed_each(1, &tokens[..11], &mut |_, _| panic!("nothing is computed"));
        assert!(matches!(refused, Err(Error::Length { found: 351, seq: 350 })), "{refused:?}");
        decoder.rewind(1, 339);
        let logits = decoder.feed_all(&[(1, &tokens[339..])]).unwrap();
        let expected = &all[339 * config.vocab..];
        assert!(relative_difference(logits, expected).unwrap() < CLOSE);
        assert_eq!(decoder.hidden().len(), config.dim);
    }
}

#[test]
fn a_call_that_fails_changes_no_sequence() {
    let (config, weights) = models().remove(0);
    let device = emulator(Numerics::Fast);
    let options = Options { slots: 2, context: Some(40), ..Options::default() };
    let mut decoder = Decoder::new(&device, &config, &weights, options).unwrap();
    let tokens = tokens(&config, 30);
    decoder.feed_all(&[(0, &tokens[..7]), (1, &tokens[..9])]).unwrap();
    let vocab = config.vocab as u32;
    let slot = |error: &Error| matches!(error, Error::Slot { slots: 2, .. });
    for (feeds, fits) in [
        (&[(0usize, &tokens[..1]), (0, &tokens[..1])][..], slot as fn(&Error) -> bool),
        (&[(0, &tokens[..1]), (2, &tokens[..1])], slot),
        (&[(0, &tokens[..1]), (1, &[])], |e| matches!(e, Error::Length { .. })),
        (&[(0, &tokens[..1]), (1, &[vocab])], |e| matches!(e, Error::Token { position: 9, .. })),
    ] {
        let error = decoder.feed_all(feeds).unwrap_err();
        assert!(fits(&error), "{error}");
        assert_eq!((decoder.slot_tokens(0), decoder.slot_tokens(1)), (&tokens[..7], &tokens[..9]));
    }
    assert!(decoder.copy(0, 2, 1).is_err() && decoder.copy(5, 0, 1).is_err());
    assert!(decoder.slot_tokens(7).is_empty());
}

#[test]
fn a_machine_that_wants_four_queries_gets_four() {
    let mut options = EmulatorOptions::default();
    let wants = |p: &ferrane_machine::Profile| p.min_queries.value == 4;
    let names = ferrane_machine::Profile::names();
    options.profile = names.iter().filter_map(|n| ferrane_machine::Profile::named(n).ok()).find(wants).unwrap();
    let device = Device::new(Emulator::new(options));
    for model in models() {
        let error = fed(&device, &model, Options::default(), &[1, 7, 1, 1, 9, 120, 1, 1]);
        assert!(error < CLOSE, "{error}");
        let error = together(&device, &model, Options { slots: 5, ..Options::default() });
        assert!(error < CLOSE, "{error}");
    }
}

#[test]
fn a_sequence_beyond_the_context_goes_on_with_its_last_half() {
    let (config, weights) = models().remove(0);
    let device = emulator(Numerics::Fast);
    let options = Options { context: Some(140), ..Options::default() };
    let mut decoder = Decoder::new(&device, &config, &weights, options).unwrap();
    let tokens = tokens(&config, 400);
    decoder.feed(&tokens[..140]).unwrap();
    let expected = |range: std::ops::Range<usize>| {
        let count = range.len();
        rows(&config, &weights, &tokens[range], &[count]).remove(0)
    };
    let close = |found: &[f32], expected: &[f32]| assert!(relative_difference(found, expected).unwrap() < CLOSE);
    close(decoder.feed(&tokens[140..141]).unwrap(), &expected(71..141));
    assert_eq!(decoder.tokens(), &tokens[71..141]);
    close(decoder.feed(&tokens[141..142]).unwrap(), &expected(71..142));
    // A prompt that is longer than the context, at the start of a sequence and after other tokens.
    close(decoder.feed(&tokens[142..400]).unwrap(), &expected(330..400));
    decoder.clear();
    close(decoder.feed(&tokens).unwrap(), &expected(330..400));
    // The context is exceeded many times.
    let mut sampler = Sampler::new(&Sampling::greedy()).unwrap();
    let emitted = Tokens::new(&mut decoder, &[1], 500, &mut sampler, &[]).map(Result::unwrap).count();
    assert_eq!(emitted, 500);
}

#[test]
fn a_sequence_continues_from_what_two_prompts_share() {
    for device in [emulator(Numerics::Exact), emulator(Numerics::Fast)] {
        for (config, weights) in &models() {
            let first = tokens(config, 210);
            let mut decoder = Decoder::new(&device, config, weights, Options::default()).unwrap();
            decoder.feed(&first).unwrap();
            for shared in [209, 140, 127, 33, 1, 0] {
                // Another token follows what is shared, then others.
                let mut prompt = first[..shared].to_vec();
                prompt.push((first[shared] + 1) % config.vocab as u32);
                prompt.extend((0..40).map(|i| (i * 5 + 1) % config.vocab as u32));
                let expected = rows(config, weights, &prompt, &[prompt.len()]).remove(0);
                decoder.rewind(0, 0);
                decoder.feed(&first).unwrap();
                assert_eq!(decoder.reused(&prompt), shared);
                let found = decoder.resume(&prompt).unwrap();
                assert!(relative_difference(found, &expected).unwrap() < CLOSE, "{shared}");
                assert_eq!(decoder.tokens(), prompt);
                // The whole prompt again: only its last token is computed.
                assert_eq!(decoder.reused(&prompt), prompt.len() - 1);
                let again = decoder.resume(&prompt).unwrap();
                assert!(relative_difference(again, &expected).unwrap() < CLOSE, "{shared}");
            }
            // A rewind beyond the end changes nothing.
            let before = decoder.tokens().len();
            decoder.rewind(0, 10_000);
            assert_eq!(decoder.tokens().len(), before);
        }
    }
}

#[test]
fn a_failed_feed_keeps_what_came_before() {
    let (config, weights) = models().remove(2);
    let tokens = tokens(&config, 145);
    let run = |faults: &str| {
        let mut options = EmulatorOptions::default();
        options.faults = faults.parse::<Faults>().unwrap();
        let device = Device::new(Emulator::new(options));
        let options = Options { context: Some(141), ..Options::default() };
        let mut decoder = Decoder::new(&device, &config, &weights, options).unwrap();
        let (mut all, mut failed) = (Vec::new(), 0);
        let mut at = 0;
        for count in [3, 1, 134, 1, 1, 1, 1, 1] {
            loop {
                match decoder.feed(&tokens[at..at + count]) {
                    Ok(logits) => break all.extend_from_slice(logits),
                    Err(Error::Device { .. }) if failed < 100 => failed += 1,
                    Err(e) => panic!("{e}"),
                }
            }
            at += count;
        }
        (all, failed)
    };
    let (expected, none) = run("budget=1000");
    // A token takes 4 requests and a feed beyond the context 11, so faults hit windows, single
    // tokens and that feed.
    let (found, failed) = run("evaluate:every 13=fail");
    assert!(none == 0 && failed >= 3, "{failed}");
    // A repeated feed beyond the context is split into the same windows; other repeated feeds are
    // not, so their roundings differ.
    assert!(relative_difference(&found, &expected).unwrap() < CLOSE);
    // A compile fails when the cache has to grow.
    let (found, failed) = run("compile:4=fail; compile:6=fail");
    assert_eq!((failed, found), (2, expected));
}

#[test]
fn a_sequence_leaves_nothing_to_the_next() {
    let (config, mut weights) = models().remove(2);
    // A token whose keys and values are NaN. Masked values are multiplied by zero, which would not
    // hide NaN.
    weights.embed[..config.dim].fill(f32::NAN);
    let tokens: Vec<u32> = tokens(&config, 140).iter().map(|t| t.max(&1)).copied().collect();
    let device = emulator(Numerics::Fast);
    for pieces in [&[1, 1, 2][..], &[5, 1, 70, 1], &[140]] {
        let feed = |decoder: &mut Decoder| {
            let mut all = Vec::new();
            let mut at = 0;
            for count in pieces {
                // With a tied classifier the logit of that token is NaN.
                all.extend_from_slice(&decoder.feed(&tokens[at..at + count]).unwrap()[1..]);
                at += count;
            }
            all
        };
        let new = || Decoder::new(&device, &config, &weights, Options::default()).unwrap();
        let (mut fresh, mut used) = (new(), new());
        assert!(used.feed(&[0; 300]).unwrap().iter().all(|logit| logit.is_nan()));
        used.clear();
        // The used decoder has larger caches, so its sums have another order.
        assert!(relative_difference(&feed(&mut used), &feed(&mut fresh)).unwrap() < CLOSE, "{pieces:?}");
    }
}

#[test]
fn bad_sequences_and_weights_are_errors() {
    let (config, weights) = models().remove(0);
    let device = emulator(Numerics::Fast);
    let new = |config: &Config, weights: &Weights, options| Decoder::new(&device, config, weights, options);
    let mut decoder = new(&config, &weights, Options::default()).unwrap();
    assert!(matches!(decoder.feed(&[]), Err(Error::Length { found: 0, .. })));
    decoder.feed(&[1]).unwrap();
    assert!(matches!(decoder.feed(&[1, 9]), Err(Error::Token { token: 9, position: 2, vocab: 9 })));
    assert_eq!(decoder.tokens(), [1]);
    let none = Options { context: Some(0), ..Options::default() };
    assert!(matches!(new(&config, &weights, none), Err(Error::Length { .. })));
    for bad in [f32::NAN, f32::INFINITY, -1e30] {
        let mut spoilt = weights.clone();
        spoilt.layers[1].w2[8] = bad;
        let error = new(&config, &spoilt, INT8).err().unwrap();
        assert!(matches!(error, Error::Quantize { layer: 1, row: 0, .. }), "{error}");
        let mut spoilt = weights.clone();
        spoilt.embed[2] = bad;
        assert!(matches!(new(&config, &spoilt, INT8), Err(Error::Quantize { tensor: "embed", .. })));
    }
    let mut short = weights.clone();
    short.layers[0].wk.pop();
    assert!(matches!(new(&config, &short, INT8), Err(Error::Weights(_))));
    let broken = Config { head_dim: 7, ..config.clone() };
    assert!(matches!(new(&broken, &weights, INT8), Err(forward::Error::Weights(_))));
}

#[test]
fn as_windows_of_the_training_kernels() {
    let (config, weights) = models().remove(2);
    let device = emulator(Numerics::Fast);
    let tokens = tokens(&config, 64);
    let mut windows = Forward::new(&device, &config, &weights, 64, forward::Options::default()).unwrap();
    let mut decoder = Decoder::new(&device, &config, &weights, Options::default()).unwrap();
    for end in [1, 2, 33, 64] {
        decoder.clear();
        let found = decoder.feed(&tokens[..end]).unwrap().to_vec();
        let error = relative_difference(&found, &windows.last_logits(&tokens[..end]).unwrap()).unwrap();
        assert!(error < CLOSE, "{end}: {error}");
    }
}

#[test]
fn weights_per_token() {
    let config = preset("stories260k").unwrap();
    let weights = random_weights(&config, 1);
    let device = emulator(Numerics::Fast);
    let bytes = |options| Decoder::new(&device, &config, &weights, options).unwrap().bytes_per_token();
    let matrices = config.layers * config.layer_matrix_parameters() + config.vocab * config.dim;
    assert_eq!(bytes(Options::default()), 2 * matrices);
    let rows =
        config.layers * (config.q_dim() + 2 * config.kv_dim() + 2 * config.hidden + 2 * config.dim) + config.vocab;
    assert_eq!(bytes(INT8), matrices + 2 * rows);
}

/// Greedy runs token by token: logits and choices compared with the float64 decoder's.
#[test]
fn greedy_runs_with_a_cache() {
    let Some(mut suite) = Suite::open("llm greedy runs with a cache", "checkpoints") else { return };
    for path in files(&suite) {
        if name(&path).starts_with("greedy") && name(&path).ends_with(".safetensors") {
            for options in [Options::default(), INT8] {
                suite.case(&format!("{} {}", id(&path), options.weights.name()), greedy_run(&path, options));
            }
        }
    }
    suite.finish();
}

fn greedy_run(path: &Path, options: Options) -> Result<(), String> {
    let (config, weights) = load(&model_beside(path)?, None).map_err(text)?;
    let file = Container::open(path).map_err(text)?;
    let tokens = ids(&file, "tokens")?;
    let expected = numbers(&file, "logits_f64_as_f32", f32::from_le_bytes)?;
    let mut decoder = Decoder::new(&emulator(Numerics::Fast), &config, &weights, options).map_err(text)?;
    let (mut logits, mut same) = (Vec::new(), 0usize);
    for (token, expected) in tokens.iter().zip(expected.chunks(config.vocab)) {
        let row = decoder.feed(&[*token]).map_err(text)?;
        same += usize::from(argmax(row) == argmax(expected));
        logits.extend_from_slice(row);
    }
    let largest = largest_difference(&logits, &expected)?;
    let mean = logits.iter().zip(&expected).map(|(a, b)| f64::from((a - b).abs())).sum::<f64>() / logits.len() as f64;
    let other = 1.0 - same as f64 / tokens.len() as f64;
    let kind = options.weights.name();
    eprintln!(
        "{} {kind}: |Δlogit| ≤ {largest:.3}, mean {mean:.4}, same choice {:.1} %",
        id(path),
        100.0 - 100.0 * other
    );
    match options.weights {
        // The bounds of whole windows; in addition a greedy run gives the published text to the
        // last token.
        WeightType::Fp16 => {
            at_most(&[("|Δlogit|", largest.into(), 0.1), ("mean", mean, 0.01), ("another choice", other, 0.0)])
        }
        // Twice the measured values, which are 0.343, 0.063 and one other choice in 200. Weights
        // are off by about 1 % (`decode::quantize`).
        WeightType::Int8 => {
            at_most(&[("|Δlogit|", largest.into(), 0.7), ("mean", mean, 0.12), ("another choice", other, 0.02)])
        }
        WeightType::Int4 => Err("no bounds for int4".into()),
    }
}
