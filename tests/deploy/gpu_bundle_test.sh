#!/usr/bin/env bash
# The bundle for GPU machines (scripts/gpu_bundle.sh) needs nothing of this
# machine but the C library, and run.sh tells a machine without a GPU what it
# is.   usage: gpu_bundle_test.sh BUILD_DIR
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

build=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# --- It is put together, and small -------------------------------------------

scripts/gpu_bundle.sh "$build" "$folder/made" || exit 1
# Another folder than the one it was made in.
mkdir "$folder/elsewhere"
mv "$folder/made" "$folder/elsewhere/bundle"
bundle=$folder/elsewhere/bundle
bytes=$(du -sb "$bundle" | cut -f 1)
((bytes < 80000000)) || fail "it has $bytes bytes"
links=$(find "$bundle" -type l)
[[ -z "$links" ]] || fail "links do not travel: $links"
"$bundle/run.sh" --unpack || fail "it cannot be unpacked"
for file in bin/nacre bin/nacre-coordinator bin/nacre-draft-worker \
  bin/nacre-target-worker bin/bench_gpu bin/bench_cuda_gemm \
  tests/kernels_cuda_gemm_test tests/kernels_cuda_backend_test \
  tests/model_cuda_tokens_test run.sh; do
  [[ -x "$bundle/$file" ]] || fail "$file is missing"
done
links=$(find "$bundle" -type l)
[[ -z "$links" ]] || fail "there are links in it: $links"
mkdir "$folder/precious" && touch "$folder/precious/file"
scripts/gpu_bundle.sh "$build" "$folder/precious" >/dev/null 2>&1 &&
  fail "it replaced a folder that is no bundle"
[[ -f "$folder/precious/file" ]] || fail "it deleted a folder of others"

# --- It needs nothing of this machine but the C library ----------------------

mapfile -t programs < <(find "$bundle/bin" "$bundle/tests" -maxdepth 1 \
  -type f -perm -u+x)
((${#programs[@]} >= 10)) || fail "only ${#programs[@]} programs"
for program in "${programs[@]}"; do
  needs=$(cd / && env -i /usr/bin/ldd "$program") || fail "ldd $program"
  while read -r name arrow path _; do
    [[ "$arrow" == "=>" ]] || continue
    case "$name" in
      libc.so.* | libm.so.* | libdl.so.* | librt.so.* | libpthread.so.* | \
        libresolv.so.*) ;;
      *)
        [[ "$path" -ef "$bundle/lib/$name" ]] ||
          fail "$(basename "$program") takes $name from $path"
        ;;
    esac
  done <<<"$needs"
done

# The same where there is no other library at all.
root=$folder/root
mkdir -p "$root/tmp" "$root/dev"
mv "$bundle" "$root/bundle"
bundle=$root/bundle
for library in libc.so.6 libm.so.6 libdl.so.2 librt.so.1 libpthread.so.0 \
  libresolv.so.2; do
  path=$(ldconfig -p | sed -n "s|^\s*$library .*x86-64.*=> ||p" | head -n 1)
  [[ -n "$path" ]] && install -D "$path" "$root$path"
done
loader=$(readelf -l "$bundle/bin/nacre" |
  sed -n 's|.*interpreter: \(.*\)\]|\1|p')
install -D "$loader" "$root$loader"
# Without /proc the loader is told where a program lies.
alone=(env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LD_ORIGIN_PATH=/bundle/bin)
if "${alone[@]}" unshare -r chroot "$root" /bundle/bin/nacre --help \
  >/dev/null 2>&1; then
  enter=("${alone[@]}" unshare -r chroot "$root")
elif "${alone[@]}" chroot "$root" /bundle/bin/nacre --help >/dev/null 2>&1; then
  enter=("${alone[@]}" chroot "$root")
else
  enter=()
  # Where that is not allowed, ldd has told.
  if unshare -r chroot / true 2>/dev/null || chroot / true 2>/dev/null; then
    fail "nacre does not start alone"
  fi
fi
if ((${#enter[@]} > 0)); then
  for name in nacre nacre-coordinator nacre-draft-worker \
    nacre-target-worker; do
    if ! said=$("${enter[@]}" "/bundle/bin/$name" --version 2>&1) ||
      [[ "$said" != "$name "* ]]; then
      fail "$name does not start alone: $said"
    fi
  done
fi

# --- run.sh without a GPU ----------------------------------------------------

# Debian's python3-minimal has no json; what is JSON is also Python.
json_is() { # FILE PYTHON-EXPRESSION of the parsed `j`
  python3 -c 'import sys
j = eval(open(sys.argv[1]).read(), {"true": True, "false": False, "null": None})
sys.exit(not eval(sys.argv[2]))' "$1" "$2" || fail "$1: not $2"
}
if "$bundle/bin/bench_gpu" --facts >/dev/null; then
  echo "this machine has a GPU: run.sh is not tried without one"
else
  (cd / && env -i PATH=/usr/bin:/bin "$bundle/run.sh" "$folder/results" \
    >"$folder/said" 2>&1)
  code=$?
  ((code == 77)) || fail "run.sh ended with $code"
  grep -q 'run.sh: there is no GPU to run on: ' "$folder/said" ||
    fail "run.sh does not say that there is no GPU: $(cat "$folder/said")"
  json_is "$folder/results/summary.json" 'j["state"] == "no device"'
  json_is "$folder/results/summary.json" 'len(j["steps"]) >= 14 and all(
      s["state"] == "skipped" and s["note"] == "no device"
      for s in j["steps"])'

  # Parts: those that are told, and those of the eight minutes without a word.
  (cd / && env -i PATH=/usr/bin:/bin "$bundle/run.sh" --part models --part clean \
    "$folder/parts" >"$folder/said" 2>&1)
  (($? == 77)) || fail "parts did not end with 77: $(cat "$folder/said")"
  json_is "$folder/parts/summary.json" '{s["name"].split("_")[0].split("-")[0]
      for s in j["steps"]} == {"bench", "sanitize"}'
  json_is "$folder/results/summary.json" 'not {s["name"] for s in j["steps"]} & {
      "sanitize-memcheck", "bench_gpu_70B"}'
  "$bundle/run.sh" --part speed "$folder/parts" >"$folder/said" 2>&1
  (($? == 1)) || fail "a part that there is not: no 1"
  grep -q "no part 'speed' (known: right fast models clean all)" \
    "$folder/said" || fail "no word of the parts: $(cat "$folder/said")"

  env -i PATH=/usr/bin:/bin "$bundle/run.sh" --rehearse --part right --only inflate \
    "$folder/nothing" >"$folder/said" 2>&1
  (($? == 1)) || fail "a selection of nothing: no 1"
  grep -q 'run.sh: no step of right has the name inflate' "$folder/said" ||
    fail "no word of a selection of nothing: $(cat "$folder/said")"

  # Its command lines are good, and what fails is told.
  env -i PATH=/usr/bin:/bin HOME=/ "$bundle/run.sh" --rehearse \
    "$folder/rehearsed" >"$folder/said" 2>&1
  code=$?
  ((code == 0)) || fail "the rehearsal ended with $code: $(cat "$folder/said")"
  json_is "$folder/rehearsed/summary.json" 'j["state"] == "passed" and {
      s["name"] for s in j["steps"] if s["state"] == "passed"} == {
      "exact-gpu", "exact-gpu-sampled", "exact-draft-on-cpu", "exact-eagle",
      "exact-glide", "exact-medusa", "exact-persistent", "inflate",
      "bench-pair-gpu", "bench-pair-draft-on-cpu"}'
  json_is "$folder/rehearsed/pair_gpu.json" 'j["identical_tokens"]'

  env -i PATH=/usr/bin:/bin HOME=/ "$bundle/run.sh" --rehearse --only 'inf*' \
    --only 'exact-draft-*' "$folder/some" >"$folder/said" 2>&1 ||
    fail "some of the steps ended with $?: $(cat "$folder/said")"
  # In any order of flags, and what an earlier run left is none of this one's.
  echo 1 >"$folder/some/bench_gpu.json"
  env -i PATH=/usr/bin:/bin HOME=/ "$bundle/run.sh" --only inflate \
    "$folder/some" --part fast --rehearse >"$folder/said" 2>&1 ||
    fail "flags after the folder ended with $?: $(cat "$folder/said")"
  [[ $(cd "$folder/some" && echo *) == "earlier-1 log.txt summary.json" ]] ||
    fail "an earlier run's files stay: $(ls "$folder/some")"
  [[ -f "$folder/some/earlier-1/bench_gpu.json" ]] || fail "they are lost"
  refused() { # WORD ARGS...
    said=$("$bundle/run.sh" "${@:2}" 2>&1) && fail "$1: no failure"
    [[ "$said" == "run.sh: $1"* && "$said" != *$'\n'* ]] || fail "not $1: $said"
  }
  refused "no flag '--rehearsal'" --rehearsal
  refused "--only needs a value" --only
  refused "two folders for results, a and b" a b
  json_is "$folder/some/earlier-1/summary.json" '[s["name"] for s in j["steps"]] == [
      "exact-draft-on-cpu", "inflate"]'

  # Tokens are the same also where no step was one kernel, as none is on a CPU.
  env -i PATH=/usr/bin:/bin HOME=/ \
    NACRE_GPU_SAMPLE='nacre_worker_step_lists_total[{].*as="persistent"' \
    "$bundle/run.sh" --rehearse --only exact-persistent "$folder/one-by-one" \
    >"$folder/said" 2>&1 && fail "steps that were no kernel pass"
  json_is "$folder/one-by-one/summary.json" '[(s["name"], s["state"])
      for s in j["steps"]] == [("exact-persistent", "failed")] and (
      "has no nacre_worker_step_lists_total" in j["steps"][0]["note"])'
  grep -q '^identical tokens: yes' "$folder/one-by-one/log.txt" ||
    fail "they were not compared: $(cat "$folder/said")"

  # Nor where the target's own draft drafts nothing.
  mv "$bundle/bin/nacre" "$folder/nacre"
  cat >"$bundle/bin/nacre" <<'END'
#!/bin/sh
echo "async: of the target's own drafts 0 of 42 verified accepted (0.0%)"
echo "identical tokens: yes (2 prompts x 2 methods)"
END
  chmod +x "$bundle/bin/nacre"
  env -i PATH=/usr/bin:/bin HOME=/ "$bundle/run.sh" --rehearse \
    --only exact-glide "$folder/idle" >"$folder/said" 2>&1 &&
    fail "a draft that drafts nothing passes"
  json_is "$folder/idle/summary.json" '[(s["name"], s["state"], s["note"])
      for s in j["steps"]] == [("exact-glide", "failed", "code 1: nacre: no "
      "token of its own draft was accepted")]'

  # Nor does a run whose log, or summary, has no room.
  cat >"$bundle/bin/nacre" <<'END'
#!/bin/sh
[ "$1" = --help ] && exit
for line in 1 2 3 4 5 6 7 8; do printf '%01000d\n' $line; done
END
  for kb in 0 4; do
    (trap '' XFSZ && ulimit -f "$kb" && env -i PATH=/usr/bin:/bin HOME=/ \
      "$bundle/run.sh" --part right --only exact-gpu --rehearse "$folder/full-$kb" \
      2>&1) | cat >"$folder/said"
    code=${PIPESTATUS[0]}
    ((code == 1)) || fail "files of $kb KB at most: $code: $(cat "$folder/said")"
    [[ $(grep -c '^run.sh: cannot write .*full' "$folder/said") == 1 ]] ||
      fail "no word of files of $kb KB at most: $(cat "$folder/said")"
    grep -q '^passed' "$folder/said" && fail "passed: $(cat "$folder/said")"
    [[ ! -e "$folder/full-$kb/summary.json" ]] || fail "a summary of nothing"
  done
  mv "$folder/nacre" "$bundle/bin/nacre"

  rm "$bundle/models/draft/model.safetensors"
  env -i PATH=/usr/bin:/bin "$bundle/run.sh" --rehearse --only 'exact-gpu*' \
    --only exact-draft-on-cpu --only inflate "$folder/broken" \
    >"$folder/said" 2>&1
  code=$?
  ((code == 1)) || fail "a bundle without a draft ended with $code"
  grep -q 'model.safetensors' "$folder/said" || fail "it does not say why"
  json_is "$folder/broken/summary.json" 'j["failed"] == 4'

  NACRE_GPU_SECONDS=3 "$bundle/run.sh" --rehearse "$folder/short" \
    >"$folder/said" 2>&1 && fail "steps without time count as passed"
  grep -q 'no time left' "$folder/said" || fail "no word of the time"
fi

((failures == 0)) || exit 1
echo "passed"
