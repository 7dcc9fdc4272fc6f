#!/bin/sh
# Builds and runs tests under a sanitizer, where a finding fails the test.
# usage: tools/sanitize.sh {asan|tsan} {quick|threads|all}
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
preset="$1"
case "$2" in
  quick|threads) targets="$2_tests" selection="--label-regex ^$2$" ;;
  all) targets="all" selection="" ;;
  *) echo "error: no test selection $2, expected quick, threads or all" >&2; exit 2 ;;
esac

# GCC 12's thread sanitizer stops at start-up where the kernel randomises more
# of the address space than it foresees.
fixed_addresses=""
if setarch -R true 2>/dev/null; then fixed_addresses="setarch -R"; fi

tools/install_packages.sh build test
cmake --preset "$preset" >/dev/null
cmake --build --preset "$preset" --target $targets
$fixed_addresses ctest --preset "$preset" $selection
