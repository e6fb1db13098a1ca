"""Finds the op that loses precision: a square that overflows fp16."""

import numpy as np

import ferrane

PROGRAM = b"""program(1.3)
{
  func main<ios17>(tensor<fp16, [1, 8, 1, 16]> x) {
    tensor<int32, [1]> axes = const()[name = string("axes"), val = tensor<int32, [1]>([1])];
    bool keep = const()[name = string("keep"), val = bool(true)];
    tensor<fp16, [1, 8, 1, 16]> squares = mul(x = x, y = x)[name = string("squares")];
    tensor<fp16, [1, 1, 1, 16]> mean = reduce_mean(x = squares, axes = axes, keep_dims = keep)[name = string("mean")];
    tensor<fp16, [1, 1, 1, 16]> norm = sqrt(x = mean)[name = string("norm")];
  } -> (norm);
}
"""

audit = ferrane.load(PROGRAM).audit(x=np.full((1, 8, 1, 16), 300.0))
print("\n".join(audit.summary))
print("first:", audit.json["first"])
