"""Trains stories, a language model that writes simple stories, or measures it.

    python gallery/stories.py train      # minutes on two cores; writes the folder stories/
    python gallery/stories.py measure    # its loss for stories that it was not trained on

It needs ferrane, and runs its command: `train` on the corpus that the command generates, then `quantize`.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODEL = HERE / "stories"
STEPS, RATE, LAST_RATE, WINDOW = 7200, 0.003, 0.00005, 384
#: A Llama of 0.4 million parameters. Rows are multiples of 32, the block of 4-bit weights.
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 96,
    "intermediate_size": 192,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "max_position_embeddings": 512,
    "vocab_size": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def ferrane(*arguments):
    subprocess.run([sys.executable, "-m", "ferrane", *map(str, arguments)], check=True)


def train():
    work = Path(tempfile.mkdtemp())
    (work / "config").mkdir()
    (work / "config/config.json").write_text(json.dumps(CONFIG))
    options = ["--steps", STEPS, "--lr", RATE, "--min-lr", LAST_RATE, "--seq", WINDOW, "--seed", 1]
    # The quantized model draws among all ids, so those that the text lacks are trained, too.
    options += ["--vocabulary", "full"]
    ferrane("train", "--model", work / "config", "--out", work / "run", *options)
    # The run trains on the first 95 % of its text and validates on the rest.
    text = (work / "run/stories.txt").read_text()
    stories = text.split("<|endoftext|>\n")
    (work / "seen.txt").write_text("<|endoftext|>\n".join(stories[:400]))
    options = ["--weights", "int4", "--calibrate", work / "seen.txt", "--windows", 256, "--force"]
    ferrane("quantize", work / "run", "-o", MODEL, *options)
    (MODEL / "held-out.txt").write_text("<|endoftext|>\n".join(stories[-16:]))
    shutil.rmtree(work)


if __name__ == "__main__":
    if sys.argv[1:] == ["train"]:
        train()
    ferrane("eval", "--checkpoint", MODEL, "--data", MODEL / "held-out.txt", "--windows", 0)
