#!/usr/bin/env bash
# Two builds of one commit in two folders give the same bytes: what is installed, and the Debian packages. Compiles
# everything twice without the compiler cache (half an hour on two cores).
#
#   reproducible.sh WORK [TARGET...]
#
# WORK gets the two clones. TARGET: compare only the archives that these targets need. Last line: "N passed, 0 failed", N
# files that are equal.
set -euo pipefail

source=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$1"
work=$(cd "$1" && pwd)
shift
export CCACHE_DISABLE=1 SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH=$(git -C "$source" log -1 --format=%ct)
# The folders differ in name and depth.
folders=("$work/one" "$work/a/second/folder")
for folder in "${folders[@]}"; do
  rm -rf "$folder"
  git clone -q "$source" "$folder"
  (cd "$folder" && cmake --preset release >/dev/null && cmake --build build/release --target "${@:-all}" >build.log) ||
    { tail "$folder/build.log" && exit 1; }
  [ $# -gt 0 ] || "$folder/scripts/make_packages.sh" "$folder/build/release" "$folder/packages"
done

passed=0 failed=0
compare() {
  if cmp -s "${folders[0]}/$1" "${folders[1]}/$1"; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "differs: $1"; fi
}
if [ $# -eq 0 ]; then
  for folder in "${folders[@]}"; do cmake --install "$folder/build/release" --prefix "$folder/prefix" --strip >/dev/null; done
fi
# A build folder has objects with paths of the folder in their names; what is installed has none.
files=$(cd "${folders[0]}" && if [ $# -gt 0 ]; then find build/release -name '*.a'; else find prefix packages -type f; fi | sort)
while IFS= read -r file; do compare "$file"; done <<<"$files"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
