#!/usr/bin/env bash
# Clients of OpenAI's API from PyPI, as they are, against `nacre up --http-port`:
# openai, langchain-openai, litellm, and lm-eval with two tasks of our own (a hub is
# not needed). Before them our own Python client: its types (mypy, strict), and the
# client built as a wheel and installed from it.
source "$(dirname "$0")/common.sh"

readonly VENV=build/clients-venv WORK=build/clients
make_venv clients "$VENV" --requirement tests/clients/requirements.txt grpcio \
  protobuf setuptools wheel mypy==1.13.0
cmake --preset release --log-level=NOTICE
cmake --build build --parallel "$JOBS" --target nacre nacre-coordinator \
  nacre-gateway nacre-draft-worker nacre-target-worker
export NACRE_CLIENTS_PYTHON=$VENV/bin
(cd clients/python && "$OLDPWD/$VENV/bin/mypy" --cache-dir "$OLDPWD/$WORK-mypy")
tests/clients/wheel.sh "$WORK-wheel"
tests/clients/http_clients.sh "$WORK"
