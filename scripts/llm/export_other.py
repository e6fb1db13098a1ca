#!/usr/bin/env python3
"""Exports models for other programs, and compares what these compute with Ferrane and with an implementation of its own.

Usage: export_other.py FERRANE [FOLDER|VOCABULARY...]

Needs numpy, and any of transformers, peft, gguf and llama_cpp; checks of what is not installed are left out. Small runs of
`ferrane train` are made in a temporary folder: with tied and untied classifiers, compacted and full vocabularies,
and an adapter. FOLDER is a Hugging Face folder, which is exported too. VOCABULARY is a file of a tokenizer, which a model of one update
gets; its ids in transformers and llama.cpp are compared.

- The folder in transformers: fp32 logits against a forward pass in fp64 here, which reads Ferrane's own file; ids of texts against an
  encoder here; greedy text against `ferrane generate`.
- The GGUF file: fp16 and q8_0 against fp32 in the package gguf; ids and greedy text in llama.cpp.
- A folder from the GGUF file, and an fp16 folder from the folder: the weights, and of the first one all that is compared above.

One line a check; the exit status is 1 if one fails.
"""

import importlib
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy

TEXTS = ["Once upon a time, there was a little girl.", "  two spaces\nand a line\n", "naïve café – 北京 🙂", "don't STOP 1234",
         "a", "aaaaaaa aaab", "Mia's cat; it's \"big\".", "\t\ttabs <unknown> and {braces}"]
PROMPTS = ["Once upon a time", "The cat", "One day, a dog"]
STEPS = 40


def found(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


torch, transformers, peft, gguf, llama_cpp = (found(n) for n in ("torch", "transformers", "peft", "gguf", "llama_cpp"))
failed = []


def check(what, fine, detail=""):
    print(f"{'ok  ' if fine else 'FAIL'} {what}{': ' if detail else ''}{detail}", flush=True)
    if not fine:
        failed.append(what)


def ferrane(*words):
    done = subprocess.run([FERRANE, *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"ferrane {' '.join(map(str, words))}: {done.stderr}")
    return done.stdout


def safetensors(path):
    """The tensors of a file in fp32, by name, and the metadata."""
    data = pathlib.Path(path).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        kind = {"F32": "<f4", "F16": "<f2"}[entry["dtype"]]
        tensors[name] = numpy.frombuffer(data[begin:end], kind).astype(numpy.float32).reshape(entry["shape"])
    return tensors, metadata


def forward(run, ids):
    """The logits of a run in fp64, from its own file and with the rotation of its own configuration."""
    newest = sorted(pathlib.Path(run).glob("step-*"))[-1]
    tensors, metadata = safetensors(newest / "model.safetensors")
    config = json.loads(next(value for value in metadata.values() if "head_dim" in value))
    w = {name: value.astype(numpy.float64) for name, value in tensors.items()}
    dim, heads, kv, size = config["dim"], config["heads"], config["kv_heads"], config["head_dim"]
    scale, count = config["residual_scale"], len(ids)

    def norm(x, gain):
        return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + config["norm_eps"]) * gain

    def rotate(x):
        pairs = numpy.arange(size // 2)
        angle = numpy.arange(count)[:, None] * float(config["rope"]["base"]) ** (-2.0 * pairs / size)
        cos, sin = numpy.cos(angle)[:, None], numpy.sin(angle)[:, None]
        out = numpy.empty_like(x)
        if config["rope"]["style"] == "interleaved":
            first, second = (slice(0, None, 2), slice(1, None, 2))
        else:
            first, second = (slice(0, size // 2), slice(size // 2, None))
        a, b = x[..., first], x[..., second]
        out[..., first], out[..., second] = a * cos - b * sin, a * sin + b * cos
        return out

    x = w["embed"][ids]
    for at in range(config["layers"]):
        part = lambda name: w[f"layers.{at}.{name}"]
        h = norm(x, part("attn_norm"))
        q = rotate((h @ part("wq").T).reshape(count, heads, size))
        k = rotate((h @ part("wk").T).reshape(count, kv, size)).repeat(heads // kv, 1)
        v = (h @ part("wv").T).reshape(count, kv, size).repeat(heads // kv, 1)
        scores = numpy.einsum("ihd,jhd->hij", q, k) / numpy.sqrt(size)
        scores = numpy.where(numpy.tril(numpy.ones((count, count), bool)), scores, -numpy.inf)
        weights = numpy.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        x = x + scale * numpy.einsum("hij,jhd->ihd", weights, v).reshape(count, heads * size) @ part("wo").T
        h = norm(x, part("ffn_norm"))
        gate = h @ part("w1").T
        x = x + scale * (gate / (1 + numpy.exp(-gate)) * (h @ part("w3").T)) @ part("w2").T
    return norm(x, w["norm"]) @ w.get("classifier", w["embed"]).T


def vocabulary(path):
    """The pieces and scores of a tokenizer.bin."""
    data, at, pieces = pathlib.Path(path).read_bytes(), 4, []
    while at < len(data):
        score, length = struct.unpack("<fi", data[at:at + 8])
        pieces.append((data[at + 8:at + 8 + length], score))
        at += 8 + length
    return pieces


def encode(pieces, text):
    """The ids of a text as llama2.c computes them, without the begin piece."""
    ids = {}
    for at, (piece, _) in enumerate(pieces):
        ids.setdefault(piece, at)
    out = []
    for letter in " " + text if text else "":
        piece = letter.encode()
        out += [ids[piece]] if piece in ids else [ids[b"<0x%02X>" % byte] for byte in piece]
    while True:
        best = (-1e10, None)
        for at in range(len(out) - 1):
            merged = ids.get(pieces[out[at]][0] + pieces[out[at + 1]][0])
            if merged is not None and pieces[merged][1] > best[0]:
                best = (pieces[merged][1], (at, merged))
        if best[1] is None:
            return out
        at, merged = best[1]
        out[at:at + 2] = [merged]


def generated(model, prompt, more=()):
    """Greedy text of Ferrane's fp32 reference, with the prompt."""
    return ferrane("generate", "--checkpoint", model, "--prompt", prompt, "--steps", STEPS, "--temperature", 0, "--device",
                   "reference", *more).rstrip("\n")


def same_text(ours, theirs):
    """Whether one text continues the other: the programs count tokens differently."""
    short, long = sorted((ours.strip(), theirs.strip()), key=len)
    return len(short) > 20 and long.startswith(short)


def difference(a, b):
    return float(numpy.abs(numpy.asarray(a, numpy.float64) - numpy.asarray(b, numpy.float64)).max())


def loaded(folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return tokenizer, transformers.AutoModelForCausalLM.from_pretrained(folder, torch_dtype="auto").eval()


def logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].double().numpy()


def in_transformers(name, folder, source, oracle, ids_of, more=()):
    """Compares a folder with its source; returns the largest difference of logits."""
    tokenizer, model = loaded(folder)
    check(f"{name}: transformers loads a fast tokenizer", tokenizer.is_fast, type(tokenizer).__name__)
    wrong = [text for text in TEXTS if tokenizer(text).input_ids != ids_of(text)]
    check(f"{name}: ids of {len(TEXTS)} texts in transformers", not wrong, repr(wrong) if wrong else "equal")
    worst = max(difference(logits(model, ids), oracle(ids)) for ids in map(ids_of, TEXTS) if ids)
    check(f"{name}: fp32 logits in transformers", worst <= 1e-4, f"|difference| <= {worst:.1e}")
    for prompt in PROMPTS:
        start = tokenizer(prompt, return_tensors="pt")
        out = model.generate(**start, do_sample=False, max_new_tokens=STEPS - start.input_ids.shape[1])
        theirs, ours = tokenizer.decode(out[0], skip_special_tokens=True), generated(source, prompt, more)
        check(f"{name}: greedy text in transformers", same_text(ours, theirs), repr(theirs[:60]) if same_text(ours, theirs) else f"{ours!r} {theirs!r}")


def in_llama_cpp(name, path, source, ids_of, more=(), texts=TEXTS):
    model = llama_cpp.Llama(str(path), n_ctx=256, verbose=False)
    wrong = [text for text in texts if model.tokenize(text.encode(), add_bos=True, special=False) != ids_of(text)]
    check(f"{name}: ids of {len(texts)} texts in llama.cpp", not wrong, repr(wrong) if wrong else "equal")
    for prompt in PROMPTS:
        room = STEPS - len(ids_of(prompt))
        theirs = prompt + model(prompt, max_tokens=room, temperature=0, top_k=1, repeat_penalty=1)["choices"][0]["text"]
        ours = generated(source, prompt, more)
        check(f"{name}: greedy text in llama.cpp", same_text(ours, theirs), repr(theirs[:60]) if same_text(ours, theirs) else f"{ours!r} {theirs!r}")


def weights(path):
    """The tensors of a GGUF file in fp32, by name."""
    return {t.name: gguf.dequantize(t.data, t.tensor_type) for t in gguf.GGUFReader(str(path)).tensors}


def compare(work, name, source, oracle, ids_of, more=()):
    """Exports a model in every form and compares."""
    folder, file, again = work / f"{name}-hf", work / f"{name}.gguf", work / f"{name}-again"
    ferrane("export", source, "-o", folder, "--weights", "fp32", *more)
    ferrane("export", source, "-o", file, "--weights", "fp32", *more)
    ferrane("export", file, "-o", again, "--weights", "fp32")
    for form, target in (("of the GGUF file", again), ("fp16", work / f"{name}-fp16")):
        if form == "fp16":
            ferrane("export", folder, "-o", target, "--weights", "fp16")
        ours, theirs = (safetensors(where / "model.safetensors")[0] for where in (folder, target))
        worst = max(difference(ours[key], theirs[key]) for key in ours)
        bound = 0 if form != "fp16" else max(float(numpy.abs(value).max()) for value in ours.values()) * 2 ** -11
        check(f"{name}: the folder {form} has the weights of the folder", ours.keys() == theirs.keys() and worst <= bound, f"|difference| <= {worst:.1e}")
    if transformers:
        in_transformers(name, folder, source, oracle, ids_of, more)
        in_transformers(f"{name}, by way of GGUF", again, source, oracle, ids_of, more)
    forms = {"fp32": file}
    for form in ("fp16", "q8_0"):
        forms[form] = work / f"{name}-{form}.gguf"
        ferrane("export", source, "-o", forms[form], "--weights", form, *more)
    if gguf:
        exact = weights(file)
        for form, bound in (("fp16", 2 ** -10), ("q8_0", 2 ** -7)):
            rounded = weights(forms[form])
            worst = max(difference(rounded[key], exact[key]) / max(1e-9, float(numpy.abs(exact[key]).max())) for key in exact)
            check(f"{name}: {form} in the package gguf", rounded.keys() == exact.keys() and worst <= bound, f"{len(exact)} tensors, relative difference <= {worst:.1e}")
    if llama_cpp:
        in_llama_cpp(name, file, source, ids_of, more)
        in_llama_cpp(f"{name}, fp16", forms["fp16"], forms["fp16"], ids_of)


def runs(work):
    """Trains and compares small models."""
    ferrane("train", "--steps", 400, "--out", work / "tied")
    text, pieces = work / "tied" / "stories.txt", vocabulary(work / "tied" / "tokenizer.bin")
    ids_of = lambda text: [1] + encode(pieces, text)
    of = lambda run: lambda ids: forward(run, ids)
    compare(work, "tied", work / "tied", of(work / "tied"), ids_of)
    fields = {"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2,
              "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": len(pieces), "max_position_embeddings": 256,
              "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False}
    (work / "small").mkdir()
    (work / "small" / "config.json").write_text(json.dumps(fields))
    common = ["--model", work / "small", "--tokenizer", work / "tied" / "tokenizer.bin", "--data", text, "--steps", 300]
    for name, more in (("untied", ["--vocabulary", "full"]), ("untied-compact", ["--vocabulary", "compact"])):
        ferrane("train", *common, "--out", work / name, *more)
        compare(work, name, work / name, of(work / name), ids_of)
    if transformers and peft:
        base, adapter = work / "untied-hf", work / "adapter"
        ferrane("train", "--init", base, "--data", text, "--steps", 60, "--lora", 4, "--lr", 5e-3, "--out", adapter)
        inner = transformers.AutoModelForCausalLM.from_pretrained(base, torch_dtype="auto")
        adapted = peft.PeftModel.from_pretrained(inner, sorted(adapter.glob("step-*"))[-1]).eval()
        # The folder's tokenizer.json has no scores, which a GGUF file needs.
        more = ["--lora", adapter, "--tokenizer", work / "tied" / "tokenizer.bin"]
        compare(work, "adapter", base, lambda ids: logits(adapted, ids), ids_of, more)


def folder(work, path):
    """Compares the export of a Hugging Face folder with the folder."""
    tokenizer, model = loaded(path)
    compare(work, path.name, path, lambda ids: logits(model.float(), ids), lambda text: tokenizer(text).input_ids)


def other_vocabulary(work, path):
    """Compares the ids of a vocabulary in transformers and llama.cpp."""
    name, text = path.name.replace(".", "-"), work / "tied" / "stories.txt"
    fields = {"architectures": ["LlamaForCausalLM"], "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
              "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 1 << 18, "max_position_embeddings": 1 << 12,
              "rms_norm_eps": 1e-5, "tie_word_embeddings": True}
    model, run = work / f"{name}-model", work / f"{name}-run"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(fields))
    ferrane("train", "--model", model, "--tokenizer", path, "--data", text, "--steps", 1, "--accum", 1, "--seq", 32, "--eval-windows",
            0, "--out", run)
    ferrane("export", run, "-o", work / f"{name}-hf")
    ferrane("export", run, "-o", work / f"{name}.gguf")
    if transformers and llama_cpp:
        tokenizer = transformers.AutoTokenizer.from_pretrained(work / f"{name}-hf")
        file = llama_cpp.Llama(str(work / f"{name}.gguf"), vocab_only=True, verbose=False)
        # llama.cpp is asked to read control tokens as text.
        texts = TEXTS + [text.read_text().replace("<|endoftext|>", "")[:2000]]
        pairs = [(tokenizer(text, add_special_tokens=False).input_ids, file.tokenize(text.encode(), add_bos=False, special=False))
                 for text in texts]
        wrong = [text for text, (a, b) in zip(texts, pairs) if a != b]
        check(f"{name}: ids of {len(texts)} texts in transformers and llama.cpp", not wrong, repr(wrong) if wrong else "equal")


def main():
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        runs(work)
        for path in map(pathlib.Path, sys.argv[2:]):
            (folder if path.is_dir() else other_vocabulary)(work, path.resolve())
    print(f"{len(failed)} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    FERRANE = sys.argv[1]
    main()
