"""llama2c_random.py OUT MODEL writes model.bin and tokenizer.bin of a random model for llama2.c; OUT --run N decodes N tokens with
the program that LLAMA2C names and prints its rate as JSON."""
import json, os, pathlib, re, struct, subprocess, sys
import numpy as np

SHAPES = {"stories15m": (288, 768, 6, 6), "stories110m": (768, 2048, 12, 12)}
folder = pathlib.Path(sys.argv[1])
if sys.argv[2] == "--run":
    words = [os.environ["LLAMA2C"], folder / "model.bin", "-t", "0", "-n", sys.argv[3], "-z", folder / "tokenizer.bin"]
    done = subprocess.run([str(w) for w in words], capture_output=True, check=True)
    rate = re.search(rb"achieved tok/s: ([0-9.]+)", done.stderr)
    print(json.dumps({"decode_tokens_per_second": float(rate[1])}))
    sys.exit()
dim, hidden, layers, heads = SHAPES[sys.argv[2]]
vocab, seq = 32000, 1024
rng = np.random.default_rng(0)
folder.mkdir(parents=True)
with open(folder / "model.bin", "wb") as f:
    f.write(struct.pack("7i", dim, hidden, layers, heads, heads, vocab, seq))
    normal = lambda *shape: f.write((rng.standard_normal(shape, dtype=np.float32) * 0.02).tobytes())
    ones = lambda *shape: f.write(np.ones(shape, np.float32).tobytes())
    # The legacy layout: each kind of matrix for all layers, then the unused RoPE tables.
    normal(vocab, dim); ones(layers, dim)
    for _ in range(4):
        normal(layers, dim, dim)
    ones(layers, dim); normal(layers, hidden, dim); normal(layers, dim, hidden); normal(layers, hidden, dim)
    ones(dim); ones(seq, dim // heads)
with open(folder / "tokenizer.bin", "wb") as f:
    words = [b"<unk>", b"\n<s>\n", b"\n</s>\n"] + [b"<0x%02X>" % i for i in range(256)] + [b"t%d" % i for i in range(vocab - 259)]
    f.write(struct.pack("i", max(map(len, words))))
    for word in words:
        f.write(struct.pack("fi", 0.0, len(word)) + word)
