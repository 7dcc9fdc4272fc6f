// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/synth.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/index_alone.h"
#include "ckpt/io/aligned_buffer.h"
#include "ckpt/io/file.h"
#include "ckpt/io/worker_pool.h"
#include "ckpt/writer.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/exec/executors.h"
#include "reshard/layout/content.h"
#include "reshard/layout/write_assignment.h"

namespace shardshift::reshard {
namespace {

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

void FillBox(const ValueSequence& values, const ckpt::Shape& shape,
             const ckpt::Box& box, float* image) {
  const int64_t row = box.extent.empty() ? 1 : box.extent.back();
  for (int64_t at = 0; at < ckpt::NumElements(box); at += row) {
    const int64_t index = ckpt::RowMajorIndex(shape, box, at);
    for (int64_t i = 0; i < row; ++i) *image++ = values.At(index + i);
  }
}

// A block of item `item` of a part.
struct PartBlock {
  int64_t item = 0;
  int64_t block = 0;
};

constexpr int64_t kItemsPerBlock = ckpt::kBlockBytes / int64_t{sizeof(float)};

absl::Status WriteBlock(const LogicalTensor& tensor, const WriteItem& item,
                        const PartBlock& at, ckpt::PartWriter& writer) {
  SS_ASSIGN_OR_RETURN(ckpt::StagingBuffer buffer, ckpt::StagingBuffer::Take());
  auto* image = reinterpret_cast<float*>(buffer.bytes().data());
  const ValueSequence values(tensor.name, kOptimizerRoles[item.role]);
  const int64_t begin = at.block * kItemsPerBlock;
  const int64_t end =
      std::min(begin + kItemsPerBlock, ckpt::NumElements(item.box));
  for (const ckpt::Box& box : ckpt::RowMajorRange(item.box, begin, end)) {
    FillBox(values, tensor.shape, box, image);
    image += ckpt::NumElements(box);
  }
  return writer.WriteBlock(
      at.item, at.block,
      buffer.bytes().first((end - begin) * int64_t{sizeof(float)}));
}

absl::StatusOr<ckpt::PartReceipt> WritePart(
    const std::string& step_dir, int64_t part, const ckpt::CheckpointId& id,
    const std::vector<LogicalTensor>& tensors,
    const std::vector<WriteItem>& items, ckpt::Codec codec) {
  SS_ASSIGN_OR_RETURN(
      const std::unique_ptr<ckpt::PartWriter> writer,
      ckpt::PartWriter::Create(step_dir, part, id,
                               FragmentSpecs(tensors, items), codec));
  std::vector<PartBlock> blocks;
  for (int64_t i = 0; i < std::ssize(items); ++i) {
    const int64_t num_bytes =
        ckpt::NumElements(items[i].box) * int64_t{sizeof(float)};
    for (int64_t b = 0; b < ckpt::NumBlocks(num_bytes); ++b) {
      blocks.push_back({i, b});
    }
  }
  SS_RETURN_IF_ERROR(
      ckpt::WorkerPool::Default().Run(std::ssize(blocks), [&](int64_t i) {
        const WriteItem& item = items[blocks[i].item];
        return WriteBlock(tensors[item.tensor], item, blocks[i], *writer);
      }));
  return writer->Close();
}

using MakePart = absl::FunctionRef<absl::StatusOr<ckpt::PartReceipt>(
    const std::string& step_dir, int64_t part,
    const std::vector<WriteItem>& items)>;
using Commit =
    absl::FunctionRef<absl::Status(const std::vector<ckpt::PartReceipt>&)>;

// A run directory whose parts are made, and committed, as told.
absl::Status WriteRun(const std::string& run_dir, int64_t step,
                      const ModelConfig& model, const Layout& layout,
                      MakePart make_part, Commit commit) {
  SS_RETURN_IF_ERROR(Validate(model, layout));
  SS_ASSIGN_OR_RETURN(const bool taken, ckpt::Exists(run_dir));
  if (taken) {
    return absl::AlreadyExistsError(
        absl::StrCat(run_dir, " exists; remove it or name another"));
  }
  absl::Cleanup remove_unfinished = [&run_dir] {
    ckpt::RemoveTree(run_dir).IgnoreError();
  };
  SS_ASSIGN_OR_RETURN(const std::string step_dir,
                      ckpt::BeginCheckpoint(run_dir, step));
  std::vector<ckpt::PartReceipt> receipts;
  const std::vector<std::vector<WriteItem>> parts =
      AssignWriters(model, layout);
  for (size_t part = 0; part < parts.size(); ++part) {
    if (parts[part].empty()) continue;
    SS_ASSIGN_OR_RETURN(
        receipts.emplace_back(),
        make_part(step_dir, static_cast<int64_t>(part), parts[part]));
  }
  SS_RETURN_IF_ERROR(commit(receipts));
  std::move(remove_unfinished).Cancel();
  return absl::OkStatus();
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
  const std::vector<LogicalTensor> tensors = LogicalTensors(model);
  const ckpt::CheckpointId id = {step, StateText(state)};
  return WriteRun(
      run_dir, step, model, layout,
      [&](const std::string& step_dir, int64_t part,
          const std::vector<WriteItem>& items) {
        return WritePart(step_dir, part, id, tensors, items, codec);
      },
      [&](const std::vector<ckpt::PartReceipt>& receipts) {
        return ckpt::CommitCheckpoint(run_dir, id, receipts, StateText(record),
                                      /*replace_existing=*/false);
      });
}

absl::Status WriteSynthIndex(const std::string& run_dir, int64_t step,
                             const ModelConfig& model, const Layout& layout,
                             const nlohmann::json& state,
                             const nlohmann::json& record) {
  const std::vector<LogicalTensor> tensors = LogicalTensors(model);
  const ckpt::CheckpointId id = {step, StateText(state)};
  return WriteRun(
      run_dir, step, model, layout,
      [&](const std::string& /*step_dir*/, int64_t part,
          const std::vector<WriteItem>& items) {
        return ckpt::ReceiptWithoutPart(part, id,
                                        FragmentSpecs(tensors, items));
      },
      [&](const std::vector<ckpt::PartReceipt>& receipts) {
        return ckpt::CommitIndexAlone(run_dir, id, receipts, StateText(record));
      });
}

}  // namespace shardshift::reshard
