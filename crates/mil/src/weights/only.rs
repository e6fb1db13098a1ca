//! A store with a subset of the records of another.

use std::collections::{BTreeMap, HashSet};

use super::{Data, WeightId, Weights, blob};

impl Weights {
    /// A store that holds only these records, each under its old path, and the new id of each.
    /// `None` if this store would write no other records.
    ///
    /// A file that was opened, not added to, and whose records are all needed stays unchanged,
    /// shared or mapped; the needed records of other files are copied to new files, at new offsets.
    pub fn only(&self, wanted: &HashSet<WeightId>) -> Option<(Weights, Vec<(WeightId, WeightId)>)> {
        let mut by_file: BTreeMap<&str, Vec<WeightId>> = self.files.keys().map(|f| (f.as_str(), Vec::new())).collect();
        let mut added = false;
        for (i, record) in self.records.iter().enumerate() {
            let id = WeightId(i as u32);
            if wanted.contains(&id) {
                by_file.entry(&record.file).or_default().push(id);
            } else if matches!(record.data, Data::Own(_)) {
                added = true;
            }
        }
        let whole: Vec<bool> = by_file.iter().map(|(file, ids)| self.is_whole(file, ids)).collect();
        if !added && whole.iter().all(|w| *w) {
            return None;
        }
        let mut kept = Weights::new();
        let mut moved = Vec::new();
        for ((file, mut ids), whole) in by_file.into_iter().zip(whole) {
            let opened = self.files.get(file).filter(|_| whole && !self.ends.contains_key(file));
            if let Some(bytes) = opened {
                kept.open_file(file, bytes.clone());
            }
            ids.sort_by_key(|id| self.get(*id).map(|r| r.offset));
            for id in ids {
                let Some(record) = self.get(id) else { continue };
                let new = match (&record.data, opened) {
                    (Data::Own(bytes), _) => kept.add_packed(file, record.dtype, record.elements, bytes.clone()),
                    (Data::In(..), Some(_)) => kept.push(record.clone(), super::Origin::File(Default::default())),
                    (Data::In(..), None) => {
                        kept.add_packed(file, record.dtype, record.elements, record.bytes().unwrap_or(&[]))
                    }
                    (Data::Absent, _) => kept.add_absent(file, record.offset, record.dtype, record.elements),
                };
                moved.push((id, new));
            }
        }
        Some((kept, moved))
    }

    /// True if the file holds no other record. A file that breaks the format counts as needed as a
    /// whole as soon as one of its records is, because its other records cannot be listed.
    fn is_whole(&self, file: &str, wanted: &[WeightId]) -> bool {
        let Some(bytes) = self.files.get(file) else { return true };
        let offsets: HashSet<u64> = wanted.iter().filter_map(|id| self.get(*id)).map(|r| r.offset).collect();
        match blob::records(bytes) {
            Ok(records) => records.iter().all(|(offset, _)| offsets.contains(offset)),
            Err(_) => !offsets.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::DataType;
    use crate::weights::Strictness;

    #[test]
    fn records_that_are_not_wanted_are_not_written() {
        let mut w = Weights::new();
        let ids: Vec<WeightId> = (0..3u8).map(|i| w.add("a", DataType::Int8, vec![i; 100])).collect();
        let lone = w.add("b", DataType::Fp16, vec![9; 4]);
        let all: HashSet<WeightId> = ids.iter().copied().chain([lone]).collect();
        assert!(w.only(&all).is_none());
        let (kept, moved) = w.only(&HashSet::from([ids[0], ids[2]])).expect("two are gone");
        assert_eq!(moved.iter().map(|(old, _)| *old).collect::<Vec<_>>(), [ids[0], ids[2]]);
        assert_eq!(kept.len(), 2);
        assert_eq!(kept.bytes(moved[1].1), w.bytes(ids[2]));
        let files = kept.files();
        assert_eq!(files.len(), 1);
        assert_eq!(blob::records(&files[0].1).expect("well formed").len(), 2);

        // Opened files: the whole one is shared, of the other one record is copied.
        let mut read = Weights::new();
        for (path, bytes) in w.files() {
            read.open_file(&path, bytes);
        }
        let find = |read: &mut Weights, path: &str, offset, dtype, n| {
            read.find(path, offset, dtype, n, Strictness::Strict).expect("strict").expect("opened").0
        };
        let b = find(&mut read, "b", 64, DataType::Fp16, 2);
        let a = find(&mut read, "a", w.location(ids[1]).expect("record").1, DataType::Int8, 100);
        let (kept, moved) = read.only(&HashSet::from([a, b])).expect("two are gone");
        assert_eq!(
            kept.files().iter().map(|(p, f)| (p.as_str(), f.len())).collect::<Vec<_>>(),
            [("a", 228), ("b", 132)]
        );
        for (old, new) in moved {
            assert_eq!(kept.bytes(new), read.bytes(old));
        }
    }
}
