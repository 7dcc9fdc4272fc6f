// A fuzz target over its corpus, every cut of it, and some of its bit flips.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "ckpt/io/file.h"
#include "tests/ckpt/sample.h"
#include "tests/testutil/status_matchers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace shardshift {
namespace {

// Of one input, beyond the input itself.
constexpr size_t kMaxChanges = 500;

void Replay(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()),
                         input.size());
}

std::vector<std::string> Corpus() {
  const std::string corpus = SHARDSHIFT_FUZZ_CORPUS;
  const auto names = ckpt::ListDirectory(corpus);
  EXPECT_OK(names);
  std::vector<std::string> inputs;
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    inputs.push_back(ckpt::ReadFile(ckpt::JoinPath(corpus, name)));
  }
  return inputs;
}

TEST(Replay, OfTheCorpus) {
  const std::vector<std::string> corpus = Corpus();
  EXPECT_FALSE(corpus.empty());
  for (const std::string& input : corpus) Replay(input);
}

TEST(Replay, OfTheCorpusCutAndChanged) {
  std::mt19937 random(1);
  for (std::string& input : Corpus()) {
    const size_t step = input.size() / kMaxChanges + 1;
    for (size_t size = 0; size < input.size(); size += step) {
      Replay(input.substr(0, size));
      char& byte = input[size];
      const char before = byte;
      byte = static_cast<char>(byte ^ (1 << random() % 8));
      Replay(input);
      byte = before;
    }
  }
}

}  // namespace
}  // namespace shardshift
