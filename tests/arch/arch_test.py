"""The tree obeys arch.py, and arch.py notices when it does not.

usage: arch_test.py REPOSITORY
SPDX-License-Identifier: Apache-2.0
"""

import pathlib
import sys
import tempfile
import unittest

import arch

REPOSITORY = pathlib.Path(sys.argv.pop(1))
SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


class Tree(unittest.TestCase):
    def test_obeys_every_rule(self):
        self.assertEqual([], arch.violations(REPOSITORY))

    def test_has_sources_in_every_folder_on_the_picture(self):
        found = {path.parts[0] for path in arch.source_files(REPOSITORY)}
        self.assertEqual(set(arch.ARROWS), found)

    def test_has_every_file_that_its_documents_name(self):
        self.assertEqual([], list(arch.broken_references(REPOSITORY)))


class Checker(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = pathlib.Path(scratch.name)

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def assert_accepts(self, path, text):
        self.write(path, SPDX + text)
        self.assertEqual([], arch.violations(self.root))

    def assert_refuses(self, path, text, *words):
        self.write(path, SPDX + text)
        found = arch.violations(self.root)
        self.assertEqual(1, len(found), found)
        for word in (path, *words):
            self.assertIn(word, found[0])

    def test_accepts_drawn_arrows(self):
        self.assert_accepts("reshard/a.cc", '#include "ckpt/core/box.h"\n')
        self.assert_accepts("trainer/a.cc", '#include "kernels/gemm.h"\n')

    def test_refuses_every_arrow_that_is_not_drawn(self):
        for source, allowed in arch.ARROWS.items():
            for target in set(arch.ARROWS) - allowed - {source}:
                with self.subTest(source=source, target=target):
                    self.assert_refuses(
                        f"{source}/a.cc", f'#include "{target}/b.h"\n',
                        ":2:", f"{source} -> {target}")
                (self.root / source / "a.cc").unlink()

    def test_sees_arrows_in_angle_brackets_and_odd_spacing(self):
        self.assert_refuses("ckpt/a.cc", " #  include <reshard/b.h>\n",
                            "ckpt -> reshard")

    def test_refuses_includes_relative_to_the_file(self):
        self.assert_refuses("ckpt/a.cc", '#include "../kernels/b.h"\n',
                            "repository root")

    def test_refuses_sibling_includes(self):
        self.write("ckpt/b.cc", SPDX)
        self.assert_refuses("ckpt/a.cc", '#include "b.cc"\n',
                            "repository root")

    def test_refuses_words_foreign_to_ckpt_in_any_spelling(self):
        for spelling in ("// of a rank", "int num_ranks;", "int NumRanks();",
                         "kMpi", "NCCL_comm", "// a mesh"):
            with self.subTest(spelling=spelling):
                self.assert_refuses("ckpt/a.cc", spelling, "ckpt/")

    def test_accepts_words_that_only_contain_a_foreign_one(self):
        self.assert_accepts("ckpt/a.cc", "int franks, ranking, simpid;\n")

    def test_accepts_ranks_outside_ckpt(self):
        self.assert_accepts("reshard/a.cc", "int rank;\n")

    def test_refuses_unfinished_work(self):
        self.assert_refuses("tools/a.cc", "// TODO: finish\n", "unfinished")

    def test_refuses_files_that_are_too_long(self):
        self.assert_refuses("kernels/a.cc", "\n" * 400, "401 lines", "400")

    def test_refuses_a_header_without_its_guard(self):
        self.assert_refuses("ckpt/core/a.h", "#pragma once\n",
                            "SHARDSHIFT_CKPT_CORE_A_H_")

    def test_refuses_a_file_without_the_licence(self):
        self.write("ckpt/a.cc", "int x;\n")
        self.assertEqual(["ckpt/a.cc:1: no SPDX line"],
                         arch.violations(self.root))

    def test_notices_documents_that_name_missing_files(self):
        self.write("ckpt/box.h", SPDX)
        self.write("README.md", "`ckpt/box.h`, `ckpt/` `ckpt/bx.h` [a](B.md)")
        found = list(arch.broken_references(self.root))
        self.assertEqual(2, len(found), found)
        self.assertIn("ckpt/bx.h", found[0])
        self.assertIn("B.md", found[1])


if __name__ == "__main__":
    unittest.main()
