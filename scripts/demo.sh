#!/usr/bin/env bash
# Builds the tools and cuts the training program of a ResNet-50 for two parameter servers and two trainers.
# usage: demo.sh [JOBS]
set -euo pipefail
cd "$(dirname "$0")/.."

program=tests/data/resnet50_train
tools=build/release/tools
out=build/demo

cmake --preset release >/dev/null
cmake --build --preset release --parallel "${1:-2}" --target transpile-program inspect-program

echo
echo "== transpile-program: $program for 2 servers and 2 trainers"
$tools/transpile-program --program $program/main_program --startup $program/startup_program \
  --pservers 127.0.0.1:6174,127.0.0.1:6175 --trainers 2 --trainer-id all --force -o $out

echo
echo "== written"
(cd $out && find . -type f | sort | xargs wc -c)

echo
echo "== the first lines of what server 0 runs (inspect-program $out/pserver_0/__model__)"
$tools/inspect-program $out/pserver_0/__model__ -o $out/pserver_0.txt --force
sed -n 1,25p $out/pserver_0.txt

echo
echo "The picture of who got what: $PWD/$out/report.html"
