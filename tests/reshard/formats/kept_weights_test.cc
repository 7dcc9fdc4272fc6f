// Weights that are not their masters, rounded: they go with them, to wherever a
// copy goes, and come back as they were.
// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "ckpt/reader.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/exec/reshard.h"
#include "reshard/formats/open_source.h"
#include "reshard/formats/weights_check.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/formats/megatron_sample.h"
#include "tests/reshard/formats/torch_tree.h"
#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Names = std::vector<std::string>;

constexpr Layout kWide = {
    .tensor = 2, .data = 2, .distributed_optimizer = true};
constexpr char kFc2[] = "layers.1.mlp.down.weight";
constexpr char kQuery[] = "layers.0.attention.q.weight";

class KeptWeightsTest : public MegatronSampleTest {
 protected:
  // "megatron", whose module has two bytes of `local` that no master rounds to:
  // those of element 5 on tensor rank 1.
  void Damage(const std::string& local, const std::string& element) const {
    ASSERT_OK_AND_ASSIGN(TorchTree tree, TorchTree::Read(FileOf("mp_rank_01")));
    std::string& bytes =
        tree.tensors[tree.root["model"][local]["tensor"].get<size_t>()].bytes;
    bytes.replace(5 * element.size(), element.size(), element);
    ASSERT_OK(tree.Write(FileOf("mp_rank_01")));
  }
  void DamageFc2() const {
    Damage("decoder.layers.1.mlp.linear_fc2.weight", "\x9a\x3f");
  }

  // All that is under "NAME", read whole.
  ckpt::Digest128 RootOf(const std::string& name,
                         bool weights_only = false) const {
    const auto source = Open(name, weights_only);
    EXPECT_OK(source);
    return source.ok() ? ckpt::RootFingerprintOf(source->reader->table())
                       : ckpt::Digest128{};
  }

  Names KeptOf(const std::string& name) const {
    const auto source = Open(name);
    EXPECT_OK(source);
    return source.ok() ? KeptWeights(*source->reader) : Names{};
  }

  absl::Status ToNative(const std::string& from, const std::string& to,
                        const Layout& layout = {}) const {
    return Export(from, to, {.layout = layout, .to = Format::kNative});
  }

  std::string Bytes(const std::string& name, const std::string& tensor,
                    const std::string& role) const {
    const auto source = OpenSource(Path(name), {});
    EXPECT_OK(source);
    const auto index = source->reader->FindTensor(tensor, role);
    EXPECT_OK(index);
    const ckpt::Tensor& info = source->reader->table().tensors[*index];
    std::string bytes(
        ckpt::NumElements(info.shape) * ckpt::ItemSize(info.dtype), '\0');
    EXPECT_OK(
        source->reader->ReadTensor(*index, ckpt::WholeBox(info.shape),
                                   reinterpret_cast<std::byte*>(bytes.data())));
    return bytes;
  }
};

TEST_F(KeptWeightsTest, StandBesideTheirMastersInTheirOwnDType) {
  Make(LlamaModel(), kWide);
  DamageFc2();
  ASSERT_OK(ToNative("megatron", "copy"));
  EXPECT_THAT(KeptOf("copy"), ElementsAre(kFc2));
  ASSERT_OK_AND_ASSIGN(const OpenedSource copy, OpenSource(Path("copy"), {}));
  ASSERT_OK_AND_ASSIGN(const int64_t weight,
                       copy.reader->FindTensor(kFc2, "weight"));
  EXPECT_EQ(copy.reader->table().tensors[weight].dtype, ckpt::DType::kBF16);
  EXPECT_EQ(Bytes("copy", kFc2, "master"), Bytes("run", kFc2, "master"));
  // Every other tensor is as in the run.
  const auto run = OpenSource(Path("run"), {});
  EXPECT_EQ(copy.reader->table().tensors.size(),
            run->reader->table().tensors.size() + 1);
  EXPECT_EQ(RootOf("copy"), RootOf("megatron"));
}

TEST_F(KeptWeightsTest, ComeBackAsTheyWere) {
  Make(GptModel(), kWide);
  Damage("decoder.layers.0.self_attention.linear_qkv.weight", "\x9a\x3f");
  ASSERT_OK(ToNative("megatron", "copy"));
  // Of q, k and v, which the file has as one, one alone.
  EXPECT_EQ(KeptOf("copy").size(), 1);
  for (const Format format : {Format::kMegatron, Format::kTorchDist}) {
    for (const Layout& layout :
         {kWide, Layout{}, Layout{.tensor = 2, .pipeline = 2}}) {
      const std::string name =
          absl::StrCat(InfoOf(format).name, layout.data, layout.pipeline);
      ASSERT_OK(Export("copy", name, {.layout = layout, .to = format}));
      EXPECT_EQ(RootOf(name), RootOf("megatron")) << name;
      EXPECT_EQ(RootOf(name, true), RootOf("megatron", true)) << name;
      // Without a copy of ours between them, too.
      ASSERT_OK(Export("megatron", name + "-at-once",
                       {.layout = layout, .to = format}));
      EXPECT_TRUE(Snapshot(Path(name)) == Snapshot(Path(name + "-at-once")));
    }
  }
}

TEST_F(KeptWeightsTest, AreCutAsTheirMastersAre) {
  Make(LlamaModel(), kWide);
  DamageFc2();
  ASSERT_OK(ToNative("megatron", "copy"));
  const Layout other = {.tensor = 2, .pipeline = 2};
  ASSERT_OK(ToNative("copy", "other", other));
  ASSERT_OK(ToNative("megatron", "at-once", other));
  EXPECT_TRUE(Snapshot(Path("other")) == Snapshot(Path("at-once")));
  EXPECT_EQ(RootOf("other"), RootOf("copy"));
  ASSERT_OK_AND_ASSIGN(const OpenedSource wide, OpenSource(Path("other"), {}));
  std::vector<ckpt::Box> boxes[2];
  for (const ckpt::Fragment& fragment : wide.reader->table().fragments) {
    const ckpt::Tensor& tensor = wide.reader->table().tensors[fragment.tensor];
    if (tensor.name != kFc2) continue;
    if (tensor.role == "master") boxes[0].push_back(fragment.box);
    if (tensor.role == "weight") boxes[1].push_back(fragment.box);
  }
  EXPECT_EQ(boxes[0].size(), 2);
  EXPECT_EQ(boxes[0], boxes[1]);
  // And back to the first directory.
  ASSERT_OK(ToNative("other", "again"));
  EXPECT_TRUE(Snapshot(Path("again")) == Snapshot(Path("copy")));
}

// What no comparison of numbers tells apart, or all do.
TEST_F(KeptWeightsTest, AreComparedByTheirBits) {
  for (const char* element : {"\xc1\x7f", "\xc0\xff", "\x80\xff", "\x81\x00"}) {
    Make(LlamaModel(), kWide);
    Damage("decoder.layers.1.mlp.linear_fc2.weight", std::string(element, 2));
    ASSERT_OK(ToNative("megatron", "copy", kWide));
    EXPECT_THAT(KeptOf("copy"), ElementsAre(kFc2));
    EXPECT_NE(Bytes("copy", kFc2, "weight").find(std::string(element, 2)),
              std::string::npos);
    ASSERT_OK(Export("copy", "back", kWide));
    EXPECT_EQ(RootOf("back", true), RootOf("megatron", true));
    for (const char* name : {"run", "megatron", "copy", "back"}) {
      ASSERT_OK(ckpt::RemoveTree(Path(name)));
    }
  }
}

TEST_F(KeptWeightsTest, AreWhatACopyOfWeightsTakes) {
  Make(LlamaModel(), kWide);
  DamageFc2();
  ASSERT_OK(ToNative("megatron", "copy"));
  ASSERT_OK_AND_ASSIGN(const OpenedSource source, OpenSource(Path("copy"), {}));
  ASSERT_OK(ReshardCheckpoint(*source.reader, Path("weights"), {},
                              {.choice = {.weights_only = true}}));
  EXPECT_EQ(Bytes("weights", kFc2, "weight"), Bytes("copy", kFc2, "weight"));
  EXPECT_EQ(Bytes("weights", kQuery, "weight"), Bytes("run", kQuery, "master"));
  // A folder of Hugging Face has one dtype, in which all of them are exact.
  ASSERT_OK(Export("copy", "hf",
                   {.to = Format::kSafetensors, .dtype = ckpt::DType::kF32}));
  ASSERT_OK_AND_ASSIGN(const OpenedSource folder, OpenSource(Path("hf"), {}));
  for (const ckpt::Tensor& tensor : folder.reader->table().tensors) {
    EXPECT_EQ(tensor.dtype, ckpt::DType::kF32);
  }
  const std::string wide = Bytes("hf", kFc2, "weight");
  const std::string narrow = Bytes("copy", kFc2, "weight");
  for (size_t i = 0; i < narrow.size() / 2; ++i) {
    ASSERT_EQ(wide.substr(4 * i + 2, 2), narrow.substr(2 * i, 2)) << i;
  }
}

TEST_F(KeptWeightsTest, AreRefusedWhereOneTensorIsAllThereIs) {
  Make(LlamaModel(), kWide);
  DamageFc2();
  ASSERT_OK(ToNative("megatron", "copy"));
  for (const Format format : {Format::kMegatron, Format::kTorchDist}) {
    EXPECT_THAT(
        Export("copy", "plain",
               {.layout = {}, .to = format, .dtype = ckpt::DType::kF32}),
        StatusIs(absl::StatusCode::kFailedPrecondition,
                 HasSubstr("the weight of 1 tensor, which is not its master, "
                           "rounded: layers.1.mlp.down.weight")));
  }
  ASSERT_OK(
      Export("copy", "flat", {.layout = kWide, .dtype = ckpt::DType::kF32}));
  EXPECT_THAT(KeptOf("flat"), ElementsAre(kFc2));
}

TEST_F(KeptWeightsTest, MustHaveTheShapeAndADTypeOfTheirMasters) {
  Make(LlamaModel(), kWide);
  ASSERT_OK_AND_ASSIGN(const OpenedSource source, OpenSource(Path("run"), {}));
  const auto with_weight = [&](const ckpt::Tensor& weight) {
    ckpt::ForeignFilesBuilder builder("made");
    const int64_t file =
        builder.AddContents("made", std::vector<std::byte>(1 << 20));
    for (const ckpt::Tensor& tensor : source.reader->table().tensors) {
      EXPECT_OK(builder.Add(tensor, ckpt::WholeBox(tensor.shape), {file, 0}));
    }
    EXPECT_OK(builder.Add(weight, ckpt::WholeBox(weight.shape), {file, 0}));
    return ckpt::Reader::OpenForeign(
        *builder.Build(3, source.reader->state(), source.reader->record()));
  };
  ckpt::Tensor weight = {kFc2, "weight", ckpt::DType::kBF16, {1, 1}};
  EXPECT_THAT(ReadWholeModel(*with_weight(weight)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(kFc2)));
  const auto master = source.reader->FindTensor(kFc2, "master");
  weight.shape = source.reader->table().tensors[*master].shape;
  EXPECT_OK(ReadWholeModel(*with_weight(weight)));
  weight.dtype = ckpt::DType::kI16;
  EXPECT_THAT(ReadWholeModel(*with_weight(weight)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(kFc2)));
  weight.name = "stranger";
  EXPECT_THAT(ReadWholeModel(*with_weight(weight)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("does not belong to the model")));
}

TEST(DescribeKept, NamesAFew) {
  EXPECT_EQ(DescribeKept({"a", "b", "c", "d", "e"}),
            "the weights of 5 tensors, which are not their masters, rounded: "
            "a, b, c and 2 more");
}

}  // namespace
}  // namespace shardshift::reshard
