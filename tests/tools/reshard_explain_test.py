"""`reshard explain` and the pictures of layouts and plans.

Usage: reshard_explain_test.py RESHARD CKPT
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

RESHARD, CKPT = sys.argv[1:3]
MODEL = ["--num-layers", "4", "--hidden-size", "16",
         "--num-attention-heads", "4", "--max-position-embeddings", "32",
         "--seq-length", "32", "--vocab-size", "251",
         "--make-vocab-size-divisible-by", "1", "--global-batch-size", "12"]
MIXTURE = MODEL + ["--swiglu", "--disable-bias-linear", "--num-experts", "4",
                   "--moe-ffn-hidden-size", "8"]
FROM = ["--tp", "4", "--dp", "3", "--use-distributed-optimizer"]
TO = ["--tp", "2", "--pp", "2", "--dp", "2", "--use-distributed-optimizer"]
WIDE = ["--tp", "2", "--pp", "2", "--dp", "4", "--ep", "4", "--etp", "1",
        "--use-distributed-optimizer",
        "--num-virtual-stages-per-pipeline-rank", "2"]
SVG = "{http://www.w3.org/2000/svg}"


def titles(root):
    """What is shown over the groups of a drawing."""
    found = []
    for group in root.iter(SVG + "g"):
        title = group.find(SVG + "title")
        if title is not None:
            found.append(title.text)
    return found


class ExplainTest(unittest.TestCase):

    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)

    def path(self, name):
        return os.path.join(self.directory, name)

    def synth(self, name, model, layout):
        subprocess.run([CKPT, "synth", self.path(name), "--step", "3", *model,
                        *layout], check=True)
        return self.path(name)

    def run_reshard(self, *args):
        return subprocess.run([RESHARD, *args], capture_output=True, text=True,
                              cwd=self.directory, check=False)

    def done(self, *args):
        run = self.run_reshard(*args)
        self.assertEqual((run.returncode, run.stderr), (0, ""), args)
        return run.stdout

    def refused(self, *args, says):
        run = self.run_reshard(*args)
        self.assertEqual(run.returncode, 2, (args, run.stderr))
        self.assertTrue(run.stderr.startswith("error: "), run.stderr)
        for words in says:
            self.assertIn(words, run.stderr)

    def picture(self, name, *args):
        """The root of a picture that a command draws."""
        self.done(*args, "--picture", self.path(name))
        return ElementTree.parse(self.path(name)).getroot()

    def test_the_ranks_of_a_layout_hold_the_model_once_a_replica(self):
        source = self.synth("source", MODEL, FROM)
        owned = {}
        for rank in range(8):
            told = json.loads(self.done("explain", source, *TO, "--rank",
                                        str(rank), "--json"))
            self.assertEqual(told["rank"], rank)
            self.assertEqual(told["world_size"], 8)
            self.assertGreater(told["reads"]["fragments"], 0)
            self.assertLessEqual(set(told["reads"]["parts"]), set(range(12)))
            for buffer in told["buffers"]:
                for box in buffer["owned_boxes"]:
                    size = 1
                    for extent in box["extent"]:
                        size *= extent
                    name = box["tensor"]
                    owned[name] = owned.get(name, 0) + size
        # Both stages own the tied embedding, both tensor ranks what is whole.
        self.assertEqual(owned["embedding.word.weight"], 2 * 251 * 16)
        self.assertEqual(owned["layers.0.mlp.up.weight"], 64 * 16)
        self.assertEqual(owned["layers.3.attention.q.weight"], 16 * 16)
        self.assertEqual(owned["final_norm.weight"], 2 * 16)

    def test_without_layout_flags_one_rank_reads_all(self):
        source = self.synth("source", MODEL, FROM)
        report = json.loads(self.done(source, self.path("out"), "--dry-run",
                                      "--json"))
        told = json.loads(self.done("explain", source, "--rank", "0",
                                    "--json"))
        self.assertEqual(told["world_size"], 1)
        self.assertEqual(told["reads"]["parts"], list(range(12)))
        self.assertEqual(told["reads"]["bytes"], report["bytes"])

    def test_an_overview_has_a_line_for_each_rank(self):
        source = self.synth("source", MIXTURE, [])
        lines = self.done("explain", source, *WIDE).splitlines()
        self.assertIn("16 ranks, TP2 PP2 DP4", lines[0])
        self.assertIn("4 experts", lines[1])
        self.assertEqual(len(lines), 4 + 16)
        # rank, tensor, pipeline, data, expert, its tensor and data, layers
        self.assertEqual(lines[4 + 13].split()[:9],
                         ["13", "1", "1", "2", "1", "0", "1", "1,", "3"])

    def test_the_text_of_a_rank_names_what_it_reads(self):
        source = self.synth("source", MODEL, FROM)
        text = self.done("explain", source, *TO, "--rank", "5")
        self.assertRegex(text, r"to load +[\d.]+ kB of \d+ fragments in \d+ "
                               r"part files: part-000\d\d.h5")
        self.assertIn("[1968:2048]  padding", text)

    def test_refuses_what_cannot_be(self):
        source = self.synth("source", MODEL, FROM)
        for rank in ("8", "1000000"):
            self.refused("explain", source, *TO, "--rank", rank,
                         says=["--rank is " + rank, "0 to 7"])
        self.refused("explain", source, "--rank", "-1", says=["--rank"])
        self.refused("explain", source, "--tp", "3",
                     says=["--num-attention-heads 4"])
        self.refused("explain", source, "--ep", "2", says=["no experts"])
        self.refused("explain", source, "--picture", "a.png",
                     says=["--picture a.png", ".svg or .html"])
        self.refused("explain", source, "--picture", "nowhere/a.svg",
                     says=["nowhere/a.svg"])
        self.refused("explain", says=["checkpoint is required"])
        self.refused("explain", self.path("typo"), says=["typo"])
        self.refused(source, "out", "--picture", "a.svg",
                     says=["--picture", "--dry-run"])
        self.refused(source, "out", "--dry-run", "--picture", "a.png",
                     says=["--picture a.png", ".svg or .html"])
        self.assertEqual(os.listdir(self.directory), ["source"])

    def test_pictures_overwrite_nothing(self):
        source = self.synth("source", MODEL, FROM)
        with open(self.path("a.svg"), "w", encoding="ascii") as file:
            file.write("mine")
        for args in (("explain", source), (source, "out", "--dry-run")):
            self.refused(*args, "--picture", "a.svg",
                         says=["a.svg exists", "name another"])
        with open(self.path("a.svg"), encoding="ascii") as file:
            self.assertEqual(file.read(), "mine")

    def test_a_source_of_the_name_of_the_command_is_one(self):
        self.synth("explain", MODEL, [])
        self.done("./explain", "out", "--tp", "2")
        self.done("out", "again", "--dry-run")
        self.assertIn("1 rank, TP1", self.done("explain", "explain"))

    def test_a_picture_of_a_layout_has_every_rank_in_scale(self):
        source = self.synth("source", MIXTURE, [])
        told = json.loads(self.done("explain", source, *WIDE, "--json"))
        total = [sum(rank["bytes"].values()) for rank in told["ranks"]]
        root = self.picture("a.svg", "explain", source, *WIDE)
        widths = {}
        for group in root.iter(SVG + "g"):
            title = group.find(SVG + "title")
            match = title is not None and re.match(r"rank (\d+):", title.text)
            if match:
                widths[int(match[1])] = sum(
                    float(bar.get("width")) for bar in group.iter(SVG + "rect"))
        self.assertEqual(sorted(widths), list(range(16)))
        for rank, width in widths.items():
            self.assertAlmostEqual(width / max(widths.values()),
                                   total[rank] / max(total), delta=0.01)
        text = " ".join(root.itertext())
        for words in ("stage 1", "layers 1, 3", "tensor rank 1",
                      "vocabulary 0-127", "vocabulary 128-250",
                      "rank 13, experts 1", "embedding", "output",
                      "optimizer state", "bytes as fp32"):
            self.assertIn(words, text)

    def test_a_picture_of_a_plan_adds_up_to_what_is_copied(self):
        source = self.synth("source", MODEL, FROM)
        plan = (source, "out", *TO, "--dry-run")
        report = json.loads(self.done(*plan, "--json"))
        root = self.picture("a.svg", *plan)
        moves = {}
        for title in titles(root):
            match = re.fullmatch(
                r"from part (\d+)\nto stage \d: part (\d+)\n([\d.]+) (k?)B",
                title)
            self.assertTrue(match, title)
            moves[int(match[1]), int(match[2])] = (
                float(match[3]) * (1000 if match[4] else 1))
        self.assertEqual({move[0] for move in moves}, set(range(12)))
        self.assertEqual({move[1] for move in moves}, set(range(8)))
        # Each is rounded to 100 bytes at most.
        self.assertAlmostEqual(sum(moves.values()), report["bytes"],
                               delta=50 * len(moves))
        self.assertIn("12 part files to 8", " ".join(root.itertext()))

    def test_a_plan_of_a_source_of_unknown_layout_is_drawn(self):
        source = self.synth("source", MODEL, FROM)
        step = os.path.join(source, "step-00000003")
        os.remove(os.path.join(step, "index.h5"))
        subprocess.run([CKPT, "rebuild", step], check=True,
                       stdout=subprocess.DEVNULL)
        root = self.picture("a.svg", source, "out", "--dry-run")
        self.assertIn("an unknown layout to TP1", " ".join(root.itertext()))
        self.assertEqual(len(titles(root)), 12)

    def test_pictures_of_many_ranks_stay_small_and_within_their_page(self):
        source = self.synth("source", MODEL, ["--tp", "4", "--pp", "4",
                                              "--dp", "12"])
        layouts = (["--tp", "4", "--pp", "4", "--dp", "300"], ["--pp", "4"],
                   ["--dp", "1"], ["--tp", "4"])
        for number, layout in enumerate(layouts):
            for args in (("explain", source, *layout),
                         (source, "out", "--dry-run", *layout)):
                name = f"{args[0] == 'explain'}-{number}"
                root = self.picture(name + ".svg", *args)
                self.assertLess(os.path.getsize(self.path(name + ".svg")),
                                200_000)
                self.check_within(root, *map(float, root.get("viewBox").split(
                    )[2:]))
                page = self.picture(name + ".html", *args)
                drawing = page.find(f".//{SVG}svg")
                self.check_within(drawing, float(drawing.get("width")),
                                  float(drawing.get("height")))
                self.assertGreater(len(page.findall(".//td")), 3)

    def check_within(self, root, width, height):
        for rect in root.iter(SVG + "rect"):
            x, y, w, h = (float(rect.get(key))
                          for key in ("x", "y", "width", "height"))
            self.assertGreaterEqual(min(x, y, w, h), 0)
            self.assertLessEqual(x + w, width)
            self.assertLessEqual(y + h, height)

    def test_the_same_picture_has_the_same_bytes_wherever_the_source_lies(self):
        source = self.synth("source", MODEL, FROM)
        os.mkdir(self.path("<&\"> \xe9"))
        other = self.path("<&\"> \xe9/run")
        shutil.copytree(source, other)
        for end in ("svg", "html"):
            for args in (("explain", "{}", *TO), ("{}", "out", *TO, "--dry-run")):
                drawn = []
                for number, run in enumerate((source, other)):
                    name = f"{args[0] == 'explain'}{number}.{end}"
                    self.done(*(arg.format(run) for arg in args), "--picture",
                              name)
                    with open(self.path(name), "rb") as file:
                        drawn.append(file.read())
                self.assertEqual(drawn[0], drawn[1])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
