#!/usr/bin/env bash
# Installs the Debian packages that Nacre is built from.
#
#   scripts/install_deps.sh          what `make quickstart` needs
#   scripts/install_deps.sh --dev    also what `make test`, `make bench`,
#                                    `make format` and .ci/run need
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
  prometheus-cpp-dev libcivetweb-dev
)
# clang builds the sanitizer and fuzz configurations, libclang-rt-14-dev holds
# their run-time libraries, sentencepiece is the oracle of the tokenizer tests.
readonly DEV_PACKAGES=(
  clang clang-format clang-tidy libclang-rt-14-dev llvm sentencepiece
  libbenchmark-dev
)

say() { echo "install_deps: $*"; }
die() {
  echo "install_deps: error: $*" >&2
  exit 1
}

packages=("${BUILD_PACKAGES[@]}")
case "${1:-}" in
  "") ;;
  --dev) packages+=("${DEV_PACKAGES[@]}") ;;
  -h | --help)
    sed -n '2,9s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
  *) die "unknown argument '$1' (known: --dev, --help)" ;;
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
if ((${#missing[@]} == 0)); then
  say "all ${#packages[@]} packages are there already"
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  command -v sudo >/dev/null ||
    die "these packages are missing: ${missing[*]}." \
      "Installing them needs root: run this as root, or install sudo"
  as_root=(sudo)
fi

say "installing ${#missing[@]} of ${#packages[@]} packages: ${missing[*]}"
say "running apt-get update"
"${as_root[@]}" apt-get update -qq ||
  die "apt-get update failed: check the network and /etc/apt/sources.list"
say "running apt-get install (may take some minutes)"
# Only what is named: recommended packages would double the download.
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install \
  --yes --quiet=2 --no-install-recommends "${missing[@]}" ||
  die "apt-get could not install: ${missing[*]}." \
    "Nacre is built on Debian 12; this is" \
    "$(. /etc/os-release 2>/dev/null && echo "${PRETTY_NAME:-unknown}")"
say "done"
