"""usage: architectures.py [NAME …]

Compiles networks with `torch.compile(backend="ferrane")` and compares their results with PyTorch's. It needs the
package, torch, torchvision, transformers and coremltools. Ends with 1 if a result is further than 1e-4 of the largest
magnitude from PyTorch's.
"""
import sys
import time
import warnings

import torch
import torchvision.models as vision
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model

LIMIT = 1e-4
IMAGE = lambda: torch.rand(1, 3, 224, 224)
TOKENS = lambda: torch.randint(0, 1000, (1, 32))
NETWORKS = {
    **{
        name: (getattr(vision, name), IMAGE)
        for name in (
            "resnet18 mobilenet_v3_small squeezenet1_1 efficientnet_b0 densenet121 regnet_y_400mf shufflenet_v2_x1_0 "
            "vit_b_16 swin_t convnext_tiny"
        ).split()
    },
    "bert": (lambda: BertModel(BertConfig(num_hidden_layers=2)), TOKENS),
    "gpt2": (lambda: GPT2Model(GPT2Config(n_layer=2, use_cache=False)), TOKENS),
}


def first(result):
    """The tensor that is compared."""
    result = getattr(result, "last_hidden_state", result)
    return result[0] if isinstance(result, (tuple, list)) else result


def spread(module, inputs):
    """Draws the weights so that random networks neither vanish nor explode: each norm sees its own statistics."""
    module.train()
    for layer in module.modules():
        if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm):
            layer.momentum = 1.0
        if isinstance(layer, torch.nn.Dropout):
            layer.p = 0.0
    with torch.no_grad():
        module(torch.cat([inputs, inputs.flip(-1)]) if inputs.is_floating_point() else inputs)
    return module.eval()


failed = False
for name in sys.argv[1:] or NETWORKS:
    torch.manual_seed(1)
    make, draw = NETWORKS[name]
    x = draw()
    module = spread(make(), x)
    torch._dynamo.reset()
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        want = first(module(x))
        start = time.perf_counter()
        found = first(torch.compile(module, backend="ferrane", dynamic=False)(x))
        took = time.perf_counter() - start
    reasons = [str(w.message) for w in caught if str(w.message).startswith("ferrane:")]
    # A vision transformer begins with a head of zeros.
    scale = want.abs().max() or torch.tensor(1.0)
    error = float((found - want).abs().max() / scale)
    failed |= not error <= LIMIT
    print(f"{name:20} differs by {error:.1e}, first call {took:.1f} s {'; '.join(reasons)}", flush=True)
sys.exit(failed)
