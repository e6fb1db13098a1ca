#!/usr/bin/env python3
"""Writes crates/llm/tests/data/sampling.json: distributions after the steps of sampling.

    pip install torch==2.7.1 transformers==4.53.3
    scripts/llm/sampling.py crates/llm/tests/data/sampling.json

`transformers` computes the repetition penalty, the temperature, top-k, top-p and min-p. Presence and frequency
penalties, which it does not have, follow OpenAI's definition, between repetition penalty and temperature.
"""

import json
import random
import sys

import torch
from transformers.generation import logits_process as steps

VOCAB = 24


def distribution(logits, prompt, output, options):
    scores = torch.tensor([logits], dtype=torch.float32)
    for id, bias in options.get("logit_bias", {}).items():
        scores[0, int(id)] += bias
    window = options.get("penalty_window")
    counted = [(id, False) for id in prompt] + [(id, True) for id in output]
    if window is not None:
        counted = counted[len(counted) - min(window, len(counted)):]
    penalty = options.get("repetition_penalty", 1.0)
    if penalty != 1.0 and counted:
        ids = torch.tensor([[id for id, _ in counted]])
        scores = steps.RepetitionPenaltyLogitsProcessor(penalty)(ids, scores)
    for id in {id for id, is_output in counted if is_output}:
        count = sum(1 for other, is_output in counted if is_output and other == id)
        scores[0, id] -= count * options.get("frequency_penalty", 0.0) + options.get("presence_penalty", 0.0)
    warpers = [steps.TemperatureLogitsWarper(float(options.get("temperature", 1.0)))]
    if options.get("top_k"):
        warpers.append(steps.TopKLogitsWarper(options["top_k"]))
    if options.get("top_p", 1.0) < 1.0:
        warpers.append(steps.TopPLogitsWarper(options["top_p"]))
    if options.get("min_p", 0.0) > 0.0:
        warpers.append(steps.MinPLogitsWarper(options["min_p"]))
    for warper in warpers:
        scores = warper(None, scores)
    probabilities = scores.softmax(-1)[0]
    return [[id, float(p)] for id, p in enumerate(probabilities) if p > 0]


def main():
    draw = random.Random(22)
    choices = [
        {},
        {"temperature": 0.7},
        {"top_k": 5},
        {"top_k": 100},
        {"top_p": 0.6},
        {"top_p": 0.0},
        {"min_p": 0.2},
        {"min_p": 1.0},
        {"repetition_penalty": 1.3},
        {"repetition_penalty": 0.8, "penalty_window": 3},
        {"presence_penalty": 0.9},
        {"frequency_penalty": 0.4},
        {"frequency_penalty": -0.3, "presence_penalty": 0.5, "penalty_window": 4},
        {"logit_bias": {"3": 2.5, "7": -100.0, "0": 1.0}},
        {"temperature": 1.4, "top_k": 12, "top_p": 0.85, "min_p": 0.05},
        {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.1},
        {
            "temperature": 0.9, "top_k": 10, "top_p": 0.7, "min_p": 0.1, "repetition_penalty": 1.2,
            "presence_penalty": 0.3, "frequency_penalty": 0.2, "logit_bias": {"5": 1.5},
        },
    ]
    cases = []
    for options in choices:
        for _ in range(2):
            logits = [round(draw.gauss(0, 2), 3) for _ in range(VOCAB)]
            prompt = [draw.randrange(VOCAB) for _ in range(4)]
            output = [draw.randrange(VOCAB) for _ in range(draw.choice([0, 6]))] + prompt[:1] * 2
            found = distribution(logits, prompt, output, options)
            cases.append({
                "options": options, "logits": logits, "prompt": prompt, "output": output,
                "probabilities": [[id, float(f"{p:.7g}")] for id, p in found],
            })
    # Equal logits: as probable as the last of the top k.
    tied = [1.0, 3.0, 2.0, 2.0, 2.0, 0.0]
    for options in [{"top_k": 2}, {"top_k": 2, "min_p": 0.5}]:
        cases.append({
            "options": options, "logits": tied, "prompt": [0], "output": [],
            "probabilities": distribution(tied, [0], [], options),
        })
    with open(sys.argv[1], "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


main()
