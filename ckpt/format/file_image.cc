// SPDX-License-Identifier: Apache-2.0
#include "ckpt/format/file_image.h"

#include <algorithm>
#include <vector>

#include "ckpt/core/status_macros.h"

namespace shardshift::ckpt {
namespace {

// Writes of this size are as fast as larger ones.
constexpr size_t kWriteBytes = size_t{1} << 20;

// The offset of the page that holds byte `offset_bytes`.
int64_t PageOf(int64_t offset_bytes) {
  return offset_bytes - offset_bytes % FileImage::kPageBytes;
}

// The part of `page`, which lies at `page_offset`, that is within `range`.
template <typename Page>
auto Clip(Page& page, int64_t page_offset, const ByteRange& range) {
  const int64_t begin = std::max(range.begin - page_offset, int64_t{0});
  const int64_t end = std::min(range.end - page_offset, FileImage::kPageBytes);
  return std::span(page).subspan(static_cast<size_t>(begin),
                                 static_cast<size_t>(end - begin));
}

}  // namespace

void FileImage::Resize(int64_t file_bytes) {
  file_bytes_ = file_bytes;
  auto page = pages_.lower_bound(PageOf(file_bytes));
  if (page != pages_.end() && page->first < file_bytes) {
    const ByteRange cut = {file_bytes, page->first + kPageBytes};
    std::ranges::fill(Clip(page->second, page->first, cut), std::byte{0});
    ++page;
  }
  pages_.erase(page, pages_.end());
}

void FileImage::Put(int64_t offset_bytes, std::span<const std::byte> bytes) {
  const ByteRange range = {offset_bytes,
                           offset_bytes + static_cast<int64_t>(bytes.size())};
  for (int64_t at = PageOf(range.begin); at < range.end; at += kPageBytes) {
    // A new page is zeros.
    const std::span<std::byte> target = Clip(pages_[at], at, range);
    std::ranges::copy(bytes.first(target.size()), target.begin());
    bytes = bytes.subspan(target.size());
  }
  file_bytes_ = std::max(file_bytes_, range.end);
}

void FileImage::Get(int64_t offset_bytes, std::span<std::byte> bytes) const {
  std::ranges::fill(bytes, std::byte{0});
  const ByteRange range = {offset_bytes,
                           offset_bytes + static_cast<int64_t>(bytes.size())};
  for (auto page = pages_.lower_bound(PageOf(range.begin));
       page != pages_.end() && page->first < range.end; ++page) {
    const std::span<const std::byte> source =
        Clip(page->second, page->first, range);
    const int64_t place = std::max(page->first - range.begin, int64_t{0});
    std::ranges::copy(source, bytes.begin() + place);
  }
}

absl::Status FileImage::Write(const File& file, const ByteRange& range) const {
  std::vector<std::byte> run;
  int64_t run_begin = range.begin;
  for (auto page = pages_.lower_bound(PageOf(range.begin));
       page != pages_.end() && page->first < range.end; ++page) {
    const int64_t begin = std::max(page->first, range.begin);
    const int64_t run_end = run_begin + static_cast<int64_t>(run.size());
    if (begin != run_end || run.size() >= kWriteBytes) {
      SS_RETURN_IF_ERROR(file.WriteAt(run_begin, run));
      run.clear();
      run_begin = begin;
    }
    const std::span<const std::byte> bytes =
        Clip(page->second, page->first, range);
    run.insert(run.end(), bytes.begin(), bytes.end());
  }
  return file.WriteAt(run_begin, run);
}

}  // namespace shardshift::ckpt
