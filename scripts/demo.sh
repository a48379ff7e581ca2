#!/usr/bin/env bash
# Builds the tools. Transpiles a click-through-rate program for two parameter servers and two trainers and trains it on
# clicks that follow a rule. Trains a small program on one device and runs an inference model with the learned
# parameters. Transpiles the training program of a ResNet-50.
# usage: demo.sh [--processes] [JOBS]
# #   --processes: trainers and servers are four processes that communicate over loopback, not threads of one
set -euo pipefail
cd "$(dirname "$0")/.."

processes=
if [ "${1:-}" = --processes ]; then
  processes=yes
  shift
fi

data=tests/data
tools=build/release/tools
out=build/demo
servers=127.0.0.1:36174,127.0.0.1:36175

cmake --preset release >/dev/null
cmake --build --preset release --parallel "${1:-2}" \
  --target transpile-program inspect-program run-program make_clicks launch job-report
mkdir -p $out

echo
echo "== clicks: 26 ids and 13 numbers each, and whether the user clicked"
build/release/bench/make_clicks --trainers 2 --steps 200 --batch 512 -o $out/clicks

echo
echo "== transpile: $data/ctr_dnn, a table of a million rows and four layers, for 2 servers and 2 trainers"
$tools/transpile-program --program $data/ctr_dnn/main.pb --startup $data/ctr_dnn/startup.pb \
  --pservers $servers --trainers 2 --trainer-id all --force -o $out/ctr

echo
if [ -z "$processes" ]; then
  echo "== train: 2 trainers and 2 servers in one process, synchronous steps"
  $tools/run-program --cluster inproc --transpiled $out/ctr --feed-steps $out/clicks/feeds.npz --steps 200 \
    --fetch mean_0.tmp_0 --report $out/job.html --force
else
  echo "== train: 2 trainers and 2 servers as four processes, synchronous steps (logs: $out/log)"
  $tools/launch --servers $servers --trainer_num 2 --log_dir $out/log -- \
    $tools/run-program --role auto --transpiled $out/ctr --threads 1 --feed-steps "$out/clicks/feeds_{rank}.npz" \
    --steps 200 --fetch mean_0.tmp_0 --stats "$out/stats_{rank}.json" --force
  $tools/job-report --transpiled $out/ctr $out/stats_0.json $out/stats_1.json -o $out/job.html --force
fi

# 13 columns and their target: 2 + sum of 0.1 * k * x_k, with noise of variance 0.01
awk 'BEGIN {
  srand(7)
  for (row = 0; row < 2000; row++) {
    y = 2
    for (k = 1; k <= 13; k++) { x = 2 * rand() - 1; y += 0.1 * k * x; printf "%.6f,", x }
    noise = 0; for (k = 0; k < 12; k++) noise += rand()
    printf "%.6f\n", y + 0.1 * (noise - 6)
  }
}' >$out/train.csv

echo
echo "== train: run-program --program $data/fit_a_line/main.pb, 2000 examples, 20 epochs"
$tools/run-program --program $data/fit_a_line/main.pb --startup $data/fit_a_line/startup.pb \
  --data $out/train.csv --columns x=0:12,y=13 --batch-size 20 --epochs 20 --fetch mean_0.tmp_0 \
  --curve $out/loss.svg --save-params $out/params/ --force

echo
echo "== run: an inference model of 2018 with these parameters, on the first five rows; then the targets in the data"
head -n 5 $out/train.csv >$out/five.csv
$tools/run-program --model-dir $data/models/fit_a_line_2018 --params $out/params \
  --data $out/five.csv --columns x=0:12 --batch-size 5 --shuffle=false
echo "  [$(cut -d, -f14 $out/five.csv | paste -sd, | sed 's/,/, /g')]"

echo
echo "== transpile: ResNet-50 ($data/resnet50_train) for 2 servers and 2 trainers"
$tools/transpile-program --program $data/resnet50_train/main_program \
  --startup $data/resnet50_train/startup_program --pservers 127.0.0.1:6174,127.0.0.1:6175 --trainers 2 \
  --trainer-id all --force -o $out/resnet50
(cd $out/resnet50 && find . -type f | sort | xargs wc -c)

echo
echo "== the first lines of the program of server 0 (inspect-program $out/resnet50/pserver_0/__model__)"
$tools/inspect-program $out/resnet50/pserver_0/__model__ -o $out/pserver_0.txt --force
sed -n 1,25p $out/pserver_0.txt

echo
echo "Pages: $PWD/$out/job.html (the job: loss, rates, times, servers), $PWD/$out/ctr/report.html (the slices of each server)"
echo "Plot: $PWD/$out/loss.svg (the loss of the small program)"
