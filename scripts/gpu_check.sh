#!/usr/bin/env bash
# Checks and measurements on a machine with a GPU; gpu_bundle.sh puts this script into its folder. Needs python3 with
# numpy; the peers need PyTorch. Each part takes less than ten minutes and runs even if an earlier one failed.
# usage: gpu_check.sh [PART...]
#   versions     the GPU, its driver and the libraries that were found
#   nccl         NCCL between threads, one GPU each
#   several      several GPUs in one process: the references of the ParallelExecutor; skipped with one GPU
#   programs     inference and training of the bench programs, compared with the processor
#   rewritten    the same after the passes that make programs faster
#   operators    the operator corpus
#   training     the training references: sequences, recurrences, loops and branches among them
#   sanitizer    compute-sanitizer over two training steps of two nets
#   steps        times beside PyTorch, eager
#   amp          the same for programs of mixed precision, beside PyTorch's autocast; skipped without a folder amp
#   compiled     times beside torch.compile (minutes of compiling)
#   inference    inference times beside PyTorch
#   launches     time per op of a chain of 1,000 small ops
#   profile      time per op of a training step of resnet50_64
# Without PART: all of them. DEVICE=gpu:0, LOGS=folder for the output of every part.
set -uo pipefail
cd "$(dirname "$0")"
readonly device=${DEVICE:-gpu:0} work=$(mktemp -d)
readonly logs=${LOGS:-$work}
trap 'rm -rf "$work"' EXIT
bad=0

# wheels put cuBLASLt, cuDNN and NCCL into folders that the loader does not search
libraries() {
  local place
  for place in $(python3 -c 'import sys; print(*sys.path)') /usr/local/cuda /usr/lib; do
    [ -d "$place" ] && find "$place" -maxdepth 5 \( -name 'libcublasLt.so.13' -o -name 'libcudnn.so.9' -o -name 'libnccl.so.2' \) -printf '%h\n' 2>/dev/null
  done | sort -u | paste -sd:
}
readonly found=$(libraries)
# PyTorch brings its own libraries, so only our programs get these
ours() { LD_LIBRARY_PATH=$PWD/lib:${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$found "$@"; }
printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "$PWD/lib:$found" "$PWD/bin/run-program" >"$work/run-program"
chmod +x "$work/run-program"
readonly run=$work/run-program

feeds() { # <net> <rows>: writes the feeds of a step to a file and prints the loss
  python3 - "$1" "$2" "$work" <<'PYTHON'
import json, sys
import numpy as np
net, rows, work = sys.argv[1], int(sys.argv[2]), sys.argv[3]
facts = json.load(open(f"bench/programs/{net}/net.json"))
made = {}
for feed in facts["feeds"]:
    shape = [rows if d < 0 else d for d in feed["shape"]]
    whole = feed["dtype"] == "int64"
    made[feed["name"]] = np.random.randint(0, feed.get("high", 10), shape) if whole else np.random.randn(*shape).astype("f")
np.savez(f"{work}/{net}.npz", **made)
print(facts["loss"] or facts["prediction"])
PYTHON
}
train() { # <net> <rows> <flags>
  local net=$1 rows=$2 loss
  shift 2
  loss=$(feeds "$net" "$rows") || return 1
  "$run" --program "bench/programs/$net/main.pb" --startup "bench/programs/$net/startup.pb" --feed "$work/$net.npz" \
    --fetch "$loss" --devices "$device" "$@"
}
# A copy of a net with a table of 10,000,000 rows.
long_table() { # <net>
  local file copy=bench/programs/$1_1e7
  mkdir -p "$copy"
  for file in main.pb startup.pb infer.pb; do
    ours bin/inspect-program "bench/programs/$1/$file" --force -o "$work/$file.txt" &&
      sed 's/\b1000000\(l\?\)\b/10000000\1/g' "$work/$file.txt" >"$copy/$file" || return 1
  done
  sed 's/\b1000000\b/10000000/' "bench/programs/$1/net.json" >"$copy/net.json"
}
peers() { python3 tools/gpu_peers.py --bin "$run" --bench bench --devices "$device" "$@"; }

versions() { nvidia-smi -L && nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv && ours bin/inspect-program --devices; }
nccl() { ours bin/kernels_gpu_collectives_test --gtest_filter='Nccl.*'; }
# The checker's gpu:2 becomes gpu:0,1.
several() {
  local count only=()
  count=$(nvidia-smi -L | wc -l)
  [ "$count" -ge 2 ] || { echo "skipped: needs two GPUs, found $count" && return 0; }
  [ "$count" -ge 4 ] || only=(--only "$(cd parallel_executor && printf '%s\n' *_2dev | paste -sd,)")
  mkdir -p "$work/several"
  { echo '#!/bin/bash'
    echo 'args=()'
    echo 'for arg in "$@"; do [[ $arg == gpu:* ]] && arg=gpu:$(seq -s, 0 $((${arg#gpu:} - 1))); args+=("$arg"); done'
    echo "exec '$run' \"\${args[@]}\""; } >"$work/several/run-program"
  chmod +x "$work/several/run-program"
  python3 tools/check_pe.py --bin "$work/several/run-program" --dir parallel_executor --device gpu "${only[@]}"
}
compare() {
  python3 tools/gpu_programs.py --bin "$run" --shared . --devices "$device" --batch "${BATCH:-8}" --steps 4 --rtol 1e-3 --rounding 10 \
    --nets "${NETS:-mlp,lenet,resnet18_64,resnet50_64,mobilenet_224,word2vec,ctr_dnn,ctr_dnn_adam,bert_mini,bert_base_l2}" "$@"
}
programs() { compare --optimize false; }
rewritten() { compare --optimize true; }
on_gpu() { # prints the path of a run-program that runs on the GPU
  mkdir -p "$work/on-gpu"  # the checkers call other names as a tool with verbs
  printf '#!/bin/sh\nexec %s --devices %s "$@"\n' "$run" "$device" >"$work/on-gpu/run-program"
  chmod +x "$work/on-gpu/run-program"
  echo "$work/on-gpu/run-program"
}
operators() { python3 tools/check_ops.py --bin "$(on_gpu)" --dir ops --jobs 8; }
training() { python3 tools/check_training.py --bin "$(on_gpu)" --dir training; }
sanitizer() {
  command -v compute-sanitizer >/dev/null || { echo "skipped: compute-sanitizer not found" && return 0; }
  local net
  for net in mlp lenet; do
    feeds $net 4 >"$work/loss" || return 1
    compute-sanitizer --error-exitcode 9 "$run" --program bench/programs/$net/main.pb --startup bench/programs/$net/startup.pb \
      --feed "$work/$net.npz" --fetch "$(cat "$work/loss")" --steps 2 --devices "$device" || return 1
  done
}
readonly trained=${STEPS:-mlp:128,lenet:64,resnet18_64:64,resnet50_64:64,resnet50_64:256,bert_mini:8,bert_base_l2:8,word2vec:128,ctr_dnn:512,ctr_dnn_adam:512,ctr_dnn_1e7:512}
steps() { long_table ctr_dnn && peers --nets "$trained" --json "$logs/steps.jsonl"; }
amp() {
  [ -d amp ] || { echo "skipped: no programs (bench/amp_programs.py makes them)" && return 0; }
  peers --amp amp --nets "${AMP:-mlp:128,resnet50_64:64,resnet50_64:256,bert_mini:8,bert_base_l2:8}" --precision amp_f16,amp_bf16 --json "$logs/amp.jsonl"
}
compiled() { long_table ctr_dnn && peers --nets "${COMPILED:-resnet50_64:64,resnet50_64:256,bert_base_l2:8,ctr_dnn_1e7:512}" --precision "${PRECISION:-tf32}" --compile --json "$logs/compiled.jsonl"; }
inference() { peers --infer --nets "${INFER:-mobilenet_224:1,resnet50_224:1,resnet50_224:32,bert_base_l2:1,mlp:1}" --json "$logs/inference.jsonl"; }
launches() {
  feeds chain_1k 1 >"$work/last" || return 1
  "$run" --program bench/programs/chain_1k/infer.pb --feed "$work/chain_1k.npz" --fetch "$(cat "$work/last")" \
    --devices "$device" --benchmark 50 --warmup 10
}
# Twice, so that the difference is without the first steps, which choose algorithms.
profile() {
  local net=${PROFILED:-resnet50_64} rows=${BATCH:-64}
  for count in 10 40; do train "$net" "$rows" --precision "${PRECISION:-f32}" --op-profile --steps $count >"$work/trained" 2>"$logs/profile_$count.txt" || return 1; done
  python3 - "$logs"/profile_{10,40}.txt <<'PYTHON'
import re, sys
def times(path):
    rows = re.findall(r"run-program: (\w+) +(\d+) +([\d.]+) +[\d.]+% +[\d.]+", open(path).read())
    return {op: (int(calls), float(ms)) for op, calls, ms in rows}
first, all_ = times(sys.argv[1]), times(sys.argv[2])
print(f"{'op':32} {'calls':>6} {'ms a step':>10} {'us a call':>10}")
for op, (calls, ms) in sorted(all_.items(), key=lambda row: first[row[0]][1] - row[1][1]):
    more, took = calls - first[op][0], ms - first[op][1]
    print(f"{op:32} {more // 30:6} {took / 30:10.3f} {took / more * 1e3:10.1f}")
PYTHON
}

part() { # <name>
  local start=$SECONDS status
  echo "== $1"
  "$1" 2>&1 | tee "$logs/$1.log" | tail -n "${LINES_OF_PART:-40}"
  status=${PIPESTATUS[0]}
  [ "$status" -eq 0 ] || bad=$((bad + 1))
  echo "-- $1: exit $status, $((SECONDS - start)) s"
}
[ $# -gt 0 ] || set -- versions nccl several programs rewritten operators training sanitizer steps amp inference launches profile compiled
for name in "$@"; do part "$name"; done
echo "$bad parts failed"
[ $bad -eq 0 ]
