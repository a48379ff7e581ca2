#!/usr/bin/env bash
# Checks and measurements on a machine with a GPU, in at most ten minutes; gpu_bundle.sh puts this script into its
# folder. Needs python3 with numpy. Each part runs even if an earlier one failed.
# usage: gpu_check.sh [DEVICE] [OPS_CORPUS]   gpu:0, and a folder like shared/goldens/ops
set -uo pipefail
cd "$(dirname "$0")"
readonly device=${1:-gpu:0} corpus=${2:-} work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

# wheels put cuBLASLt, cuDNN and NCCL into folders that the loader does not search
libraries() {
  local place
  for place in $(python3 -c 'import sys; print(*sys.path)') /usr/local/cuda /usr/lib; do
    [ -d "$place" ] && find "$place" -maxdepth 5 \( -name 'libcublasLt.so.13' -o -name 'libcudnn.so.9' -o -name 'libnccl.so.2' \) -printf '%h\n' 2>/dev/null
  done | sort -u | paste -sd:
}
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$(libraries)
part() { # <name> <seconds> <command...>
  local name=$1 limit=$2 start=$SECONDS status
  shift 2
  echo "== $name"
  timeout "$limit" "$@"
  status=$?
  [ $status -eq 0 ] || bad=$((bad + 1))
  echo "-- $name: exit $status, $((SECONDS - start)) s"
}
feeds() { # <net> <rows>: writes the feeds of a step to a file
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
print(facts["loss"])
PYTHON
}
measure() { # <net> <rows> <flags>: one line of JSON
  local net=$1 rows=$2 loss
  shift 2
  loss=$(feeds "$net" "$rows") || return 1
  bin/run-program --program "bench/programs/$net/main.pb" --startup "bench/programs/$net/startup.pb" \
    --feed "$work/$net.npz" --fetch "$loss" --benchmark 30 --warmup 5 "$@"
}

nvidia-smi || true
part devices 60 bin/inspect-program --devices
part collectives 60 bin/kernels_gpu_collectives_test --gtest_filter='Nccl.*'
part programs 200 python3 tools/gpu_programs.py --bin bin/run-program --shared . --devices "$device" --batch 8 --steps 3 --rtol 1e-3
if [ -n "$corpus" ]; then
  part operators 200 python3 tools/check_ops.py --bin "bin/run-program --devices $device" --dir "$corpus" --jobs 4
fi
export -f feeds measure
export work
for precision in f32 tf32; do
  part "mlp $precision" 60 bash -c "measure mlp 128 --devices $device --precision $precision"
  part "resnet18_64 $precision" 60 bash -c "measure resnet18_64 64 --devices $device --precision $precision"
  part "resnet50_64 $precision" 60 bash -c "measure resnet50_64 64 --devices $device --precision $precision"
done
part "op times" 60 bash -c "measure resnet50_64 64 --devices $device --op-profile --benchmark 0"
if command -v compute-sanitizer >/dev/null; then
  feeds mlp 8 >/dev/null
  part sanitizer 120 compute-sanitizer --error-exitcode 9 bin/run-program --program bench/programs/mlp/main.pb \
    --startup bench/programs/mlp/startup.pb --feed "$work/mlp.npz" --fetch mean_0.tmp_0 --steps 2 --devices "$device"
else
  echo "skipped: compute-sanitizer not found"
fi
echo "$bad parts failed"
[ $bad -eq 0 ]
