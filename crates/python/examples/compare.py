"""Says what differs between two programs, and how far their results are from each other."""

import ferrane

PROGRAM = """program(1.3)
{
  func main<ios17>(tensor<fp16, [1, 16]> x) {
    tensor<fp16, [1, 16]> y = OP[name = string("y")];
  } -> (y);
}
"""

exact = ferrane.load(PROGRAM.replace("OP", 'gelu(x = x, mode = string("EXACT"))').encode())
tanh = ferrane.load(PROGRAM.replace("OP", 'gelu(x = x, mode = string("TANH_APPROXIMATION"))').encode())
found = exact.diff(tanh, seed=1, within=0.01)
for change in found.changes:
    print(f"{change.function}, {change.name}: {change.kind} {change.message}")
for output in found.outputs or ():
    print(f"{output.output}: differs by {output.max:.1e} of {output.scale:.1e}, {'same' if output.same else 'different'}")
