//! Times around an evaluation: loading, first evaluations, several programs or requests, copies.

use super::constants::{Constants, ConstantsError};
use super::model::CostModel;

impl CostModel {
    /// The model for a chip on a path: `inmem`, `client`, `e5rt`, `coreml`, `direct`, `realtime` or
    /// `process-request` (apple-runtime §5, §9). A path without a floor of its own has that of
    /// `inmem`.
    ///
    /// # Errors
    /// The chip has no constants.
    pub fn on_path(chip: &str, path: &str) -> Result<CostModel, ConstantsError> {
        Ok(CostModel { constants: Constants::of(chip, path)? })
    }

    /// The time to load a compiled program, in milliseconds; `first` if the process has loaded none
    /// (benchmarks §9).
    pub fn load_ms(&self, first: bool) -> f64 {
        let c = &self.constants;
        if first { c.first_load_ms.value } else { c.load_ms.value }
    }

    /// The time to compile a program that a cache has, if it takes `compile_ms` without one
    /// (apple-runtime §3).
    pub fn cached_compile_ms(&self, compile_ms: f64) -> f64 {
        compile_ms * self.constants.cached_share.value
    }

    /// The time of the first evaluation of a program whose later ones take `total_us` (benchmarks
    /// §9).
    pub fn first_evaluation_us(&self, total_us: f64) -> f64 {
        total_us + self.constants.first_us.value
    }

    /// The time of an evaluation that takes `total_us` if the program before was another one
    /// (benchmarks §14).
    pub fn alternating_us(&self, total_us: f64) -> f64 {
        total_us + self.constants.switch_us.value
    }

    /// The time for each evaluation of a program with this many requests in flight, if one takes
    /// `total_us`. A second one overlaps with the first, more change nothing (benchmarks §15.3).
    pub fn in_flight_us(&self, total_us: f64, requests: usize) -> f64 {
        total_us * if requests > 1 { self.constants.flight_share.value } else { 1.0 }
    }

    /// The time for the CPU to copy this many bytes, in microseconds: an update of weights in a
    /// surface (benchmarks §12).
    pub fn copy_us(&self, bytes: u64) -> f64 {
        // Read and written; 1 GB/s is 1000 bytes per µs.
        2.0 * bytes as f64 / (self.constants.memcpy_gb_s.value * 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_surrounds_an_evaluation_adds_to_it() {
        let m = CostModel::for_chip("m5").unwrap();
        assert!(m.load_ms(true) > m.load_ms(false) && m.cached_compile_ms(100.0) < 50.0);
        assert!(m.first_evaluation_us(70.0) > m.alternating_us(70.0) && m.alternating_us(70.0) > 70.0);
        // benchmarks §15.3: 397 to 265 µs, and no more with a third request.
        assert!((m.in_flight_us(397.0, 2) - 265.0).abs() < 1.0);
        assert_eq!((m.in_flight_us(397.0, 1), m.in_flight_us(397.0, 3)), (397.0, m.in_flight_us(397.0, 2)));
        // benchmarks §12: 67.11 MB in 1.27 ms.
        assert!((m.copy_us(67_108_864) - 1270.0).abs() < 20.0);
        let floor = |path: &str| CostModel::on_path("m5", path).unwrap().dispatch_us();
        assert!(floor("coreml") < floor("e5rt") && floor("e5rt") < floor("direct") && floor("direct") < floor("inmem"));
    }
}
