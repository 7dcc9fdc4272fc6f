// Files for torch.load, and the values of what is read from them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TESTS_RESHARD_FORMATS_GENERIC_SAMPLE_H_
#define SHARDSHIFT_TESTS_RESHARD_FORMATS_GENERIC_SAMPLE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "reshard/formats/open_source.h"
#include "reshard/formats/torch_writer.h"

namespace shardshift::reshard {

using Floats = std::vector<float>;

// first, first + 1, ...
Floats Count(float first, int64_t n);

// As --generic does.
absl::StatusOr<OpenedSource> OpenGeneric(const std::string& path);

// What every tensor holds, by key.
std::map<std::string, std::string> BytesOf(const OpenedSource& source);
std::map<std::string, Floats> FloatsOf(const OpenedSource& source);

// The values and tensors of a file for torch.load.
class TorchText {
 public:
  PyValue Flat(const Floats& values);
  PyValue Shaped(const Floats& values, const ckpt::Shape& shape);
  void Write(const std::string& path, const PyValue& root) const;

 private:
  TorchFileBuilder builder_;
  std::vector<std::string> storages_;
};

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_TESTS_RESHARD_FORMATS_GENERIC_SAMPLE_H_
