#!/usr/bin/env bash
# Times the steps of the nets beside their peers on this machine, and prints one table: ours, the fastest peer, the ratio, the share of
# this machine's floor, the goal, and whether it is met (steps_table.py says how each is computed).
#
#   bench/all.sh [OPTION...]
#     --shared DIR       reference material with the nets and the comparison script (../shared)
#     --bin-dir DIR      build of millrace (build/release)
#     --peers DIR        environments of the peers, made if they are missing: some gigabytes (build/peers)
#     --nets A,B         only these; --train and --infer choose the mode (both)
#     --rounds N         rounds in which all take turns (3); --budget S: seconds of steps in each (2)
#     --cpu-isa NAME     everything as on an older processor (names as of run-program). ONNX Runtime, which takes no such limit, is left out
#     --write PAGE --table NAME, --against PAGE     as of steps_table.py
#
# Results stay in build/bench. Processor time of one thread is compared, so other programs disturb little, but an idle machine is better.
set -euo pipefail
cd "$(dirname "$0")/.."

shared=../shared bin_dir=build/release peers=build/peers nets="" rounds=3 budget=2 isa="" modes="" out=build/bench
table=()
while [ $# -gt 0 ]; do
  case $1 in
    --shared) shared=$2; shift ;;
    --bin-dir) bin_dir=$2; shift ;;
    --peers) peers=$2; shift ;;
    --nets) nets=$2; shift ;;
    --rounds) rounds=$2; shift ;;
    --budget) budget=$2; shift ;;
    --cpu-isa) isa=$2; shift ;;
    --train | --infer) modes="$modes ${1#--}" ;;
    --write | --against | --table) table+=("$1" "$2"); shift ;;
    --help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit 0 ;;
    *) echo "bench/all.sh: $1: expected an option, see --help" >&2 && exit 2 ;;
  esac
  shift
done
for needed in "$bin_dir/tools/run-program" "$bin_dir/bench/product_bench" "$shared/bench/compare.py"; do
  [ -e "$needed" ] || { echo "bench/all.sh: $needed is missing (cmake --preset release && cmake --build --preset release)" >&2 && exit 3; }
done

environment() { # <name> <module to import> <packages...>
  local python=$peers/$1/bin/python module=$2
  shift 2
  "$python" -c "import $module" 2>/dev/null && return
  python3 -m venv "${python%/bin/python}"
  "$python" -m pip install --quiet "$@"
}
environment torch "torch, onnxruntime" numpy torch onnx onnxscript onnxruntime
environment paddle3 "numpy.random, paddle" numpy paddlepaddle==3.3.1
mkdir -p "$out"

training=linreg,mlp,word2vec,ctr_dnn,ctr_dnn_adam,bert_mini,bert_base_l2
inference=mlp,bert_mini,resnet18_64,mobilenet_224,resnet50_224
images=lenet,resnet18_64,resnet50_64
python=$PWD/$peers/torch/bin/python
[ "${peers#/}" = "$peers" ] || python=$peers/torch/bin/python

# Limits of the libraries that the peers are made of: oneDNN, ATen, MKL, OpenBLAS. ONNX Runtime has none.
onnx=()
case $isa in
  "") onnx=(ort:infer) ;;
  avx2*) export ONEDNN_MAX_CPU_ISA=$isa ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 OPENBLAS_CORETYPE=Haswell ;;
  avx512*) export ONEDNN_MAX_CPU_ISA=avx512_core${isa#avx512} OPENBLAS_CORETYPE=SkylakeX ;;
  *) export ONEDNN_MAX_CPU_ISA=avx512_core_$isa ;;
esac
[ -z "$isa" ] || export ONEDNN_MAX_CPU_ISA=${ONEDNN_MAX_CPU_ISA^^}

chosen() { # <nets of a mode>: those that --nets names, or all
  [ -n "$nets" ] || { echo "$1" && return; }
  tr ',' '\n' <<<"$1" | grep -Fxf <(tr ',' '\n' <<<"$nets") | paste -sd, || true
}
compare() { # <nets> <peers...>
  local list
  list=$(chosen "$1")
  [ -n "$list" ] || return 0
  shift
  "$python" "$shared/bench/compare.py" --nets "$list" --peers "$(IFS=,; echo "$*")" --threads 1 --rounds "$rounds" --budget "$budget" \
    --py "torch=$python,paddle3=${python%/torch/bin/python}/paddle3/bin/python" \
    --ours "$python bench/run_step.py --bin-dir $bin_dir --net {dir} --threads {threads} --batch {batch} --mode {mode} --budget $budget${isa:+ --cpu-isa $isa}" |
    tee -a "$out/steps.jsonl"
}

"$python" bench/machine_rates.py --bin-dir "$bin_dir" --torch "$python" --output "$out/rates.json" ${isa:+--cpu-isa "$isa"}
: >"$out/steps.jsonl"
for mode in ${modes:-train infer}; do
  if [ "$mode" = train ]; then
    compare "$training" torch:train paddle3M:train ours:train
    compare "$images" torch:train torch:train+nhwc paddle3M:train ours:train
  else
    compare "$inference" "${onnx[@]}" paddle3:predictor_onednn ours:infer
  fi
done
"$python" bench/steps_table.py "$out/steps.jsonl" --rates "$out/rates.json" "${table[@]}"
