// A save over an existing checkpoint is stopped at every operation, in every
// way a disk has. The old or the new checkpoint opens whole, every time, and
// the next save works. Bug kinds B86, B100, B101, B105.
// SPDX-License-Identifier: Apache-2.0
#include <sys/mount.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "ckpt/io/aligned_buffer.h"
#include "ckpt/io/file.h"
#include "ckpt/reader.h"
#include "ckpt/run_dir.h"
#include "tests/ckpt/sample.h"
#include "tests/testutil/faulty_disk.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using Loss = FaultyDisk::Loss;

#ifdef SHARDSHIFT_SWEEP
constexpr uint64_t kNumSeeds = 20;
#else
constexpr uint64_t kNumSeeds = 1;
#endif
constexpr char kOld[] = "old";
constexpr char kNew[] = "new";

// Tensors whose names, and so whose bytes, tell the save; one is large enough
// to be written past the page cache.
std::vector<SampleTensor> TensorsOf(const std::string& save) {
  std::vector<SampleTensor> tensors = SmallTensors();
  const Shape shape = {200, 250};
  tensors.push_back(
      {{"large", "master", DType::kF32, shape}, {{1, WholeBox(shape)}}});
  for (SampleTensor& tensor : tensors) tensor.info.name += "." + save;
  return tensors;
}

absl::Status Save(const std::string& run_dir, int64_t step,
                  const std::string& save) {
  return WriteSample(run_dir, step, TensorsOf(save), /*replace=*/true,
                     absl::StrCat("\"", save, "\""));
}

// What a step directory holds if it is whole to the last byte: "old" or "new".
std::string SaveIn(const std::string& step_dir) {
  const auto reader = Reader::Open(step_dir);
  if (!reader.ok()) return std::string(reader.status().message());
  const std::string save((*reader)->state(), 1, 3);
  const absl::Status status = CheckSample(step_dir, TensorsOf(save));
  return status.ok() ? save : std::string(status.message());
}

// The number of leftovers of saves in a run directory.
int64_t NumPartials(const std::string& run_dir) {
  const std::vector<std::string> names = ListDirectory(run_dir).value();
  return std::count_if(names.begin(), names.end(), [](const std::string& name) {
    return absl::EndsWith(name, ".partial");
  });
}

// A run directory that holds the old step 1; the save that is to be stopped
// makes `step`.
class Victim {
 public:
  explicit Victim(int64_t step) : step_(step), disk_(dir_.path()) {
    const ScopedSystemCalls scope(disk_);
    EXPECT_OK(ckpt::Save(run_dir(), 1, kOld));
    disk_.LoseUnsyncedData(Loss::kAll, 0);
    first_operation_ = disk_.num_operations();
  }

  // The operation `n` of the save to come.
  int64_t Operation(int64_t n) const { return first_operation_ + n; }
  FaultyDisk& disk() { return disk_; }

  absl::Status Save() {
    const ScopedSystemCalls scope(disk_);
    return ckpt::Save(run_dir(), step_, kNew);
  }

  // REQUIRES: of a Save that gave `status`.
  void CheckOldOrNewIsWhole(const absl::Status& status) const {
    const auto resolved = ResolveCheckpoint(run_dir());
    ASSERT_OK(resolved.status());
    EXPECT_EQ(resolved->note, "");
    const std::string save = SaveIn(resolved->step_dir);
    EXPECT_THAT(save, AnyOf(kOld, kNew));
    EXPECT_EQ(resolved->step, save == kOld ? 1 : step_);
    if (status.ok()) {
      EXPECT_EQ(save, kNew);
    }
    if (step_ != 1) {
      EXPECT_EQ(SaveIn(StepDir(1)), kOld);
    }
    const std::string latest = ReadFile(JoinPath(run_dir(), "latest"));
    EXPECT_OK(Reader::Open(
        JoinPath(run_dir(), std::string(absl::StripSuffix(latest, "\n")))));
  }

  void CheckNextSaveWorks() {
    ASSERT_OK(Save());
    EXPECT_EQ(SaveIn(StepDir(step_)), kNew);
    EXPECT_EQ(NumPartials(run_dir()), 0);
  }

 private:
  std::string run_dir() const { return JoinPath(dir_.path(), "run"); }
  std::string StepDir(int64_t step) const {
    return JoinPath(run_dir(), StepName(step));
  }

  TempDir dir_{InMemory()};
  int64_t step_;
  FaultyDisk disk_;
  int64_t first_operation_ = 0;
};

// One way to stop a save: `arm` sets the fault at an operation, `after` is what
// happens when the save has returned.
struct Way {
  const char* name;
  std::function<void(FaultyDisk& disk, int64_t operation)> arm;
  std::function<void(FaultyDisk& disk)> after;
};

void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

void Nothing(FaultyDisk&) {}
void Repair(FaultyDisk& disk) { disk.FailAt(kNever, 0); }
void LosePower(FaultyDisk& disk) { disk.LoseUnsyncedData(Loss::kAll, 0); }

std::vector<Way> Ways() {
  const auto crash = [](FaultyDisk& disk, int64_t n) { disk.CrashAt(n); };
  std::vector<Way> ways = {{"Killed", crash, Repair},
                           {"PowerLost", crash, LosePower}};
  for (uint64_t seed = 1; seed <= kNumSeeds; ++seed) {
    ways.push_back({"SomeSectorsLost", crash, [seed](FaultyDisk& disk) {
                      disk.LoseUnsyncedData(Loss::kSome, seed);
                    }});
  }
  const auto fail = [](FaultyDisk& disk, int64_t n) { disk.FailAt(n, EIO); };
  ways.push_back({"Failed", fail, Nothing});
  ways.push_back({"FailedThenPowerLost", fail, LosePower});
  ways.push_back({"ShortenedThenFailed",
                  [](FaultyDisk& disk, int64_t n) { disk.ShortenAt(n, EIO); },
                  Nothing});
  const auto fill = [](FaultyDisk& disk, int64_t n) { disk.FillAt(n); };
  ways.push_back({"Full", fill, Repair});
  ways.push_back({"FullThenPowerLost", fill, LosePower});
  return ways;
}

class Crash : public ::testing::TestWithParam<Way> {};

// `step` 2 beside the old one, or 1 in its place.
void Sweep(const Way& way, int64_t step) {
  for (int64_t n = 0;; ++n) {
    SCOPED_TRACE(absl::StrCat(way.name, " at operation ", n));
    Victim victim(step);
    way.arm(victim.disk(), victim.Operation(n));
    const absl::Status status = victim.Save();
    if (!victim.disk().has_struck()) {
      EXPECT_OK(status);
      EXPECT_GT(n, 50);
      ::testing::Test::RecordProperty("operations", static_cast<int>(n));
      return;
    }
    way.after(victim.disk());
    ASSERT_NO_FATAL_FAILURE(victim.CheckOldOrNewIsWhole(status));
    ASSERT_NO_FATAL_FAILURE(victim.CheckNextSaveWorks());
    if (::testing::Test::HasNonfatalFailure()) return;
  }
}

TEST_P(Crash, AtAnyOperationOfASaveOfANewStepLeavesTheOldOrTheNewOne) {
  Sweep(GetParam(), 2);
}

TEST_P(Crash, AtAnyOperationOfAReplacementLeavesTheOldOrTheNewOne) {
  Sweep(GetParam(), 1);
}

INSTANTIATE_TEST_SUITE_P(Ways, Crash, ::testing::ValuesIn(Ways()),
                         [](const auto& way) {
                           return absl::StrCat(way.param.name, way.index);
                         });

TEST(ShortTransfer, AtAnyOperationIsContinued) {
  for (int64_t n = 0;; ++n) {
    Victim victim(1);
    victim.disk().ShortenAt(victim.Operation(n), 0);
    ASSERT_OK(victim.Save()) << "operation " << n;
    victim.CheckOldOrNewIsWhole(absl::OkStatus());
    if (!victim.disk().has_struck()) break;
  }
}

// A tmpfs of its own whose size can be set.
class SmallDisk {
 public:
  SmallDisk() : is_mounted_(Mount(0, 64 << 20) == 0), error_(errno) {}
  ~SmallDisk() {
    if (is_mounted_) ::umount(path().c_str());
  }
  bool is_mounted() const { return is_mounted_; }
  int error() const { return error_; }
  const std::string& path() const { return dir_.path(); }
  int64_t free_bytes() const { return FreeBytes(path()).value(); }
  void Resize(int64_t num_bytes) { ASSERT_EQ(Mount(MS_REMOUNT, num_bytes), 0); }

 private:
  int Mount(unsigned long flags, int64_t num_bytes) {
    return ::mount("none", path().c_str(), "tmpfs", flags,
                   absl::StrCat("size=", num_bytes).c_str());
  }

  TempDir dir_;
  bool is_mounted_;
  int error_;
};

TEST(FullDisk, OfAnySizeFailsTheSaveAndKeepsTheOldCheckpoint) {
  SmallDisk disk;
  if (!disk.is_mounted()) {
    GTEST_SKIP() << "cannot mount a tmpfs: "
                 << std::generic_category().message(disk.error());
  }
  constexpr int64_t kLarge = 64 << 20;
  const std::string run_dir = JoinPath(disk.path(), "run");
  int64_t num_full = 0;
  for (absl::Status status = absl::DataLossError(""); !status.ok();) {
    disk.Resize(kLarge);
    ASSERT_OK(RemoveTree(run_dir));
    ASSERT_OK(Save(run_dir, 1, kOld));
    const int64_t used_bytes = kLarge - disk.free_bytes();
    disk.Resize(used_bytes + num_full * kDirectBlockBytes);
    status = Save(run_dir, 2, kNew);
    EXPECT_EQ(SaveIn(JoinPath(run_dir, StepName(1))), kOld);
    ASSERT_OK_AND_ASSIGN(const ResolvedCheckpoint newest,
                         ResolveCheckpoint(run_dir));
    EXPECT_EQ(SaveIn(newest.step_dir), newest.step == 1 ? kOld : kNew);
    if (status.ok()) {
      EXPECT_EQ(newest.step, 2);
      continue;
    }
    ++num_full;
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted,
                                 HasSubstr("No space left")));
    disk.Resize(kLarge);
    ASSERT_OK(Save(run_dir, 2, kNew));
    EXPECT_EQ(NumPartials(run_dir), 0);
  }
  EXPECT_GT(num_full, 20);
}

}  // namespace
}  // namespace shardshift::ckpt
