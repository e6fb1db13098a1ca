"""Converts a PyTorch module, checks it for an engine, and trains through it. Needs torch and coremltools."""

import torch

import ferrane
from ferrane import pytorch, testing

module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(4))
x = torch.rand(1, 3, 16, 16)
module(x)
model = ferrane.from_torch(module, [x])
print(model.check("m4-macos15-coreml"))
testing.assert_close_on(model, {model.inputs[0].name: x}, reference=module, psnr=50)

# Finds an image that the last class likes: gradients come from the backward program.
layer = pytorch.function(model)
image = x.clone().requires_grad_()
optimizer = torch.optim.Adam([image], lr=0.05)
for _ in range(20):
    optimizer.zero_grad()
    (-layer(image)[0, -1]).backward()
    optimizer.step()
print(f"score {layer(x)[0, -1].item():.3f}, then {layer(image)[0, -1].item():.3f}")
