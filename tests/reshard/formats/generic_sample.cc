// SPDX-License-Identifier: Apache-2.0
#include "tests/reshard/formats/generic_sample.h"

#include <cstddef>
#include <cstring>
#include <utility>

#include "ckpt/reader.h"
#include "reshard/formats/generic.h"
#include "tests/ckpt/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {

Floats Count(float first, int64_t n) {
  Floats values;
  values.reserve(n);
  for (int64_t i = 0; i < n; ++i) values.push_back(first + float(i));
  return values;
}

absl::StatusOr<OpenedSource> OpenGeneric(const std::string& path) {
  OpenOptions options;
  options.foreign.generic = true;
  return OpenSource(path, options);
}

std::map<std::string, std::string> BytesOf(const OpenedSource& source) {
  std::map<std::string, std::string> all;
  const auto& tensors = source.reader->table().tensors;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const ckpt::Tensor& tensor = tensors[i];
    std::string bytes(
        ckpt::NumElements(tensor.shape) * ckpt::ItemSize(tensor.dtype), '\0');
    EXPECT_OK(source.reader->ReadTensor(
        static_cast<int64_t>(i), ckpt::WholeBox(tensor.shape),
        reinterpret_cast<std::byte*>(bytes.data())));
    all[KeyOfName({tensor.name, tensor.role})] = std::move(bytes);
  }
  return all;
}

std::map<std::string, Floats> FloatsOf(const OpenedSource& source) {
  std::map<std::string, Floats> all;
  for (const auto& [key, bytes] : BytesOf(source)) {
    Floats values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    all[key] = std::move(values);
  }
  return all;
}

PyValue TorchText::Flat(const Floats& values) {
  return Shaped(values, {static_cast<int64_t>(values.size())});
}

PyValue TorchText::Shaped(const Floats& values, const ckpt::Shape& shape) {
  storages_.emplace_back(reinterpret_cast<const char*>(values.data()),
                         values.size() * sizeof(float));
  return builder_.Tensor(
      builder_.AddStorage(ckpt::DType::kF32, std::ssize(values)), shape);
}

void TorchText::Write(const std::string& path, const PyValue& root) const {
  ckpt::WriteFile(path, builder_.Layout(root).Bytes(storages_));
}

}  // namespace shardshift::reshard
