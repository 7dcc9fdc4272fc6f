// Random pairs of layouts of random models.
// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <random>
#include <string>

#include "ckpt/io/file.h"
#include "ckpt/reader.h"
#include "reshard/exec/reshard.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

class Pair {
 public:
  explicit Pair(uint32_t seed) : random_(seed), model_(RandomModel(random_)) {}

  const ModelConfig& model() const { return model_; }
  Layout NextLayout() { return RandomLayout(model_, random_); }
  std::string Path(const std::string& name) const {
    return ckpt::JoinPath(directory_.path(), name);
  }

  // Reshards run directory `from` into `to`, which must come out with its
  // proof and with the bytes that a trainer on `layout` writes.
  void Reshard(const std::string& from, const std::string& to,
               const Layout& layout) {
    ASSERT_OK_AND_ASSIGN(const auto source,
                         ckpt::Reader::Open(StepOf(Path(from))));
    const int64_t memory_bytes = Uniform(random_, 64, 1024) << 10;
    ASSERT_OK_AND_ASSIGN(const ReshardReport report,
                         ReshardCheckpoint(*source, Path(to), layout,
                                           {.memory_bytes = memory_bytes}));
    EXPECT_OK(report.proof);
    const std::string direct = to + "-direct";
    ASSERT_OK(WriteSynth(Path(direct), model_, layout));
    EXPECT_TRUE(Snapshot(Path(to)) == Snapshot(Path(direct)))
        << to << ": " << ToString(report.from) << " -> " << ToString(layout);
  }

 private:
  std::mt19937 random_;
  const ModelConfig model_;
  const ckpt::TempDir directory_;
};

TEST(RandomPairs, GiveTheBytesOfTheTargetLayoutByAnyWay) {
  for (uint32_t seed = 1000; seed < 1000 + SHARDSHIFT_PAIRS; ++seed) {
    SCOPED_TRACE(seed);
    Pair pair(seed);
    const Layout a = pair.NextLayout();
    const Layout b = pair.NextLayout();
    const Layout c = pair.NextLayout();
    ASSERT_OK(WriteSynth(pair.Path("a"), pair.model(), a));
    pair.Reshard("a", "b", b);
    pair.Reshard("b", "back", a);
    pair.Reshard("b", "by-b", c);
    pair.Reshard("a", "c", c);
    EXPECT_TRUE(Snapshot(pair.Path("back")) == Snapshot(pair.Path("a")));
    EXPECT_TRUE(Snapshot(pair.Path("by-b")) == Snapshot(pair.Path("c")));
  }
}

}  // namespace
}  // namespace shardshift::reshard
