#!/usr/bin/env bash
# Tests training/ on a toy pair and against a real service, with PyTorch from PyPI
# (5 GB: its build there links CUDA's libraries). No other stage needs PyTorch.
source "$(dirname "$0")/common.sh"

readonly VENV=$PWD/build/training-venv TESTS_LOG=$PWD/build/training-tests.log
make_venv training "$VENV" --requirement training/requirements.txt grpcio protobuf \
  setuptools wheel
"$VENV/bin/pip" install --quiet --no-index --no-build-isolation ./clients/python
cmake --preset release --log-level=NOTICE
cmake --build build --parallel "$JOBS" --target nacre nacre-coordinator \
  nacre-target-worker
(cd training && NACRE=$OLDPWD/build/bin/nacre "$VENV/bin/python" -m unittest discover \
  --top-level-directory . --start-directory tests) 2>&1 | tee "$TESTS_LOG"
drop_tree "$VENV"
num_tests=$(sed -nE 's/^Ran ([0-9]+) tests in .*/\1/p' "$TESTS_LOG")
if ((num_tests == 0)) || ! grep -qx OK "$TESTS_LOG"; then
  echo "training: no test ran, or one was skipped" >&2
  exit 1
fi
echo "training: $num_tests tests passed"
