// In memory the library makes the file that it makes on disk.
// SPDX-License-Identifier: Apache-2.0
#include "ckpt/hdf5/memory_driver.h"

#include <memory>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/ckpt/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

Handle Access() {
  Handle list(H5Pcreate(H5P_FILE_ACCESS));
  H5Pset_libver_bounds(list.get(), H5F_LIBVER_V110, H5F_LIBVER_V110);
  return list;
}

Handle MemoryAccess(
    const std::shared_ptr<FileImage>& image,
    const std::shared_ptr<RawWrites>& raw = std::make_shared<RawWrites>()) {
  Handle list = Access();
  EXPECT_TRUE(UseMemoryDriver(list, image, raw));
  return list;
}

// A user block and, if `paged`, pages as in our files.
Handle Creation(bool paged) {
  Handle list(H5Pcreate(H5P_FILE_CREATE));
  H5Pset_obj_track_times(H5P_GROUP_CREATE_DEFAULT, false);
  H5Pset_obj_track_times(list.get(), false);
  H5Pset_userblock(list.get(), paged ? 4096 : 512);
  if (paged) {
    H5Pset_file_space_strategy(list.get(), H5F_FSPACE_STRATEGY_PAGE, false, 1);
    H5Pset_file_space_page_size(list.get(), 4096);
  }
  return list;
}

// A group of a dataset of odd size, with attributes and perhaps bytes.
void AddRandomDataset(const Handle& file, int number, std::mt19937& random) {
  const Handle group(H5Gcreate2(file.get(), absl::StrCat("g", number).c_str(),
                                H5P_DEFAULT, H5P_GROUP_CREATE_DEFAULT,
                                H5P_DEFAULT));
  const hsize_t size = 1 + random() % (random() % 3 == 0 ? 100'000 : 500);
  const Handle space(H5Screate_simple(1, &size, nullptr));
  const Handle list(H5Pcreate(H5P_DATASET_CREATE));
  H5Pset_obj_track_times(list.get(), false);
  H5Pset_alloc_time(list.get(), H5D_ALLOC_TIME_EARLY);
  H5Pset_fill_time(list.get(), H5D_FILL_TIME_NEVER);
  const Handle dataset(H5Dcreate2(group.get(), "d", H5T_STD_U8LE, space.get(),
                                  H5P_DEFAULT, list.get(), H5P_DEFAULT));
  ASSERT_TRUE(dataset.ok());
  const Handle one(H5Screate(H5S_SCALAR));
  for (int a = 0; a < static_cast<int>(random() % 12); ++a) {
    const Handle attribute(
        H5Acreate2(dataset.get(), absl::StrCat("a", a).c_str(), H5T_STD_I32LE,
                   one.get(), H5P_DEFAULT, H5P_DEFAULT));
    const int value = number * 100 + a;
    ASSERT_GE(H5Awrite(attribute.get(), H5T_STD_I32LE, &value), 0);
  }
  if (random() % 2 == 0) return;
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  ASSERT_GE(H5Dwrite(dataset.get(), H5T_STD_U8LE, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                     bytes.data()),
            0);
}

// Every fourth dataset is removed again, which makes the library reuse space.
void WriteRandomFile(const std::string& path, bool paged, const Handle& access,
                     unsigned seed) {
  Handle file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, Creation(paged).get(),
                        access.get()));
  ASSERT_TRUE(file.ok());
  std::mt19937 random(seed);
  for (int i = 0; i < 150; ++i) {
    ASSERT_NO_FATAL_FAILURE(AddRandomDataset(file, i, random));
    if (i % 4 == 3) {
      const std::string old = absl::StrCat("g", random() % (i + 1));
      H5Ldelete(file.get(), old.c_str(), H5P_DEFAULT);
    }
  }
  EXPECT_TRUE(file.Close());
}

TEST(MemoryDriver, GivesTheBytesOfAFileOnDisk) {
  const Hdf5Lock lock;
  for (const bool paged : {true, false}) {
    for (const unsigned seed : {1u, 2u, 3u}) {
      SCOPED_TRACE(absl::StrCat("paged ", paged, " seed ", seed));
      const TempDir dir;
      const std::string path = dir.path() + "/f.h5";
      WriteRandomFile(path, paged, Access(), seed);
      const auto image = std::make_shared<FileImage>();
      WriteRandomFile("nowhere/f.h5", paged, MemoryAccess(image), seed);
      std::string bytes(static_cast<size_t>(image->file_bytes()), 'x');
      image->Get(0, std::as_writable_bytes(std::span(bytes)));
      EXPECT_TRUE(bytes == ReadFile(path));
    }
  }
}

TEST(MemoryDriver, SharesTheImageUntilTheFileIsClosed) {
  const Hdf5Lock lock;
  const auto image = std::make_shared<FileImage>();
  Handle file(
      H5Fcreate("f", H5F_ACC_TRUNC, H5P_DEFAULT, MemoryAccess(image).get()));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(image.use_count(), 2);
  EXPECT_TRUE(file.Close());
  EXPECT_EQ(image.use_count(), 1);
}

// Closing it would otherwise succeed, with bytes still to be written.
TEST(MemoryDriver, RefusesToCloseAFileInUse) {
  const Hdf5Lock lock;
  const auto image = std::make_shared<FileImage>();
  const Handle file(
      H5Fcreate("f", H5F_ACC_TRUNC, H5P_DEFAULT, MemoryAccess(image).get()));
  Handle group(
      H5Gcreate2(file.get(), "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  ASSERT_TRUE(group.ok());
  EXPECT_LT(H5Fclose(file.get()), 0);
  EXPECT_TRUE(group.Close());
}

// As the library does for the sources of a view.
TEST(MemoryDriver, OpensNoOtherFileWithTheProperties) {
  const Hdf5Lock lock;
  const auto image = std::make_shared<FileImage>();
  const Handle file(
      H5Fcreate("f", H5F_ACC_TRUNC, H5P_DEFAULT, MemoryAccess(image).get()));
  const Handle list(H5Fget_access_plist(file.get()));
  ASSERT_TRUE(list.ok());
  EXPECT_LT(H5Fopen("f", H5F_ACC_RDWR, list.get()), 0);
  EXPECT_LT(H5Fcreate("g", H5F_ACC_TRUNC, H5P_DEFAULT, list.get()), 0);
}

}  // namespace
}  // namespace shardshift::ckpt
