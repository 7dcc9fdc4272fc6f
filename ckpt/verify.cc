// SPDX-License-Identifier: Apache-2.0
#include "ckpt/verify.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/coding.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/format/table_builder.h"
#include "ckpt/io/file.h"
#include "ckpt/reader.h"
#include "ckpt/run_dir.h"

namespace shardshift::ckpt {
namespace {

// What the table of each part has to be by the index.
std::map<int64_t, Table> TablesOfParts(const Table& index) {
  std::map<int64_t, TableBuilder> builders;
  for (const Fragment& fragment : index.fragments) {
    // The fragments of a checked table agree about their tensor.
    builders[fragment.part]
        .Add(index.tensors[fragment.tensor], fragment)
        .IgnoreError();
  }
  std::map<int64_t, Table> tables;
  for (auto& [part, builder] : builders) tables[part] = builder.Build().first;
  return tables;
}

class Verifier {
 public:
  Verifier(const std::string& step_dir,
           absl::FunctionRef<void(const Fault&)> fn)
      : step_dir_(step_dir), on_fault_(fn) {}

  absl::StatusOr<VerifyReport> Run(bool deep) {
    absl::StatusOr<Table> table = ReadIndexTable(step_dir_);
    if (absl::IsNotFound(table.status())) return table.status();
    if (!table.ok()) {
      Report(kIndexFileName, "", 0, table.status().message());
      return report_;
    }
    CheckIndexFile();
    std::map<int64_t, Table> parts = TablesOfParts(*table);
    for (const Part& part : table->parts) {
      CheckPart(part, parts[part.number], deep);
    }
    return report_;
  }

 private:
  void Report(const std::string& file, const std::string& tensor,
              int64_t offset_bytes, absl::string_view message) {
    ++report_.num_faults;
    on_fault_({file, tensor, offset_bytes, std::string(message)});
  }

  void CheckIndexFile() {
    const absl::Status status =
        CheckMetadata(kIndexFileName, FileRole::kIndex, {});
    if (!status.ok()) Report(kIndexFileName, "", 0, status.message());
  }

  // Checks every byte of a file that is not payload.
  absl::Status CheckMetadata(const std::string& name, FileRole role,
                             const std::vector<ByteRange>& payload) {
    SS_ASSIGN_OR_RETURN(const File file,
                        File::OpenForRead(JoinPath(step_dir_, name)));
    SS_ASSIGN_OR_RETURN(const UserBlock block, ReadUserBlock(file, role));
    SS_ASSIGN_OR_RETURN(const Digest128 digest,
                        ComputeMetadataDigest(file, block, payload));
    report_.bytes_checked += block.file_bytes;
    for (const ByteRange& range : payload) {
      report_.bytes_checked -= range.end - range.begin;
    }
    if (digest == block.metadata_digest) return absl::OkStatus();
    // The table's own checksum narrows the place down.
    SS_RETURN_IF_ERROR(ReadTableBytes(file, block).status());
    return absl::DataLossError(absl::StrCat(
        file.path(), ": digest of all that is not payload is ",
        ToString(digest), ", expected ", ToString(block.metadata_digest)));
  }

  // The part's own table, for comparison with the index's.
  absl::Status CheckPartTable(const Part& part, const Table& expected) {
    SS_ASSIGN_OR_RETURN(const File file, OpenPart(step_dir_, part));
    SS_ASSIGN_OR_RETURN(const UserBlock block,
                        ReadUserBlock(file, FileRole::kPart));
    SS_ASSIGN_OR_RETURN(const std::string bytes, ReadTableBytes(file, block));
    const absl::StatusOr<Table> table =
        DecodePartTable(AsBytes(bytes), part.number, part.file_bytes);
    if (!table.ok()) return Annotate(table.status(), file.path());
    if (*table == expected) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat(file.path(), ": its table differs from the index"));
  }

  void CheckPart(const Part& part, const Table& expected, bool deep) {
    const std::string name = PartFileName(part.number);
    absl::Status status = CheckPartTable(part, expected);
    if (status.ok()) {
      status = CheckMetadata(name, FileRole::kPart, PayloadRanges(expected));
    }
    if (!status.ok()) Report(name, "", 0, status.message());
    if (!deep) return;
    const absl::StatusOr<File> file =
        File::OpenForRead(JoinPath(step_dir_, name));
    if (!file.ok()) return;  // reported above
    for (const Fragment& fragment : expected.fragments) {
      CheckPayload(*file, expected, fragment);
    }
  }

  void CheckPayload(const File& file, const Table& table,
                    const Fragment& fragment) {
    const int64_t size = FragmentBytes(table, fragment);
    block_.resize(std::min(size, kBlockBytes));
    for (size_t b = 0; b < fragment.checksums.size(); ++b) {
      const int64_t begin = static_cast<int64_t>(b) * kBlockBytes;
      const auto bytes = std::span(block_).first(
          static_cast<size_t>(std::min(kBlockBytes, size - begin)));
      const int64_t offset = fragment.offset_bytes + begin;
      absl::Status status = file.ReadAt(offset, bytes);
      if (status.ok() && Checksum64(bytes) != fragment.checksums[b]) {
        status = absl::DataLossError(
            absl::StrCat(file.path(), ": the ", bytes.size(), " bytes at byte ",
                         offset, ": checksum differs"));
      }
      report_.bytes_checked += static_cast<int64_t>(bytes.size());
      if (status.ok()) continue;
      Report(PartFileName(fragment.part), table.tensors[fragment.tensor].name,
             offset,
             absl::StrCat(Describe(table, fragment), ": ", status.message()));
    }
  }

  const std::string& step_dir_;
  absl::FunctionRef<void(const Fault&)> on_fault_;
  VerifyReport report_;
  std::vector<std::byte> block_;
};

}  // namespace

absl::StatusOr<VerifyReport> Verify(
    const std::string& step_dir, bool deep,
    absl::FunctionRef<void(const Fault&)> on_fault) {
  return Verifier(step_dir, on_fault).Run(deep);
}

}  // namespace shardshift::ckpt
