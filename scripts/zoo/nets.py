"""The networks of the zoo: what builds each one, and its inputs."""
import dataclasses
from typing import Callable

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import blocks


@dataclasses.dataclass
class Net:
    make: Callable[[], nn.Module]
    # For each input its name, its shape, and `image`, `values` or the number of ids.
    inputs: list
    # Whether it is one of the networks that are timed.
    speed: bool = False


class Pick(nn.Module):
    """The named results of a network that returns more."""

    def __init__(self, net, *names):
        super().__init__()
        self.net, self.names = net, names

    def forward(self, *inputs):
        results = self.net(*inputs)
        picked = tuple(results[name] for name in self.names)
        return picked if len(picked) > 1 else picked[0]


class Mean(nn.Module):
    def __init__(self, axes):
        super().__init__()
        self.axes = axes

    def forward(self, x):
        return x.mean(self.axes, keepdim=True)


def image(side=224, channels=3):
    return [("x", (1, channels, side, side), "image")]


def vision(name, **options):
    import torchvision

    return lambda: torchvision.models.get_model(name, weights=None, **options)


def segmentation(name):
    return lambda: Pick(vision(name, weights_backbone=None, num_classes=21)(), "out")


def whisper():
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig(d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536, num_mel_bins=80)
    config._attn_implementation = "eager"
    return Pick(WhisperEncoder(config), "last_hidden_state")


def vgg():
    # The classifier of the original has 120 million weights, and is one product.
    net = vision("vgg11_bn")()
    net.avgpool, net.classifier = nn.AdaptiveAvgPool2d(1), nn.Linear(512, 100)
    return net


def video():
    net = vision("r3d_18")()
    # coremltools has no adaptive pooling of volumes.
    net.avgpool = Mean((2, 3, 4))
    return net


def maxvit():
    from torchvision.models import maxvit

    net = vision("maxvit_t")()
    # coremltools has no `swapaxes`, only `transpose`, which does the same.
    maxvit.SwapAxes.forward = lambda self, x: x.transpose(self.a, self.b)
    return net


def vit():
    from torchvision.models import VisionTransformer

    return VisionTransformer(image_size=224, patch_size=16, num_layers=6, num_heads=6, hidden_dim=384, mlp_dim=1536)


def eager(config):
    config._attn_implementation = "eager"
    return config


IDS = 1000


def bert():
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=IDS, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024)
    return Pick(BertModel(eager(config)), "last_hidden_state", "pooler_output")


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=IDS, n_positions=128, n_embd=192, n_layer=4, n_head=4, use_cache=False)
    return Pick(GPT2LMHeadModel(eager(config)), "logits")


def t5():
    from transformers import T5Config, T5EncoderModel

    config = T5Config(vocab_size=IDS, d_model=256, d_kv=32, d_ff=512, num_layers=4, num_heads=8, feed_forward_proj="gated-gelu")
    net = T5EncoderModel(config)
    for name, module in net.named_modules():
        # T5 does not scale the scores; its weights are that small.
        if name.endswith(".q"):
            module.gain = config.d_kv**-0.5
    return Pick(net, "last_hidden_state")


def clip_text():
    from transformers import CLIPTextConfig, CLIPTextModel

    config = CLIPTextConfig(vocab_size=IDS, hidden_size=256, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=4, max_position_embeddings=77, eos_token_id=IDS - 1)
    return Pick(CLIPTextModel(eager(config)), "last_hidden_state")


def clip_vision():
    from transformers import CLIPVisionConfig, CLIPVisionModel

    config = CLIPVisionConfig(hidden_size=256, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=4, image_size=224, patch_size=32)
    return Pick(CLIPVisionModel(eager(config)), "last_hidden_state", "pooler_output")


NETS = {
    "resnet18": Net(vision("resnet18"), image(), True),
    "resnet50": Net(vision("resnet50"), image(), True),
    "mobilenet_v3_small": Net(vision("mobilenet_v3_small"), image(), True),
    "mobilenet_v3_large": Net(vision("mobilenet_v3_large"), image(), True),
    "efficientnet_b0": Net(vision("efficientnet_b0"), image(), True),
    "squeezenet1_1": Net(vision("squeezenet1_1"), image(), True),
    "convnext_tiny": Net(vision("convnext_tiny"), image(), True),
    "regnet_y_400mf": Net(vision("regnet_y_400mf"), image(), True),
    "densenet121": Net(vision("densenet121"), image(), True),
    "deeplabv3_mobilenet": Net(segmentation("deeplabv3_mobilenet_v3_large"), image(256), True),
    "diffusion_block": Net(
        blocks.DiffusionBlock,
        [("x", (1, 320, 32, 32), "image"), ("embedding", (1, 1280), "values"), ("context", (1, 77, 768), "values")],
        True,
    ),
    "whisper_encoder": Net(whisper, [("x", (1, 80, 3000), "values")], True),
    "alexnet": Net(vision("alexnet"), image()),
    "vgg11_bn": Net(vgg, image()),
    "googlenet": Net(vision("googlenet", aux_logits=False, init_weights=False), image()),
    "inception_v3": Net(vision("inception_v3", aux_logits=False, init_weights=False), image(299)),
    "shufflenet_v2_x1_0": Net(vision("shufflenet_v2_x1_0"), image()),
    "mnasnet1_0": Net(vision("mnasnet1_0"), image()),
    "mobilenet_v2": Net(vision("mobilenet_v2"), image()),
    "resnext50_32x4d": Net(vision("resnext50_32x4d"), image()),
    "efficientnet_v2_s": Net(vision("efficientnet_v2_s"), image()),
    "swin_t": Net(vision("swin_t"), image()),
    "vit_small": Net(vit, image()),
    "maxvit_t": Net(maxvit, image()),
    "fcn_resnet50": Net(segmentation("fcn_resnet50"), image(128)),
    "lraspp_mobilenet": Net(segmentation("lraspp_mobilenet_v3_large"), image(256)),
    "r3d_18": Net(video, [("x", (1, 3, 8, 56, 56), "values")]),
    "retina_head": Net(blocks.RetinaHead, image(256)),
    "yolo": Net(blocks.Yolo, image(256)),
    "vae_decoder": Net(blocks.VaeDecoderBlock, image(32, 4)),
    "super_resolution": Net(blocks.SuperResolution, image(64)),
    "medical_unet": Net(blocks.MedicalUnet, image(128, 1)),
    "style_transfer": Net(blocks.StyleTransfer, image(96)),
    "autoencoder": Net(blocks.Autoencoder, image(96)),
    "group_norm_net": Net(blocks.GroupNormNet, image(96)),
    "mobilevit": Net(blocks.MobileVit, image(128)),
    "wav2vec_features": Net(blocks.SpeechFeatures, [("x", (1, 1, 8000), "values")]),
    "temporal_conv": Net(blocks.TemporalConvNet, [("x", (1, 8, 200), "values")]),
    "keyword_spotter": Net(blocks.KeywordSpotter, image(48, 1)),
    "conformer_block": Net(blocks.ConformerBlock, [("x", (1, 100, 144), "values")]),
    "radiance_field": Net(blocks.RadianceField, [("x", (1024, 3), "values")]),
    "lstm_tagger": Net(lambda: blocks.Tagger(nn.LSTM, 2), [("ids", (1, 24), 500)]),
    "gru_tagger": Net(lambda: blocks.Tagger(nn.GRU), [("ids", (1, 24), 500)]),
    "bilstm_tagger": Net(lambda: blocks.Tagger(nn.LSTM, 1, True), [("ids", (1, 24), 500)]),
    "bert_mini": Net(bert, [("ids", (1, 64), IDS)]),
    "gpt2_mini": Net(gpt2, [("ids", (1, 64), IDS)]),
    "llama_mini": Net(lambda: blocks.Decoder(IDS), [("ids", (1, 64), IDS)]),
    "t5_encoder": Net(t5, [("ids", (1, 64), IDS)]),
    "clip_text": Net(clip_text, [("ids", (1, 77), IDS)]),
    "clip_vision": Net(clip_vision, image()),
}


def draw(shape, kind, rng):
    """Values of an input: noise, ids, or an image, which has low frequencies, as pictures have."""
    if isinstance(kind, int):
        return torch.from_numpy(rng.integers(0, kind, shape).astype(np.int32))
    noise = torch.from_numpy(rng.standard_normal(shape).astype(np.float32))
    if kind == "values":
        return noise
    coarse = torch.from_numpy(rng.standard_normal((*shape[:2], 5, 5)).astype(np.float32))
    return F.interpolate(coarse, shape[2:], mode="bilinear", align_corners=True) + 0.3 * noise
