// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/part_set.h"

#include <utility>

#include "ckpt/core/status_macros.h"
#include "ckpt/writer.h"

namespace shardshift::reshard {
namespace {

// As many as the ranks of a small stage: the next is ready when this one ends.
constexpr int64_t kPartsAhead = 8;

}  // namespace

OpenSink PartsOfOurs(std::string directory, ckpt::CheckpointId id,
                     ckpt::Codec codec) {
  return [directory = std::move(directory), id = std::move(id),
          codec](const TargetPart& part)
             -> absl::StatusOr<std::unique_ptr<ckpt::BlockSink>> {
    return ckpt::PartWriter::Create(directory, part.number, id, part.specs,
                                    codec);
  };
}

PartSet::PartSet(const std::vector<TargetPart>& parts,
                 std::vector<int64_t> order, OpenSink open)
    : parts_(parts),
      order_(std::move(order)),
      open_(std::move(open)),
      writers_(parts.size()),
      receipts_(parts.size()),
      opener_([this] { OpenAll(); }) {}

PartSet::~PartSet() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    changed_.notify_all();
  }
  opener_.join();
}

void PartSet::OpenAll() {
  std::unique_lock lock(mutex_);
  for (const int64_t part : order_) {
    changed_.wait(lock, [this] {
      return is_stopped_ || num_opened_ < num_wanted_ + kPartsAhead;
    });
    if (is_stopped_) return;
    lock.unlock();
    absl::StatusOr<std::unique_ptr<ckpt::BlockSink>> writer =
        open_(parts_[part]);
    lock.lock();
    status_ = writer.status();
    if (writer.ok()) {
      writers_[part] = *std::move(writer);
      ++num_opened_;
    }
    changed_.notify_all();
    if (!status_.ok()) return;
  }
}

absl::StatusOr<ckpt::BlockSink*> PartSet::Open(int64_t part) {
  std::unique_lock lock(mutex_);
  if (num_wanted_ < std::ssize(order_) && order_[num_wanted_] == part) {
    ++num_wanted_;
    changed_.notify_all();
  }
  changed_.wait(lock,
                [&] { return writers_[part] != nullptr || !status_.ok(); });
  if (writers_[part] == nullptr) return status_;
  return writers_[part].get();
}

absl::Status PartSet::Close(int64_t part) {
  std::unique_lock lock(mutex_);
  ckpt::BlockSink& writer = *writers_[part];
  lock.unlock();
  SS_ASSIGN_OR_RETURN(ckpt::PartReceipt receipt, writer.Close());
  lock.lock();
  receipts_[part] = std::move(receipt);
  writers_[part].reset();
  return absl::OkStatus();
}

std::vector<ckpt::PartReceipt> PartSet::TakeReceipts() {
  const std::lock_guard lock(mutex_);
  std::vector<ckpt::PartReceipt> receipts;
  receipts.reserve(receipts_.size());
  for (std::optional<ckpt::PartReceipt>& receipt : receipts_) {
    receipts.push_back(*std::move(receipt));
  }
  return receipts;
}

}  // namespace shardshift::reshard
