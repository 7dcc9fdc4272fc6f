// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/megatron_state_adder.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/box.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "reshard/formats/flat_buckets.h"

namespace shardshift::reshard {
namespace {

// Of zeros that are kept in memory, unless a single row has more.
constexpr int64_t kBandBytes = int64_t{1} << 16;

}  // namespace

absl::StatusOr<int64_t> StateAdder::AddFile(const std::string& path) {
  SS_ASSIGN_OR_RETURN(const ckpt::File file, ckpt::File::OpenForRead(path));
  SS_ASSIGN_OR_RETURN(const int64_t num_bytes, file.Size());
  return builder_.AddFile(path, num_bytes);
}

absl::StatusOr<std::vector<PickleValue>> StateAdder::OptimizersIn(
    const PickleValue& root, const std::string& path) const {
  if (!source_.args->layout.separates_experts()) return std::vector{root};
  SS_ASSIGN_OR_RETURN(std::vector<PickleValue> optimizers, root.AsList());
  if (optimizers.size() == 2) return optimizers;
  return absl::DataLossError(
      absl::StrCat(path, ": has ", optimizers.size(),
                   " optimizers, expected those of the dense parameters and of "
                   "the experts"));
}

absl::Status StateAdder::AddParameter(const Parameter& parameter,
                                      const char* role, ckpt::DType dtype,
                                      int64_t file, int64_t offset_bytes) {
  // The copy of an embedding is the embedding of another rank.
  if (parameter.is_copy) return absl::OkStatus();
  for (const Piece& piece : parameter.pieces) {
    const LogicalTensor& tensor = (*source_.tensors)[piece.tensor];
    const int64_t place = offset_bytes + piece.offset * ckpt::ItemSize(dtype);
    SS_RETURN_IF_ERROR(builder_.Add({tensor.name, role, dtype, tensor.shape},
                                    piece.box, {file, place, 0}));
  }
  return absl::OkStatus();
}

absl::Status StateAdder::AddZeros(const Parameter& parameter,
                                  const char* role) {
  if (parameter.is_copy) return absl::OkStatus();
  constexpr ckpt::DType kDType = ckpt::DType::kF32;
  for (const Piece& piece : parameter.pieces) {
    const LogicalTensor& tensor = (*source_.tensors)[piece.tensor];
    const int64_t rows = piece.box.extent.front();
    const int64_t row_bytes =
        ckpt::NumElements(piece.box) / rows * ckpt::ItemSize(kDType);
    // All bands are the same bytes.
    const int64_t band_rows =
        std::min(rows, std::max<int64_t>(kBandBytes / row_bytes, 1));
    const int64_t file = builder_.AddContents(
        absl::StrCat("zeros for ", tensor.name),
        std::vector<std::byte>(static_cast<size_t>(band_rows * row_bytes)));
    for (int64_t row = 0; row < rows; row += band_rows) {
      ckpt::Box band = piece.box;
      band.start.front() += row;
      band.extent.front() = std::min(band_rows, rows - row);
      SS_RETURN_IF_ERROR(builder_.Add({tensor.name, role, kDType, tensor.shape},
                                      std::move(band), {file, 0, 0}));
    }
  }
  return absl::OkStatus();
}

absl::Status StateAdder::AddFlat(const Parameter& parameter, int64_t begin,
                                 const SourceTensor& flat, const char* role) {
  return AddFlatParameter(parameter, begin, flat, role, *source_.tensors,
                          builder_);
}

}  // namespace shardshift::reshard
