// Saves, loads and verifies a checkpoint beside the same bytes moved by plain
// direct I/O, in one run, taking turns. Prints medians and their ratios.
//
// The state: matrices of 64 MiB and vectors of 16 KiB, fp32, cut into rows
// over the ranks, which are threads. A load of another sharding cuts matrices
// into columns.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ckpt/core/page_memory.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/aligned_buffer.h"
#include "ckpt/io/file.h"
#include "ckpt/io/worker_pool.h"
#include "ckpt/reader.h"
#include "ckpt/run_dir.h"
#include "ckpt/verify.h"
#include "ckpt/writer.h"
#include "tools/cli.h"

namespace shardshift {
namespace {

constexpr int64_t kWidth = 4096;
constexpr int64_t kStep = 1;

struct BenchFlags {
  std::string directory;
  int64_t matrices = 64;
  int64_t ranks = 4;
  int64_t runs = 5;
  bool json = false;
};

// The box of a tensor that a rank holds.
ckpt::Box Cut(const ckpt::Shape& shape, size_t dim, int64_t rank,
              int64_t ranks) {
  ckpt::Box box = ckpt::WholeBox(shape);
  box.extent[dim] /= ranks;
  box.start[dim] = rank * box.extent[dim];
  return box;
}

// What one rank holds, in touched memory as a trainer has it.
struct RankState {
  std::vector<ckpt::FragmentSpec> specs;
  ckpt::PageVector<float> memory;
  std::vector<int64_t> offsets;  // of each spec in `memory`

  std::byte* At(size_t spec) {
    return reinterpret_cast<std::byte*>(memory.data() + offsets[spec]);
  }
};

std::vector<RankState> MakeState(const BenchFlags& flags, bool columns) {
  std::vector<RankState> ranks(flags.ranks);
  for (int64_t r = 0; r < flags.ranks; ++r) {
    RankState& rank = ranks[r];
    int64_t size = 0;
    for (int64_t i = 0; i < 2 * flags.matrices; ++i) {
      const bool is_matrix = i % 2 == 0;
      const ckpt::Shape shape =
          is_matrix ? ckpt::Shape{kWidth, kWidth} : ckpt::Shape{kWidth};
      rank.specs.push_back(
          {absl::StrCat(is_matrix ? "w" : "b", i / 2), "master",
           ckpt::DType::kF32, shape,
           Cut(shape, columns && is_matrix ? 1 : 0, r, flags.ranks)});
      rank.offsets.push_back(size);
      size += ckpt::NumElements(rank.specs.back().box);
    }
    rank.memory.resize(size, 1.0F);
  }
  return ranks;
}

// Bits in which nothing finds a pattern, as a disk may.
void Fill(std::span<float> values) {
  static uint64_t x = 1;
  for (float& value : values) {
    x = x * 6364136223846793005 + 1442695040888963407;
    value = static_cast<float>(static_cast<int32_t>(x >> 33)) * 1e-9F;
  }
}

// Plain direct I/O of `num_bytes`, one thread, from or to warm memory.
class PlainFile {
 public:
  PlainFile(std::string path, int64_t num_bytes)
      : path_(std::move(path)), num_bytes_(num_bytes) {}

  absl::Status Prepare() {
    SS_ASSIGN_OR_RETURN(buffer_, ckpt::AlignedBuffer::Allocate(kRingBytes));
    Fill({reinterpret_cast<float*>(buffer_.bytes().data()),
          buffer_.bytes().size() / sizeof(float)});
    return absl::OkStatus();
  }

  absl::Status Write() {
    SS_ASSIGN_OR_RETURN(const ckpt::File file,
                        ckpt::File::Create(path_, ckpt::PageCache::kBypass));
    SS_RETURN_IF_ERROR(Each([&](int64_t offset, std::span<std::byte> bytes) {
      return file.WriteAt(offset, bytes);
    }));
    return file.Sync();
  }

  absl::Status Read() {
    SS_ASSIGN_OR_RETURN(
        const ckpt::File file,
        ckpt::File::OpenForRead(path_, ckpt::PageCache::kBypass));
    return Each([&](int64_t offset, std::span<std::byte> bytes) {
      return file.ReadAt(offset, bytes);
    });
  }

 private:
  // More than the caches of a processor hold.
  static constexpr int64_t kRingBytes = int64_t{256} << 20;

  absl::Status Each(
      const std::function<absl::Status(int64_t, std::span<std::byte>)>& move) {
    for (int64_t offset = 0; offset < num_bytes_; offset += ckpt::kBlockBytes) {
      const int64_t size = std::min(ckpt::kBlockBytes, num_bytes_ - offset);
      SS_RETURN_IF_ERROR(
          move(offset, buffer_.bytes().subspan(offset % kRingBytes, size)));
    }
    return absl::OkStatus();
  }

  std::string path_;
  int64_t num_bytes_;
  ckpt::AlignedBuffer buffer_;
};

class Bench {
 public:
  explicit Bench(const BenchFlags& flags)
      : flags_(flags),
        rows_(MakeState(flags, /*columns=*/false)),
        columns_(MakeState(flags, /*columns=*/true)),
        run_(ckpt::JoinPath(flags.directory, "bench-run")),
        plain_path_(ckpt::JoinPath(flags.directory, "bench-plain")),
        blocks_path_(ckpt::JoinPath(flags.directory, "bench-blocks")),
        num_bytes_(flags.matrices * (kWidth + 1) * kWidth *
                   static_cast<int64_t>(sizeof(float))) {}

  absl::Status Run() {
    for (RankState& rank : rows_) Fill(rank.memory);
    PlainFile plain(plain_path_, num_bytes_);
    SS_RETURN_IF_ERROR(plain.Prepare());
    for (int64_t run = 0; run < flags_.runs; ++run) {
      SS_RETURN_IF_ERROR(Clear());
      SS_RETURN_IF_ERROR(Time("plain write", [&] { return plain.Write(); }));
      SS_RETURN_IF_ERROR(Time("blocks", [&] { return WriteBlocks(); }));
      SS_RETURN_IF_ERROR(Time("save", [&] { return Save(); }));
      SS_RETURN_IF_ERROR(Time("plain read", [&] { return plain.Read(); }));
      SS_RETURN_IF_ERROR(Time("load same", [&] { return Load(rows_); }));
      SS_RETURN_IF_ERROR(Time("load other", [&] { return Load(columns_); }));
      SS_RETURN_IF_ERROR(Time("verify", [&] { return Verify(); }));
    }
    SS_RETURN_IF_ERROR(Clear());
    Print();
    return absl::OkStatus();
  }

 private:
  absl::Status Clear() {
    SS_RETURN_IF_ERROR(ckpt::RemoveTree(plain_path_));
    SS_RETURN_IF_ERROR(ckpt::RemoveTree(blocks_path_));
    return ckpt::RemoveTree(run_);
  }

  absl::Status Time(const std::string& what,
                    const std::function<absl::Status()>& work) {
    const auto begin = std::chrono::steady_clock::now();
    SS_RETURN_IF_ERROR(Annotate(work(), what));
    const std::chrono::duration<double> took =
        std::chrono::steady_clock::now() - begin;
    seconds_[what].push_back(took.count());
    std::cerr << absl::StreamFormat("%-12s %6.3f s\n", what, took.count());
    return absl::OkStatus();
  }

  absl::StatusOr<ckpt::PartReceipt> SaveRank(const std::string& directory,
                                             int64_t r) {
    RankState& rank = rows_[r];
    SS_ASSIGN_OR_RETURN(
        const std::unique_ptr<ckpt::PartWriter> writer,
        ckpt::PartWriter::Create(directory, r, {kStep, "{}"}, rank.specs));
    std::vector<std::span<const std::byte>> images;
    for (size_t i = 0; i < rank.specs.size(); ++i) {
      images.emplace_back(rank.At(i),
                          ckpt::NumElements(rank.specs[i].box) * sizeof(float));
    }
    SS_RETURN_IF_ERROR(writer->WriteFragments(images));
    return writer->Close();
  }

  // One thread a rank, as a run of rank threads does it.
  absl::Status ForEachRank(
      const std::function<absl::Status(int64_t)>& work) const {
    std::vector<absl::Status> results(rows_.size());
    std::vector<std::thread> threads;
    threads.reserve(rows_.size());
    for (size_t r = 0; r < rows_.size(); ++r) {
      threads.emplace_back(
          [&, r] { results[r] = work(static_cast<int64_t>(r)); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const absl::Status& status : results) SS_RETURN_IF_ERROR(status);
    return absl::OkStatus();
  }

  absl::Status Save() {
    SS_ASSIGN_OR_RETURN(const std::string directory,
                        ckpt::BeginCheckpoint(run_, kStep));
    std::vector<ckpt::PartReceipt> receipts(rows_.size());
    SS_RETURN_IF_ERROR(ForEachRank([&](int64_t r) -> absl::Status {
      SS_ASSIGN_OR_RETURN(receipts[r], SaveRank(directory, r));
      return absl::OkStatus();
    }));
    return ckpt::CommitCheckpoint(run_, {kStep, "{}"}, receipts, "{}",
                                  /*replace_existing=*/false);
  }

  // What a save does to the disk and nothing else: as many blocks to as many
  // files by the same threads, without tables, checksums or fingerprints.
  absl::Status WriteBlocks() {
    SS_RETURN_IF_ERROR(ckpt::MakeDirectories(blocks_path_));
    return ForEachRank([&](int64_t r) -> absl::Status {
      const auto memory = std::as_bytes(std::span(rows_[r].memory));
      SS_ASSIGN_OR_RETURN(
          const ckpt::File file,
          ckpt::File::Create(ckpt::JoinPath(blocks_path_, absl::StrCat(r)),
                             ckpt::PageCache::kBypass));
      SS_RETURN_IF_ERROR(ckpt::WorkerPool::Default().Run(
          ckpt::NumBlocks(std::ssize(memory)), [&](int64_t b) {
            const int64_t begin = b * ckpt::kBlockBytes;
            return file.WriteAt(
                begin,
                memory.subspan(begin, std::min(ckpt::kBlockBytes,
                                               std::ssize(memory) - begin)));
          }));
      return file.Sync();
    });
  }

  absl::Status Load(std::vector<RankState>& ranks) {
    SS_ASSIGN_OR_RETURN(const std::unique_ptr<ckpt::Reader> reader,
                        ckpt::Reader::Open(StepDir()));
    std::vector<ckpt::FragmentRead> reads;
    for (RankState& rank : ranks) {
      for (size_t i = 0; i < rank.specs.size(); ++i) {
        const ckpt::FragmentSpec& spec = rank.specs[i];
        SS_ASSIGN_OR_RETURN(const int64_t tensor,
                            reader->FindTensor(spec.tensor, spec.role));
        for (int64_t f = reader->FirstFragment(tensor);
             f < reader->FirstFragment(tensor + 1); ++f) {
          const std::optional<ckpt::Box> common =
              ckpt::Intersect(reader->table().fragments[f].box, spec.box);
          if (common) reads.push_back({f, *common, rank.At(i), spec.box});
        }
      }
    }
    return reader->Read(reads);
  }

  absl::Status Verify() {
    SS_ASSIGN_OR_RETURN(
        const ckpt::VerifyReport report,
        ckpt::Verify(StepDir(), /*deep=*/true, [](const ckpt::Fault& fault) {
          std::cerr << fault.message << "\n";
        }));
    return report.num_faults == 0 ? absl::OkStatus()
                                  : absl::DataLossError("faults");
  }

  std::string StepDir() const {
    return ckpt::JoinPath(run_, ckpt::StepName(kStep));
  }

  double Median(const std::string& what) {
    std::vector<double>& all = seconds_.at(what);
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
  }

  void Print() {
    if (flags_.json) {
      std::cout << nlohmann::json{{"bytes", num_bytes_}, {"seconds", seconds_}}
                << "\n";
      return;
    }
    for (const auto& [what, reference] :
         {std::pair("plain write", "plain write"),
          {"blocks", "plain write"},
          {"save", "plain write"},
          {"save", "blocks"},
          {"plain read", "plain read"},
          {"load same", "plain read"},
          {"load other", "plain read"},
          {"verify", "plain read"}}) {
      const double median = Median(what);
      std::cout << absl::StreamFormat(
          "%-12s %6.3f s  %5.0f MB/s  %.2f x %s\n", what, median,
          1e-6 * static_cast<double>(num_bytes_) / median,
          median / Median(reference), reference);
    }
  }

  const BenchFlags& flags_;
  std::vector<RankState> rows_;
  std::vector<RankState> columns_;
  std::string run_;
  std::string plain_path_;
  std::string blocks_path_;
  int64_t num_bytes_;
  std::map<std::string, std::vector<double>> seconds_;
};

}  // namespace
}  // namespace shardshift

int main(int argc, char** argv) {
  const std::unique_ptr<CLI::App> app = shardshift::MakeCli(
      "ckpt_bench",
      "Times saves, loads and verification beside plain direct I/O of the same "
      "bytes. Needs room for twice the state in memory and on disk.");
  shardshift::BenchFlags flags;
  app->add_option("directory", flags.directory, "where to write")
      ->required()
      ->type_name("DIR");
  app->add_option("--matrices", flags.matrices, "of 64 MiB each (64)")
      ->check(shardshift::IntIn(1, 1 << 16))
      ->type_name("N");
  app->add_option("--ranks", flags.ranks, "a divisor of 4096 (4)")
      ->check(shardshift::IntIn(1, 4096))
      ->type_name("N");
  app->add_option("--runs", flags.runs, "of each, taking turns (5)")
      ->check(shardshift::IntIn(1, 1000))
      ->type_name("N");
  app->add_flag("--json", flags.json, "all times as one JSON object");
  return shardshift::RunCli(
      *app, argc, argv, [&flags]() -> absl::StatusOr<int> {
        SS_RETURN_IF_ERROR(shardshift::Bench(flags).Run());
        return shardshift::kExitDone;
      });
}
