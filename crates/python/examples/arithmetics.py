"""Compares the arithmetics of the emulator: fp32 throughout, fp16 between ops, and those of a machine."""

import numpy as np

import ferrane

PROGRAM = b"""program(1.3)
{
  func main<ios17>(tensor<fp16, [1, 64, 1, 64]> x) {
    int32 axis = const()[name = string("axis"), val = int32(-1)];
    tensor<fp16, [1, 64, 1, 64]> y = softmax(x = x, axis = axis)[name = string("y")];
  } -> (y);
}
"""

model = ferrane.load(PROGRAM)
x = np.random.default_rng(1).normal(0, 4, (1, 64, 1, 64))
exact = model.run(x=x, device="emulator?numerics=exact")["y"].astype(np.float64)
for name in ("emulator", "emulator?numerics=hardware&machine=m1-macos15-inmem", "emulator?numerics=hardware&machine=m4-macos15-inmem"):
    y = model.run(x=x, device=name)["y"]
    print(f"{name}: largest error {np.max(np.abs(y - exact)):.1e}")
