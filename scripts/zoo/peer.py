"""peer.py ort|torch MODEL INPUTS.npz [--threads 2]: one process that times evaluations on request.

Loads the model, evaluates it once, and prints a JSON line: the time to load, the time of the first
evaluation, and the memory before the model. Then it reads lines: each is a number of seconds, for
which it evaluates; it answers with the median. `--output FILE` writes what the first evaluation
gives; the process ends when its input ends.
"""
import argparse, json, resource, statistics, sys, time

import numpy as np


def resident():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def onnxruntime(path, inputs, threads):
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    before = resident()
    begun = time.perf_counter()
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    loaded = time.perf_counter() - begun
    return lambda: session.run(None, inputs), loaded, before


def pytorch(path, inputs, threads):
    import torch

    sys.path.insert(0, str(__import__("pathlib").Path(__file__).parent))
    torch.set_num_threads(threads)
    torch.backends.mha.set_fastpath_enabled(False)
    args = [torch.from_numpy(v) for v in inputs.values()]
    before = resident()
    begun = time.perf_counter()
    model = torch.load(path, weights_only=False).eval()
    loaded = time.perf_counter() - begun

    def run():
        with torch.inference_mode():
            return model(*args)

    return run, loaded, before


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("system", choices=["ort", "torch"])
    p.add_argument("model")
    p.add_argument("inputs")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--output")
    a = p.parse_args()
    with np.load(a.inputs) as file:
        inputs = {k.removeprefix("input."): file[k] for k in file.files if k.startswith("input.")}
    run, loaded, before = (onnxruntime if a.system == "ort" else pytorch)(a.model, inputs, a.threads)
    begun = time.perf_counter()
    outputs = run()
    first = time.perf_counter() - begun
    if a.output:
        np.savez(a.output, *[np.asarray(o) for o in (outputs if isinstance(outputs, (list, tuple)) else [outputs])])
    print(json.dumps({"load_ms": loaded * 1e3, "first_ms": first * 1e3, "before_mb": before}), flush=True)
    for line in sys.stdin:
        seconds, times = float(line), []
        for _ in range(2):
            run()
        begun = time.perf_counter()
        while len(times) < 5 or (len(times) < 1000 and time.perf_counter() - begun < seconds):
            t = time.perf_counter()
            run()
            times.append((time.perf_counter() - t) * 1e3)
        print(json.dumps({"median_ms": statistics.median(times), "repeats": len(times)}), flush=True)


if __name__ == "__main__":
    main()
