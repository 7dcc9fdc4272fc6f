#!/bin/sh
# Fails, with the places, if a source file is not as clang-format leaves it.
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
git ls-files -z '*.h' '*.cc' | xargs -0 clang-format --dry-run --Werror
