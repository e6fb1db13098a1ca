"""Trains a tiny story model for a few updates, and lets it continue a text."""

import tempfile
from pathlib import Path

from ferrane import llm, train

with tempfile.TemporaryDirectory() as folder:
    out = Path(folder, "run")
    for event in train.Session(out=out, steps=40, seq=64, eval_every=20):
        if event["event"] == "validated":
            print(f"after {event['step']} updates: validation loss {event['loss']:.3f}")
    model = llm.Model(out)
    for piece in model.stream("One day", tokens=20, temperature=0.8, seed=1):
        print(piece, end="", flush=True)
    print()
