//! Types of results against those that coremltools 9.0 infers for the same calls, family by family;
//! control flow, lists and states against what their ops mean.

use ferrane_mil::{Arg, Builder, Constant, DataType, Dim, Opset, Type, Weights, ops, parse};

fn tensor(text: &str) -> Type {
    let (dtype, shape) = text.trim_end_matches(']').split_once('[').unwrap();
    let extent = |d: &str| if d == "?" { Dim::Unknown } else { Dim::Fixed(d.parse().unwrap()) };
    let dtype = DataType::from_name(dtype).unwrap();
    Type::Tensor { dtype, shape: shape.split(',').filter(|d| !d.is_empty()).map(extent).collect() }
}

/// `'text'`, `true`, `[true,false]`, `[1,2]`, `u2` (uint32), `1.5` (fp32), `1.5h` (fp16), `3`, and
/// `fp16[2,3]` of zeros.
fn constant(text: &str) -> Constant {
    if let Some(text) = text.strip_prefix('\'') {
        return Constant::string(text.trim_end_matches('\''));
    }
    if text == "true" || text == "false" {
        return Constant::bool(text == "true");
    }
    if let Some(items) = text.strip_prefix('[') {
        let items: Vec<&str> = items.trim_end_matches(']').split(',').collect();
        if items[0].parse::<bool>().is_ok() {
            let bytes: Vec<u8> = items.iter().map(|i| u8::from(*i == "true")).collect();
            return Constant::raw(DataType::Bool, &[bytes.len()], &bytes);
        }
        return Constant::int32s(&items.iter().map(|i| i.parse().unwrap()).collect::<Vec<i32>>());
    }
    if text.ends_with(']') {
        let ty = tensor(text);
        return Constant::raw(ty.dtype().unwrap(), &ty.shape().unwrap(), &vec![0; ty.bytes().unwrap()]);
    }
    if let Some(n) = text.strip_prefix('u') {
        return Constant::raw(DataType::UInt32, &[], &n.parse::<u32>().unwrap().to_le_bytes());
    }
    match text.strip_suffix('h') {
        Some(n) => Constant::fp16(n.parse().unwrap()),
        None if text.contains('.') => Constant::fp32(text.parse().unwrap()),
        None => Constant::int32(text.parse().unwrap()),
    }
}

/// The result types of a call: `name:type` is an input (several joined by `|`), `name=value` a
/// constant.
fn call(op: &str, opset: u16, arguments: &str) -> Result<String, String> {
    let mut b = Builder::new("main", Opset(opset));
    let mut args: Vec<(&str, Arg)> = Vec::new();
    for argument in arguments.split(' ') {
        let at = argument.find([':', '=']).unwrap();
        let (name, value) = (&argument[..at], &argument[at + 1..]);
        if argument.as_bytes()[at] == b'=' {
            args.push((name, constant(value).into()));
            continue;
        }
        let values: Vec<_> =
            value.split('|').enumerate().map(|(i, ty)| b.input(&format!("{name}{i}"), tensor(ty)).unwrap()).collect();
        args.push((name, if name == "values" { values.into() } else { values[0].into() }));
    }
    let results = b.ops(op, "result", args).map_err(|e| e.to_string())?;
    Ok(results.iter().map(|v| b.ty(*v).to_string()).collect::<Vec<_>>().join(" "))
}

/// `None`: coremltools refuses the call.
#[rustfmt::skip]
const CALLS: &[(&str, u16, &str, Option<&str>)] = &[
    ("argsort", 15, "x:fp32[2,3] axis=0", Some("tensor<int32, [2, 3]>")),
    ("topk", 15, "x:fp32[2,5] k=2", Some("tensor<fp32, [2, 2]> tensor<int32, [2, 2]>")),
    ("topk", 15, "x:fp32[2,5] k=6", None),
    ("topk", 16, "x:fp16[4,5] k=3 axis=0 return_indices=false", Some("tensor<fp16, [3, 5]>")),
    ("topk", 17, "x:fp16[4,?] k=3 output_indices_dtype='uint16'", Some("tensor<fp16, [4, 3]> tensor<uint16, [4, 3]>")),
    ("topk", 17, "x:fp16[4,5] return_indices=false output_indices_dtype='int32'", None),
    ("cumsum", 15, "x:int32[2,3] axis=1", Some("tensor<int32, [2, 3]>")),
    ("cumsum", 15, "x:int32[2,3] axis=2", None),
    ("band_part", 15, "x:fp32[2,3,4] lower=1", Some("tensor<fp32, [2, 3, 4]>")),
    ("fill", 15, "shape=[2,3] value=1.5h", Some("tensor<fp16, [2, 3]>")),
    ("fill", 15, "shape:int32[3]", Some("tensor<fp32, [?, ?, ?]>")),
    ("fill_like", 16, "ref_tensor:fp16[2,?] value=7", Some("tensor<int32, [2, ?]>")),
    ("flatten2d", 15, "x:fp32[2,3,4] axis=2", Some("tensor<fp32, [6, 4]>")),
    ("flatten2d", 15, "x:fp32[2,3,4] axis=-1", Some("tensor<fp32, [6, 4]>")),
    ("flatten2d", 15, "x:fp32[2,3,4] axis=0", Some("tensor<fp32, [1, 24]>")),
    ("non_zero", 15, "x:fp32[2,3]", Some("tensor<int32, [?, 2]>")),
    ("one_hot", 15, "indices:int32[2,3] one_hot_vector_size=5", Some("tensor<int32, [2, 3, 5]>")),
    ("one_hot", 15, "indices:int32[2,3] one_hot_vector_size=5 axis=1 on_value=1.0 off_value=0.0", Some("tensor<fp32, [2, 5, 3]>")),
    ("one_hot", 15, "indices:int32[2,3] one_hot_vector_size=5 on_value=1.0", None),
    ("range_1d", 15, "end=2.0 start=0.0 step=0.3", Some("tensor<fp32, [7]>")),
    ("range_1d", 15, "end=10 start=1 step=3", Some("tensor<int32, [3]>")),
    ("shape", 15, "x:fp16[2,?,4]", Some("tensor<int32, [3]>")),
    ("non_maximum_suppression", 15, "boxes:fp32[1,8,4] scores:fp32[1,8,3] iou_threshold=0.5 score_threshold=0.1 max_boxes=5", Some("tensor<fp32, [1, 5, 4]> tensor<fp32, [1, 5, 3]> tensor<int32, [1, 5]> tensor<int32, [1]>")),
    ("non_maximum_suppression", 17, "boxes:fp32[1,4,8] scores:fp32[1,3,8] iou_threshold=0.5 max_boxes=5", Some("tensor<fp32, [1, 4, 5]> tensor<fp32, [1, 3, 5]> tensor<int32, [1, 5]>")),
    ("gather", 15, "x:fp32[2,3,4] indices:int32[5,6] axis=1", Some("tensor<fp32, [2, 5, 6, 4]>")),
    ("gather", 16, "x:fp32[2,3,4] indices:uint16[2,6] axis=1 batch_dims=1", Some("tensor<fp32, [2, 6, 4]>")),
    ("gather", 17, "x:int8[2,3,4] indices:int8[2] axis=-1", Some("tensor<int8, [2, 3, 2]>")),
    ("gather", 17, "x:fp32[2,3] indices=[0,3] axis=1 validate_indices=true", None),
    ("gather", 15, "x:fp32[2,3,4] indices:int32[5] axis=3", None),
    ("gather_along_axis", 15, "x:fp32[2,3] indices:int32[2,7] axis=1", Some("tensor<fp32, [2, 7]>")),
    ("gather_along_axis", 15, "x:fp32[2,3] indices:int32[3,7] axis=1", None),
    ("gather_nd", 15, "x:fp32[2,3,4] indices:int32[7,2]", Some("tensor<fp32, [7, 4]>")),
    ("gather_nd", 16, "x:fp32[2,3,4] indices:int32[2,7,1] batch_dims=1", Some("tensor<fp32, [2, 7, 4]>")),
    ("gather_nd", 15, "x:fp32[2,3] indices:int32[7,3]", None),
    ("scatter", 15, "data:fp32[4,3] indices:int32[2] updates:fp32[2,3]", Some("tensor<fp32, [4, 3]>")),
    ("scatter", 15, "data:fp32[4,3] indices:int32[2] updates:fp32[3,3]", None),
    ("scatter", 17, "data:fp32[4,3] indices=[0,4] updates:fp32[2,3] validate_indices=true", None),
    ("scatter_along_axis", 15, "data:fp32[4,3] indices:int32[4,2] updates:fp32[4,2] axis=1", Some("tensor<fp32, [4, 3]>")),
    ("scatter_nd", 15, "data:fp32[4,3,2] indices:int32[5,2] updates:fp32[5,2]", Some("tensor<fp32, [4, 3, 2]>")),
    ("upsample_bilinear", 15, "x:fp32[1,3,5,7] scale_factor_height=1.5 scale_factor_width=2.0", Some("tensor<fp32, [1, 3, 7, 14]>")),
    ("upsample_bilinear", 16, "x:fp32[1,3,5,7] scale_factor_height=2 half_pixel_centers=true", Some("tensor<fp32, [1, 3, 10, 7]>")),
    ("upsample_nearest_neighbor", 15, "x:fp16[1,3,?,7] scale_factor_height=2 scale_factor_width=3", Some("tensor<fp16, [1, 3, ?, 21]>")),
    ("resize_bilinear", 15, "x:fp32[1,3,5,7] target_size_height=9 target_size_width=4 sampling_mode='ALIGN_CORNERS'", Some("tensor<fp32, [1, 3, 9, 4]>")),
    ("resize_bilinear", 15, "x:fp32[1,3,5,7] sampling_mode='NEAREST'", None),
    ("resize_nearest_neighbor", 15, "x:fp32[1,3,5,7] target_size_height=9 target_size_width=4", Some("tensor<fp32, [1, 3, 9, 4]>")),
    ("resize", 17, "x:fp32[1,3,5,7] shape=[6,0] resized_dims=u2", Some("tensor<fp32, [1, 3, 6, 7]>")),
    ("resize", 17, "x:fp32[1,3,5,7] shape=[6,8] resized_dims=u1 interpolation_mode='NEAREST_NEIGHBOR'", Some("tensor<fp32, [1, 3, 5, 8]>")),
    ("resize", 17, "x:fp32[1,3,5,7] shape:int32[2] resized_dims=u2", Some("tensor<fp32, [1, 3, ?, ?]>")),
    ("resize", 17, "x:fp32[1,3,5,7] shape=[6] resized_dims=u2", None),
    ("crop", 15, "x:fp32[1,3,5,7] crop_height=[1,2] crop_width=[0,3]", Some("tensor<fp32, [1, 3, 2, 4]>")),
    ("crop_resize", 15, "x:fp32[2,3,5,7] roi:fp32[4,1,4,1,1] target_height=6 target_width=8", Some("tensor<fp32, [4, 2, 3, 6, 8]>")),
    ("crop_resize", 16, "x:fp32[2,3,5,7] roi:fp32[4,1,4,1,1] pad_value=1.0", Some("tensor<fp32, [4, 2, 3, 1, 1]>")),
    ("crop_resize", 15, "x:fp32[2,3,5,7] roi:fp32[4,1,5,1,1] target_height=6 target_width=8", Some("tensor<fp32, [4, 1, 3, 6, 8]>")),
    ("crop_resize", 15, "x:fp32[2,3,5,7] roi:fp32[4,1,6,1,1]", None),
    ("crop_resize", 15, "x:fp32[2,3,5,7] roi:fp32[4,1,4,2,1]", None),
    ("crop_resize", 17, "x:fp16[2,3,5,7] boxes:fp32[4,4] box_indices:int32[4] target_height=6 target_width=8 normalized_coordinates=true", Some("tensor<fp16, [4, 3, 6, 8]>")),
    ("crop_resize", 17, "x:fp16[2,3,5,7] boxes:uint16[4,4] box_indices:int32[4] normalized_coordinates=true", None),
    ("affine", 15, "x:fp32[2,3,5,7] transform_matrix:fp32[2,6] output_height=4 output_width=9 sampling_mode='bilinear' padding_mode='constant' padding_value=0.0 coordinates_mode='normalized_minus_one_to_one' align_corners=true", Some("tensor<fp32, [2, 3, 4, 9]>")),
    ("resample", 15, "x:fp32[2,3,5,7] coordinates:fp32[2,8,9,2] sampling_mode='nearest' padding_mode='constant' padding_value=0.0 coordinates_mode='unnormalized' align_corners=true", Some("tensor<fp32, [2, 3, 8, 9]>")),
    ("resample", 17, "x:fp32[2,3,5,7] coordinates:int8[3,8,9,2] sampling_mode='nearest' padding_mode='constant' padding_value=0.0 coordinates_mode='unnormalized' align_corners=true", None),
    ("conv_transpose", 15, "x:fp32[1,4,5,7] weight=fp32[4,3,3,2] strides=[2,3]", Some("tensor<fp32, [1, 3, 11, 20]>")),
    ("conv_transpose", 15, "x:fp32[1,4,5,7] weight=fp32[4,3,3,2] strides=[2,3] pad_type='same' groups=2", Some("tensor<fp32, [1, 6, 10, 21]>")),
    ("conv_transpose", 17, "x:fp32[1,4,5,7] weight=fp16[4,3,3,2] strides=[2,3] pad_type='custom' pad=[1,0,2,1] dilations=[2,1]", Some("tensor<fp32, [1, 3, 12, 17]>")),
    ("conv_transpose", 15, "x:fp32[1,4,5] weight=fp32[4,3,3] output_shape=[1,3,8]", Some("tensor<fp32, [1, 3, 8]>")),
    ("conv", 17, "x:fp32[1,4,5,7] weight=fp16[6,4,3,3] dilations=[2,3]", Some("tensor<fp32, [1, 6, 1, 1]>")),
    ("conv", 15, "x:fp32[1,4,5,?] weight=fp32[6,2,3,3] groups=2", Some("tensor<fp32, [1, 6, 3, ?]>")),
    ("conv", 15, "x:fp32[1,4,5,7] weight=fp32[6,3,3,3]", None),
    ("avg_pool", 15, "x:fp32[1,3,7,7] kernel_sizes=[3,3] strides=[2,2] pad_type='custom' pad=[1,1,1,1] ceil_mode=true", Some("tensor<fp32, [1, 3, 4, 4]>")),
    ("max_pool", 15, "x:fp32[1,3,5,6] kernel_sizes=[2,2] strides=[3,3] pad_type='custom' pad=[1,1,0,0] ceil_mode=true", Some("tensor<fp32, [1, 3, 2, 3]>")),
    ("max_pool", 15, "x:fp32[1,3,5,6] kernel_sizes=[2,2] pad_type='same' ceil_mode=true", None),
    ("l2_pool", 15, "x:fp32[1,3,5,6,7] kernel_sizes=[2,2,2] pad_type='valid'", None),
    ("einsum", 15, "values:fp32[2,3,4,5]|fp32[2,5,4,6] equation='nchw,nwhr->nchr'", Some("tensor<fp32, [2, 3, 4, 6]>")),
    ("einsum", 15, "values:fp16[3,1,5]|fp16[5,4,6] equation='abc,cbd->abd'", Some("tensor<fp16, [3, 4, 6]>")),
    ("einsum", 15, "values:fp16[3,5]|fp16[5,6] equation='ab,bc->ac'", None),
    ("matmul", 17, "x:fp32[2,3,4] y=fp16[4,5]", Some("tensor<fp32, [2, 3, 5]>")),
    ("matmul", 17, "x=fp16[2,3,4] y:fp32[4,5]", Some("tensor<fp32, [2, 3, 5]>")),
    ("matmul", 17, "x:fp32[2,3,4] y:fp16[4,5]", None),
    ("linear", 15, "x:fp32[2,1,3,4] weight=fp32[5,4]", Some("tensor<fp32, [2, 1, 3, 5]>")),
    ("local_response_norm", 17, "x:fp32[1,6,4,4] size=3 alpha=1.5h", Some("tensor<fp32, [1, 6, 4, 4]>")),
    ("random_bernoulli", 15, "shape=[2,3]", Some("tensor<fp32, [2, 3]>")),
    ("random_normal", 15, "shape:int32[2] mean=0.0h stddev=1.0h", Some("tensor<fp16, [?, ?]>")),
    ("random_uniform", 15, "shape=[2] low=0.0h", None),
    ("random_categorical", 15, "x:fp16[2,5] size=4", Some("tensor<fp16, [2, 4]>")),
    ("gru", 17, "x:fp16[6,2,3] initial_h:fp16[2,4] weight_ih=fp16[12,3] weight_hh=fp16[12,4] output_sequence=true", Some("tensor<fp16, [6, 2, 4]> tensor<fp16, [2, 4]>")),
    ("gru", 15, "x:fp32[6,2,3] initial_h:fp32[2,4] weight_ih=fp32[12,3] weight_hh=fp32[8,4]", None),
    ("lstm", 15, "x:fp32[6,2,3] initial_h:fp32[2,4] initial_c:fp32[2,4] weight_ih=fp32[16,3] weight_hh=fp32[16,4]", Some("tensor<fp32, [1, 2, 4]> tensor<fp32, [2, 4]> tensor<fp32, [2, 4]>")),
    ("lstm", 15, "x:fp32[6,2,3] initial_h:fp32[2,8] initial_c:fp32[2,8] weight_ih=fp32[16,3] weight_hh=fp32[16,4] weight_ih_back=fp32[16,3] weight_hh_back=fp32[16,4] direction='bidirectional' output_sequence=true", Some("tensor<fp32, [6, 2, 8]> tensor<fp32, [2, 8]> tensor<fp32, [2, 8]>")),
    ("lstm", 15, "x:fp32[6,2,3] initial_h:fp32[2,4] initial_c:fp32[2,4] weight_ih=fp32[16,3] weight_hh=fp32[16,4] activation='gelu'", None),
    ("rnn", 15, "x:fp32[6,2,3] initial_h:fp32[2,4] weight_ih=fp32[4,3] weight_hh=fp32[4,4] direction='reverse'", Some("tensor<fp32, [1, 2, 4]> tensor<fp32, [2, 4]>")),
    ("rnn", 15, "x:fp32[6,2,3] initial_h:fp32[2,4] weight_ih=fp32[4,3] weight_hh=fp32[4,4] direction='bidirectional'", None),
    ("depth_to_space", 15, "x:fp32[1,8,3,5] block_size=2", Some("tensor<fp32, [1, 2, 6, 10]>")),
    ("space_to_depth", 15, "x:fp32[1,2,4,6] block_size=2", Some("tensor<fp32, [1, 8, 2, 3]>")),
    ("pixel_shuffle", 15, "x:fp32[1,9,3,?] upscale_factor=3", Some("tensor<fp32, [1, 1, 9, ?]>")),
    ("pixel_unshuffle", 16, "x:fp32[1,2,4,6] downscale_factor=u2", Some("tensor<fp32, [1, 8, 2, 3]>")),
    ("sliding_windows", 15, "x:fp32[2,9,3] axis=1 size=4 stride=2", Some("tensor<fp32, [2, 3, 4, 3]>")),
    ("reshape", 15, "x:fp32[2,3,4] shape=[0,-1,2]", Some("tensor<fp32, [2, 6, 2]>")),
    ("reshape", 15, "x:fp32[2,3,4] shape=[0,-1]", None),
    ("reshape", 17, "x:fp32[2,3,4] shape=[6,0]", Some("tensor<fp32, [6, 4]>")),
    ("reshape", 17, "x:int8[2,3,4] shape=[1,0,3,0]", Some("tensor<int8, [1, 2, 3, 4]>")),
    ("reshape", 15, "x:fp32[2,3] shape:int32[3]", Some("tensor<fp32, [?, ?, ?]>")),
    ("reverse_sequence", 15, "x:fp32[2,3] lengths:int32[2] seq_axis=1", Some("tensor<fp32, [2, 3]>")),
    ("concat", 15, "values:fp32[2,3]|fp32[2,?] axis=-1", Some("tensor<fp32, [2, ?]>")),
    ("concat", 15, "values:fp32[2,3]|fp32[2,4] axis=1 interleave=true", None),
    ("stack", 15, "values:fp32[2,3]|fp32[2,3] axis=-1", Some("tensor<fp32, [2, 3, 2]>")),
    ("tile", 15, "x:fp32[2,3] reps:int32[2]", Some("tensor<fp32, [?, ?]>")),
    ("pad", 15, "x:fp32[2,3,4] pad=[1,2] mode='reflect'", Some("tensor<fp32, [2, 3, 7]>")),
    ("pad", 15, "x:fp32[2,3] pad:int32[4]", Some("tensor<fp32, [?, ?]>")),
    ("pad", 15, "x:fp32[2,3] pad:int32[2]", None),
    ("slice_by_index", 15, "x:fp32[5,6] begin:int32[2] end:int32[2]", Some("tensor<fp32, [?, ?]>")),
    ("slice_by_index", 15, "x:fp32[?,6] begin=[-1,1] end=[0,5] end_mask=[true,false] stride=[1,2]", Some("tensor<fp32, [1, 2]>")),
    ("slice_by_index", 15, "x:fp32[5,6] begin=[1,2] end=[1,4]", Some("tensor<fp32, [0, 2]>")),
    ("slice_by_index", 15, "x:fp32[5,6] begin=[3,2] end=[1,4]", None),
    ("slice_by_index", 17, "x:int8[5,6] begin=[4,0] end=[0,0] stride=[-2,1] end_mask=[false,true] squeeze_mask=[false,false]", Some("tensor<int8, [2, 6]>")),
    ("slice_by_size", 15, "x:fp32[5,6] begin:int32[2] size=[2,-1]", Some("tensor<fp32, [2, ?]>")),
    ("slice_update", 18, "x:fp16[5,6] update:fp16[2,6] begin=[1,0] end=[3,6]", Some("tensor<fp16, [5, 6]>")),
    ("slice_update", 18, "x:fp16[5,6] update:fp16[3,6] begin=[1,0] end=[3,6]", None),
    ("scaled_dot_product_attention", 18, "query:fp16[1,8,5,16] key:fp16[1,2,7,16] value:fp16[1,2,7,16]", None),
    ("scaled_dot_product_attention", 18, "query:fp16[1,8,5,16] key:fp16[1,8,7,16] value:fp16[1,8,7,4] attn_mask:bool[5,7]", Some("tensor<fp16, [1, 8, 5, 4]>")),
    ("clip", 15, "x:fp32[2] alpha=1.0 beta=0.0", Some("tensor<fp32, [2]>")),
    ("clip", 17, "x:fp32[2] alpha=1.0 beta=0.0", None),
    ("cast", 15, "x:fp32[2] dtype='int8'", None),
    ("cast", 17, "x:fp32[2] dtype='int8'", Some("tensor<int8, [2]>")),
    ("reduce_argmax", 17, "x:fp32[2,3] axis=0 output_dtype='uint16' keep_dims=true", Some("tensor<uint16, [1, 3]>")),
    ("quantize", 17, "input:fp32[2,3] scale=0.5 output_dtype='int8'", Some("tensor<int8, [2, 3]>")),
    ("quantize", 17, "input:fp32[2,3] scale=0.5 axis=0 output_dtype='int8'", None),
    ("quantize", 17, "input:fp32[2,3] scale=0.0 output_dtype='int8'", None),
    ("dequantize", 17, "input:uint8[2,3] scale=fp16[3] zero_point=uint8[3] axis=1", Some("tensor<fp16, [2, 3]>")),
    ("dequantize", 17, "input:uint8[2,3] scale=fp16[2] axis=1", None),
    ("prelu", 15, "x:fp32[1,3,4,4] alpha=fp32[3]", Some("tensor<fp32, [1, 3, 4, 4]>")),
    ("prelu", 15, "x:fp32[1,3] alpha=fp32[3]", None),
    ("softplus_parametric", 17, "x:fp32[1,3,4] alpha=fp16[3] beta=fp16[3]", Some("tensor<fp32, [1, 3, 4]>")),
];

#[test]
fn result_types_of_each_family() {
    for (op, opset, arguments, expected) in CALLS {
        let found = call(op, *opset, arguments);
        assert_eq!(found.as_deref().ok(), *expected, "{op} of iOS {opset} with {arguments}: {found:?}");
    }
}

#[test]
fn what_is_of_a_later_opset_is_told() {
    let refused = |op, opset, arguments| call(op, opset, arguments).unwrap_err();
    assert_eq!(
        refused("gather", 15, "x:fp32[2,3] indices:int32[2] batch_dims=0"),
        "op `gather` has the argument `batch_dims` from ios16 on"
    );
    assert_eq!(refused("resize", 16, "x:fp32[2,3]"), "op `resize` exists from ios17 on, not in ios16");
    assert!(refused("expand_dims", 16, "x:int8[2] axes=[0]").contains("must be of fp16, fp32, int32, bool"));
    assert_eq!(call("expand_dims", 17, "x:int8[2] axes=[0]").as_deref(), Ok("tensor<int8, [1, 2]>"));
    let names = ops::names();
    assert!(names.is_sorted() && names.len() > 160, "{}", names.len());
    for name in names {
        let versions = ops::versions(name);
        assert!(versions.windows(2).all(|v| v[0].since < v[1].since), "{name}");
        assert!(versions.iter().all(|d| !d.doc.is_empty() && d.source.starts_with("coremltools 9.0")), "{name}");
    }
}

/// A function of iOS 18 over `x`, a bool `p`, an index `i` and a state `s`.
fn check(body: &str) -> Result<(), String> {
    let text = format!(
        "program(1.3)\n{{\nfunc main<ios18>(tensor<fp16, [2]> x, bool p, int32 i, state<tensor<fp16, [2]>> s) {{\n{body}\n}} -> (y);\n}}\n"
    );
    parse(&text, &Weights::new()).map(|_| ()).map_err(|e| e.to_string())
}

#[test]
fn branches_and_loops_agree_in_types() {
    let branch = |yes: &str, ty: &str| {
        check(&format!(
            "{ty} y = cond(pred = p) () {{ {yes} }} -> (a) () {{ tensor<fp16, [2]> b = exp(x = x); }} -> (b);"
        ))
    };
    branch("tensor<fp16, [2]> a = relu(x = x);", "tensor<fp16, [2]>").unwrap();
    for (yes, ty) in [
        ("tensor<fp16, [1, 2]> a = expand_dims(x = x, axes = tensor<int32, [1]>([0]));", "tensor<fp16, [1, 2]>"),
        ("tensor<fp16, [2]> a = relu(x = x);", "tensor<fp32, [2]>"),
    ] {
        assert!(branch(yes, ty).is_err(), "{yes} {ty}");
    }
    let repeat = |condition: &str, body: &str| {
        check(&format!(
            "tensor<fp16, [2]> y = while_loop(loop_vars = (x)) (tensor<fp16, [2]> a) {{ {condition} }} -> (c) \
             (tensor<fp16, [2]> b) {{ {body} }} -> (d);"
        ))
    };
    let goes_on = "bool c = logical_not(x = p);";
    repeat(goes_on, "tensor<fp16, [2]> d = relu(x = b);").unwrap();
    assert!(repeat("tensor<bool, [2]> c = less(x = a, y = fp16(1));", "tensor<fp16, [2]> d = relu(x = b);").is_err());
    assert!(repeat(goes_on, "tensor<fp16, [1, 2]> d = expand_dims(x = b, axes = tensor<int32, [1]>([0]));").is_err());
}

#[test]
fn lists_and_states_hold_one_type() {
    let list = "list<tensor<fp16, [2]>, ?> l = make_list(init_length = int32(3), elem_shape = (two), dtype = string(\"fp16\"));";
    let list = format!("int32 two = const()[val = int32(2)];\n{list}\n");
    let written = "list<tensor<fp16, [2]>, ?> m = list_write(ls = l, index = i, value = x);";
    check(&format!("{list}{written}\ntensor<fp16, [2]> y = list_read(ls = m, index = i);")).unwrap();
    check(&format!("{list}{written}\nint32 y = list_length(ls = m);")).unwrap();
    assert!(check(&format!("{list}list<tensor<fp16, [2]>, ?> y = list_write(ls = l, index = i, value = i);")).is_err());
    assert!(check(&format!("{list}int32 y = list_read(ls = l, index = i);")).is_err());
    assert!(check("int32 y = list_length(ls = x);").is_err());
    check("tensor<fp16, [2]> y = read_state(input = s);").unwrap();
    check("tensor<fp16, [2]> y = coreml_update_state(state = s, value = x);").unwrap();
    assert!(check("int32 y = coreml_update_state(state = s, value = i);").is_err());
    assert!(check("tensor<fp16, [2]> y = read_state(input = x);").is_err());
}
