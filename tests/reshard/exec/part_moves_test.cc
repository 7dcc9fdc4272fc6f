// The oracle: one element after another.
// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/part_moves.h"

#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/io/file.h"
#include "reshard/layout/content.h"
#include "reshard/layout/rank_state.h"
#include "reshard/layout/write_assignment.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

constexpr int64_t kFloatBytes = 4;

// By element of every table tensor of a checkpoint.
using ByElement = std::vector<std::vector<int64_t>>;

void Fill(const ckpt::Shape& shape, const ckpt::Box& box, int64_t value,
          std::vector<int64_t>& elements) {
  elements.resize(ckpt::NumElements(shape), -1);
  for (const int64_t i : ElementsOf(ckpt::WholeBox(shape), box)) {
    elements.at(i) = value;
  }
}

// The fragment that holds each element.
ByElement FragmentsOf(const ckpt::Reader& reader) {
  const ckpt::Table& table = reader.table();
  ByElement held(table.tensors.size());
  for (size_t f = 0; f < table.fragments.size(); ++f) {
    const ckpt::Fragment& fragment = table.fragments[f];
    Fill(table.tensors[fragment.tensor].shape, fragment.box,
         static_cast<int64_t>(f), held[fragment.tensor]);
  }
  return held;
}

struct Case {
  explicit Case(uint32_t seed) : random(seed) {
    model = RandomMixture(random);
    from = RandomWideLayout(model, random);
    to = RandomWideLayout(model, random);
    tensors = LogicalTensors(model);
    EXPECT_OK(WriteSynth(ckpt::JoinPath(directory.path(), "run"), model, from));
    reader = ckpt::Reader::Open(StepOf(ckpt::JoinPath(directory.path(), "run")))
                 .value();
  }
  int64_t TensorOf(int64_t logical, int64_t role) const {
    return reader->FindTensor(tensors[logical].name, kOptimizerRoles[role])
        .value();
  }

  const ckpt::TempDir directory;
  std::mt19937 random;
  ModelConfig model;
  Layout from;
  Layout to;
  std::vector<LogicalTensor> tensors;
  std::unique_ptr<ckpt::Reader> reader;
};

TEST(VisitMoves, CountsEveryByteOnceBetweenItsParts) {
  using Bytes = std::map<std::pair<int64_t, int64_t>, int64_t>;
  for (uint32_t seed = 0; seed < 12; ++seed) {
    const Case c(seed);
    SCOPED_TRACE(
        absl::StrCat(seed, ": ", ToString(c.from), " to ", ToString(c.to)));
    const ByElement fragments = FragmentsOf(*c.reader);
    ByElement writers(fragments.size());
    const auto items = AssignWriters(c.model, c.to);
    for (size_t rank = 0; rank < items.size(); ++rank) {
      for (const WriteItem& item : items[rank]) {
        Fill(c.tensors[item.tensor].shape, item.box, static_cast<int64_t>(rank),
             writers[c.TensorOf(item.tensor, item.role)]);
      }
    }
    Bytes expected;
    for (size_t t = 0; t < fragments.size(); ++t) {
      for (size_t i = 0; i < fragments[t].size(); ++i) {
        const int64_t part =
            c.reader->table().fragments.at(fragments[t][i]).part;
        expected[{part, writers.at(t).at(i)}] += kFloatBytes;
      }
    }
    ASSERT_OK_AND_ASSIGN(const CopyPlan plan,
                         PlanCopy(*c.reader, c.model, c.to, {}));
    Bytes found;
    EXPECT_OK(VisitMoves(*c.reader, plan, [&found](const PartMove& move) {
      found[{move.source_part, move.target_part}] += move.bytes;
    }));
    EXPECT_EQ(found, expected);
  }
}

TEST(TotalsOfLoad, CountsWhatTheElementsOfARankLieIn) {
  for (uint32_t seed = 100; seed < 108; ++seed) {
    const Case c(seed);
    SCOPED_TRACE(
        absl::StrCat(seed, ": ", ToString(c.from), " to ", ToString(c.to)));
    const ByElement fragments = FragmentsOf(*c.reader);
    for (int64_t rank = 0; rank < c.to.world_size(); ++rank) {
      std::vector<Piece> pieces;
      for (const LocalBuffer& buffer :
           MakeRankState(c.model, c.to, rank).buffers) {
        pieces.insert(pieces.end(), buffer.pieces.begin(), buffer.pieces.end());
      }
      std::set<int64_t> touched;
      std::set<int64_t> parts;
      int64_t bytes = 0;
      for (const Piece& piece : pieces) {
        const ckpt::Box whole = ckpt::WholeBox(c.tensors[piece.tensor].shape);
        for (const int64_t element : ElementsOf(whole, piece.box)) {
          for (int64_t role = 0; role < 3; ++role) {
            const int64_t fragment =
                fragments.at(c.TensorOf(piece.tensor, role)).at(element);
            touched.insert(fragment);
            parts.insert(c.reader->table().fragments.at(fragment).part);
            bytes += kFloatBytes;
          }
        }
      }
      ASSERT_OK_AND_ASSIGN(const ReadTotals totals,
                           TotalsOfLoad(*c.reader, c.tensors, pieces));
      EXPECT_EQ(totals.fragments, std::ssize(touched)) << rank;
      EXPECT_EQ(totals.parts, std::vector<int64_t>(parts.begin(), parts.end()));
      EXPECT_EQ(totals.bytes, bytes) << rank;
    }
  }
}

}  // namespace
}  // namespace shardshift::reshard
