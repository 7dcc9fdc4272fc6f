// The fuzz target over real headers, indexes and configurations, over every cut
// and bit flip of them, and over what the fuzzer has found.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/coding.h"
#include "ckpt/io/file.h"
#include "reshard/formats/safetensors.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/formats/sample.h"
#include "tests/testutil/status_matchers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace shardshift::reshard {
namespace {

void Replay(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()),
                         input.size());
}

// The header of a restored file, as an input.
std::string HeaderInput(const std::string& folder, const std::string& name) {
  const ckpt::TempDir dir(ckpt::InMemory());
  RestoreFolder(folder, dir.path());
  const auto file = ckpt::File::OpenForRead(ckpt::JoinPath(dir.path(), name));
  EXPECT_OK(file);
  const auto header = ReadSafetensorsHeader(*file);
  EXPECT_OK(header);
  constexpr size_t kLengthBytes = 8;
  const std::string text =
      ReadData(absl::StrCat(folder, "/", name, ".head")).substr(kLengthBytes);
  ckpt::Encoder size;
  size.PutU32(static_cast<uint32_t>(header->tensors.back().end -
                                    header->tensors.front().begin));
  return absl::StrCat(std::string(1, '\0'), size.bytes(), text);
}

// SHARDSHIFT_FUZZ_SEEDS: a directory to which they are written, too.
std::vector<std::string> Seeds() {
  std::vector<std::string> inputs = {
      HeaderInput("llama/sharded", "model-00001-of-00004.safetensors"),
      HeaderInput("llama/sharded", "model-00004-of-00004.safetensors"),
      absl::StrCat("\1",
                   ReadData("llama/sharded/model.safetensors.index.json"))};
  for (const std::string& model : Models()) {
    inputs.push_back(absl::StrCat("\2", ReadData(model + "/config.json")));
    inputs.push_back(absl::StrCat("\2", ReadData(model + "/config.old.json")));
  }
  // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread runs.
  if (const char* out = std::getenv("SHARDSHIFT_FUZZ_SEEDS")) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      ckpt::WriteFile(ckpt::JoinPath(out, absl::StrCat("seed-", i)), inputs[i]);
    }
  }
  return inputs;
}

TEST(HfReplay, OfSeedsCutAnywhere) {
  for (const std::string& seed : Seeds()) {
    for (size_t size = 0; size <= seed.size(); ++size) {
      Replay(seed.substr(0, size));
    }
    Replay(absl::StrCat(seed, std::string(1, '\0')));
  }
}

TEST(HfReplay, OfSeedsWithAnyBitFlipped) {
  std::vector<std::string> seeds = Seeds();
  // Two headers, the index, and both configurations of GPT-2.
  seeds.resize(5);
  for (std::string& seed : seeds) {
    for (size_t i = 1; i < seed.size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        seed[i] = static_cast<char>(seed[i] ^ (1 << bit));
        Replay(seed);
        seed[i] = static_cast<char>(seed[i] ^ (1 << bit));
      }
    }
  }
}

TEST(HfReplay, OfTheCorpus) {
  const std::string corpus = SHARDSHIFT_FUZZ_CORPUS;
  ASSERT_OK_AND_ASSIGN(const auto names, ckpt::ListDirectory(corpus));
  EXPECT_FALSE(names.empty());
  for (const std::string& name : names) {
    Replay(ckpt::ReadFile(ckpt::JoinPath(corpus, name)));
  }
}

}  // namespace
}  // namespace shardshift::reshard
