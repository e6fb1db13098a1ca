//! Products of codes with codes.

use std::sync::Arc;

use ferrane_host::conv::{ByteConv, PointStep, Requantize};

/// A convolution of codes of 8 bits, with channels last, or a linear layer as one over a row of
/// pixels. Reads the codes, the packed codes of the weight, a dense fp32 scale for each output
/// channel, and perhaps an int32 start of its sums and a dense fp32 bias.
#[derive(Clone, Debug)]
pub(crate) struct ByteLayer {
    pub conv: Arc<ByteConv>,
    /// The code of an activation of 0.
    pub zero: i32,
    pub starts: bool,
    pub bias: bool,
    pub round: bool,
    /// Elements of the results from one position to the next.
    pub pitch: usize,
    /// What is done to each result.
    pub steps: Vec<PointStep>,
    /// How the results become codes, if the step writes these.
    pub codes: Option<Requantize>,
}
