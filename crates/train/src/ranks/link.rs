//! How long ranks on several machines exchange values, as a model of the links between them.

use std::str::FromStr;

use super::sum::PIECE;

/// A link from one machine to the next. The rates are those that TCP leaves of the nominal ones,
/// except for Thunderbolt 5, whose nominal rate is given (docs/many-machines.md).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// The name on the command line.
    pub name: &'static str,
    /// What it carries in each direction.
    pub bytes_per_second: f64,
    /// Time of a message without its bytes, in seconds.
    pub latency: f64,
}

/// The links that have names.
pub const LINKS: [Link; 4] = [
    Link { name: "1gbe", bytes_per_second: 0.117e9, latency: 50e-6 },
    Link { name: "10gbe", bytes_per_second: 1.17e9, latency: 20e-6 },
    Link { name: "40gbe", bytes_per_second: 4.7e9, latency: 10e-6 },
    Link { name: "thunderbolt5", bytes_per_second: 10e9, latency: 10e-6 },
];

impl FromStr for Link {
    type Err = String;

    /// # Errors
    /// The names that there are.
    fn from_str(name: &str) -> Result<Link, String> {
        let names = || LINKS.map(|link| format!("`{}`", link.name)).join(", ");
        LINKS.into_iter().find(|link| link.name == name).ok_or_else(|| format!("no such link; there are {}", names()))
    }
}

impl Link {
    /// Seconds in which a chain of ranks sums `bytes` of gradients and passes the sum back, as
    /// pieces, so that all links are busy at the same time.
    pub fn sum_seconds(&self, bytes: usize, ranks: usize) -> f64 {
        2.0 * self.pass_seconds(bytes, ranks)
    }

    /// Seconds in which the parts of `bytes` of weights, which each rank has one of, go around a
    /// ring of ranks one after the other.
    pub fn gather_seconds(&self, bytes: usize, ranks: usize) -> f64 {
        self.pass_seconds(bytes, ranks)
    }

    /// Seconds in which `bytes` go from the first of some ranks to the last.
    fn pass_seconds(&self, bytes: usize, ranks: usize) -> f64 {
        if ranks < 2 {
            return 0.0;
        }
        let piece = (PIECE * size_of::<f32>()) as f64;
        (bytes as f64 / piece + (ranks - 2) as f64) * (piece / self.bytes_per_second + self.latency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_take_what_the_document_says() {
        // 368 MB of gradients over 2, 8 and 64 ranks.
        let table = [("1gbe", [6.3, 6.4, 7.4]), ("10gbe", [0.64, 0.65, 0.76]), ("40gbe", [0.16, 0.17, 0.19])];
        for (name, wanted) in table {
            let link: Link = name.parse().unwrap();
            for (ranks, wanted) in [2, 8, 64].into_iter().zip(wanted) {
                let found = link.sum_seconds(368_000_000, ranks);
                assert!((found / wanted - 1.0).abs() < 0.04, "{name}, {ranks}: {found}, not {wanted}");
            }
        }
        let link = LINKS[1];
        assert_eq!((link.sum_seconds(1 << 30, 1), link.gather_seconds(1 << 30, 1)), (0.0, 0.0));
        assert_eq!(2.0 * link.gather_seconds(1 << 30, 5), link.sum_seconds(1 << 30, 5));
        assert!("5g".parse::<Link>().unwrap_err().contains("`1gbe`, `10gbe`"));
    }
}
