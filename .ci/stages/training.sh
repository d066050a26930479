#!/usr/bin/env bash
# Tests training/ on a toy pair and against a real service, with PyTorch from PyPI
# (some GB). Runs by name, where PyPI is reached; no other stage needs PyTorch.
source "$(dirname "$0")/common.sh"

cmake --preset release --log-level=NOTICE
cmake --build build --parallel "$JOBS" --target nacre nacre-coordinator \
  nacre-target-worker
python3 -m venv build/training-venv
build/training-venv/bin/pip install --quiet --requirement \
  training/requirements.txt ./clients/python
cd training
NACRE=$PWD/../build/bin/nacre ../build/training-venv/bin/python -m unittest discover \
  --top-level-directory . --start-directory tests
