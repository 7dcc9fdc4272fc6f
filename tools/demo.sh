#!/bin/bash
# The main job on real text: a run is killed, its checkpoint is resharded to
# another parallel layout, the run resumes there, and the loss curve is
# bitwise that of a run nobody touched. Exits 1 if anything differs.
#
# Leaves in build/demo:
#   uninterrupted.jsonl, uninterrupted-run/   TP2 x DP2 from start to end
#   first-part-run/                           TP2 x DP2 until the kill
#   interrupted-run/                          resharded, then TP1 x PP2
#   interrupted.jsonl   both parts; the killed run's iterations behind its
#                       last checkpoint are in it twice
#   loss.svg
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "$(dirname "$0")/.."

iterations=120
save_interval=20
kill_at=70
demo=build/demo
text="definitions songs-poems computers science people wisdom"

say() { printf '\n== %s\n' "$*"; }
# Shows a command as a user would type it, then runs it.
run() {
  printf '$ %s\n' "$*"
  "$@"
}
fail() {
  echo "error: $*" >&2
  exit 1
}

# A GPT-2 of two layers; the schedule is written down once, at the first start.
from_scratch=(build/bin/train --tp 2 --dp 2 --use-distributed-optimizer
  --num-layers 2 --hidden-size 128 --num-attention-heads 4 --seq-length 64
  --max-position-embeddings 64 --vocab-size 256
  --micro-batch-size 4 --global-batch-size 16 --seed 1234
  --train-iters $iterations --lr 5e-4 --min-lr 5e-5 --lr-decay-style cosine
  --lr-warmup-iters 20 --weight-decay 0.1 --clip-grad 1.0
  --save-interval $save_interval --log-interval 20 --data-path $demo/text)

last_logged() { cat "$1" 2>/dev/null | wc -l; }

# Kills the run that logs to $2, process $1, once it has logged $3 iterations.
kill_after() {
  while [ "$(last_logged "$2")" -lt "$3" ]; do
    kill -0 "$1" 2>/dev/null || fail "the run ended before it could be killed"
    sleep 0.02
  done
  kill -9 "$1" || fail "the run ended before it could be killed"
  local status=0
  wait "$1" 2>/dev/null || status=$?
  [ "$status" -eq 137 ] || fail "the run ended by itself, exit code $status"
}

prepare_text() {
  # A line of one percent sign divides two fortunes.
  (cd /usr/share/games/fortunes && sed 's/^%$//' $text) >$demo/text.txt
  run build/bin/preprocess --input $demo/text.txt --output-prefix $demo/text \
    --tokenizer byte --split-on blank-lines
}

run_and_kill() {
  local command=("${from_scratch[@]}" --save $demo/first-part-run
    --log-jsonl $demo/interrupted.jsonl)
  printf '$ %s\n' "${command[*]}"
  "${command[@]}" &
  kill_after $! $demo/interrupted.jsonl $kill_at
  echo "killed after iteration $(last_logged $demo/interrupted.jsonl)"
}

reshard_and_resume() {
  run build/bin/reshard $demo/first-part-run $demo/interrupted-run \
    --tp 1 --pp 2 --dp 1
  run build/bin/ckpt diff $demo/first-part-run $demo/interrupted-run
  run build/bin/train --tp 1 --pp 2 --dp 1 \
    --load $demo/interrupted-run --save $demo/interrupted-run \
    --train-iters $iterations --save-interval $save_interval \
    --log-interval 20 --data-path $demo/text \
    --log-jsonl $demo/interrupted.jsonl
}

compare() {
  local resumed_after
  resumed_after=$(build/bin/ckpt show --json $demo/first-part-run |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["step"])')
  run python3 tools/compare_runs.py $demo/uninterrupted.jsonl \
    $demo/interrupted.jsonl --resumed-after "$resumed_after" \
    --svg $demo/loss.svg
}

tools/install_packages.sh demo
tools/build.sh
start=$(date +%s)
rm -rf $demo
mkdir -p $demo

say "Real text: the fortunes of this Debian"
prepare_text
say "A run at TP2 x DP2, saved every $save_interval iterations, killed (-9)"
run_and_kill
say "Its newest checkpoint resharded to TP1 x PP2 x DP1, and resumed there"
reshard_and_resume
say "The same run at TP2 x DP2, never interrupted"
run "${from_scratch[@]}" --save $demo/uninterrupted-run \
  --log-jsonl $demo/uninterrupted.jsonl

verdict=0
say "The losses, beside each other"
compare || verdict=1
say "The last checkpoints: every weight, moment and the training state"
run build/bin/ckpt diff $demo/uninterrupted-run $demo/interrupted-run ||
  verdict=1
say "The demo took $(($(date +%s) - start)) s after the build"
[ $verdict -eq 0 ] || fail "the interrupted run is not the uninterrupted one"
echo "The run killed at TP2 x DP2 and resumed at TP1 x PP2 is, bit for bit," \
     "the run nobody touched."
