// SPDX-License-Identifier: Apache-2.0
#include "tools/tensor_diff.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/worker_pool.h"

namespace shardshift {
namespace {

using ckpt::DType;

// Large enough that a block of payload is seldom fetched twice.
constexpr int64_t kChunkBytes = int64_t{32} << 20;
// What one task compares.
constexpr int64_t kTaskElements = int64_t{1} << 18;

enum class Kind { kUnsigned, kSigned, kFloat };

Kind KindOf(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8:
    case DType::kU16:
    case DType::kU32:
    case DType::kU64:
    case DType::kF8E8M0:  // has no sign
      return Kind::kUnsigned;
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
    case DType::kI64:
      return Kind::kSigned;
    default:
      return Kind::kFloat;
  }
}

// The place of a value among all of its dtype, in ascending order; only
// differences of places mean anything.
uint64_t PlaceOf(DType dtype, const std::byte* element) {
  const int64_t item_size = ckpt::ItemSize(dtype);
  uint64_t bits = 0;
  std::memcpy(&bits, element, static_cast<size_t>(item_size));
  const uint64_t sign = uint64_t{1} << (8 * item_size - 1);
  constexpr uint64_t kMiddle = uint64_t{1} << 63;
  switch (KindOf(dtype)) {
    case Kind::kUnsigned:
      return bits;
    case Kind::kSigned:
      return kMiddle + (bits ^ sign) - sign;
    case Kind::kFloat:
      return bits < sign ? kMiddle + bits : kMiddle - (bits - sign);
  }
  return bits;
}

// Widens `found` by an element whose bits differ.
void AddElement(DType dtype, const std::byte* a, const std::byte* b,
                TensorDifference& found) {
  const DType component = ckpt::ComponentDType(dtype);
  bool has_nan = false;
  for (int64_t i = 0; i < ckpt::ItemSize(dtype);
       i += ckpt::ItemSize(component)) {
    const double in_a = ckpt::ToDouble(component, a + i);
    const double in_b = ckpt::ToDouble(component, b + i);
    if (std::isnan(in_a) || std::isnan(in_b)) {
      has_nan = true;
      continue;
    }
    const uint64_t ulp = UlpDistance(component, a + i, b + i);
    if (ulp == 0) continue;  // and no infinity less itself
    found.max_ulp = std::max(found.max_ulp, ulp);
    // Whole numbers beyond 2^53 are not exact in a double.
    const bool is_float =
        KindOf(component) == Kind::kFloat || component == DType::kF8E8M0;
    found.max_abs =
        std::max(found.max_abs,
                 is_float ? std::abs(in_a - in_b) : static_cast<double>(ulp));
  }
  if (has_nan) ++found.num_nan;
}

// Adds what was found from element `offset` on to what was found before it.
void Append(const TensorDifference& next, int64_t offset,
            TensorDifference& found) {
  if (next.num_differing == 0) return;
  if (found.num_differing == 0) found.first = offset + next.first;
  found.num_differing += next.num_differing;
  found.num_nan += next.num_nan;
  found.max_abs = std::max(found.max_abs, next.max_abs);
  found.max_ulp = std::max(found.max_ulp, next.max_ulp);
}

// DiffElements on all threads.
TensorDifference DiffInParallel(DType dtype, std::span<const std::byte> a,
                                std::span<const std::byte> b) {
  const auto task_bytes =
      static_cast<size_t>(kTaskElements * ckpt::ItemSize(dtype));
  std::vector<TensorDifference> pieces((a.size() + task_bytes - 1) /
                                       task_bytes);
  ckpt::WorkerPool::Default()
      .Run(static_cast<int64_t>(pieces.size()),
           [&](int64_t i) {
             const size_t begin = static_cast<size_t>(i) * task_bytes;
             const size_t size = std::min(task_bytes, a.size() - begin);
             pieces[i] = DiffElements(dtype, a.subspan(begin, size),
                                      b.subspan(begin, size));
             return absl::OkStatus();
           })
      .IgnoreError();
  TensorDifference found;
  for (size_t i = 0; i < pieces.size(); ++i) {
    Append(pieces[i], static_cast<int64_t>(i) * kTaskElements, found);
  }
  return found;
}

}  // namespace

uint64_t UlpDistance(DType dtype, const std::byte* a, const std::byte* b) {
  const uint64_t in_a = PlaceOf(dtype, a);
  const uint64_t in_b = PlaceOf(dtype, b);
  return std::max(in_a, in_b) - std::min(in_a, in_b);
}

TensorDifference DiffElements(DType dtype, std::span<const std::byte> a,
                              std::span<const std::byte> b) {
  TensorDifference found;
  if (std::memcmp(a.data(), b.data(), a.size()) == 0) return found;
  const auto item_size = static_cast<size_t>(ckpt::ItemSize(dtype));
  for (size_t i = 0; i < a.size(); i += item_size) {
    if (std::memcmp(&a[i], &b[i], item_size) == 0) continue;
    if (found.num_differing++ == 0) {
      found.first = static_cast<int64_t>(i / item_size);
    }
    AddElement(dtype, &a[i], &b[i], found);
  }
  return found;
}

absl::StatusOr<TensorDifference> DiffTensor(
    const ckpt::Reader& a, int64_t tensor_a, const ckpt::Reader& b,
    int64_t tensor_b, absl::FunctionRef<void(int64_t num_bytes)> on_bytes) {
  const ckpt::Tensor& info = a.table().tensors[tensor_a];
  const int64_t item_size = ckpt::ItemSize(info.dtype);
  TensorDifference found;
  int64_t offset = 0;
  std::vector<std::byte> in_a;
  std::vector<std::byte> in_b;
  for (const ckpt::Box& chunk : ckpt::SplitRowMajor(ckpt::WholeBox(info.shape),
                                                    kChunkBytes / item_size)) {
    in_a.resize(ckpt::NumElements(chunk) * item_size);
    in_b.resize(in_a.size());
    SS_RETURN_IF_ERROR(a.ReadTensor(tensor_a, chunk, in_a.data()));
    SS_RETURN_IF_ERROR(b.ReadTensor(tensor_b, chunk, in_b.data()));
    Append(DiffInParallel(info.dtype, in_a, in_b), offset, found);
    offset += ckpt::NumElements(chunk);
    on_bytes(2 * static_cast<int64_t>(in_a.size()));
  }
  return found;
}

ckpt::Shape IndexAt(const ckpt::Shape& shape, int64_t position) {
  ckpt::Shape index(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    index[d] = position % shape[d];
    position /= shape[d];
  }
  return index;
}

}  // namespace shardshift
