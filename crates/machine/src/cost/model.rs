//! The time of single demands and of programs on a chip.

use ferrane_mil::{Function, Program};

use crate::Profile;

use super::constants::{Constants, ConstantsError};
use super::demand::{Demand, DemandKind};
use super::walk::{CostError, OpDemand, demands};

const MIB: f64 = 1048576.0;

/// The resource that limits an op or a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Bottleneck {
    /// The fixed cost of the dispatch.
    Dispatch,
    /// The arithmetic of the array.
    Compute,
    /// Weights streaming from memory.
    Dram,
    /// Operands that do not fit on chip, or weights whose rows alias.
    Spill,
    /// Traffic of activations in the planar engine.
    Planar,
    /// An op outside the engine, including the way there and back.
    Host,
}

impl Bottleneck {
    /// Every bottleneck, in declaration order.
    pub const ALL: [Bottleneck; 6] = [
        Bottleneck::Dispatch,
        Bottleneck::Compute,
        Bottleneck::Dram,
        Bottleneck::Spill,
        Bottleneck::Planar,
        Bottleneck::Host,
    ];

    /// The name for tables and charts.
    pub fn name(self) -> &'static str {
        match self {
            Bottleneck::Dispatch => "dispatch",
            Bottleneck::Compute => "compute",
            Bottleneck::Dram => "dram",
            Bottleneck::Spill => "spill",
            Bottleneck::Planar => "planar",
            Bottleneck::Host => "host",
        }
    }
}

/// The predicted cost of one op.
#[derive(Clone, Debug, PartialEq)]
pub struct OpCost {
    /// The name of the op's first result.
    pub name: String,
    /// The name of the op, as in MIL.
    pub op: String,
    /// The number of multiplications and additions.
    pub flops: u64,
    /// Bytes of constant weights.
    pub bytes_weights: u64,
    /// Bytes of activations read.
    pub bytes_in: u64,
    /// Bytes of activations written.
    pub bytes_out: u64,
    /// The time in microseconds; zero for a view and for an op that its producer carries out.
    pub us: f64,
    /// The bottleneck; `None` if the op takes no time.
    pub bound: Option<Bottleneck>,
}

/// The predicted cost of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// The chip, such as `m4`.
    pub chip: String,
    /// The time to compile it, in milliseconds.
    pub compile_ms: f64,
    /// The time to compile it if a cache has it, in milliseconds.
    pub cached_compile_ms: f64,
    /// The time to load it, in milliseconds.
    pub load_ms: f64,
    /// The time of the first evaluation, in microseconds.
    pub first_us: f64,
    /// The time for each evaluation with two or more requests in flight, in microseconds.
    pub in_flight_us: f64,
    /// The fixed cost of one dispatch, in microseconds.
    pub dispatch_us: f64,
    /// The part of the ops' time that passes during the fixed cost, in microseconds.
    pub hidden_us: f64,
    /// The ops in program order, without constants.
    pub ops: Vec<OpCost>,
    /// The time of one evaluation, in microseconds: the fixed cost and the ops, less what passes
    /// during the fixed cost.
    pub total_us: f64,
    /// The bottleneck with the largest share of an evaluation.
    pub bound: Bottleneck,
    /// The energy of one evaluation in mJ; `None` if the chip's power is not published. The fixed
    /// cost counts as idle time.
    pub energy_mj: Option<f64>,
    /// The number of multiplications and additions of one evaluation.
    pub flops: u64,
    /// Bytes from memory: weights, and activations of ops that are bound by them.
    pub bytes: u64,
}

/// Predicts times for one chip.
#[derive(Clone, Debug, PartialEq)]
pub struct CostModel {
    /// The constants of the chip.
    pub constants: Constants,
}

impl CostModel {
    /// The model for the chip and the path of a profile.
    ///
    /// # Errors
    /// The chip has no constants.
    pub fn for_profile(profile: &Profile) -> Result<CostModel, ConstantsError> {
        let subject = &profile.subject;
        Ok(CostModel { constants: Constants::of(&subject.chip, &subject.path)? })
    }

    /// The model for a chip such as `m4` or `m4-max` on the in-memory path.
    ///
    /// # Errors
    /// The chip has no constants.
    pub fn for_chip(chip: &str) -> Result<CostModel, ConstantsError> {
        Ok(CostModel { constants: Constants::of(chip, "inmem")? })
    }

    /// The fixed cost of a dispatch, in microseconds.
    pub fn dispatch_us(&self) -> f64 {
        self.constants.dispatch_us.value * self.constants.path_share.value
    }

    /// The part of the ops' time that passes during the fixed cost of a dispatch, in microseconds.
    pub fn hidden_us(&self) -> f64 {
        self.constants.hidden_us.value * self.constants.path_share.value
    }

    /// The time of one evaluation of a program whose ops take `ops_us` on the engine: the fixed
    /// cost, and the time of the ops that does not pass during it.
    pub fn evaluation_us(&self, ops_us: f64) -> f64 {
        self.dispatch_us() + (ops_us - self.hidden_us()).max(0.0)
    }

    /// The rate at which the weights of an op stream, in bytes per microsecond, and the bottleneck
    /// that it is.
    fn stream(&self, demand: &Demand) -> (f64, Bottleneck) {
        let c = &self.constants;
        let size = demand.weights as f64 / (c.stream_ramp_mb.value * MIB);
        // 1 GB/s is 1000 bytes per µs.
        let rate = c.stream_gb_s.value * size.powf(c.stream_power.value).min(1.0);
        let aliased = demand.row >= 4096 && demand.row.is_power_of_two() && c.alias_gb_s.value < rate;
        if aliased { (c.alias_gb_s.value * 1e3, Bottleneck::Spill) } else { (rate * 1e3, Bottleneck::Dram) }
    }

    /// The rate for an op of this size, in FLOP/µs.
    fn rate(&self, demand: &Demand) -> f64 {
        let c = &self.constants;
        let ramp = (demand.flops as f64 / (c.ramp_mflop.value * 1e6)).powf(c.ramp_power.value).min(1.0);
        let share = if demand.kind == DemandKind::Product { c.matmul_share.value } else { 1.0 };
        let gain = if demand.int8 { c.int8_gain.value } else { 1.0 };
        c.rate_tflops.value * 1e6 * ramp * share * gain
    }

    /// The time of one op in microseconds, and its bottleneck.
    pub fn time(&self, demand: &Demand) -> (f64, Bottleneck) {
        let c = &self.constants;
        // 1 GB/s is 1000 bytes per µs.
        let traffic = |bytes: u64| bytes as f64 / (c.traffic_gb_s.value * 1e3);
        if demand.kind == DemandKind::Host {
            return (traffic(demand.traffic()), Bottleneck::Host);
        }
        if demand.kind == DemandKind::Planar {
            let on_chip = demand.traffic() as f64 <= c.sram_mb.value * MIB;
            return (traffic(demand.traffic()), if on_chip { Bottleneck::Planar } else { Bottleneck::Spill });
        }
        let mut best = if demand.flops == 0 {
            (0.0, Bottleneck::Compute)
        } else {
            (demand.flops as f64 / self.rate(demand), Bottleneck::Compute)
        };
        let rest = (demand.weights as f64 - c.buffer_mb.value * MIB).max(0.0);
        let (rate, why) = self.stream(demand);
        if rest > 0.0 && rest / rate > best.0 {
            best = (rest / rate, why);
        }
        let spilt = demand.traffic() as f64 > c.sram_mb.value * MIB;
        if spilt && traffic(demand.traffic()) > best.0 {
            best = (traffic(demand.traffic()), Bottleneck::Spill);
        }
        let inner = traffic(demand.inner);
        (best.0 + inner, if inner > best.0 { Bottleneck::Planar } else { best.1 })
    }

    /// The time to compile a program with this many ops and bytes of weights, in milliseconds.
    pub fn compile_ms(&self, ops: usize, weights: u64) -> f64 {
        let c = &self.constants;
        let added = c.compile_op_ms.value * ops as f64 + c.compile_mb_ms.value * weights as f64 / MIB;
        c.compile_ms.value + c.compile_scale.value * added
    }

    /// The cost of a program that consists of these items.
    pub fn cost(&self, items: Vec<OpDemand>) -> Cost {
        let c = &self.constants;
        let dispatch_us = self.dispatch_us();
        let mut shares = [dispatch_us, 0.0, 0.0, 0.0, 0.0, 0.0];
        let mut outside = false;
        let (mut engine_us, mut host_us) = (0.0, 0.0);
        let (mut flops, mut bytes, mut weights) = (0u64, 0u64, 0u64);
        let mut ops = Vec::new();
        for OpDemand { name, op, demand } in items {
            let mut cost =
                OpCost { name, op, flops: 0, bytes_weights: 0, bytes_in: 0, bytes_out: 0, us: 0.0, bound: None };
            if let Some(w) = demand {
                let (mut us, bound) = self.time(&w);
                // Leaving the engine is charged once for consecutive ops.
                if bound == Bottleneck::Host && !outside {
                    us += c.cut_us.value;
                }
                outside = bound == Bottleneck::Host;
                *(if outside { &mut host_us } else { &mut engine_us }) += us;
                shares[bound as usize] += us;
                flops = flops.saturating_add(w.flops);
                weights = weights.saturating_add(w.weights);
                let moved = if matches!(bound, Bottleneck::Planar | Bottleneck::Spill) { w.traffic() } else { 0 };
                bytes = bytes.saturating_add(w.weights).saturating_add(moved);
                let (bytes_weights, bytes_in, bytes_out) = (w.weights, w.bytes_in, w.bytes_out);
                cost = OpCost { flops: w.flops, bytes_weights, bytes_in, bytes_out, us, bound: Some(bound), ..cost };
            }
            ops.push(cost);
        }
        let total_us = self.evaluation_us(engine_us) + host_us;
        let most = Bottleneck::ALL.into_iter().max_by(|a, b| shares[*a as usize].total_cmp(&shares[*b as usize]));
        let compile_ms = self.compile_ms(ops.len(), weights);
        Cost {
            chip: c.chip.clone(),
            compile_ms,
            cached_compile_ms: self.cached_compile_ms(compile_ms),
            load_ms: self.load_ms(false),
            first_us: self.first_evaluation_us(total_us),
            in_flight_us: self.in_flight_us(total_us, 2),
            dispatch_us,
            hidden_us: dispatch_us + engine_us + host_us - total_us,
            total_us,
            bound: most.unwrap_or(Bottleneck::Dispatch),
            // Watts times µs are µJ.
            energy_mj: c.power_w.as_ref().map(|p| p.value * (engine_us + host_us) / 1e3),
            ops,
            flops,
            bytes,
        }
    }
}

/// Predicts the cost of a program on a chip: of its function `main`, or of the first one.
///
/// # Errors
/// See [`CostError`].
pub fn predict(program: &Program, model: &CostModel) -> Result<Cost, CostError> {
    predict_function(program.function("main").or_else(|| program.functions.first()).ok_or(CostError::Empty)?, model)
}

/// Predicts the cost of a function on a chip.
///
/// # Errors
/// See [`CostError`].
pub fn predict_function(function: &Function, model: &CostModel) -> Result<Cost, CostError> {
    let items = demands(function, &model.constants.family)?;
    let op = |i: &OpDemand| i.op != "const" && !i.op.starts_with("constexpr_");
    Ok(model.cost(items.into_iter().filter(op).collect()))
}

#[cfg(test)]
mod tests {
    use ferrane_mil::{Builder, Constant, DataType, Opset, Type};

    use super::*;

    fn model() -> CostModel {
        CostModel::for_chip("m4").unwrap()
    }

    fn conv(inputs: u64, outputs: u64, positions: u64) -> Demand {
        Demand::conv(inputs, outputs, positions, false).unwrap()
    }

    #[test]
    fn a_small_op_is_arithmetic_a_wide_one_streams_and_a_power_of_two_aliases() {
        let (m, bound) = (model(), |n| model().time(&conv(n, n, 64)).1);
        assert_eq!((bound(256), bound(3072), bound(4096)), (Bottleneck::Compute, Bottleneck::Dram, Bottleneck::Spill));
        // 4096 channels take longer than 4608 (benchmarks §4).
        assert!(m.time(&conv(4096, 4096, 64)).0 > m.time(&conv(4608, 4608, 64)).0);
        let huge = Demand { bytes_in: 1 << 40, ..Demand::planar(0, 0, 0) };
        assert_eq!(m.time(&huge).1, Bottleneck::Spill);
        assert_eq!(Demand::conv(u64::MAX, 2, 1, false), None);
    }

    #[test]
    fn the_rate_rises_with_the_size_to_the_published_peak() {
        let m = model();
        let rate = |w: &Demand| w.flops as f64 / m.time(w).0 / 1e6;
        assert!(rate(&conv(512, 512, 64)) < rate(&conv(512, 512, 4096)));
        // int8 §1: 18.6 and 35.1 TOPS at 64x64; the fit is within a twentieth of both.
        assert!((rate(&conv(512, 512, 4096)) / 18.6 - 1.0).abs() < 0.05);
        assert!((rate(&Demand::conv(512, 512, 4096, true).unwrap()) / 35.1 - 1.0).abs() < 0.05);
    }

    #[test]
    fn a_program_is_its_floor_and_its_ops() {
        let mut b = Builder::new("main", Opset::IOS18);
        let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 512, 1, 64])).unwrap();
        let w = b.weight("w", "@model_path/w.bin", DataType::Fp16, &[512, 512, 1, 1], vec![0; 512 * 512 * 2]).unwrap();
        let y = b.conv("y", x, w, None, &Default::default()).unwrap();
        let r = b.op("relu", "r", [("x", y.into())]).unwrap();
        let z = b.op("mul", "z", [("x", r.into()), ("y", Constant::fp16(0.5).into())]).unwrap();
        let s = b.op("softmax", "s", [("x", z.into()), ("axis", Constant::int32(1).into())]).unwrap();
        let program = b.finish(&[("out", s)]).unwrap();
        let m = model();
        let cost = predict(&program, &m).unwrap();
        let us = |name: &str| cost.ops.iter().find(|o| o.name == name).unwrap().us;
        // The relu and the factor are part of the convolution; the softmax reads and writes 64 KiB.
        assert_eq!((us("r"), us("z")), (0.0, 0.0));
        assert_eq!(us("y"), m.time(&conv(512, 512, 64)).0);
        let traffic = 2.0 * 512.0 * 64.0 * 2.0 / (m.constants.traffic_gb_s.value * 1e3);
        // The axis, a constant of four bytes, is read as well.
        let softmax = cost.ops.iter().find(|o| o.op == "softmax").unwrap();
        assert!((softmax.us - traffic).abs() < 1e-3);
        assert_eq!(softmax.bound, Some(Bottleneck::Planar));
        let sum: f64 = cost.ops.iter().map(|o| o.us).sum();
        // The ops are shorter than what passes during the fixed cost.
        assert!(sum < m.hidden_us() && cost.total_us == cost.dispatch_us && (cost.hidden_us - sum).abs() < 1e-9);
        assert_eq!((cost.bound, cost.flops > 0), (Bottleneck::Dispatch, true));
        // 2.8 W under load.
        assert!((cost.energy_mj.unwrap() - 2.8e-3 * sum).abs() < 1e-9);
        assert!(super::super::roofline_svg(&cost, &m).contains("conv y"));
    }

    #[test]
    fn paths_have_their_floors_and_unknown_chips_are_errors() {
        let floor = |path: &str| CostModel { constants: Constants::of("m4-max", path).unwrap() }.dispatch_us();
        assert!(floor("e5rt") < floor("inmem"));
        assert_eq!(floor("inmem"), floor("client"));
        assert!(CostModel::for_chip("m99").is_err());
        let profile = Profile::named(Profile::DEFAULT).unwrap();
        assert_eq!(CostModel::for_profile(&profile).unwrap(), model());
    }
}
