//! The weights of a model in fp32, and the files they come from.
//!
//! One struct, [`Weights`], also serves gradients and optimizer moments: same tensors, same names, same order.
//! All matrices are row-major `[out, in]`, as every supported file stores them. The list that [`Weights::tensors`]
//! returns (name, kind, shape, data; embedding first, then the layers, then the final norm and the classifier) is the
//! one order for writing, reading, initialising, and updating.

mod init;

pub use init::Init;

use crate::config::Config;

/// What a tensor is. The kind decides about weight decay and initialisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A linear layer's matrix `[out, in]`; also an own classifier.
    Matrix,
    /// The token embedding `[vocab, dim]`.
    Embedding,
    /// The gain of an RMSNorm.
    Norm,
    /// A bias.
    Bias,
}

/// The tensors of one layer.
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
        }
    }

    /// What the tensor is.
    pub fn kind(self) -> Kind {
        match self {
            Part::AttnNorm | Part::QNorm | Part::KNorm | Part::FfnNorm => Kind::Norm,
            Part::Bq | Part::Bk | Part::Bv => Kind::Bias,
            _ => Kind::Matrix,
        }
    }

    /// Its shape in a model of this configuration.
    pub fn shape(self, config: &Config) -> Vec<usize> {
        let (dim, hidden) = (config.dim, config.hidden);
        match self {
            Part::AttnNorm | Part::FfnNorm => vec![dim],
            Part::Wq => vec![config.q_dim(), dim],
            Part::Wk | Part::Wv => vec![config.kv_dim(), dim],
            Part::Wo => vec![dim, config.q_dim()],
            Part::Bq => vec![config.q_dim()],
            Part::Bk | Part::Bv => vec![config.kv_dim()],
            Part::QNorm | Part::KNorm => vec![config.head_dim],
            Part::W1 | Part::W3 => vec![hidden, dim],
            Part::W2 => vec![dim, hidden],
        }
    }
}

/// One layer's tensors; row-major, shapes as in [`Part`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Layer {
    /// Gain of the norm before attention, `[dim]`.
    pub attn_norm: Vec<f32>,
    /// Query projection, `[q_dim, dim]`.
    pub wq: Vec<f32>,
    /// Key projection, `[kv_dim, dim]`.
    pub wk: Vec<f32>,
    /// Value projection, `[kv_dim, dim]`.
    pub wv: Vec<f32>,
    /// Output projection, `[dim, q_dim]`.
    pub wo: Vec<f32>,
    /// Gain of the norm before the feed-forward part, `[dim]`.
    pub ffn_norm: Vec<f32>,
    /// Gate projection, `[hidden, dim]`.
    pub w1: Vec<f32>,
    /// Up projection, `[hidden, dim]`.
    pub w3: Vec<f32>,
    /// Down projection, `[dim, hidden]`.
    pub w2: Vec<f32>,
    /// Gain on every query head, `[head_dim]`.
    pub q_norm: Option<Vec<f32>>,
    /// Gain on every key head, `[head_dim]`.
    pub k_norm: Option<Vec<f32>>,
    /// Query bias, `[q_dim]`.
    pub bq: Option<Vec<f32>>,
    /// Key bias, `[kv_dim]`.
    pub bk: Option<Vec<f32>>,
    /// Value bias, `[kv_dim]`.
    pub bv: Option<Vec<f32>>,
}

/// All tensors of a model; also its gradients, or one moment of its optimizer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Weights {
    /// Token embedding, `[vocab, dim]`.
    pub embed: Vec<f32>,
    /// The layers, first to last.
    pub layers: Vec<Layer>,
    /// Gain of the final norm, `[dim]`.
    pub norm: Vec<f32>,
    /// Own classifier `[vocab, dim]`; `None`: the embedding is the classifier.
    pub classifier: Option<Vec<f32>>,
}

/// One tensor: what it is called, what it is, and its values.
#[derive(Debug, Clone)]
pub struct TensorRef<'a> {
    /// `embed`, `layers.N.<part>`, `norm` or `classifier`.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Its shape; the product is `data.len()` when weights and configuration belong together.
    pub shape: Vec<usize>,
    /// The values, row-major.
    pub data: &'a [f32],
}

/// As [`TensorRef`], with the values open to change.
#[derive(Debug)]
pub struct TensorMut<'a> {
    /// `embed`, `layers.N.<part>`, `norm` or `classifier`.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Its shape; the product is `data.len()` when weights and configuration belong together.
    pub shape: Vec<usize>,
    /// The values, row-major.
    pub data: &'a mut [f32],
}

impl Layer {
    /// A layer of zeros.
    fn zeros(config: &Config) -> Self {
        let of = |part: Part| vec![0.0; part.shape(config).iter().product()];
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
        }
    }

    /// The tensors that are there, in the one order.
    pub fn parts(&self) -> Vec<(Part, &[f32])> {
        let all: [(Part, Option<&[f32]>); 14] = [
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
        ];
        all.into_iter().filter_map(|(part, data)| data.map(|d| (part, d))).collect()
    }

    /// As [`Layer::parts`], open to change.
    pub fn parts_mut(&mut self) -> Vec<(Part, &mut [f32])> {
        let all: [(Part, Option<&mut [f32]>); 14] = [
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
        ];
        all.into_iter().filter_map(|(part, data)| data.map(|d| (part, d))).collect()
    }
}

impl Weights {
    /// Zeros in every tensor of a model of this configuration, which must be valid.
    pub fn zeros(config: &Config) -> Self {
        let table = || vec![0.0; config.vocab * config.dim];
        Weights {
            embed: table(),
            layers: (0..config.layers).map(|_| Layer::zeros(config)).collect(),
            norm: vec![0.0; config.dim],
            classifier: (!config.tied).then(table),
        }
    }

    /// Every tensor, in the one order.
    pub fn tensors(&self, config: &Config) -> Vec<TensorRef<'_>> {
        let table = || vec![config.vocab, config.dim];
        let mut list =
            vec![TensorRef { name: "embed".into(), kind: Kind::Embedding, shape: table(), data: &self.embed }];
        for (index, layer) in self.layers.iter().enumerate() {
            for (part, data) in layer.parts() {
                let name = format!("layers.{index}.{}", part.name());
                list.push(TensorRef { name, kind: part.kind(), shape: part.shape(config), data });
            }
        }
        list.push(TensorRef { name: "norm".into(), kind: Kind::Norm, shape: vec![config.dim], data: &self.norm });
        if let Some(data) = &self.classifier {
            list.push(TensorRef { name: "classifier".into(), kind: Kind::Matrix, shape: table(), data });
        }
        list
    }

    /// Every tensor, in the one order, open to change.
    pub fn tensors_mut(&mut self, config: &Config) -> Vec<TensorMut<'_>> {
        let table = || vec![config.vocab, config.dim];
        let mut list =
            vec![TensorMut { name: "embed".into(), kind: Kind::Embedding, shape: table(), data: &mut self.embed }];
        for (index, layer) in self.layers.iter_mut().enumerate() {
            for (part, data) in layer.parts_mut() {
                let name = format!("layers.{index}.{}", part.name());
                list.push(TensorMut { name, kind: part.kind(), shape: part.shape(config), data });
            }
        }
        list.push(TensorMut { name: "norm".into(), kind: Kind::Norm, shape: vec![config.dim], data: &mut self.norm });
        if let Some(data) = &mut self.classifier {
            list.push(TensorMut { name: "classifier".into(), kind: Kind::Matrix, shape: table(), data });
        }
        list
    }

    /// The classifier's matrix `[vocab, dim]`: its own, or the embedding.
    pub fn classifier_matrix(&self) -> &[f32] {
        self.classifier.as_deref().unwrap_or(&self.embed)
    }
}
