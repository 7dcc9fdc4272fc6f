// The folders in data/, made by make_data.py.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TESTS_RESHARD_FORMATS_SAMPLE_H_
#define SHARDSHIFT_TESTS_RESHARD_FORMATS_SAMPLE_H_

#include <string>
#include <vector>

namespace shardshift::reshard {

// Models with config.json, config.old.json and expected.json, and other forms
// of the same weights.
const std::vector<std::string>& Models();
const std::vector<std::string>& Variants();

std::string DataPath(const std::string& name);
std::string ReadData(const std::string& name);

// u64 N, the JSON text, `num_bytes` zeros.
std::string SafetensorsBytes(const std::string& text, size_t num_bytes = 0);

// Copies a folder of data/ to `directory`, where every NAME.head becomes a
// sparse file NAME of the size that its header tells.
void RestoreFolder(const std::string& name, const std::string& directory);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_TESTS_RESHARD_FORMATS_SAMPLE_H_
