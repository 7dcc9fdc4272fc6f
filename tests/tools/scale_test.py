"""A dry run of a mixture over many ranks, from a synthetic index. At full size,
a trillion parameters on 8,192 ranks, within 60 s of one processor and 2 GiB.

Usage: scale_test.py RESHARD CKPT {small,full}
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

RESHARD, CKPT, SIZE = sys.argv[1:4]
MODEL = ["--group-query-attention", "--num-query-groups", "8", "--swiglu",
         "--disable-bias-linear", "--normalization", "RMSNorm",
         "--position-embedding-type", "rope", "--global-batch-size", "4096",
         "--untie-embeddings-and-output-weights", "--seq-length", "4096",
         "--max-position-embeddings", "4096", "--vocab-size", "129280"]
DISTRIBUTED = ["--use-distributed-optimizer"]
# The least number of parameters, and the parts of the target.
SIZES = {
    "small": {
        "model": ["--num-layers", "8", "--hidden-size", "1024",
                  "--num-attention-heads", "16", "--ffn-hidden-size", "4096",
                  "--num-experts", "32", "--moe-ffn-hidden-size", "512"],
        "from": ["--tp", "8", "--pp", "4", "--dp", "8", "--ep", "8",
                 "--etp", "1"],
        "to": ["--tp", "4", "--pp", "2", "--dp", "16"],
        "parameters": 0.6e9, "parts": 128,
    },
    "full": {
        "model": ["--num-layers", "64", "--hidden-size", "7168",
                  "--num-attention-heads", "64", "--ffn-hidden-size", "18432",
                  "--num-experts", "256", "--moe-ffn-hidden-size", "2816"],
        "from": ["--tp", "8", "--pp", "16", "--dp", "64", "--ep", "64",
                 "--etp", "1"],
        "to": ["--tp", "4", "--pp", "8", "--dp", "128"],
        "parameters": 1e12, "parts": 4096,
    },
}[SIZE]


class ScaleTest(unittest.TestCase):

    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)

    def test_a_dry_run_costs_little_at_any_size(self):
        run = os.path.join(self.directory, "run")
        subprocess.run([CKPT, "synth", run, "--index-only", *MODEL,
                        *SIZES["model"], *SIZES["from"], *DISTRIBUTED],
                       check=True)
        for form in (DISTRIBUTED, []):
            dry_run = subprocess.Popen(
                [RESHARD, run, run + "-moved", "--dry-run", "--json",
                 *SIZES["to"], *form],
                stdout=subprocess.PIPE)
            report = json.load(dry_run.stdout)
            _, status, used = os.wait4(dry_run.pid, 0)
            dry_run.returncode = os.waitstatus_to_exitcode(status)
            dry_run.stdout.close()
            self.assertEqual(dry_run.returncode, 0)
            self.assertLess(report["amplification"], 1.05)
            self.assertGreater(report["bytes"], 12 * SIZES["parameters"])
            self.assertEqual(report["parts"], SIZES["parts"])
            if SIZE == "full":
                self.assertLess(used.ru_utime + used.ru_stime, 60)
                self.assertLess(used.ru_maxrss / 1024, 2048)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
