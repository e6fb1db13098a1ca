//! One entry for every op of MIL: its rule, or the reason why Core AI has no form for it.

use super::elementwise::Results;
use super::state::Raise;
use super::{
    compress as cp, control as ct, conv as cv, elementwise as el, index as ix, recurrent as rc, reduce as rd,
    resize as rs, shape as sh,
};

/// A rule: writes operations of Core AI and gives the results of the op.
pub(super) type Raising = fn(&mut Raise<'_>) -> Results;

/// How the table handles an op.
#[derive(Clone, Copy)]
pub(super) enum OpRule {
    /// It is an operation of Core AI, or a few of them.
    Raised(Raising),
    /// Its results are constants, which are made where an op reads them.
    Constant,
    /// It has no form, for this reason.
    Not(&'static str),
}

use OpRule::{Constant as C, Not, Raised as R};

const LIST: &str = "Core AI has no lists: its values are tensors, images, states and tokens";
const RANDOM: &str = "Core AI has no random numbers";
const SAMPLES: &str = "Core AI samples at computed coordinates without a border: it holds them within the tensor";

/// The ops by name, sorted.
#[rustfmt::skip]
const TABLE: &[(&str, OpRule)] = &[
    ("abs", R(el::abs)),
    ("acos", R(el::acos)),
    ("add", R(el::add)),
    ("affine", Not(SAMPLES)),
    ("argsort", R(rd::argsort)),
    ("asin", R(el::asin)),
    ("atan", R(el::atan)),
    ("atanh", R(el::atanh)),
    ("avg_pool", R(cv::avg_pool)),
    ("band_part", R(sh::band_part)),
    ("batch_norm", R(rd::batch_norm)),
    ("batch_to_space", R(sh::batch_to_space)),
    ("cast", R(el::cast)),
    ("ceil", R(el::ceil)),
    ("clamped_relu", R(el::clamped_relu)),
    ("classify", Not("Core AI has no dictionaries and strings; leave the op out and name the classes in your app")),
    ("clip", R(el::clip)),
    ("concat", R(sh::concat)),
    ("cond", R(ct::cond)),
    ("const", C),
    ("constexpr_affine_dequantize", R(cp::affine)),
    ("constexpr_blockwise_shift_scale", R(cp::blockwise)),
    ("constexpr_cast", R(el::constexpr_cast)),
    ("constexpr_lut_to_dense", R(cp::lut_to_dense)),
    ("constexpr_lut_to_sparse", C),
    ("constexpr_sparse_blockwise_shift_scale", C),
    ("constexpr_sparse_to_dense", R(cp::sparse_to_dense)),
    ("conv", R(cv::conv)),
    ("conv_transpose", R(cv::conv_transpose)),
    ("coreml_update_state", R(ct::update_state)),
    ("cos", R(el::cos)),
    ("cosh", R(el::cosh)),
    ("crop", R(sh::crop)),
    ("crop_resize", Not(SAMPLES)),
    ("cumsum", R(rd::cumsum)),
    ("depth_to_space", R(sh::depth_to_space)),
    ("dequantize", R(cp::dequantize)),
    ("einsum", R(rd::einsum)),
    ("elu", R(el::elu)),
    ("equal", R(el::equal)),
    ("erf", R(el::erf)),
    ("exp", R(el::exp)),
    ("exp2", R(el::exp2)),
    ("expand_dims", R(sh::expand_dims)),
    ("fill", R(sh::fill)),
    ("fill_like", R(sh::fill_like)),
    ("flatten2d", R(sh::reshaped)),
    ("floor", R(el::floor)),
    ("floor_div", R(el::floor_div)),
    ("gather", R(ix::gather)),
    ("gather_along_axis", R(ix::gather_along_axis)),
    ("gather_nd", R(ix::gather_nd)),
    ("gelu", R(el::gelu)),
    ("greater", R(el::greater)),
    ("greater_equal", R(el::greater_equal)),
    ("gru", R(rc::gru)),
    ("identity", R(el::identity)),
    ("instance_norm", R(rd::instance_norm)),
    ("inverse", R(el::inverse)),
    ("l2_norm", R(rd::l2_norm)),
    ("l2_pool", R(cv::l2_pool)),
    ("layer_norm", R(rd::layer_norm)),
    ("leaky_relu", R(el::leaky_relu)),
    ("less", R(el::less)),
    ("less_equal", R(el::less_equal)),
    ("linear", R(rd::linear)),
    ("linear_activation", R(el::linear_activation)),
    ("list_gather", Not(LIST)),
    ("list_length", Not(LIST)),
    ("list_read", Not(LIST)),
    ("list_scatter", Not(LIST)),
    ("list_write", Not(LIST)),
    ("local_response_norm", R(rd::local_response_norm)),
    ("log", R(el::log)),
    ("logical_and", R(el::logical_and)),
    ("logical_not", R(el::logical_not)),
    ("logical_or", R(el::logical_or)),
    ("logical_xor", R(el::logical_xor)),
    ("lstm", R(rc::lstm)),
    ("make_list", Not(LIST)),
    ("matmul", R(rd::matmul)),
    ("max_pool", R(cv::max_pool)),
    ("maximum", R(el::maximum)),
    ("minimum", R(el::minimum)),
    ("mod", R(el::modulo)),
    ("mul", R(el::mul)),
    ("non_maximum_suppression", Not("Core AI has no operation that selects boxes by their overlap")),
    ("non_zero", R(rd::non_zero)),
    ("not_equal", R(el::not_equal)),
    ("one_hot", R(sh::one_hot)),
    ("pad", R(sh::pad)),
    ("pixel_shuffle", R(sh::pixel_shuffle)),
    ("pixel_unshuffle", R(sh::pixel_unshuffle)),
    ("pow", R(el::pow)),
    ("prelu", R(el::prelu)),
    ("quantize", R(cp::quantize)),
    ("random_bernoulli", Not(RANDOM)),
    ("random_categorical", Not(RANDOM)),
    ("random_normal", Not(RANDOM)),
    ("random_uniform", Not(RANDOM)),
    ("range_1d", R(sh::range_1d)),
    ("read_state", R(ct::read_state)),
    ("real_div", R(el::real_div)),
    ("reduce_argmax", R(rd::reduce_argmax)),
    ("reduce_argmin", R(rd::reduce_argmin)),
    ("reduce_l1_norm", R(rd::reduce_l1_norm)),
    ("reduce_l2_norm", R(rd::reduce_l2_norm)),
    ("reduce_log_sum", R(rd::reduce_log_sum)),
    ("reduce_log_sum_exp", R(rd::reduce_log_sum_exp)),
    ("reduce_max", R(rd::reduce_max)),
    ("reduce_mean", R(rd::reduce_mean)),
    ("reduce_min", R(rd::reduce_min)),
    ("reduce_prod", R(rd::reduce_prod)),
    ("reduce_sum", R(rd::reduce_sum)),
    ("reduce_sum_square", R(rd::reduce_sum_square)),
    ("relu", R(el::relu)),
    ("relu6", R(el::relu6)),
    ("resample", Not(SAMPLES)),
    ("reshape", R(sh::reshape)),
    ("reshape_like", R(sh::reshaped)),
    ("resize", R(rs::resize)),
    ("resize_bilinear", R(rs::resize_bilinear)),
    ("resize_nearest_neighbor", R(rs::resize_nearest_neighbor)),
    ("reverse", R(sh::reverse)),
    ("reverse_sequence", R(sh::reverse_sequence)),
    ("rnn", R(rc::rnn)),
    ("round", R(el::round)),
    ("rsqrt", R(el::rsqrt)),
    ("scaled_dot_product_attention", R(rd::attention)),
    ("scaled_tanh", R(el::scaled_tanh)),
    ("scatter", R(ix::scatter)),
    ("scatter_along_axis", R(ix::scatter_along_axis)),
    ("scatter_nd", R(ix::scatter_nd)),
    ("select", R(el::select)),
    ("shape", R(sh::shape)),
    ("sigmoid", R(el::sigmoid)),
    ("sigmoid_hard", R(el::sigmoid_hard)),
    ("sign", R(el::sign)),
    ("silu", R(el::silu)),
    ("sin", R(el::sin)),
    ("sinh", R(el::sinh)),
    ("slice_by_index", R(sh::slice_by_index)),
    ("slice_by_size", R(sh::slice_by_size)),
    ("slice_update", R(sh::slice_update)),
    ("sliding_windows", R(sh::sliding_windows)),
    ("softmax", R(el::softmax)),
    ("softplus", R(el::softplus)),
    ("softplus_parametric", R(el::softplus_parametric)),
    ("softsign", R(el::softsign)),
    ("space_to_batch", R(sh::space_to_batch)),
    ("space_to_depth", R(sh::space_to_depth)),
    ("split", R(sh::split)),
    ("sqrt", R(el::sqrt)),
    ("square", R(el::square)),
    ("squeeze", R(sh::squeeze)),
    ("stack", R(sh::stack)),
    ("sub", R(el::sub)),
    ("tan", R(el::tan)),
    ("tanh", R(el::tanh)),
    ("threshold", R(el::threshold)),
    ("thresholded_relu", R(el::thresholded_relu)),
    ("tile", R(sh::tile)),
    ("topk", R(rd::topk)),
    ("transpose", R(sh::transpose)),
    ("upsample_bilinear", R(rs::upsample_bilinear)),
    ("upsample_nearest_neighbor", R(rs::upsample_nearest_neighbor)),
    ("while_loop", R(ct::while_loop)),
    ("write_state", R(ct::write_state)),
];

/// How the table handles an op; `None` if it has no such op.
pub(super) fn find(name: &str) -> Option<&'static OpRule> {
    TABLE.binary_search_by_key(&name, |(name, _)| name).ok().map(|i| &TABLE[i].1)
}

/// Every op of MIL by name, with the reason why Core AI has no form for it, or `None` if it has
/// one.
pub fn ops() -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
    TABLE.iter().map(|(name, rule)| match rule {
        OpRule::Not(reason) => (*name, Some(*reason)),
        _ => (*name, None),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_op_has_an_entry() {
        let names: Vec<&str> = TABLE.iter().map(|(name, _)| *name).collect();
        let mut known = ferrane_mil::ops::names();
        known.sort_unstable();
        assert_eq!(names, known);
    }
}
