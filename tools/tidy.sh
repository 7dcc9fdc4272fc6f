#!/bin/sh
# Runs clang-tidy on the implementation files, or only on those that changed
# since a commit, with the headers they include. What time does not allow is
# left out and counted.
# usage: tools/tidy.sh [SINCE_COMMIT [SECONDS]]
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
since="${1:-}"
seconds="${2:-86400}"
build_dir=build-tidy
cmake --preset tidy >/dev/null

changed=$(mktemp)
trap 'rm -f "$changed"' EXIT
if [ -n "$since" ]; then
  # A changed header is seen through the file it is the header of.
  git diff --name-only --diff-filter=d "$since" -- '*.h' '*.cc' |
    sed 's/\.h$/.cc/' | sort -u >"$changed"
else
  git ls-files '*.cc' >"$changed"
fi

deadline=$(($(date +%s) + seconds))
export build_dir deadline
status=0
while read -r file; do [ -f "$file" ] && echo "$file"; done <"$changed" |
  xargs -r -n 1 -P "$(nproc)" sh -c '
    if [ "$(date +%s)" -ge "$deadline" ]; then
      echo "tidy: $0 left out, out of time"
    else
      clang-tidy --quiet -p "$build_dir" "$0" 2>/dev/null
    fi' || status=1
[ $status -eq 0 ] || echo "error: clang-tidy has findings, see above" >&2
exit $status
