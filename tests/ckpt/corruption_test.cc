// Damage to a checkpoint of any kind: a deep verify finds it and says where,
// and a load fails or gives the right content. Nothing crashes, hangs, or
// takes memory by what a damaged file claims.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/coding.h"
#include "ckpt/io/file.h"
#include "ckpt/reader.h"
#include "ckpt/run_dir.h"
#include "ckpt/verify.h"
#include "tests/ckpt/sample.h"
#include "tests/testutil/heap_peak.h"
#include "tests/testutil/memory_disk.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

#ifdef SHARDSHIFT_SWEEP
constexpr int kNumSamples = 10'000;
#else
constexpr int kNumSamples = 500;
#endif

// Beyond twice the files: what any read takes, whatever the file.
constexpr int64_t kFixedBytes = 64 << 10;

// All that a checkpoint says.
struct Content {
  Table table;
  std::vector<std::vector<std::byte>> tensors;

  friend bool operator==(const Content&, const Content&) = default;
};

absl::StatusOr<Content> Load(const std::string& step_dir) {
  const auto reader = Reader::Open(step_dir);
  if (!reader.ok()) return reader.status();
  Content content = {(*reader)->table(), {}};
  for (size_t t = 0; t < content.table.tensors.size(); ++t) {
    const Tensor& tensor = content.table.tensors[t];
    std::vector<std::byte>& bytes = content.tensors.emplace_back(
        NumElements(tensor.shape) * ItemSize(tensor.dtype));
    const absl::Status status = (*reader)->ReadTensor(
        static_cast<int64_t>(t), WholeBox(tensor.shape), bytes.data());
    if (!status.ok()) return status;
  }
  return content;
}

// A checkpoint in memory, to be damaged and healed.
class Patient {
 public:
  static constexpr char kStepDir[] = "/memory/saved";

  explicit Patient(const std::vector<SampleTensor>& tensors, int64_t step = 1,
                   const std::string& state = "{}") {
    const TempDir dir(InMemory());
    EXPECT_OK(WriteSample(dir.path(), step, tensors, false, state));
    const std::string saved = JoinPath(dir.path(), StepName(step));
    const std::vector<std::string> names = ListDirectory(saved).value();
    for (const std::string& name : names) {
      good_[name] = ReadFile(JoinPath(saved, name));
      num_bytes_ += static_cast<int64_t>(good_[name].size());
    }
    Heal();
    const ScopedSystemCalls scope(disk_);
    content_ = ckpt::Load(kStepDir).value();
  }

  const MemoryDisk::Files& good() const { return good_; }
  MemoryDisk& disk() { return disk_; }
  MemoryDisk::Files& files() { return disk_.files(); }
  void Heal() { disk_.files() = good_; }
  int64_t num_bytes() const { return num_bytes_; }
  const Table& table() const { return content_.table; }

  // The fragments that hold a byte of [begin, end) of a file.
  std::vector<const Fragment*> FragmentsAt(const std::string& file,
                                           int64_t begin, int64_t end) const {
    std::vector<const Fragment*> found;
    for (const Fragment& fragment : table().fragments) {
      if (PartFileName(fragment.part) != file) continue;
      for (const Block& block : fragment.blocks) {
        if (block.offset_bytes < end &&
            begin < block.offset_bytes + block.stored_bytes) {
          found.push_back(&fragment);
          break;
        }
      }
    }
    return found;
  }

  std::vector<Fault> Faults() {
    const ScopedSystemCalls scope(disk_);
    std::vector<Fault> faults;
    const auto note = [&](const Fault& fault) { faults.push_back(fault); };
    const auto report = Verify(kStepDir, /*deep=*/true, note);
    if (!report.ok()) {
      faults.push_back(
          {.file = kIndexFileName, .message = report.status().ToString()});
    }
    return faults;
  }

  absl::StatusOr<Content> Load() {
    const ScopedSystemCalls scope(disk_);
    return ckpt::Load(kStepDir);
  }

  // Checks that the damage that was done to `file`, to bytes [begin, end),
  // does no harm unseen.
  void CheckFound(const std::string& file, int64_t begin, int64_t end) {
    const HeapPeak peak;
    const std::vector<Fault> faults = Faults();
    ASSERT_THAT(faults, Not(IsEmpty()));
    std::set<std::string> tensors;
    for (const Fault& fault : faults) {
      ASSERT_EQ(fault.file, file);
      ASSERT_THAT(fault.message, HasSubstr(file));
      tensors.insert(fault.tensor);
      if (fault.tensor.empty()) continue;
      ASSERT_THAT(fault.message, HasSubstr(fault.tensor));
    }
    for (const Fragment* fragment : FragmentsAt(file, begin, end)) {
      ASSERT_THAT(tensors, Contains(table().tensors[fragment->tensor].name));
    }
    const auto loaded = Load();
    if (loaded.ok()) {
      ASSERT_EQ(*loaded, content_);
    } else {
      ASSERT_EQ(loaded.status().code(), absl::StatusCode::kDataLoss);
      ASSERT_THAT(std::string(loaded.status().message()), HasSubstr(file));
    }
    ASSERT_LT(peak.bytes(), 2 * num_bytes_ + kFixedBytes);
  }

  // Flips the lowest `bit` of a byte, checks, and flips it back.
  void CheckFlip(const std::string& file, int64_t offset, int bit) {
    SCOPED_TRACE(absl::StrCat(file, " byte ", offset, " bit ", bit));
    char& byte = files()[file][offset];
    byte = static_cast<char>(byte ^ (1 << bit));
    CheckFound(file, offset, offset + 1);
    byte = static_cast<char>(byte ^ (1 << bit));
  }

 private:
  MemoryDisk::Files good_;
  int64_t num_bytes_ = 0;
  MemoryDisk disk_{kStepDir};
  Content content_;
};

std::vector<SampleTensor> OneScalar() {
  const SampleTensor tensor = {{"t", "r", DType::kU8, {}}, {{0, {{}, {}}}}};
  return {tensor};
}

// Of all dtypes and dims over three parts, one of them of two blocks.
std::vector<SampleTensor> ManyTensors() {
  std::mt19937 random(7);
  std::vector<SampleTensor> tensors = RandomTensors(3, random);
  const Shape shape = {kBlockBytes / 8 + 1000};
  tensors.push_back(
      {{"two.blocks", "m", DType::kF64, shape}, {{1, WholeBox(shape)}}});
  return tensors;
}

// Nothing smaller exists: a part and an index, each a page of user block, of
// HDF5's metadata and of data.
TEST(Corruption, OfAnyBitOfTheSmallestCheckpointIsFound) {
  Patient patient(OneScalar());
  ASSERT_EQ(patient.num_bytes(), 2 * 3 * 4096);
  for (const auto& [file, bytes] : patient.good()) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        patient.CheckFlip(file, static_cast<int64_t>(i), bit);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(Corruption, OfASampleOfTheBitsOfALargerCheckpointIsFound) {
  Patient patient(ManyTensors());
  std::mt19937_64 random(11);
  for (int i = 0; i < kNumSamples; ++i) {
    auto file = patient.good().begin();
    std::advance(file, random() % patient.good().size());
    // Half of them where the metadata and the small fragments are.
    const size_t size = file->second.size();
    const size_t reach = i % 2 == 0 ? size : std::min<size_t>(size, 100'000);
    patient.CheckFlip(file->first, static_cast<int64_t>(random() % reach),
                      static_cast<int>(random() % 8));
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// Ends of pages, of blocks, and one byte to each side.
std::set<int64_t> CutsOf(const Patient& patient, const std::string& file,
                         int64_t num_bytes) {
  std::set<int64_t> borders = {1, num_bytes};
  for (int64_t page = 0; page < num_bytes; page += 4096) {
    // Most of a large payload is alike.
    if (page < 200'000 || num_bytes - page < 20'000) borders.insert(page);
  }
  for (const Fragment* f : patient.FragmentsAt(file, 0, num_bytes)) {
    for (const Block& block : f->blocks) {
      borders.insert(block.offset_bytes);
      borders.insert(block.offset_bytes + block.stored_bytes);
    }
  }
  std::set<int64_t> cuts;
  for (const int64_t border : borders) {
    for (const int64_t cut : {border - 1, border, border + 1}) {
      if (cut >= 0 && cut != num_bytes) cuts.insert(cut);
    }
  }
  return cuts;
}

TEST(Corruption, ByATruncationAnywhereOrByBytesAtTheEndIsFound) {
  Patient patient(ManyTensors());
  for (const auto& [file, bytes] : patient.good()) {
    const auto num_bytes = static_cast<int64_t>(bytes.size());
    for (const int64_t cut : CutsOf(patient, file, num_bytes)) {
      SCOPED_TRACE(absl::StrCat(file, " cut to ", cut));
      patient.files()[file].resize(cut);
      ASSERT_NO_FATAL_FAILURE(patient.CheckFound(file, cut, num_bytes));
      EXPECT_FALSE(patient.Load().ok());
      patient.files()[file] = bytes;
    }
  }
}

// Where a block's bytes are.
struct Place {
  std::string file;
  Block block;
};

std::vector<Place> PlacesOf(const Patient& patient) {
  std::vector<Place> places;
  for (const Fragment& fragment : patient.table().fragments) {
    for (const Block& block : fragment.blocks) {
      places.push_back({PartFileName(fragment.part), block});
    }
  }
  return places;
}

TEST(Corruption, BySwappedBlocksIsFoundInBoth) {
  Patient patient(ManyTensors());
  const std::vector<Place> places = PlacesOf(patient);
  const auto swap = [&](const Place& a, const Place& b) {
    const auto at = [&](const Place& place) {
      return patient.files()[place.file].begin() + place.block.offset_bytes;
    };
    std::swap_ranges(at(a), at(a) + a.block.stored_bytes, at(b));
  };
  int num_swapped = 0;
  for (int64_t i = 0; i + 1 < std::ssize(places); ++i) {
    const Place& a = places[i];
    const auto other =
        std::find_if(places.begin() + i + 1, places.end(), [&](const Place& b) {
          return b.block.stored_bytes == a.block.stored_bytes &&
                 b.block.checksum != a.block.checksum;
        });
    if (other == places.end()) continue;
    ++num_swapped;
    swap(a, *other);
    std::set<std::pair<std::string, int64_t>> found;
    for (const Fault& fault : patient.Faults()) {
      EXPECT_NE(fault.tensor, "");
      found.emplace(fault.file, fault.offset_bytes);
    }
    EXPECT_EQ(found, (std::set<std::pair<std::string, int64_t>>{
                         {a.file, a.block.offset_bytes},
                         {other->file, other->block.offset_bytes}}));
    EXPECT_FALSE(patient.Load().ok());
    swap(a, *other);
  }
  EXPECT_GT(num_swapped, 100);
}

TEST(Corruption, ByBlocksThatWereNeverWrittenIsFound) {
  Patient patient(ManyTensors());
  for (const Place& place : PlacesOf(patient)) {
    const Block& block = place.block;
    std::string& bytes = patient.files()[place.file];
    std::fill_n(bytes.begin() + block.offset_bytes, block.stored_bytes, '\0');
    ASSERT_NO_FATAL_FAILURE(
        patient.CheckFound(place.file, block.offset_bytes,
                           block.offset_bytes + block.stored_bytes));
    bytes = patient.good().at(place.file);
  }
}

TEST(Corruption, OfABlockFailsTheReadsOfThatBlockOnly) {
  Patient patient(SmallTensors());
  const Fragment& scalar = patient.table().fragments[1];
  ASSERT_EQ(patient.table().tensors[scalar.tensor].name, "n");
  patient.files()[PartFileName(0)][scalar.blocks[0].offset_bytes] ^= 1;
  const ScopedSystemCalls scope(patient.disk());
  ASSERT_OK_AND_ASSIGN(const auto reader, Reader::Open(Patient::kStepDir));
  std::vector<std::byte> bytes(6 * 8 * 4);
  EXPECT_THAT(reader->ReadTensor(1, {}, bytes.data()),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("part-00000.h5: tensor \"n\"")));
  EXPECT_OK(reader->ReadTensor(2, WholeBox({6, 8}), bytes.data()));
}

// A checkpoint whose files take each other's place.
class MisplacedFiles : public ::testing::Test {
 protected:
  // Puts the bytes of `file` where `name` is.
  void CheckReplaced(const std::string& name, const std::string& bytes) {
    if (patient_.good().at(name) == bytes) return;
    SCOPED_TRACE(name);
    patient_.files()[name] = bytes;
    ASSERT_NO_FATAL_FAILURE(patient_.CheckFound(name, 0, 0));
    EXPECT_FALSE(patient_.Load().ok());
    patient_.Heal();
  }

  void CheckReplacedByAnyOf(const MemoryDisk::Files& others) {
    for (const auto& [name, good] : patient_.good()) {
      for (const auto& [other, bytes] : others) {
        SCOPED_TRACE(other);
        if (name == kIndexFileName && other == name) continue;
        ASSERT_NO_FATAL_FAILURE(CheckReplaced(name, bytes));
      }
    }
  }

  Patient patient_{SmallTensors()};
};

TEST_F(MisplacedFiles, OfTheSameCheckpointAreFound) {
  CheckReplacedByAnyOf(patient_.good());
}

TEST_F(MisplacedFiles, OfAnotherStepAreFound) {
  const Patient other(SmallTensors(), 2);
  CheckReplacedByAnyOf(other.good());
}

TEST_F(MisplacedFiles, OfAnotherStateAreFound) {
  const Patient other(SmallTensors(), 1, "[]");
  CheckReplacedByAnyOf(other.good());
}

// Same names, shapes, step and state; other values.
TEST_F(MisplacedFiles, OfAnotherRunAreFound) {
  std::vector<SampleTensor> tensors = SmallTensors();
  std::swap(tensors[0].pieces[0].part, tensors[0].pieces[1].part);
  const Patient other(tensors);
  CheckReplacedByAnyOf(other.good());
}

// The index decides; each part is then another's.
TEST_F(MisplacedFiles, UnderTheIndexOfAnotherSaveAreFound) {
  const Patient other(SmallTensors(), 1, "[]");
  patient_.files()[kIndexFileName] = other.good().at(kIndexFileName);
  EXPECT_EQ(patient_.Faults().size(), 2u);
  EXPECT_THAT(patient_.Load(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("part-00000")));
}

TEST_F(MisplacedFiles, ThatAreForeignAreFound) {
  const std::string& part = patient_.good().at(PartFileName(0));
  const std::string hdf5 = part.substr(kUserBlockBytes);
  for (const std::string& bytes :
       {std::string(), std::string(1, 'x'), std::string(50'000, 'x'), hdf5,
        std::string(part.size(), '\0'), hdf5 + part}) {
    for (const auto& [name, good] : patient_.good()) {
      ASSERT_NO_FATAL_FAILURE(CheckReplaced(name, bytes));
    }
  }
}

TEST_F(MisplacedFiles, ThatAreMissingOrRenamedAreFound) {
  for (int part = 0; part < 2; ++part) {
    const std::string name = PartFileName(part);
    for (const char* renamed : {"part-00007.h5", "part-0000.h5", "x"}) {
      patient_.files()[renamed] = patient_.good().at(name);
      patient_.files().erase(name);
      ASSERT_NO_FATAL_FAILURE(patient_.CheckFound(name, 0, 0));
      EXPECT_FALSE(patient_.Load().ok());
      patient_.Heal();
    }
  }
  patient_.files().erase(kIndexFileName);
  EXPECT_THAT(patient_.Load(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(kIndexFileName)));
}

// Nothing names them, so nothing reads them.
TEST_F(MisplacedFiles, ThatTheIndexDoesNotNameAreHarmless) {
  patient_.files()["part-00002.h5"] = patient_.good().at(PartFileName(1));
  EXPECT_THAT(patient_.Faults(), IsEmpty());
  EXPECT_OK(patient_.Load());
}

}  // namespace
}  // namespace shardshift::ckpt
