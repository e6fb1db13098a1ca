"""Fits a weight by gradient descent, with the backward program of a constant that became an input."""

import numpy as np

import ferrane

PROGRAM = b"""program(1.3)
{
  func main<ios17>(tensor<fp32, [4, 3]> x) {
    bool no = const()[name = string("no"), val = bool(false)];
    tensor<fp32, [3, 2]> w = const()[name = string("w"), val = tensor<fp32, [3, 2]>([0.0, 0.0, 0.0, 0.0, 0.0, 0.0])];
    tensor<fp32, [4, 2]> y = matmul(x = x, y = w, transpose_x = no, transpose_y = no)[name = string("y")];
  } -> (y);
}
"""

# The outputs come first, then the adjoints.
step = ferrane.load(PROGRAM).grad(lift=["w"], keep_outputs=True)
print(step)
draws = np.random.default_rng(1)
x, target, w = draws.normal(size=(4, 3)), draws.normal(size=(4, 2)), np.zeros((3, 2))
y = step.outputs[0].name
loss = before = float(np.mean(target**2))
for _ in range(200):
    error = step.run(x=x, w=w, d_y=np.zeros((4, 2)))[y] - target
    w = w - 0.1 * step.run(x=x, w=w, d_y=error)["d_w"]
    loss = float(np.mean(error**2))
print(f"loss {before:.4f}, then {loss:.4f}")
