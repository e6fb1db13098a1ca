#!/usr/bin/env bash
# Runs the stress test of the engine's backend under valgrind's helgrind: eight threads over the
# fake framework, with 127 requests each in flight. Before that it runs a test with an intended
# race, which helgrind must report; otherwise its silence about the stress test proves nothing.
# Needs cc, and valgrind with its headers. scripts/helgrind/locks.c declares Rust's locks to
# helgrind.
set -euo pipefail
cd "$(dirname "$0")/.."

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cc -shared -fPIC -O1 -Wall -Werror -o "$out/locks.so" scripts/helgrind/locks.c

# The test harness hands over results between threads by atomics alone, so tests run on one thread.
# Without optimization the functions that acquire a lock have symbols.
CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/helgrind" CARGO_PROFILE_DEV_OPT_LEVEL=0 \
    cargo test -p ferrane-ane --test all --no-run --message-format=json > "$out/build.json"
program=$(sed -n 's/.*"executable":"\([^"]*\/all-[^"]*\)".*/\1/p' "$out/build.json" | tail -1)

check() {
    LD_PRELOAD="$out/locks.so" valgrind --tool=helgrind --history-level=approx --suppressions=scripts/helgrind/false.supp --error-exitcode=99 \
        --log-file="$out/log" "$program" --test-threads=1 --exact "$@"
}

if check --ignored flow::a_race_on_purpose; then
    echo "helgrind does not report the intended race" >&2
    exit 1
elif ! grep -q "Possible data race" "$out/log"; then
    cat "$out/log" >&2
    exit 1
fi
echo "helgrind reports the intended race at $(grep -c "Possible data race" "$out/log") places"

if ! check flow::eight_threads_have_127_requests_each_in_flight; then
    cat "$out/log" >&2
    exit 1
fi
tail -1 "$out/log"
