"""Trains a tiny story model with the command for a few updates, and lets it continue a text."""

import subprocess
import sys
import tempfile

from ferrane import llm

with tempfile.TemporaryDirectory() as folder:
    options = ["--steps", "20", "--eval-every", "0", "--out", folder]
    subprocess.run([sys.executable, "-m", "ferrane", "train", *options], check=True, stdout=subprocess.DEVNULL)
    model = llm.Model(folder)
    for piece in model.stream("One day", tokens=20, temperature=0.8, seed=1):
        print(piece, end="", flush=True)
    print()
