#!/usr/bin/env bash
# ferrane bench step beside PyTorch: A B A B …, then the ratio of the medians of forward+backward.
# Usage: bench/step_ratio.sh [MODEL] [VOCAB] [ROUNDS]   (FERRANE and PYTHON name the programs)
set -euo pipefail
cd "$(dirname "$0")/.."
model=${1:-stories110m} vocab=${2:-9216} rounds=${3:-3}
ferrane=${FERRANE:-target/release/ferrane} python=${PYTHON:-python3}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for _ in $(seq "$rounds"); do
    "$ferrane" bench step --model "$model" --vocab "$vocab" --json | tee -a "$log"
    "$python" bench/torch_baseline.py step --model "$model" --vocab "$vocab" | tee -a "$log"
done
"$python" - "$log" <<'PY'
import json, re, statistics, sys
ours, theirs = [], []
for line in open(sys.argv[1]):
    if line.startswith("{"):
        ours.append(json.loads(line)["micro_step_ms"])
    elif m := re.search(r"forward (\d+) \+ backward (\d+)", line):
        theirs.append(int(m[1]) + int(m[2]))
a, b = statistics.median(ours), statistics.median(theirs)
print(f"forward+backward: ferrane {a:.0f} ms ({min(ours):.0f} to {max(ours):.0f}), PyTorch {b:.0f} ms ({min(theirs)} to {max(theirs)}), ratio {a / b:.2f}")
PY
