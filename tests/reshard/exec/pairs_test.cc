// Random models of every kind, and random layouts over every axis.
// The pool of a process has as many threads as the machine decides; the
// processes that share a reshard are another test's.
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <memory>
#include <random>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "ckpt/io/file.h"
#include "ckpt/reader.h"
#include "reshard/exec/reshard.h"
#include "reshard/layout/stages.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/owner_oracle.h"
#include "tests/reshard/sample.h"
#include "tests/reshard/tensor_oracle.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

constexpr uint32_t kFirstSeed = 1000;

// A layout to write for, and how.
struct Target {
  Layout layout;
  ckpt::Codec codec = ckpt::Codec::kNone;
  int64_t memory_bytes = 0;
};

ModelConfig SampleModel(std::mt19937& random) {
  ModelConfig model = RandomMixture(random);
  const int64_t kind = Uniform(random, 0, 49);
  if (kind == 0) {
    model.vocab_size = 50257;
    model.hidden_size = Uniform(random, 3, 5);
  } else if (kind < 15) {
    model.vocab_size = Uniform(random, 200, 999);  // enough to be compressed
  }
  model.padded_vocab_size = (model.vocab_size + 23) / 24 * 24;
  return model;
}

Target SampleTarget(const ModelConfig& model, std::mt19937& random) {
  Target target{.layout = RandomWideLayout(model, random)};
  if (Uniform(random, 0, 2) == 0) target.codec = ckpt::Codec::kShuffleZstd;
  target.memory_bytes =
      (16 << 10 << Uniform(random, 0, 7)) + Uniform(random, 0, 4097);
  return target;
}

struct Sample {
  explicit Sample(uint32_t seed) {
    std::mt19937 random(seed);
    model = SampleModel(random);
    for (Target& target : targets) target = SampleTarget(model, random);
  }
  ModelConfig model;
  std::array<Target, 3> targets;
};

std::string Describe(uint32_t seed, const Sample& sample) {
  std::string text =
      absl::StrCat("seed ", seed, ", ", ToJson(sample.model).dump());
  for (const Target& target : sample.targets) {
    absl::StrAppend(&text, "\n", ToString(target.layout));
  }
  return text;
}

// Run directories of one model.
class Runs {
 public:
  explicit Runs(const ModelConfig& model) : model_(model) {}

  std::string Path(const std::string& name) const {
    return ckpt::JoinPath(directory_.path(), name);
  }
  std::map<std::string, std::string> Bytes(const std::string& name) const {
    return Snapshot(Path(name));
  }

  void Write(const std::string& name, const Target& target) const {
    ASSERT_OK(WriteSynth(Path(name), model_, target.layout, target.codec));
  }

  void Reshard(const std::string& from, const std::string& to,
               const Target& target) const {
    ASSERT_OK_AND_ASSIGN(const auto source,
                         ckpt::Reader::Open(StepOf(Path(from))));
    ASSERT_OK_AND_ASSIGN(const ReshardReport report,
                         ReshardCheckpoint(*source, Path(to), target.layout,
                                           {.memory_bytes = target.memory_bytes,
                                            .codec = target.codec}));
    EXPECT_OK(report.proof);
  }

  void Check(const std::string& name, const Target& target) const {
    ASSERT_OK_AND_ASSIGN(const auto reader,
                         ckpt::Reader::Open(StepOf(Path(name))));
    ExpectSynthTensors(*reader, model_);
    ExpectPartsOfOwners(*reader, model_, target.layout);
  }

 private:
  const ModelConfig model_;
  const ckpt::TempDir directory_;
};

TEST(RandomPairs, GiveTheBytesOfTheTargetLayoutByAnyWay) {
  for (uint32_t seed = kFirstSeed; seed < kFirstSeed + SHARDSHIFT_PAIRS;
       ++seed) {
    const Sample sample(seed);
    SCOPED_TRACE(Describe(seed, sample));
    const auto& [a, b, c] = sample.targets;
    const Runs runs(sample.model);
    runs.Write("a", a);
    runs.Write("saved-b", b);
    runs.Write("saved-c", c);
    runs.Reshard("a", "b", b);
    runs.Reshard("b", "back", a);
    runs.Reshard("b", "c-by-b", c);
    runs.Reshard("a", "c", c);
    EXPECT_TRUE(runs.Bytes("b") == runs.Bytes("saved-b"));
    EXPECT_TRUE(runs.Bytes("back") == runs.Bytes("a"));
    EXPECT_TRUE(runs.Bytes("c") == runs.Bytes("saved-c"));
    EXPECT_TRUE(runs.Bytes("c-by-b") == runs.Bytes("c"));
    runs.Check("b", b);
    if (HasFailure()) return;
  }
}

std::set<std::string> TraitsOf(const ModelConfig& model) {
  std::set<std::string> traits;
  const auto add = [&traits](const char* name, bool has) {
    if (has) traits.insert(name);
  };
  add("experts", model.has_experts());
  add("no experts", !model.has_experts());
  add("experts in some layers", !model.dense_layers.empty());
  add("shared gate", model.moe_shared_expert_gate);
  add("norms of heads", model.qk_layernorm);
  add("biases", model.add_bias_linear);
  add("biases of qkv alone", model.add_qkv_bias && !model.add_bias_linear);
  add("gated experts with biases",
      model.swiglu && model.has_experts() && model.add_bias_linear);
  add("untied", model.untie_embeddings_and_output_weights);
  add("odd width", model.hidden_size % 2 == 1);
  add("GPT-2's vocabulary", model.vocab_size == 50257);
  return traits;
}

std::set<std::string> TraitsOf(const ModelConfig& model, const Target& target) {
  const Layout& layout = target.layout;
  std::set<std::string> traits = TraitsOf(model);
  const auto add = [&traits](const char* name, bool has) {
    if (has) traits.insert(name);
  };
  const int64_t etp = layout.expert_tensor_size();
  add("DP3", layout.data == 3);
  add("DP5", layout.data == 5);
  add("distributed optimizer", layout.distributed_optimizer);
  add("no distributed optimizer",
      !layout.distributed_optimizer && layout.data > 1);
  add("fewer groups than TP", model.num_query_groups < layout.tensor);
  add("a share of nothing but padding",
      model.vocab_size <=
          model.padded_vocab_size / layout.tensor * (layout.tensor - 1));
  add("EP", layout.expert > 1);
  add("experts cut less than the rest", etp < layout.tensor);
  add("experts cut more than the rest", etp > layout.tensor);
  add("EP1, experts apart", layout.expert == 1 && etp != layout.tensor);
  const auto chunks = LayersOfChunks(model, layout);
  add("interleaved", std::ssize(chunks) > layout.pipeline);
  add("layers a virtual stage", layout.layers_per_virtual_stage > 0);
  add("first stage", layout.first_stage_layers > 0);
  add("last stage", layout.last_stage_layers > 0);
  add("counted embedding", layout.account_for_embedding);
  add("counted loss", layout.account_for_loss);
  add("list of stages", !layout.stage_layers.empty());
  for (const LayerRange& range : chunks) {
    add("chunk without layers", range.begin == range.end);
  }
  add("tied over stages", !model.untie_embeddings_and_output_weights &&
                              layout.pipeline > 1 &&
                              layout.distributed_optimizer);
  add("compressed", target.codec == ckpt::Codec::kShuffleZstd);
  return traits;
}

TEST(RandomPairs, OfAThousandHaveEveryTraitManyTimes) {
  std::map<std::string, int> times;
  for (uint32_t seed = kFirstSeed; seed < kFirstSeed + 1000; ++seed) {
    const Sample sample(seed);
    for (const Target& target : sample.targets) {
      for (const std::string& trait : TraitsOf(sample.model, target)) {
        ++times[trait];
      }
    }
  }
  EXPECT_EQ(times.size(), 31);
  for (const auto& [trait, count] : times) {
    EXPECT_GE(count, 20) << trait;
  }
}

}  // namespace
}  // namespace shardshift::reshard
