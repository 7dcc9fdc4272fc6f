// In 16-bit precision all that is multiplied is of 16 bits, as units that
// multiply such numbers would need it.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "tests/testutil/status_matchers.h"
#include "tests/trainer/logical_state.h"
#include "tests/trainer/tiny_model.h"
#include "trainer/comm/thread_communicator.h"

namespace shardshift::trainer {
namespace {

const kernels::Kernels& Plain() {
  return kernels::KernelsFor(kernels::Isa::kScalar);
}

// What the products of a run were.
struct Seen {
  std::mutex mutex;
  int64_t products = 0;
  std::set<std::string> wide;  // those with an operand of more bits
};
Seen* seen = nullptr;
Precision precision_under_test = Precision::kBf16;
int64_t num_experts_under_test = 0;

bool IsNarrow(const kernels::StridedMatrix& matrix, int64_t rows,
              int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const float value =
          matrix.data[r * matrix.row_stride + c * matrix.col_stride];
      float rounded = value;
      RoundTo(precision_under_test, Plain(), &rounded, 1);
      if (value != rounded) return false;
    }
  }
  return true;
}

// The logits of routers and gates, and their gradients, are fp32.
bool IsOfRouter(const kernels::GemmArgs& args) {
  for (const int64_t extent : {args.m, args.n, args.k}) {
    if (extent == num_experts_under_test || extent == 1) return true;
  }
  return false;
}

void WatchedGemm(const kernels::GemmArgs& args) {
  Plain().gemm(args);
  if (IsOfRouter(args)) return;
  const bool is_narrow =
      IsNarrow(args.a, args.m, args.k) && IsNarrow(args.b, args.k, args.n);
  const std::lock_guard lock(seen->mutex);
  ++seen->products;
  if (!is_narrow) {
    seen->wide.insert(absl::StrCat(args.m, "x", args.k, "x", args.n));
  }
}

// Two steps, the second of which starts from weights that AdamW has changed.
absl::Status Train(const RunConfig& config, const reshard::Layout& layout,
                   const kernels::Kernels& kernels) {
  const ActivationOptions options = {.sequence_parallel = layout.tensor > 1,
                                     .precision = precision_under_test};
  const LogicalValues weights = RandomWeights(config.model);
  return RunRanks(
      static_cast<int>(layout.world_size()), {},
      [&](Communicator& world) -> absl::Status {
        SS_ASSIGN_OR_RETURN(const std::unique_ptr<Mesh> mesh,
                            Mesh::Create(world, config.model, layout));
        RankModel model(kernels, *mesh, config, options);
        SS_RETURN_IF_ERROR(SetState(weights, config, model, 0));
        for (int64_t step = 1; step <= 2; ++step) {
          const Batch batch = MockBatch(config, step * 16);
          SS_RETURN_IF_ERROR(
              model.Step(ShareOf(batch, *mesh), 1e-3, step).status());
        }
        return absl::OkStatus();
      });
}

class PrecisionTest
    : public ::testing::TestWithParam<std::tuple<size_t, Precision>> {};

std::vector<TinyFamily> Families() {
  std::vector<TinyFamily> families = TinyFamilies();
  families.push_back({"Mixtral", TinyMixtral()});
  families.push_back({"QwenMoe", TinyQwenMoe()});
  return families;
}

TEST_P(PrecisionTest, AllOperandsOfProductsAreOf16Bits) {
  const auto& [index, precision] = GetParam();
  RunConfig config = Families()[index].config;
  config.hidden_dropout = config.attention_dropout = 0.1;
  precision_under_test = precision;
  num_experts_under_test = config.model.num_experts;
  kernels::Kernels watched = Plain();
  watched.gemm = WatchedGemm;
  Seen products;
  seen = &products;
  // Of one precision on one rank, of the other on several.
  ASSERT_OK(Train(config,
                  precision == Precision::kFp16
                      ? reshard::Layout{}
                      : reshard::Layout{.tensor = 4,
                                        .pipeline = 2,
                                        .distributed_optimizer = true},
                  watched));
  EXPECT_GT(products.products, 100);
  EXPECT_EQ(products.wide, std::set<std::string>());
}

INSTANTIATE_TEST_SUITE_P(
    Families, PrecisionTest,
    ::testing::Combine(::testing::Range<size_t>(0, Families().size()),
                       ::testing::Values(Precision::kBf16, Precision::kFp16)),
    [](const auto& test) {
      return absl::StrCat(Families()[std::get<0>(test.param)].name,
                          Name(std::get<1>(test.param)));
    });

}  // namespace
}  // namespace shardshift::trainer
