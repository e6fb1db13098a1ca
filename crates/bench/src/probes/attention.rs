//! Attention masks, and slices that rotary embeddings are made of.

use ferrane_device::Result;
use serde_json::json;

use crate::place::{Attempt, ELEMENTS, Judgement, Place, SHAPE, ramp};
use crate::probe::{Cost, Probe, Word, says};
use crate::{Draft, Found};

pub(super) const PROBES: &[Probe] = &[
    Probe {
        name: "mask-ignored",
        question: "Does `attn_mask` of scaled_dot_product_attention have an effect?",
        experiments: &[],
        cost: Cost::Light,
        values: &["attn_mask"],
        says: &[says("C074", "attn_mask", Word::Is("ignored")), says("C075", "attn_mask", Word::Is("honoured"))],
        run: mask,
    },
    Probe {
        name: "width-slices",
        question: "Are slices of the last axis put together along it again taken, and right?",
        experiments: &[],
        cost: Cost::Light,
        values: &["rope_width_refused", "concat_slices_wrong"],
        says: &[
            says("C042", "rope_width_refused", Word::Is("false")),
            says("C045", "concat_slices_wrong", Word::Is("true")),
            says("C121", "rope_width_refused", Word::Is("true")),
        ],
        run: slices,
    },
    Probe {
        name: "gather-last",
        question: "Does a gather along the last axis give the right elements?",
        experiments: &[],
        cost: Cost::Light,
        values: &["gather_last_wrong"],
        says: &[says("C096", "gather_last_wrong", Word::Is("true"))],
        run: gather,
    },
];

fn attention(masked: bool) -> Draft {
    let shape = [1, 1, 64, 64];
    let draft = Draft::new().since(18).input("p", "fp16", &shape);
    let (draft, mask) = if masked { (draft.input("q", "fp16", &shape), ", attn_mask = q") } else { (draft, "") };
    let call = format!("scaled_dot_product_attention(query = p, key = p, value = p{mask})");
    draft.op("fp16", &shape, "r", &call).output(&["r"])
}

fn mask(place: &mut Place<'_>) -> Result<Found> {
    let mut found = Found::new();
    let x: Vec<f32> = (0..4096).map(|i| (i * 37 % 101) as f32 / 64.0 - 0.75).collect();
    // Each query sees itself and what is before it.
    let causal: Vec<f32> = (0..4096).map(|i| if i % 64 > i / 64 { -10000.0 } else { 0.0 }).collect();
    let masked = attention(true);
    let inputs = [x.clone(), causal];
    let (seen, all) = (place.exact(&masked, &inputs)?, place.exact(&attention(false), &[x])?);
    let ran = match place.attempt(&masked, &inputs)? {
        Attempt::Ran(outputs) => outputs,
        other => {
            found.open(format!("attention with a mask does not run: {other:?}"));
            return Ok(found);
        }
    };
    let distance = |from: &[Vec<f32>]| {
        let pairs = ran.iter().flatten().zip(from.iter().flatten());
        pairs.map(|(a, b)| (a - b).abs()).fold(0.0f32, |most, d| if d.is_nan() { f32::INFINITY } else { most.max(d) })
    };
    let (causal, plain) = (distance(&seen), distance(&all));
    found.raw("distance to the masked result", json!(causal)).raw("distance to the result without", json!(plain));
    match (causal < 0.05, plain < 0.05) {
        (true, false) => found.value("attn_mask", "honoured"),
        (false, true) => found.value("attn_mask", "ignored"),
        _ => found.open("the result is neither the masked one nor the one without a mask"),
    };
    Ok(found)
}

fn slice(draft: Draft, name: &str, from: i64, to: i64) -> Draft {
    let (begin, size) = (format!("{name}_begin"), format!("{name}_size"));
    draft.ints(&begin, &[0, 0, 0, from]).ints(&size, &[1, 64, 1, to - from]).op(
        "fp16",
        &[1, 64, 1, (to - from) as usize],
        name,
        &format!("slice_by_size(begin = {begin}, size = {size}, x = h)"),
    )
}

fn slices(place: &mut Place<'_>) -> Result<Found> {
    let mut found = Found::new();
    // Two slices that begin behind 0: wrong on one class of machines; and a form of rotation, refused on another.
    let draft = Draft::new().input("x", "fp16", &SHAPE).op("fp16", &SHAPE, "h", "add(x = x, y = x)");
    let draft = slice(slice(draft, "p", 32, 64), "q", 16, 48)
        .int("axis", 3)
        .flag("no", false)
        .op("fp16", &SHAPE, "r", "concat(axis = axis, interleave = no, values = (p, q))")
        .output(&["r"]);
    match place.judge(&draft, &[ramp(ELEMENTS)])? {
        Judgement::Refused(error) => {
            found.raw("refused", error.to_string());
            // Where concat is refused altogether that says nothing of slices.
            match place.compiles_draft(&super::ops::concat())? {
                Ok(()) => found.value("rope_width_refused", true),
                Err(_) => found.open("every concat is refused"),
            };
        }
        Judgement::Right(_) => drop(found.value("rope_width_refused", false).value("concat_slices_wrong", false)),
        Judgement::Wrong(most) => {
            found.raw("off by", json!(most));
            found.value("rope_width_refused", false).value("concat_slices_wrong", true);
        }
        other => drop(found.open(format!("{other:?}"))),
    }
    Ok(found)
}

fn gather(place: &mut Place<'_>) -> Result<Found> {
    let mut found = Found::new();
    let draft = Draft::new()
        .input("x", "fp16", &SHAPE)
        .op("fp16", &SHAPE, "h", "add(x = x, y = x)")
        .ints("indices", &(0..32).map(|i| (i * 5) % 64).collect::<Vec<_>>())
        .int("axis", 3)
        .op("fp16", &[1, 64, 1, 32], "r", "gather(axis = axis, indices = indices, x = h)")
        .output(&["r"]);
    match place.judge(&draft, &[ramp(ELEMENTS)])? {
        Judgement::Right(_) => drop(found.value("gather_last_wrong", false)),
        Judgement::Wrong(most) => drop(found.raw("off by", json!(most)).value("gather_last_wrong", true)),
        other => drop(found.open(format!("{other:?}"))),
    }
    Ok(found)
}
