#!/usr/bin/env bash
# Starts the service and runs the clients of http_clients.py and lm-eval.
#
#   NACRE_CLIENTS_PYTHON=VENV/bin http_clients.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/../.."
readonly WORK=$1 PYTHON=${NACRE_CLIENTS_PYTHON:?folder of python and lm_eval}
readonly ITEMS=20

rm -rf "$WORK"
mkdir -p "$WORK"
build/bin/nacre up --target-model models/target --draft-model models/draft \
  --port 0 --http-port 0 --chat-template tests/clients/chat.jinja \
  >"$WORK/up.log" 2>&1 &
readonly SERVICE=$!
trap 'kill "$SERVICE"; wait "$SERVICE" || true' EXIT
# The last line of a service that is ready names both addresses.
until grep -q '^ready' "$WORK/up.log"; do
  kill -0 "$SERVICE" || { cat "$WORK/up.log"; exit 1; }
  sleep 0.1
done
ADDRESS=$(awk '$1 == "coordinator" { print $2 }' "$WORK/up.log")
URL=http://$(awk '$1 == "http" { print $2 }' "$WORK/up.log")
readonly ADDRESS URL

"$PYTHON/python" tests/clients/http_clients.py openai "$URL" "$ADDRESS"
# It asks its maker's server for prices otherwise.
LITELLM_LOCAL_MODEL_COST_MAP=True \
  "$PYTHON/python" tests/clients/http_clients.py frameworks "$URL" "$ADDRESS"

# No hub is asked for anything.
export HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 HF_HOME=$WORK/hub
for task in nacre_generate nacre_loglikelihood; do
  "$PYTHON/lm_eval" --model local-completions --tasks "$task" \
    --include_path tests/clients/lm_eval --limit "$ITEMS" --log_samples \
    --output_path "$WORK/lm_eval" --model_args \
    "model=target,base_url=$URL/v1/completions,num_concurrent=4,max_length=2048,tokenized_requests=True" \
    >"$WORK/$task.log" 2>&1 || { tail -n 40 "$WORK/$task.log"; exit 1; }
  grep -E '^\|' "$WORK/$task.log"
done
"$PYTHON/python" tests/clients/http_clients.py lm-eval "$URL" "$ADDRESS" \
  "$WORK/lm_eval"
echo "clients: all as gRPC"
