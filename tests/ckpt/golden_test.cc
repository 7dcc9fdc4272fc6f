// Checkpoints that were written when their format version was released.
// SPDX-License-Identifier: Apache-2.0
#include "tests/ckpt/golden.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/io/file.h"
#include "ckpt/reader.h"
#include "ckpt/run_dir.h"
#include "ckpt/verify.h"
#include "tests/ckpt/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

class FormatV1 : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(golden_, ReadGolden(directory_ + "/expected.json"));
    ASSERT_OK_AND_ASSIGN(const ResolvedCheckpoint checkpoint,
                         ResolveCheckpoint(directory_ + "/run"));
    step_dir_ = checkpoint.step_dir;
    ASSERT_OK_AND_ASSIGN(reader_, Reader::Open(step_dir_));
  }

  const std::string directory_ =
      std::string(SHARDSHIFT_GOLDEN_DIR "/") + GetParam();
  Golden golden_;
  std::string step_dir_;
  std::unique_ptr<Reader> reader_;
};

TEST_P(FormatV1, IsReadWithEveryValue) {
  EXPECT_EQ(reader_->step(), golden_.id.step);
  EXPECT_EQ(reader_->state(), golden_.id.state);
  EXPECT_EQ(reader_->record(), golden_.record);
  ASSERT_EQ(reader_->table().tensors.size(), golden_.tensors.size());
  for (size_t t = 0; t < golden_.tensors.size(); ++t) {
    const GoldenTensor& expected = golden_.tensors[t];
    ASSERT_EQ(reader_->table().tensors[t], expected.info);
    std::vector<std::byte> values(expected.values.size());
    ASSERT_OK(reader_->ReadTensor(
        static_cast<int64_t>(t), WholeBox(expected.info.shape), values.data()));
    EXPECT_EQ(values, expected.values) << Describe(expected.info);
  }
}

TEST_P(FormatV1, HasTheFingerprintsOfItsRelease) {
  EXPECT_EQ(ToString(RootFingerprintOf(reader_->table())),
            golden_.root_fingerprint);
  const std::vector<Fingerprint> found = TensorFingerprints(reader_->table());
  for (size_t t = 0; t < golden_.tensors.size(); ++t) {
    EXPECT_EQ(ToString(found[t]), golden_.tensors[t].fingerprint)
        << Describe(golden_.tensors[t].info);
  }
}

TEST_P(FormatV1, VerifiesDeep) {
  ASSERT_OK_AND_ASSIGN(const VerifyReport report,
                       Verify(step_dir_, /*deep=*/true, [](const Fault& fault) {
                         ADD_FAILURE() << fault.message;
                       }));
  EXPECT_EQ(report.num_faults, 0);
  EXPECT_EQ(report.bytes_checked, reader_->total_bytes());
}

// A difference means that what is written is no longer what version 1 was.
TEST_P(FormatV1, IsWrittenByteForByteAsAtItsRelease) {
  if (golden_.codec != Codec::kNone) {
    GTEST_SKIP() << "what zstd makes depends on its version";
  }
  const TempDir directory;
  const std::string run = directory.path() + "/run";
  ASSERT_OK(WriteGolden(run, golden_));
  EXPECT_EQ(ReadFile(run + "/latest"), ReadFile(directory_ + "/run/latest"));
  ASSERT_OK_AND_ASSIGN(const std::vector<std::string> names,
                       ListDirectory(step_dir_));
  EXPECT_THAT(names, ::testing::ElementsAre("index.h5", "part-00000.h5",
                                            "part-00003.h5"));
  const std::string again = JoinPath(run, StepName(golden_.id.step));
  EXPECT_THAT(ListDirectory(again).value(), ::testing::ElementsAreArray(names));
  for (const std::string& name : names) {
    const std::string now = ReadFile(JoinPath(again, name));
    const std::string then = ReadFile(JoinPath(step_dir_, name));
    ASSERT_EQ(now.size(), then.size()) << name;
    const auto [at, unused] =
        std::mismatch(now.begin(), now.end(), then.begin());
    EXPECT_TRUE(at == now.end())
        << name << " differs at byte " << at - now.begin();
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, FormatV1,
                         ::testing::Values("format-v1", "format-v1-zstd"));

}  // namespace
}  // namespace shardshift::ckpt
