#!/usr/bin/env bash
# Makes Debian packages and a bill of materials from a build:
#
#   make_packages.sh BUILD OUT [WHEEL]
#
# BUILD is a build folder with everything built (cmake --build --preset release). OUT gets libmillrace0.1,
# libmillrace-dev, millrace, millrace.spdx.json, and, if there is a wheel of python/, whose
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

# Components of `cmake --install`, and the package that each belongs to.
version=$(sed -n 's/^project(millrace VERSION \([0-9.]*\).*/\1/p' "$source/CMakeLists.txt")
library=libmillrace${version%.*}
settings=(
  CPACK_PACKAGE_NAME=millrace CPACK_PACKAGE_VERSION="$version" CPACK_PACKAGE_FILE_NAME=millrace
  CPACK_PACKAGE_CONTACT="millrace developers <millrace@localhost>"
  CPACK_PACKAGE_DESCRIPTION="distributes, trains and runs PaddlePaddle fluid programs"
  CPACK_PACKAGING_INSTALL_PREFIX=/usr CPACK_STRIP_FILES=ON CPACK_DEB_COMPONENT_INSTALL=ON
  CPACK_COMPONENTS_GROUPING=ONE_PER_GROUP CPACK_COMPONENTS_ALL="library;modules;headers;dev;tools"
  CPACK_COMPONENT_LIBRARY_GROUP=library CPACK_COMPONENT_MODULES_GROUP=library
  CPACK_COMPONENT_HEADERS_GROUP=development CPACK_COMPONENT_DEV_GROUP=development CPACK_COMPONENT_TOOLS_GROUP=tools
  CPACK_INSTALL_CMAKE_PROJECTS="$build;millrace;ALL;/" CPACK_CMAKE_GENERATOR=Ninja
  CPACK_DEBIAN_FILE_NAME=DEB-DEFAULT CPACK_DEBIAN_PACKAGE_SHLIBDEPS=ON CPACK_DEBIAN_PACKAGE_SECTION=science
  CPACK_DEBIAN_LIBRARY_PACKAGE_NAME="$library" CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION=libs
  CPACK_DEBIAN_LIBRARY_DESCRIPTION="libraries that run and distribute fluid programs"
  CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME=libmillrace-dev CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION=libdevel
  CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS=OFF CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS="$library (= $version)"
  CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS="llvm-16-dev, libncurses-dev" # for passes
  CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION="headers of the libraries of millrace"
  CPACK_DEBIAN_TOOLS_PACKAGE_NAME=millrace CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS="$library (= $version)" # modules
  CPACK_DEBIAN_TOOLS_DESCRIPTION="command-line tools for fluid programs"
)
for setting in "${settings[@]}"; do echo "set(${setting%%=*} \"${setting#*=}\")"; done >"$out/cpack.cmake"
(cd "$out" && fakeroot cpack -G DEB --config cpack.cmake -B "$out/cpack" >cpack.log) || { cat "$out/cpack.log" >&2 && exit 1; }
rm "$out/cpack.cmake"
mv "$out"/cpack/*.deb "$out/"
rm -rf "$out/cpack"
python3 -B "$source/scripts/bill_of_materials.py" --build "$build" --output "$out/millrace.spdx.json"
[ -n "$wheel" ] || exit 0

# The wheel without its own copies of the libraries and tools: those come from the other packages.
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
Depends: $library (= $version), millrace (= $version), python3 (>= 3.$python), python3 (<< 3.$((python + 1))), python3-numpy, libstdc++6
Description: Python interface of millrace
CONTROL
find "$tree" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
fakeroot dpkg-deb --root-owner-group -Zxz --build "$tree" "$out/python3-millrace_${version}_$architecture.deb" >/dev/null
