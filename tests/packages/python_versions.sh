#!/bin/sh
# Builds the Python package for each CPython from 3.10 on that this machine has (on the PATH, or of pyenv), installs it into
# a new virtual environment, and runs there the tests, the examples of docs/python.md, and with reference material its
# training references. A wheel for 3.12 is one for the stable interface: later versions use it.
#
#   tests/packages/python_versions.sh PREFIX FOLDER [REFERENCES]
#
# PREFIX: an installed millrace. FOLDER: for wheels and environments. Last line: "N passed, 0 failed", N tests in all
# versions together.
set -eu
prefix=$(realpath "$1") && folder=$2 && references=${3:-}
rm -rf "$folder" && mkdir -p "$folder"
folder=$(realpath "$folder")
stable="" passed=0 skipped=""
# As the doctests of unittest count: "Ran 60 tests in 12.3s".
count() { sed -n 's/^Ran \([0-9]*\) tests.*/\1/p' "$1" | tail -1; }

for version in 3.10 3.11 3.12 3.13 3.14; do
  python=$(ls "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python 2>/dev/null | tail -1)
  [ -n "$python" ] || python=$(command -v "python$version") || { skipped="$skipped $version" && continue; }
  "$python" -c 'import ensurepip, venv' 2>/dev/null || { skipped="$skipped $version" && continue; }
  env=$folder/$version
  "$python" -m venv "$env"
  "$env/bin/python" -m pip install --quiet --only-binary :all: numpy ml-dtypes
  wheel=$stable
  if [ -z "$wheel" ]; then
    "$env/bin/python" -m pip install --quiet nanobind 'scikit-build-core>=0.10'
    CMAKE_PREFIX_PATH=$prefix CMAKE_CXX_COMPILER_LAUNCHER=ccache "$env/bin/python" -m pip wheel --quiet \
      --no-build-isolation --no-deps --no-index --wheel-dir "$folder/wheels/$version" ./python
    wheel=$(ls "$folder/wheels/$version"/millrace-*.whl)
    case $wheel in *-abi3-*) stable=$wheel ;; esac
  fi
  "$env/bin/python" -m pip install --quiet --no-deps --no-index "$wheel"
  "$env/bin/python" -B -W error -m unittest discover -s python/tests >"$folder/$version.log" 2>&1 ||
    { tail -40 "$folder/$version.log" && echo "CPython $version: its tests failed" && exit 1; }
  tests=$(count "$folder/$version.log")
  line="CPython $version: $(basename "$wheel"), $tests tests"
  if [ -n "$references" ]; then
    "$env/bin/python" -B "$references/tools/check_training.py" --bin "$env/bin/python $PWD/python/tests/run_program.py" \
      >"$folder/$version.training.log" 2>&1 || { tail -20 "$folder/$version.training.log" && echo "CPython $version" && exit 1; }
    line="$line, training references: $(tail -1 "$folder/$version.training.log")"
  fi
  echo "$line"
  passed=$((passed + tests))
done
[ -z "$skipped" ] || echo "not on this machine:$skipped"
[ "$passed" -gt 0 ]
echo "$passed passed, 0 failed"
