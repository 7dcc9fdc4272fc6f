#!/bin/sh
# Installs the Debian packages that the project needs and this machine lacks.
# usage: tools/install_packages.sh {build|test|checks|fuzz|demo|peers}...
# SPDX-License-Identifier: Apache-2.0
set -eu

packages_for() {
  case "$1" in
    build) echo cmake g++ libabsl-dev libcli11-dev libdeflate-dev libhdf5-dev \
                libopenmpi-dev libxxhash-dev libzstd-dev ninja-build nlohmann-json3-dev \
                openmpi-bin pkg-config zlib1g-dev ;;
    test) echo hdf5-tools libgmock-dev libgtest-dev mold python3 \
               python3-h5py python3-numpy python3-xxhash python3-zstandard ;;
    checks) echo clang-format clang-tidy git ;;
    fuzz) echo clang libclang-rt-14-dev ;;
    demo) echo fortunes python3 ;;
    peers) echo git python3 python3-venv ;;
    *) echo "error: no package group $1, expected build, test, checks," \
            "fuzz, demo or peers" >&2
       exit 2 ;;
  esac
}

wanted=""
for group in "$@"; do
  packages=$(packages_for "$group")
  wanted="$wanted $packages"
done

missing=""
for package in $wanted; do
  status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [ "$status" = "install ok installed" ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -eq 0 ]; then
  as_root="env"
elif command -v sudo >/dev/null; then
  as_root="sudo"
else
  echo "error: packages are missing and neither root nor sudo is at hand," \
       "run as root: apt-get install$missing" >&2
  exit 1
fi
echo "installing$missing"
$as_root apt-get -qq update
$as_root DEBIAN_FRONTEND=noninteractive apt-get -qq -y \
  -o Dpkg::Use-Pty=0 install --no-install-recommends $missing >/dev/null
