// SPDX-License-Identifier: Apache-2.0
#include "trainer/async_save.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/time/clock.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/core/streaming_copy.h"
#include "trainer/comm/thread_communicator.h"

namespace shardshift::trainer {
namespace {

enum class Progress : uint8_t { kWriting, kEnded, kFailed };

}  // namespace

absl::StatusOr<std::unique_ptr<AsyncSave>> AsyncSave::Create(
    const Checkpointing& checkpointing) {
  int64_t num_bytes = 0;
  for (const auto image : checkpointing.images()) {
    num_bytes += ckpt::RoundUpToDirectBlock(std::ssize(image));
  }
  SS_ASSIGN_OR_RETURN(ckpt::AlignedBuffer memory,
                      ckpt::AlignedBuffer::Allocate(num_bytes));
  // A page costs several copies of it when it is first written to.
  std::ranges::fill(memory.bytes(), std::byte{0});
  return std::unique_ptr<AsyncSave>(
      new AsyncSave(checkpointing, std::move(memory)));
}

AsyncSave::AsyncSave(const Checkpointing& checkpointing,
                     ckpt::AlignedBuffer memory)
    : checkpointing_(checkpointing), memory_(std::move(memory)) {
  int64_t offset_bytes = 0;
  for (const auto image : checkpointing_.images()) {
    room_.push_back(memory_.bytes().subspan(offset_bytes, image.size()));
    copies_.push_back(room_.back());
    // Copies from a direct block on are written as they lie.
    offset_bytes += ckpt::RoundUpToDirectBlock(std::ssize(image));
  }
}

void AsyncSave::Begin(SaveRequest request) {
  const absl::Time begin = absl::Now();
  const Checkpointing::Images images = checkpointing_.images();
  for (size_t i = 0; i < images.size(); ++i) {
    ckpt::StreamingCopy(images[i], room_[i]);
  }
  report_.step = request.id.step;
  failed_ = false;
  writing_ = std::async(std::launch::async,
                        [this, begin, request = std::move(request)] {
                          return Write(request, begin);
                        });
  report_.stall = absl::Now() - begin;
}

absl::Status AsyncSave::Write(const SaveRequest& request, absl::Time begin) {
  absl::Status status = CatchExceptions([&] {
    return checkpointing_.Save(request, copies_, [this] { failed_ = true; });
  });
  if (!status.ok()) failed_ = true;
  report_.elapsed = absl::Now() - begin;
  return status;
}

absl::StatusOr<bool> AsyncSave::HasEnded(Communicator& world) const {
  const bool is_ready =
      writing_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  const Progress mine = failed_    ? Progress::kFailed
                        : is_ready ? Progress::kEnded
                                   : Progress::kWriting;
  std::vector<Progress> all(world.size());
  SS_RETURN_IF_ERROR(world.AllGather(std::as_bytes(std::span(&mine, 1)),
                                     std::as_writable_bytes(std::span(all))));
  return std::ranges::count(all, Progress::kWriting) == 0 ||
         std::ranges::count(all, Progress::kFailed) > 0;
}

absl::StatusOr<AsyncSave::Report> AsyncSave::Finish() {
  SS_RETURN_IF_ERROR(writing_.get());
  return report_;
}

}  // namespace shardshift::trainer
