#!/bin/bash
# The real libraries on files that our programs write, and the other way round:
# transformers, PyTorch's distributed checkpoints, Megatron-LM. Every value has
# to be equal. A library that is not there is a failure.
# usage: tests/peers/run.sh BIN DIR     BIN holds reshard and ckpt; DIR is for
#                                       the libraries and what the cases write
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
mkdir -p "$2"
bin="$(cd "$1" && pwd)" dir="$(cd "$2" && pwd)"
"$here/set_up.sh" "$dir" || exit 1

export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1
export PYTHONPATH="${PEERS_MEGATRON:-$dir/megatron}"
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
status=0
for peer in transformers_peer pytorch_peer megatron_peer; do
  "${PEERS_VENV:-$dir/venv}/bin/python" -W ignore "$here/$peer.py" "$bin" \
    "$dir/$peer" 2>&1 | tee -a "$log" || status=1
done
ok=$(grep -c '^ok ' "$log")
failed=$(grep -c '^FAILED ' "$log")
verdict="all peers agree"
[ $status = 0 ] || verdict="NOT passed"
echo "peers: $verdict, $ok cases ok, $failed failed"
exit $status
