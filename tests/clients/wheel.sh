#!/usr/bin/env bash
# Builds the wheel of the Python client, installs it and imports it.
#
#   NACRE_CLIENTS_PYTHON=VENV/bin wheel.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/../.."
readonly WORK=$1
PYTHON=$(realpath "${NACRE_CLIENTS_PYTHON:?folder of python and pip}")
readonly PYTHON

rm -rf "$WORK"
mkdir -p "$WORK"
# Of a copy, as setuptools writes beside the sources.
cp -r clients/python "$WORK/source"
"$PYTHON/pip" wheel --quiet --no-deps --no-build-isolation --wheel-dir "$WORK" \
  "$WORK/source"
"$PYTHON/pip" install --quiet --force-reinstall --no-deps \
  "$WORK"/nacre_client-*.whl
# Where no source is found.
cd /
"$PYTHON/python" -c '
import importlib.metadata, pathlib, nacre
folder = pathlib.Path(nacre.__file__).parent
assert "site-packages" in folder.parts, folder
assert (folder / "py.typed").is_file(), list(folder.iterdir())
nacre.Client("127.0.0.1:1").close()
print("wheel: nacre-client", importlib.metadata.version("nacre-client"))'
