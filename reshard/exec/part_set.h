// The parts that CopyFiles writes. Each is opened before it is wanted: libhdf5
// takes milliseconds to lay one out, and a stage of the pipeline has many.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_EXEC_PART_SET_H_
#define SHARDSHIFT_RESHARD_EXEC_PART_SET_H_

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckpt/block_sink.h"
#include "ckpt/part_receipt.h"
#include "reshard/exec/copy_files.h"

namespace shardshift::reshard {

class PartSet {
 public:
  // `order`: every part once, as they will be asked for. What is given outlives
  // the set.
  PartSet(const std::vector<TargetPart>& parts, std::vector<int64_t> order,
          OpenSink open);
  ~PartSet();
  PartSet(const PartSet&) = delete;
  PartSet& operator=(const PartSet&) = delete;

  // The writer of a part, until it is closed; waits for it. Parts are asked for
  // in order, each as often as wanted. One thread.
  // Errors: as `open`, of this part or one before it.
  absl::StatusOr<ckpt::BlockSink*> Open(int64_t part);

  // Once for each part, after all its blocks; on any thread.
  absl::Status Close(int64_t part);

  // In the order of the parts. REQUIRES: all are closed.
  std::vector<ckpt::PartReceipt> TakeReceipts();

 private:
  void OpenAll();

  const std::vector<TargetPart>& parts_;
  const std::vector<int64_t> order_;
  const OpenSink open_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<std::unique_ptr<ckpt::BlockSink>> writers_;   // by part
  std::vector<std::optional<ckpt::PartReceipt>> receipts_;  // by part
  int64_t num_opened_ = 0;                                  // of order_
  int64_t num_wanted_ = 0;                                  // of order_
  bool is_stopped_ = false;
  absl::Status status_;  // of opening
  std::thread opener_;
};

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_EXEC_PART_SET_H_
