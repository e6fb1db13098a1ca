#!/usr/bin/env bash
# usage: test-aarch64.sh [ARGUMENT …]
#
# Runs the tests of ferrane-host, and so of the NEON routines, for AArch64 under qemu. Arguments are
# passed to `cargo test`.
#
# Needs qemu-user, gcc-aarch64-linux-gnu, and a standard library for the target. That is installed
# by `rustup target add aarch64-unknown-linux-gnu`; otherwise it is built with the compiler that
# `cargo xtask macos setup` fetches (FERRANE_MACOS_DIR).
set -euo pipefail
cd "$(dirname "$0")/.."
target=aarch64-unknown-linux-gnu

find_one() {
    local package=$1 program
    shift
    for program in "$@"; do
        if command -v "$program"; then return; fi
    done
    echo "$1 is missing; Debian and Ubuntu have it in the package $package" >&2
    exit 1
}
runner=$(find_one qemu-user qemu-aarch64 qemu-aarch64-static)
linker=$(find_one gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc aarch64-linux-gnu-gcc-12)

if [ ! -d "$(rustc --print target-libdir --target $target)" ]; then
    toolchain=${FERRANE_MACOS_DIR:-${CARGO_TARGET_DIR:-target}/macos}/toolchain
    if [ ! -x "$toolchain/usr/bin/rustc" ]; then
        echo "there is no standard library for $target: run \`rustup target add $target\` or \`cargo xtask macos setup\`" >&2
        exit 1
    fi
    toolchain=$(cd "$toolchain" && pwd)
    libraries=$toolchain/usr/lib/$(uname -m)-linux-gnu
    export RUSTC=$toolchain/usr/bin/rustc RUSTC_BOOTSTRAP=1 CARGO_UNSTABLE_BUILD_STD=std,panic_unwind,test
    export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi

# Linked statically, so that they run without libraries of the target.
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS="-C target-feature=+crt-static"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$linker
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=$runner
CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/aarch64" cargo test --release --target $target -p ferrane-host --lib "$@"
