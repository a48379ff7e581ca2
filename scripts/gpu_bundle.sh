#!/usr/bin/env bash
# Creates build/gpu-bundle: run-program, inspect-program, the test of NCCL and the module "gpu" with the libraries they
# need, and the programs and checkers of ../shared that gpu_check.sh uses. It is for a machine with a GPU that has
# neither the packages of millrace nor a network.
# usage: gpu_bundle.sh [JOBS]
set -euo pipefail
cd "$(dirname "$0")/.."

readonly out=build/gpu-bundle built=build/bundle shared=../shared most_bytes=$((64 << 20))

cmake --preset bundle >/dev/null
cmake --build --preset bundle --parallel "${1:-2}" \
  --target run-program inspect-program kernels_gpu_collectives_test millrace_gpu_module

rm -rf $out
mkdir -p $out/bin $out/lib/millrace $out/tools $out/bench/programs
cp $built/tools/run-program $built/tools/inspect-program $built/tests/kernels_gpu_collectives_test $out/bin
cp $built/lib/millrace/gpu.so $out/lib/millrace
strip $out/bin/* $out/lib/millrace/gpu.so
# Copies all libraries except glibc, which every machine has; a newer glibc runs programs linked to an older one.
ldd $out/bin/* $built/lib/millrace/gpu.so | awk '$2 == "=>" && $3 ~ "^/" { print $3 }' | sort -u |
  grep -vE '/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*)\.so' | xargs -I{} cp -L {} $out/lib
cp scripts/gpu_check.sh $out
cp tests/conformance/gpu_programs.py $out/tools
if [ -d $shared ]; then
  cp $shared/tools/check_ops.py $out/tools
  cp -r $shared/bench/programs/{mlp,resnet18_64,resnet50_64} $out/bench/programs
fi

bytes=$(du -sb $out | cut -f1)
echo "$out: $bytes bytes"
[ "$bytes" -lt $most_bytes ] || { echo "expected less than $most_bytes bytes" >&2 && exit 1; }
