//! `ferrane machine`: machines, values, claims.

use std::collections::BTreeSet;

use crate::place::Place;

#[test]
fn machines_are_listed() {
    let place = Place::new();
    let text = place.run("target list").ok().out;
    for words in ["m3-ultra   h15     h15g", "a18", "inmem, client, e5rt, coreml", "m4-macos15-inmem"] {
        assert!(text.contains(words), "{words} in {text}");
    }
    let all = place.run("target list --json").ok().objects();
    let names: BTreeSet<&str> = all.iter().filter_map(|o| o["name"].as_str()).collect();
    assert_eq!(names.len(), all.len());
    assert!(names.contains("m5-pro-macos27-coreml") && !names.contains("m5-macos15-inmem"));
}

#[test]
fn values_are_shown_with_their_claims() {
    let place = Place::new();
    let text = place.run("target show m1-macos26 dialect op.rsqrt").ok().out;
    for words in ["m1-macos26-inmem: chip m1", "dialect = verbose", "rests on C002", "op.rsqrt = needs-epsilon"] {
        assert!(text.contains(words), "{words} in {text}");
    }
    assert!(text.contains("overrules C048: ") && text.lines().all(|l| l.chars().count() <= 100), "{text}");
    let whole = place.run("target show m4-macos15-inmem --json").ok().objects();
    let [object] = whole.as_slice() else { panic!("{} objects", whole.len()) };
    let values = object["values"].as_array().unwrap();
    assert!(values.len() > 100);
    let axis = values.iter().find(|v| v["name"] == "max_axis").unwrap();
    assert_eq!((&axis["value"], &axis["claims"][0]), (&65536.into(), &"C022".into()));
    assert!(values.iter().all(|v| !v["meaning"].as_str().unwrap().is_empty()));
}

#[test]
fn a_profile_file_stands_above() {
    let place = Place::new();
    place.write("mine.toml", "[[overlay]]\nmatch = { chip = 'm4' }\n[overlay.set]\nmax_axis = { value = 77 }\n");
    let shown = |line: &str| place.run(line).ok().objects()[0]["values"][0]["value"].clone();
    assert_eq!(shown("target show m4 max_axis --json --machine-file mine.toml"), 77);
    assert_eq!(shown("target show m1 max_axis --json --machine-file mine.toml"), 16384);
    place.write("bad.toml", "[[overlay]]\nset = { max_axis = { value = 'many' } }\n");
    place.run("target show m4 --machine-file bad.toml").refused(1, &["bad.toml", "profile file"]);
    place.write("bare.toml", "[[overlay]]\nset = { max_axis = 77 }\n");
    place.run("target show m4 --machine-file bare.toml").refused(1, &["bare.toml", "max_axis", "{ value = 15 }"]);
    place.run("target show m4 --machine-file none.toml").refused(1, &["none.toml"]);
}

#[test]
fn claims_are_shown_with_what_takes_them_up() {
    let place = Place::new();
    let text = place.run("target claims C041").ok().out;
    for words in ["C041  op.concat  (compile, measured)", "M4 Max", "overruled by op.concat = native: "] {
        assert!(text.contains(words), "{words} in {text}");
    }
    let ids = |line: &str| {
        let objects = place.run(line).ok().objects();
        objects.iter().map(|o| o["id"].as_str().unwrap().to_string()).collect::<BTreeSet<_>>()
    };
    let (concat, op, all) =
        (ids("target claims op.concat --json"), ids("target claims op --json"), ids("target claims --json"));
    assert!(concat.is_subset(&op) && op.is_subset(&all) && concat.len() < op.len() && op.len() < all.len());
    // Those about one machine, with its answer.
    let here = place.run("target claims op.concat --machine m2-pro-e5rt --json").ok().objects();
    assert_eq!(here.len(), 1, "{here:?}");
    assert_eq!(here[0]["taken_up"][0]["name"], "concat_slices_wrong");
    assert!(place.run("target claims C011").ok().out.contains("left out: "));
}

#[test]
fn unknown_names_get_the_nearest_one() {
    let place = Place::new();
    place.run("target show m4-macos15-inmen").refused(1, &["did you mean `m4-macos15-inmem`?"]);
    place.run("target show m4 max_axs").refused(1, &["did you mean `max_axis`?"]);
    place.run("target claims op.conct").refused(1, &["did you mean `op.concat`?"]);
}
