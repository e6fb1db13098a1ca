"""Gives random weights that keep activations near 1, so that fp16 neither overflows nor underflows.

The initial weights of libraries are made for training: a deep network's activations often vanish,
and a comparison of zeros proves nothing.
"""
import torch
from torch import nn

LINEAR = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.Linear)
BATCH = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
NORMS = BATCH + (nn.LayerNorm, nn.GroupNorm, nn.InstanceNorm1d, nn.InstanceNorm2d)


def rescale(module, _, output):
    """Makes the root mean square of an output 1, or the module's `gain`, the first time it is used."""
    if getattr(module, "tamed", False):
        return None
    module.tamed = True
    size = output.square().mean().sqrt().clamp_min(1e-8) / getattr(module, "gain", 1.0)
    module.weight.data /= size
    if module.bias is not None:
        module.bias.data /= size
    return output / size


def measure(module, inputs):
    """Sets the statistics of a batch norm from its input, so that its output has the size 1.

    Half of the mean stays: a random batch norm that takes all of it away magnifies rounding errors.
    """
    x = inputs[0].transpose(0, 1).flatten(1)
    module.running_mean.copy_(x.mean(1) / 2)
    variance = x.var(1) + module.running_mean.square()
    # A channel that is small in this batch may not be in the next.
    module.running_var.copy_(variance.clamp_min(0.1 * float(variance.mean())))


def ends(model):
    """The batch norms at the ends of residual branches, by the names that torchvision has for these."""
    for m in model.modules():
        if hasattr(m, "bn2"):
            yield getattr(m, "bn3", m.bn2)
        for name in ("block", "conv", "layers", "body", "f"):
            part = getattr(m, name, None)
            if isinstance(part, nn.Sequential):
                yield from [n for n in part.modules() if isinstance(n, BATCH)][-1:]


@torch.no_grad()
def tame(model, batch):
    """Changes the weights of `model`; `batch` is a tuple of its inputs."""
    model.eval()
    for name, p in model.named_parameters():
        if name.endswith("layer_scale"):
            p.uniform_(0.3, 0.8)
    hooks = []
    for m in model.modules():
        if isinstance(m, NORMS) and m.weight is not None:
            m.weight.uniform_(0.7, 1.3)
            m.bias.normal_(0, 0.1)
        if isinstance(m, LINEAR):
            if not m.weight.any():
                nn.init.kaiming_normal_(m.weight)
            if m.bias is not None and not m.bias.any():
                m.bias.normal_(0, 0.1)
            hooks.append(m.register_forward_hook(rescale))
        if isinstance(m, BATCH):
            hooks.append(m.register_forward_pre_hook(measure))
    # Residual branches of trained networks change little, those of random ones would make fp16
    # noise.
    for norm in set(ends(model)):
        norm.weight *= 0.3
    model(*batch)
    for hook in hooks:
        hook.remove()
    return model
