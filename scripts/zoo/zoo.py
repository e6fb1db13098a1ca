#!/usr/bin/env python3
"""Runs networks in Ferrane, PyTorch and ONNX Runtime, and compares numbers, times, load times and memory.

scripts/zoo.sh calls it. Each network has random weights and is made once, as `.mlpackage` by
coremltools in fp32 and fp16, and as `.onnx` by PyTorch. Numbers: the worst difference to PyTorch's
fp32 result over that result's largest magnitude. Times: the programs take turns, each turn is about
a second of evaluations, a network's time is the median of all turns. A ratio is Ferrane's time over
the other's, so below 1 Ferrane is faster.
"""
import argparse, json, math, os, pathlib, platform, re, shutil, signal, statistics, subprocess, sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WORK = pathlib.Path(os.environ.get("ZOO", ROOT / "target" / "zoo"))
FERRANE = os.environ.get("FERRANE", str(ROOT / "target" / "release" / "ferrane"))
# The largest accepted difference. fp32 programs sum in another order than PyTorch; in fp16 programs
# the result of every op is rounded to 11 bits.
LIMITS = {"fp32": 1e-4, "onnx": 1e-4, "ort": 1e-4, "fp16": 1e-2}
QUICK = ["mobilenet_v3_small", "squeezenet1_1"]


class Failed(Exception):
    """A step that failed, and what the program said."""


def run(command, threads=2, timeout=300):
    environment = dict(os.environ, RAYON_NUM_THREADS=str(threads), OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads))
    try:
        done = subprocess.run([str(c) for c in command], env=environment, capture_output=True, text=True, timeout=timeout)
    except FileNotFoundError:
        raise Failed(f"{command[0]}: no such program")
    except subprocess.TimeoutExpired:
        raise Failed(f"took more than {timeout} s")
    if done.returncode != 0:
        said = [line for line in (done.stderr.strip() or done.stdout.strip()).splitlines() if line.strip()]
        raise Failed(" ".join(said[:1]) or f"ended with status {done.returncode} and no message")
    return done.stdout


def answer(command, threads=2, timeout=300):
    lines = run(command, threads, timeout).strip().splitlines()
    try:
        return json.loads(lines[-1])
    except (IndexError, json.JSONDecodeError):
        raise Failed(f"no JSON in its output: {(lines or [''])[-1][:80]}")


class Files:
    """The files of one network."""

    def __init__(self, name):
        self.name = name
        path = lambda suffix: WORK / "models" / f"{name}.{suffix}"
        self.fp32, self.fp16, self.onnx = path("fp32.mlpackage"), path("fp16.mlpackage"), path("onnx")
        self.npz, self.pt = path("npz"), path("pt")

    def inputs(self):
        """The options of `ferrane` that give the recorded inputs."""
        import zipfile

        with zipfile.ZipFile(self.npz) as file:
            ports = [n.removeprefix("input.").removesuffix(".npy") for n in file.namelist() if n.startswith("input.")]
        return [word for port in ports for word in ("-i", f"{port}={self.npz}:input.{port}")]


# Numbers


def worst(found, wanted):
    """The worst difference over the largest magnitude, of several outputs; infinite if a shape or value is wrong."""
    import numpy as np

    if len(found) != len(wanted):
        raise Failed(f"{len(found)} outputs, PyTorch has {len(wanted)}")
    result = 0.0
    for f, w in zip(found, wanted):
        if f.shape != w.shape:
            raise Failed(f"an output has the shape {list(f.shape)}, PyTorch's has {list(w.shape)}")
        f, w = f.astype(np.float64), w.astype(np.float64)
        difference = float(np.abs(f - w).max() / max(np.abs(w).max(), 1e-30))
        result = max(result, difference if math.isfinite(difference) else math.inf)
    return result


def check(files, a):
    """For each way to run a network, the difference to PyTorch's result, or why there is none."""
    import numpy as np

    with np.load(files.npz) as npz:
        names = [k.removeprefix("output.") for k in npz.files if k.startswith("output.")]
        wanted = [npz[f"output.{n}"] for n in names]
        half = float(npz["half"])
    folder = WORK / "outputs" / files.name
    found, report = {}, {}
    # A deep network may magnify the rounding to fp16 beyond any fixed limit, in PyTorch, too.
    limits = LIMITS | {"fp16": max(LIMITS["fp16"], half if math.isfinite(half) else 0.0)}

    def ferrane(kind):
        model = {"fp32": files.fp32, "fp16": files.fp16, "onnx": files.onnx}[kind]
        if not model.exists():
            raise Failed(f"{model.name} was not made")
        to = folder / kind
        run([FERRANE, "run", model, *files.inputs(), "-o", to, "--numerics", a.numerics], a.threads[0])
        return [np.load(to / f"{n}.npy") for n in names]

    def ort(_):
        if not files.onnx.exists():
            raise Failed(f"{files.onnx.name} was not made")
        folder.mkdir(parents=True, exist_ok=True)
        run([sys.executable, HERE / "peer.py", "ort", files.onnx, files.npz, "--output", folder / "ort.npz"])
        with np.load(folder / "ort.npz") as file:
            return [file[k] for k in file.files]

    for kind, call in (("fp32", ferrane), ("fp16", ferrane), ("onnx", ferrane), ("ort", ort)):
        try:
            found[kind] = call(kind)
            report[kind] = {"difference": worst(found[kind], wanted)}
            report[kind]["passed"] = report[kind]["difference"] <= limits[kind]
        except Failed as e:
            report[kind] = {"failed": str(e)[:300], "passed": False}
    if "fp32" in found and "onnx" in found:
        report["both"] = {"difference": worst(found["onnx"], found["fp32"])}
        report["both"]["passed"] = report["both"]["difference"] <= LIMITS["fp32"]
    report["half"] = {"difference": half, "passed": True}
    shutil.rmtree(folder, ignore_errors=True)
    return report


# Times


class Peer:
    """A process of peer.py that waits for its turns."""

    def __init__(self, system, files, threads):
        model = files.onnx if system == "ort" else files.pt
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads))
        command = [sys.executable, HERE / "peer.py", system, model, files.npz, "--threads", threads]
        self.process = subprocess.Popen([str(c) for c in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
        self.started = self.read()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise Failed("the peer ended early")
        return json.loads(line)

    def turn(self, seconds):
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        return self.read()["median_ms"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def speed(files, a, threads):
    """The times of all systems in turns, in milliseconds, and their load times."""
    peers, times, loads, failed = {}, {}, {}, {}
    for system in ("ort", "torch"):
        try:
            peers[system] = Peer(system, files, threads)
            loads[system] = [peers[system].started["load_ms"]]
        except (Failed, OSError) as e:
            failed[system] = str(e)
    ours = {kind: getattr(files, kind) for kind in a.kinds}

    def turn(system):
        if system in peers:
            return peers[system].turn(a.seconds)
        # `ferrane bench program` warms up and evaluates for a second.
        x = answer([FERRANE, "bench", "program", ours[system], *files.inputs(), "--json"], threads)
        loads.setdefault(system, []).append(sum(x[f"{stage}_ms"] for stage in ("read", "compile", "load", "prepare")))
        return x["median_ms"]

    for _ in range(a.rounds):
        for system in [*ours, *peers]:
            if system in failed:
                continue
            try:
                times.setdefault(system, []).append(turn(system))
            except Failed as e:
                failed[system] = str(e)[:300]
    for peer in peers.values():
        peer.close()
    for system in list(times):
        if system in failed:
            del times[system]
    ratios = {}
    for mine in ours:
        for theirs in ("ort", "torch"):
            if mine in times and theirs in times:
                ratios[f"{mine}/{theirs}"] = statistics.median(m / t for m, t in zip(times[mine], times[theirs]))
    return {
        "median_ms": {k: statistics.median(v) for k, v in times.items()},
        "spread": {k: max(v) / min(v) for k, v in times.items()},
        "load_ms": {k: statistics.median(v) for k, v in loads.items()},
        "ratios": ratios,
        "failed": failed,
    }


def memory(files, a):
    """The peak resident memory, in MiB, of a process that loads a network and evaluates it once."""
    peak = lambda *command: float(run([sys.executable, "-S", "-E", HERE / "peak.py", *command], a.threads[0]).split()[-1])
    report = {}
    ways = {kind: [FERRANE, "run", getattr(files, kind), *files.inputs()] for kind in a.kinds}
    ways |= {s: [sys.executable, HERE / "peer.py", s, files.onnx if s == "ort" else files.pt, files.npz] for s in ("ort", "torch")}
    for system, command in ways.items():
        try:
            report[system] = peak(*command)
        except (Failed, ValueError):
            report[system] = None
    return report


# The report


def geometric(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def row(*cells):
    return "| " + " | ".join(str(c) for c in cells) + " |"


def difference(x):
    if x is None:
        return "–"
    if "difference" not in x:
        return "**fails**"
    text = f"{x['difference']:.1e}" if math.isfinite(x["difference"]) else "not finite"
    return text if x["passed"] else f"**{text}**"


def number(x, form="{:.2f}"):
    return "–" if x is None else form.format(x)


def correctness_table(results):
    lines = [row("network", "`.mlpackage` fp32", "`.mlpackage` fp16", "`.onnx`", "`.onnx` against `.mlpackage`", "ONNX Runtime", "PyTorch fp16"), row("---", *["---:"] * 6)]
    for name, x in results.items():
        c = x["check"]
        lines.append(row(f"`{name}`", *(difference(c.get(k)) for k in ("fp32", "fp16", "onnx", "both", "ort", "half"))))
    counted = [f"{sum(x['check'][k]['passed'] for x in results.values())} of {len(results)}" for k in ("fp32", "fp16", "onnx")]
    both = [x["check"]["both"]["passed"] for x in results.values() if "both" in x["check"]]
    lines.append(row("within the limit", *counted, f"{sum(both)} of {len(both)}", f"{sum(x['check']['ort']['passed'] for x in results.values())} of {len(results)}", ""))
    failures = [(n, k, c["failed"]) for n, x in results.items() for k, c in x["check"].items() if "failed" in c]
    if failures:
        lines += ["", "What the failing ones say:", ""]
        lines += [f"- `{n}`, {k}: {said.replace(str(WORK), '').replace('|', '/')}" for n, k, said in failures]
    return "\n".join(lines)


def speed_table(results, threads, kinds):
    key = f"speed_{threads}"
    pairs = [f"{kind}/{peer}" for kind in kinds for peer in ("ort", "torch")]
    title = {"ort": "ONNX Runtime", "torch": "PyTorch", "fp32": "fp32", "fp16": "fp16", "onnx": "`.onnx`"}
    heads = [f"{title[p.split('/')[0]]} / {title[p.split('/')[1]]}" for p in pairs]
    lines = [row("network", *(f"{title[k]}, ms" for k in kinds), "ONNX Runtime, ms", "PyTorch, ms", *heads), row("---", *["---:"] * (len(kinds) + 2 + len(pairs)))]
    timed = {n: x[key] for n, x in results.items() if key in x}
    for name, x in timed.items():
        lines.append(row(f"`{name}`", *(number(x["median_ms"].get(k), "{:.1f}") for k in [*kinds, "ort", "torch"]), *(number(x["ratios"].get(p)) for p in pairs)))
    means = [number(geometric(x["ratios"][p] for x in timed.values() if p in x["ratios"])) for p in pairs]
    lines.append(row("geometric mean", *[""] * (len(kinds) + 2), *means))
    return "\n".join(lines)


def cost_table(results, threads, kinds, part):
    """Load times or peaks of memory. Loading in PyTorch is mostly the import of the network's source."""
    systems = [*kinds, "ort"] + (["torch"] if part == "memory" else [])
    title = {"ort": "ONNX Runtime", "torch": "PyTorch"}
    lines = [row("network", *(title.get(s, f"Ferrane {s}") for s in systems)), row("---", *["---:"] * len(systems))]
    for name, x in results.items():
        found = x.get("memory") if part == "memory" else x.get(f"speed_{threads}", {}).get("load_ms")
        if found:
            lines.append(row(f"`{name}`", *(number(found.get(s), "{:.0f}") for s in systems)))
    return "\n".join(lines)


def tables(results, a):
    made = {}
    if any("check" in x for x in results.values()):
        made["correctness"] = correctness_table({n: x for n, x in results.items() if "check" in x})
    for threads in a.threads:
        if any(f"speed_{threads}" in x for x in results.values()):
            made[f"speed-{threads}"] = speed_table(results, threads, a.kinds)
    if any(f"speed_{a.threads[0]}" in x for x in results.values()):
        made["load"] = cost_table(results, a.threads[0], a.kinds, "load")
    if any("memory" in x for x in results.values()):
        made["memory"] = cost_table(results, a.threads[0], a.kinds, "memory")
    return made


def write_page(path, made, versions):
    """Replaces the tables of a page, each between `<!-- NAME -->` and `<!-- end -->`; appends a new one."""
    text = path.read_text()
    titles = {"correctness": "Numbers", "load": "Load times in milliseconds", "memory": "Peak memory in MiB"}
    for name, table in made.items():
        title = titles.get(name) or f"Speed, threads: {name.removeprefix('speed-')}"
        if f"<!-- {name} -->" not in text:
            text += f"\n## {title}\n\n<!-- {name} -->\n<!-- end -->\n"
        if name.startswith("speed"):
            table = f"{versions}\n\n{table}"
        text = re.sub(rf"(<!-- {name} -->\n).*?(<!-- end -->)", lambda m: f"{m[1]}{table}\n{m[2]}", text, flags=re.S)
    path.write_text(text)


def processor():
    try:
        return re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())[1]
    except (OSError, TypeError):
        return platform.processor() or platform.machine()


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", action="append", metavar="NAME", help="only this network, timed even if it has no star in --list; may be repeated")
    p.add_argument("--part", action="append", choices=["check", "speed", "memory"], help="only this part; may be repeated")
    p.add_argument("--rounds", type=int, default=5, help="turns of each program [default: 5]")
    p.add_argument("--seconds", type=float, default=1.0, help="seconds of a turn of ONNX Runtime and PyTorch [default: 1]")
    p.add_argument("--threads", type=int, action="append", help="threads of every program [default: 2]; may be repeated")
    p.add_argument("--kinds", default="fp32,fp16", help="what Ferrane is timed with, of fp32, fp16 and onnx [default: fp32,fp16]")
    p.add_argument("--numerics", default="fast", choices=["fast", "exact"], help="Ferrane's arithmetic in the comparison of numbers")
    p.add_argument("--quick", action="store_true", help=f"2 rounds of {' and '.join(QUICK)}: a test of the script")
    p.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all results into this file")
    p.add_argument("--page", type=pathlib.Path, metavar="FILE", help="put the tables into this page (docs/zoo.md)")
    p.add_argument("--list", action="store_true", help="print the names of the networks; timed ones have a star")
    p.add_argument("--make-only", action="store_true", help="make the networks and stop")
    a = p.parse_args()
    a.threads, a.kinds, a.parts = a.threads or [2], a.kinds.split(","), a.part or ["check", "speed", "memory"]
    if a.quick:
        a.rounds, a.only = 2, a.only or QUICK
    if unknown := set(a.kinds) - {"fp32", "fp16", "onnx"}:
        p.error(f"--kinds: unknown kind {', '.join(sorted(unknown))}")
    return a


def networks():
    """The names of all networks, and whether each is timed. Read from the source, since a listing needs no PyTorch."""
    source = (HERE / "nets.py").read_text()
    table = source[source.index("\nNETS = {") : source.index("\n}\n", source.index("\nNETS = {"))]
    entries = re.split(r'\n    "(\w+)": ', table)[1:]
    return {name: bool(re.search(r"True,?\s*\),?\s*$", text)) for name, text in zip(entries[::2], entries[1::2])}


def measure(name, files, timed, a):
    result = {}
    if "check" in a.parts:
        result["check"] = check(files, a)
        print(f"{name:22}", *(f"{k} {difference(v)}" for k, v in result["check"].items()), flush=True)
    for threads in a.threads if timed and "speed" in a.parts else []:
        result[f"speed_{threads}"] = x = speed(files, a, threads)
        said = [f"{k} {v:.1f} ms" for k, v in x["median_ms"].items()] + [f"{k} {v:.2f}" for k, v in x["ratios"].items()]
        print(f"{name:22} {threads} threads:", ", ".join(said + [f"{k} fails: {v}" for k, v in x["failed"].items()]), flush=True)
    if timed and "memory" in a.parts:
        result["memory"] = memory(files, a)
        print(f"{name:22} peak:", ", ".join(f"{k} {number(v, '{:.0f}')} MiB" for k, v in result["memory"].items()), flush=True)
    return result


def main():
    a = options()
    known = networks()
    if a.list:
        print("\n".join(f"{name}{' *' * timed}" for name, timed in known.items()))
        return 0
    names = a.only or list(known)
    if unknown := [n for n in names if n not in known]:
        raise SystemExit(f"unknown network {', '.join(unknown)}; --list prints their names")
    if a.part and "check" not in a.part and not a.only:
        names = [n for n in names if known[n]]
    (WORK / "models").mkdir(parents=True, exist_ok=True)
    made = subprocess.run([sys.executable, str(HERE / "make.py"), str(WORK / "models"), *names], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for line in made.stdout.splitlines():
        report = json.loads(line)
        for kind, said in report["failed"].items():
            print(f"{report['name']}: {kind} cannot be made: {said}", flush=True)
    if a.make_only:
        return made.returncode
    results = {}
    for name in names:
        files = Files(name)
        if not files.npz.exists():
            print(f"{name}: left out, PyTorch cannot run it")
            continue
        # A network that was asked for by name is timed in any case.
        results[name] = measure(name, files, known[name] or name in (a.only or []), a)
    found = tables(results, a)
    for title, table in found.items():
        print(f"\n{title}\n\n{table}")
    versions = subprocess.run([sys.executable, str(HERE / "versions.py")], capture_output=True, text=True).stdout.strip()
    facts = f"{processor()}, {os.cpu_count()} logical processors, {platform.system()}; {versions}."
    if a.json:
        a.json.write_text(json.dumps({"machine": facts, "rounds": a.rounds, "networks": results}, indent=1))
    if a.page:
        write_page(a.page, found, facts)
    checks = [c for x in results.values() for k, c in x.get("check", {}).items() if k not in ("ort", "half")]
    return 0 if all(c["passed"] for c in checks) else 1


if __name__ == "__main__":
    # A reader such as `head` may close the output early.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())
