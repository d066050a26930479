#!/usr/bin/env bash
# clang-tidy over the sources of some folders, as they are compiled (several
# sources joined in one, cmake/Nacre.cmake): headers are read once for each.
# Two folders are always read, others in turn. Never read by itself, because
# not all of their findings are mended yet: chat, coordinator, draft_worker,
# gateway, kernels, model, target_worker, tokenizer and tools.
#   NACRE_TIDY_FOLDERS='tools|worker' .ci/stages/tidy.sh    these folders instead
source "$(dirname "$0")/common.sh"

readonly TIDY_SECONDS=${NACRE_TIDY_SECONDS:-300}
readonly ALWAYS='common|speculation'
# By the number of commits, one line a run.
readonly IN_TURN=('wire|telemetry|simulation' worker)
readonly TURN=${IN_TURN[$(($(git rev-list --count HEAD) % ${#IN_TURN[@]}))]}
# Those whose turn it is first: time may run out.
readonly FOLDERS=${NACRE_TIDY_FOLDERS:-$TURN|$ALWAYS}

cmake --preset release --log-level=NOTICE
# Generated headers must be there.
cmake --build build --parallel "$JOBS" --target nacre_proto
mapfile -t files < <(python3 - "$FOLDERS" <<'PYTHON'
import json, os, re, sys
names = {os.path.relpath(entry["file"]) for entry in
         json.load(open("build/compile_commands.json"))}
folders = sys.argv[1].split("|")
ours = re.compile(rf"(?:build/)?({sys.argv[1]})/.*\.cc$")
found = [(folders.index(match[1]), match[0]) for match in map(ours.match, names) if match]
print("\n".join(name for _, name in sorted(found)))
PYTHON
)
((${#files[@]} > 0)) || exit 1
echo "clang-tidy on ${#files[@]} sources, at most $TIDY_SECONDS s"
status=0
found=$(mktemp -u)
export found
export FILTER="/($FOLDERS)/[a-z0-9_/-]*[.](h|cc)\$"
# Every finding is an error, also where time runs out after it; lines that count
# muted warnings are dropped. Joined sources include sources.
# shellcheck disable=SC2016 # "$@" is the inner shell's.
printf '%s\0' "${files[@]}" |
  timeout "$TIDY_SECONDS" xargs -0 -n 1 -P "$JOBS" bash -c '
    clang-tidy -p build --quiet --extra-arg=-Wno-unknown-warning-option \
      --checks=-bugprone-suspicious-include --header-filter="$FILTER" "$@" ||
      { touch "$found"; exit 1; }' tidy 2> >(grep -v 'warnings generated' >&2) ||
  status=$?
if [[ -e "$found" ]]; then
  rm -f "$found"
  exit 1
fi
if ((status == 124)); then
  echo "clang-tidy: out of time after $TIDY_SECONDS s, not all sources of" \
    "${FOLDERS//|/, } were read"
  exit "$PARTIAL"
fi
((status == 0)) || exit "$status"
echo "clang-tidy: clean: ${FOLDERS//|/, }"
