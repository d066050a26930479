#!/usr/bin/env bash
# Puts together a folder for a machine with a GPU that has CUDA's driver and
# libraries and nothing else of what Nacre is built from (docs/gpu.md); what the
# build made is listed in BUILD_DIR/gpu-bundle.txt. `make gpu-bundle` builds
# first.   usage: scripts/gpu_bundle.sh BUILD_DIR OUT_DIR
#
#   OUT/run.sh            runs every GPU test and benchmark
#   OUT/programs.tar.xz   what run.sh unpacks beside itself first: all programs have
#                         the same kernels, of which this keeps one copy
#     bin      programs, stripped; tests the tests with the label cuda
#     lib      shared libraries that they need, found there by their RPATH
#   OUT/unpack            what unpacks it
set -euo pipefail
cd "$(dirname "$0")/.."

readonly MOST_BYTES=$((80 * 1000 * 1000))
# Of the machine: the C library, whose loader comes with it, and CUDA.
readonly SYSTEM_LIBRARIES='^(linux-vdso|ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|anl)|lib(cuda|cudart|cublas|cublasLt|nccl|nvidia-.*))\.so'

die() {
  echo "gpu_bundle: error: $*" >&2
  exit 1
}
(($# == 2)) || die "usage: scripts/gpu_bundle.sh BUILD_DIR OUT_DIR"
build=$1 out=$2
list=$build/gpu-bundle.txt
[[ -f "$list" ]] ||
  die "$list is missing: this build has no CUDA. Is nvcc installed?"

# Only what is a bundle, or nothing yet, is replaced.
if [[ -e "$out" && ! -f "$out/run.sh" && -n "$(ls -A "$out")" ]]; then
  die "$out is there and is no bundle"
fi
rm -rf "$out"
mkdir -p "$out/bin" "$out/tests/data" "$out/lib" "$out/models" "$out/unpack"

# add_libraries FILE FOLDER: copies the shared libraries that FILE needs, also
# those that only another one needs: they are in ldd's list, too.
add_libraries() {
  local name arrow path
  while read -r name arrow path _; do
    if [[ "$arrow" != "=>" ]] || [[ "$name" =~ $SYSTEM_LIBRARIES ]]; then
      continue
    fi
    [[ "$path" == /* ]] || die "$1 needs $name, which is not found"
    [[ -f "$2/$name" ]] || cp -L "$path" "$2/$name"
  done < <(ldd "$1")
}

while read -r kind file args; do
  [[ -x "$file" ]] || die "$file is not built"
  case "$kind" in
    bin) folder=bin ;;
    test)
      folder=tests
      # What test programs are given as in the build: names of tests to run.
      echo "$(basename "$file") $args" >>"$out/tests/list"
      ;;
    *) die "$list: what is a $kind?" ;;
  esac
  strip --strip-all -o "$out/$folder/$(basename "$file")" "$file"
  add_libraries "$file" "$out/lib"
done <"$list"
chmod u+w "$out"/lib/*
strip --strip-unneeded "$out"/lib/*

for name in target draft eagle glide medusa; do
  cp -r "models/$name" "$out/models/$name"
done
cp -r tests/data/. "$out/tests/data"
install -m 755 scripts/gpu_run.sh "$out/run.sh"

# What the compiler made of the kernels: registers, stack and spills of each.
if command -v cuobjdump >/dev/null; then
  cuobjdump --dump-resource-usage "$out/bin/nacre-target-worker" 2>/dev/null |
    grep -E '^Fatbin|arch =|Function|REG' | c++filt >"$out/kernels.txt" || true
fi
{
  echo "commit $(git rev-parse HEAD 2>/dev/null || echo unknown)"
  "${CXX:-c++}" --version | head -n 1
  echo "needs $(objdump -T "$out"/bin/* "$out"/tests/* "$out"/lib/* 2>/dev/null |
    grep -oE 'GLIBC_2\.[0-9]+' | sort -uV | tail -n 1)"
} >"$out/BUILD"

xz=$(command -v xz) || die "xz is missing: apt-get install xz-utils"
cp "$xz" "$out/unpack/xz"
add_libraries "$xz" "$out/unpack"
# The window must reach from one program's kernels to the next one's.
tar -C "$out" --owner=0 --group=0 -cf - bin lib tests |
  "$xz" --threads=2 --lzma2=preset=3,dict=64MiB >"$out/programs.tar.xz"
rm -r "${out:?}"/{bin,lib,tests}

bytes=$(du -sb "$out" | cut -f 1)
if ((bytes > MOST_BYTES)); then
  du -ab "$out" | sort -rn | head -n 20 >&2
  die "$out has $bytes bytes, the limit is $MOST_BYTES"
fi
echo "$out: $((bytes / 1000000)) MB, $(tail -n 1 "$out/BUILD")." \
  "Copy it to a machine with a GPU and run ./run.sh there."
