//! Surface layouts of the kernels of training: where each region and tap lies (training-dynamic §3,
//! §4; training-static §1).
//!
//! This module only computes: a [`Shape`] determines a [`KernelLayout`] for each [`Kernel`]. The
//! kernel builders slice by the layout and the staging code writes by it, so neither computes
//! offsets. Input surfaces are `[1, channels, 1, width]`, the one output is `[1, out_channels, 1,
//! seq]`, all fp16.
//!
//! *An option only appends.* With every option off, regions, offsets and taps are exactly those of
//! the specification. The regions and taps of an option come after them:
//!
//! | option | kernel | appended |
//! |---|---|---|
//! | QKV biases | `sdpaFwd` | regions `bq` `[heads, head_dim]`, `bk`, `bv` `[kv_heads, head_dim]`: channel = head |
//! | QK-norm | `sdpaFwd` | regions `q_norm`, `k_norm` `[1, head_dim]`; taps `q_pre`, `k_pre`: the inputs of the norm |
//! | fp32 residual | `ffnFused` | tap `ffn`: the feed-forward output without the factor alpha |
//! | weights as inputs | all with weights | none: each weight has its own input |
//!
//! The small appended regions share columns: each takes the first free channels of a block of
//! `head_dim` columns. With an fp32 residual the region `x2` of `ffnFused` may stay zero, and no
//! step reads `x_next`.
//!
//! The pipelines of six kernels ([`PipelineKind`]) have their activations one below the other, and
//! no packed weights, because their kernels combine matrices of different heights.

use crate::config::Config;
use crate::weights::Part;
use serde::{Deserialize, Serialize};

/// Largest constant table of a kernel in bytes. The mask reaches it at a window of 16384 tokens. A
/// program holds the table and a compile copies it, so a longer window is refused before anything
/// is allocated.
pub const MAX_TABLE_BYTES: usize = 512 << 20;

/// Where the residual stream is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Residual {
    /// fp32 on the CPU; `ffnFused` also returns the feed-forward output.
    #[default]
    Fp32,
    /// As in the reference trainer: `ffnFused` adds the residual and rounds the stream to fp16 once
    /// per layer.
    Fp16,
}

/// How a kernel receives weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WeightForm {
    /// In the columns after the activations of the single input `x`.
    #[default]
    Packed,
    /// Each in its own function input, `[1, in, 1, out]`. The inputs are named so that the order of
    /// declaration is the alphabetical order, case-sensitive or not, because engines bind in
    /// alphabetical order (mil-text §6).
    Inputs,
}

/// The kernels of a training step, and how they receive weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PipelineKind {
    /// Ten kernels that all layers share, with weights in their inputs ([`WeightForm`]).
    #[default]
    Dynamic,
    /// Six kernels, of which five have the weights of a layer as constants. An update compiles
    /// these five again for every layer (training-static §1).
    Static,
    /// As `Static`, with the final norm, the classifier, softmax and the gradient of each layer's
    /// norms on the device, too: two more kernels of each layer, three of the model
    /// (training-static §3).
    #[serde(rename = "static-extras")]
    StaticExtras,
    /// The six kernels with each weight as an input of its own, shared by all layers.
    Fused,
}

impl PipelineKind {
    /// The kernels, in the order of a step.
    pub fn kernels(self) -> &'static [Kernel] {
        match self {
            PipelineKind::Dynamic => &Kernel::ALL,
            PipelineKind::Static | PipelineKind::Fused => &Kernel::FUSED,
            PipelineKind::StaticExtras => &Kernel::EXTRAS,
        }
    }

    /// `dynamic`, `static`, `static-extras` or `fused`.
    pub fn name(self) -> &'static str {
        match self {
            PipelineKind::Dynamic => "dynamic",
            PipelineKind::Static => "static",
            PipelineKind::StaticExtras => "static-extras",
            PipelineKind::Fused => "fused",
        }
    }

    /// Whether the six kernels run instead of the ten.
    pub fn is_fused(self) -> bool {
        self != PipelineKind::Dynamic
    }

    /// Whether weights are constants of the programs.
    pub fn has_constants(self) -> bool {
        matches!(self, PipelineKind::Static | PipelineKind::StaticExtras)
    }

    /// Whether norms, classifier and softmax run on the device.
    pub fn has_extras(self) -> bool {
        self == PipelineKind::StaticExtras
    }
}

/// What determines the layouts.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// The model; must have passed [`Config::validate`].
    pub config: Config,
    /// Tokens in a window.
    pub seq: usize,
    /// Where the residual stream is kept.
    pub residual: Residual,
    /// How a kernel of the dynamic pipeline receives weights.
    pub form: WeightForm,
    /// The kernels of a step.
    pub pipeline: PipelineKind,
    /// Rows of the classifier: the vocabulary, or as much of it as is in use.
    pub classes: usize,
}

/// The kernels, named as in training-dynamic §3 and training-static §1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kernel {
    /// Projections, rotation and attention.
    SdpaFwd,
    /// The output projection: `Wo·attn_out`.
    WoFwd,
    /// The feed-forward part, with the residual.
    FfnFused,
    /// `dgate = W2ᵀ·dffn`.
    FfnBwdW2t,
    /// `dx = W1ᵀ·dh1 + W3ᵀ·dh3`.
    FfnBwdW13t,
    /// `da = Woᵀ·(…)`.
    WotBwd,
    /// Recomputes the attention probabilities; `dV` and the gradient of the probabilities.
    SdpaBwd1,
    /// `dQ` and `dK`.
    SdpaBwd2,
    /// `dx = Wqᵀ·dq`.
    QBwd,
    /// `dx = Wkᵀ·dk + Wvᵀ·dv`.
    KvBwd,
    /// `sdpaFwd` and `woFwd` in one.
    FwdAttn,
    /// `ffnBwdW2t`, the gradient of SiLU and `ffnBwdW13t` in one.
    FfnBwd,
    /// `wotBwd` and `sdpaBwd1` in one.
    WoSdpaBwd1,
    /// `qBwd` and `kvBwd` in one: `dx = Wqᵀ·dq + Wkᵀ·dk + Wvᵀ·dv`.
    QkvBwd,
    /// The gradient of the norm before the feed-forward part.
    RmsFfnBwd,
    /// The gradient of the norm before attention.
    RmsAttnBwd,
    /// The norm after the last layer.
    RmsFinal,
    /// The logits of every class.
    Classifier,
    /// The probability of every class: softmax over the logits.
    Softmax,
}

impl Kernel {
    /// The ten of the dynamic pipeline, in the order of the specification.
    pub const ALL: [Kernel; 10] = [
        Kernel::SdpaFwd,
        Kernel::WoFwd,
        Kernel::FfnFused,
        Kernel::FfnBwdW2t,
        Kernel::FfnBwdW13t,
        Kernel::WotBwd,
        Kernel::SdpaBwd1,
        Kernel::SdpaBwd2,
        Kernel::QBwd,
        Kernel::KvBwd,
    ];

    /// The six of the other pipelines, in the order of a step.
    pub const FUSED: [Kernel; 6] =
        [Kernel::FwdAttn, Kernel::FfnFused, Kernel::FfnBwd, Kernel::WoSdpaBwd1, Kernel::SdpaBwd2, Kernel::QkvBwd];

    /// The six, and those of [`PipelineKind::StaticExtras`], in the order of a step.
    pub const EXTRAS: [Kernel; 11] = [
        Kernel::FwdAttn,
        Kernel::FfnFused,
        Kernel::RmsFinal,
        Kernel::Classifier,
        Kernel::Softmax,
        Kernel::FfnBwd,
        Kernel::RmsFfnBwd,
        Kernel::WoSdpaBwd1,
        Kernel::SdpaBwd2,
        Kernel::QkvBwd,
        Kernel::RmsAttnBwd,
    ];

    /// The three that a forward pass needs.
    pub const FORWARD: [Kernel; 3] = [Kernel::SdpaFwd, Kernel::WoFwd, Kernel::FfnFused];

    /// The reference trainer's name of the kernel, `sdpaFwd` for example; those of
    /// [`Kernel::EXTRAS`] have none there.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::SdpaFwd => "sdpaFwd",
            Kernel::WoFwd => "woFwd",
            Kernel::FfnFused => "ffnFused",
            Kernel::FfnBwdW2t => "ffnBwdW2t",
            Kernel::FfnBwdW13t => "ffnBwdW13t",
            Kernel::WotBwd => "wotBwd",
            Kernel::SdpaBwd1 => "sdpaBwd1",
            Kernel::SdpaBwd2 => "sdpaBwd2",
            Kernel::QBwd => "qBwd",
            Kernel::KvBwd => "kvBwd",
            Kernel::FwdAttn => "fwdAttn",
            Kernel::FfnBwd => "ffnBwd",
            Kernel::WoSdpaBwd1 => "woSdpaBwd1",
            Kernel::QkvBwd => "qkvBwd",
            Kernel::RmsFfnBwd => "rmsFfnBwd",
            Kernel::RmsAttnBwd => "rmsAttnBwd",
            Kernel::RmsFinal => "rmsFinal",
            Kernel::Classifier => "classifier",
            Kernel::Softmax => "softmax",
        }
    }

    /// Whether the kernel has weights. If they are inputs, each layer owns input surfaces of these
    /// kernels (training-dynamic §5).
    pub fn has_weights(self) -> bool {
        !matches!(self, Kernel::SdpaBwd1 | Kernel::SdpaBwd2 | Kernel::Softmax)
    }

    /// Whether a step runs it once, for the model, and not for each layer.
    pub fn is_of_model(self) -> bool {
        matches!(self, Kernel::RmsFinal | Kernel::Classifier | Kernel::Softmax)
    }
}

/// The values that kernels exchange through regions and taps: activations and their gradients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Activation {
    /// Input of attention, after RMSNorm, `[dim, seq]`.
    Xnorm,
    /// Output of attention before the output projection, `[q_dim, seq]`.
    AttnOut,
    /// Rotated queries, `[q_dim, seq]`.
    QRope,
    /// Rotated keys, `[kv_dim, seq]`.
    KRope,
    /// Values, `[kv_dim, seq]`.
    V,
    /// Queries before their norm.
    QPre,
    /// Keys before their norm.
    KPre,
    /// Output of the output projection, `[dim, seq]`.
    OOut,
    /// Input of the feed-forward part, after RMSNorm, `[dim, seq]`.
    X2norm,
    /// Residual stream before the feed-forward part.
    X2,
    /// Residual stream after the layer.
    XNext,
    /// `W1·x`.
    H1,
    /// `W3·x`.
    H3,
    /// `silu(h1) ∘ h3`.
    Gate,
    /// `W2·gate`.
    Ffn,
    /// Gradient of `ffn`.
    Dffn,
    /// Gradient of `gate`.
    Dgate,
    /// Gradient of `h1`.
    Dh1,
    /// Gradient of `h3`.
    Dh3,
    /// Gradient of a kernel's input activation.
    Dx,
    /// Gradient of `x2`.
    Dx2,
    /// Gradient of `attn_out`.
    Da,
    /// Rotated queries, as the backward pass reads them.
    Q,
    /// Rotated keys, repeated for each query head.
    KTiled,
    /// Values, repeated for each query head.
    VTiled,
    /// Attention probabilities `[heads · seq, seq]`.
    Probs,
    /// Gradient of `probs`.
    Dp,
    /// Gradient of `v`, one for each query head.
    Dv,
    /// Gradient of the rotated queries.
    Dq,
    /// Gradient of the rotated keys, one for each query head.
    Dk,
    /// Input of a norm, `[dim, seq]`.
    X,
    /// Gradient of a norm's output, `[dim, seq]`.
    Dy,
    /// Logits, `[classes, seq]`.
    Logits,
    /// Their softmax over the classes, `[classes, seq]`.
    ClassProbs,
}

impl Activation {
    /// The name of its region or tap, spelled as in the reference trainer.
    pub fn name(self) -> &'static str {
        match self {
            Activation::Xnorm => "xnorm",
            Activation::AttnOut => "attn_out",
            Activation::QRope => "q_rope",
            Activation::KRope => "k_rope",
            Activation::V => "v",
            Activation::QPre => "q_pre",
            Activation::KPre => "k_pre",
            Activation::OOut => "o_out",
            Activation::X2norm => "x2norm",
            Activation::X2 => "x2",
            Activation::XNext => "x_next",
            Activation::H1 => "h1",
            Activation::H3 => "h3",
            Activation::Gate => "gate",
            Activation::Ffn => "ffn",
            Activation::Dffn => "dffn",
            Activation::Dgate => "dgate",
            Activation::Dh1 => "dh1",
            Activation::Dh3 => "dh3",
            Activation::Dx => "dx",
            Activation::Dx2 => "dx2",
            Activation::Da => "da",
            Activation::Q => "q",
            Activation::KTiled => "k_tiled",
            Activation::VTiled => "v_tiled",
            Activation::Probs => "probs",
            Activation::Dp => "dp",
            Activation::Dv => "dv",
            Activation::Dq => "dq",
            Activation::Dk => "dk",
            Activation::X => "x",
            Activation::Dy => "dy",
            Activation::Logits => "logits",
            Activation::ClassProbs => "class_probs",
        }
    }
}

/// The content of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Content {
    /// An activation `[channels, len]`, written at every step.
    Activation,
    /// A tensor of the layer, written only after an update.
    Weight {
        /// The tensor of the layer.
        part: Part,
        /// Whether the region holds the transpose of the stored matrix.
        transposed: bool,
    },
}

/// A rectangle of an input surface: `channels` rows of `len` elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Region {
    /// The name of the activation, or of the tensor ([`Part::name`]).
    pub name: &'static str,
    /// Name of the input that contains it.
    pub port: &'static str,
    /// Index of the first channel.
    pub channel: usize,
    /// Number of channels, at least 1.
    pub channels: usize,
    /// Index of the first element along the last axis.
    pub offset: usize,
    /// Elements along the last axis.
    pub len: usize,
    /// What the staging code writes there.
    pub content: Content,
}

/// Channels of the output that hold one result, `[channels, seq]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tap {
    /// The name of the activation ([`Activation::name`]).
    pub name: &'static str,
    /// Index of the first channel.
    pub channel: usize,
    /// Number of channels, at least 1.
    pub channels: usize,
}

/// An input of a kernel, `[1, channels, 1, width]` in fp16.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Input {
    /// Name of the function's parameter.
    pub name: &'static str,
    /// Extent of axis 1.
    pub channels: usize,
    /// Extent of axis 3.
    pub width: usize,
}

impl Input {
    /// Bytes of the input without padding.
    pub fn bytes(&self) -> usize {
        2 * self.channels * self.width
    }
}

/// The inputs and the output of one kernel.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelLayout {
    /// The kernel that is laid out.
    pub kernel: Kernel,
    /// The inputs in order of declaration. In the packed form there is one, `x`.
    pub inputs: Vec<Input>,
    /// All regions of the inputs: first those of the specification, in its order, then those of
    /// options. A weight that is a constant has a region without an input.
    pub regions: Vec<Region>,
    /// The parts of the output, in channel order and without gaps.
    pub taps: Vec<Tap>,
    /// Channels of the output: all taps together.
    pub out_channels: usize,
    /// Extent of the output's last axis: the window.
    pub seq: usize,
}

/// Name of the input with the activations.
pub const ACTIVATIONS: &str = "x";
/// Name of every kernel's output.
pub const OUTPUT: &str = "out";

/// A name that a layout does not have, or a shape without a layout.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// No region, tap or input of that name.
    #[error("{kernel} has no {what} \"{name}\"")]
    Unknown {
        /// The kernel's name, `sdpaFwd` for example.
        kernel: &'static str,
        /// `region`, `tap` or `input`.
        what: &'static str,
        /// The name that the layout does not have.
        name: String,
    },
    /// The shape has no layout; the message says why.
    #[error("{0}")]
    Shape(String),
}

impl KernelLayout {
    /// The region of that name.
    ///
    /// # Errors
    /// [`LayoutError::Unknown`].
    pub fn region(&self, name: &str) -> Result<&Region, LayoutError> {
        self.regions.iter().find(|r| r.name == name).ok_or_else(|| self.unknown("region", name))
    }

    /// The tap of that name.
    ///
    /// # Errors
    /// [`LayoutError::Unknown`].
    pub fn tap(&self, name: &str) -> Result<&Tap, LayoutError> {
        self.taps.iter().find(|t| t.name == name).ok_or_else(|| self.unknown("tap", name))
    }

    /// The input of that name.
    ///
    /// # Errors
    /// [`LayoutError::Unknown`].
    pub fn input(&self, name: &str) -> Result<&Input, LayoutError> {
        self.inputs.iter().find(|i| i.name == name).ok_or_else(|| self.unknown("input", name))
    }

    /// The regions that hold tensors of the layer, with the tensor and whether it is transposed.
    pub fn weights(&self) -> impl Iterator<Item = (&Region, Part, bool)> {
        self.regions.iter().filter_map(|r| match r.content {
            Content::Weight { part, transposed } => Some((r, part, transposed)),
            Content::Activation => None,
        })
    }

    /// Bytes of all inputs without padding.
    pub fn input_bytes(&self) -> usize {
        self.inputs.iter().map(Input::bytes).sum()
    }

    /// Bytes of the output without padding.
    pub fn output_bytes(&self) -> usize {
        2 * self.out_channels * self.seq
    }

    fn unknown(&self, what: &'static str, name: &str) -> LayoutError {
        LayoutError::Unknown { kernel: self.kernel.name(), what, name: name.to_string() }
    }
}

impl Shape {
    /// A shape of the dynamic pipeline.
    pub fn new(config: Config, seq: usize, residual: Residual, form: WeightForm) -> Shape {
        Shape { classes: config.vocab, config, seq, residual, form, pipeline: PipelineKind::Dynamic }
    }

    /// The shape with a classifier of so many rows.
    #[must_use]
    pub fn with_classes(self, classes: usize) -> Shape {
        Shape { classes, ..self }
    }

    /// The shape with the kernels of `pipeline`.
    #[must_use]
    pub fn with_pipeline(self, pipeline: PipelineKind) -> Shape {
        Shape { pipeline, ..self }
    }

    /// Channels of the attention scores: one for each head and query.
    pub fn score_channels(&self) -> usize {
        self.config.heads * self.seq
    }

    /// The layouts of the kernels of the pipeline.
    ///
    /// # Errors
    /// As [`Shape::layout`].
    pub fn layouts(&self) -> Result<Vec<KernelLayout>, LayoutError> {
        self.pipeline.kernels().iter().map(|kernel| self.layout(*kernel)).collect()
    }

    /// The layout of a kernel.
    ///
    /// # Errors
    /// [`LayoutError::Shape`] for a window without tokens, for sizes that do not fit the int32 of
    /// MIL's shapes, for constant tables above [`MAX_TABLE_BYTES`], for biases in a model with more
    /// heads than `dim`, and for models that the kernels do not compute
    /// ([`Config::beyond_kernels`]).
    pub fn layout(&self, kernel: Kernel) -> Result<KernelLayout, LayoutError> {
        self.check()?;
        let c = &self.config;
        let (dim, q, kv, hidden, seq) = (c.dim, c.q_dim(), c.kv_dim(), c.hidden, self.seq);
        let scores = self.score_channels();
        let form = if self.pipeline.is_fused() { WeightForm::Inputs } else { self.form };
        let mut plan = Plan::new(kernel, seq, form);
        match kernel {
            Kernel::SdpaFwd | Kernel::FwdAttn => self.attention(&mut plan)?,
            Kernel::WoFwd => {
                plan.activations(q, &[Activation::AttnOut]);
                plan.weight(Part::Wo, q, dim, true);
                plan.taps(&[(Activation::OOut, dim)]);
            }
            Kernel::FfnFused => {
                plan.activations(dim, &[Activation::X2norm, Activation::X2]);
                plan.weight(Part::W1, dim, hidden, true);
                plan.weight(Part::W3, dim, hidden, true);
                plan.weight(Part::W2, dim, hidden, false);
                plan.taps(&[
                    (Activation::XNext, dim),
                    (Activation::H1, hidden),
                    (Activation::H3, hidden),
                    (Activation::Gate, hidden),
                ]);
                if self.residual == Residual::Fp32 {
                    plan.taps(&[(Activation::Ffn, dim)]);
                }
            }
            Kernel::FfnBwdW2t => {
                plan.activations(dim, &[Activation::Dffn]);
                plan.weight(Part::W2, dim, hidden, false);
                plan.taps(&[(Activation::Dgate, hidden)]);
            }
            Kernel::FfnBwdW13t => {
                plan.activations(hidden, &[Activation::Dh1, Activation::Dh3]);
                plan.weight(Part::W1, hidden, dim, false);
                plan.weight(Part::W3, hidden, dim, false);
                plan.taps(&[(Activation::Dx, dim)]);
            }
            Kernel::FfnBwd => {
                plan.channel_blocks(&[(Activation::Dffn, dim), (Activation::H1, hidden), (Activation::H3, hidden)]);
                plan.weight(Part::W2, dim, hidden, false);
                plan.weight(Part::W1, hidden, dim, false);
                plan.weight(Part::W3, hidden, dim, false);
                plan.taps(&[(Activation::Dx, dim), (Activation::Dh1, hidden), (Activation::Dh3, hidden)]);
            }
            Kernel::WotBwd => {
                plan.activations(dim, &[Activation::Dx2]);
                plan.weight(Part::Wo, dim, q, false);
                plan.taps(&[(Activation::Da, q)]);
            }
            Kernel::SdpaBwd1 | Kernel::WoSdpaBwd1 => {
                plan.channel_blocks(&[(Activation::Q, q), (Activation::KTiled, q), (Activation::VTiled, q)]);
                if kernel == Kernel::WoSdpaBwd1 {
                    plan.channel_blocks(&[(Activation::Dx2, dim)]);
                    plan.weight(Part::Wo, dim, q, false);
                } else {
                    plan.channel_blocks(&[(Activation::Da, q)]);
                }
                plan.taps(&[(Activation::Dv, q), (Activation::Probs, scores), (Activation::Dp, scores)]);
            }
            Kernel::SdpaBwd2 => {
                plan.channel_blocks(&[
                    (Activation::Probs, scores),
                    (Activation::Dp, scores),
                    (Activation::Q, q),
                    (Activation::KTiled, q),
                ]);
                plan.taps(&[(Activation::Dq, q), (Activation::Dk, q)]);
            }
            Kernel::QBwd => {
                plan.activations(q, &[Activation::Dq]);
                plan.weight(Part::Wq, q, dim, false);
                plan.taps(&[(Activation::Dx, dim)]);
            }
            Kernel::KvBwd => {
                plan.activations(kv, &[Activation::Dk, Activation::Dv]);
                plan.weight(Part::Wk, kv, dim, false);
                plan.weight(Part::Wv, kv, dim, false);
                plan.taps(&[(Activation::Dx, dim)]);
            }
            Kernel::QkvBwd => {
                plan.channel_blocks(&[(Activation::Dq, q), (Activation::Dk, kv), (Activation::Dv, kv)]);
                plan.weight(Part::Wq, q, dim, false);
                plan.weight(Part::Wk, kv, dim, false);
                plan.weight(Part::Wv, kv, dim, false);
                plan.taps(&[(Activation::Dx, dim)]);
            }
            Kernel::RmsFfnBwd => plan.norm_gradient(dim, Part::FfnNorm),
            Kernel::RmsAttnBwd => plan.norm_gradient(dim, Part::AttnNorm),
            Kernel::RmsFinal => plan.of_model((Activation::X, dim), (Activation::Xnorm, dim)),
            Kernel::Classifier => plan.of_model((Activation::Xnorm, dim), (Activation::Logits, self.classes)),
            Kernel::Softmax => {
                plan.of_model((Activation::Logits, self.classes), (Activation::ClassProbs, self.classes))
            }
        }
        if self.pipeline.has_constants() {
            plan.weights.clear();
        }
        Ok(plan.finish())
    }

    /// The layout of the forward kernels of attention.
    fn attention(&self, plan: &mut Plan) -> Result<(), LayoutError> {
        let c = &self.config;
        let (dim, q, kv) = (c.dim, c.q_dim(), c.kv_dim());
        plan.activations(dim, &[Activation::Xnorm]);
        plan.weight(Part::Wq, dim, q, true);
        plan.weight(Part::Wk, dim, kv, true);
        plan.weight(Part::Wv, dim, kv, true);
        let mut small = Vec::new();
        if c.qkv_bias {
            small.extend([(Part::Bq, c.heads), (Part::Bk, c.kv_heads), (Part::Bv, c.kv_heads)]);
        }
        if c.qk_norm {
            small.extend([(Part::QNorm, 1), (Part::KNorm, 1)]);
        }
        plan.small(&small, dim, c.head_dim)?;
        plan.taps(&[(Activation::AttnOut, q), (Activation::QRope, q), (Activation::KRope, kv), (Activation::V, kv)]);
        if plan.kernel == Kernel::FwdAttn {
            plan.weight(Part::Wo, q, dim, true);
            plan.taps(&[(Activation::OOut, dim)]);
        } else {
            plan.taps(&[(Activation::Xnorm, dim)]);
        }
        if c.qk_norm {
            plan.taps(&[(Activation::QPre, q), (Activation::KPre, kv)]);
        }
        Ok(())
    }

    /// Refuses sizes that MIL cannot express (every extent and slice bound is an int32) and
    /// constant tables above [`MAX_TABLE_BYTES`].
    fn check(&self) -> Result<(), LayoutError> {
        let c = &self.config;
        if let Some(reason) = c.beyond_kernels() {
            return Err(LayoutError::Shape(reason));
        }
        if self.seq == 0 {
            return Err(LayoutError::Shape("a window of 0 tokens".into()));
        }
        let limit = i32::MAX as usize;
        let parts = [
            c.heads.checked_mul(self.seq).and_then(|n| n.checked_mul(2)).and_then(|n| n.checked_add(2 * c.q_dim())),
            c.head_dim.checked_mul(self.seq),
            self.seq.checked_mul(c.gqa_ratio()),
            self.seq.checked_mul(2).and_then(|n| n.checked_add(3 * c.hidden)),
            self.seq.checked_add(c.q_dim() + 2 * c.kv_dim() + (c.heads + 4) * c.head_dim),
            self.seq.checked_mul(2).and_then(|n| n.checked_add(2 * c.dim)),
            c.dim.checked_add(2 * c.hidden),
            c.dim.checked_add(3 * c.q_dim()),
            Some(self.classes),
        ];
        if parts.iter().any(|p| p.is_none_or(|n| n > limit)) {
            return Err(LayoutError::Shape(format!("a window of {} tokens is too long for this model", self.seq)));
        }
        // fp16: the mask [seq, seq], cosines and sines [seq, head_dim].
        for (table, columns) in [("mask", self.seq), ("rotary table", c.head_dim)] {
            if self.seq.checked_mul(columns).and_then(|n| n.checked_mul(2)).is_none_or(|n| n > MAX_TABLE_BYTES) {
                let reason = format!("the {table} of a window of {} tokens is above {MAX_TABLE_BYTES} bytes", self.seq);
                return Err(LayoutError::Shape(reason));
            }
        }
        Ok(())
    }
}

/// The input that holds a tensor in [`WeightForm::Inputs`]: one letter for the kind of tensor, then
/// one for the projection.
fn port_of(part: Part) -> &'static str {
    match part {
        Part::Wq => "Wq",
        Part::Wk => "Wk",
        Part::Wv => "Wv",
        Part::Wo => "Wo",
        Part::W1 => "W1",
        Part::W2 => "W2",
        Part::W3 => "W3",
        Part::Bq => "Bq",
        Part::Bk => "Bk",
        Part::Bv => "Bv",
        Part::QNorm => "Gq",
        Part::KNorm => "Gk",
        Part::AttnNorm => "Ga",
        Part::FfnNorm => "Gf",
        Part::PostAttnNorm => "Gpa",
        Part::PostFfnNorm => "Gpf",
        Part::Router => "Wr",
    }
}

/// A layout under construction: regions in order, and `width` columns in use.
struct Plan {
    kernel: Kernel,
    seq: usize,
    form: WeightForm,
    channels: usize,
    width: usize,
    regions: Vec<Region>,
    weights: Vec<Input>,
    taps: Vec<Tap>,
}

impl Plan {
    fn new(kernel: Kernel, seq: usize, form: WeightForm) -> Plan {
        Plan { kernel, seq, form, channels: 0, width: 0, regions: Vec::new(), weights: Vec::new(), taps: Vec::new() }
    }

    /// Places activations next to each other along the last axis, all with the same number of
    /// channels.
    fn activations(&mut self, channels: usize, activations: &[Activation]) {
        self.channels = channels;
        for name in activations.iter().map(|activation| activation.name()) {
            let content = Content::Activation;
            let (offset, len) = (self.width, self.seq);
            self.regions.push(Region { name, port: ACTIVATIONS, channel: 0, channels, offset, len, content });
            self.width += len;
        }
    }

    /// Places activations one below the other along the channels.
    fn channel_blocks(&mut self, blocks: &[(Activation, usize)]) {
        self.width = self.seq;
        for &(activation, channels) in blocks {
            let name = activation.name();
            let (channel, len) = (self.channels, self.seq);
            let content = Content::Activation;
            self.regions.push(Region { name, port: ACTIVATIONS, channel, channels, offset: 0, len, content });
            self.channels += channels;
        }
    }

    fn weight(&mut self, part: Part, channels: usize, len: usize, transposed: bool) {
        self.place(part, transposed, channels, len, 0, self.width);
        if self.form == WeightForm::Packed {
            self.width += len;
        }
    }

    /// The gradient of a norm with these gains.
    fn norm_gradient(&mut self, dim: usize, gain: Part) {
        self.channel_blocks(&[(Activation::Dy, dim), (Activation::X, dim)]);
        self.weight(gain, dim, 1, false);
        self.taps(&[(Activation::Dx, dim)]);
    }

    /// A kernel from one activation to another, each with its channels.
    fn of_model(&mut self, from: (Activation, usize), to: (Activation, usize)) {
        self.activations(from.1, &[from.0]);
        self.taps(&[to]);
    }

    /// Places tensors of few channels and `len` columns: each takes the first free channels of the
    /// current block of columns.
    fn small(&mut self, parts: &[(Part, usize)], height: usize, len: usize) -> Result<(), LayoutError> {
        let mut used = height;
        for &(part, channels) in parts {
            if self.form == WeightForm::Packed && channels > height {
                let name = part.name();
                return Err(LayoutError::Shape(format!("{name}: {channels} heads do not fit {height} channels")));
            }
            if self.form == WeightForm::Packed && used + channels > height {
                (used, self.width) = (0, self.width + len);
            }
            let offset = self.width.saturating_sub(len);
            self.place(part, false, channels, len, used, offset);
            used += channels;
        }
        Ok(())
    }

    fn place(&mut self, part: Part, transposed: bool, channels: usize, len: usize, channel: usize, offset: usize) {
        let (name, content) = (part.name(), Content::Weight { part, transposed });
        match self.form {
            WeightForm::Packed => {
                self.regions.push(Region { name, port: ACTIVATIONS, channel, channels, offset, len, content });
            }
            WeightForm::Inputs => {
                let port = port_of(part);
                self.regions.push(Region { name, port, channel: 0, channels, offset: 0, len, content });
                self.weights.push(Input { name: port, channels, width: len });
            }
        }
    }

    fn taps(&mut self, taps: &[(Activation, usize)]) {
        for &(activation, channels) in taps {
            let channel = self.taps.last().map_or(0, |t| t.channel + t.channels);
            self.taps.push(Tap { name: activation.name(), channel, channels });
        }
    }

    fn finish(self) -> KernelLayout {
        let mut inputs = self.weights;
        inputs.push(Input { name: ACTIVATIONS, channels: self.channels, width: self.width });
        inputs.sort_by_key(|i| i.name);
        let out_channels = self.taps.iter().map(|t| t.channels).sum();
        let (kernel, regions, taps, seq) = (self.kernel, self.regions, self.taps, self.seq);
        KernelLayout { kernel, inputs, regions, taps, out_channels, seq }
    }
}

#[cfg(test)]
mod tests;
