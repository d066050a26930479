#!/usr/bin/env bash
# clang-tidy over the sources of the product's folders. Each folder's sources are
# joined in one, so that their headers are read once. Those that Highway compiles
# for several CPUs, or that are for one kind of CPU, stay alone.
# A run reads as many of these sources as its time allows. It begins with those that
# runs on this machine have left, or else with another one after each commit. The
# stage has passed once none is left; its last line says which are. What changes
# after it was read is read in the next turn. CUDA source and
# what is for 64-bit Arm is not read.
#   NACRE_TIDY_FOLDERS='tools|worker' NACRE_TIDY_SECONDS=1800 .ci/stages/tidy.sh
# reads these folders instead, for longer.
source "$(dirname "$0")/common.sh"

readonly TIDY_SECONDS=${NACRE_TIDY_SECONDS:-300}
readonly ALL=(speculation coordinator common tokenizer wire worker draft_worker
  target_worker telemetry model chat simulation gateway tools kernels proto)
EVERY=$(IFS='|' && echo "${ALL[*]}")
readonly FOLDERS=${NACRE_TIDY_FOLDERS:-$EVERY}

cmake --preset release --log-level=NOTICE
# Generated headers must be there.
cmake --build build --parallel "$JOBS" --target nacre_proto
rm -rf build/tidy
mkdir build/tidy
mapfile -t names < <(python3 - "$FOLDERS" <<'PYTHON'
import json, os, re, shlex, sys
folders = sys.argv[1].split("|")
# Or joined by CMake; what CMake makes of files of other kinds is not read.
ours = re.compile(rf"(?:build/(?=.*/joined/))?({sys.argv[1]})/.*\.cc$")
sources, flags = {}, {}
for entry in json.load(open("build/compile_commands.json")):
    name = os.path.relpath(entry["file"])
    if not (match := ours.match(name)):
        continue
    alone = name[:-3] if '"hwy/' in open(name).read() else ""
    key = folders.index(match[1]), alone
    # A program of the tests may have it, too.
    sources.setdefault(key, {})[name] = None
    words = re.sub(r" -o \S+ -c \S+$", "", entry["command"])
    words = shlex.split(words.replace("-isystem ", "-isystem"))
    flags.setdefault(key, {}).update(dict.fromkeys(words))
commands = []
for key, names in sorted(sources.items()):
    called = (key[1] or folders[key[0]]).replace("/", "-")
    path = os.path.abspath(f"build/tidy/{called}.cc")
    with open(path, "w") as file:
        file.writelines(f'#include "{name}"\n' for name in names)
    commands.append({"directory": os.getcwd(), "file": path,
                     "arguments": [*flags[key], "-c", path]})
    print(called)
with open("build/tidy/compile_commands.json", "w") as file:
    json.dump(commands, file)
PYTHON
)
for folder in ${FOLDERS//|/ }; do
  compgen -G "build/tidy/${folder//\//-}*.cc" >/dev/null || {
    echo "clang-tidy: no source of $folder is among those that CMake compiles"
    exit 1
  }
done
if [[ -z ${NACRE_TIDY_FOLDERS:-} ]]; then
  read -ra names < <(.ci/plan.py --parts "$UNREAD_FILE" \
    "$(git rev-list --count HEAD)" "${names[@]}")
fi
echo "clang-tidy on ${#names[@]} sources, at most $TIDY_SECONDS s"
status=0
found=$(mktemp -u)
export found
export FILTER="/($FOLDERS)/[a-z0-9_/-]*[.](h|cc)\$"
# Every finding is an error, also where time runs out after it; lines that count
# muted warnings are dropped. Joined sources include sources. One that was read
# goes.
# shellcheck disable=SC2016 # "$@" is the inner shell's.
printf 'build/tidy/%s.cc\0' "${names[@]}" |
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
((status == 0 || status == 124)) || exit "$status"
clean=() unread=()
for name in "${names[@]}"; do
  if [[ -e "build/tidy/$name.cc" ]]; then unread+=("$name"); else clean+=("$name"); fi
done
left=("${unread[@]}")
if [[ -z ${NACRE_TIDY_FOLDERS:-} ]]; then
  .ci/plan.py --left "$UNREAD_FILE" "${clean[*]}" "${unread[@]}"
  mapfile -t left < <(sed -n 's/ [0-9]*$//p' "$UNREAD_FILE")
fi
if ((${#left[@]} > 0)); then
  echo "clang-tidy: out of time after $TIDY_SECONDS s; clean: ${clean[*]:-none};" \
    "not read: ${left[*]}"
  exit "$PARTIAL"
fi
((${#unread[@]} == 0)) || echo "clang-tidy: runs before have read ${unread[*]}"
echo "clang-tidy: clean: ${clean[*]}"
