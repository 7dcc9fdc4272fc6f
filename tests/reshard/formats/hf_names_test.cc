// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/hf_names.h"

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "reshard/formats/hf_config.h"
#include "reshard/formats/safetensors.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/formats/sample.h"
#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

HfConfig ConfigOf(const std::string& name) {
  auto config = ParseHfConfig(ReadData(name + "/config.json"));
  EXPECT_OK(config);
  return *std::move(config);
}

// What the files of a folder of data/ hold.
std::vector<FoundTensor> FoundIn(const std::string& name) {
  const ckpt::TempDir dir(ckpt::InMemory());
  RestoreFolder(name, dir.path());
  std::vector<FoundTensor> found;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path())) {
    if (entry.path().extension() != ".safetensors") continue;
    const auto file = ckpt::File::OpenForRead(entry.path().string());
    EXPECT_OK(file);
    const auto header = ReadSafetensorsHeader(*file);
    EXPECT_OK(header);
    for (const SafetensorsTensor& tensor : header->tensors) {
      found.push_back({tensor.name, tensor.shape});
    }
  }
  return found;
}

// Each logical tensor lies whole in one piece, and pieces fill the tensors.
void ExpectCover(const ModelConfig& model,
                 const std::vector<StoredTensor>& stored) {
  const std::vector<LogicalTensor> logical = LogicalTensors(model);
  std::vector<int> uses(logical.size());
  for (const StoredTensor& tensor : stored) {
    int64_t end = 0;
    for (const Piece& piece : tensor.pieces) {
      EXPECT_EQ(piece.offset, end) << tensor.name;
      EXPECT_EQ(piece.box, ckpt::WholeBox(logical[piece.tensor].shape));
      end += ckpt::NumElements(piece.box);
      ++uses[piece.tensor];
      // What is transposed is a stack of whole rows of the image.
      if (tensor.transposed) {
        EXPECT_EQ(piece.box.extent[1], ImageShape(tensor)[1]);
      }
    }
    EXPECT_EQ(end, ckpt::NumElements(tensor.shape)) << tensor.name;
    EXPECT_FALSE(tensor.transposed && tensor.shape.size() != 2);
  }
  EXPECT_EQ(uses, std::vector<int>(logical.size(), 1));
}

TEST(MatchHf, FindsEveryTensorOfEveryModel) {
  std::vector<std::string> names = Models();
  names.insert(names.end(), Variants().begin(), Variants().end());
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const HfConfig config = ConfigOf(name);
    const std::vector<FoundTensor> found = FoundIn(name);
    ASSERT_OK_AND_ASSIGN(const HfMatch match,
                         MatchHfTensors(config.model, config.family, found));
    EXPECT_EQ(match.naming, (HfNaming{.family = config.family,
                                      .fused_experts = name == "mixtral/fused",
                                      .bare = name == "gpt2/hub"}));
    EXPECT_EQ(match.ignored.size(), name == "gpt2/hub" ? 4 : 0);
    EXPECT_EQ(match.tied_copy, std::nullopt);
    EXPECT_EQ(match.tensors.size() + match.ignored.size(), found.size());
    ASSERT_EQ(match.found.size(), match.tensors.size());
    for (size_t i = 0; i < match.found.size(); ++i) {
      EXPECT_EQ(found[match.found[i]].name, match.tensors[i].name);
      EXPECT_EQ(found[match.found[i]].shape, match.tensors[i].shape);
    }
    ExpectCover(config.model, match.tensors);
  }
}

const StoredTensor& Named(const std::vector<StoredTensor>& tensors,
                          const std::string& name) {
  static const auto& none = *new StoredTensor();
  const auto it = std::find_if(
      tensors.begin(), tensors.end(),
      [&name](const StoredTensor& tensor) { return tensor.name == name; });
  EXPECT_NE(it, tensors.end()) << name;
  return it == tensors.end() ? none : *it;
}

// The logical tensors at the beginning, at `offset`s.
std::vector<std::pair<std::string, int64_t>> SourcesOf(
    const ModelConfig& model, const StoredTensor& tensor) {
  const std::vector<LogicalTensor> logical = LogicalTensors(model);
  std::vector<std::pair<std::string, int64_t>> sources;
  for (const Piece& piece : tensor.pieces) {
    sources.emplace_back(logical[piece.tensor].name, piece.offset);
  }
  return sources;
}

using Sources = std::vector<std::pair<std::string, int64_t>>;

TEST(HfTensors, OfGpt2AreTransposed) {
  const ModelConfig model = ConfigOf("gpt2").model;
  for (const bool bare : {false, true}) {
    ASSERT_OK_AND_ASSIGN(
        const auto tensors,
        HfTensors(model, {.family = HfFamily::kGpt2, .bare = bare}));
    const std::string prefix = bare ? "" : "transformer.";
    const StoredTensor& fused =
        Named(tensors, prefix + "h.2.attn.c_attn.weight");
    EXPECT_TRUE(fused.transposed);
    EXPECT_EQ(fused.shape, (ckpt::Shape{48, 144}));
    EXPECT_EQ(ImageShape(fused), (ckpt::Shape{144, 48}));
    EXPECT_EQ(SourcesOf(model, fused),
              (Sources{{"layers.2.attention.q.weight", 0},
                       {"layers.2.attention.k.weight", 48 * 48},
                       {"layers.2.attention.v.weight", 2 * 48 * 48}}));
    const StoredTensor& bias = Named(tensors, prefix + "h.2.attn.c_attn.bias");
    EXPECT_FALSE(bias.transposed);
    EXPECT_EQ(SourcesOf(model, bias),
              (Sources{{"layers.2.attention.q.bias", 0},
                       {"layers.2.attention.k.bias", 48},
                       {"layers.2.attention.v.bias", 96}}));
    EXPECT_EQ(Named(tensors, prefix + "h.0.mlp.c_fc.weight").shape,
              (ckpt::Shape{48, 192}));
    EXPECT_FALSE(Named(tensors, prefix + "wte.weight").transposed);
  }
}

TEST(HfTensors, FuseExperts) {
  const ModelConfig model = ConfigOf("mixtral").model;
  ASSERT_OK_AND_ASSIGN(
      const auto tensors,
      HfTensors(model, {.family = HfFamily::kMixtral, .fused_experts = true}));
  const StoredTensor& fused =
      Named(tensors, "model.layers.1.mlp.experts.gate_up_proj");
  EXPECT_EQ(fused.shape, (ckpt::Shape{4, 64, 64}));
  const Sources sources = SourcesOf(model, fused);
  ASSERT_EQ(sources.size(), 8);
  EXPECT_EQ(sources[2], (std::pair<std::string, int64_t>(
                            "layers.1.mlp.experts.1.gate.weight", 64 * 64)));
  EXPECT_EQ(sources[3],
            (std::pair<std::string, int64_t>("layers.1.mlp.experts.1.up.weight",
                                             64 * 64 + 32 * 64)));
  EXPECT_EQ(Named(tensors, "model.layers.1.mlp.experts.down_proj").shape,
            (ckpt::Shape{4, 64, 32}));
}

TEST(HfTensors, PutW1BeforeW3) {
  const ModelConfig model = ConfigOf("mixtral").model;
  ASSERT_OK_AND_ASSIGN(const auto tensors,
                       HfTensors(model, {.family = HfFamily::kMixtral}));
  const std::string prefix = "model.layers.3.block_sparse_moe.experts.2.";
  for (const auto& [name, source] :
       {std::pair{"w1", "gate"}, {"w2", "down"}, {"w3", "up"}}) {
    EXPECT_EQ(
        SourcesOf(model, Named(tensors, absl::StrCat(prefix, name, ".weight"))),
        (Sources{
            {absl::StrCat("layers.3.mlp.experts.2.", source, ".weight"), 0}}));
  }
}

// A small model of the family with everything it may have.
ModelConfig RandomOf(HfFamily family, std::mt19937& random) {
  const bool coin = Uniform(random, 0, 1) == 1;
  ModelConfig model = RandomModel(random);
  model.untie_embeddings_and_output_weights = Uniform(random, 0, 1) == 1;
  model.add_qkv_bias = false;
  if (family == HfFamily::kGpt2) {
    model.normalization = Normalization::kLayerNorm;
    model.position_embedding = PositionEmbedding::kLearnedAbsolute;
    model.swiglu = false;
    model.add_bias_linear = true;
    model.hidden_size = model.query_width();
    model.num_query_groups = model.num_attention_heads;
    model.exact_gelu = coin;
    return model;
  }
  model.normalization = Normalization::kRmsNorm;
  model.position_embedding = PositionEmbedding::kRope;
  model.swiglu = true;
  model.add_bias_linear = family == HfFamily::kLlama && coin;
  if (family != HfFamily::kLlama) model.sliding_window = coin ? 7 : 0;
  model.qk_layernorm =
      family == HfFamily::kQwen3 || family == HfFamily::kQwen3Moe;
  model.add_qkv_bias =
      family == HfFamily::kQwen2 || (family == HfFamily::kQwen2Moe && coin);
  if (Uniform(random, 0, 2) == 0) {
    model.use_rope_scaling = true;
    model.rope_scaling_factor = 32;
  }
  if (family < HfFamily::kMixtral) return model;
  model.num_experts = Uniform(random, 2, 5);
  model.moe_ffn_hidden_size = Uniform(random, 1, 9);
  model.moe_router_pre_softmax = family != HfFamily::kMixtral && !coin;
  for (int64_t layer = 1; layer < model.num_layers; ++layer) {
    if (family == HfFamily::kMixtral || Uniform(random, 0, 2) > 0) continue;
    model.dense_layers.push_back(layer);
  }
  if (family == HfFamily::kQwen2Moe) {
    model.moe_shared_expert_intermediate_size = Uniform(random, 1, 9);
    model.moe_shared_expert_gate = true;
  }
  return model;
}

// Every model of every family: its configuration comes back, its tensors cover
// it, and are found again in any order.
TEST(HfTensors, CoverEveryLogicalTensorOnce) {
  std::mt19937 random(5);
  for (int i = 0; i < 400; ++i) {
    const HfFamily family = kHfFamilies[i % kHfFamilies.size()];
    const ModelConfig model = RandomOf(family, random);
    SCOPED_TRACE(absl::StrCat(ModelType(family), " ", ToJson(model).dump()));
    ASSERT_OK(Validate(model));
    ASSERT_OK_AND_ASSIGN(const auto config, HfConfigFor(model, family, ""));
    const HfNaming naming = {
        .family = family,
        .fused_experts = model.has_experts() && Uniform(random, 0, 1) == 1,
        .bare = family == HfFamily::kGpt2 && Uniform(random, 0, 1) == 1};
    ASSERT_OK_AND_ASSIGN(const auto tensors, HfTensors(model, naming));
    ExpectCover(model, tensors);
    std::vector<FoundTensor> found;
    found.reserve(tensors.size());
    for (const StoredTensor& tensor : tensors) {
      found.push_back({tensor.name, tensor.shape});
    }
    std::shuffle(found.begin(), found.end(), random);
    ASSERT_OK_AND_ASSIGN(const HfMatch match,
                         MatchHfTensors(model, family, found));
    EXPECT_EQ(match.naming, naming);
    EXPECT_EQ(match.tensors, tensors);
  }
}

TEST(HfTensors, RefuseWhatHasNoPlace) {
  ModelConfig model = GptModel();
  model.qk_layernorm = true;
  EXPECT_THAT(HfTensors(model, {.family = HfFamily::kGpt2}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("layers.0.attention.q_norm.weight has no "
                                 "place in a gpt2 model")));
  EXPECT_THAT(HfTensors(MixtureModel(), {.family = HfFamily::kMixtral}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("shared_experts")));
}

class MatchHfErrors : public ::testing::Test {
 protected:
  void Use(const std::string& name) {
    const HfConfig config = ConfigOf(name);
    model_ = config.model;
    family_ = config.family;
    found_ = FoundIn(name);
  }

  FoundTensor& At(const std::string& name) {
    return *std::find_if(
        found_.begin(), found_.end(),
        [&name](const FoundTensor& tensor) { return tensor.name == name; });
  }

  void ExpectRefused(const std::string& word) const {
    EXPECT_THAT(
        MatchHfTensors(model_, family_, found_),
        StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(word)));
  }

  ModelConfig model_;
  HfFamily family_ = HfFamily::kLlama;
  std::vector<FoundTensor> found_;
};

TEST_F(MatchHfErrors, NameWhatIsMissing) {
  Use("llama");
  At("lm_head.weight") = found_.back();
  found_.pop_back();
  ExpectRefused("tensor \"lm_head.weight\" [259,64] is missing");
  model_.num_layers = 5;
  ExpectRefused(
      "tensor \"model.layers.4.self_attn.q_proj.weight\" [64,64] is missing, "
      "and 9 more");
}

TEST_F(MatchHfErrors, NameWhatIsTooMuch) {
  Use("llama");
  model_.num_layers = 3;
  ExpectRefused("is no part of a llama model of 3 layers");
  Use("qwen2");
  found_.push_back({"model.layers.0.self_attn.o_proj.bias", {64}});
  ExpectRefused("\"model.layers.0.self_attn.o_proj.bias\" [64] is no part");
  Use("llama");
  found_.push_back({"h.0.attn.bias", {1, 1, 4, 4}});
  ExpectRefused("is no part");
}

TEST_F(MatchHfErrors, NameExpectedAndFoundShape) {
  Use("llama");
  At("model.norm.weight").shape = {65};
  ExpectRefused(
      "tensor \"model.norm.weight\" [65] has another shape than "
      "config.json says, expected [64]");
}

TEST_F(MatchHfErrors, NameWhatComesTwice) {
  Use("llama");
  found_.push_back(found_.front());
  ExpectRefused("comes twice");
}

TEST_F(MatchHfErrors, AreGivenBeforeAListOfAHugeModelIsMade) {
  Use("llama");
  model_.num_layers = 1 << 16;
  ExpectRefused("but there are only 39");
}

TEST_F(MatchHfErrors, LeaveBuffersAndATiedCopyToTheCaller) {
  Use("qwen2");
  found_.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {4}});
  found_.push_back({"lm_head.weight", {131, 64}});
  ASSERT_OK_AND_ASSIGN(const HfMatch match,
                       MatchHfTensors(model_, family_, found_));
  EXPECT_EQ(match.ignored, std::vector<int64_t>{std::ssize(found_) - 2});
  EXPECT_EQ(match.tied_copy, std::ssize(found_) - 1);
  found_.back().shape = {131, 65};
  ExpectRefused("\"lm_head.weight\" [131,65] has another shape");
}

}  // namespace
}  // namespace shardshift::reshard
