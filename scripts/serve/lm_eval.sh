#!/usr/bin/env bash
# Runs EleutherAI's lm-eval against `ferrane serve`, once for each device, and prints the scores
# side by side. The tasks and their data are in scripts/serve/lm_eval: pairs of sentences of which
# one is right, and the perplexity of short stories.
#
#   python3 -m venv venv && venv/bin/pip install 'lm-eval[api]==0.4.13'
#   scripts/serve/lm_eval.sh MODEL [DEVICE…]
#
# The default devices are the fp32 reference and 'emulator?numerics=hardware'.
#
# FERRANE names the command (default target/release/ferrane), LM_EVAL the harness (default
# venv/bin/lm_eval), TASKS the tasks, a list with commas; SERVE has further options of `ferrane
# serve`.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
ferrane=$(realpath "${FERRANE:-target/release/ferrane}")
harness=$(realpath -s "${LM_EVAL:-venv/bin/lm_eval}")
model=$(realpath "$1")
shift
[ $# -gt 0 ] || set -- reference 'emulator?numerics=hardware'
work=$(mktemp -d)
server=
trap 'if [ -n "$server" ]; then kill "$server" || true; fi; rm -rf "$work"' EXIT

# The harness looks for data and models online unless these variables forbid it.
export HF_HOME=$work/hf HF_DATASETS_OFFLINE=1 HF_HUB_OFFLINE=1 OPENAI_API_KEY=none
cd "$here/lm_eval"
count=0
for device in "$@"; do
  count=$((count + 1))
  "$ferrane" serve "$model" --device "$device" --port 0 ${SERVE:-} > "$work/address" &
  server=$!
  for _ in $(seq 600); do
    grep -q '^http' "$work/address" && break
    kill -0 "$server" || { echo "the server did not start" >&2; exit 1; }
    sleep 0.1
  done
  address=$(head -n 1 "$work/address")
  address=${address%/}
  read -r name context < <(python3 -c '
import json, sys, urllib.request
model = json.load(urllib.request.urlopen(sys.argv[1] + "/v1/models"))["data"][0]
print(model["id"], model["context_length"])' "$address")
  "$harness" run --model local-completions --tasks "${TASKS:-ferrane_pairs,ferrane_stories}" --include_path . --output_path "$work/$count" \
    --model_args "model=$name,base_url=$address/v1/completions,tokenizer_backend=remote,max_length=$context,num_concurrent=1,max_retries=1" \
    > "$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
  kill "$server"
  wait "$server" || true
  server=
  mkdir -p "$work/scores"
  find "$work/$count" -name 'results_*.json' -exec cp {} "$work/scores/$count.json" \;
done

python3 - "$work/scores" "$@" <<'END'
import json, sys

folder, devices = sys.argv[1], sys.argv[2:]
scores = [json.load(open(f"{folder}/{i + 1}.json"))["results"] for i in range(len(devices))]
print("| task | metric | " + " | ".join(f"`{device}`" for device in devices) + " |")
print("|---" * (len(devices) + 2) + "|")
for task, metrics in scores[0].items():
    for metric, value in metrics.items():
        if isinstance(value, float) and "stderr" not in metric:
            print(f"| `{task}` | {metric.split(',')[0]} | " + " | ".join(f"{s[task][metric]:.4f}" for s in scores) + " |")
END
