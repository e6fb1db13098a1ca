#!/usr/bin/env bash
# Runs networks in Ferrane, PyTorch and ONNX Runtime, and compares numbers, times and memory.
#
#   scripts/zoo.sh                          everything; half an hour on two cores
#   scripts/zoo.sh --quick                  two small networks, 2 rounds: a test of the script
#   scripts/zoo.sh --part check             only the numbers
#   scripts/zoo.sh --part speed --threads 1 --threads 2 --json zoo.json
#   scripts/zoo.sh --only resnet50          one network
#   scripts/zoo.sh --list                   the names of the networks
#   scripts/zoo.sh --make-only              makes the networks and stops
#   scripts/zoo.sh --page docs/zoo.md       also puts the tables into the page
#
# The folder ZOO (default: target/zoo) gets the networks, about 3 GB, and a virtual environment with
# PyTorch, coremltools and ONNX Runtime; PYTHON=FILE names an interpreter that has them already.
# FERRANE=FILE is the command (default: target/release/ferrane, which is built if it is absent). All
# options are passed to scripts/zoo/zoo.py.
set -euo pipefail
cd "$(dirname "$0")/.."
# These print without a build.
for option in "$@"; do
    case $option in -h | --help | --list) exec python3 scripts/zoo/zoo.py "$option" ;; esac
done
zoo=${ZOO:-${CARGO_TARGET_DIR:-target}/zoo}
mkdir -p "$zoo"
zoo=$(cd "$zoo" && pwd)
if [ -z "${FERRANE:-}" ]; then
    FERRANE=${CARGO_TARGET_DIR:-target}/release/ferrane
    [ -x "$FERRANE" ] || cargo build --release -p ferrane-cli
fi
if [ -z "${PYTHON:-}" ]; then
    PYTHON=$zoo/venv/bin/python
    if [ ! -e "$zoo/venv/ready" ]; then
        python3 -m venv "$zoo/venv"
        # PyTorch's own index has builds without CUDA. PyPI's build works too.
        "$PYTHON" -m pip install --quiet torch==2.7.1 torchvision==0.22.1 --index-url https://download.pytorch.org/whl/cpu ||
            "$PYTHON" -m pip install --quiet torch==2.7.1 torchvision==0.22.1
        # coremltools 9.0 reads arrays of one element as numbers, which NumPy 2.4 refuses.
        "$PYTHON" -m pip install --quiet coremltools==9.0 'numpy<2.4' 'transformers<4.54' onnx onnxruntime
        touch "$zoo/venv/ready"
    fi
fi
export FERRANE ZOO="$zoo"
exec "$PYTHON" scripts/zoo/zoo.py "$@"
