// Values that lie in no file.
// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/lost_elements.h"

#include <memory>
#include <string>
#include <vector>

#include "tests/ckpt/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two tensors of bfloat16: a, [2,3], is 0 to 5, and b, [4], is 6 to 9.
class LostElementsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = directory_.path() + "/weights";
    std::string bytes;
    for (const int value : {0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0,
                            0x40c0, 0x40e0, 0x4100, 0x4110}) {
      bytes.push_back(static_cast<char>(value & 0xff));
      bytes.push_back(static_cast<char>(value >> 8));
    }
    ckpt::WriteFile(path, bytes);
    ckpt::ForeignFilesBuilder builder("source");
    const int64_t file = builder.AddFile(path, std::ssize(bytes));
    ASSERT_OK(builder.Add({"a", "weight", ckpt::DType::kBF16, {2, 3}},
                          ckpt::WholeBox({2, 3}), {file, 0, 0}));
    ASSERT_OK(builder.Add({"b", "weight", ckpt::DType::kBF16, {4}},
                          ckpt::WholeBox({4}), {file, 12, 0}));
    ASSERT_OK_AND_ASSIGN(ckpt::ForeignFiles files,
                         builder.Build(0, "{}", "{}"));
    weights_ = ckpt::Reader::OpenForeign(std::move(files));
  }

  static std::vector<float> Read(const ckpt::Reader& reader,
                                 const std::string& name,
                                 const std::string& role) {
    const int64_t tensor = reader.FindTensor(name, role).value();
    const ckpt::Box whole =
        ckpt::WholeBox(reader.table().tensors[tensor].shape);
    std::vector<float> values(ckpt::NumElements(whole), -1);
    EXPECT_OK(reader.ReadTensor(tensor, whole,
                                reinterpret_cast<std::byte*>(values.data())));
    return values;
  }

  const ckpt::TempDir directory_;
  const std::vector<LogicalTensor> tensors_ = {{"a", {2, 3}}, {"b", {4}}};
  std::unique_ptr<ckpt::Reader> weights_;
};

TEST_F(LostElementsTest, MastersAreTheWeightsAndMomentsAreZero) {
  LostElements lost(tensors_);
  ASSERT_OK(lost.Add(0, {{0, 1}, {2, 2}}));
  ASSERT_OK(lost.Add(1, {{0}, {3}}));
  ASSERT_OK(lost.Add(0, {{0, 0}, {2, 1}}));
  ASSERT_OK(lost.Add(1, {{3}, {1}}));
  ckpt::ForeignFilesBuilder builder("source");
  ASSERT_OK(lost.FillIn(*weights_, builder));
  ASSERT_OK_AND_ASSIGN(ckpt::ForeignFiles files, builder.Build(0, "{}", "{}"));
  const auto reader = ckpt::Reader::OpenForeign(std::move(files));
  EXPECT_THAT(Read(*reader, "a", "master"), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(Read(*reader, "b", "master"), ElementsAre(6, 7, 8, 9));
  for (const std::string role : {"exp_avg", "exp_avg_sq"}) {
    EXPECT_THAT(Read(*reader, "a", role), Each(0));
    EXPECT_THAT(Read(*reader, "b", role), Each(0));
  }
  EXPECT_OK(reader->TakeFingerprints());
}

TEST_F(LostElementsTest, TheyAreNamed) {
  LostElements lost(tensors_);
  for (int64_t i = 0; i < 4; ++i) ASSERT_OK(lost.Add(1, {{i}, {1}}));
  ASSERT_OK(lost.Add(0, {{0, 0}, {1, 1}}));
  ASSERT_OK(lost.Add(0, {{0, 2}, {1, 1}}));
  ASSERT_OK(lost.Add(0, {{1, 0}, {1, 1}}));
  ASSERT_OK(lost.Add(0, {{1, 1}, {1, 1}}));
  ASSERT_OK(lost.Add(0, {{1, 2}, {1, 1}}));
  ForeignCheckpoint read;
  read.lost = lost.ByTensor();
  for (const LogicalTensor& tensor : tensors_) {
    read.files.table.tensors.push_back(
        {tensor.name, "exp_avg", ckpt::DType::kF32, tensor.shape});
    read.files.table.tensors.push_back(
        {tensor.name, "master", ckpt::DType::kF32, tensor.shape});
  }
  DescribeLost(read);
  ASSERT_EQ(read.notes.size(), 3);
  EXPECT_EQ(read.notes[0],
            "lost: a: 5 of 6 elements, [0:1,0:1], [0:1,2:3], [1:2,0:1], "
            "[1:2,1:2] and 1 boxes more");
  EXPECT_EQ(read.notes[1],
            "lost: b: 4 of 4 elements, [0:1], [1:2], [2:3], [3:4]");
  EXPECT_THAT(read.notes[2],
              HasSubstr("9 of 10 elements of each optimizer state, in 2 "
                        "tensors, which are in no file"));
  EXPECT_THAT(read.left_out,
              ElementsAre(HasSubstr("exp_avg and exp_avg_sq are 0")));
}

TEST_F(LostElementsTest, WithoutAnyNothingIsAdded) {
  const LostElements lost(tensors_);
  ckpt::ForeignFilesBuilder builder("source");
  ASSERT_OK(lost.FillIn(*weights_, builder));
  EXPECT_TRUE(lost.ByTensor().empty());
  ForeignCheckpoint read;
  DescribeLost(read);
  EXPECT_THAT(read.notes, ElementsAre("no element was lost"));
  EXPECT_TRUE(read.left_out.empty());
}

TEST_F(LostElementsTest, TooManyAreRefused) {
  const std::vector<LogicalTensor> tensors = {
      {"large", {LostElements::kMaxElements, 2}}};
  LostElements lost(tensors);
  ASSERT_OK(lost.Add(0, {{0, 0}, {LostElements::kMaxElements, 1}}));
  EXPECT_THAT(lost.Add(0, {{0, 1}, {1, 1}}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("--weights-only")));
}

}  // namespace
}  // namespace shardshift::reshard
