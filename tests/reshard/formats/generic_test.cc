// Any tensors in and out, under the keys they have.
// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/generic.h"

#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/reader.h"
#include "ckpt/run_dir.h"
#include "reshard/exec/export.h"
#include "reshard/exec/generic_plan.h"
#include "reshard/exec/reshard.h"
#include "reshard/formats/open_source.h"
#include "reshard/formats/plan_export.h"
#include "tests/ckpt/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ::testing::HasSubstr;

TEST(GenericNameTest, StateOfAnOptimizerIsARole) {
  EXPECT_EQ(NameOfKey("optim.state.net.0.weight.exp_avg"),
            (GenericName{"net.0.weight", "exp_avg"}));
  EXPECT_EQ(NameOfKey("net.0.weight"), (GenericName{"net.0.weight", "weight"}));
  // Nothing would be left for the tensor or the role, or another key would
  // have this name.
  for (const std::string key : {"optim.state.step", "optim.state..step",
                                "optim.state.a.", "optim.state.a.weight"}) {
    EXPECT_EQ(NameOfKey(key).role, "weight") << key;
    EXPECT_EQ(KeyOfName(NameOfKey(key)), key);
  }
}

TEST(GenericNameTest, WhatANameCannotHoldIsEscaped) {
  EXPECT_EQ(NameOfKey("a b%").tensor, "a%20b%25");
  EXPECT_EQ(NameOfKey("a/b").tensor, "a/b");
  EXPECT_EQ(NameOfKey("/a").tensor, "%2Fa");
  EXPECT_EQ(NameOfKey("a//b").tensor, "a%2F%2Fb");
  EXPECT_EQ(NameOfKey("../a").tensor, "..%2Fa");
  EXPECT_EQ(NameOfKey("..").tensor, "%2E%2E");
}

TEST(GenericNameTest, EveryKeyHasANameOfItsOwn) {
  std::mt19937 random(3);
  const std::string letters = "a./%\x01\xff 2Foptim";
  std::set<std::pair<std::string, std::string>> names;
  std::set<std::string> keys = {"", ".", "..", "/", "optim.state."};
  for (int i = 0; i < 20000; ++i) {
    std::string key = random() % 4 == 0 ? "optim.state." : "";
    for (size_t n = random() % 7; n > 0; --n) {
      key += letters[random() % letters.size()];
    }
    keys.insert(key);
  }
  for (const std::string& key : keys) {
    const GenericName name = NameOfKey(key);
    EXPECT_OK(ckpt::CheckName(name.tensor)) << key;
    EXPECT_OK(ckpt::CheckName(name.role)) << key;
    EXPECT_EQ(name.role.find('/'), std::string::npos);
    EXPECT_EQ(KeyOfName(name), key);
    EXPECT_TRUE(names.insert({name.tensor, name.role}).second) << key;
  }
}

class GenericCopyTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const {
    return absl::StrCat(directory_.path(), "/", name);
  }

  absl::StatusOr<OpenedSource> Open(const std::string& name) const {
    OpenOptions options;
    options.foreign.generic = true;
    options.fingerprints = true;
    return OpenSource(Path(name), options);
  }

  // `source` as the one file of a new folder.
  absl::StatusOr<ReshardReport> Export(const std::string& source,
                                       const std::string& folder) const {
    absl::StatusOr<OpenedSource> opened = Open(source);
    if (!opened.ok()) return opened.status();
    ExportChoice choice;
    choice.generic = true;
    absl::StatusOr<ExportPlan> plan =
        PlanExport(*opened, Format::kSafetensors, choice);
    if (!plan.ok()) return plan.status();
    return ExportCheckpoint(*opened->reader, Path(folder), *plan, {});
  }

  const ckpt::TempDir directory_;
};

TEST_F(GenericCopyTest, AllTensorsComeBack) {
  std::mt19937 random(7);
  const auto tensors = ckpt::RandomTensors(3, random);
  ASSERT_OK(ckpt::WriteSample(Path("run"), 5, tensors));
  ASSERT_OK_AND_ASSIGN(const ReshardReport there, Export("run", "folder"));
  EXPECT_OK(there.proof);

  ASSERT_OK_AND_ASSIGN(const OpenedSource folder,
                       Open("folder/model.safetensors"));
  Layout layout;
  layout.data = 3;
  ReshardOptions options;
  options.generic = true;
  ASSERT_OK_AND_ASSIGN(
      const ReshardReport back,
      ReshardCheckpoint(*folder.reader, Path("back"), layout, options));
  EXPECT_OK(back.proof);
  EXPECT_EQ(back.root_after, there.root_before);
  ASSERT_OK(ckpt::CheckSample(Path("back/step-00000000"), tensors));

  // The same tensors, the same bytes.
  ASSERT_OK(Export("back", "again").status());
  EXPECT_EQ(ckpt::ReadFile(Path("again/model.safetensors")),
            ckpt::ReadFile(Path("folder/model.safetensors")));
}

TEST_F(GenericCopyTest, PartsAreAboutAsLarge) {
  std::mt19937 random(8);
  ASSERT_OK(ckpt::WriteSample(Path("run"), 5, ckpt::RandomTensors(1, random)));
  ASSERT_OK_AND_ASSIGN(const OpenedSource source, Open("run"));
  ASSERT_OK_AND_ASSIGN(const CopyPlan plan,
                       PlanGenericCopy(*source.reader, 3, {}));
  int64_t largest = 0;
  for (const ckpt::Tensor& tensor : source.reader->table().tensors) {
    largest =
        std::max(largest, ckpt::NumElements(ckpt::WholeBox(tensor.shape)) *
                              ckpt::ItemSize(tensor.dtype));
  }
  ASSERT_EQ(plan.parts.size(), 3);
  for (const TargetPart& part : plan.parts) {
    EXPECT_LE(PayloadBytes(part), PayloadBytes(plan) / 3 + largest);
  }
}

TEST_F(GenericCopyTest, IsNoModel) {
  std::mt19937 random(9);
  ASSERT_OK(ckpt::WriteSample(Path("run"), 5, ckpt::RandomTensors(1, random)));
  ASSERT_OK(Export("run", "folder").status());
  ASSERT_OK_AND_ASSIGN(const OpenedSource folder,
                       Open("folder/model.safetensors"));
  EXPECT_THAT(
      ReshardCheckpoint(*folder.reader, Path("copy"), {}, {}),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("--generic")));
}

}  // namespace
}  // namespace shardshift::reshard
