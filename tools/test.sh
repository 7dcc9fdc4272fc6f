#!/bin/sh
# Builds everything and runs all tests.
# usage: tools/test.sh [PRESET]     a preset of CMakePresets.json, default
#                                   release
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
preset="${1:-release}"

tools/install_packages.sh build test
cmake --preset "$preset" >/dev/null
cmake --build --preset "$preset"
ctest --preset "$preset"
