// Files of one test, under a directory of its own.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TESTS_TRAINER_DATA_TEST_FILES_H_
#define SHARDSHIFT_TESTS_TRAINER_DATA_TEST_FILES_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/testutil/status_matchers.h"
#include "trainer/data/indexed_dataset_writer.h"

namespace shardshift::trainer {

class DirectoryTest : public ::testing::Test {
 protected:
  DirectoryTest() {
    std::string name = ::testing::TempDir() + "shardshift-data-XXXXXX";
    directory_ = mkdtemp(name.data());
  }
  ~DirectoryTest() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& name) const { return directory_ / name; }

  std::string WriteText(const std::string& name, const std::string& text) {
    std::ofstream(Path(name), std::ios::binary) << text;
    return Path(name);
  }

  std::string ReadText(const std::string& name) const {
    std::ifstream file(Path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::vector<std::string> FileNames() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

  // One sequence a document. Gives the prefix.
  std::string WriteDataset(const std::string& name,
                           const std::vector<std::vector<int32_t>>& documents,
                           TokenType type = TokenType::kU16) {
    auto writer = IndexedDatasetWriter::Create(Path(name), type);
    EXPECT_OK(writer);
    for (const auto& document : documents) {
      EXPECT_OK((*writer)->AddSequence(document));
      EXPECT_OK((*writer)->EndDocument());
    }
    EXPECT_OK((*writer)->Finish());
    return Path(name);
  }

 private:
  std::filesystem::path directory_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TESTS_TRAINER_DATA_TEST_FILES_H_
