"""Converts programs to Core AI models with Ferrane, runs them in Apple's runtime and compares the outputs.

    python scripts/coreai/written.py programs FERRANE OUT FILE…
    python scripts/coreai/written.py samples FERRANE OUT FOLDER [NAME…]

FERRANE is the command, OUT a folder for the models. `programs` takes `.mil`, `.mlpackage`, `.mlmodel` and `.onnx`, and folders of them; each function
is compared with the emulator, on the same random inputs. `samples` takes what samples.py or networks.py made: each `.aimodel` becomes MIL and a
model again, which has to give the outputs that Apple's runtime gave for the sample. An output agrees as in compare.py; fp16 of programs to 4e-3,
of whole networks (more than 100 operations) to 1e-2.
"""

import asyncio
import collections
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import coreai.authoring  # noqa: F401  (has to be imported first)
import ml_dtypes
import numpy as np
from coreai.authoring import AIModelAsset
from coreai.runtime import NDArray

sys.path.insert(0, str(Path(__file__).parent))
from compare import BYTES, decoded, distance, element, plain, spelled
from samples import in_child

ARRAYS = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "i1": np.bool_, "si8": np.int8, "ui8": np.uint8, "si16": np.int16, "ui16": np.uint16,
          "si32": np.int32, "ui32": np.uint32, "si64": np.int64, "ui64": np.uint64}
SECONDS = 240


def extents(kind):
    inner = re.search(r"tensor<(.*)>", kind).group(1)
    return [int(n) if n != "?" else 1 for n in inner.split("x")[:-1]]


def functions(ferrane, path):
    out = subprocess.run([ferrane, "inspect", path, "--json"], capture_output=True, text=True, check=True).stdout
    content = json.loads(out)["content"]
    return [f for f in content["functions"] if not f["private"]], sum(content["operations"].values())


def values(port, rng):
    kind = element(port["type"])
    shape = extents(port["type"])
    if kind in ("f16", "f32", "f64"):
        return rng.standard_normal(shape).astype(ARRAYS[kind])
    return rng.integers(0, 2, shape).astype(ARRAYS[kind])


async def call(path, name, given, states):
    async with AIModelAsset.load(path).executable() as model:
        function = model.load_function(name)
        held = {k: NDArray(np.array(v)) for k, v in states.items()}
        out = await function({k: NDArray(v) for k, v in given.items()}, state=held)
        return {k: np.array(v.numpy()) for k, v in out.items()}, {k: np.array(v.numpy()) for k, v in held.items()}


def apple(path, name, given, states, place):
    """Runs a function in a process of its own; the outputs come as files."""

    def work():
        try:
            out, after = asyncio.run(call(path, name, given, states))
        except Exception as e:  # noqa: BLE001
            return {"why": f"{type(e).__name__}: {str(e)[:600]}"}
        for part, found in (("out", out), ("after", after)):
            for key, value in found.items():
                np.save(f"{place}/apple.{part}.{spelled(key)}.npy", value if value.dtype.kind in "biuf" and value.dtype.num < 24 else plain(value))
        return {"out": list(out), "after": list(after)}

    return in_child(work)


def judged(found, wanted, limit, notes, name):
    error = distance(plain(found), plain(wanted))
    if not error <= (limit if wanted.dtype.kind == "f" else 0):
        notes.append(f"{name}: {error:.2g} > {limit:g}")
    return error


def limit_of(array, operations):
    return {np.dtype(np.float16): 1e-2 if operations > 100 else 4e-3}.get(array.dtype, 1e-5)


def reasons(text):
    found = re.findall(r"\(([\w.]+)\): ([^\n]*)", text)
    return sorted({f"{op}: {why.strip()}" for op, why in found}) or [re.sub(r"\s+", " ", text)[:300]]


def program(ferrane, out, file):
    name = re.sub(r"\W", "_", str(file).lstrip("/"))[-120:]
    path = out / f"{name}.aimodel"
    shutil.rmtree(path, ignore_errors=True)
    done = subprocess.run([ferrane, "convert", str(file), "-o", str(path)], capture_output=True, text=True, timeout=SECONDS)
    if done.returncode != 0:
        return [("refused", file.name, reasons(done.stderr))]
    results = []
    found, operations = functions(ferrane, path)
    for function in found:
        results.append(one_function(ferrane, path, file, function, operations))
    return results


def one_function(ferrane, path, file, function, operations):
    rng = np.random.default_rng(7)
    label = file.name if function["name"] == "main" else f"{file.name}:{function['name']}"
    ports = function["inputs"]
    states = {p["name"]: np.zeros(extents(p["type"]), ARRAYS[element(p["type"])]) for p in ports if "handle" in p["type"]}
    given = {p["name"]: values(p, rng) for p in ports if "handle" not in p["type"] and "token" not in p["type"]}
    with tempfile.TemporaryDirectory() as place:
        command = [ferrane, "run", str(file), "--function", function["name"], "--output", place]
        for key, value in given.items():
            np.save(f"{place}/in.{key}.npy", value)
            command += ["--input", f"{key}={place}/in.{key}.npy"]
        for key, value in states.items():
            np.save(f"{place}/state.{key}.npy", value)
            command += ["--state", f"{key}={place}/state.{key}.npy"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        if done.returncode != 0:
            return ("not run", label, ["emulator: " + re.sub(r"\s+", " ", done.stderr)[:300]])
        found = apple(path, function["name"], given, states, place)
        if "why" in found:
            return ("fails", label, [found["why"]])
        notes, worst = [], 0.0
        for part, keys in (("out", found["out"]), ("after", found["after"])):
            for key in keys:
                other = Path(place) / f"{spelled(key)}.npy"
                if not other.exists():
                    notes += [f"no output {key}"] if part == "out" else []
                    continue
                wanted = np.load(other)
                worst = max(worst, judged(np.load(f"{place}/apple.{part}.{spelled(key)}.npy"), wanted, limit_of(wanted, operations), notes, key))
        return ("differs", label, notes) if notes else ("agrees", label, [f"{worst:.1g}"])


def sample(ferrane, out, folder, name):
    record = np.load(folder / f"{name}.npz")
    source, path = folder / f"{name}.aimodel", out / f"{name}.aimodel"
    shutil.rmtree(path, ignore_errors=True)
    all_before, _ = functions(ferrane, source)
    before = next((f for f in all_before if f["name"] == "main"), all_before[0])
    tensors = [p for p in before["inputs"] if "handle" not in p["type"] and "token" not in p["type"]]
    keys = [k for k in record.files if k.startswith("in.")]
    given, command = {}, [ferrane, "convert", str(source), "-o", str(path)]
    for key, port in zip(keys, tensors):
        port = next((p for p in tensors if p["name"] == key[3:]), port)
        given[spelled(port["name"])] = plain(decoded(record[key], port["type"]))
        if "?" in port["type"]:
            command += ["--shape", f"{port['name']}={'x'.join(map(str, given[spelled(port['name'])].shape))}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode != 0:
        return [("refused", name, reasons(done.stderr))]
    all_after, _ = functions(ferrane, path)
    after = next((f for f in all_after if f["name"] == "main"), all_after[0])
    kinds = {p["name"]: ARRAYS[element(p["type"])] for p in after["inputs"]}
    given = {key: np.asarray(value).astype(kinds[key]) for key, value in given.items() if key in kinds}
    states = {spelled(k[6:]): record[k].astype(kinds[spelled(k[6:])]) for k in record.files if k.startswith("state.")}
    outputs = {p["name"]: p["type"] for p in before["outputs"]}
    with tempfile.TemporaryDirectory() as place:
        found = apple(path, after["name"], given, states, place)
        if "why" in found:
            return [("fails", name, [found["why"]])]
        notes, worst = [], 0.0
        for key in record.files:
            part, port = key.split(".", 1)
            if part not in ("out", "after"):
                continue
            kind = outputs.get(port, "")
            wanted = plain(decoded(record[key], kind))
            files = [Path(place) / f"apple.{part}.{spelled(port)}{end}.npy" for end in ("", "_out")]
            file = next((f for f in files if f.exists()), None)
            if file is None:
                notes.append(f"no output {port}")
                continue
            limit = {"f16": 1e-2 if name.startswith("torch_") else 4e-3, "bf16": 2e-2}.get(element(kind) if kind else "", 1e-5)
            worst = max(worst, judged(np.load(file), wanted, limit, notes, port))
        return [("differs", name, notes) if notes else ("agrees", name, [f"{worst:.1g}"])]


def main():
    mode, ferrane, out = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    out.mkdir(parents=True, exist_ok=True)
    work = []
    if mode == "programs":
        for given in map(Path, sys.argv[4:]):
            inner = [given] if given.suffix else sorted(f for end in ("mil", "mlpackage", "mlmodel", "onnx") for f in given.rglob(f"*.{end}"))
            inner = [f for f in inner if not any(p.suffix == ".mlpackage" for p in f.parents)]
            work += [lambda f=f: program(ferrane, out, f) for f in inner]
    else:
        folder, only = Path(sys.argv[4]), sys.argv[5:]
        names = sorted(p.stem for p in folder.glob("*.npz") if (folder / f"{p.stem}.aimodel").exists())
        work = [lambda n=n: sample(ferrane, out, folder, n) for n in names if not only or n in only]
    counts, why = collections.Counter(), collections.defaultdict(list)
    for one in work:
        try:
            results = one()
        except subprocess.TimeoutExpired as e:
            results = [("not run", str(e.cmd[2]), ["it takes too long"])]
        except Exception as e:  # noqa: BLE001
            results = [("not run", "?", [f"{type(e).__name__}: {e}"])]
        for state, name, notes in results:
            counts[state] += 1
            for note in notes if state in ("refused", "fails", "not run") else []:
                why[f"{state}: {note}"].append(name)
            if state != "agrees" or len(work) < 20:
                print(f"{state:8} {name}: {'; '.join(notes)[:400]}", flush=True)
    print(", ".join(f"{n} {state}" for state, n in sorted(counts.items())))
    for reason, which in sorted(why.items()):
        print(f"  {reason} [{len(which)}: {', '.join(sorted(set(which))[:6])}]")
    sys.exit(bool(counts["differs"] or counts["fails"]))


if __name__ == "__main__":
    main()
