#!/usr/bin/env bash
# Runs the stress test of the engine's backend under helgrind: eight threads with 127 requests each in flight, over the fake
# framework. First a race that is there on purpose, which helgrind must report: else its silence about the rest means nothing.
# Needs valgrind with its headers, and cc. scripts/helgrind/locks.c says how helgrind learns of Rust's locks.
set -euo pipefail
cd "$(dirname "$0")/.."

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cc -shared -fPIC -O1 -Wall -Werror -o "$out/locks.so" scripts/helgrind/locks.c

# The harness hands over the results of threads of its own by bare atomics, so tests run on its only one.
# Without optimization the functions that take a lock are functions of their own.
CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/helgrind" CARGO_PROFILE_DEV_OPT_LEVEL=0 \
    cargo test -p ferrane-ane --test all --no-run --message-format=json > "$out/build.json"
program=$(sed -n 's/.*"executable":"\([^"]*\/all-[^"]*\)".*/\1/p' "$out/build.json" | tail -1)

check() {
    LD_PRELOAD="$out/locks.so" valgrind --tool=helgrind --history-level=approx --suppressions=scripts/helgrind/false.supp --error-exitcode=99 \
        --log-file="$out/log" "$program" --test-threads=1 --exact "$@"
}

if check --ignored flow::a_race_on_purpose; then
    echo "helgrind did not see the race that is there on purpose" >&2
    exit 1
elif ! grep -q "Possible data race" "$out/log"; then
    cat "$out/log" >&2
    exit 1
fi
echo "the race on purpose is reported: $(grep -c "Possible data race" "$out/log") places"

if ! check flow::eight_threads_have_127_requests_each_in_flight; then
    cat "$out/log" >&2
    exit 1
fi
tail -1 "$out/log"
