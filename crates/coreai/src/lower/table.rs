//! One entry for every operation of the dialect: its lowering to MIL, or the reason why there is
//! none.

use ferrane_mil::ValueId;

use super::state::{Built, Lower, Meaning};
use super::{
    control as ct, conv as cv, elementwise as el, fold, index as ix, quantize as qu, reduce as rd, resize as rs,
    shape as sh,
};

/// A lowering: returns the results of the operation as values of the program.
pub(super) type Lowering = fn(&mut Lower<'_>) -> Built<Vec<ValueId>>;
/// A lowering whose results may be something else than values.
type Resolving = for<'a> fn(&mut Lower<'a>) -> Built<Vec<Meaning<'a>>>;

/// How the table handles an operation.
#[derive(Clone, Copy)]
pub(super) enum OpMapping {
    /// It is an op of MIL, or a short composition of ops.
    Lowered(Lowering),
    /// It is resolved while the program is made, or has blocks.
    Entries(Resolving),
    /// Its expansion takes its place, which every file has.
    Expanded,
    /// It stands around blocks or at their ends, and is read with them.
    Structure,
    /// It has no program, for this reason.
    Not(&'static str),
}

use OpMapping::{Entries as E, Expanded as X, Lowered as L, Not, Structure as S};

const COMPLEX: &str = "MIL has no complex numbers";
const IMAGE: &str = "MIL has no images; packages describe tensors as images";

/// The operations by name, sorted as [`OPS`](crate::dialect::ops::OPS).
#[rustfmt::skip]
const TABLE: &[(&str, OpMapping)] = &[
    ("all_v1", L(rd::all)),
    ("any_v1", L(rd::any)),
    ("argmax_v1", L(rd::argmax)),
    ("asymmetric_quantization_statistics_v1", X),
    ("ax.copy_discarding_constraints_v1", E(ct::same)),
    ("ax.copy_with_constraints_v1", E(ct::same)),
    ("broadcasting_add_v1", L(el::add)),
    ("broadcasting_batch_matmul_v1", L(rd::matmul)),
    ("broadcasting_bitwise_and_v1", L(el::bitwise_and)),
    ("broadcasting_bitwise_or_v1", L(el::bitwise_or)),
    ("broadcasting_bitwise_xor_v1", L(el::bitwise_xor)),
    ("broadcasting_divide_v1", L(el::divide)),
    ("broadcasting_equal_v1", L(el::equal)),
    ("broadcasting_floor_divide_v1", L(el::floor_divide)),
    ("broadcasting_greater_v1", L(el::greater)),
    ("broadcasting_logical_and_v1", L(el::and)),
    ("broadcasting_logical_or_v1", L(el::or)),
    ("broadcasting_logical_xor_v1", L(el::xor)),
    ("broadcasting_maximum_v1", L(el::maximum)),
    ("broadcasting_minimum_v1", L(el::minimum)),
    ("broadcasting_modulo_v1", L(el::modulo)),
    ("broadcasting_mul_v1", L(el::mul)),
    ("broadcasting_not_equal_v1", L(el::not_equal)),
    ("broadcasting_pow_v1", L(el::pow)),
    ("broadcasting_sub_v1", L(el::sub)),
    ("broadcasting_where_v1", L(el::select)),
    ("controlflow.condition_v1", S),
    ("controlflow.if_v1", E(ct::branch)),
    ("controlflow.while_v1", E(ct::repeat)),
    ("dataflow.create_token_v1", E(ct::token)),
    ("dataflow.graph_v1", S),
    ("dataflow.invoke_v1", E(ct::invoke)),
    ("dataflow.isolated_group_v1", E(ct::group)),
    ("dataflow.join_token_v1", E(ct::token)),
    ("dataflow.output_v1", S),
    ("dataflow.read_handle_v1", E(ct::read_handle)),
    ("dataflow.write_handle_v1", E(ct::write_handle)),
    ("dataflow.yield_v1", S),
    ("dequantize_v2", L(qu::dequantize)),
    ("execution.delegate_v2", Not("it is a program of a delegate, in a format of its own")),
    ("execution.target_spec_v1", Not("it describes a machine and computes nothing")),
    ("metal.metal4_kernel_v1", Not("it is source text of a GPU, which MIL does not hold")),
    ("primitive.abs_v1", L(el::abs)),
    ("primitive.acos_v1", L(el::acos)),
    ("primitive.acosh_v1", L(el::acosh)),
    ("primitive.add_v1", L(el::add)),
    ("primitive.argsort_v1", L(rd::argsort)),
    ("primitive.asin_v1", L(el::asin)),
    ("primitive.asinh_v1", L(el::asinh)),
    ("primitive.atan_v1", L(el::atan)),
    ("primitive.atanh_v1", L(el::atanh)),
    ("primitive.batch_matmul_v1", L(rd::matmul)),
    ("primitive.bitwise_and_v1", L(el::bitwise_and)),
    ("primitive.bitwise_or_v1", L(el::bitwise_or)),
    ("primitive.bitwise_xor_v1", L(el::bitwise_xor)),
    ("primitive.blockwise_shift_scale_v2", L(qu::blockwise_shift_scale)),
    ("primitive.broadcast_in_dims_v1", L(sh::broadcast_in_dims)),
    ("primitive.broadcast_shapes_v1", Not("MIL needs the extents when the program is made")),
    ("primitive.broadcast_to_v1", L(sh::broadcast_to)),
    ("primitive.build_sparse_with_bitmask_v1", E(ct::sparse)),
    ("primitive.cast_v1", L(el::cast)),
    ("primitive.concat_v1", L(sh::concat)),
    ("primitive.constant_v1", E(fold::constant)),
    ("primitive.conv2d_v1", L(cv::conv)),
    ("primitive.conv3d_v1", L(cv::conv)),
    ("primitive.conv_transpose2d_v1", L(cv::conv_transpose)),
    ("primitive.conv_transpose3d_v1", L(cv::conv_transpose)),
    ("primitive.cos_v1", L(el::cos)),
    ("primitive.cosh_v1", L(el::cosh)),
    ("primitive.create_complex_v1", Not(COMPLEX)),
    ("primitive.divide_v1", L(el::divide)),
    ("primitive.equal_v1", L(el::equal)),
    ("primitive.erf_v1", L(el::erf)),
    ("primitive.exp_v1", L(el::exp)),
    ("primitive.expand_dims_v1", L(sh::expand_dims)),
    ("primitive.floor_divide_v1", L(el::floor_divide)),
    ("primitive.gather_along_axis_v1", L(ix::gather_along_axis)),
    ("primitive.gather_nd_v1", L(ix::gather_nd)),
    ("primitive.gelu_v1", L(el::gelu)),
    ("primitive.get_shape_v2", L(sh::get_shape)),
    ("primitive.greater_v1", L(el::greater)),
    ("primitive.image_to_tensor_v1", Not(IMAGE)),
    ("primitive.imaginary_part_v1", Not(COMPLEX)),
    ("primitive.interpolate_coordinates_v1", L(rs::interpolate_coordinates)),
    ("primitive.interpolate_v1", L(rs::interpolate)),
    ("primitive.log_v1", L(el::log)),
    ("primitive.logical_and_v1", L(el::and)),
    ("primitive.logical_or_v1", L(el::or)),
    ("primitive.logical_xor_v1", L(el::xor)),
    ("primitive.lut_to_dense_v1", L(qu::lut_to_dense)),
    ("primitive.lut_to_sparse_with_bitmask_v1", E(qu::lut_to_sparse)),
    ("primitive.max_pool_2d_v1", L(cv::max_pool)),
    ("primitive.max_pool_3d_v1", L(cv::max_pool)),
    ("primitive.maximum_v1", L(el::maximum)),
    ("primitive.minimum_v1", L(el::minimum)),
    ("primitive.modulo_v1", L(el::modulo)),
    ("primitive.mul_v1", L(el::mul)),
    ("primitive.non_zero_v1", L(rd::non_zero)),
    ("primitive.not_equal_v1", L(el::not_equal)),
    ("primitive.not_v1", L(el::not)),
    ("primitive.pad_v1", L(sh::pad)),
    ("primitive.pow_v1", L(el::pow)),
    ("primitive.range_v1", L(sh::range)),
    ("primitive.real_part_v1", Not(COMPLEX)),
    ("primitive.reduce_index_v1", L(rd::reduce_index)),
    ("primitive.reduce_v1", L(rd::reduce)),
    ("primitive.reshape_v2", L(sh::reshape)),
    ("primitive.reverse_v1", L(sh::reverse)),
    ("primitive.round_v1", L(el::round)),
    ("primitive.rsqrt_v1", L(el::rsqrt)),
    ("primitive.scan_v1", L(rd::scan)),
    ("primitive.scatter_along_axis_v1", L(ix::scatter_along_axis)),
    ("primitive.scatter_nd_v1", L(ix::scatter_nd)),
    ("primitive.shrink_dims_v1", L(sh::shrink_dims)),
    ("primitive.sin_v1", L(el::sin)),
    ("primitive.sinh_v1", L(el::sinh)),
    ("primitive.slice_update_v1", L(sh::slice_update)),
    ("primitive.slice_v1", L(sh::slice)),
    ("primitive.sparse_with_bitmask_to_dense_v1", L(qu::sparse_to_dense)),
    ("primitive.split_v1", L(sh::split)),
    ("primitive.sqrt_v1", L(el::sqrt)),
    ("primitive.sub_v1", L(el::sub)),
    ("primitive.sum_pool_2d_v1", L(cv::sum_pool)),
    ("primitive.sum_pool_3d_v1", L(cv::sum_pool)),
    ("primitive.tan_v1", L(el::tan)),
    ("primitive.tanh_v1", L(el::tanh)),
    ("primitive.tensor_to_image_v1", Not(IMAGE)),
    ("primitive.transpose_v1", L(sh::transpose)),
    ("primitive.where_v1", L(el::select)),
    ("quantize_v2", L(qu::quantize)),
    ("reduce_max_v1", L(rd::reduce_max)),
    ("reduce_mean_v1", L(rd::reduce_mean)),
    ("reduce_min_v1", L(rd::reduce_min)),
    ("reduce_product_v1", L(rd::reduce_product)),
    ("reduce_sum_v1", L(rd::reduce_sum)),
    ("relu_v1", L(el::relu)),
    ("serialization.asset", S),
    ("sigmoid_v1", L(el::sigmoid)),
    ("silu_v1", L(el::silu)),
    ("softmax_v1", L(rd::softmax)),
    ("sort_v1", L(rd::sort)),
    ("symmetric_quantization_statistics_v1", X),
    ("tile_v2", L(sh::tile)),
];

/// How the table handles an operation; `None` if it has no such operation.
pub(super) fn find(name: &str) -> Option<&'static OpMapping> {
    TABLE.binary_search_by_key(&name, |(name, _)| name).ok().map(|i| &TABLE[i].1)
}

/// Every known operation by its name in the file, with the reason why it has no program, or `None`
/// if it has one.
pub fn operations() -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
    TABLE.iter().map(|(name, mapping)| match mapping {
        OpMapping::Not(reason) => (*name, Some(*reason)),
        _ => (*name, None),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::ops::OPS;

    #[test]
    fn every_operation_has_an_entry() {
        let names: Vec<&str> = TABLE.iter().map(|(name, _)| *name).collect();
        let known: Vec<&str> = OPS.iter().map(|op| op.name).collect();
        assert_eq!(names, known);
    }
}
