#!/usr/bin/env bash
# Creates build/gpu-bundle.tar.xz: run-program, inspect-program, the tests of the device and of NCCL, and the module
# "gpu" with the libraries they need, and the programs, references and checkers of ../shared that gpu_check.sh uses. It
# is for a machine with a GPU that has neither the packages of millrace nor a network. Programs of mixed precision that
# bench/amp_programs.py has written to build/amp come along.
# usage: gpu_bundle.sh [--from BUILD_FOLDER] [JOBS]   --from: take programs that are built there, and build nothing
set -euo pipefail
cd "$(dirname "$0")/.."

readonly out=build/gpu-bundle shared=../shared most_bytes=$((32 << 20))
readonly tests=(kernels_gpu_collectives_test)
built=build/bundle
if [ "${1:-}" = --from ]; then
  built=$2
else
  cmake --preset bundle >/dev/null
  cmake --build --preset bundle --parallel "${1:-2}" --target run-program inspect-program "${tests[@]}" millrace_gpu_module
fi

rm -rf $out $out.tar.xz
mkdir -p $out/bin $out/lib/millrace $out/tools $out/bench
cp "$built/tools/run-program" "$built/tools/inspect-program" $out/bin
for name in "${tests[@]}"; do
  [ ! -e "$built/tests/$name" ] || cp "$built/tests/$name" $out/bin
done
cp "$built/lib/millrace/gpu.so" $out/lib/millrace
strip $out/bin/* $out/lib/millrace/gpu.so
# Copies all libraries except glibc, which every machine has; a newer glibc runs programs linked to an older one.
ldd $out/bin/* "$built/lib/millrace/gpu.so" | awk '$2 == "=>" && $3 ~ "^/" { print $3 }' | sort -u |
  grep -vE '/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*)\.so' | xargs -I{} cp -L {} $out/lib
cp scripts/gpu_check.sh $out
cp tests/conformance/gpu_programs.py bench/gpu_peers.py bench/run_step.py $out/tools
if [ -d $shared ]; then
  cp $shared/tools/{check_ops,check_pe,check_training,golden_check}.py $out/tools
  cp -r $shared/goldens/ops $shared/goldens/parallel_executor $shared/goldens/training $out
  cp -r $shared/bench/programs $shared/bench/{peer_torch,benchlib}.py $out/bench
fi
[ ! -d build/amp ] || cp -r build/amp $out
XZ_OPT="-T0 -3" tar -cJf $out.tar.xz -C build gpu-bundle

bytes=$(stat -c %s $out.tar.xz)
echo "$out.tar.xz: $bytes bytes"
[ "$bytes" -lt $most_bytes ] || { echo "expected less than $most_bytes bytes" >&2 && exit 1; }
