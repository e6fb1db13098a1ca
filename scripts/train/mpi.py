"""Checks `mpirun ferrane train` on one machine: bits, speed, and lost ranks.

    python scripts/train/mpi.py --ferrane target/release/ferrane [--mpirun mpirun] [--ranks 2] [--kills 20]

`ferrane` must be built with `--features mpi`. Each rank has one thread. Four parts:

bits    runs of one rank and of several, with the same number of groups, end with the same files, and so do
        several ranks with `--shard-optimizer`
speed   updates per second of several ranks of one thread over those of one rank with as many threads, in turns
memory  the sum of the ranks' peaks of resident memory, without and with `--shard-optimizer`
kills   a random rank is killed at a random moment and the run resumed, again and again, until it is complete;
        its files are those of an undisturbed run

`--shard` runs speed and kills with `--shard-optimizer`.

Prints one line of JSON for each part; the exit status is 0 if bits and kills hold.
"""

import argparse
import hashlib
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time


SHARD = ["--shard-optimizer"]


def command(args, ranks, out, options):
    own = [args.ferrane, "train", "--out", str(out), *options]
    return [args.mpirun, "-n", str(ranks), *own] if ranks > 1 else own


def start(args, ranks, threads, out, options):
    environment = {**os.environ, "RAYON_NUM_THREADS": str(threads)}
    return subprocess.Popen(
        command(args, ranks, out, options), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def train(args, ranks, threads, out, options):
    process = start(args, ranks, threads, out, options)
    _, error = process.communicate()
    if process.returncode != 0:
        sys.exit(f"{ranks} ranks: exit status {process.returncode}\n{error}")


def digests(out):
    newest = max(out.glob("step-*"))
    files = sorted(newest.glob("*.safetensors"))
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def losses(out):
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line["loss"], line["grad_norm"], line.get("valid_loss")) for line in lines]


def bits(args, root):
    options = ["--steps", "8", "--accum", "6", "--groups", str(2 * args.ranks), "--eval-every", "3", "--eval-windows", "8"]
    for device in ["emulator", "reference"]:
        runs = {"one": (1, []), "many": (args.ranks, []), "sharded": (args.ranks, SHARD)}
        for name, (ranks, more) in runs.items():
            train(args, ranks, 1, root / f"bits-{device}-{name}", [*options, *more, "--device", device])
        one, *others = (root / f"bits-{device}-{name}" for name in runs)
        same = all(digests(one) == digests(out) and losses(one) == losses(out) for out in others)
        print(json.dumps({"part": "bits", "device": device, "ranks": args.ranks, "same": same}), flush=True)
        if not same:
            sys.exit(1)


def speed(args, root):
    options = ["--model", args.model, "--steps", str(args.steps), "--accum", "8", "--eval-windows", "0", "--save-every", "0"]
    options += SHARD if args.shard else []
    ratios, of = [], {1: [], args.ranks: []}
    for turn in range(args.rounds):
        seconds = {}
        for ranks, threads in [(1, args.ranks), (args.ranks, 1)]:
            out = root / f"speed-{turn}-{ranks}"
            train(args, ranks, threads, out, options)
            lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
            # The first update warms up.
            seconds[ranks] = statistics.median(1 / line["tokens_per_second"] for line in lines[1:])
            of[ranks].append(1 / seconds[ranks])
        ratios.append(seconds[1] / seconds[args.ranks])
    tokens = {str(ranks): round(statistics.median(values)) for ranks, values in of.items()}
    result = {"part": "speed", "model": args.model, "tokens_per_second": tokens, "ratio": statistics.median(ratios)}
    print(json.dumps({**result, "of": [min(ratios), max(ratios)]}), flush=True)


def memory(args, root):
    options = ["--model", args.model, "--steps", "2", "--accum", str(args.ranks), "--eval-windows", "2"]
    peak = [sys.executable, "-S", "-E", str(pathlib.Path(__file__).resolve().parent.parent / "zoo" / "peak.py")]
    result = {"part": "memory", "model": args.model, "ranks": args.ranks}
    for name, more in [("whole", []), ("sharded", SHARD)]:
        out = root / f"memory-{name}"
        launched = [args.mpirun, "-n", str(args.ranks), *peak, args.ferrane, "train", "--out", str(out), *options, *more]
        environment = {**os.environ, "RAYON_NUM_THREADS": "1"}
        done = subprocess.run(launched, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"exit status {done.returncode}\n{done.stderr}")
        result[f"{name}_mib"] = round(sum(map(float, done.stdout.split())))
        result["moments_mib"] = round((max(out.glob("step-*")) / "optimizer.safetensors").stat().st_size / 2**20)
    print(json.dumps(result), flush=True)


def ranks_of(launcher, command):
    """The processes of a command below a launcher."""
    found, below = [], {launcher}
    for _ in range(4):
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                name = (entry / "comm").read_text().strip()
            except (OSError, IndexError):
                continue
            pid = int(entry.name)
            if parent in below and pid not in below:
                below.add(pid)
                # The kernel keeps 15 characters of a name.
                if name == command[:15]:
                    found.append(pid)
    return found


def kills(args, root):
    options = ["--steps", "240", "--accum", "4", "--groups", str(args.ranks), "--eval-every", "60", "--eval-windows", "4"]
    options += ["--save-every", "1", *(SHARD if args.shard else [])]
    whole, parts = root / "whole", root / "parts"
    train(args, 1, args.ranks, whole, options)
    killed, resumed, chance = 0, 0, random.Random(args.seed)
    while True:
        resume = ["--resume"] if any(parts.glob("step-*")) else []
        resumed += bool(resume)
        process = start(args, args.ranks, 1, parts, options + resume)
        if killed < args.kills:
            time.sleep(chance.uniform(0.05, 2.0))
            ranks = ranks_of(process.pid, pathlib.Path(args.ferrane).name)
            if ranks and process.poll() is None:
                os.kill(chance.choice(ranks), signal.SIGKILL)
                killed += 1
        _, error = process.communicate(timeout=600)
        if process.returncode == 0:
            break
        if killed >= args.kills and "error" in error:
            sys.exit(error)
    same = digests(whole) == digests(parts) and losses(whole) == losses(parts)
    print(json.dumps({"part": "kills", "killed": killed, "resumed": resumed, "same": same}), flush=True)
    if not same or killed < args.kills:
        sys.exit(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ferrane", required=True, type=os.path.abspath)
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--model", default="stories15m")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--shard", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        for part in args.part or PARTS:
            PARTS[part](args, pathlib.Path(root))


PARTS = {"bits": bits, "speed": speed, "memory": memory, "kills": kills}
main()
