// Files are laid out without a file, and read as any other.
// SPDX-License-Identifier: Apache-2.0
#include "ckpt/hdf5/file_builder.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/coding.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/format/user_block.h"
#include "ckpt/io/file.h"
#include "tests/ckpt/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

using ::testing::HasSubstr;

FragmentLabel Label(int64_t rows) {
  return {"w", "master", DType::kF32, {rows, 1024}, {0, 0}};
}

TEST(FileBuilder, KeepsNoPayloadInMemory) {
  ASSERT_OK_AND_ASSIGN(const auto builder, FileBuilder::Create("f"));
  const int64_t rows = int64_t{1} << 28;
  ASSERT_OK_AND_ASSIGN(const int64_t first,
                       builder->AddFragment("/a", Label(rows), {rows, 1024}));
  ASSERT_OK_AND_ASSIGN(const int64_t second,
                       builder->AddFragment("/b", Label(rows), {rows, 1024}));
  EXPECT_GE(second, first + rows * 1024 * 4);
  ASSERT_OK_AND_ASSIGN(const FileImage image, builder->Finish());
  EXPECT_GE(image.file_bytes(), second + rows * 1024 * 4);
  EXPECT_LT(image.num_pages(), 8);
}

absl::Status WriteImage(const FileImage& image, const std::string& path) {
  SS_ASSIGN_OR_RETURN(const File out, File::Create(path));
  SS_RETURN_IF_ERROR(out.Allocate(image.file_bytes()));
  return image.Write(out, {0, image.file_bytes()});
}

// Thousands of datasets do not fit the library's cache, so that it reads back
// what it wrote.
TEST(FileBuilder, GivesAFileThatTheLibraryReads) {
  constexpr int kDatasets = 4000;
  ASSERT_OK_AND_ASSIGN(const auto builder, FileBuilder::Create("f"));
  std::vector<int64_t> offsets;
  for (int64_t i = 0; i < kDatasets; ++i) {
    ASSERT_OK_AND_ASSIGN(const int64_t offset,
                         builder->AddFragment(absl::StrCat("/t/", i, "/master"),
                                              Label(i + 1), {i % 3 + 1, 1024}));
    offsets.push_back(offset);
  }
  ASSERT_OK(builder->AddText("/state", "some text"));
  ASSERT_OK_AND_ASSIGN(const FileImage image, builder->Finish());

  const TempDir dir;
  const std::string path = JoinPath(dir.path(), "f.h5");
  ASSERT_OK(WriteImage(image, path));
  const Hdf5Lock lock;
  const Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT));
  ASSERT_TRUE(file.ok());
  for (int64_t i = 0; i < kDatasets; ++i) {
    const Handle dataset(H5Dopen2(
        file.get(), absl::StrCat("/t/", i, "/master").c_str(), H5P_DEFAULT));
    ASSERT_TRUE(dataset.ok());
    EXPECT_EQ(H5Dget_offset(dataset.get()), static_cast<haddr_t>(offsets[i]));
    const Handle shape(H5Aopen(dataset.get(), "shape", H5P_DEFAULT));
    int64_t dims[2] = {};
    ASSERT_GE(H5Aread(shape.get(), H5T_NATIVE_INT64, dims), 0);
    EXPECT_EQ(dims[0], i + 1);
  }
}

// More chunks than a page of the library's index of them lists.
TEST(FileBuilder, TellsWhereTheLibraryLooksForEachChunk) {
  constexpr int64_t kChunks = 3000;
  ASSERT_OK_AND_ASSIGN(const auto builder, FileBuilder::Create("f"));
  ASSERT_OK(builder->AddCompressedFragment("/a", Label(kChunks),
                                           {kChunks, 1024}, 1024));
  std::vector<int64_t> offsets;
  for (int64_t i = 0; i < kChunks; ++i) {
    const std::string stored(static_cast<size_t>(1 + 37 * i % 9000), 'x');
    ASSERT_OK_AND_ASSIGN(const int64_t offset,
                         builder->AddChunk("/a", 1024 * i, AsBytes(stored)));
    offsets.push_back(offset);
  }
  ASSERT_OK_AND_ASSIGN(const FileImage image, builder->Finish());
  EXPECT_LT(image.num_pages(), 30);  // no payload

  const TempDir dir;
  const std::string path = JoinPath(dir.path(), "f.h5");
  ASSERT_OK(WriteImage(image, path));
  const Hdf5Lock lock;
  const Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT));
  const Handle dataset(H5Dopen2(file.get(), "/a", H5P_DEFAULT));
  for (int64_t i = 0; i < kChunks; i += 7) {
    const hsize_t element = hsize_t{1024} * static_cast<hsize_t>(i);
    haddr_t address = 0;  // from the end of the user block
    hsize_t size = 0;
    ASSERT_GE(H5Dget_chunk_info_by_coord(dataset.get(), &element, nullptr,
                                         &address, &size),
              0);
    EXPECT_EQ(static_cast<int64_t>(address) + kUserBlockBytes, offsets[i]);
    EXPECT_EQ(static_cast<int64_t>(size), 1 + 37 * i % 9000);
  }
}

TEST(FileBuilder, NamesTheFileInErrors) {
  ASSERT_OK_AND_ASSIGN(const auto builder, FileBuilder::Create("run/f.h5"));
  ASSERT_OK(builder->AddBytes("/a", 10).status());
  EXPECT_THAT(builder->AddBytes("/a", 10),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("cannot add /a to run/f.h5: HDF5: ")));
}

// Network file systems that refuse locks made libraries fail at this point.
TEST(FileBuilder, B140OpensAndLocksNoFile) {
  const TempDir dir;
  const std::string path = JoinPath(dir.path(), "f.h5");
  for (const std::string& place : {path, dir.path() + "/not/there/f.h5"}) {
    ASSERT_OK_AND_ASSIGN(const auto builder, FileBuilder::Create(place));
    ASSERT_OK(builder->AddText("/state", "some text"));
    ASSERT_OK(builder->AddView("/view", DType::kF32, {4, 4},
                               {{"other.h5", "/a", {4, 4}, WholeBox({4, 4})}}));
    ASSERT_OK(builder->Finish().status());
  }
  ASSERT_OK_AND_ASSIGN(const auto names, ListDirectory(dir.path()));
  EXPECT_TRUE(names.empty());
}

TEST(Hdf5Version, B142IsRefusedWhereItIsNotTheHeaders) {
  const Hdf5Version headers = {H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE};
  EXPECT_OK(CheckHdf5Version(headers));
  for (unsigned Hdf5Version::*field :
       {&Hdf5Version::major, &Hdf5Version::minor, &Hdf5Version::release}) {
    Hdf5Version other = headers;
    other.*field += 1;
    const std::string text =
        absl::StrCat(other.major, ".", other.minor, ".", other.release);
    EXPECT_THAT(CheckHdf5Version(other),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr(absl::StrCat("loaded is ", text, ", "))));
  }
}

TEST(Hdf5Version, B142IsThatOfTheHeadersHere) {
  const Hdf5Lock lock;
  EXPECT_OK(CheckHdf5Version());
}

}  // namespace
}  // namespace shardshift::ckpt
