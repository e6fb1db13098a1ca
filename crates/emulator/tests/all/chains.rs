//! Chains: attention, gradients of it and norms run tile by tile, with the bits of their members.

use ferrane_emulator::{Emulator, EmulatorOptions, Numerics};
use ferrane_mil::{Builder, DataType, MilError, ReducedDims, Transpose, ValueId};
use proptest::prelude::*;

use crate::harness::{Tensor, bits, program, run, steps};

use DataType::Fp16;

/// The same program with all of `body`'s values as outputs, so that none can stay in a tile, and
/// with its last one only. Both must agree in every value that both have, bit for bit, and the
/// second must be chains.
fn law(
    inputs: &[Tensor],
    wanted: &[&str],
    body: impl Fn(&mut Builder, &[ValueId]) -> Result<Vec<ValueId>, MilError>,
) -> Result<(), TestCaseError> {
    let apart = program(inputs, &body);
    let fused = program(inputs, |b, ids| Ok(body(b, ids)?.pop().into_iter().collect()));
    // Queries that share a key may have to be copied to lie side by side.
    let found: Vec<_> = steps(&fused).into_iter().filter(|op| op != "reshape").collect();
    prop_assert_eq!(found, wanted);
    let split = steps(&apart);
    prop_assert!(split.iter().all(|op| !op.contains("softmax+")), "{:?}", split);
    let one = run(Numerics::Fast, &fused, inputs).unwrap().pop().unwrap();
    let all = run(Numerics::Fast, &apart, inputs).unwrap().pop().unwrap();
    prop_assert_eq!(bits(&one), bits(&all));
    Ok(())
}

/// An additive mask `[1, 1, seq, seq]`.
fn mask(b: &mut Builder, seq: usize, hidden: f64) -> Result<ValueId, MilError> {
    let values = (0..seq * seq).map(|n| if n % seq <= n / seq { 0.0 } else { hidden }).collect();
    let tensor = Tensor::new(Fp16, &[1, 1, seq, seq], values);
    b.weight("mask", "@model_path/mask.bin", Fp16, &tensor.shape, tensor.to_bytes())
}

/// How attention is written down.
#[derive(Clone, Copy, Debug)]
struct Form {
    /// Heads lie as the engine's kernels have them, `[1, heads · dim, 1, seq]`.
    channels_first: bool,
    /// Queries of a key: so many query heads share a key-value head, and their rows are one matrix.
    ratio: usize,
    scaled: bool,
    hidden: Option<f64>,
    /// The result goes back to where heads are side by side.
    joined: bool,
}

fn heads(b: &mut Builder, name: &str, x: ValueId, form: Form, [n, dim, seq]: [usize; 3]) -> Result<ValueId, MilError> {
    let int = |n: usize| n as i32;
    if form.channels_first {
        let x = b.reshape(&format!("{name}_split"), x, &[1, int(n), int(dim), int(seq)])?;
        b.transpose(&format!("{name}_heads"), x, &[0, 1, 3, 2])
    } else {
        let x = b.reshape(&format!("{name}_split"), x, &[1, int(seq), int(n), int(dim)])?;
        b.transpose(&format!("{name}_heads"), x, &[0, 2, 1, 3])
    }
}

fn attention(b: &mut Builder, ids: &[ValueId], form: Form, size: [usize; 3]) -> Result<Vec<ValueId>, MilError> {
    let [n, dim, seq] = size;
    let all = n * form.ratio;
    let mut q = heads(b, "q", ids[0], form, [all, dim, seq])?;
    let k = heads(b, "k", ids[1], form, size)?;
    let v = heads(b, "v", ids[2], form, size)?;
    let [group, apart] = [[n, form.ratio * seq], [all, seq]].map(|[n, rows]| [1, n as i32, rows as i32]);
    let shape = |[one, n, rows]: [i32; 3], cols: usize| [one, n, rows, cols as i32];
    if form.ratio > 1 {
        q = b.reshape("q_group", q, &shape(group, dim))?;
    }
    let mut made = vec![b.matmul("scores", q, k, Transpose::Y)?];
    if form.scaled {
        made.push(b.scale("scaled", made[0], 1.0 / (dim as f32).sqrt())?);
    }
    let mut last = made[made.len() - 1];
    if form.ratio > 1 {
        last = b.reshape("heads", last, &shape(apart, seq))?;
    }
    if let Some(hidden) = form.hidden {
        let mask = mask(b, seq, hidden)?;
        last = b.add("masked", last, mask)?;
        made.push(last);
    }
    let mut probs = b.softmax("probs", last, -1)?;
    made.push(probs);
    if form.ratio > 1 {
        probs = b.reshape("probs_group", probs, &shape(group, seq))?;
    }
    let mut out = b.matmul("attn", probs, v, Transpose::Neither)?;
    if form.ratio > 1 {
        out = b.reshape("attn_heads", out, &shape(apart, dim))?;
    }
    if form.joined {
        let perm = if form.channels_first { [0, 1, 3, 2] } else { [0, 2, 1, 3] };
        out = b.transpose("joined", out, &perm)?;
        let shape = if form.channels_first {
            [1, (all * dim) as i32, 1, seq as i32]
        } else {
            [1, 1, seq as i32, (all * dim) as i32]
        };
        out = b.reshape("flat", out, &shape)?;
    }
    made.push(out);
    Ok(made)
}

fn operands(form: Form, [n, dim, seq]: [usize; 3], seed: u64) -> Vec<Tensor> {
    let shape = |n: usize| if form.channels_first { [1, n * dim, 1, seq] } else { [1, 1, seq, n * dim] };
    let count = |i: u64| if i == 0 { n * form.ratio } else { n };
    (0..3).map(|i| Tensor::random(Fp16, &shape(count(i)), seed ^ (i + 1))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn attention_equals_its_members(
        n in 2..6usize,
        dim in prop::sample::select(vec![4, 8, 12, 16, 33, 64]),
        seq in prop::sample::select(vec![16, 31, 48, 64, 100, 128, 200, 256, 300, 900]),
        (channels_first, joined, scaled) in any::<(bool, bool, bool)>(),
        ratio in prop::sample::select(vec![1, 1, 2, 3]),
        hidden in prop::sample::select(vec![None, Some(-65504.0), Some(f64::NEG_INFINITY), Some(-1e4), Some(-3.0)]),
        // Small scores, scores as large as the mask, and some that overflow.
        scale in prop::sample::select(vec![1.0, 40.0, 300.0]),
        spoil in prop::sample::select(vec![None, Some(f64::NAN), Some(f64::INFINITY), Some(-0.0)]),
        (at, input) in (any::<usize>(), 0..3usize),
        seed in any::<u64>(),
    ) {
        let form = Form { channels_first, ratio, scaled, hidden, joined };
        let size = [n, dim, seq];
        let mut inputs = operands(form, size, seed);
        for v in &mut inputs[0].values {
            *v = crate::harness::half(*v * scale);
        }
        if let Some(bad) = spoil {
            let count = inputs[input].values.len();
            inputs[input].values[at % count] = bad;
        }
        let op = match (scaled, hidden.is_some(), ratio > 1) {
            (true, true, true) => "matmul+mul+add+softmax+matmul",
            (_, true, _) => "matmul+add+softmax+matmul",
            (true, false, _) => "matmul+mul+softmax+matmul",
            (false, false, _) => "matmul+softmax+matmul",
        };
        law(&inputs, &[op], |b, ids| attention(b, ids, form, size))?;
    }

    #[test]
    fn the_gradient_of_a_softmax_equals_its_members(
        n in 2..5usize,
        dim in prop::sample::select(vec![8, 16, 40]),
        seq in prop::sample::select(vec![16, 40, 96, 257, 800]),
        // The probabilities of keys that come after the query are zero.
        causal in any::<bool>(),
        (swapped, scaled) in any::<(bool, bool)>(),
        spoil in prop::sample::select(vec![None, Some(f64::NAN), Some(f64::INFINITY), Some(-0.0), Some(60_000.0)]),
        (at, input) in (any::<usize>(), 0..3usize),
        seed in any::<u64>(),
    ) {
        let mut inputs = [
            Tensor::random(Fp16, &[1, n, seq, seq], seed),
            Tensor::random(Fp16, &[1, n, seq, seq], seed ^ 1),
            Tensor::random(Fp16, &[1, n, seq, dim], seed ^ 2),
        ];
        if causal {
            for (i, v) in inputs[0].values.iter_mut().enumerate().filter(|(i, _)| i % seq > i / seq % seq) {
                *v = if i % 1000 == 999 { -0.0 } else { 0.0 };
            }
        }
        if let Some(bad) = spoil {
            let count = inputs[input].values.len();
            inputs[input].values[at % count] = bad;
        }
        let last = if scaled { "scaled" } else { "ds" };
        law(&inputs, &["mul+reduce_sum+mul+matmul"], |b, ids| {
            let [x, y] = if swapped { [ids[1], ids[0]] } else { [ids[0], ids[1]] };
            let weighted = b.mul("weighted", x, y)?;
            let sum = b.reduce_sum("sum", weighted, &[-1], ReducedDims::Keep)?;
            let centered = b.sub("centered", ids[1], sum)?;
            let mut made = vec![weighted, sum, centered];
            made.push(b.mul("ds", ids[0], centered)?);
            if last == "scaled" {
                made.push(b.scale(last, made[3], 0.25)?);
            }
            made.push(b.matmul("dq", made[made.len() - 1], ids[2], Transpose::Neither)?);
            Ok(made)
        })?;
    }

    #[test]
    fn the_gradient_of_scores_in_a_tile_equals_its_members(
        n in 2..5usize,
        seq in prop::sample::select(vec![16, 40, 96, 300]),
        dim in prop::sample::select(vec![8, 16, 40]),
        seed in any::<u64>(),
    ) {
        let inputs = [
            Tensor::random(Fp16, &[1, n, seq, seq], seed),
            Tensor::random(Fp16, &[1, n, seq, dim], seed ^ 1),
            Tensor::random(Fp16, &[1, n, seq, dim], seed ^ 2),
        ];
        law(&inputs, &["matmul+mul+reduce_sum+mul+matmul"], |b, ids| {
            let grads = b.matmul("grads", ids[1], ids[2], Transpose::Y)?;
            let weighted = b.mul("weighted", ids[0], grads)?;
            let sum = b.reduce_sum("sum", weighted, &[-1], ReducedDims::Keep)?;
            let centered = b.sub("centered", grads, sum)?;
            let ds = b.mul("ds", ids[0], centered)?;
            let dq = b.matmul("dq", ds, ids[2], Transpose::Neither)?;
            Ok(vec![grads, weighted, sum, centered, ds, dq])
        })?;
    }

    #[test]
    fn a_norm_of_rows_equals_its_members(
        rows in 16..300usize,
        cols in prop::sample::select(vec![16, 64, 100, 768, 2100]),
        seed in any::<u64>(),
    ) {
        let inputs = [Tensor::random(Fp16, &[1, rows, cols], seed), Tensor::random(Fp16, &[cols], seed ^ 1)];
        law(&inputs, &["mul+reduce_mean+pow+mul"], |b, ids| {
            let squares = b.mul("squares", ids[0], ids[0])?;
            let mean = b.reduce_mean("mean", squares, &[-1], ReducedDims::Keep)?;
            let eps = b.scalar_like(mean, 1e-3)?;
            let shifted = b.add("shifted", mean, eps)?;
            let power = b.scalar_like(shifted, -0.5)?;
            let inverse = b.pow("inverse", shifted, power)?;
            let normed = b.mul("normed", ids[0], inverse)?;
            let y = b.mul("y", normed, ids[1])?;
            Ok(vec![squares, mean, shifted, inverse, normed, y])
        })?;
    }
}

#[test]
fn chains_do_not_depend_on_the_number_of_threads() {
    for joined in [false, true] {
        let form = Form { channels_first: false, ratio: 1, scaled: true, hidden: Some(-65504.0), joined };
        let size = [6, 16, 200];
        let inputs = operands(form, size, 7);
        let program = program(&inputs, |b, ids| Ok(attention(b, ids, form, size)?.pop().into_iter().collect()));
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| bits(&run(Numerics::Fast, &program, &inputs).unwrap()[0]))
        };
        assert_eq!(with(1), with(5));
    }
}

#[test]
fn what_others_read_is_stored_on_the_way() {
    let size = [3, 8, 64];
    let form = Form { channels_first: true, ratio: 1, scaled: true, hidden: Some(-65504.0), joined: false };
    let inputs = operands(form, size, 3);
    let both = |all: bool| {
        program(&inputs, |b, ids| {
            let made = attention(b, ids, form, size)?;
            // The probabilities are an output and a factor from the other side.
            let turned = b.matmul("turned", made[3], made[4], Transpose::X)?;
            Ok(if all { [&made[..], &[turned]].concat() } else { vec![made[3], turned] })
        })
    };
    assert_eq!(steps(&both(false)), ["matmul+add+softmax+matmul", "matmul"]);
    let (fused, apart) = (both(false), both(true));
    let fused = run(Numerics::Fast, &fused, &inputs).unwrap();
    let apart = run(Numerics::Fast, &apart, &inputs).unwrap();
    assert_eq!((bits(&fused[0]), bits(&fused[1])), (bits(&apart[3]), bits(&apart[5])));
}

#[test]
fn gradients_that_are_zero_are_stored_for_other_products() {
    zero_gradients(None);
    // The mean of these rows overflows, and zero times its distance from a gradient is NaN.
    for row in [0, 5, 70] {
        zero_gradients(Some(row));
    }
}

/// Compares two products of gradients whose later keys have no probability, `large` in one row.
fn zero_gradients(large: Option<usize>) {
    let (n, seq, dim) = (3, 256, 16);
    let mut inputs = vec![
        Tensor::random(Fp16, &[1, n, seq, seq], 1),
        Tensor::random(Fp16, &[1, n, seq, seq], 2),
        Tensor::random(Fp16, &[1, n, seq, dim], 3),
        Tensor::random(Fp16, &[1, n, seq, dim], 4),
    ];
    inputs[0].values.iter_mut().enumerate().filter(|(i, _)| i % seq > i / seq % seq).for_each(|(_, v)| *v = 0.0);
    if let Some(row) = large {
        inputs[0].values[row * seq..][..row + 1].fill(30_000.0);
        inputs[1].values[row * seq..][..row + 1].fill(4.0);
    }
    let both = |all: bool| {
        program(&inputs, |b, ids| {
            let weighted = b.mul("weighted", ids[0], ids[1])?;
            let sum = b.reduce_sum("sum", weighted, &[-1], ReducedDims::Keep)?;
            let centered = b.sub("centered", ids[1], sum)?;
            let ds = b.mul("ds", ids[0], centered)?;
            let dq = b.matmul("dq", ds, ids[2], Transpose::Neither)?;
            let dk = b.matmul("dk", ds, ids[3], Transpose::X)?;
            Ok(if all { vec![weighted, sum, centered, ds, dq, dk] } else { vec![dq, dk] })
        })
    };
    let (fused, apart) = (both(false), both(true));
    assert_eq!(steps(&fused), ["mul+reduce_sum+mul+matmul", "matmul"]);
    let fused = run(Numerics::Fast, &fused, &inputs).unwrap();
    let apart = run(Numerics::Fast, &apart, &inputs).unwrap();
    assert!((bits(&fused[0]), bits(&fused[1])) == (bits(&apart[4]), bits(&apart[5])), "{large:?}");
}

#[test]
fn other_tables_run_the_members() {
    let size = [2, 8, 32];
    let form = Form { channels_first: true, ratio: 1, scaled: true, hidden: Some(-65504.0), joined: false };
    let inputs = operands(form, size, 3);
    let program = program(&inputs, |b, ids| Ok(attention(b, ids, form, size)?.pop().into_iter().collect()));
    for numerics in [Numerics::Exact, Numerics::Hardware] {
        let mut options = EmulatorOptions::default();
        options.numerics = numerics;
        let steps = Emulator::new(options).time_steps(&program, 1).unwrap();
        assert_eq!(steps.len(), 4, "{numerics:?}");
    }
}

#[test]
fn one_large_query_of_one_head_reaches_over_the_mask() {
    let (form, size) =
        (Form { channels_first: false, ratio: 1, scaled: true, hidden: Some(-1e4), joined: false }, [3, 16, 256]);
    let [n, dim, seq] = size;
    for head in 0..n {
        let mut inputs = operands(form, size, 7);
        // The first query sees the first key alone, which suits it badly. The last key suits it
        // best, mask or not.
        inputs[0].values[head * dim..][..dim].fill(8000.0);
        inputs[1].values[head * dim..][..dim].fill(-0.5);
        inputs[1].values[((seq - 1) * n + head) * dim..][..dim].fill(1.0);
        law(&inputs, &["matmul+add+softmax+matmul"], |b, ids| attention(b, ids, form, size)).unwrap();
    }
}
