// A run directory that grows under another name until it is whole.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_EXEC_PARTIAL_RUN_H_
#define SHARDSHIFT_RESHARD_EXEC_PARTIAL_RUN_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckpt/io/file.h"
#include "ckpt/reader.h"

namespace shardshift::reshard {

// DST.partial, locked, with a mark that says who makes it. Removed at the end
// of the object's life unless it was published. It comes and goes by a rename,
// from and to a name that bears the mark itself, so that an interrupt leaves
// none without.
class PartialRun {
 public:
  // Makes it anew; a leftover with our mark is replaced.
  // Errors: AlreadyExists if there is anything at `destination`, or a
  // DST.partial without our mark; InvalidArgument for the name of a
  // checkpoint, or a place inside `source`; FailedPrecondition if another
  // process writes it.
  static absl::StatusOr<PartialRun> Create(const ckpt::Reader& source,
                                           const std::string& destination);
  ~PartialRun();
  PartialRun(PartialRun&& other) noexcept;
  PartialRun& operator=(PartialRun&&) = delete;

  const std::string& path() const { return path_; }
  bool replaced_leftover() const { return replaced_leftover_; }

  // Gives it its name, durably. Errors: AlreadyExists if that is taken now.
  absl::Status Publish();

 private:
  PartialRun(std::string destination, std::string path, ckpt::File lock,
             bool replaced_leftover);

  std::string destination_;
  std::string path_;  // empty once it is published, or moved from
  ckpt::File lock_;
  bool replaced_leftover_;
};

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_EXEC_PARTIAL_RUN_H_
