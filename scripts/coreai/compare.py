"""Runs samples in Ferrane's emulator and compares the outputs with those that Apple's runtime gave.

    python scripts/coreai/compare.py FOLDER FERRANE [NAME…]

FOLDER is what samples.py or networks.py made, FERRANE the command. Needs NumPy and ml_dtypes. Each sample with recorded outputs has to run and
agree, or to be refused; the table lists the reasons. An output agrees if its largest difference, divided by its largest element, is at most

    1e-5 for fp32: sums in another order
    4e-3 for fp16, 1e-2 for whole networks: Apple's runtime on Linux adds fp16 products one by one in fp16, Ferrane in fp32
    2e-2 for bfloat16, which MIL does not have: Ferrane computes in fp32

and integers and truth values have to be the same. Where a difference in fp16 is larger, both are compared with the emulator's fp32 arithmetic;
it is reported and accepted if Ferrane is within a quarter of the limit and Apple's runtime is not.
"""

import collections
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np

# Types that `.npz` does not have are recorded as bytes.
BYTES = {"bf16": ml_dtypes.bfloat16, "f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E5M2": ml_dtypes.float8_e5m2, "f8E8M0FNU": ml_dtypes.float8_e8m0fnu,
         "f4E2M1FN": ml_dtypes.float4_e2m1fn, "si4": ml_dtypes.int4, "ui4": ml_dtypes.uint4, "si2": ml_dtypes.int2, "ui2": ml_dtypes.uint2, "ui1": ml_dtypes.uint1}
LIMITS = {"bf16": 2e-2, "f8E4M3FN": 0, "f8E5M2": 0}


def signature(ferrane, path):
    out = subprocess.run([ferrane, "inspect", path, "--json"], capture_output=True, text=True, check=True).stdout
    functions = json.loads(out)["content"]["functions"]
    return next(f for f in functions if f["name"] == "main" or not f["private"])


def element(kind):
    found = re.search(r"tensor<(?:[\d?]+x)*([\w<>]+?)[,>]", kind + ">")
    return found.group(1) if found else ""


def decoded(array, kind):
    kind = element(kind)
    if kind not in BYTES or array.dtype != np.uint8:
        return array
    return array.view(BYTES[kind])


def plain(array):
    """As a type that Ferrane reads; what it does not have becomes a wider one."""
    if array.dtype == np.bool_ or array.dtype.kind in "iu" or "int" in array.dtype.name:
        return array.astype(np.int32 if array.dtype.itemsize < 8 else np.int64)
    return array if array.dtype in (np.float16, np.float32) else array.astype(np.float32)


def spelled(name):
    """The name of a port in a program."""
    name = re.sub(r"\W", "_", name)
    return name if re.match(r"[A-Za-z_]", name) else "_" + name


def distance(found, wanted):
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    if found.shape != wanted.shape:
        return float("inf")
    special = ~np.isfinite(wanted)
    if not np.array_equal(found[special], wanted[special], equal_nan=True):
        return float("inf")
    found, wanted = found[~special], wanted[~special]
    if wanted.size == 0:
        return 0.0
    return float(np.abs(found - wanted).max() / max(np.abs(wanted).max(), 1e-30))


def one(ferrane, folder, name):
    path = folder / f"{name}.aimodel"
    record = np.load(folder / f"{name}.npz")
    ports = signature(ferrane, path)
    inputs, kinds = [p for p in ports["inputs"] if "token" not in p["type"]], {p["name"]: p["type"] for p in ports["outputs"]}
    given = [k for k in record.files if k.startswith("in.")]
    states = {k[len("state."):]: record[k] for k in record.files if k.startswith("state.")}
    with tempfile.TemporaryDirectory() as place:
        command = [ferrane, "run", str(path), "--output", place]
        # Inputs of networks have names of PyTorch's; they come in the order of the file.
        tensors = [p for p in inputs if not p["type"].startswith("!coreai.handle")]
        for key, port in zip(given, tensors):
            port = next((p for p in tensors if p["name"] == key[len("in."):]), port)
            value = plain(decoded(record[key], port["type"]))
            np.save(f"{place}/in.{key[3:]}.npy", value)
            command += ["--input", f"{spelled(port['name'])}={place}/in.{key[3:]}.npy"]
            if "?" in port["type"]:
                command += ["--shape", f"{port['name']}={'x'.join(map(str, value.shape))}"]
        for key, value in states.items():
            np.save(f"{place}/state.{key}.npy", value)
            command += ["--state", f"{spelled(key)}={place}/state.{key}.npy"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            return "refused", re.sub(r"\s+", " ", done.stderr)[:600]

        def result(output):
            files = [Path(place) / f"{spelled(output)}{end}.npy" for end in ("", "_out")]
            return next((np.load(f) for f in files if f.exists()), None)

        def exact(output):
            subprocess.run([*command, "--device", "emulator?numerics=exact"], capture_output=True, check=True)
            return result(output)

        worst, notes = 0.0, []
        for key in record.files:
            if not key.startswith(("out.", "after.")):
                continue
            output = key.split(".", 1)[1]
            kind = kinds.get(output, "")
            wanted = plain(decoded(record[key], kind))
            found = result(output)
            if found is None:
                return "differs", f"no output {output}"
            limits = LIMITS | {"f16": 1e-2 if name.startswith("torch_") else 4e-3}
            error, limit = distance(found, wanted), limits.get(element(kind) if kind else "", 1e-5) if wanted.dtype.kind == "f" else 0
            worst = max(worst, error)
            if error > limit and element(kind) == "f16":
                own, theirs = (distance(values, exact(output)) for values in (found, wanted))
                if own < limit / 4 < theirs:
                    print(f"{name}: {output} of Apple's runtime is {theirs:.2g} off fp32 arithmetic, Ferrane's {own:.2g}")
                    continue
            if error > limit:
                notes.append(f"{output}: {error:.2g} > {limit:g}")
        return ("differs", "; ".join(notes)) if notes else ("agrees", f"{worst:.1g}")


def main():
    folder, ferrane, only = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    names = sorted(p.name[: -len(".npz")] for p in folder.glob("*.npz") if (folder / f"{p.stem}.aimodel").exists())
    found, reasons = collections.defaultdict(list), collections.defaultdict(list)
    for name in names:
        if only and name not in only:
            continue
        state, note = one(ferrane, folder, name)
        found[state].append(name)
        if state == "refused":
            for reason in re.findall(r"error\[E\d+\]: (.*?)(?= error\[|$)", note) or [note]:
                reasons[re.sub(r"^.*?\(([^)]*)\): ", r"\1: ", reason)].append(name)
        if state != "agrees" or only:
            print(f"{state:8} {name}: {note}")
    total = sum(map(len, found.values()))
    print(f"{total} samples with outputs of Apple's runtime: {len(found['agrees'])} agree, {len(found['differs'])} differ, {len(found['refused'])} refused")
    for reason, which in sorted(reasons.items()):
        print(f"  {reason.strip()} [{', '.join(sorted(set(which)))}]")
    sys.exit(bool(found["differs"]))


if __name__ == "__main__":
    main()
