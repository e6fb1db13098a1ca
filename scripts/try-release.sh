#!/usr/bin/env bash
# usage: try-release.sh [--keep FOLDER] FILES
#
# Installs the files of a release, which `cargo xtask dist` wrote into FILES, into empty systems of
# Debian 12 and uses them there. Needs root and debootstrap. --keep holds the systems, so that the
# next run does not fetch them again.
set -euo pipefail
keep=
if [ "${1:-}" = --keep ]; then
    mkdir -p "$2"
    keep=$(realpath "$2")
    shift 2
fi
files=$(realpath "${1:?usage: try-release.sh [--keep FOLDER] FILES}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$files" && sha256sum --quiet -c SHA256SUMS)

# A fresh copy of a system with these packages, as $system.
fresh() {
    local name=$1 packages=$2 base=${keep:-$work}/base-$1
    if [ ! -e "$base/etc/debian_version" ]; then
        debootstrap --variant=minbase ${packages:+--include="$packages"} bookworm "$base" > "$work/debootstrap.log" ||
            { tail "$work/debootstrap.log"; exit 1; }
    fi
    system=$work/$name
    cp -a "$base" "$system"
    mkdir -p "$system/files"
    cp -r "$files"/* "$system/files/"
}
within() {
    chroot "$system" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 bash -euc "$1"
}
# What a newcomer does first.
try='
    ferrane --version
    ferrane run $gallery/digits.mlpackage -i image=$gallery/digits/seven.png | grep "^digit: seven"
    ferrane check --machine m4-macos15-inmem $gallery/upscale.mlpackage
    ferrane generate --checkpoint $gallery/stories --prompt "One day" --steps 16 --temperature 0
    ferrane train --steps 2 --accum 1 --seq 64 --eval-windows 2 --out /tmp/run > /tmp/train.log || { cat /tmp/train.log; exit 1; }
'

echo "== archive"
fresh plain ""
within 'cd /
    tar xzf files/ferrane-*-linux-gnu.tar.gz
    mv ferrane-* opt/ferrane
    export PATH=/opt/ferrane/bin:$PATH gallery=/opt/ferrane/gallery'"$try"
rm -rf "$system"

echo "== deb"
fresh plain ""
within 'cd /
    dpkg -i files/*.deb
    mkdir g
    tar xzf files/ferrane-*-linux-gnu.tar.gz -C g --strip-components=1
    gallery=/g/gallery'"$try"'
    test -e /usr/share/man/man1/ferrane-check.1.gz
    dpkg -r ferrane
    if [ -e /usr/bin/ferrane ]; then exit 1; fi'
rm -rf "$system"

echo "== library"
fresh c gcc,libc6-dev,pkg-config
within 'mkdir /lib-here
    cd /lib-here
    tar xzf /files/libferrane-*.tar.gz --strip-components=1
    export PKG_CONFIG_PATH=$PWD/lib/pkgconfig
    gcc examples/sigmoid.c $(pkg-config --cflags --libs ferrane) -o shared
    LD_LIBRARY_PATH=lib ./shared
    gcc examples/sigmoid.c $(pkg-config --cflags ferrane) lib/libferrane.a $(pkg-config --libs --static ferrane | sed "s/-lferrane//") -o static
    ./static'
rm -rf "$system"

echo "== wheel"
# numpy is fetched here, because a system without a network of its own should do.
python3 -m pip download --quiet --disable-pip-version-check --only-binary=:all: --python-version 3.11 --dest "$work/wheels" "numpy>=1.23"
fresh python python3-venv
mkdir -p "$system/wheels" && cp "$work"/wheels/*.whl "$system/wheels/"
within 'cd /root
    if command -v gcc; then exit 1; fi
    python3 -m venv v
    v/bin/pip install --quiet --no-index --find-links /wheels /files/ferrane-*.whl
    tar xzf /files/ferrane-*-linux-gnu.tar.gz --strip-components=1
    v/bin/python -c "import ferrane, numpy
model = ferrane.load(\"gallery/upscale.mlpackage\")
large = model.run({model.inputs[0].name: numpy.zeros(model.inputs[0].shape)})
print(ferrane.__version__, {name: value.shape for name, value in large.items()}, model.check(\"m4-macos15-inmem\").ok)"
    v/bin/ferrane --version
    v/bin/python -m ferrane devices'
rm -rf "$system"
echo "the archive, the package for Debian, the library and the wheel work"
