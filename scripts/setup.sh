#!/usr/bin/env bash
# Installs missing Debian 12 packages: those for the build and its tests, and with --checks also those for .ci/run
# (clang-format, clang-tidy, libFuzzer, venv, headers of Python). Installs nothing for GPUs.
set -euo pipefail

packages=(
  g++ lld cmake ninja-build pkg-config ccache git ca-certificates python3
  libprotobuf-dev protobuf-compiler
  llvm-16-dev libncurses-dev libzstd-dev zlib1g-dev libxml2-dev libcurl4-openssl-dev
  libeigen3-dev libonnx-dev libdnnl-dev ocl-icd-opencl-dev opencl-headers libzip-dev
  libfmt-dev libcli11-dev nlohmann-json3-dev libxxhash-dev libmimalloc-dev
  libgrpc++-dev protobuf-compiler-grpc libssl-dev
  libgloo-dev libopenmpi-dev openmpi-bin librocksdb-dev
  libgtest-dev libgmock-dev llvm-16-tools etcd-server iproute2
)
case ${1:-} in
  "") ;;
  --checks) packages+=(python3-venv python3-dev clang-format clang-tidy clang-16 libclang-rt-16-dev) ;;
  *) echo "usage: setup.sh [--checks]" >&2; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null; then
  echo "setup.sh: this system is not Debian; install by hand: ${packages[*]}" >&2
  exit 1
fi
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi

root=()
if [ "$(id -u)" -ne 0 ]; then
  root=(sudo)
fi
echo "setup.sh: installing ${missing[*]}"
"${root[@]}" apt-get update -q
"${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
