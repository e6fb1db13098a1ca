//! A curve of any length in bounded memory.

use std::collections::VecDeque;

/// Largest number of groups that a curve is held in.
const MOST: usize = 8192;
/// Number of the last values that are held one by one.
const RECENT: usize = 4096;
/// Values are limited to this magnitude, so that sums and differences stay finite.
const LARGEST: f64 = 1e30;

/// Values over updates. The last ones are held one by one, all of them as means of groups: when
/// there are too many groups, neighbors are merged in pairs.
#[derive(Debug, Clone, Default)]
pub struct Series {
    groups: Vec<Group>,
    /// Number of values in a full group, a power of two; 0 stands for 1.
    size: u64,
    recent: VecDeque<(u64, f64)>,
}

#[derive(Debug, Clone, Copy)]
struct Group {
    first: u64,
    last: u64,
    count: u64,
    mean: f64,
}

impl Group {
    fn merge(self, other: Group) -> Group {
        let count = self.count + other.count;
        let mean = self.mean + (other.mean - self.mean) * (other.count as f64 / count as f64);
        Group { first: self.first, last: other.last, count, mean }
    }
}

impl Series {
    /// Adds the value of an update that is later than all before. A value that is not finite is
    /// left out.
    pub fn push(&mut self, step: u64, value: f64) {
        if !value.is_finite() {
            return;
        }
        let value = value.clamp(-LARGEST, LARGEST);
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((step, value));
        let one = Group { first: step, last: step, count: 1, mean: value };
        match self.groups.last_mut() {
            Some(last) if last.count < self.size => *last = last.merge(one),
            _ => self.groups.push(one),
        }
        if self.groups.len() > MOST {
            self.size = self.size.max(1) * 2;
            let pairs = self.groups.chunks(2).map(|pair| pair.iter().copied().reduce(Group::merge));
            self.groups = pairs.flatten().collect();
        }
    }

    /// Whether it has no values.
    pub fn is_empty(&self) -> bool {
        self.recent.is_empty()
    }

    /// The step and the value of the last update that has one.
    pub fn last(&self) -> Option<(u64, f64)> {
        self.recent.back().copied()
    }

    /// At most `most` points `(step, value)` of the updates from `first` to `last`, evenly spread;
    /// where there are more values, their means.
    pub fn points(&self, first: u64, last: u64, most: usize) -> Vec<(f64, f64)> {
        let most = most.max(1);
        // The values themselves, if they reach back far enough.
        let all_recent = self.recent.len() < RECENT || self.recent.front().is_some_and(|(step, _)| *step <= first);
        let single = |&(step, value): &(u64, f64)| Group { first: step, last: step, count: 1, mean: value };
        let inside = |group: &Group| group.last >= first && group.first <= last;
        let chosen: Vec<Group> = if all_recent {
            self.recent.iter().map(single).filter(inside).collect()
        } else {
            self.groups.iter().copied().filter(inside).collect()
        };
        let size = chosen.len().div_ceil(most).max(1);
        let groups = chosen.chunks(size).filter_map(|part| part.iter().copied().reduce(Group::merge));
        groups.map(|group| ((group.first as f64 + group.last as f64) / 2.0, group.mean)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(count: u64) -> Series {
        let mut series = Series::default();
        (1..=count).for_each(|step| series.push(step, step as f64));
        series
    }

    #[test]
    fn any_length_in_bounded_memory_and_no_value_is_lost() {
        for count in [1, 2, 4096, 8192, 8193, 100_001, 300_000] {
            let series = line(count);
            assert!(series.groups.len() <= MOST && series.recent.len() <= RECENT, "{count}");
            assert_eq!(series.groups.iter().map(|g| g.count).sum::<u64>(), count);
            let points = series.points(0, count, 200);
            assert!(points.len() <= 200 && (count < 200 || points.len() >= 100), "{count}: {}", points.len());
            // On a line the mean of values is the mean of their steps.
            for (step, value) in points {
                assert!((step - value).abs() <= 1e-9 * count as f64, "{count}: {value} at {step}");
            }
            assert_eq!(series.last(), Some((count, count as f64)));
        }
    }

    #[test]
    fn a_part_near_the_end_has_every_value() {
        let points = line(100_000).points(99_991, 100_000, 100);
        assert_eq!(points, (99_991..=100_000u64).map(|step| (step as f64, step as f64)).collect::<Vec<_>>());
        let middle = line(100_000).points(50_000, 52_000, 100);
        assert!(middle.len() >= 50 && middle.iter().all(|p| p.0 >= 49_900.0 && p.0 <= 52_100.0), "{middle:?}");
        assert!(line(10).points(20, 30, 5).is_empty());
        assert_eq!(line(10).points(1, 10, 0).len(), 1);
    }

    #[test]
    fn extreme_values_stay_finite() {
        let mut series = Series::default();
        (1..20_000).for_each(|step| series.push(step, if step % 2 == 0 { f64::MAX } else { f64::MIN }));
        series.push(20_000, f64::NAN);
        series.push(20_001, f64::INFINITY);
        assert_eq!(series.last().unwrap().0, 19_999);
        assert!(series.points(0, u64::MAX, 10).iter().all(|p| p.0.is_finite() && p.1.is_finite()));
        series.push(u64::MAX, 1.0);
        assert!(series.points(0, u64::MAX, 10).iter().all(|p| p.0.is_finite()));
    }
}
