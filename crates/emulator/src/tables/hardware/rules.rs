//! The rules of a profile's machine.

use ferrane_arith::{Accumulator, Denormals, Reduction, RoundOp, Rounding, Rules, SigmoidTable};
use ferrane_machine::{Profile, profile};

/// The values of a profile about arithmetic, as switches.
pub(crate) fn rules(profile: &Profile) -> Rules {
    let rounding = |value| match value {
        profile::Rounding::Even => Rounding::Even,
        _ => Rounding::Away,
    };
    let tables = profile.tables.value;
    Rules {
        rounding: rounding(profile.rounding.value),
        accumulator: match profile.accumulator.value {
            profile::Accumulator::Tile4 => Accumulator::Tiles,
            profile::Accumulator::Fp32 => Accumulator::Wide,
            _ => Accumulator::Grid,
        },
        mac_ceiling: Some(profile.mac_ceiling.value as f32),
        mac_denormals: match profile.mac_subnormals.value {
            profile::Subnormals::Flushed => Denormals::Flush,
            _ => Denormals::Keep,
        },
        reduce_sum: match profile.reduce_sum.value {
            profile::SumWidth::Narrow => Reduction::Narrow,
            _ => Reduction::Wide,
        },
        slice_crop: profile.slice_crop.value == profile::SliceCrop::Times16,
        int8_crop: profile.int8_matmul_crop.value,
        tables,
        sigmoid: match profile.sigmoid_table.value {
            profile::SigmoidTable::Plain => SigmoidTable::Plain,
            _ => SigmoidTable::HighPrecision,
        },
        gelu_table: profile.gelu_table.value == profile::GeluTable::Decoded,
        round_op: match profile.round_op.value {
            profile::RoundOp::NearestEven => RoundOp::Even,
            _ => RoundOp::AddHalf,
        },
        quantize: rounding(profile.quantize_rounding.value),
        qdq_defect: profile.qdq_multiply_defect.value,
        nan_to_inf: tables,
        attn_mask_ignored: profile.attn_mask.value == profile::AttnMask::Ignored,
        ..Rules::default()
    }
}
