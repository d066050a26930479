#!/usr/bin/env bash
# clang-tidy over the sources of the product's folders. Each folder's sources are
# joined in one, so that their headers are read once. Those that Highway compiles
# for several CPUs, or that are for one kind of CPU, stay alone.
# A run reads as many folders as its time allows, beginning with another one
# after each commit. Its last line says which it has not read. CUDA source and
# what is for 64-bit Arm is not read.
#   NACRE_TIDY_FOLDERS='tools|worker' NACRE_TIDY_SECONDS=1800 .ci/stages/tidy.sh
# reads these folders instead, for longer.
source "$(dirname "$0")/common.sh"

readonly TIDY_SECONDS=${NACRE_TIDY_SECONDS:-300}
readonly ALL=(speculation coordinator common tokenizer wire worker draft_worker
  target_worker telemetry model chat simulation gateway tools kernels proto)
# By the number of commits.
FIRST=$(($(git rev-list --count HEAD) % ${#ALL[@]}))
IN_TURN=$(IFS='|' && echo "${ALL[*]:FIRST}|${ALL[*]:0:FIRST}")
readonly FOLDERS=${NACRE_TIDY_FOLDERS:-${IN_TURN%|}}

cmake --preset release --log-level=NOTICE
# Generated headers must be there.
cmake --build build --parallel "$JOBS" --target nacre_proto
rm -rf build/tidy
mkdir build/tidy
mapfile -t files < <(python3 - "$FOLDERS" <<'PYTHON'
import json, os, re, shlex, sys
folders = sys.argv[1].split("|")
# Or joined by CMake; what CMake makes of files of other kinds is not read.
ours = re.compile(rf"(?:build/(?=.*/joined/))?({sys.argv[1]})/.*\.cc$")
sources, flags = {}, {}
for entry in json.load(open("build/compile_commands.json")):
    name = os.path.relpath(entry["file"])
    if not (match := ours.match(name)):
        continue
    alone = name if '"hwy/' in open(name).read() else ""
    key = folders.index(match[1]), alone
    # A program of the tests may have it, too.
    sources.setdefault(key, {})[name] = None
    words = re.sub(r" -o \S+ -c \S+$", "", entry["command"])
    words = shlex.split(words.replace("-isystem ", "-isystem"))
    flags.setdefault(key, {}).update(dict.fromkeys(words))
commands = []
for number, (key, names) in enumerate(sorted(sources.items())):
    folder = folders[key[0]].replace("/", "-")
    path = os.path.abspath(f"build/tidy/{folder}_{number}.cc")
    with open(path, "w") as file:
        file.writelines(f'#include "{name}"\n' for name in names)
    commands.append({"directory": os.getcwd(), "file": path,
                     "arguments": [*flags[key], "-c", path]})
    print(os.path.relpath(path))
with open("build/tidy/compile_commands.json", "w") as file:
    json.dump(commands, file)
PYTHON
)
for folder in ${FOLDERS//|/ }; do
  compgen -G "build/tidy/${folder//\//-}_[0-9]*.cc" >/dev/null || {
    echo "clang-tidy: no source of $folder is among those that CMake compiles"
    exit 1
  }
done
echo "clang-tidy on ${#files[@]} sources, at most $TIDY_SECONDS s"
status=0
found=$(mktemp -u)
export found
export FILTER="/($FOLDERS)/[a-z0-9_/-]*[.](h|cc)\$"
# Every finding is an error, also where time runs out after it; lines that count
# muted warnings are dropped. Joined sources include sources. One that was read
# goes.
# shellcheck disable=SC2016 # "$@" is the inner shell's.
printf '%s\0' "${files[@]}" |
  timeout "$TIDY_SECONDS" xargs -0 -n 1 -P "$JOBS" bash -c '
    clang-tidy -p build/tidy --quiet --extra-arg=-Wno-unknown-warning-option \
      --checks=-bugprone-suspicious-include --header-filter="$FILTER" "$@" ||
      { touch "$found"; exit 1; }
    rm "$1"' tidy 2> >(grep -v 'warnings generated' >&2) ||
  status=$?
if [[ -e "$found" ]]; then
  rm -f "$found"
  exit 1
fi
clean=() unread=()
for folder in ${FOLDERS//|/ }; do
  if compgen -G "build/tidy/${folder//\//-}_[0-9]*.cc" >/dev/null; then
    unread+=("$folder")
  else
    clean+=("$folder")
  fi
done
if ((status == 124)); then
  echo "clang-tidy: out of time after $TIDY_SECONDS s; clean: ${clean[*]:-none};" \
    "not read: ${unread[*]}"
  exit "$PARTIAL"
fi
((status == 0)) || exit "$status"
echo "clang-tidy: clean: ${clean[*]}"
