// State moved between ranks that are threads, from any layout to any other.
// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/memory_to_memory.h"

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "reshard/exec/synth.h"
#include "reshard/layout/content.h"
#include "reshard/layout/model_map.h"
#include "tests/reshard/oracle.h"
#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"
#include "trainer/comm/thread_communicator.h"
#include "trainer/comm_transport.h"

namespace shardshift::reshard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kRoles = kOptimizerRoles.size();

// The flat buffers of a rank under every role; NaN where nothing was put.
class RankMemory {
 public:
  // Empty for a rank that the layout does not have, or a layout that cannot be.
  RankMemory(const ModelConfig& model, const Layout& layout, int64_t rank)
      : model_(model) {
    if (!Validate(model, layout).ok() || rank >= layout.world_size()) return;
    state_ = MakeRankState(model, layout, rank);
    for (const LocalBuffer& buffer : state_.buffers) {
      values_.emplace_back();
      for (auto& role : values_.back()) {
        role.resize(buffer.buffer.num_elements, NAN);
      }
    }
  }

  float* At(int64_t buffer, const Piece& piece, int64_t role) {
    return values_.at(buffer)[role].data() + piece.offset;
  }

  // Calls visit(element, value it should have; NaN for what nobody owns).
  void ForEach(const std::function<void(float&, float)>& visit) {
    const std::vector<LogicalTensor> tensors = LogicalTensors(model_);
    for (size_t b = 0; b < values_.size(); ++b) {
      std::vector<Label> labels(state_.buffers[b].buffer.num_elements);
      PlacePieces(model_, state_.buffers[b].pieces, labels);
      for (size_t role = 0; role < kRoles; ++role) {
        for (size_t i = 0; i < labels.size(); ++i) {
          visit(values_[b][role][i],
                labels[i].is_padding()
                    ? NAN
                    : SynthValue(tensors[labels[i].tensor].name,
                                 kOptimizerRoles[role], labels[i].index));
        }
      }
    }
  }

  void Fill() {
    ForEach([](float& value, float right) { value = right; });
  }

  int64_t CountWrong() {
    int64_t wrong = 0;
    ForEach([&wrong](float& value, float right) {
      if (std::isnan(right) ? !std::isnan(value) : value != right) ++wrong;
    });
    return wrong;
  }

  int64_t CountWritten() {
    int64_t written = 0;
    ForEach([&written](float& value, float /*right*/) {
      if (!std::isnan(value)) ++written;
    });
    return written;
  }

 private:
  const ModelConfig& model_;
  RankState state_;
  std::vector<std::array<std::vector<float>, kRoles>> values_;  // by buffer
};

struct Outcome {
  absl::Status status;
  std::vector<int64_t> wrong;    // by rank
  std::vector<int64_t> written;  // elements of target memory
};

// `spoil(rank, memory)` may change what a rank holds before.
Outcome MoveAll(
    const ModelConfig& model, const Layout& from, const Layout& to, int world,
    const MemoryToMemoryOptions& options,
    const std::function<void(int64_t, RankMemory&)>& spoil =
        [](int64_t, RankMemory&) {}) {
  Outcome outcome;
  outcome.wrong.resize(world);
  outcome.written.resize(world);
  outcome.status =
      trainer::RunRanks(world, {}, [&](trainer::Communicator& comm) {
        RankMemory before(model, from, comm.rank());
        RankMemory after(model, to, comm.rank());
        before.Fill();
        spoil(comm.rank(), before);
        trainer::CommTransport transport(comm);
        const auto source = [&before](int64_t buffer, const Piece& piece,
                                      int64_t role) -> const float* {
          return before.At(buffer, piece, role);
        };
        const auto target = [&after](int64_t buffer, const Piece& piece,
                                     int64_t role) {
          return after.At(buffer, piece, role);
        };
        absl::Status status =
            MemoryToMemory(model, from, to, transport, source, target, options);
        outcome.wrong[comm.rank()] = after.CountWrong();
        outcome.written[comm.rank()] = after.CountWritten();
        return status;
      });
  return outcome;
}

int WorldOf(const Layout& from, const Layout& to) {
  return static_cast<int>(std::max(from.world_size(), to.world_size()));
}

TEST(MemoryToMemory, PutsEveryValueInItsPlaceFromAnyLayoutIntoAnyOther) {
  for (uint32_t seed = 900; seed < 930; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const ModelConfig model =
        seed % 2 == 0 ? RandomMixture(random) : RandomModel(random);
    const Layout from = RandomWideLayout(model, random);
    const Layout to = RandomWideLayout(model, random);
    const int idle = static_cast<int>(Uniform(random, 0, 2));
    const MemoryToMemoryOptions options = {
        .round_bytes = Uniform(random, 0, 1) == 0 ? 12 * 40 : 1 << 20,
        .compare_replicas = Uniform(random, 0, 1) == 0};
    const Outcome outcome =
        MoveAll(model, from, to, WorldOf(from, to) + idle, options);
    EXPECT_OK(outcome.status);
    EXPECT_THAT(outcome.wrong, ::testing::Each(0))
        << ToString(from) << " -> " << ToString(to);
  }
}

TEST(MemoryToMemory, GrowsAndShrinksTheWorld) {
  const Layout small = {};
  const Layout large = {.tensor = 2,
                        .pipeline = 2,
                        .data = 2,
                        .distributed_optimizer = true,
                        .expert = 4,
                        .expert_tensor = 1};
  for (const auto& [from, to] : {std::pair(small, large), {large, small}}) {
    const Outcome outcome = MoveAll(MixtureModel(), from, to, 8, {});
    EXPECT_OK(outcome.status);
    EXPECT_THAT(outcome.wrong, ::testing::Each(0));
  }
}

// B09 and B18: replicas that differ are not averaged, nor does one win.
TEST(MemoryToMemory, B09RefusesReplicasThatDifferBeforeItWritesAnything) {
  const ModelConfig model = GptModel();
  const Piece piece = {.tensor = TensorNamed(model, "final_norm.bias"),
                       .box = {{0}, {16}}};
  const auto spoil = [&](float by) {
    return [&model, &piece, by](int64_t rank, RankMemory& memory) {
      if (rank != 2) return;
      const LocalBuffer state =
          MakeRankState(model, {.data = 3}, rank).buffers[0];
      for (const Piece& held : state.pieces) {
        if (held.tensor != piece.tensor) continue;
        memory.At(0, held, 1)[5] = 0.5F + by;
        memory.At(0, held, 1)[6] += 0.125F;
      }
    };
  };
  for (const auto& [by, says] :
       {std::pair(1e6F, "by 1e+06"),
        {std::numeric_limits<float>::quiet_NaN(), "by inf"}}) {
    const Outcome outcome = MoveAll(model, {.data = 3}, {.tensor = 2}, 3,
                                    {.compare_replicas = true}, spoil(by));
    EXPECT_THAT(
        outcome.status,
        StatusIs(absl::StatusCode::kDataLoss,
                 AllOf(HasSubstr("\"final_norm.bias\" (exp_avg)"),
                       HasSubstr("ranks 1 and 2"), HasSubstr("[0:16]"),
                       HasSubstr("of 16 elements 2 differ, most of all [5]"),
                       HasSubstr(says))));
    EXPECT_THAT(outcome.written, ::testing::Each(0));
  }
  const Outcome unchecked =
      MoveAll(model, {.data = 3}, {.tensor = 2}, 3, {}, spoil(1));
  EXPECT_OK(unchecked.status);
}

TEST(MemoryToMemory, TellsZerosOfEitherSignApartAndEqualNansNot) {
  const ModelConfig model = GptModel();
  const auto spoil = [&](float rank0, float rank1) {
    return [rank0, rank1](int64_t rank, RankMemory& memory) {
      memory.At(0, {}, 0)[0] = rank == 0 ? rank0 : rank1;
    };
  };
  const auto move = [&](float rank0, float rank1) {
    return MoveAll(model, {.data = 2}, {}, 2, {.compare_replicas = true},
                   spoil(rank0, rank1))
        .status;
  };
  EXPECT_THAT(move(0.0F, -0.0F),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("by 0")));
  EXPECT_OK(move(NAN, NAN));
}

TEST(MemoryToMemory, RefusesWhatCannotBe) {
  const ModelConfig model = GptModel();
  EXPECT_THAT(MoveAll(model, {}, {.tensor = 3}, 3, {}).status,
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("3")));
  EXPECT_THAT(MoveAll(model, {}, {.tensor = 4}, 2, {}).status,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("needs 4 ranks, there are 2")));
  EXPECT_THAT(MoveAll(model, {}, {}, 1, {.round_bytes = 11}).status,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("rounds of 11 bytes")));
}

}  // namespace
}  // namespace shardshift::reshard
