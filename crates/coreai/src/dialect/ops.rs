//! The operations of the dialect.

/// How the text of a program spells an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `%a, %b : (A, B) -> C`.
    Plain,
    /// `%a : A -> B`.
    Unary,
    /// A form of its own.
    Own,
}

/// What is known of an operation.
#[derive(Debug, PartialEq, Eq)]
pub struct Op {
    /// The name in the file, without the dialect, with a version.
    pub name: &'static str,
    /// The name in the text of a program, with its dialect. Empty for the operation that encloses
    /// a program.
    pub spelling: &'static str,
    /// The form in the text of a program.
    pub form: Form,
    /// The names of properties in the order of the file; a `?` precedes the optional ones.
    pub properties: &'static [&'static str],
}

const fn op(name: &'static str, spelling: &'static str, form: Form, properties: &'static [&'static str]) -> Op {
    Op { name, spelling, form, properties }
}

/// Every known operation, sorted by name. Names and properties were seen in files written by
/// coreai-core 1.0.0b3, the spellings in the text that it prints for them.
#[rustfmt::skip]
pub const OPS: &[Op] = &[
    op("all_v1", "coreai.all", Form::Plain, &[]),
    op("any_v1", "coreai.any", Form::Plain, &[]),
    op("argmax_v1", "coreai.argmax", Form::Plain, &[]),
    op("asymmetric_quantization_statistics_v1", "coreai.asymmetric_quantization_statistics", Form::Own, &[]),
    op("ax.copy_discarding_constraints_v1", "coreaix.copy_discarding_constraints", Form::Own, &[]),
    op("ax.copy_with_constraints_v1", "coreaix.copy_with_constraints", Form::Own, &[]),
    op("broadcasting_add_v1", "coreai.decomposable.broadcasting_add", Form::Plain, &[]),
    op("broadcasting_batch_matmul_v1", "coreai.decomposable.broadcasting_batch_matmul", Form::Plain, &[]),
    op("broadcasting_bitwise_and_v1", "coreai.decomposable.broadcasting_bitwise_and", Form::Plain, &[]),
    op("broadcasting_bitwise_or_v1", "coreai.decomposable.broadcasting_bitwise_or", Form::Plain, &[]),
    op("broadcasting_bitwise_xor_v1", "coreai.decomposable.broadcasting_bitwise_xor", Form::Plain, &[]),
    op("broadcasting_divide_v1", "coreai.decomposable.broadcasting_divide", Form::Plain, &[]),
    op("broadcasting_equal_v1", "coreai.decomposable.broadcasting_equal", Form::Plain, &[]),
    op("broadcasting_floor_divide_v1", "coreai.decomposable.broadcasting_floor_divide", Form::Plain, &[]),
    op("broadcasting_greater_v1", "coreai.decomposable.broadcasting_greater", Form::Plain, &[]),
    op("broadcasting_logical_and_v1", "coreai.decomposable.broadcasting_and", Form::Plain, &[]),
    op("broadcasting_logical_or_v1", "coreai.decomposable.broadcasting_or", Form::Plain, &[]),
    op("broadcasting_logical_xor_v1", "coreai.decomposable.broadcasting_xor", Form::Plain, &[]),
    op("broadcasting_maximum_v1", "coreai.decomposable.broadcasting_maximum", Form::Plain, &[]),
    op("broadcasting_minimum_v1", "coreai.decomposable.broadcasting_minimum", Form::Plain, &[]),
    op("broadcasting_modulo_v1", "coreai.decomposable.broadcasting_modulo", Form::Plain, &[]),
    op("broadcasting_mul_v1", "coreai.decomposable.broadcasting_mul", Form::Plain, &[]),
    op("broadcasting_not_equal_v1", "coreai.decomposable.broadcasting_not_equal", Form::Plain, &[]),
    op("broadcasting_pow_v1", "coreai.decomposable.broadcasting_pow", Form::Plain, &[]),
    op("broadcasting_sub_v1", "coreai.decomposable.broadcasting_sub", Form::Plain, &[]),
    op("broadcasting_where_v1", "coreai.decomposable.broadcasting_where", Form::Plain, &[]),
    op("controlflow.condition_v1", "coreai.condition", Form::Own, &[]),
    op("controlflow.if_v1", "coreai.if", Form::Own, &[]),
    op("controlflow.while_v1", "coreai.while", Form::Own, &[]),
    op("dataflow.create_token_v1", "coreai.create_token", Form::Own, &[]),
    op("dataflow.graph_v1", "coreai.graph", Form::Own, &["argAttrs", "?compositeDecl", "externalize", "functionType", "isPrivate", "name", "noInline", "paramDecls", "resAttrs"]),
    op("dataflow.invoke_v1", "coreai.invoke", Form::Own, &["arg_attrs", "callee", "res_attrs"]),
    op("dataflow.isolated_group_v1", "coreai.isolated_group", Form::Own, &["arg_attrs", "delegate_id", "res_attrs"]),
    op("dataflow.join_token_v1", "coreai.join_token", Form::Plain, &[]),
    op("dataflow.output_v1", "coreai.output", Form::Own, &[]),
    op("dataflow.read_handle_v1", "coreai.read_handle", Form::Own, &[]),
    op("dataflow.write_handle_v1", "coreai.write_handle", Form::Own, &[]),
    op("dataflow.yield_v1", "coreai.yield", Form::Own, &[]),
    op("dequantize_v2", "coreai.dequantize", Form::Plain, &[]),
    op("execution.delegate_v2", "coreai.delegate", Form::Own, &["arg_attrs", "?delegate_attrs", "delegate_id", "lifecycle", "res_attrs", "resource"]),
    op("execution.target_spec_v1", "coreai.target_spec", Form::Own, &["compilation", "spec"]),
    op("metal.metal4_kernel_v1", "coreai.metal4_kernel", Form::Own, &["kernel_name", "kernel_source"]),
    op("primitive.abs_v1", "coreai.abs", Form::Unary, &[]),
    op("primitive.acos_v1", "coreai.acos", Form::Unary, &[]),
    op("primitive.acosh_v1", "coreai.acosh", Form::Unary, &[]),
    op("primitive.add_v1", "coreai.add", Form::Plain, &[]),
    op("primitive.argsort_v1", "coreai.argsort", Form::Plain, &[]),
    op("primitive.asin_v1", "coreai.asin", Form::Unary, &[]),
    op("primitive.asinh_v1", "coreai.asinh", Form::Unary, &[]),
    op("primitive.atan_v1", "coreai.atan", Form::Unary, &[]),
    op("primitive.atanh_v1", "coreai.atanh", Form::Unary, &[]),
    op("primitive.batch_matmul_v1", "coreai.batch_matmul", Form::Plain, &[]),
    op("primitive.bitwise_and_v1", "coreai.bitwise_and", Form::Plain, &[]),
    op("primitive.bitwise_or_v1", "coreai.bitwise_or", Form::Plain, &[]),
    op("primitive.bitwise_xor_v1", "coreai.bitwise_xor", Form::Plain, &[]),
    op("primitive.blockwise_shift_scale_v2", "coreai.blockwise_shift_scale", Form::Plain, &[]),
    op("primitive.broadcast_in_dims_v1", "coreai.broadcast_in_dims", Form::Plain, &[]),
    op("primitive.broadcast_shapes_v1", "coreai.broadcast_shapes", Form::Plain, &[]),
    op("primitive.broadcast_to_v1", "coreai.broadcast_to", Form::Plain, &[]),
    op("primitive.build_sparse_with_bitmask_v1", "coreai.build_sparse_with_bitmask", Form::Plain, &[]),
    op("primitive.cast_v1", "coreai.cast", Form::Own, &[]),
    op("primitive.concat_v1", "coreai.concat", Form::Plain, &[]),
    op("primitive.constant_v1", "coreai.constant", Form::Own, &["value"]),
    op("primitive.conv2d_v1", "coreai.conv2d", Form::Plain, &[]),
    op("primitive.conv3d_v1", "coreai.conv3d", Form::Plain, &[]),
    op("primitive.conv_transpose2d_v1", "coreai.conv_transpose2d", Form::Plain, &[]),
    op("primitive.conv_transpose3d_v1", "coreai.conv_transpose3d", Form::Plain, &[]),
    op("primitive.cos_v1", "coreai.cos", Form::Unary, &[]),
    op("primitive.cosh_v1", "coreai.cosh", Form::Unary, &[]),
    op("primitive.create_complex_v1", "coreai.create_complex", Form::Plain, &[]),
    op("primitive.divide_v1", "coreai.divide", Form::Plain, &[]),
    op("primitive.equal_v1", "coreai.equal", Form::Plain, &[]),
    op("primitive.erf_v1", "coreai.erf", Form::Unary, &[]),
    op("primitive.exp_v1", "coreai.exp", Form::Unary, &[]),
    op("primitive.expand_dims_v1", "coreai.expand_dims", Form::Plain, &[]),
    op("primitive.floor_divide_v1", "coreai.floor_divide", Form::Plain, &[]),
    op("primitive.gather_along_axis_v1", "coreai.gather_along_axis", Form::Own, &[]),
    op("primitive.gather_nd_v1", "coreai.gather_nd", Form::Own, &[]),
    op("primitive.gelu_v1", "coreai.gelu", Form::Own, &["approximate"]),
    op("primitive.get_shape_v2", "coreai.get_shape", Form::Plain, &[]),
    op("primitive.greater_v1", "coreai.greater", Form::Plain, &[]),
    op("primitive.image_to_tensor_v1", "coreai.image_to_tensor", Form::Unary, &[]),
    op("primitive.imaginary_part_v1", "coreai.imaginary_part", Form::Plain, &[]),
    op("primitive.interpolate_coordinates_v1", "coreai.interpolate_coordinates", Form::Own, &["interpolation_mode"]),
    op("primitive.interpolate_v1", "coreai.interpolate", Form::Own, &["interpolation_mode"]),
    op("primitive.log_v1", "coreai.log", Form::Unary, &[]),
    op("primitive.logical_and_v1", "coreai.and", Form::Plain, &[]),
    op("primitive.logical_or_v1", "coreai.or", Form::Plain, &[]),
    op("primitive.logical_xor_v1", "coreai.xor", Form::Plain, &[]),
    op("primitive.lut_to_dense_v1", "coreai.lut_to_dense", Form::Plain, &[]),
    op("primitive.lut_to_sparse_with_bitmask_v1", "coreai.lut_to_sparse_with_bitmask", Form::Plain, &[]),
    op("primitive.max_pool_2d_v1", "coreai.max_pool_2d", Form::Plain, &[]),
    op("primitive.max_pool_3d_v1", "coreai.max_pool_3d", Form::Plain, &[]),
    op("primitive.maximum_v1", "coreai.maximum", Form::Plain, &[]),
    op("primitive.minimum_v1", "coreai.minimum", Form::Plain, &[]),
    op("primitive.modulo_v1", "coreai.modulo", Form::Plain, &[]),
    op("primitive.mul_v1", "coreai.mul", Form::Plain, &[]),
    op("primitive.non_zero_v1", "coreai.non_zero", Form::Unary, &[]),
    op("primitive.not_equal_v1", "coreai.not_equal", Form::Plain, &[]),
    op("primitive.not_v1", "coreai.not", Form::Unary, &[]),
    op("primitive.pad_v1", "coreai.pad", Form::Own, &["padding_mode"]),
    op("primitive.pow_v1", "coreai.pow", Form::Plain, &[]),
    op("primitive.range_v1", "coreai.range", Form::Plain, &[]),
    op("primitive.real_part_v1", "coreai.real_part", Form::Plain, &[]),
    op("primitive.reduce_index_v1", "coreai.reduce_index", Form::Own, &[]),
    op("primitive.reduce_v1", "coreai.reduce", Form::Own, &[]),
    op("primitive.reshape_v2", "coreai.reshape", Form::Plain, &[]),
    op("primitive.reverse_v1", "coreai.reverse", Form::Plain, &[]),
    op("primitive.round_v1", "coreai.round", Form::Unary, &[]),
    op("primitive.rsqrt_v1", "coreai.rsqrt", Form::Unary, &[]),
    op("primitive.scan_v1", "coreai.scan", Form::Own, &["combiner"]),
    op("primitive.scatter_along_axis_v1", "coreai.scatter_along_axis", Form::Own, &["scatter_mode"]),
    op("primitive.scatter_nd_v1", "coreai.scatter_nd", Form::Own, &[]),
    op("primitive.shrink_dims_v1", "coreai.shrink_dims", Form::Plain, &[]),
    op("primitive.sin_v1", "coreai.sin", Form::Unary, &[]),
    op("primitive.sinh_v1", "coreai.sinh", Form::Unary, &[]),
    op("primitive.slice_update_v1", "coreai.slice_update", Form::Own, &[]),
    op("primitive.slice_v1", "coreai.slice", Form::Plain, &[]),
    op("primitive.sparse_with_bitmask_to_dense_v1", "coreai.sparse_with_bitmask_to_dense", Form::Unary, &[]),
    op("primitive.split_v1", "coreai.split", Form::Plain, &[]),
    op("primitive.sqrt_v1", "coreai.sqrt", Form::Unary, &[]),
    op("primitive.sub_v1", "coreai.sub", Form::Plain, &[]),
    op("primitive.sum_pool_2d_v1", "coreai.sum_pool_2d", Form::Plain, &[]),
    op("primitive.sum_pool_3d_v1", "coreai.sum_pool_3d", Form::Plain, &[]),
    op("primitive.tan_v1", "coreai.tan", Form::Unary, &[]),
    op("primitive.tanh_v1", "coreai.tanh", Form::Unary, &[]),
    op("primitive.tensor_to_image_v1", "coreai.tensor_to_image", Form::Unary, &[]),
    op("primitive.transpose_v1", "coreai.transpose", Form::Plain, &[]),
    op("primitive.where_v1", "coreai.where", Form::Plain, &[]),
    op("quantize_v2", "coreai.quantize", Form::Plain, &[]),
    op("reduce_max_v1", "coreai.reduce_max", Form::Plain, &[]),
    op("reduce_mean_v1", "coreai.reduce_mean", Form::Plain, &[]),
    op("reduce_min_v1", "coreai.reduce_min", Form::Plain, &[]),
    op("reduce_product_v1", "coreai.reduce_product", Form::Plain, &[]),
    op("reduce_sum_v1", "coreai.reduce_sum", Form::Plain, &[]),
    op("relu_v1", "coreai.relu", Form::Plain, &[]),
    op("serialization.asset", "", Form::Own, &["?features", "?version"]),
    op("sigmoid_v1", "coreai.sigmoid", Form::Plain, &[]),
    op("silu_v1", "coreai.silu", Form::Plain, &[]),
    op("softmax_v1", "coreai.softmax", Form::Plain, &[]),
    op("sort_v1", "coreai.sort", Form::Plain, &[]),
    op("symmetric_quantization_statistics_v1", "coreai.symmetric_quantization_statistics", Form::Plain, &[]),
    op("tile_v2", "coreai.tile", Form::Plain, &[]),
];

/// An operation by its name without the dialect.
pub fn op_named(name: impl AsRef<[u8]>) -> Option<&'static Op> {
    OPS.binary_search_by(|op| op.name.as_bytes().cmp(name.as_ref())).ok().map(|index| &OPS[index])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorted_and_named_once() {
        assert!(OPS.is_sorted_by(|a, b| a.name < b.name));
    }
}
