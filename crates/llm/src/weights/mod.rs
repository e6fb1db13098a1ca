//! The weights of a model, and their file formats.
//!
//! [`open()`] maps the files of a model. The result is a [`WeightSource`], which gives rows of any
//! tensor as fp32 or fp16, so that a decoder stages them without a copy in fp32. [`Weights`] has
//! all tensors in fp32, for training and for the reference, and is a source, too; [`Weights::read`]
//! makes it from any source.
//!
//! Gradients and optimizer moments are also [`Weights`]: same tensors, same names, same order. All
//! matrices are row-major `[out, in]`, as every supported file stores them. Writing, reading,
//! initialization and updates all use the order of [`Weights::tensors`]: embedding, layers, final
//! norm, classifier.
//!
//! | module | format |
//! |---|---|
//! | [`llama2c`] | llama2.c `.bin`, version 0: read and write |
//! | [`open_hf`] | Hugging Face safetensors, single or sharded, also quantized by MLX, or with palettes: read |
//! | [`native`] | Ferrane's own safetensors, which include the configuration: read and write |
//! | [`gguf`] | GGUF, every type that crate `gguf` can read: read |
//! | [`open()`] | detects the format of a path |

pub mod container;
mod error;
pub mod gguf;
mod huggingface;
mod init;
pub mod llama2c;
mod map;
mod mlx;
pub mod native;
mod open;
mod palette;
mod source;
mod stored;

pub use error::Error;
pub(crate) use huggingface::{FileTensor, file_tensors};
pub use huggingface::{load_hf, open_hf};
pub use init::Init;
pub use open::{load, open};
pub use source::WeightSource;
pub(crate) use source::fill;
pub use stored::StoredWeights;

use crate::config::Config;

/// The kind of a tensor, which determines weight decay and initialization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TensorKind {
    /// The matrix of a linear layer `[out, in]`, or an untied classifier.
    Matrix,
    /// The token embedding `[vocab, dim]`.
    Embedding,
    /// The gain of an RMSNorm, one value for each channel.
    Norm,
    /// A bias, one value for each output channel.
    Bias,
}

/// A tensor of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// Gain of the norm before attention, `[dim]`.
    AttnNorm,
    /// Query projection, `[q_dim, dim]`.
    Wq,
    /// Key projection, `[kv_dim, dim]`.
    Wk,
    /// Value projection, `[kv_dim, dim]`.
    Wv,
    /// Output projection, `[dim, q_dim]`.
    Wo,
    /// Query bias, `[q_dim]`.
    Bq,
    /// Key bias, `[kv_dim]`.
    Bk,
    /// Value bias, `[kv_dim]`.
    Bv,
    /// Gain of the norm on every query head, `[head_dim]`.
    QNorm,
    /// Gain of the norm on every key head, `[head_dim]`.
    KNorm,
    /// Gain of the norm before the feed-forward part, `[dim]`.
    FfnNorm,
    /// Gate projection, `[hidden, dim]`.
    W1,
    /// Up projection, `[hidden, dim]`.
    W3,
    /// Down projection, `[dim, hidden]`.
    W2,
    /// Gain of the norm after attention, `[dim]`.
    PostAttnNorm,
    /// Gain of the norm after the feed-forward part, `[dim]`.
    PostFfnNorm,
    /// Router of a layer with experts, `[experts, dim]`. In such a layer the projections of all
    /// experts are one tensor: gate and up projections are `[experts, hidden, dim]`, down
    /// projections `[experts, dim, hidden]`.
    Router,
}

impl Part {
    /// The tensor's name after `layers.N.`.
    pub fn name(self) -> &'static str {
        match self {
            Part::AttnNorm => "attn_norm",
            Part::Wq => "wq",
            Part::Wk => "wk",
            Part::Wv => "wv",
            Part::Wo => "wo",
            Part::Bq => "bq",
            Part::Bk => "bk",
            Part::Bv => "bv",
            Part::QNorm => "q_norm",
            Part::KNorm => "k_norm",
            Part::FfnNorm => "ffn_norm",
            Part::W1 => "w1",
            Part::W3 => "w3",
            Part::W2 => "w2",
            Part::PostAttnNorm => "post_attn_norm",
            Part::PostFfnNorm => "post_ffn_norm",
            Part::Router => "router",
        }
    }

    /// The kind of the tensor.
    pub fn kind(self) -> TensorKind {
        match self {
            Part::AttnNorm | Part::QNorm | Part::KNorm | Part::FfnNorm => TensorKind::Norm,
            Part::PostAttnNorm | Part::PostFfnNorm => TensorKind::Norm,
            Part::Bq | Part::Bk | Part::Bv => TensorKind::Bias,
            _ => TensorKind::Matrix,
        }
    }

    /// The tensor's shape in a model of this configuration, in a layer without experts.
    pub fn shape(self, config: &Config) -> Vec<usize> {
        let (dim, hidden) = (config.dim, config.hidden);
        match self {
            Part::AttnNorm | Part::FfnNorm | Part::PostAttnNorm | Part::PostFfnNorm => vec![dim],
            Part::Wq => vec![config.q_dim(), dim],
            Part::Wk | Part::Wv => vec![config.kv_dim(), dim],
            Part::Wo => vec![dim, config.q_dim()],
            Part::Bq => vec![config.q_dim()],
            Part::Bk | Part::Bv => vec![config.kv_dim()],
            Part::QNorm | Part::KNorm => vec![config.head_dim],
            Part::W1 | Part::W3 => vec![hidden, dim],
            Part::W2 => vec![dim, hidden],
            Part::Router => vec![config.experts.as_ref().map_or(0, |experts| experts.count), dim],
        }
    }

    /// The tensor's shape in a layer, which may have experts.
    pub fn shape_in(self, config: &Config, layer: usize) -> Vec<usize> {
        match (config.experts(layer), self) {
            (Some(experts), Part::W1 | Part::W3) => vec![experts.count, experts.hidden, config.dim],
            (Some(experts), Part::W2) => vec![experts.count, config.dim, experts.hidden],
            _ => self.shape(config),
        }
    }
}

/// A tensor of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Slot {
    /// The token embedding, `[vocab, dim]`.
    Embed,
    /// A tensor of the layer with this index.
    Layer(usize, Part),
    /// Gain of the final norm, `[dim]`.
    Norm,
    /// The classifier of an untied model, `[vocab, dim]`.
    Classifier,
}

impl Slot {
    /// Every tensor of a model of this configuration, in the order of [`Weights::tensors`].
    pub fn list(config: &Config) -> Vec<Slot> {
        let parts = [
            (true, Part::AttnNorm),
            (true, Part::Wq),
            (true, Part::Wk),
            (true, Part::Wv),
            (true, Part::Wo),
            (config.qkv_bias, Part::Bq),
            (config.qkv_bias, Part::Bk),
            (config.qkv_bias, Part::Bv),
            (config.qk_norm, Part::QNorm),
            (config.qk_norm, Part::KNorm),
            (true, Part::FfnNorm),
            (true, Part::W1),
            (true, Part::W3),
            (true, Part::W2),
            (config.post_norms, Part::PostAttnNorm),
            (config.post_norms, Part::PostFfnNorm),
        ];
        let layer = |i| {
            let router = (config.experts(i).is_some(), Part::Router);
            let parts = parts.into_iter().chain([router]).filter(|(there, _)| *there);
            parts.map(move |(_, part)| Slot::Layer(i, part))
        };
        let mut list = vec![Slot::Embed];
        list.extend((0..config.layers).flat_map(layer));
        list.push(Slot::Norm);
        list.extend((!config.tied).then_some(Slot::Classifier));
        list
    }

    /// `embed`, `layers.N.<part>`, `norm` or `classifier`.
    pub fn name(self) -> String {
        match self {
            Slot::Embed => "embed".into(),
            Slot::Layer(index, part) => format!("layers.{index}.{}", part.name()),
            Slot::Norm => "norm".into(),
            Slot::Classifier => "classifier".into(),
        }
    }

    /// The kind of the tensor.
    pub fn kind(self) -> TensorKind {
        match self {
            Slot::Embed => TensorKind::Embedding,
            Slot::Layer(_, part) => part.kind(),
            Slot::Norm => TensorKind::Norm,
            Slot::Classifier => TensorKind::Matrix,
        }
    }

    /// The tensor's shape in a model of this configuration.
    pub fn shape(self, config: &Config) -> Vec<usize> {
        match self {
            Slot::Embed | Slot::Classifier => vec![config.vocab, config.dim],
            Slot::Layer(index, part) => part.shape_in(config, index),
            Slot::Norm => vec![config.dim],
        }
    }
}

/// One layer's tensors; row-major, shapes as in [`Part`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Layer<T = f32> {
    /// Gain of the norm before attention, `[dim]`.
    pub attn_norm: Vec<T>,
    /// Query projection, `[q_dim, dim]`.
    pub wq: Vec<T>,
    /// Key projection, `[kv_dim, dim]`.
    pub wk: Vec<T>,
    /// Value projection, `[kv_dim, dim]`.
    pub wv: Vec<T>,
    /// Output projection, `[dim, q_dim]`.
    pub wo: Vec<T>,
    /// Gain of the norm before the feed-forward part, `[dim]`.
    pub ffn_norm: Vec<T>,
    /// Gate projection, `[hidden, dim]`.
    pub w1: Vec<T>,
    /// Up projection, `[hidden, dim]`.
    pub w3: Vec<T>,
    /// Down projection, `[dim, hidden]`.
    pub w2: Vec<T>,
    /// Gain on every query head, `[head_dim]`.
    pub q_norm: Option<Vec<T>>,
    /// Gain on every key head, `[head_dim]`.
    pub k_norm: Option<Vec<T>>,
    /// Query bias, `[q_dim]`.
    pub bq: Option<Vec<T>>,
    /// Key bias, `[kv_dim]`.
    pub bk: Option<Vec<T>>,
    /// Value bias, `[kv_dim]`.
    pub bv: Option<Vec<T>>,
    /// Gain of the norm after attention, `[dim]`.
    pub post_attn_norm: Option<Vec<T>>,
    /// Gain of the norm after the feed-forward part, `[dim]`.
    pub post_ffn_norm: Option<Vec<T>>,
    /// Router of a layer with experts, `[experts, dim]`.
    pub router: Option<Vec<T>>,
}

/// All tensors of a model. Gradients and each moment of the optimizer have this type too.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Weights<T = f32> {
    /// Token embedding, `[vocab, dim]`.
    pub embed: Vec<T>,
    /// The layers, first to last.
    pub layers: Vec<Layer<T>>,
    /// Gain of the final norm, `[dim]`.
    pub norm: Vec<T>,
    /// Untied classifier `[vocab, dim]`; `None`: the embedding is the classifier.
    pub classifier: Option<Vec<T>>,
}

/// A tensor with its name, kind, shape and values.
#[derive(Debug, Clone)]
pub struct TensorRef<'a, T = f32> {
    /// `embed`, `layers.N.<part>`, `norm` or `classifier`.
    pub name: String,
    /// The kind, which determines decay and initialization.
    pub kind: TensorKind,
    /// The shape; its product is `data.len()` if the weights fit the configuration.
    pub shape: Vec<usize>,
    /// The values in row-major order, borrowed from the weights.
    pub data: &'a [T],
}

/// Like [`TensorRef`], with mutable values.
#[derive(Debug)]
pub struct TensorMut<'a, T = f32> {
    /// `embed`, `layers.N.<part>`, `norm` or `classifier`.
    pub name: String,
    /// The kind, which determines decay and initialization.
    pub kind: TensorKind,
    /// The shape; its product is `data.len()` if the weights fit the configuration.
    pub shape: Vec<usize>,
    /// The values in row-major order, borrowed from the weights.
    pub data: &'a mut [T],
}

impl Layer {
    /// A layer of zeros.
    fn zeros(config: &Config, index: usize) -> Self {
        let of = |part: Part| vec![0.0; part.shape_in(config, index).iter().product()];
        let when = |wanted: bool, part: Part| wanted.then(|| of(part));
        Layer {
            attn_norm: of(Part::AttnNorm),
            wq: of(Part::Wq),
            wk: of(Part::Wk),
            wv: of(Part::Wv),
            wo: of(Part::Wo),
            ffn_norm: of(Part::FfnNorm),
            w1: of(Part::W1),
            w3: of(Part::W3),
            w2: of(Part::W2),
            q_norm: when(config.qk_norm, Part::QNorm),
            k_norm: when(config.qk_norm, Part::KNorm),
            bq: when(config.qkv_bias, Part::Bq),
            bk: when(config.qkv_bias, Part::Bk),
            bv: when(config.qkv_bias, Part::Bv),
            post_attn_norm: when(config.post_norms, Part::PostAttnNorm),
            post_ffn_norm: when(config.post_norms, Part::PostFfnNorm),
            router: when(config.experts(index).is_some(), Part::Router),
        }
    }
}

impl<T> Layer<T> {
    /// The tensors that the layer has, in the order of [`Weights::tensors`].
    pub fn parts(&self) -> Vec<(Part, &[T])> {
        let all: [(Part, Option<&[T]>); 17] = [
            (Part::AttnNorm, Some(&self.attn_norm)),
            (Part::Wq, Some(&self.wq)),
            (Part::Wk, Some(&self.wk)),
            (Part::Wv, Some(&self.wv)),
            (Part::Wo, Some(&self.wo)),
            (Part::Bq, self.bq.as_deref()),
            (Part::Bk, self.bk.as_deref()),
            (Part::Bv, self.bv.as_deref()),
            (Part::QNorm, self.q_norm.as_deref()),
            (Part::KNorm, self.k_norm.as_deref()),
            (Part::FfnNorm, Some(&self.ffn_norm)),
            (Part::W1, Some(&self.w1)),
            (Part::W3, Some(&self.w3)),
            (Part::W2, Some(&self.w2)),
            (Part::PostAttnNorm, self.post_attn_norm.as_deref()),
            (Part::PostFfnNorm, self.post_ffn_norm.as_deref()),
            (Part::Router, self.router.as_deref()),
        ];
        all.into_iter().filter_map(|(part, data)| data.map(|d| (part, d))).collect()
    }

    /// Like [`Layer::parts`], with mutable values.
    pub fn parts_mut(&mut self) -> Vec<(Part, &mut [T])> {
        let all: [(Part, Option<&mut [T]>); 17] = [
            (Part::AttnNorm, Some(&mut self.attn_norm)),
            (Part::Wq, Some(&mut self.wq)),
            (Part::Wk, Some(&mut self.wk)),
            (Part::Wv, Some(&mut self.wv)),
            (Part::Wo, Some(&mut self.wo)),
            (Part::Bq, self.bq.as_deref_mut()),
            (Part::Bk, self.bk.as_deref_mut()),
            (Part::Bv, self.bv.as_deref_mut()),
            (Part::QNorm, self.q_norm.as_deref_mut()),
            (Part::KNorm, self.k_norm.as_deref_mut()),
            (Part::FfnNorm, Some(&mut self.ffn_norm)),
            (Part::W1, Some(&mut self.w1)),
            (Part::W3, Some(&mut self.w3)),
            (Part::W2, Some(&mut self.w2)),
            (Part::PostAttnNorm, self.post_attn_norm.as_deref_mut()),
            (Part::PostFfnNorm, self.post_ffn_norm.as_deref_mut()),
            (Part::Router, self.router.as_deref_mut()),
        ];
        all.into_iter().filter_map(|(part, data)| data.map(|d| (part, d))).collect()
    }
}

impl Weights {
    /// Weights of zeros for a configuration, which must be valid.
    pub fn zeros(config: &Config) -> Self {
        let table = || vec![0.0; config.vocab * config.dim];
        Weights {
            embed: table(),
            layers: (0..config.layers).map(|index| Layer::zeros(config, index)).collect(),
            norm: vec![0.0; config.dim],
            classifier: (!config.tied).then(table),
        }
    }
}

impl<T> Weights<T> {
    /// Checks that the weights have exactly the tensors of `config`, each with its number of
    /// values.
    ///
    /// # Errors
    /// [`Error::Mismatch`] for the first tensor that differs.
    pub fn check(&self, config: &Config) -> Result<(), Error> {
        let mismatch = |name: String, expected: usize, found: usize| {
            if expected == found { Ok(()) } else { Err(Error::Mismatch { name, expected, found }) }
        };
        mismatch("layers".into(), config.layers, self.layers.len())?;
        for tensor in self.tensors(config) {
            mismatch(tensor.name, tensor.shape.iter().product(), tensor.data.len())?;
        }
        for (index, layer) in self.layers.iter().enumerate() {
            for (part, wanted, there) in [
                (Part::QNorm, config.qk_norm, layer.q_norm.is_some()),
                (Part::KNorm, config.qk_norm, layer.k_norm.is_some()),
                (Part::Bq, config.qkv_bias, layer.bq.is_some()),
                (Part::Bk, config.qkv_bias, layer.bk.is_some()),
                (Part::Bv, config.qkv_bias, layer.bv.is_some()),
                (Part::PostAttnNorm, config.post_norms, layer.post_attn_norm.is_some()),
                (Part::PostFfnNorm, config.post_norms, layer.post_ffn_norm.is_some()),
                (Part::Router, config.experts(index).is_some(), layer.router.is_some()),
            ] {
                let size = part.shape(config).iter().product::<usize>();
                let of = |there: bool| if there { size } else { 0 };
                mismatch(format!("layers.{index}.{}", part.name()), of(wanted), of(there))?;
            }
        }
        let table = |there: bool| if there { config.vocab * config.dim } else { 0 };
        mismatch("classifier".into(), table(!config.tied), table(self.classifier.is_some()))
    }

    /// Every tensor of the model: embedding, layers, final norm, classifier. Writing, reading,
    /// initialization and updates use this order.
    pub fn tensors(&self, config: &Config) -> Vec<TensorRef<'_, T>> {
        let of = |slot: Slot, data| TensorRef { name: slot.name(), kind: slot.kind(), shape: slot.shape(config), data };
        let mut list = vec![of(Slot::Embed, self.embed.as_slice())];
        for (index, layer) in self.layers.iter().enumerate() {
            list.extend(layer.parts().into_iter().map(|(part, data)| of(Slot::Layer(index, part), data)));
        }
        list.push(of(Slot::Norm, &self.norm));
        list.extend(self.classifier.as_deref().map(|data| of(Slot::Classifier, data)));
        list
    }

    /// Like [`Weights::tensors`], with mutable values.
    pub fn tensors_mut(&mut self, config: &Config) -> Vec<TensorMut<'_, T>> {
        let of = |slot: Slot, data| TensorMut { name: slot.name(), kind: slot.kind(), shape: slot.shape(config), data };
        let mut list = vec![of(Slot::Embed, self.embed.as_mut_slice())];
        for (index, layer) in self.layers.iter_mut().enumerate() {
            list.extend(layer.parts_mut().into_iter().map(|(part, data)| of(Slot::Layer(index, part), data)));
        }
        list.push(of(Slot::Norm, &mut self.norm));
        list.extend(self.classifier.as_deref_mut().map(|data| of(Slot::Classifier, data)));
        list
    }

    /// The classifier's matrix `[vocab, dim]`: the untied classifier, or the embedding.
    pub fn classifier_matrix(&self) -> &[T] {
        self.classifier.as_deref().unwrap_or(&self.embed)
    }
}
