use super::*;

fn sampler(temperature: f32, top_p: f32) -> Sampler {
    Sampler::new(&Sampling { temperature, top_p, seed: Some(5), ..Sampling::default() }).unwrap()
}

fn counts(sampler: &mut Sampler, logits: &[f32], draws: usize) -> Vec<usize> {
    let mut counts = vec![0; logits.len()];
    (0..draws).for_each(|_| counts[sampler.sample(logits).unwrap() as usize] += 1);
    counts
}

/// Distributions that `scripts/llm/sampling.py` computed with `transformers`.
#[test]
fn the_steps_are_those_of_transformers() {
    #[derive(serde::Deserialize)]
    struct Case {
        options: Sampling,
        logits: Vec<f32>,
        prompt: Vec<u32>,
        output: Vec<u32>,
        probabilities: Vec<(u32, f32)>,
    }
    let cases: Vec<Case> = serde_json::from_str(include_str!("../../tests/data/sampling.json")).unwrap();
    assert!(cases.len() > 30);
    for mut case in cases {
        let mut sampler = Sampler::new(&case.options).unwrap();
        sampler.begin(&case.prompt);
        case.output.iter().for_each(|id| sampler.accept(*id));
        let mut found = sampler.distribution(&case.logits, None).unwrap();
        // Single precision may round less to 0.
        found.retain(|(_, p)| *p > 1e-30);
        case.probabilities.retain(|(_, p)| *p > 1e-30);
        let ids = |of: &[(u32, f32)]| of.iter().map(|(id, _)| *id).collect::<Vec<_>>();
        assert_eq!(ids(&found), ids(&case.probabilities), "{:?}", case.options);
        for ((id, found), (_, expected)) in found.iter().zip(&case.probabilities) {
            assert!((found - expected).abs() < 2e-6, "{:?}: {id}: {found} {expected}", case.options);
        }
    }
}

#[test]
fn draws_follow_the_distribution() {
    let logits: Vec<f32> = (0..12).map(|i| (i as f32 * 1.7).sin() * 2.0).collect();
    let options = [
        Sampling::default(),
        Sampling { temperature: 1.5, top_k: Some(6), ..Sampling::default() },
        Sampling { temperature: 0.9, top_p: 0.8, min_p: 0.1, ..Sampling::default() },
    ];
    let n = 40_000;
    for options in options {
        let mut sampler = Sampler::new(&Sampling { seed: Some(9), ..options }).unwrap();
        let expected = sampler.distribution(&logits, None).unwrap();
        let found = counts(&mut sampler, &logits, n);
        assert_eq!(found.iter().filter(|count| **count > 0).count(), expected.len());
        let distance: f64 = expected
            .iter()
            .map(|&(id, p)| {
                let expected = f64::from(p) * n as f64;
                (found[id as usize] as f64 - expected).powi(2) / expected
            })
            .sum();
        // The chi-square statistic of 11 degrees of freedom exceeds 36 once in 6000 times.
        assert!(distance < 36.0, "{distance} {:?}", sampler.options());
    }
}

#[test]
fn only_the_allowed_ids_are_drawn() {
    let logits = [9.0, 1.0, 8.0, 1.5, 7.0];
    let greedy = || Sampler::new(&Sampling::greedy()).unwrap();
    assert_eq!(greedy().only(&[3, 1]).sample(&logits), Ok(3));
    assert_eq!(greedy().sample_masked(&logits, Some(&[0b01010])), Ok(3));
    assert_eq!(greedy().only(&[4, 1]).sample_masked(&logits, Some(&[0b01010])), Ok(1));
    // A mask that ends early excludes the rest.
    let long: Vec<f32> = (0..70).map(|i| i as f32).collect();
    assert_eq!(greedy().sample_masked(&long, Some(&[u32::MAX, 0b100])), Ok(34));
    assert_eq!(greedy().sample_masked(&logits, Some(&[])), Err(Error::NoLogits));
    for top_p in [0.9, 1.0] {
        let mut sampler = sampler(1.0, top_p).only(&[3, 1, 77]);
        let drawn: Vec<u32> = (0..200).map(|_| sampler.sample(&logits).unwrap()).collect();
        assert!(drawn.iter().all(|id| [1, 3].contains(id)) && drawn.contains(&1) && drawn.contains(&3));
    }
}

#[test]
fn greedy_takes_the_lowest_of_equals() {
    assert_eq!(argmax(&[1.0, 3.0, 3.0]), Some(1));
    assert_eq!(argmax(&[f32::NAN, -1.0]), Some(1));
    assert_eq!(argmax(&[]), None);
    assert_eq!(counts(&mut sampler(0.0, 0.9), &[0.0, 2.0, 2.0], 3), [0, 3, 0]);
    assert_eq!(counts(&mut sampler(1.0, 0.0), &[0.0, f32::INFINITY], 3), [0, 3]);
    // Four equal tokens: the lowest ids are the nucleus.
    let even = counts(&mut sampler(1.0, 0.3), &[0.0; 4], 1000);
    assert_eq!((even[2], even[3]), (0, 0));
}

#[test]
fn penalties_need_the_history() {
    let options = Sampling { repetition_penalty: 2.0, penalty_window: Some(2), ..Sampling::greedy() };
    let mut sampler = Sampler::new(&options).unwrap();
    let logits = [4.0, 3.0, 2.5];
    assert_eq!(sampler.sample(&logits), Ok(0));
    sampler.begin(&[0]);
    assert_eq!(sampler.sample(&logits), Ok(1));
    sampler.accept(1);
    assert_eq!(sampler.sample(&logits), Ok(2));
    // The window holds two tokens, so 0 leaves it.
    sampler.accept(2);
    assert_eq!(sampler.sample(&logits), Ok(0));
    sampler.begin(&[]);
    assert_eq!(sampler.sample(&logits), Ok(0));
    // Presence and frequency count the output only.
    let mut sampler = Sampler::new(&Sampling { frequency_penalty: 0.6, ..Sampling::greedy() }).unwrap();
    sampler.begin(&[0, 0, 0]);
    assert_eq!(sampler.sample(&logits), Ok(0));
    (0..2).for_each(|_| sampler.accept(0));
    assert_eq!(sampler.sample(&logits), Ok(1));
}

#[test]
fn a_seed_repeats_and_bad_input_is_refused() {
    let logits: Vec<f32> = (0..50).map(|i| (i as f32).sin()).collect();
    let run = |seed| {
        let mut sampler = Sampler::new(&Sampling { top_p: 0.9, seed, ..Sampling::default() }).unwrap();
        (0..20).map(|_| sampler.sample(&logits).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(run(Some(1)), run(Some(1)));
    assert_ne!(run(Some(1)), run(Some(2)));
    assert_ne!(run(None), run(None));
    let d = Sampling::default;
    for (options, option) in [
        (Sampling { temperature: f32::NAN, ..d() }, "temperature"),
        (Sampling { temperature: -1.0, ..d() }, "temperature"),
        (Sampling { top_p: 1.5, ..d() }, "top_p"),
        (Sampling { min_p: -0.1, ..d() }, "min_p"),
        (Sampling { repetition_penalty: 0.0, ..d() }, "repetition_penalty"),
        (Sampling { presence_penalty: f32::INFINITY, ..d() }, "presence_penalty"),
        (Sampling { frequency_penalty: f32::NAN, ..d() }, "frequency_penalty"),
        (Sampling { logit_bias: [(3, f32::NAN)].into(), ..d() }, "logit_bias"),
    ] {
        let error = Sampler::new(&options).unwrap_err();
        assert!(matches!(error, Error::Option { option: found, .. } if found == option), "{error}");
    }
    let message = Sampler::new(&Sampling { top_p: 1.5, ..d() }).unwrap_err().to_string();
    assert_eq!(message, "`top_p` is 1.5; it must be a number from 0 to 1");
    for none in [&[][..], &[f32::NAN], &[f32::NEG_INFINITY; 2]] {
        assert_eq!(Sampler::new(&d()).unwrap().sample(none), Err(Error::NoLogits));
        assert_eq!(log_probs(none, 0, 1), None);
    }
}

#[test]
fn log_probabilities_are_those_of_the_softmax() {
    let logits = [1.0, 3.0, f32::NEG_INFINITY, 3.0, 2.0, f32::NAN];
    let sum: f64 = [1.0f64, 3.0, 3.0, 2.0].iter().map(|v| v.exp()).sum();
    let of = |v: f64| (v - sum.ln()) as f32;
    let found = log_probs(&logits, 4, 3).unwrap();
    let close = |found: LogProb, id, log_prob: f32| found.id == id && (found.log_prob - log_prob).abs() < 1e-6;
    assert!(close(found.chosen, 4, of(2.0)), "{found:?}");
    assert!(close(found.top[0], 1, of(3.0)) && close(found.top[1], 3, of(3.0)) && close(found.top[2], 4, of(2.0)));
    assert_eq!((log_probs(&logits, 0, 99).unwrap().top.len(), log_probs(&logits, 0, 0).unwrap().top.len()), (4, 0));
    assert_eq!(log_probs(&logits, 2, 0).unwrap().chosen.log_prob, f32::NEG_INFINITY);
    assert_eq!(log_probs(&logits, 6, 0), None);
    // Far below the rest, yet exact.
    assert!((log_probs(&[0.0, -300.0], 1, 0).unwrap().chosen.log_prob + 300.0).abs() < 1e-4);
}
