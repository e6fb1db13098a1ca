"""Loads and runs models that Ferrane wrote.

    python scripts/coreai/load.py SAMPLES OUT

SAMPLES is what samples.py made, OUT what `--example compare` of ferrane-coreai wrote from it. Each model of OUT has to load, its `main` has
to give the recorded outputs of the sample, bit for bit, and the function `ferrane_added` has to give tanh(x + 0.5) · w.
"""

import asyncio
import json
import sys
from pathlib import Path

import coreai.authoring  # noqa: F401  (has to be imported first)
import numpy as np
from coreai.authoring import AIModelAsset
from coreai.runtime import NDArray

sys.path.insert(0, str(Path(__file__).parent))
import samples


async def added(path):
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    async with AIModelAsset.load(path).executable() as model:
        out = await model.load_function("ferrane_added")({"x": NDArray(x)})
    wanted = np.tanh(x + np.float32(0.5)) * np.arange(6, dtype=np.float32).reshape(2, 3)
    return np.abs(out["y"].numpy() - wanted).max()


def one(folder, path):
    name, report = path.stem, {}
    try:
        report["added"] = float(asyncio.run(added(path)))
    except Exception as e:  # noqa: BLE001
        return {"failed": f"{type(e).__name__}: {str(e)[:300]}"}
    record = folder / f"{name}.npz"
    if record.exists() and name in samples.CASES:
        data = np.load(record)
        out, _ = asyncio.run(samples.run(path, samples.CASES[name]))
        equal = all(np.array_equal(samples.plain(v), data[f"out.{k}"], equal_nan=v.dtype.kind in "fc") for k, v in out.items())
        report["main"] = bool(equal)
    return report


def main():
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    samples.torch_cases()
    reports = {path.stem: samples.in_child(lambda path=path: one(folder, path)) for path in sorted(out.glob("*.aimodel"))}
    loaded = {n: r for n, r in reports.items() if r.get("added", 1) < 1e-5}
    mains = {n: r["main"] for n, r in loaded.items() if "main" in r}
    print(f"{len(loaded)} of {len(reports)} load and run the added function, {sum(mains.values())} of {len(mains)} give the outputs of before")
    for name, report in reports.items():
        if name not in loaded or not mains.get(name, True):
            print(f"  {name}: {json.dumps(report)}")


if __name__ == "__main__":
    main()
