#!/usr/bin/env bash
# Tests training/ on a toy pair, with PyTorch from PyPI (some GB). Runs by name,
# where PyPI is reached; no other stage needs PyTorch.
source "$(dirname "$0")/common.sh"

python3 -m venv build/training-venv
build/training-venv/bin/pip install --quiet --requirement \
  training/requirements.txt ./clients/python
cd training
../build/training-venv/bin/python -m unittest discover --top-level-directory . \
  --start-directory tests
