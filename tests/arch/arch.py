"""What every source file of the tree must keep to, beyond what compiles.

The arrows are those of ARCHITECTURE.md: a new one changes the picture and
ARROWS in one commit, with the reason.
SPDX-License-Identifier: Apache-2.0
"""

import pathlib
import re

# Folder -> the folders it may include, besides itself.
ARROWS = {
    "ckpt": set(),
    "kernels": set(),
    "reshard": {"ckpt"},
    "trainer": {"ckpt", "kernels", "reshard"},
    "tools": {"ckpt", "kernels", "reshard", "trainer"},
    "tests": {"ckpt", "kernels", "reshard", "trainer", "tools"},
}
# The checkpoint must not know what wrote it.
WORDS_FOREIGN_TO_CKPT = {"rank", "ranks", "mesh", "meshes", "mpi", "nccl"}
MAX_LINES = {"header": 200, "implementation": 400, "test": 500}

INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]')
# `num_ranks`, `NumRanks` and `kMpi` all hold a word.
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def _kind(path):
    if path.parts[0] == "tests":
        return "test"
    return "header" if path.suffix == ".h" else "implementation"


def _check_include(root, path, target):
    if target.startswith(".") or (root / path.parent / target).exists():
        yield f'include "{target}" does not start at the repository root'
    folder = target.split("/")[0]
    if folder not in ARROWS or folder == path.parts[0]:
        return
    if folder not in ARROWS[path.parts[0]]:
        yield f'include "{target}": no arrow {path.parts[0]} -> {folder}'


def _check_line(root, path, line):
    if match := INCLUDE.match(line):
        yield from _check_include(root, path, match.group(1))
    if path.parts[0] == "ckpt":
        words = {word.lower() for word in WORD.findall(line)}
        for word in sorted(words & WORDS_FOREIGN_TO_CKPT):
            yield f'the word "{word}" does not belong in ckpt/'
    if re.search(r"\b(TODO|FIXME|XXX)\b", line):
        yield "unfinished work is an issue, not a comment"


def _check_file(root, path):
    """Yields (line number, what is wrong)."""
    lines = (root / path).read_text().splitlines()
    limit = MAX_LINES[_kind(path)]
    if len(lines) > limit:
        yield limit + 1, f"{len(lines)} lines, at most {limit}"
    if "// SPDX-License-Identifier: Apache-2.0" not in lines:
        yield 1, "no SPDX line"
    guard = "SHARDSHIFT_" + re.sub(r"\W", "_", str(path)).upper() + "_"
    if path.suffix == ".h" and f"#ifndef {guard}" not in lines:
        yield 1, f"no header guard {guard}"
    for number, line in enumerate(lines, 1):
        for what in _check_line(root, path, line):
            yield number, what


def source_files(root):
    """The C++ and CUDA sources below `root`, relative to it."""
    files = (file.relative_to(root) for folder in ARROWS
             for file in (root / folder).rglob("*.*"))
    return sorted(f for f in files if f.suffix in {".h", ".cc", ".cu"})


def violations(root):
    """Every breach below `root`, as "path:line: what is wrong"."""
    root = pathlib.Path(root)
    return [f"{path}:{line}: {what}" for path in source_files(root)
            for line, what in _check_file(root, path)]


def broken_references(root):
    """Files and folders of the tree that a document names in backticks, or
    links to, and that are not there."""
    root = pathlib.Path(root)
    for document in sorted(root.glob("*.md")):
        text = document.read_text()
        names = re.findall(r"`([\w./-]+/[\w./-]*)`", text)
        names = [n for n in names if n.split("/")[0] in ARROWS]
        for name in names + re.findall(r"\]\(([\w./-]+)\)", text):
            if not (root / name).exists():
                yield f"{document.name} names {name}, which is not there"
