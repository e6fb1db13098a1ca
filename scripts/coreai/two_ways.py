"""Compares networks that reach Ferrane through coreai-torch with the same networks through coremltools.

    python scripts/coreai/two_ways.py ZOO FOLDER FERRANE [NAME…]

ZOO is the folder of networks that `scripts/zoo.sh --make-only` fills: `NAME.pt` with the weights, `NAME.npz` with the input, and the
packages of coremltools in fp32 and fp16. The networks are converted again from these weights, into FOLDER, so this needs what
networks.py needs. FERRANE is the command. Prints a row of a table for each network: the largest difference of an output between the
two, divided by the range of the output, in fp32 and in fp16, and that of each from PyTorch's fp32.
"""

import contextlib
import io
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import coreai.authoring  # noqa: F401  (has to be imported first)
import numpy as np

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "zoo")]
warnings.filterwarnings("ignore")
import torch
from compare import signature, spelled
from coreai_torch import TorchConverter, get_decomp_table
from nets import NETS

# In fp32 sums come in another order. In fp16 both round intermediate values, not always the same
# ones; a network that is 2e-2 from its fp32 result one way and the other may be that far from
# itself.
LIMITS = {"fp32": 1e-3, "fp16": 3e-2}


def convert(zoo, folder, name, half):
    path = folder / f"{name}.fp{16 if half else 32}.aimodel"
    if path.exists():
        return path
    model = NETS[name].make()
    # A pickle of the zoo's own making, which is of another version of PyTorch: only its weights are
    # used.
    model.load_state_dict(torch.load(zoo / f"{name}.pt", weights_only=False, map_location="cpu").state_dict())
    model.eval()
    data = np.load(zoo / f"{name}.npz")
    args = tuple(torch.from_numpy(data[k]) for k in data.files if k.startswith("input."))
    if half:
        model, args = model.half(), tuple(a.half() if a.is_floating_point() else a for a in args)
    exported = torch.export.export(model, args=args).run_decompositions(get_decomp_table())
    with contextlib.redirect_stdout(io.StringIO()):
        TorchConverter().add_exported_program(exported).to_coreai().save_asset(path)
    return path


def outputs(ferrane, path, inputs):
    """What the model computes in Ferrane, in the order of its outputs."""
    names = list(inputs)
    if path.suffix == ".aimodel":
        # They have names of PyTorch's, and come in the order of the file.
        names = [spelled(port["name"]) for port in signature(ferrane, path)["inputs"]]
    with tempfile.TemporaryDirectory() as place:
        command = [ferrane, "run", str(path), "--output", place]
        for name, value in zip(names, inputs.values(), strict=True):
            np.save(f"{place}/in.{name}.npy", value)
            command += ["--input", f"{name}={place}/in.{name}.npy"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr[:500])
        files = sorted(p for p in Path(place).glob("*.npy") if not p.name.startswith("in."))
        return [np.load(f).astype(np.float64) for f in files]


def difference(found, wanted):
    return max(float(np.abs(f - w).max() / (w.max() - w.min())) for f, w in zip(found, wanted, strict=True))


def main():
    zoo, folder, ferrane, names = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4:]
    folder.mkdir(parents=True, exist_ok=True)
    names = names or sorted(p.name[: -len(".pt")] for p in zoo.glob("*.pt"))
    worst = dict.fromkeys(LIMITS, 0.0)
    print("| network | fp32 | fp16 | Core AI fp16 from PyTorch fp32 | Core ML fp16 from PyTorch fp32 |\n|---|---|---|---|---|")
    for name in names:
        data = np.load(zoo / f"{name}.npz")
        inputs = {k[len("input."):]: data[k] for k in data.files if k.startswith("input.")}
        right = [data[k].astype(np.float64) for k in sorted(data.files) if k.startswith("output.")]
        cells = []
        for kind in LIMITS:
            half = kind == "fp16"
            given = {k: v.astype(np.float16) if half and v.dtype == np.float32 else v for k, v in inputs.items()}
            try:
                one = outputs(ferrane, convert(zoo, folder, name, half), given)
                two = outputs(ferrane, zoo / f"{name}.{kind}.mlpackage", inputs)
            except Exception as e:  # noqa: BLE001
                cells = [f"{type(e).__name__}: {str(e).splitlines()[0][:150]}"]
                break
            cells.append(difference(one, two))
            worst[kind] = max(worst[kind], cells[-1])
        if half and len(cells) == 2:
            cells += [difference(one, right), difference(two, right)]
        print(f"| {name} | " + " | ".join(c if isinstance(c, str) else f"{c:.1e}" for c in cells) + " |", flush=True)
    print({kind: f"{value:.1e}" for kind, value in worst.items()})
    sys.exit(any(worst[kind] > limit for kind, limit in LIMITS.items()))


if __name__ == "__main__":
    main()
