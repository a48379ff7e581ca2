#!/usr/bin/env bash
# Makes Debian packages and a bill of materials from a build:
#
#   make_packages.sh BUILD OUT [WHEEL]
#
# BUILD is a build folder with everything built (cmake --build --preset release). OUT gets libmillrace0.1,
# libmillrace-dev, millrace (cmake/packages.cmake), millrace.spdx.json, and, if there is a wheel of python/, whose
# files it uses, python3-millrace. Dates in the packages are that of the commit (or SOURCE_DATE_EPOCH).
set -euo pipefail

if [ $# -lt 2 ]; then
  echo "usage: make_packages.sh BUILD OUT [WHEEL]" >&2
  exit 2
fi
source=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
wheel=${3:+$(realpath "$3")}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$source" log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
for tool in cpack dpkg-shlibdeps dpkg-deb fakeroot; do
  command -v $tool >/dev/null || { echo "make_packages.sh: $tool is missing (packages cmake, dpkg-dev, fakeroot)" >&2; exit 1; }
done

(cd "$build" && fakeroot cpack -G DEB -B "$out/cpack" >"$out/cpack.log") || { cat "$out/cpack.log" >&2; exit 1; }
mv "$out"/cpack/*.deb "$out/"
rm -rf "$out/cpack"
python3 -B "$source/scripts/bill_of_materials.py" --build "$build" --output "$out/millrace.spdx.json"
[ -n "$wheel" ] || exit 0

# The wheel without its own copies of the libraries and tools: those come from the other packages.
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$source/python/pyproject.toml")
python=$(basename "$wheel" | sed -n 's/.*-cp3\([0-9]*\)-.*/\1/p')
architecture=$(dpkg --print-architecture)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
packages=$tree/usr/lib/python3/dist-packages
mkdir -p "$packages" "$tree/DEBIAN" "$tree/usr/share/doc/python3-millrace"
python3 -m zipfile -e "$wheel" "$packages"
rm -rf "$packages"/millrace/{lib,bin} "$packages"/millrace-*.dist-info
find "$packages" -name '*.so' -exec strip --strip-unneeded {} +
cp "$source/LICENSE" "$tree/usr/share/doc/python3-millrace/copyright"
cat >"$tree/DEBIAN/control" <<CONTROL
Package: python3-millrace
Version: $version
Architecture: $architecture
Maintainer: millrace developers <millrace@localhost>
Section: python
Priority: optional
Depends: libmillrace${version%.*} (= $version), millrace (= $version), python3 (>= 3.$python), python3 (<< 3.$((python + 1))), python3-numpy, libstdc++6
Description: Python interface of millrace
CONTROL
find "$tree" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
fakeroot dpkg-deb --root-owner-group -Zxz --build "$tree" "$out/python3-millrace_${version}_$architecture.deb" >/dev/null
