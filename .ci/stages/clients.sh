#!/usr/bin/env bash
# Clients of OpenAI's API from PyPI, as they are, against `nacre up --http-port`:
# openai, langchain-openai, litellm, and lm-eval with two tasks of our own (a hub is
# not needed). Before them our own Python client: its types (mypy, strict), and the
# client built as a wheel and installed from it.
source "$(dirname "$0")/common.sh"

readonly VENV=build/clients-venv WORK=build/clients
if ! timeout 60 python3 -m pip index versions openai >/dev/null 2>&1; then
  echo "clients: NOT RUN: PyPI is not reached"
  exit "$NOTHING"
fi
cmake --preset release --log-level=NOTICE
cmake --build build --parallel "$JOBS" --target nacre nacre-coordinator \
  nacre-gateway nacre-draft-worker nacre-target-worker
# What PyPI or its mirror lacks at the moment is no fault of ours.
if ! python3 -m venv "$VENV" ||
  ! timeout 600 "$VENV/bin/pip" install --quiet \
    --requirement tests/clients/requirements.txt grpcio protobuf setuptools wheel \
    mypy==1.13.0; then
  echo "clients: NOT RUN: the packages of PyPI could not be installed"
  exit "$NOTHING"
fi
export NACRE_CLIENTS_PYTHON=$VENV/bin
(cd clients/python && "$OLDPWD/$VENV/bin/mypy" --cache-dir "$OLDPWD/$WORK-mypy")
tests/clients/wheel.sh "$WORK-wheel"
tests/clients/http_clients.sh "$WORK"
