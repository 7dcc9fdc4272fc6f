// SPDX-License-Identifier: Apache-2.0
#include "ckpt/index_alone.h"

#include <map>
#include <memory>
#include <vector>

#include "ckpt/io/file.h"
#include "ckpt/reader.h"
#include "ckpt/run_dir.h"
#include "tests/ckpt/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
constexpr auto kDataLoss = absl::StatusCode::kDataLoss;
const CheckpointId kId = {3, R"({"step":1})"};

std::map<int64_t, std::vector<FragmentSpec>> SpecsByPart(
    const std::vector<SampleTensor>& tensors) {
  std::map<int64_t, std::vector<FragmentSpec>> specs;
  for (const SampleTensor& tensor : tensors) {
    const Tensor& info = tensor.info;
    for (const Piece& piece : tensor.pieces) {
      specs[piece.part].push_back(
          {info.name, info.role, info.dtype, info.shape, piece.box});
    }
  }
  return specs;
}

absl::Status WriteAlone(const std::string& run_dir,
                        const std::vector<SampleTensor>& tensors) {
  std::vector<PartReceipt> receipts;
  for (const auto& [part, specs] : SpecsByPart(tensors)) {
    absl::StatusOr<PartReceipt> receipt = ReceiptWithoutPart(part, kId, specs);
    if (!receipt.ok()) return receipt.status();
    receipts.push_back(*std::move(receipt));
  }
  const auto step_dir = BeginCheckpoint(run_dir, kId.step);
  if (!step_dir.ok()) return step_dir.status();
  return CommitIndexAlone(run_dir, kId, receipts, "{}");
}

// Matrices and vectors; without views there is no place for 0-d values.
std::vector<SampleTensor> Tensors() {
  std::vector<SampleTensor> tensors = SmallTensors();
  std::erase_if(tensors, [](const SampleTensor& tensor) {
    return tensor.info.shape.empty();
  });
  return tensors;
}

class IndexAloneTest : public ::testing::Test {
 protected:
  std::string StepDir(const TempDir& dir) const {
    return JoinPath(dir.path(), StepName(kId.step));
  }
  TempDir alone_;
};

TEST_F(IndexAloneTest, TellsTheFragmentsOfTheWholeCheckpoint) {
  const TempDir whole;
  ASSERT_OK(WriteSample(whole.path(), kId.step, Tensors()));
  ASSERT_OK(WriteAlone(alone_.path(), Tensors()));
  EXPECT_THAT(ListDirectory(StepDir(alone_)).value(), ElementsAre("index.h5"));
  ASSERT_OK_AND_ASSIGN(const auto expected, Reader::Open(StepDir(whole)));
  ASSERT_OK_AND_ASSIGN(const auto found,
                       Reader::Open(StepDir(alone_), PartFiles::kAllOrNone));
  EXPECT_TRUE(expected->has_parts());
  EXPECT_FALSE(found->has_parts());
  EXPECT_EQ(found->table().tensors, expected->table().tensors);
  ASSERT_EQ(found->table().fragments.size(),
            expected->table().fragments.size());
  for (size_t f = 0; f < found->table().fragments.size(); ++f) {
    const Fragment& a = found->table().fragments[f];
    const Fragment& b = expected->table().fragments[f];
    EXPECT_EQ(a.box, b.box);
    EXPECT_EQ(a.part, b.part);
    EXPECT_EQ(a.blocks.size(), b.blocks.size());
  }
}

TEST_F(IndexAloneTest, OpensForPlansAlone) {
  ASSERT_OK(WriteAlone(alone_.path(), Tensors()));
  const auto missing = HasSubstr(
      "lacks 2 of 2 parts: part-00000.h5, part-00001.h5; an index "
      "alone");
  EXPECT_THAT(Reader::Open(StepDir(alone_)), StatusIs(kDataLoss, missing));
  EXPECT_THAT(ResolveCheckpoint(alone_.path()), StatusIs(kDataLoss, missing));
  ASSERT_OK_AND_ASSIGN(const ResolvedCheckpoint found,
                       ResolveCheckpoint(alone_.path(), PartFiles::kAllOrNone));
  const Tensor& tensor = found.reader->table().tensors[0];
  std::vector<std::byte> values(NumElements(tensor.shape) *
                                ItemSize(tensor.dtype));
  EXPECT_THAT(
      found.reader->ReadTensor(0, WholeBox(tensor.shape), values.data()),
      StatusIs(kDataLoss, HasSubstr("is missing")));
}

TEST_F(IndexAloneTest, DoesNotOpenBesideSomeOfItsParts) {
  ASSERT_OK(WriteAlone(alone_.path(), Tensors()));
  WriteFile(JoinPath(StepDir(alone_), PartFileName(1)), "");
  EXPECT_THAT(Reader::Open(StepDir(alone_), PartFiles::kAllOrNone),
              StatusIs(kDataLoss, HasSubstr("lacks 1 of 2 parts: part-00000")));
}

TEST_F(IndexAloneTest, RefusesWhatIsNotWholeAndAStepThatIsThere) {
  std::vector<SampleTensor> holed = Tensors();
  for (SampleTensor& tensor : holed) {
    if (tensor.pieces.size() > 1) tensor.pieces.pop_back();
  }
  EXPECT_THAT(
      WriteAlone(alone_.path(), holed),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tensor")));
  EXPECT_FALSE(Exists(StepDir(alone_)).value());
  ASSERT_OK(WriteAlone(alone_.path(), Tensors()));
  EXPECT_THAT(WriteAlone(alone_.path(), Tensors()),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("step-")));
  EXPECT_THAT(ReceiptWithoutPart(0, kId, {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("part 0 of 0 fragments")));
}

}  // namespace
}  // namespace shardshift::ckpt
