//! Sets of training data as options name them: a file or folder, and how often it is drawn.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};

use super::Error;

/// A file or folder of training data with its sampling weight. Its text form is `PATH` or
/// `PATH=WEIGHT`; what follows the last `=` is a weight if it is a number and there is no file of
/// the whole name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Named")]
pub struct DataSet {
    /// Path of a data file, or of a folder of them.
    pub path: PathBuf,
    /// How often windows of this set are drawn, relative to the weights of the others. `None`:
    /// every window of all sets is drawn equally often.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
}

/// What options may hold: earlier versions stored only a path.
#[derive(Deserialize)]
#[serde(untagged)]
enum Named {
    Path(PathBuf),
    Set { path: PathBuf, weight: Option<f64> },
}

impl From<Named> for DataSet {
    fn from(named: Named) -> DataSet {
        match named {
            Named::Path(path) => DataSet { path, weight: None },
            Named::Set { path, weight } => DataSet { path, weight },
        }
    }
}

impl<P: Into<PathBuf>> From<P> for DataSet {
    fn from(path: P) -> DataSet {
        DataSet { path: path.into(), weight: None }
    }
}

impl FromStr for DataSet {
    type Err = Error;
    fn from_str(text: &str) -> Result<DataSet, Error> {
        let weighted = text.rsplit_once('=').and_then(|(path, weight)| Some((path, weight.parse::<f64>().ok()?)));
        let set = match weighted {
            Some((path, weight)) if !Path::new(text).exists() => DataSet { path: path.into(), weight: Some(weight) },
            _ => DataSet::from(text),
        };
        check(std::slice::from_ref(&set))?;
        Ok(set)
    }
}

impl DataSet {
    /// Reads sets from options: a list, a single path, or nothing.
    pub(crate) fn deserialize_list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<DataSet>, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Sets {
            Many(Vec<DataSet>),
            One(DataSet),
        }
        Ok(match Option::<Sets>::deserialize(deserializer)? {
            None => Vec::new(),
            Some(Sets::One(set)) => vec![set],
            Some(Sets::Many(sets)) => sets,
        })
    }
}

/// Checks that weights are positive, and that all sets have one or none has.
pub(super) fn check(sets: &[DataSet]) -> Result<(), Error> {
    for set in sets {
        if let Some(weight) = set.weight.filter(|weight| !(weight.is_finite() && *weight > 0.0)) {
            return Err(Error::Weight { path: set.path.clone(), weight });
        }
    }
    let with = sets.iter().filter(|set| set.weight.is_some()).count();
    match sets.iter().find(|set| set.weight.is_none()) {
        Some(set) if with > 0 => Err(Error::NoWeight(set.path.clone())),
        _ => Ok(()),
    }
}
