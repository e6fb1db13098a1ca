"""torch_mm.py [--threads 2] SHAPE…: products in PyTorch (MKL on x86), fp32; shapes as `ferrane bench gemm` has them. JSON."""
import argparse, json, statistics, time
import torch

p = argparse.ArgumentParser(description=__doc__)
p.add_argument("--threads", type=int, default=2)
p.add_argument("--seconds", type=float, default=0.3)
p.add_argument("shapes", nargs="+")
a = p.parse_args()
torch.set_num_threads(a.threads)
torch.manual_seed(0)
products = []
for shape in a.shapes:
    sizes, _, layout = shape.partition(":")
    batch, _, sizes = sizes.rpartition("*")
    b, (m, k, n), layout = int(batch or 1), map(int, sizes.split("x")), layout or "nn"

    def factor(rows, cols, transposed):
        x = torch.randn((b, cols, rows) if transposed else (b, rows, cols))
        return x.transpose(1, 2) if transposed else x

    lhs, rhs = factor(m, k, layout[0] == "t"), factor(k, n, layout[1] == "t")
    out = torch.empty((b, m, n))
    if b == 1:
        lhs, rhs, out, multiply = lhs[0], rhs[0], out[0], torch.mm
    else:
        multiply = torch.bmm
    for _ in range(3):
        multiply(lhs, rhs, out=out)
    times, begun = [], time.perf_counter()
    while len(times) < 7 or (len(times) < 1000 and time.perf_counter() - begun < a.seconds):
        t = time.perf_counter()
        multiply(lhs, rhs, out=out)
        times.append((time.perf_counter() - t) * 1e3)
    products.append({"shape": shape, "median_ms": statistics.median(times), "lowest_ms": min(times), "highest_ms": max(times), "repeats": len(times)})
print(json.dumps({"products": products}))
