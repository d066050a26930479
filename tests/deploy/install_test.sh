#!/usr/bin/env bash
# What `cmake --install` and `cpack` make of a build: the services run from their
# installed units' commands and environment, far from the sources; units, manual
# pages and packages are what their tools accept. A tool that is not there is
# said.   usage: install_test.sh BUILD_DIR VERSION
set -uo pipefail

build=$(realpath "$1") version=$2
folder=$(mktemp -d)
prefix=$folder/prefix
services=()
end() {
  ((${#services[@]} == 0)) || kill "${services[@]}" 2>/dev/null
  wait
  rm -rf "$folder"
}
trap end EXIT
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# --- It is installed, and knows its version ----------------------------------

cmake --install "$build" --prefix "$prefix" >"$folder/install.log" ||
  { tail "$folder/install.log"; exit 1; }
cd "$folder" || exit 1
for program in nacre nacre-coordinator nacre-gateway nacre-draft-worker \
  nacre-target-worker; do
  said=$("$prefix/bin/$program" --version)
  [[ "$said" == "$program $version "* ]] || fail "$program --version: $said"
done
for file in share/nacre/models/target/model.safetensors \
  share/doc/nacre/LICENSE share/doc/nacre/docs/operations.md; do
  [[ -s "$prefix/$file" ]] || fail "$file is missing"
done

# --- The services of the units -----------------------------------------------

# A name of a flag that is gone would be ignored without a word.
for name in coordinator gateway draft-worker target-worker; do
  "$prefix/bin/nacre-$name" --help >"$folder/help"
  while read -r variable; do
    flag=${variable,,}
    grep -q -- "--${flag//_/-} " "$folder/help" ||
      fail "$name.env has NACRE_$variable, which is no flag"
  done < <(sed -n 's/^#\{0,1\}NACRE_\([A-Z0-9_]*\)=.*/\1/p' \
    "$prefix/etc/nacre/$name.env")
done

# start NAME VARIABLE=VALUE...: what systemd would start, on ports of its own.
start() {
  local name=$1 unit=$prefix/lib/systemd/system/nacre-$1.service
  local environment command variables
  shift
  environment=$(sed -n 's/^EnvironmentFile=//p' "$unit")
  command=$(sed -n 's/^ExecStart=//p' "$unit")
  mapfile -t variables < <(grep '^NACRE_' "$environment")
  env -i "${variables[@]}" NACRE_METRICS_LISTEN= "$@" "$command" \
    >"$folder/$name.log" 2>&1 &
  services+=($!)
}
# address FILE: what a service wrote there.
address() {
  local try
  for ((try = 0; try < 600; try++)); do
    [[ -s "$1" ]] && break
    sleep 0.1
  done
  cat "$1"
}

start coordinator NACRE_LISTEN=127.0.0.1:0 NACRE_REGISTRY_LISTEN=127.0.0.1:0 \
  NACRE_ADMIN_LISTEN=127.0.0.1:0 "NACRE_ADDRESS_FILE=$folder/clients" \
  "NACRE_REGISTRY_ADDRESS_FILE=$folder/workers"
workers=$(address "$folder/workers")
start target-worker "NACRE_COORDINATOR=$workers"
start draft-worker "NACRE_COORDINATOR=$workers"
clients=$(address "$folder/clients")
# A service that starts has no target yet.
for ((try = 0; try < 100; try++)); do
  "$prefix/bin/nacre" generate --address "$clients" --max-tokens 8 \
    --prompt "Question: What is 2 + 3?" --json >"$folder/answer" \
    2>"$folder/generate.log" && break
  sleep 0.2
done
grep -q '"text"' "$folder/answer" || {
  fail "no answer: $(cat "$folder/generate.log")"
  tail "$folder"/*-worker.log "$folder/coordinator.log"
}
start gateway "NACRE_COORDINATOR=$clients" NACRE_LISTEN=127.0.0.1:0 \
  "NACRE_ADDRESS_FILE=$folder/http"
http=$(address "$folder/http")
# The gateway may not have asked its coordinator yet.
for ((try = 0; try < 300; try++)); do
  exec {connection}<>"/dev/tcp/${http%:*}/${http##*:}"
  printf 'GET /health HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n' \
    "$http" >&"$connection"
  cat <&"$connection" >"$folder/health"
  exec {connection}>&-
  grep -q '^HTTP/1.1 200 ' "$folder/health" && break
  sleep 0.2
done
grep -q '^HTTP/1.1 200 ' "$folder/health" || {
  fail "the gateway: $(cat "$folder/health")"
  tail "$folder/gateway.log"
}
kill -TERM "${services[@]}"
for service in "${services[@]}"; do
  wait "$service" || fail "a service ended with $?"
done
services=()

# --- Units, manual pages, packages ------------------------------------------

# has TOOL PACKAGE
has() {
  command -v "$1" >/dev/null && return
  echo "SKIPPED: no $1 (Debian package $2)"
  return 1
}
if has systemd-analyze systemd; then
  said=$(systemd-analyze verify --man=no "$prefix"/lib/systemd/system/*.service \
    2>&1) || fail "systemd-analyze: $said"
  [[ "$said" != *nacre* ]] || fail "systemd-analyze: $said"
fi
if has help2man help2man && has mandoc mandoc; then
  for page in nacre.1 nacre-up.1 nacre-generate.1 nacre-bench.1 \
    nacre-simulate.1 nacre-calibrate.1 nacre-inflate.1 nacre-perplexity.1 \
    nacre-coordinator.8 nacre-gateway.8 nacre-draft-worker.8 \
    nacre-target-worker.8; do
    path=$prefix/share/man/man${page##*.}/$page
    mandoc -T lint -W error "$path" || fail "$page: see above"
  done
  grep -q 'max.-queue.*N' "$prefix/share/man/man8/nacre-coordinator.8" ||
    fail "no --max-queue in the manual page"
fi
if has dpkg-shlibdeps dpkg-dev && has file file; then
  (cd "$build" && cpack -G DEB -B "$folder/packages") >"$folder/cpack.log" 2>&1 ||
    fail "cpack: $(tail "$folder/cpack.log")"
  # holds PACKAGE FILE...
  holds() {
    local package
    package=$(echo "$folder/packages/$1_$version"_*.deb)
    shift
    dpkg-deb --contents "$package" >"$folder/contents" || fail "$package"
    for file in "$@"; do
      grep -q " \./$file\$" "$folder/contents" || fail "$package has no $file"
    done
  }
  holds nacre usr/bin/nacre usr/share/doc/nacre/README.md
  holds nacre-coordinator usr/bin/nacre-coordinator usr/bin/nacre-gateway \
    etc/nacre/coordinator.env etc/nacre/gateway.env \
    usr/lib/systemd/system/nacre-coordinator.service \
    usr/lib/systemd/system/nacre-gateway.service
  holds nacre-worker usr/bin/nacre-draft-worker usr/bin/nacre-target-worker \
    etc/nacre/draft-worker.env etc/nacre/target-worker.env
  holds nacre-models usr/share/nacre/models/draft/model.safetensors \
    usr/share/nacre/models/distilled/model.safetensors \
    usr/share/nacre/models/eagle/model.safetensors \
    usr/share/nacre/models/glide/model.safetensors \
    usr/share/nacre/models/eesd/model.safetensors \
    usr/share/nacre/models/medusa/medusa_lm_head.safetensors
  # Unpacked whole: whoever stops reading a pipe early ends its writer with an error.
  for name in coordinator worker; do
    dpkg-deb --raw-extract "$folder/packages/nacre-${name}_$version"_*.deb \
      "$folder/$name" || fail "the package of the $name"
  done
  grep -qx /etc/nacre/gateway.env "$folder/coordinator/DEBIAN/conffiles" ||
    fail "gateway.env is replaced"
  grep -q '^Depends:.*libgrpc++1' "$folder/worker/DEBIAN/control" ||
    fail "the worker's package does not depend on gRPC"
  grep -qx /etc/nacre/draft-worker.env "$folder/worker/DEBIAN/conffiles" ||
    fail "draft-worker.env is replaced"
  grep -qx ExecStart=/usr/bin/nacre-draft-worker \
    "$folder/worker/usr/lib/systemd/system/nacre-draft-worker.service" ||
    fail "a unit's path"
  if has apt-get apt; then
    apt-get install --simulate "$folder"/packages/*.deb >"$folder/apt.log" 2>&1 ||
      fail "apt-get would not install: $(cat "$folder/apt.log")"
  fi
fi

((failures == 0)) || exit 1
echo "passed"
