// Makes a golden checkpoint out of its description; CONTRIBUTING.md says when.
//   golden_writer EXPECTED_JSON RUN
// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "tests/ckpt/golden.h"

int main(int argc, char** argv) {
  namespace ckpt = shardshift::ckpt;
  if (argc != 3) return 2;
  const absl::StatusOr<ckpt::Golden> golden = ckpt::ReadGolden(argv[1]);
  const absl::Status status =
      golden.ok() ? ckpt::WriteGolden(argv[2], *golden) : golden.status();
  if (!status.ok()) std::cerr << status.ToString() << std::endl;
  return status.ok() ? 0 : 1;
}
