#!/usr/bin/env python3
"""Compares the --log-jsonl files of two runs, bit for bit.

Prints iterations beside each other and exits 0 if both logs hold the same
iterations with the same bits of loss and gradient norm, 1 if not, 2 if a log
cannot be used. A run that was killed may have logged iterations that its
resumption logged again: each of these lines must be equal too.
SPDX-License-Identifier: Apache-2.0
"""

import argparse
import json
import sys

COMPARED = ("lm_loss_bits", "grad_norm_bits")
WIDTH, HEIGHT, MARGIN = 720, 360, 48


class BadLog(Exception):
    """Input that cannot be compared."""


def read_log(path):
    """iteration -> its log lines, in file order."""
    log = {}
    try:
        with open(path, encoding="utf-8") as file:
            for number, text in enumerate(file, 1):
                line = json.loads(text)
                entry = {name: line[name] for name in ("lm_loss", *COMPARED)}
                log.setdefault(line["iteration"], []).append(entry)
    except OSError as problem:
        raise BadLog(f"{path}: {problem.strerror}") from problem
    except (ValueError, KeyError) as problem:
        raise BadLog(f"{path}:{number}: expected iteration, loss and bits, "
                     f"found {problem!r}") from problem
    if not log:
        raise BadLog(f"{path}: expected iterations, found an empty log")
    return log


def bits(lines):
    return {tuple(line[name] for name in COMPARED) for line in lines}


def differing(a, b):
    """Iterations that one log lacks, or whose bits are not all the same."""
    return [i for i in sorted(a.keys() | b.keys())
            if len(bits(a.get(i, []) + b.get(i, []))) != 1
            or i not in a or i not in b]


def shown(iterations, resumed_after, bad):
    """The first, those around the resumption, the last, some that differ."""
    last = max(iterations)
    near = range(resumed_after - 2, resumed_after + 5)
    return sorted({1, *near, *range(last - 2, last + 1), *bad[:10]}
                  & iterations)


def cell(log, iteration):
    if iteration not in log:
        return f"{'missing':>9}  {'':8}"
    line = log[iteration][-1]
    return f"{line['lm_loss']:9.6f}  {line['lm_loss_bits']}"


def table(a, b, resumed_after, bad):
    yield f"{'':9}  {'uninterrupted':<19}   {'interrupted':<19}"
    yield f"{'iteration':>9}  {'loss':>9}  {'bits':8}   {'loss':>9}  {'bits':8}"
    previous = 0
    for i in shown(a.keys() | b.keys(), resumed_after, bad):
        if previous == resumed_after:
            yield f"{'':9}  {'':19}   ---- resumed ----"
        elif i != previous + 1:
            yield f"{'...':>9}"
        verdict = "DIFFERENT" if i in bad else "equal"
        yield f"{i:9}  {cell(a, i)}   {cell(b, i)}   {verdict}"
        previous = i


def polyline(log, style, x, y):
    points = " ".join(f"{x(i):.1f},{y(log[i][-1]['lm_loss']):.1f}"
                      for i in sorted(log))
    return f'<polyline points="{points}" fill="none" {style}/>'


def plot(a, b, resumed_after):
    """Both loss curves as SVG, the uninterrupted one wide behind the other."""
    last = max(a.keys() | b.keys())
    losses = [lines[-1]["lm_loss"] for log in (a, b) for lines in log.values()]
    low, high = min(losses), max(losses)

    def x(iteration):
        return MARGIN + (WIDTH - 2 * MARGIN) * iteration / last

    def y(loss):
        span = (high - low) or 1.0
        return HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * (loss - low) / span

    mark = x(resumed_after)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<path d="M{mark:.1f} {MARGIN}V{HEIGHT - MARGIN}" stroke="gray" '
        'stroke-dasharray="4"/>',
        f'<text x="{mark + 6:.1f}" y="{MARGIN}">resumed on another layout'
        '</text>',
        polyline(a, 'stroke="#9ecae1" stroke-width="7"', x, y),
        polyline(b, 'stroke="#08306b" stroke-width="1.5"', x, y),
        f'<text x="{MARGIN}" y="{HEIGHT - 16}">iteration 1 to {last}; wide: '
        'uninterrupted, thin: interrupted</text>',
        f'<text x="4" y="{MARGIN}">{high:.2f}</text>',
        f'<text x="4" y="{HEIGHT - MARGIN}">{low:.2f}</text>',
        "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("uninterrupted")
    parser.add_argument("interrupted")
    parser.add_argument("--resumed-after", type=int, default=0,
                        metavar="ITERATION")
    parser.add_argument("--svg", metavar="FILE", help="also plot the losses")
    args = parser.parse_args()

    a, b = read_log(args.uninterrupted), read_log(args.interrupted)
    bad = differing(a, b)
    print("\n".join(table(a, b, args.resumed_after, bad)))
    if args.svg:
        with open(args.svg, "w", encoding="utf-8") as file:
            file.write(plot(a, b, args.resumed_after))
    total = len(a.keys() | b.keys())
    print(f"losses and gradient norms of {total} iterations: "
          + (f"DIFFERENT in {len(bad)}" if bad else "EQUAL, bit for bit"))
    return 1 if bad else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BadLog as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(2)
