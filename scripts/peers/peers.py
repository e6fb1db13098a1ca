#!/usr/bin/env python3
"""Compares Ferrane with other programs ("peers") in turn, A B A B …; scripts/bench-peers.sh calls it.

Each turn is a process of its own that warms up, repeats and reports its median. A ratio is Ferrane's
time over the peer's in the same round (of speeds, the peer's over Ferrane's), so below 1 Ferrane is
faster. The table has the median, lowest and highest ratio of all rounds, and the medians of both.
Peers compute in fp32 unless a row says otherwise, with random weights that are not 0, on as many
threads as Ferrane.
"""
import argparse, json, os, pathlib, platform, shutil, statistics, subprocess, sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WORK = pathlib.Path(os.environ.get("PEERS", ROOT / "target" / "bench-peers"))
FERRANE = os.environ.get("FERRANE", str(ROOT / "target" / "release" / "ferrane"))
# Vocabulary in use: that of docs/performance.md.
MODELS = {"stories260k": 512, "stories15m": 9216, "stories110m": 9216, "qwen3-0.6b": 9216}
SHAPES = ["256x768x768", "256x768x2048", "256x2048x768", "256x768x9216", "768x256x2048:tn", "12*256x64x256:nt", "12*256x256x64", "1x768x2048:nt"]


class LeftOut(Exception):
    """A comparison that cannot be made here, and why."""


def run(command, threads, timeout=900):
    """The JSON object on the last line of a command's output."""
    environment = dict(os.environ, RAYON_NUM_THREADS=str(threads), OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads))
    try:
        done = subprocess.run([str(c) for c in command], env=environment, capture_output=True, text=True, timeout=timeout, cwd=ROOT)
    except FileNotFoundError:
        raise LeftOut(f"{command[0]}: no such program")
    except subprocess.TimeoutExpired:
        raise LeftOut(f"{pathlib.Path(str(command[0])).name} {command[1]} took more than {timeout} s")
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()
        raise LeftOut(f"{' '.join(str(c) for c in command[:4])}: {said[-1] if 'Error' in said[-1] else said[0]}")
    try:
        return json.loads(lines[-1])
    except json.JSONDecodeError:
        raise LeftOut(f"{command[0]}: no JSON in its output: {lines[-1][:80]}")


def ferrane(*words):
    return [FERRANE, *words, "--json"]


def python(script, *words):
    return [sys.executable, HERE / script, *words]


def need(module):
    if subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True).returncode != 0:
        raise LeftOut(f"the Python module {module} is not there")


def rate(what):
    """`decode_tokens_per_second` of an answer, or the median of the spread that `ferrane bench llm` reports."""
    field = "tokens_per_second"
    return lambda x: x[f"{what}_{field}"] if f"{what}_{field}" in x else x["runs"][0][what][f"median_{field}"]


def made(name, make):
    """A file in the work folder, made once: `make` writes it under another name."""
    WORK.mkdir(parents=True, exist_ok=True)
    path = WORK / name
    if not path.exists():
        half = WORK / ("half-" + name)
        if half.is_dir():
            shutil.rmtree(half)
        make(half)
        half.rename(path)
    return path


# Each comparison returns (name, ours, theirs, rows): two commands, and for each row its name, unit
# and the numbers in both answers.


def step(a, compiled=False):
    need("torch")
    models = list(MODELS)[:2] if a.quick else MODELS
    peer = "compiled PyTorch" if compiled else "PyTorch"
    for model in [m for m in a.models or models if m in MODELS]:
        words = ["--model", model, "--vocab", str(MODELS[model])]
        # Short steps need more of them: a processor takes tens of milliseconds to settle on a
        # clock.
        repeat = ["--repeat", "3" if a.quick else {"stories260k": "100", "stories15m": "20", "qwen3-0.6b": "3"}.get(model, "7")]
        theirs = python("torch_baseline.py", "--threads", a.threads, "step", *words, "--steps", repeat[1], "--json", *["--compile"] * compiled)
        yield model, ferrane("bench", "step", *words, *repeat), theirs, [
            (f"step {model}: forward and backward, {peer}", "ms", lambda x: x["micro_step_ms"], lambda x: x["forward_backward_ms"]),
            (f"step {model}: with one update, {peer}", "ms", lambda x: x["micro_step_ms"] + x["update_ms"], lambda x: x["forward_backward_ms"] + x["update_ms"]),
            (f"step {model}: the update alone, {peer}", "ms", lambda x: x["update_ms"], lambda x: x["update_ms"]),
        ]


def compiled(a):
    if shutil.which("c++") is None and shutil.which("g++") is None:
        raise LeftOut("torch.compile needs a C++ compiler")
    yield from step(a, compiled=True)


def gemm(a):
    need("torch")
    shapes = SHAPES[:2] + SHAPES[-1:] if a.quick else SHAPES
    words = [word for shape in shapes for word in ("--shape", shape)]
    find = lambda shape: lambda x: next(p["median_ms"] for p in x["products"] if p["shape"] == shape)
    rows = [(f"gemm {shape} fp32, torch.mm", "ms", find(shape), find(shape)) for shape in shapes]
    yield "gemm", ferrane("bench", "gemm", "--type", "fp32", *words), python("torch_mm.py", "--threads", a.threads, *shapes), rows


# Shapes that generation is measured with.
DECODED = ["stories110m", "qwen2.5-0.5b"]


def decode(a):
    need("llama_cpp")
    need("gguf")
    prompt, tokens = ("64", "16") if a.quick else ("512", "64")
    shapes = [m for m in a.models or DECODED[: 1 if a.quick else None] if m in DECODED]
    for shape in shapes:
        for ours, theirs in (("fp16", "f16"), ("int8", "q8_0"), ("int4", "q4_0")):
            model = made(f"{shape}-{theirs}.gguf", lambda half: check([*python("gguf_random.py", half, theirs, shape)]))
            words = ["--prompt", prompt, "--tokens", tokens]
            yield f"{shape} {theirs}", ferrane("bench", "llm", shape, "--type", ours, *words), python("llamacpp_decode.py", model, "--threads", a.threads, *words, "--json"), [
                (f"{what} {shape} {ours}, llama.cpp {theirs.upper()}", "tokens/s", rate(what), rate(what)) for what in ("decode", "prefill")
            ]


def block(a):
    need("onnxruntime")
    script = ROOT / "scripts" / "export_block.py"
    if not script.exists():
        raise LeftOut("scripts/export_block.py is not there")
    folder = made("block", lambda half: check([sys.executable, script, half]))
    both = lambda x: x["median_ms"]
    for threads in (1, 2):
        if threads > (os.cpu_count() or 1):
            continue
        a.set_threads = threads
        ours = ferrane("bench", "program", folder / "block.mlpackage")
        yield f"block {threads}", ours, python("ort_block.py", folder / "block.onnx", "--threads", threads), [
            (f"transformer block, {threads} thread{'s' * (threads > 1)}, onnxruntime", "ms", both, both)
        ]
    a.set_threads = None


def llama2c(a):
    if not os.environ.get("LLAMA2C"):
        raise LeftOut("set LLAMA2C to llama2.c's program `run`; no registry has it")
    need("numpy")
    folder = made("llama2c", lambda half: check(python("llama2c_random.py", half, "stories15m" if a.quick else "stories110m")))
    words = ["--prompt", "1", "--tokens", "32" if a.quick else "128"]
    name = "stories15m" if a.quick else "stories110m"
    yield "llama2c", ferrane("bench", "llm", name, "--type", "fp16", *words), python("llama2c_random.py", folder, "--run", words[-1]), [
        (f"decode {name} fp16, llama2.c fp32", "tokens/s", rate("decode"), rate("decode"))
    ]


def candle(a):
    need("gguf")
    if shutil.which("cargo") is None:
        raise LeftOut("cargo is not there")
    program = WORK / "candle" / "target" / "release" / "candle-decode"
    if not program.exists():
        source = WORK / "candle"
        shutil.copytree(HERE / "candle", source, dirs_exist_ok=True)
        environment = dict(os.environ, CARGO_TARGET_DIR=str(source / "target"), RUSTFLAGS="-C target-cpu=native")
        done = subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=source, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise LeftOut(f"candle does not build: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    model = made("stories110m-q8_0.gguf", lambda half: check(python("gguf_random.py", half, "q8_0")))
    prompt, tokens = ("64", "16") if a.quick else ("256", "64")
    yield "candle", ferrane("bench", "llm", "stories110m", "--type", "int8", "--prompt", prompt, "--tokens", tokens), [program, model, prompt, tokens], [
        (f"{what} stories110m int8, candle Q8_0", "tokens/s", rate(what), rate(what)) for what in ("decode", "prefill")
    ]


COMPARISONS = {"step": step, "compiled": compiled, "gemm": gemm, "decode": decode, "block": block, "llama2c": llama2c, "candle": candle}
# Others are large or need a file that no registry has.
DEFAULT = ["step", "compiled", "gemm", "decode", "block", "llama2c"]


def check(command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=ROOT)
    if done.returncode != 0:
        raise LeftOut(f"{command[1]}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")


def compare(name, ours, theirs, rows, a, threads):
    """Rounds of both, and a result for each row."""
    answers = []
    for i in range(a.rounds):
        note(f"{name}: round {i + 1} of {a.rounds}")
        answers.append((run(ours, threads), run(theirs, threads)))
    for row, unit, of_ours, of_theirs in rows:
        pairs = [(of_ours(x), of_theirs(y)) for x, y in answers]
        if any(not (x > 0 and y > 0) for x, y in pairs):
            raise LeftOut(f"{row}: a number that is not above 0")
        ratios = [y / x if unit.endswith("/s") else x / y for x, y in pairs]
        middle = lambda values: {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}
        yield {"name": row, "unit": unit, "threads": threads, "rounds": a.rounds, "ratio": middle(ratios), "ferrane": middle([p[0] for p in pairs]), "peer": middle([p[1] for p in pairs])}


def note(text):
    print(text, file=sys.stderr, flush=True)


def short(x):
    return f"{x:.0f}" if x >= 100 else f"{x:.3g}"


def table(rows, left_out):
    width = max([len(r["name"]) for r in rows] + [10])
    print(f"{'':{width}}  ratio  (lowest to highest)  Ferrane      peer")
    for r in rows:
        ratio, unit = r["ratio"], r["unit"]
        print(f"{r['name']:{width}}  {ratio['median']:5.2f}  ({ratio['lowest']:.2f} to {ratio['highest']:.2f}){'':8} {short(r['ferrane']['median']):>8} {short(r['peer']['median']):>9} {unit}")
    for name, why in left_out.items():
        print(f"{name}: left out: {why}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", action="append", choices=COMPARISONS, help="this comparison; several times for several")
    p.add_argument("--model", action="append", dest="models", choices=[*MODELS, "qwen2.5-0.5b"], help="for step and decode: this model only")
    p.add_argument("--rounds", type=int, help="turns of both sides (5; with --quick 2)")
    p.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1), help="of both sides (2)")
    p.add_argument("--quick", action="store_true", help="small models, few shapes")
    p.add_argument("--json", metavar="FILE", help="write all numbers; `-` prints them in place of the table")
    p.add_argument("--list", action="store_true", help="name the comparisons and end")
    a = p.parse_args()
    if a.list:
        for name in COMPARISONS:
            print(name if name in DEFAULT else f"{name} (with --only)")
        return 0
    a.rounds = a.rounds if a.rounds is not None else (2 if a.quick else 5)
    if not (1 <= a.rounds <= 100 and 1 <= a.threads <= 1024):
        p.error("--rounds is 1 to 100, --threads 1 to 1024")
    a.set_threads = None
    rows, left_out = [], {}
    for name in a.only or DEFAULT:
        try:
            for part, ours, theirs, wanted in COMPARISONS[name](a):
                threads = a.set_threads or a.threads
                try:
                    rows.extend(compare(part, ours, theirs, wanted, a, threads))
                except (LeftOut, KeyError, StopIteration) as why:
                    left_out[f"{name} {part}" if part != name else name] = f"no field {why}" if isinstance(why, KeyError) else str(why)
        except LeftOut as why:
            left_out[name] = str(why)
    versions = {}
    for module in ("torch", "onnxruntime", "llama_cpp"):
        done = subprocess.run([sys.executable, "-c", f"import {module}; print({module}.__version__)"], capture_output=True, text=True)
        if done.returncode == 0:
            versions[module] = done.stdout.strip().splitlines()[-1]
    machine = run(ferrane("bench", "dispatch", "--repeat", "1"), a.threads).get("machine")
    report = json.dumps({"machine": machine, "system": platform.platform(), "peers": versions, "comparisons": rows, "left_out": left_out})
    if a.json == "-":
        print(report)
    else:
        table(rows, left_out)
        if a.json:
            pathlib.Path(a.json).write_text(report + "\n")
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
