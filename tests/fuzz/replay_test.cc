// The fuzz target over its corpus, and over every cut and many bit flips of
// it.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "ckpt/core/coding.h"
#include "ckpt/format/table.h"
#include "ckpt/format/user_block.h"
#include "ckpt/io/file.h"
#include "ckpt/reader.h"
#include "ckpt/run_dir.h"
#include "tests/ckpt/sample.h"
#include "tests/testutil/status_matchers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace shardshift::ckpt {
namespace {

void Replay(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()),
                         input.size());
}

// The user block and table of a file of a checkpoint, as inputs.
void AppendInputs(const std::string& path, FileRole role,
                  std::vector<std::string>& inputs) {
  ASSERT_OK_AND_ASSIGN(const File file, File::OpenForRead(path));
  ASSERT_OK_AND_ASSIGN(const UserBlock block, ReadUserBlock(file, role));
  ASSERT_OK_AND_ASSIGN(const auto table, ReadTableBytes(file, block));
  inputs.push_back('\0' + EncodeUserBlock(block).substr(0, 100));
  std::string input(1, role == FileRole::kIndex ? '\1' : '\2');
  for (const std::byte byte : table) input += static_cast<char>(byte);
  inputs.push_back(std::move(input));
}

// SHARDSHIFT_FUZZ_SEEDS: a directory to which they are written, too.
std::vector<std::string> Seeds() {
  std::vector<std::string> inputs;
  std::mt19937 random(3);
  std::vector<SampleTensor> few = RandomTensors(2, random);
  few.resize(12);
  for (const auto& tensors : {SmallTensors(), few}) {
    const TempDir dir(InMemory());
    EXPECT_OK(WriteSample(dir.path(), 1, tensors));
    const std::string step_dir = JoinPath(dir.path(), StepName(1));
    AppendInputs(JoinPath(step_dir, kIndexFileName), FileRole::kIndex, inputs);
    AppendInputs(JoinPath(step_dir, PartFileName(1)), FileRole::kPart, inputs);
  }
  // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread runs.
  if (const char* out = std::getenv("SHARDSHIFT_FUZZ_SEEDS")) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      WriteFile(JoinPath(out, "seed-" + std::to_string(i)), inputs[i]);
    }
  }
  return inputs;
}

TEST(Replay, OfSeedsCutAnywhere) {
  for (const std::string& seed : Seeds()) {
    for (size_t size = 0; size <= seed.size(); ++size) {
      Replay(seed.substr(0, size));
    }
    Replay(seed + '\0');
  }
}

TEST(Replay, OfSeedsWithAnyBitFlipped) {
  for (std::string& seed : Seeds()) {
    for (size_t i = 1; i < seed.size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        seed[i] = static_cast<char>(seed[i] ^ (1 << bit));
        Replay(seed);
        seed[i] = static_cast<char>(seed[i] ^ (1 << bit));
      }
    }
  }
}

// What a fuzzer has found, and what stays interesting.
std::vector<std::string> Corpus() {
  const std::string corpus = SHARDSHIFT_FUZZ_CORPUS;
  const auto names = ListDirectory(corpus);
  EXPECT_OK(names);
  std::vector<std::string> inputs;
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    inputs.push_back(ReadFile(JoinPath(corpus, name)));
  }
  return inputs;
}

TEST(Replay, OfTheCorpus) {
  const std::vector<std::string> corpus = Corpus();
  EXPECT_FALSE(corpus.empty());
  for (const std::string& input : corpus) Replay(input);
}

// The corpus was once of an older encoding: the fuzzer began with tables of
// which none decoded, and did not come past the decoder.
TEST(Corpus, HasIndexTablesThatDecode) {
  int num_decoded = 0;
  for (const std::string& input : Corpus()) {
    if (input.empty() || input.front() != '\1') continue;
    num_decoded += DecodeIndexTable(AsBytes(input.substr(1))).ok();
  }
  EXPECT_GT(num_decoded, 0);
}

}  // namespace
}  // namespace shardshift::ckpt
