//! The forward pass on a device: three kernels, compiled once, and each layer's input surfaces,
//! staged once.
//!
//! Embedding, RMSNorm, the fp32 residual stream and the classifier stay on the CPU; activations are
//! channel-first `[channels, seq]` (training-dynamic §1). A window has a fixed length, because
//! programs have fixed shapes. Shorter inputs are padded with zeros at the end, where the causal
//! mask hides them from the tokens.

use ferrane_device::{Device, Executable, Surface};
use ferrane_host::gemm::{Epilogue, GemmError, Operand, Output, View, ViewMut, gemm};
use ferrane_host::pool;

use crate::config::Config;
use crate::kernels::{self, KernelError};
use crate::layout::{Activation, Kernel, KernelLayout, LayoutError, Residual, Shape, WeightForm};
use crate::norm::rmsnorm_forward;
use crate::staging::{self, LayerInputs};
use crate::weights::{self, Layer, Slot, WeightSource};

/// Elements in one task of an element-wise loop.
const GRAIN: usize = 16 * 1024;

/// Why a forward pass, or a decoder on a device, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Weights and configuration do not belong together.
    #[error(transparent)]
    Weights(#[from] weights::Error),
    /// A kernel could not be built.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// A region or tap is missing.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The device refused a compile, a binding or an evaluation.
    #[error("{kernel}: {source}")]
    Device {
        /// Name of the kernel, or of what the surface holds (`cache`, `weights`).
        kernel: &'static str,
        /// The cause, as the device reports it.
        source: ferrane_device::Error,
    },
    /// Constant weights take a program for each layer, and the device compiles no more.
    #[error(
        "{kernel}: int4 weights are constants, so each of {layers} layers has a program of its own for every window size, \
         and the device compiles no more programs ({source}); int8 weights are inputs, with programs that all layers share"
    )]
    Constants {
        /// Name of the kernel that was refused.
        kernel: &'static str,
        /// Layers of the model.
        layers: usize,
        /// The cause, as the device reports it.
        source: ferrane_device::Error,
    },
    /// The classifier's product failed.
    #[error("classifier: {0}")]
    Product(#[from] GemmError),
    /// A token id that the vocabulary does not have.
    #[error("token {token} at position {position} is beyond the vocabulary of {vocab}")]
    Token {
        /// The id, which is `vocab` or more.
        token: u32,
        /// Its index in the sequence.
        position: usize,
        /// Number of ids that the vocabulary has.
        vocab: usize,
    },
    /// A row of weights that int8 or int4 cannot represent: a value is not finite or exceeds the
    /// fp16 range.
    #[error("layer {layer}: row {row} of {tensor} has values that are not finite or beyond fp16")]
    Quantize {
        /// Index of the layer; 0 for `embed` and `classifier`.
        layer: usize,
        /// Name of the kernels' input, or `embed` or `classifier`.
        tensor: &'static str,
        /// Index of the row, which is an output channel.
        row: usize,
    },
    /// An adapter that belongs to another model.
    #[error(transparent)]
    Lora(#[from] crate::lora::Error),
    /// An adapter of a larger rank than the programs have room for.
    #[error("an adapter of rank {found} in programs with room for {most}; set `adapter_rank` to {found} or more")]
    AdapterRank {
        /// Rank of the adapter.
        found: usize,
        /// Rank that [`crate::decode::Options::adapter_rank`] allows.
        most: usize,
    },
    /// More tokens than the window holds, or none.
    #[error("{found} tokens in a window of {seq}")]
    Length {
        /// Number of tokens given.
        found: usize,
        /// Tokens in a window.
        seq: usize,
    },
    /// A sequence that would exceed the context, which the caller does not want.
    #[error("a sequence of {found} tokens exceeds the context of {context}")]
    Context {
        /// Tokens of the sequence with those that were given.
        found: usize,
        /// Tokens that the decoder can hold.
        context: usize,
    },
    /// A slot that does not exist, or is given twice.
    #[error("slot {slot} of a decoder with {slots} slots does not exist or was given twice")]
    Slot {
        /// The slot that the caller named, counted from 0.
        slot: usize,
        /// Slots of the decoder, as [`crate::decode::Options::slots`] set them.
        slots: usize,
    },
}

/// Options of [`Forward::new`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Where the residual stream is kept.
    pub residual: Residual,
    /// How the kernels receive weights.
    pub form: WeightForm,
}

/// A loaded kernel, the output that all layers share, and each layer's inputs.
struct ForwardKernel {
    layout: KernelLayout,
    output: Surface,
    layers: Vec<LayerInputs>,
    executable: Executable,
}

impl ForwardKernel {
    fn new(device: &Device, shape: &Shape, kernel: Kernel) -> Result<ForwardKernel, Error> {
        let at = |source| Error::Device { kernel: kernel.name(), source };
        let (program, layout) = kernels::build(shape, kernel)?;
        let executable = device.load(&program, kernel.name()).map_err(at)?;
        let output = staging::output_surface(device, &executable).map_err(at)?;
        Ok(ForwardKernel { layout, output, layers: Vec::new(), executable })
    }

    /// Allocates the inputs of the next layer and stages its weights.
    fn push(&mut self, device: &Device, layer: &Layer) -> Result<(), Error> {
        let at = |source| Error::Device { kernel: self.layout.kernel.name(), source };
        let bound = LayerInputs::new(device, &self.executable, &self.layout, &self.output).map_err(at)?;
        bound.stage(&self.layout, layer).map_err(at)?;
        self.layers.push(bound);
        Ok(())
    }

    /// Writes the activations, runs the kernel with a layer's weights, and reads one tap.
    fn run(
        &self,
        layer: usize,
        inputs: &[(Activation, &[f32])],
        tap: Activation,
        result: &mut [f32],
    ) -> Result<(), Error> {
        let kernel = self.layout.kernel.name();
        let at = |source| Error::Device { kernel, source };
        let tap = self.layout.tap(tap.name())?;
        let bound = &self.layers[layer];
        for (region, values) in inputs {
            bound.write(self.layout.region(region.name())?, values).map_err(at)?;
        }
        bound.request().evaluate().map_err(at)?;
        let access = self.output.read().map_err(at)?;
        staging::read_tap(&access, tap, result).map_err(at)
    }
}

/// A model on a device, for windows of at most `seq` tokens.
pub struct Forward {
    shape: Shape,
    sdpa: ForwardKernel,
    wo: ForwardKernel,
    ffn: ForwardKernel,
    /// The weights that the CPU uses: the embedding, the classifier, and the gains of the norms.
    embed: Vec<f32>,
    classifier: Option<Vec<f32>>,
    norm: Vec<f32>,
    gains: Vec<(Vec<f32>, Vec<f32>)>,
}

impl Forward {
    /// Compiles `sdpaFwd`, `woFwd` and `ffnFused`, allocates every layer's input surfaces and
    /// stages the weights, of which one layer at a time is in fp32.
    ///
    /// # Errors
    /// [`Error::Weights`] if configuration and weights do not fit; the shape has no layout; or the
    /// device refused.
    pub fn new(
        device: &Device,
        config: &Config,
        weights: &dyn WeightSource,
        seq: usize,
        options: Options,
    ) -> Result<Forward, Error> {
        config.validate().map_err(weights::Error::from)?;
        weights.check(config)?;
        let shape = Shape::new(config.clone(), seq, options.residual, options.form);
        let kernel = |kernel| ForwardKernel::new(device, &shape, kernel);
        let [mut sdpa, mut wo, mut ffn] = [kernel(Kernel::SdpaFwd)?, kernel(Kernel::WoFwd)?, kernel(Kernel::FfnFused)?];
        let mut gains = Vec::new();
        for index in 0..config.layers {
            let layer = Layer::read(weights, config, index)?;
            for kernel in [&mut sdpa, &mut wo, &mut ffn] {
                kernel.push(device, &layer)?;
            }
            gains.push((layer.attn_norm, layer.ffn_norm));
        }
        let tensor = |slot: Slot| {
            let shape = slot.shape(config);
            let mut values = vec![0.0; shape.iter().product()];
            weights::fill(weights, slot, &shape, &mut values).map(|()| values)
        };
        let classifier = (!config.tied).then(|| tensor(Slot::Classifier)).transpose()?;
        let (embed, norm) = (tensor(Slot::Embed)?, tensor(Slot::Norm)?);
        Ok(Forward { sdpa, wo, ffn, embed, classifier, norm, gains, shape })
    }

    /// Sizes and options of the model.
    pub fn config(&self) -> &Config {
        &self.shape.config
    }

    /// Tokens in a window.
    pub fn seq(&self) -> usize {
        self.shape.seq
    }

    /// Logits `[tokens.len(), vocab]` of a sequence that starts at position 0.
    ///
    /// # Errors
    /// [`Error::Length`] for no tokens or more than the window holds, [`Error::Token`], or the
    /// device failed.
    pub fn logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>, Error> {
        let stream = self.hidden(tokens)?;
        self.classify(&stream, 0, tokens.len())
    }

    /// Logits `[vocab]` of the last token only, from which the next token is chosen.
    ///
    /// # Errors
    /// As [`Forward::logits`].
    pub fn last_logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>, Error> {
        let stream = self.hidden(tokens)?;
        self.classify(&stream, tokens.len() - 1, tokens.len())
    }

    /// The residual stream after the last layer and the final norm, `[dim, seq]`.
    fn hidden(&mut self, tokens: &[u32]) -> Result<Vec<f32>, Error> {
        let (seq, config) = (self.shape.seq, &self.shape.config);
        let (dim, eps, alpha) = (config.dim, config.norm_eps, config.residual_scale);
        if tokens.is_empty() || tokens.len() > seq {
            return Err(Error::Length { found: tokens.len(), seq });
        }
        let mut x = vec![0.0; dim * seq];
        for (t, &token) in tokens.iter().enumerate() {
            let row = self.embed.get(token as usize * dim..(token as usize + 1) * dim);
            let row = row.ok_or(Error::Token { token, position: t, vocab: config.vocab })?;
            for (c, value) in row.iter().enumerate() {
                x[c * seq + t] = *value;
            }
        }
        let (mut normed, mut part) = (vec![0.0; dim * seq], vec![0.0; dim * seq]);
        let mut attended = vec![0.0; config.q_dim() * seq];
        for (layer, (attn_gain, ffn_gain)) in self.gains.iter().enumerate() {
            rmsnorm_forward(&x, attn_gain, seq, eps, &mut normed);
            self.sdpa.run(layer, &[(Activation::Xnorm, &normed)], Activation::AttnOut, &mut attended)?;
            self.wo.run(layer, &[(Activation::AttnOut, &attended)], Activation::OOut, &mut part)?;
            add_scaled(&mut x, alpha, &part);
            rmsnorm_forward(&x, ffn_gain, seq, eps, &mut normed);
            match self.shape.residual {
                Residual::Fp32 => {
                    self.ffn.run(layer, &[(Activation::X2norm, &normed)], Activation::Ffn, &mut part)?;
                    add_scaled(&mut x, alpha, &part);
                }
                Residual::Fp16 => {
                    self.ffn.run(
                        layer,
                        &[(Activation::X2norm, &normed), (Activation::X2, &x)],
                        Activation::XNext,
                        &mut part,
                    )?;
                    std::mem::swap(&mut x, &mut part);
                }
            }
        }
        rmsnorm_forward(&x, &self.norm, seq, eps, &mut normed);
        Ok(normed)
    }

    /// Logits `[to - from, vocab]` of the positions `from..to` of a normalized stream.
    fn classify(&self, stream: &[f32], from: usize, to: usize) -> Result<Vec<f32>, Error> {
        let config = &self.shape.config;
        let (dim, vocab, seq) = (config.dim, config.vocab, self.shape.seq);
        let rows = to - from;
        let mut logits = vec![0.0; rows * vocab];
        let matrix = self.classifier.as_deref().unwrap_or(&self.embed);
        // logits[t, v] = Σ_c stream[c, t] · matrix[v, c]
        let lhs = Operand::F32(View::new(&stream[from..], rows, dim, 1, seq as isize)?);
        let rhs = Operand::F32(View::row_major(matrix, vocab, dim)?).t();
        gemm(lhs, rhs, Output::F32(ViewMut::row_major(&mut logits, rows, vocab)?), Epilogue::default())?;
        Ok(logits)
    }
}

/// `x += alpha · y`.
fn add_scaled(x: &mut [f32], alpha: f32, y: &[f32]) {
    pool::for_each_chunk_mut(x, GRAIN, |task, x| {
        let y = &y[task * GRAIN..][..x.len()];
        for (x, y) in x.iter_mut().zip(y) {
            *x += alpha * y;
        }
    });
}
