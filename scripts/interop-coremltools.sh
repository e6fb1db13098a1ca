#!/usr/bin/env bash
# Core ML tools read what we write: every package of the test data is read and written again, loaded by coremltools 9.0, and
# compared with the original as coremltools understands both. Arguments: further packages.
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
