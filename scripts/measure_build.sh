#!/usr/bin/env bash
# Measures build times that developers wait for, and prints one line each: a full build without compiler cache, and the
# rebuild with its tests after one op file changed. Limits: 15 minutes and 20 s on 2 cores (docs/performance.md).
# usage: measure_build.sh [OP_FILE] [TEST_REGEX]
set -euo pipefail
cd "$(dirname "$0")/.."

op_file=${1:-ops/math/scale.cc}
tests=${2:-^ops}
folder=build/measure
export CCACHE_DISABLE=1

seconds() { # <label> <limit> <command...>
  local label=$1 limit=$2 start=$EPOCHREALTIME
  shift 2
  "$@" >$folder.log 2>&1 || { tail -n 30 $folder.log >&2; exit 1; }
  awk -v l="$label" -v m="$limit" -v a="$start" -v b="$EPOCHREALTIME" -v n="$(nproc)" \
    'BEGIN { printf "%-40s %7.1f s  (limit %d s, %d cores)\n", l, b - a, m, n; exit b - a > m }'
}

rebuild_and_test() {
  cmake --build $folder && ctest --test-dir $folder -R "$tests" --no-tests=error
}

rm -rf $folder
mkdir -p build
cmake --preset ci -B $folder >/dev/null
seconds "full build, ci preset" 900 cmake --build $folder

backup=$(mktemp)
cp -p "$op_file" "$backup"
trap 'cp -p "$backup" "$op_file"; rm -f "$backup"' EXIT
echo "// measured" >>"$op_file"
seconds "edit $op_file, build, test $tests" 20 rebuild_and_test
