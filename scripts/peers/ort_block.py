"""ort_block.py MODEL.onnx [--threads 2]: evaluations of a model in onnxruntime on random inputs, the CPU provider. JSON."""
import argparse, json, statistics, time
import numpy as np
import onnxruntime as ort

p = argparse.ArgumentParser(description=__doc__)
p.add_argument("model")
p.add_argument("--threads", type=int, default=2)
p.add_argument("--seconds", type=float, default=1.0)
a = p.parse_args()
options = ort.SessionOptions()
options.intra_op_num_threads, options.inter_op_num_threads = a.threads, 1
session = ort.InferenceSession(a.model, options, providers=["CPUExecutionProvider"])
rng = np.random.default_rng(1)
dtypes = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}
values = {}
for port in session.get_inputs():
    if not all(isinstance(n, int) for n in port.shape):
        raise SystemExit(f"{port.name}: its shape {port.shape} is open")
    if port.type in dtypes:
        values[port.name] = rng.uniform(-1, 1, port.shape).astype(dtypes[port.type])
    else:
        values[port.name] = rng.integers(0, 2, port.shape).astype({"tensor(int64)": np.int64, "tensor(int32)": np.int32}[port.type])
for _ in range(3):
    outputs = session.run(None, values)
assert all(np.isfinite(o).all() for o in outputs), "the outputs are not finite"
times, begun = [], time.perf_counter()
while len(times) < 7 or (len(times) < 1000 and time.perf_counter() - begun < a.seconds):
    t = time.perf_counter()
    session.run(None, values)
    times.append((time.perf_counter() - t) * 1e3)
print(json.dumps({"median_ms": statistics.median(times), "lowest_ms": min(times), "highest_ms": max(times), "repeats": len(times)}))
