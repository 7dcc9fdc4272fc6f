// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/synth.h"

#include <cmath>
#include <span>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "ckpt/io/worker_pool.h"
#include "ckpt/writer.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/exec/executors.h"
#include "reshard/layout/write_assignment.h"

namespace shardshift::reshard {
namespace {

constexpr int64_t kSlabBytes = int64_t{32} << 20;

// The finaliser of splitmix64.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// A key for the values of one tensor under one role.
class ValueSequence {
 public:
  ValueSequence(absl::string_view tensor, absl::string_view role)
      : squares_(role == "exp_avg_sq") {
    for (const char c : absl::StrCat(tensor, "/", role)) {
      key_ = Mix(key_ ^ static_cast<unsigned char>(c));
    }
  }

  float At(int64_t index) const {
    const auto bits =
        static_cast<int32_t>(Mix(key_ + static_cast<uint64_t>(index)) >> 40);
    const float value = std::ldexp(static_cast<float>(bits), -23) - 1.0F;
    return squares_ ? std::fabs(value) : value;
  }

 private:
  uint64_t key_ = 0;
  bool squares_;
};

// Row-major indices, in `shape`, of the first element of each innermost row.
void FillBox(const ValueSequence& values, const ckpt::Shape& shape,
             const ckpt::Box& box, float* image) {
  const int64_t row = box.extent.empty() ? 1 : box.extent.back();
  const int64_t rows = row == 0 ? 0 : ckpt::NumElements(box) / row;
  for (int64_t r = 0; r < rows; ++r) {
    int64_t rest = r;
    int64_t index = box.extent.empty() ? 0 : box.start.back();
    int64_t stride = shape.empty() ? 1 : shape.back();
    for (size_t dim = shape.empty() ? 0 : shape.size() - 1; dim-- > 0;) {
      index += (box.start[dim] + rest % box.extent[dim]) * stride;
      rest /= box.extent[dim];
      stride *= shape[dim];
    }
    for (int64_t i = 0; i < row; ++i) *image++ = values.At(index + i);
  }
}

}  // namespace

float SynthValue(absl::string_view tensor, absl::string_view role,
                 int64_t index) {
  return ValueSequence(tensor, role).At(index);
}

absl::Status WriteSynthCheckpoint(const std::string& run_dir, int64_t step,
                                  const ModelConfig& model,
                                  const Layout& layout,
                                  const nlohmann::json& state,
                                  const nlohmann::json& record,
                                  ckpt::Codec codec) {
  SS_RETURN_IF_ERROR(Validate(model, layout));
  SS_ASSIGN_OR_RETURN(const bool taken, ckpt::Exists(run_dir));
  if (taken) {
    return absl::AlreadyExistsError(
        absl::StrCat(run_dir, " exists; remove it or name another"));
  }
  const std::vector<LogicalTensor> tensors = LogicalTensors(model);
  absl::Cleanup remove_unfinished = [&run_dir] {
    ckpt::RemoveTree(run_dir).IgnoreError();
  };
  SS_ASSIGN_OR_RETURN(const std::string step_dir,
                      ckpt::BeginCheckpoint(run_dir, step));
  const auto fill = [&](std::span<const ItemPiece> pieces) {
    return ckpt::WorkerPool::Default().Run(
        static_cast<int64_t>(pieces.size()), [&](int64_t i) {
          const ItemPiece& piece = pieces[i];
          const LogicalTensor& tensor = tensors[piece.item->tensor];
          FillBox(ValueSequence(tensor.name, kOptimizerRoles[piece.item->role]),
                  tensor.shape, piece.box, piece.image);
          return absl::OkStatus();
        });
  };
  const ckpt::CheckpointId id = {step, StateText(state)};
  SS_ASSIGN_OR_RETURN(
      const std::vector<ckpt::PartReceipt> receipts,
      WriteParts(step_dir, id, tensors, AssignWriters(model, layout),
                 kSlabBytes, codec, fill));
  SS_RETURN_IF_ERROR(ckpt::CommitCheckpoint(run_dir, id, receipts,
                                            StateText(record),
                                            /*replace_existing=*/false));
  std::move(remove_unfinished).Cancel();
  return absl::OkStatus();
}

}  // namespace shardshift::reshard
