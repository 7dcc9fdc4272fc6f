#!/bin/sh
# Builds train, reshard, ckpt and preprocess into build/bin on a Debian 12
# machine, installing with apt what is missing.
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."

start=$(date +%s)
tools/install_packages.sh build
installed=$(date +%s)
echo "configuring build/"
cmake --preset release -DSHARDSHIFT_BUILD_TESTS=OFF >/dev/null
echo "building"
cmake --build --preset release --target binaries
built=$(date +%s)

for name in train reshard ckpt preprocess; do
  version=$("build/bin/$name" --version)
  echo "build/bin/$name: $version" | head -n 1
done
echo "packages $((installed - start)) s, build $((built - installed)) s"
