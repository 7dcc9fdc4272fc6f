#!/bin/bash
# Everything, for as long as it takes: all tests and the long sweeps in a
# release build, the real libraries on our files (tests/peers), all tests under
# the sanitizers, ten minutes of each fuzzer. Ends with a summary.
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail
cd "$(dirname "$0")/.."

summary=$(mktemp)
log=$(mktemp)
trap 'rm -f "$summary" "$log"' EXIT
status=0
stage() {
  name="$1"
  shift
  start=$(date +%s)
  if "$@" 2>&1 | tee "$log"; then
    verdict="passed"
  else
    verdict="FAILED" status=1
  fi
  tests=$(grep -E 'tests passed|^peers: |layouts of each of ' "$log" | tail -n 1)
  printf '%-11s %-7s %6d s   %s\n' "$name" "$verdict" \
    $(($(date +%s) - start)) "$tests" >>"$summary"
}

with_sweeps() {
  cmake --preset release -DSHARDSHIFT_LONG_TESTS=ON >/dev/null &&
    cmake --build --preset release && ctest --preset release
}

fuzz() {
  cmake --preset fuzz >/dev/null &&
    cmake --build build-fuzz --target index_fuzz hf_fuzz pickle_fuzz \
      torch_file_fuzz dcp_metadata_fuzz dcp_shards_fuzz deepspeed_rules_fuzz ||
      return 1
  for target in index hf pickle torch_file dcp_metadata dcp_shards \
      deepspeed_rules; do
    corpus="tests/fuzz/${target}_corpus"
    [ "$target" = index ] && corpus=tests/fuzz/corpus
    "build-fuzz/tests/${target}_fuzz" -max_total_time=600 "$(mktemp -d)" \
      "$corpus" || return 1
  done
}

tools/install_packages.sh build test fuzz peers || exit 1
stage release with_sweeps
stage layouts tools/prove_layouts.py build/bin
stage bf16-layouts tools/prove_layouts.py build/bin --bf16
stage fp16-layouts tools/prove_layouts.py build/bin --fp16 \
  --initial-loss-scale 4194304 --loss-scale-window 2 --hysteresis 1
stage mpi-layouts tools/prove_layouts.py build/bin --layouts 8 --mpirun
stage peers tests/peers/run.sh build/bin build-peers
stage asan tools/sanitize.sh asan all
stage tsan tools/sanitize.sh tsan all
stage fuzz fuzz
cat "$summary"
exit $status
