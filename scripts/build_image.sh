#!/usr/bin/env bash
# Makes a container image of the packages in build/packages (make package) without a
# daemon: an archive that `docker load`, `podman load` and skopeo take.
#
#   scripts/build_image.sh [--rootfs TAR] [ARCHIVE]    default: build/nacre-image.tar
#
#   --rootfs TAR   keeps the root file system, too
#
# The same as deploy/docker/Dockerfile makes, but for the Debian below it:
# mmdebstrap puts that together from the mirrors of this machine. Needs root, and
# mmdebstrap of Debian 12.
set -euo pipefail
cd "$(dirname "$0")/.."

die() {
  echo "build_image: error: $*" >&2
  exit 1
}

rootfs='' archive=build/nacre-image.tar
while (($# > 0)); do
  case "$1" in
    --rootfs) rootfs=${2:?"--rootfs needs a file"} && shift ;;
    -h | --help) sed -n '2,12s/^# \{0,1\}//p' "$0" && exit ;;
    -*) die "unknown argument '$1' (known: --rootfs, --help)" ;;
    *) archive=$1 ;;
  esac
  shift
done
command -v mmdebstrap >/dev/null ||
  die "there is no mmdebstrap: apt-get install mmdebstrap"
version=$(sed -n 's/^project(nacre VERSION \([0-9.]*\) .*/\1/p' CMakeLists.txt)
architecture=$(dpkg --print-architecture)
packages=(nacre nacre-coordinator nacre-worker)
debs=("${packages[@]/%/_${version}_$architecture.deb}")
depends=ca-certificates
for deb in "${debs[@]}"; do
  [[ -f "build/packages/$deb" ]] || die "there is no build/packages/$deb: run make package"
  # What they need but each other, the first of alternatives, without versions.
  depends+=,$(dpkg-deb --field "build/packages/$deb" Depends |
    sed 's/([^)]*)//g; s/|[^,]*//g; s/ //g' | tr , '\n' | grep -v '^nacre' | paste -sd,)
done
# The same sources make the same bytes.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CMakeLists.txt)
export SOURCE_DATE_EPOCH

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
: "${rootfs:=$folder/rootfs.tar}"
for deb in "${debs[@]}"; do cp "build/packages/$deb" "$folder/"; done
chmod 755 "$folder"
# shellcheck disable=SC2016  # $1 is the hook's own
mmdebstrap --quiet --variant=essential --include="$depends" \
  --dpkgopt='path-exclude=/usr/share/man/*' \
  --dpkgopt='path-exclude=/usr/share/locale/*' \
  --dpkgopt='path-exclude=/usr/share/doc/*' \
  --dpkgopt='path-include=/usr/share/doc/*/copyright' \
  --customize-hook="cp $folder/*.deb \"\$1/tmp/\"" \
  --customize-hook='chroot "$1" sh -c "dpkg --install /tmp/*.deb && rm /tmp/*.deb"' \
  --customize-hook='rm -rf "$1"/etc/nacre "$1"/lib/systemd/system/nacre-*' \
  bookworm "$rootfs"
scripts/oci_archive.py "$rootfs" "$archive" --name "nacre:$version" \
  --architecture "$architecture"
ls -l "$archive"
