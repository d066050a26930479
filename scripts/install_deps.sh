#!/usr/bin/env bash
# Installs the Debian packages that Nacre is built from.
#
#   scripts/install_deps.sh          what `make quickstart` needs
#   scripts/install_deps.sh --dev    also what `make test`, `make bench`,
#                                    `make format` and .ci/run need
#   scripts/install_deps.sh --cross-arm64
#                                    also what the CMake preset aarch64 needs:
#                                    a compiler, libraries and an emulator of
#                                    64-bit Arm; dpkg will know arm64
#
# Runs as root or through sudo, asks no questions, and does nothing when
# everything is there already. Written for Debian 12.
set -euo pipefail

readonly BUILD_PACKAGES=(
  build-essential cmake ninja-build pkg-config ccache git ca-certificates
  python3-minimal
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc
  libabsl-dev libhwy-dev libgtest-dev libgmock-dev nlohmann-json3-dev
  libpcre2-dev libspdlog-dev libssl-dev libutf8proc-dev
  libboost-dev libeigen3-dev prometheus-cpp-dev
)
# lld links, clang builds the sanitizer and fuzz configurations,
# libclang-rt-14-dev holds their run-time libraries, sentencepiece is the oracle
# of the tokenizer tests. help2man makes the manual pages, which mandoc checks;
# file and dpkg-dev (of build-essential) make packages. The Python client is
# tested with Debian's gRPC, the Helm chart with its YAML and JSON schemas, the
# gateway's page in Chromium (120 MB with what it needs). What is tested with
# packages of PyPI gets an environment of its own for them (python3-venv).
readonly DEV_PACKAGES=(
  lld clang clang-format clang-tidy libclang-rt-14-dev llvm sentencepiece
  xz-utils help2man mandoc file codespell shellcheck python3-grpcio python3-protobuf
  python3-yaml python3-jsonschema python3-venv chromium
)
# Tests the alerts; without it that test is skipped. Only this program is taken
# out of its package, which would start a server here.
readonly PROMTOOL=/usr/local/bin/promtool PROMTOOL_PACKAGE=prometheus
# What the services need besides is left out: prometheus-cpp-dev:arm64 would
# replace the one of this machine.
readonly CROSS_ARM64_PACKAGES=(
  g++-aarch64-linux-gnu qemu-user
  libabsl-dev:arm64 libhwy-dev:arm64 libgtest-dev:arm64 libgmock-dev:arm64
  libpcre2-dev:arm64 libspdlog-dev:arm64 libssl-dev:arm64 libutf8proc-dev:arm64
)

say() { echo "install_deps: $*"; }
die() {
  echo "install_deps: error: $*" >&2
  exit 1
}

packages=("${BUILD_PACKAGES[@]}")
foreign='' options=() wants_promtool=false
case "${1:-}" in
  "") ;;
  --dev)
    packages+=("${DEV_PACKAGES[@]}")
    command -v promtool >/dev/null || wants_promtool=true
    ;;
  --cross-arm64)
    packages+=("${CROSS_ARM64_PACKAGES[@]}")
    foreign=arm64
    # Nothing of this machine may make room for it.
    options+=(--no-remove)
    ;;
  -h | --help)
    sed -n '2,13s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
  *) die "unknown argument '$1' (known: --dev, --cross-arm64, --help)" ;;
esac

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  die "this machine has no apt-get and dpkg-query, so it is not a Debian." \
    "Install the equivalents of these by hand: ${packages[*]}"
fi

# True when the package is installed and configured.
installed() {
  local state
  # ${db:Status-Status} is dpkg-query's own field.
  # shellcheck disable=SC2016
  state=$(dpkg-query -W -f '${db:Status-Status} ' "$1" 2>/dev/null) || return 1
  [[ "$state" == *"installed "* && "$state" != *not-installed* ]]
}

missing=()
for package in "${packages[@]}"; do
  installed "$package" || missing+=("$package")
done
as_root=()
if ((EUID != 0)) && command -v sudo >/dev/null; then as_root=(sudo); fi

take_promtool() {
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  "${as_root[@]}" apt-get update -qq || true
  (cd "$folder" && apt-get download --quiet=2 "$PROMTOOL_PACKAGE") &&
    dpkg-deb --fsys-tarfile "$folder/$PROMTOOL_PACKAGE"_*.deb |
    tar -x -C "$folder" ./usr/bin/promtool &&
    "${as_root[@]}" install -D -m 755 "$folder/usr/bin/promtool" "$PROMTOOL"
}
# What can be done without is no reason to stop.
install_promtool() {
  "$wants_promtool" || return 0
  say "installing $PROMTOOL"
  take_promtool || say "there is no promtool: the alerts will not be tested"
}

if ((${#missing[@]} == 0)); then
  say "all ${#packages[@]} packages are there already"
  install_promtool
  exit 0
fi
if ((EUID != 0 && ${#as_root[@]} == 0)); then
  die "these packages are missing: ${missing[*]}." \
    "Installing them needs root: run this as root, or install sudo"
fi

say "installing ${#missing[@]} of ${#packages[@]} packages: ${missing[*]}"
if [[ -n "$foreign" ]] &&
  ! grep -qx "$foreign" <(dpkg --print-foreign-architectures); then
  [[ "$(dpkg --print-architecture)" != "$foreign" ]] ||
    die "this machine is $foreign itself: build for it with the preset release"
  say "adding the architecture $foreign to dpkg"
  "${as_root[@]}" dpkg --add-architecture "$foreign" ||
    die "dpkg does not accept the architecture $foreign"
fi
say "running apt-get update"
"${as_root[@]}" apt-get update -qq ||
  die "apt-get update failed: check the network and /etc/apt/sources.list"
say "running apt-get install (may take some minutes)"
# Only what is named: recommended packages would double the download.
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install \
  --yes --quiet=2 --no-install-recommends "${options[@]}" "${missing[@]}" ||
  die "apt-get could not install: ${missing[*]}." \
    "Nacre is built on Debian 12; this is" \
    "$(. /etc/os-release 2>/dev/null && echo "${PRETTY_NAME:-unknown}")"
install_promtool
say "done"
