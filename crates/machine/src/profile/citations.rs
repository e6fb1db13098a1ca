//! The use of claims: which values rest on a claim or overrule it, and on which machines.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use serde::Serialize;

use super::{OVERLAYS, Overlay, ProfileEntry, Words};

/// A value that cites a claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Citation {
    /// The name of the value; `op.NAME` for the value of an op.
    pub name: String,
    /// The value as JSON.
    pub value: serde_json::Value,
    /// The machines: fields of a [`Subject`](super::Subject) and their words. Empty means every
    /// machine, unless another overlay is more specific.
    pub machines: BTreeMap<String, Vec<String>>,
    /// The reason for which the claim is overruled; `None` if the value rests on it.
    pub overruled: Option<String>,
}

impl fmt::Display for Citation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.name, plain(&self.value))?;
        let words: Vec<String> = self.machines.values().map(|w| w.join(" ")).collect();
        if words.is_empty() { Ok(()) } else { write!(f, " ({})", words.join(", ")) }
    }
}

/// A value as text: words without quotes, lists separated by commas.
pub fn plain(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(word) => word.clone(),
        serde_json::Value::Array(all) if all.is_empty() => "none".to_string(),
        serde_json::Value::Array(all) => all.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

static CITATIONS: LazyLock<BTreeMap<String, Vec<Citation>>> = LazyLock::new(|| {
    let mut all: BTreeMap<String, Vec<Citation>> = BTreeMap::new();
    for overlay in OVERLAYS.iter().flatten() {
        for entry in overlay.entries() {
            let rests = entry.claims.iter().map(|id| (id, None));
            for (id, overruled) in rests.chain(entry.overrules.iter().map(|(id, why)| (id, Some(why.clone())))) {
                all.entry(id.clone()).or_default().push(Citation {
                    name: entry.name.clone(),
                    value: entry.value.clone(),
                    machines: machines(overlay),
                    overruled,
                });
            }
        }
    }
    all
});

fn machines(overlay: &Overlay) -> BTreeMap<String, Vec<String>> {
    let words = |w: &Words| match w {
        Words::One(word) => vec![word.clone()],
        Words::Any(words) => words.clone(),
    };
    overlay.r#match.iter().map(|(key, w)| (key.clone(), words(w))).collect()
}

impl Overlay {
    fn entries(&self) -> Vec<ProfileEntry> {
        let mut all = self.set.entries();
        let op = |(name, given): (&String, &_)| ProfileEntry::given(&format!("op.{name}"), "", given);
        all.extend(self.ops.iter().map(op));
        all
    }
}

/// The values of the built-in overlays that cite a claim, in the order of the files.
pub fn citations(id: &str) -> &'static [Citation] {
    CITATIONS.get(id).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_rested_on_and_overruled() {
        let [one] = citations("C041") else { panic!("{:?}", citations("C041")) };
        assert_eq!(one.to_string(), "op.concat = native");
        assert!(one.overruled.is_some());
        let width = citations("C031");
        let text = |c: &Citation| (c.to_string(), c.overruled.is_none());
        assert!(width.iter().map(text).any(|t| t == ("max_kernel_width = 13 (h13)".to_string(), true)));
        assert!(citations("C999").is_empty());
    }
}
