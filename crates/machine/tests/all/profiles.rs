//! Profiles rest on claims, and every claim is used.

use std::collections::{BTreeMap, BTreeSet};

use ferrane_machine::profile::{Profile, ProfileEntry};
use ferrane_machine::{claims, rules};

/// Every value of every profile.
fn entries() -> Vec<(Profile, Vec<ProfileEntry>)> {
    let one = |name: String| {
        let profile = Profile::named(&name).expect("a built-in profile");
        let entries = profile.entries();
        (profile, entries)
    };
    Profile::names().into_iter().map(one).collect()
}

#[test]
fn every_value_rests_on_claims_that_exist() {
    for (profile, entries) in entries() {
        for entry in entries {
            let place = format!("{}: {}", profile.subject.name, entry.name);
            assert!(!entry.claims.is_empty(), "{place} rests on no claim");
            for id in entry.claims.iter().chain(entry.overrules.keys()) {
                assert!(claims::find(id).is_some(), "{place} cites {id}, which does not exist");
            }
            for (id, reason) in &entry.overrules {
                assert!(!entry.claims.contains(id), "{place} rests on {id} and overrules it");
                assert!(reason.split(' ').count() > 2, "{place} overrules {id} without a reason");
            }
        }
    }
}

#[test]
fn entries_of_ops_are_ops() {
    for (profile, _) in entries() {
        for name in profile.ops.keys() {
            assert!(!ferrane_mil::ops::versions(name).is_empty(), "{}: no op `{name}`", profile.subject.name);
        }
    }
}

/// The claims that values of profiles, or rules, cite.
fn cited() -> BTreeSet<String> {
    let rules = rules::all().iter().flat_map(|r| r.claims).map(|id| id.to_string());
    let entries = entries();
    let values = entries.iter().flat_map(|(_, e)| e).flat_map(|e| e.claims.iter().chain(e.overrules.keys())).cloned();
    values.chain(rules).collect()
}

#[test]
fn every_claim_is_taken_up_or_left_with_a_reason() {
    let cited = cited();
    let mut left = BTreeMap::new();
    for group in claims::unmodeled() {
        assert!(group.reason.split(' ').count() > 3, "{:?}", group.claims);
        for id in &group.claims {
            assert!(claims::find(id).is_some(), "{id} does not exist");
            assert!(left.insert(id.clone(), &group.reason).is_none(), "{id} is left twice");
            assert!(!cited.contains(id), "{id} is left, but something takes it up");
        }
    }
    let lost = |id: &&str| !cited.contains(*id) && !left.contains_key(*id);
    let lost: Vec<&str> = claims::all().iter().map(|c| c.id.as_str()).filter(lost).collect();
    assert!(lost.is_empty(), "nothing takes these claims up: {lost:?}");
}

/// A profile answers every claim about its machine, by resting on it or overruling it with a
/// reason, if any profile's value cites the claim at all.
#[test]
fn a_profile_answers_every_claim_about_its_machine() {
    let all = entries();
    let of_values: BTreeSet<&String> =
        all.iter().flat_map(|(_, e)| e).flat_map(|e| e.claims.iter().chain(e.overrules.keys())).collect();
    let mut silent: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (profile, entries) in &all {
        let cited: BTreeSet<&String> = entries.iter().flat_map(|e| e.claims.iter().chain(e.overrules.keys())).collect();
        for claim in claims::all() {
            if claim.applies_to(&profile.subject) && of_values.contains(&claim.id) && !cited.contains(&claim.id) {
                silent.entry(&claim.id).or_default().push(profile.subject.name.clone());
            }
        }
    }
    let lines: Vec<String> = silent.iter().map(|(id, at)| format!("{id}: {} ({})", at.len(), at.join(" "))).collect();
    assert!(lines.is_empty(), "claims without an answer:\n{}", lines.join("\n"));
}
