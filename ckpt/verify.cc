// SPDX-License-Identifier: Apache-2.0
#include "ckpt/verify.h"

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ckpt/block_io.h"
#include "ckpt/core/coding.h"
#include "ckpt/core/fingerprint.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/format/table_builder.h"
#include "ckpt/io/aligned_buffer.h"
#include "ckpt/io/file.h"
#include "ckpt/io/worker_pool.h"
#include "ckpt/payload_block.h"
#include "ckpt/reader.h"
#include "ckpt/run_dir.h"

namespace shardshift::ckpt {
namespace {

// What the table of each part has to be by the index.
std::map<int64_t, Table> TablesOfParts(const Table& index) {
  std::map<int64_t, TableBuilder> builders;
  for (Fragment fragment : index.fragments) {
    const Tensor& tensor = index.tensors[fragment.tensor];
    TableBuilder& builder = builders[std::exchange(fragment.part, 0)];
    // The fragments of a checked table agree about their tensor.
    builder.Add(tensor, std::move(fragment)).IgnoreError();
  }
  std::map<int64_t, Table> tables;
  for (auto& [part, builder] : builders) {
    Table& table = tables[part] = builder.Build().first;
    table.step = index.step;
    table.state = index.state;
  }
  return tables;
}

// Of the part files: all that is to be checked.
int64_t BytesOfParts(const Table& index, bool deep) {
  int64_t num_bytes = 0;
  for (const Part& part : index.parts) num_bytes += part.file_bytes;
  if (deep) return num_bytes;
  for (const Fragment& fragment : index.fragments) {
    for (const Block& block : fragment.blocks) num_bytes -= block.stored_bytes;
  }
  return num_bytes;
}

class Verifier {
 public:
  Verifier(const std::string& step_dir, bool deep,
           absl::FunctionRef<void(const Fault&)> on_fault,
           absl::FunctionRef<void(int64_t done, int64_t total)> progress)
      : step_dir_(step_dir),
        deep_(deep),
        on_fault_(on_fault),
        progress_(progress) {}

  absl::StatusOr<VerifyReport> Run() {
    absl::StatusOr<Table> table = ReadIndexTable(step_dir_);
    if (absl::IsNotFound(table.status())) return table.status();
    if (!table.ok()) {
      ReportFile(kIndexFileName, table.status());
      return report_;
    }
    SS_ASSIGN_OR_RETURN(const File index,
                        File::OpenForRead(JoinPath(step_dir_, kIndexFileName)));
    SS_ASSIGN_OR_RETURN(total_bytes_, index.Size());
    total_bytes_ += BytesOfParts(*table, deep_);
    CheckIndexFile();
    std::map<int64_t, Table> parts = TablesOfParts(*table);
    for (const Part& part : table->parts) CheckPart(part, parts[part.number]);
    return report_;
  }

 private:
  void Report(const Fault& fault) {
    ++report_.num_faults;
    on_fault_(fault);
  }

  void ReportFile(const std::string& file, const absl::Status& status) {
    Report({.file = file, .message = std::string(status.message())});
  }

  void ReportPayload(const std::string& file, const Table& table,
                     const Fragment& fragment, int64_t offset_bytes,
                     absl::string_view message) {
    const Tensor& tensor = table.tensors[fragment.tensor];
    Report({file, tensor.name, tensor.role, ToString(fragment.box),
            offset_bytes, std::string(message)});
  }

  // Thread-safe.
  void AddChecked(int64_t num_bytes) {
    const std::lock_guard lock(mutex_);
    report_.bytes_checked += num_bytes;
    progress_(report_.bytes_checked, total_bytes_);
  }

  void CheckIndexFile() {
    const absl::Status status =
        CheckMetadata(kIndexFileName, FileRole::kIndex, {});
    if (!status.ok()) ReportFile(kIndexFileName, status);
  }

  // Checks every byte of a file that is not payload.
  absl::Status CheckMetadata(const std::string& name, FileRole role,
                             const std::vector<ByteRange>& payload) {
    SS_ASSIGN_OR_RETURN(const File file,
                        File::OpenForRead(JoinPath(step_dir_, name)));
    SS_ASSIGN_OR_RETURN(const UserBlock block, ReadUserBlock(file, role));
    int64_t num_bytes = block.file_bytes;
    for (const ByteRange& range : payload) {
      num_bytes -= range.end - range.begin;
    }
    absl::Status status = CheckMetadataDigest(file, block, payload);
    AddChecked(num_bytes);
    if (status.ok()) return status;
    // The table's own checksum narrows the place down.
    SS_RETURN_IF_ERROR(ReadTableBytes(file, block).status());
    return status;
  }

  // The part's own table, for comparison with the index's.
  absl::Status CheckPartTable(const Part& part, const Table& expected) {
    SS_ASSIGN_OR_RETURN(const File file, OpenPart(step_dir_, part));
    SS_ASSIGN_OR_RETURN(const UserBlock block,
                        ReadUserBlock(file, FileRole::kPart));
    SS_ASSIGN_OR_RETURN(const auto bytes, ReadTableBytes(file, block));
    const absl::StatusOr<Table> table = DecodePartTable(bytes, part.file_bytes);
    if (!table.ok()) return Annotate(table.status(), file.path());
    if (*table == expected) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat(file.path(), ": its table differs from the index"));
  }

  void CheckPart(const Part& part, const Table& expected) {
    const std::string name = PartFileName(part.number);
    absl::Status status = CheckPartTable(part, expected);
    if (status.ok()) {
      status = CheckMetadata(name, FileRole::kPart, PayloadRanges(expected));
    }
    if (!status.ok()) ReportFile(name, status);
    if (!deep_) return;
    const absl::StatusOr<File> file =
        File::OpenForRead(JoinPath(step_dir_, name), PageCache::kBypass);
    if (!file.ok()) return;  // reported above
    CheckPayload(name, *file, expected);
  }

  void CheckPayload(const std::string& name, const File& file,
                    const Table& table) {
    std::vector<PayloadBlock> blocks = BlocksOf(table);
    const auto check = [&](int64_t b) {
      PayloadBlock& block = blocks[b];
      block.Check(file, table);
      AddChecked(
          table.fragments[block.fragment].blocks[block.block].stored_bytes);
      return absl::OkStatus();
    };
    WorkerPool::Default()
        .Run(static_cast<int64_t>(blocks.size()), check)
        .IgnoreError();
    std::vector<Fingerprint> sums(table.fragments.size());
    std::vector<bool> is_damaged(table.fragments.size());
    for (const PayloadBlock& block : blocks) {
      const Fragment& fragment = table.fragments[block.fragment];
      sums[block.fragment] += block.fingerprint;
      if (block.status.ok()) continue;
      is_damaged[block.fragment] = true;
      ReportPayload(name, table, fragment,
                    fragment.blocks[block.block].offset_bytes,
                    block.status.message());
    }
    for (size_t f = 0; f < table.fragments.size(); ++f) {
      const Fragment& fragment = table.fragments[f];
      if (is_damaged[f] || sums[f] == fragment.fingerprint) continue;
      const int64_t offset_bytes =
          fragment.blocks.empty() ? 0 : fragment.blocks.front().offset_bytes;
      ReportPayload(
          name, table, fragment, offset_bytes,
          absl::StrCat(file.path(), ": ", Describe(table, fragment),
                       ", from byte ", offset_bytes,
                       " of the file: fingerprint ", ToString(sums[f]),
                       ", expected ", ToString(fragment.fingerprint)));
    }
  }

  const std::string& step_dir_;
  const bool deep_;
  absl::FunctionRef<void(const Fault&)> on_fault_;
  absl::FunctionRef<void(int64_t done, int64_t total)> progress_;
  int64_t total_bytes_ = 0;
  std::mutex mutex_;
  VerifyReport report_;  // its bytes_checked is guarded by mutex_
};

}  // namespace

absl::StatusOr<VerifyReport> Verify(
    const std::string& step_dir, bool deep,
    absl::FunctionRef<void(const Fault&)> on_fault,
    absl::FunctionRef<void(int64_t done, int64_t total)> progress) {
  return Verifier(step_dir, deep, on_fault, progress).Run();
}

}  // namespace shardshift::ckpt
