//! The probes, in the order in which they are asked.

mod attention;
mod experiments;
mod language;
mod life;
mod limits;
mod numbers;
mod ops;
mod ports;
mod speed;
mod types;

use std::sync::LazyLock;

use crate::probe::Probe;

/// Every probe, in the order in which they run.
pub fn all_probes() -> &'static [Probe] {
    static ALL: LazyLock<Vec<Probe>> = LazyLock::new(|| {
        [
            language::PROBES,
            ports::PROBES,
            types::PROBES,
            ops::PROBES,
            attention::PROBES,
            numbers::PROBES,
            limits::PROBES,
            life::PROBES,
            speed::PROBES,
            experiments::PROBES,
        ]
        .concat()
    });
    &ALL
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use ferrane_machine::{Profile, claims};

    use super::*;

    #[test]
    fn probes_are_about_values_and_claims_that_exist() {
        let profile = Profile::named(Profile::DEFAULT).unwrap();
        let known: HashSet<String> = profile.entries().into_iter().map(|e| e.name).collect();
        let mut names = HashSet::new();
        for probe in all_probes() {
            assert!(names.insert(probe.name), "{} twice", probe.name);
            assert!(probe.question.ends_with('?'), "{}", probe.name);
            for value in probe.values {
                let op = value.strip_prefix("op.").is_some_and(|op| !ferrane_mil::ops::versions(op).is_empty());
                assert!(op || known.contains(*value), "{}: {value}", probe.name);
            }
            for says in probe.claims {
                assert!(claims::find(says.claim).is_some(), "{}: {}", probe.name, says.claim);
                assert!(probe.values.contains(&says.value), "{}: {}", probe.name, says.value);
            }
        }
        // The same value is never measured by two probes.
        let values: Vec<&str> = all_probes().iter().flat_map(|p| p.values).copied().collect();
        assert_eq!(values.iter().collect::<HashSet<_>>().len(), values.len());
    }
}
