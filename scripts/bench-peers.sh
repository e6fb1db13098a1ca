#!/usr/bin/env bash
# Compares Ferrane with other programs on this machine: runs them in turn and prints ratios.
#
#   scripts/bench-peers.sh                  every comparison, 5 rounds; an hour on two cores
#   scripts/bench-peers.sh --quick          small models, few shapes, 2 rounds: a test of the script
#   scripts/bench-peers.sh --only step --only gemm --rounds 7 --json ratios.json
#   scripts/bench-peers.sh --list           the names of the comparisons
#
# The other programs are installed into a virtual environment in the folder PEERS (default:
# target/bench-peers); PYTHON=FILE names an interpreter that has them already. FERRANE=FILE is the
# command (default: target/release/ferrane, which is built if it is absent). LLAMA2C=FILE is the
# program `run` of llama2.c, which no registry offers. All other options are passed to
# scripts/peers/peers.py.
set -euo pipefail
cd "$(dirname "$0")/.."
# These print without a build.
for option in "$@"; do
    case $option in -h | --help | --list) exec python3 scripts/peers/peers.py "$option" ;; esac
done
peers=${PEERS:-${CARGO_TARGET_DIR:-target}/bench-peers}
mkdir -p "$peers"
if [ -z "${FERRANE:-}" ]; then
    cargo build --release -p ferrane-cli
    FERRANE=${CARGO_TARGET_DIR:-target}/release/ferrane
fi
if [ -z "${PYTHON:-}" ]; then
    PYTHON=$peers/venv/bin/python
    if [ ! -e "$peers/venv/ready" ]; then
        python3 -m venv "$peers/venv"
        # PyTorch's own index has builds without CUDA. PyPI's build works too.
        "$PYTHON" -m pip install --quiet torch==2.15.0 --index-url https://download.pytorch.org/whl/cpu ||
            "$PYTHON" -m pip install --quiet torch==2.15.0
        "$PYTHON" -m pip install --quiet numpy onnx onnxruntime==1.32.0
        # Compiled from source, because there are no wheels. Without a C++ compiler its comparisons
        # are left out.
        "$PYTHON" -m pip install --quiet llama-cpp-python==0.3.36 gguf || echo "llama-cpp-python cannot be installed: its comparisons are left out" >&2
        touch "$peers/venv/ready"
    fi
fi
export FERRANE PEERS="$peers"
exec "$PYTHON" scripts/peers/peers.py "$@"
