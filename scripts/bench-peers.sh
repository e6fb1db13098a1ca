#!/usr/bin/env bash
# Ferrane beside other programs on this machine: A B A B …, and one table of ratios.
#
#   scripts/bench-peers.sh                         everything, 5 rounds; an hour on two cores
#   scripts/bench-peers.sh --quick                 small models and few shapes, 2 rounds: that the script works
#   scripts/bench-peers.sh --only step --only gemm --rounds 7 --json ratios.json
#   scripts/bench-peers.sh --list                  the comparisons
#
# Peers are installed into a venv of their own: PEERS=FOLDER (target/bench-peers), or PYTHON=FILE for one that has them.
# FERRANE=FILE is the command (target/release/ferrane, built if it is not there). LLAMA2C=FILE is llama2.c's `run`, which no
# registry has. All other options go to scripts/peers/peers.py.
set -euo pipefail
cd "$(dirname "$0")/.."
# What these tell needs nothing built.
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
        # PyTorch's own index has builds without CUDA; where it cannot be reached, the one of PyPI does.
        "$PYTHON" -m pip install --quiet torch==2.7.1 --index-url https://download.pytorch.org/whl/cpu ||
            "$PYTHON" -m pip install --quiet torch==2.7.1
        "$PYTHON" -m pip install --quiet numpy onnx onnxruntime
        # Compiled from source for want of wheels; without a C++ compiler its comparisons are left out.
        "$PYTHON" -m pip install --quiet llama-cpp-python gguf || echo "no llama-cpp-python here" >&2
        touch "$peers/venv/ready"
    fi
fi
export FERRANE PEERS="$peers"
exec "$PYTHON" scripts/peers/peers.py "$@"
