#!/usr/bin/env bash
# usage: install-capi.sh [--from FOLDER] PREFIX
#
# Installs the C interface below PREFIX: libraries, header, and the file for pkg-config. The
# libraries are taken from FOLDER; without --from they are built first.
set -euo pipefail
from=
if [ "${1:-}" = --from ]; then
    from=$(realpath "$2")
    shift 2
fi
prefix=${1:?usage: install-capi.sh [--from FOLDER] PREFIX}
mkdir -p "$prefix/lib/pkgconfig" "$prefix/include"
prefix=$(realpath "$prefix")
cd "$(dirname "$0")/.."
if [ -z "$from" ]; then
    cargo build --release -p ferrane-capi
    from=${CARGO_TARGET_DIR:-target}/release
fi

cp crates/capi/include/ferrane.h "$prefix/include/"
cp "$from/libferrane_capi.a" "$prefix/lib/libferrane.a"
# Programs look the shared library up by its versioned name, linkers by the plain one.
if [ -e "$from/libferrane_capi.dylib" ]; then
    cp "$from/libferrane_capi.dylib" "$prefix/lib/libferrane.0.dylib"
    ln -sf libferrane.0.dylib "$prefix/lib/libferrane.dylib"
    private="-lm -lpthread"
else
    cp "$from/libferrane_capi.so" "$prefix/lib/libferrane.so.0"
    ln -sf libferrane.so.0 "$prefix/lib/libferrane.so"
    private="-lpthread -ldl -lm"
fi
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" -e "s|@PRIVATE@|$private|" \
    crates/capi/ferrane.pc.in > "$prefix/lib/pkgconfig/ferrane.pc"
