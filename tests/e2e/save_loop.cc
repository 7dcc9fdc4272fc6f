// A process to be killed: saves over and over, each step twice, and prints the
// number of each save when it is done.
//   save_loop RUN FIRST    saves number FIRST, FIRST + 1, ...
//   save_loop RUN          prints the number of the save that RUN holds, after
//                          a look at every byte and value of it
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/reader.h"
#include "ckpt/run_dir.h"
#include "tests/ckpt/sample.h"

namespace shardshift::ckpt {
namespace {

// The names, and so the values, tell the save; one is written in blocks past
// the page cache.
std::vector<SampleTensor> TensorsOf(int64_t save) {
  std::vector<SampleTensor> tensors = SmallTensors();
  const Shape shape = {1000, 600};
  tensors.push_back(
      {{"large", "master", DType::kC64, shape}, {{1, WholeBox(shape)}}});
  for (SampleTensor& tensor : tensors) {
    absl::StrAppend(&tensor.info.name, ".", save);
  }
  return tensors;
}

absl::Status SaveFrom(const std::string& run_dir, int64_t first) {
  for (int64_t save = first;; ++save) {
    SS_RETURN_IF_ERROR(WriteSample(run_dir, save / 2, TensorsOf(save),
                                   /*replace=*/true, absl::StrCat(save)));
    std::cout << save << std::endl;
  }
}

absl::Status Check(const std::string& run_dir) {
  SS_ASSIGN_OR_RETURN(const ResolvedCheckpoint newest,
                      ResolveCheckpoint(run_dir));
  if (!newest.note.empty()) return absl::DataLossError(newest.note);
  SS_ASSIGN_OR_RETURN(const std::unique_ptr<Reader> reader,
                      Reader::Open(newest.step_dir));
  const int64_t save = std::stoll(reader->state());
  if (save / 2 != newest.step) return absl::DataLossError("another step");
  SS_RETURN_IF_ERROR(CheckSample(newest.step_dir, TensorsOf(save)));
  std::cout << save << std::endl;
  return absl::OkStatus();
}

}  // namespace
}  // namespace shardshift::ckpt

int main(int argc, char** argv) {
  const absl::Status status =
      argc == 3 ? shardshift::ckpt::SaveFrom(argv[1], std::atoll(argv[2]))
                : shardshift::ckpt::Check(argv[1]);
  if (!status.ok()) std::cerr << "error: " << status.message() << std::endl;
  return status.ok() ? 0 : 1;
}
