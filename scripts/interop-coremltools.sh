#!/usr/bin/env bash
# usage: interop-coremltools.sh [PACKAGE …]
#
# Tests that Core ML tools read what Ferrane writes. Every package of the test data, and each
# PACKAGE, is read and written again; coremltools 9.0 then loads the original and the copy and
# compares them.
set -euo pipefail
cd "$(dirname "$0")/.."
data=${FERRANE_DATA:-../shared/data}
packages=("$@")
if [ -d "$data" ]; then
    while IFS= read -r path; do packages+=("$path"); done < <(find "$data" -name '*.mlpackage' | sort)
fi
if [ ${#packages[@]} = 0 ]; then
    echo "skipped: there are no packages (set FERRANE_DATA)"
    exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check coremltools==9.0 numpy==2.2.6

pairs=()
for i in "${!packages[@]}"; do
    pairs+=("${packages[$i]}" "$work/$i-$(basename "${packages[$i]}")")
done
cargo run --release --quiet -p ferrane-mil --example repackage -- "${pairs[@]}"
"$work/venv/bin/python" scripts/interop_coremltools.py "${pairs[@]}"
