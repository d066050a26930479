#!/usr/bin/env bash
# The Helm chart. Its golden renders are checked with what Debian has. Where a
# Python has the packages of requirements.txt ($NACRE_CHART_PYTHON, or python3 of
# the path) the chart is also rendered anew, compared, and checked against the
# schemas of Kubernetes. $1 is the folder of the programs.
set -euo pipefail
cd "$(dirname "$0")/../../.."

python=
for candidate in python3 /usr/bin/python3; do
  if "$candidate" -c 'import yaml, jsonschema' 2>/dev/null; then
    python=$candidate
    break
  fi
done
[[ -n "$python" ]] || {
  echo "SKIPPED: no python3 has yaml and jsonschema;" \
    "scripts/install_deps.sh --dev installs them"
  exit 77
}
export PYTHONDONTWRITEBYTECODE=1
NACRE_PROGRAMS=$1 "$python" -m unittest discover -s tests/deploy/chart -p 'test_*.py'

for candidate in "${NACRE_CHART_PYTHON:-}" python3; do
  [[ -n "$candidate" ]] || continue
  if "$candidate" -c 'import helm_python, kubernetes_validate' 2>/dev/null; then
    "$candidate" scripts/render_chart.py --check
    exit
  fi
  [[ "$candidate" != "${NACRE_CHART_PYTHON:-}" ]] || {
    echo "NACRE_CHART_PYTHON=$candidate has no helm_python or kubernetes_validate"
    exit 1
  }
done
echo "not rendered anew: no Python has tests/deploy/chart/requirements.txt" \
  "(scripts/render_chart.py)"
