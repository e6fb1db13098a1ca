//! The published tables, and that options only append.

use super::*;
use crate::config::preset;

fn plain(name: &str) -> Config {
    let mut config = preset(name).unwrap();
    (config.qk_norm, config.qkv_bias) = (false, false);
    config
}

fn reference(name: &str) -> Shape {
    Shape::new(plain(name), 256, Residual::Fp16, WeightForm::Packed)
}

/// training-dynamic §4: input channels, width and bytes, output channels and bytes.
#[test]
fn published_sizes() {
    let stories = [
        (768, 2560, 3_932_160, 3840, 1_966_080),
        (768, 1024, 1_572_864, 768, 393_216),
        (768, 6656, 10_223_616, 6912, 3_538_944),
        (768, 2304, 3_538_944, 2048, 1_048_576),
        (2048, 2048, 8_388_608, 768, 393_216),
        (768, 1024, 1_572_864, 768, 393_216),
        (3072, 256, 1_572_864, 6912, 3_538_944),
        (7680, 256, 3_932_160, 1536, 786_432),
        (768, 1024, 1_572_864, 768, 393_216),
        (768, 2048, 3_145_728, 768, 393_216),
    ];
    let qwen = [
        (1024, 4352, 8_912_896, 7168, 3_670_016),
        (2048, 1280, 5_242_880, 1024, 524_288),
        (1024, 9728, 19_922_944, 10240, 5_242_880),
        (1024, 3328, 6_815_744, 3072, 1_572_864),
        (3072, 2560, 15_728_640, 1024, 524_288),
        (1024, 2304, 4_718_592, 2048, 1_048_576),
        (8192, 256, 4_194_304, 10240, 5_242_880),
        (12288, 256, 6_291_456, 4096, 2_097_152),
        (2048, 1280, 5_242_880, 1024, 524_288),
        (1024, 2560, 5_242_880, 1024, 524_288),
    ];
    for (name, table, private) in [("stories110m", stories, 33_947_648), ("qwen3-0.6b", qwen, 71_827_456)] {
        let layouts = reference(name).layouts().unwrap();
        for (layout, expected) in layouts.iter().zip(table) {
            let x = layout.input("x").unwrap();
            let found = (x.channels, x.width, layout.input_bytes(), layout.out_channels, layout.output_bytes());
            assert_eq!(found, expected, "{name} {}", layout.kernel.name());
        }
        let per_layer = layouts.iter().filter(|l| l.kernel.has_weights());
        assert_eq!(per_layer.map(KernelLayout::input_bytes).sum::<usize>(), private, "{name}");
    }
}

/// training-dynamic §3: offsets and taps of `sdpaFwd` and `ffnFused`.
#[test]
fn published_offsets() {
    let shape = reference("qwen3-0.6b");
    let (seq, q, kv, dim, hidden) = (256, 2048, 1024, 1024, 3072);
    let sdpa = shape.layout(Kernel::SdpaFwd).unwrap();
    let offsets: Vec<_> = sdpa.regions.iter().map(|r| (r.name, r.offset, r.len)).collect();
    assert_eq!(offsets, [("xnorm", 0, seq), ("wq", seq, q), ("wk", seq + q, kv), ("wv", seq + q + kv, kv)]);
    let taps: Vec<_> = sdpa.taps.iter().map(|t| (t.name, t.channel)).collect();
    let k = 2 * q;
    assert_eq!(taps, [("attn_out", 0), ("q_rope", q), ("k_rope", k), ("v", k + kv), ("xnorm", k + 2 * kv)]);
    let ffn = shape.layout(Kernel::FfnFused).unwrap();
    let offsets: Vec<_> = ffn.regions.iter().map(|r| r.offset).collect();
    assert_eq!(offsets, [0, seq, 2 * seq, 2 * seq + hidden, 2 * seq + 2 * hidden]);
    let transposed: Vec<_> = ffn.weights().map(|(r, _, t)| (r.name, t)).collect();
    assert_eq!(transposed, [("w1", true), ("w3", true), ("w2", false)]);
    let taps: Vec<_> = ffn.taps.iter().map(|t| (t.name, t.channel)).collect();
    assert_eq!(taps, [("x_next", 0), ("h1", dim), ("h3", dim + hidden), ("gate", dim + 2 * hidden)]);
}

fn overlap(a: &Region, b: &Region) -> bool {
    a.port == b.port
        && a.channel < b.channel + b.channels
        && b.channel < a.channel + a.channels
        && a.offset < b.offset + b.len
        && b.offset < a.offset + a.len
}

#[test]
fn options_only_append_and_regions_never_overlap() {
    for (dim, heads, kv_heads, head_dim) in [(64, 4, 2, 16), (8, 8, 4, 2), (6, 6, 6, 4)] {
        for bits in 0..16 {
            let mut config = preset("stories260k").unwrap();
            (config.dim, config.heads, config.kv_heads, config.head_dim) = (dim, heads, kv_heads, head_dim);
            let plain = Shape::new(config.clone(), 32, Residual::Fp16, WeightForm::Packed);
            (config.qk_norm, config.qkv_bias) = (bits & 1 != 0, bits & 2 != 0);
            let residual = if bits & 4 != 0 { Residual::Fp32 } else { Residual::Fp16 };
            let form = if bits & 8 != 0 { WeightForm::Inputs } else { WeightForm::Packed };
            let shape = Shape::new(config.clone(), 32, residual, form);
            for kernel in Kernel::ALL {
                let (layout, base) = (shape.layout(kernel).unwrap(), plain.layout(kernel).unwrap());
                assert_eq!(layout.taps[..base.taps.len()], base.taps);
                if form == WeightForm::Packed {
                    assert_eq!(layout.regions[..base.regions.len()], base.regions);
                }
                for (i, a) in layout.regions.iter().enumerate() {
                    let input = layout.input(a.port).unwrap();
                    assert!(a.channel + a.channels <= input.channels && a.offset + a.len <= input.width, "{a:?}");
                    assert!(layout.regions[..i].iter().all(|b| !overlap(a, b)), "{kernel:?} {a:?}");
                    if let Content::Weight { part, .. } = a.content {
                        assert_eq!(a.channels * a.len, part.shape(&config).iter().product::<usize>());
                    }
                }
                let lower: Vec<_> = layout.inputs.iter().map(|i| i.name.to_lowercase()).collect();
                assert!(lower.is_sorted(), "{lower:?}");
                assert_eq!(layout.inputs.len() == 1, form == WeightForm::Packed || !kernel.has_weights());
            }
        }
    }
}

#[test]
fn what_cannot_be_laid_out_is_an_error() {
    let shape = |seq, form| Shape::new(preset("stories260k").unwrap(), seq, Residual::Fp32, form);
    assert!(shape(0, WeightForm::Packed).layout(Kernel::WoFwd).is_err());
    assert!(shape(usize::MAX / 2, WeightForm::Packed).layout(Kernel::WoFwd).is_err());
    assert!(shape(16_384, WeightForm::Packed).layout(Kernel::SdpaFwd).is_ok());
    for seq in [16_385, 92_000] {
        let refused = shape(seq, WeightForm::Packed).layout(Kernel::SdpaFwd).unwrap_err();
        assert!(matches!(&refused, LayoutError::Shape(reason) if reason.contains("mask")), "{refused}");
    }
    let mut heads = shape(1024, WeightForm::Packed);
    (heads.config.heads, heads.config.kv_heads, heads.config.head_dim) = (1, 1, 1 << 20);
    assert!(heads.layout(Kernel::SdpaFwd).unwrap_err().to_string().contains("rotary"));
    let mut wide = shape(8, WeightForm::Packed);
    (wide.config.dim, wide.config.heads, wide.config.kv_heads, wide.config.head_dim) = (4, 8, 8, 2);
    wide.config.qkv_bias = true;
    assert!(wide.layout(Kernel::SdpaFwd).is_err());
    wide.form = WeightForm::Inputs;
    assert!(wide.layout(Kernel::SdpaFwd).is_ok());
    let layout = shape(8, WeightForm::Packed).layout(Kernel::WoFwd).unwrap();
    assert_eq!(layout.tap("dx").unwrap_err().to_string(), "woFwd has no tap \"dx\"");
}
