// Any damage to any byte is found, and nothing damaged is returned.
// SPDX-License-Identifier: Apache-2.0
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

using ::testing::HasSubstr;
constexpr auto kDataLoss = absl::StatusCode::kDataLoss;

// Of a fragment of one block.
int64_t OffsetOf(const Fragment& fragment) {
  return fragment.blocks.front().offset_bytes;
}

class Damage : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(WriteSample(dir_.path(), 1, SmallTensors()));
    step_dir_ = JoinPath(dir_.path(), StepName(1));
    const auto reader = Reader::Open(step_dir_);
    ASSERT_OK(reader.status());
    table_ = (*reader)->table();
  }

  std::string PathOf(const std::string& name) const {
    return JoinPath(step_dir_, name);
  }

  std::vector<Fault> Faults(bool deep) const {
    std::vector<Fault> faults;
    EXPECT_OK(Verify(step_dir_, deep, [&](const Fault& fault) {
                faults.push_back(fault);
              }).status());
    return faults;
  }

  // The fragment that holds byte `offset` of a part, or nullptr.
  const Fragment* FragmentAt(int64_t part, int64_t offset) const {
    for (const Fragment& fragment : table_.fragments) {
      if (fragment.part == part && offset >= OffsetOf(fragment) &&
          offset < OffsetOf(fragment) + FragmentBytes(table_, fragment)) {
        return &fragment;
      }
    }
    return nullptr;
  }

  TempDir dir_;
  std::string step_dir_;
  Table table_;
};

TEST_F(Damage, OfAnyByteOfAPartIsFoundAndLocated) {
  const std::string name = PartFileName(1);
  const std::string good = ReadFile(PathOf(name));
  ASSERT_OK_AND_ASSIGN(const File file, File::OpenForUpdate(PathOf(name)));
  for (size_t i = 0; i < good.size(); ++i) {
    const auto bad = static_cast<std::byte>(good[i] ^ (1 << (i % 8)));
    ASSERT_OK(file.WriteAt(static_cast<int64_t>(i), {&bad, 1}));
    const Fragment* fragment = FragmentAt(1, static_cast<int64_t>(i));
    const std::vector<Fault> faults = Faults(/*deep=*/true);
    ASSERT_EQ(faults.size(), 1u) << "byte " << i;
    EXPECT_EQ(faults[0].file, name);
    if (fragment != nullptr) {
      EXPECT_EQ(faults[0].offset_bytes, OffsetOf(*fragment));
      EXPECT_EQ(faults[0].tensor, table_.tensors[fragment->tensor].name);
      EXPECT_TRUE(Faults(/*deep=*/false).empty());
    }
    const auto original = static_cast<std::byte>(good[i]);
    ASSERT_OK(file.WriteAt(static_cast<int64_t>(i), {&original, 1}));
  }
  EXPECT_TRUE(Faults(/*deep=*/true).empty());
}

TEST_F(Damage, OfAnyByteOfTheIndexIsFound) {
  const std::string good = ReadFile(PathOf("index.h5"));
  ASSERT_OK_AND_ASSIGN(const File file,
                       File::OpenForUpdate(PathOf("index.h5")));
  for (size_t i = 0; i < good.size(); ++i) {
    const auto bad = static_cast<std::byte>(good[i] ^ (1 << (i % 8)));
    ASSERT_OK(file.WriteAt(static_cast<int64_t>(i), {&bad, 1}));
    const std::vector<Fault> faults = Faults(/*deep=*/false);
    ASSERT_EQ(faults.size(), 1u) << "byte " << i;
    EXPECT_EQ(faults[0].file, "index.h5");
    const auto original = static_cast<std::byte>(good[i]);
    ASSERT_OK(file.WriteAt(static_cast<int64_t>(i), {&original, 1}));
  }
}

TEST_F(Damage, OfPayloadIsRefusedByAReadOfItsBlockOnly) {
  const Fragment& fragment = table_.fragments[1];  // n, 0-d
  ASSERT_EQ(table_.tensors[fragment.tensor].name, "n");
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Reader> reader,
                       Reader::Open(step_dir_));
  ASSERT_OK_AND_ASSIGN(
      const File file,
      File::OpenForUpdate(PathOf(PartFileName(fragment.part))));
  std::byte value;
  ASSERT_OK(file.ReadAt(OffsetOf(fragment) + 3, {&value, 1}));
  value ^= std::byte{0x10};
  ASSERT_OK(file.WriteAt(OffsetOf(fragment) + 3, {&value, 1}));

  std::vector<std::byte> bytes(6 * 8 * 4);
  EXPECT_THAT(reader->ReadTensor(fragment.tensor, {}, bytes.data()),
              StatusIs(kDataLoss, HasSubstr("part-00000.h5: tensor \"n\"")));
  ASSERT_OK_AND_ASSIGN(const int64_t w, reader->FindTensor("w", "master"));
  EXPECT_OK(reader->ReadTensor(w, WholeBox({6, 8}), bytes.data()));
}

TEST_F(Damage, OfAnyTruncationIsRefusedAtOpen) {
  for (const char* name : {"index.h5", "part-00000.h5"}) {
    const std::string good = ReadFile(PathOf(name));
    for (size_t size = 0; size < good.size();
         size += size % 512 == 0 ? 1 : 511) {
      WriteFile(PathOf(name), good.substr(0, size));
      EXPECT_THAT(Reader::Open(step_dir_),
                  StatusIs(kDataLoss, HasSubstr(name)));
      EXPECT_EQ(Faults(/*deep=*/true).empty(), false);
    }
    WriteFile(PathOf(name), good + "x");
    EXPECT_THAT(Reader::Open(step_dir_), StatusIs(kDataLoss, HasSubstr(name)));
    WriteFile(PathOf(name), good);
  }
  EXPECT_OK(Reader::Open(step_dir_).status());
}

TEST_F(Damage, OfMissingPartsNamesThemAll) {
  ASSERT_OK(RemoveTree(PathOf(PartFileName(0))));
  ASSERT_OK(Rename(PathOf(PartFileName(1)), PathOf(PartFileName(2))));
  EXPECT_THAT(Reader::Open(step_dir_),
              StatusIs(kDataLoss, HasSubstr("part-00000.h5, part-00001.h5")));
  EXPECT_EQ(Faults(/*deep=*/true).size(), 2u);
}

TEST_F(Damage, OfSwappedPartsIsRefused) {
  ASSERT_OK(Exchange(PathOf(PartFileName(0)), PathOf(PartFileName(1))));
  EXPECT_THAT(Reader::Open(step_dir_),
              StatusIs(kDataLoss, HasSubstr("another checkpoint")));
}

// Same tensors, same sizes, other values: a step's part among another's.
TEST_F(Damage, OfAPartOfAnotherCheckpointIsRefused) {
  std::vector<SampleTensor> others = SmallTensors();
  for (SampleTensor& tensor : others) tensor.info.role = "master";
  ASSERT_OK(WriteSample(dir_.path(), 2, others));
  const std::string other = JoinPath(dir_.path(), StepName(2));
  WriteFile(PathOf(PartFileName(1)),
            ReadFile(JoinPath(other, PartFileName(1))));
  EXPECT_THAT(Reader::Open(step_dir_),
              StatusIs(kDataLoss, HasSubstr("part-00001.h5")));
}

TEST_F(Damage, OfAForeignFileIsRefusedAsSuch) {
  WriteFile(PathOf("index.h5"), std::string(10'000, 'x'));
  EXPECT_THAT(Reader::Open(step_dir_), StatusIs(kDataLoss, HasSubstr("magic")));
}

TEST_F(Damage, OfAStrayFileDoesNotMatter) {
  WriteFile(PathOf("part-00007.h5"), "stray");
  EXPECT_OK(Reader::Open(step_dir_).status());
}

}  // namespace
}  // namespace shardshift::ckpt
