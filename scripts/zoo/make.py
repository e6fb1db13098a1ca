"""make.py FOLDER NAME…: writes NAME.fp32.mlpackage, NAME.fp16.mlpackage, NAME.onnx, NAME.npz and NAME.pt.

The `.npz` file has `input.PORT`, `output.PORT`, what PyTorch computes in fp32, and `half`, the
difference of what it computes in fp16; `.pt` is the
network itself, written only if it is timed. Prints one JSON line for each network. What exists is
kept.
"""
import argparse, contextlib, copy, io, json, os, pathlib, shutil, sys, time, traceback, warnings, zlib

warnings.filterwarnings("ignore")
import logging

logging.disable(logging.WARNING)
import numpy as np
import torch

from nets import NETS, draw
from tame import BATCH, tame


def flat(outputs):
    return (outputs,) if isinstance(outputs, torch.Tensor) else tuple(outputs)


def build(name, net):
    """The network with its weights, and its inputs by name."""
    seed = zlib.crc32(name.encode())
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    model = net.make().eval()
    inputs = {port: draw(shape, kind, rng) for port, shape, kind in net.inputs}
    # Statistics of a batch norm need more inputs than a scale of weights.
    batch = 12 if any(isinstance(m, BATCH) for m in model.modules()) else 2
    others = [tuple(draw(shape, kind, rng) for _, shape, kind in net.inputs) for _ in range(batch - 1)]
    tame(model, [torch.cat(values) for values in zip(inputs.values(), *others)])
    return model, inputs


def half_difference(model, args, results):
    """What PyTorch's own fp16 result is off by, as a part of the largest magnitude; not a number if it has none."""
    try:
        narrow = lambda t: t.half() if t.is_floating_point() else t
        half = flat(copy.deepcopy(model).half()(*map(narrow, args)))
        return max(float((h.float() - r).abs().max() / r.abs().max()) for h, r in zip(half, results))
    except RuntimeError:
        return float("nan")


def package(traced, inputs, outputs, path, half, target="iOS17"):
    import coremltools as ct

    ports = [ct.TensorType(name=k, shape=tuple(v.shape), dtype=np.int32 if v.dtype == torch.int32 else np.float32) for k, v in inputs.items()]
    made = ct.convert(
        traced,
        inputs=ports,
        outputs=[ct.TensorType(name=o) for o in outputs],
        convert_to="mlprogram",
        compute_precision=ct.precision.FLOAT16 if half else ct.precision.FLOAT32,
        minimum_deployment_target=getattr(ct.target, target),
        skip_model_load=True,
    )
    partial = path.with_name("partial-" + path.name)
    shutil.rmtree(partial, ignore_errors=True)
    made.save(str(partial))
    partial.rename(path)


@torch.no_grad()
def make(folder, name, net, target="iOS17", opset=17):
    """Writes what is absent; a step that fails is reported, and the others are made."""
    file = lambda suffix: folder / f"{name}.{suffix}"
    kinds = ["npz", "onnx", "fp32.mlpackage", "fp16.mlpackage"] + (["pt"] if net.speed else [])
    report = {"name": name, "failed": {}}
    missing = [k for k in kinds if not file(k).exists()]
    if not missing:
        return report
    model, inputs = build(name, net)
    args = tuple(inputs.values())
    results = flat(model(*args))
    outputs = ["y"] if len(results) == 1 else [f"y{i}" for i in range(len(results))]
    report["parameters"] = sum(p.numel() for p in model.parameters())
    report["output_rms"] = [round(float(r.square().mean().sqrt()), 4) for r in results]
    report["half"] = half_difference(model, args, results)
    np.savez(file("npz"), half=report["half"], **{f"input.{k}": v.numpy() for k, v in inputs.items()}, **{f"output.{k}": v.numpy() for k, v in zip(outputs, results)})

    if "pt" in missing:
        torch.save(model, file("pt"))

    def onnx():
        partial = folder / f"partial-{name}.onnx"
        torch.onnx.export(model, args, str(partial), opset_version=opset, input_names=list(inputs), output_names=outputs, dynamo=False)
        partial.rename(file("onnx"))

    traced = []

    def mlpackage(half):
        if not traced:
            traced.append(torch.jit.trace(model, args, check_trace=False))
        package(traced[0], inputs, outputs, file(f"fp{16 if half else 32}.mlpackage"), half, target)

    steps = {"onnx": onnx, "fp32.mlpackage": lambda: mlpackage(False), "fp16.mlpackage": lambda: mlpackage(True)}
    for kind, step in steps.items():
        try:
            if kind in missing:
                step()
        except Exception as e:
            if os.environ.get("ZOO_TRACEBACK"):
                traceback.print_exc()
            report["failed"][kind] = f"{type(e).__name__}: {str(e).strip().splitlines()[0] if str(e).strip() else ''}"[:200]
    return report


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("names", nargs="+")
    a = p.parse_args()
    a.folder.mkdir(parents=True, exist_ok=True)
    # Sums, and so the weights, do not depend on the number of cores.
    torch.set_num_threads(1)
    # The fused path of attention is an operator that neither converter has.
    torch.backends.mha.set_fastpath_enabled(False)
    for name in a.names:
        begun = time.perf_counter()
        try:
            # The exporter prints the graph that it fails at.
            with contextlib.redirect_stdout(io.StringIO()):
                report = make(a.folder, name, NETS[name])
        except Exception as e:
            if os.environ.get("ZOO_TRACEBACK"):
                traceback.print_exc()
            report = {"name": name, "failed": {"PyTorch": f"{type(e).__name__}: {e}"[:200]}}
        report["seconds"] = round(time.perf_counter() - begun, 1)
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
