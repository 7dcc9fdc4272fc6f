// `ckpt cat CKPT NAME[slice]`: the values of a tensor.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ckpt/core/box.h"
#include "ckpt/core/convert.h"
#include "ckpt/core/dtype.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/reader.h"
#include "tools/ckpt_commands.h"
#include "tools/ckpt_open.h"
#include "tools/slice.h"

namespace shardshift {
namespace {

using ckpt::DType;

constexpr int64_t kChunkElements = int64_t{1} << 20;

struct CatFlags {
  std::string checkpoint;
  std::string tensor;
  std::string role;
  std::string dtype;
  bool npy = false;
};

// The tensor of that name: of the given role, else `master`, else the only.
absl::StatusOr<int64_t> ChooseTensor(const ckpt::Reader& reader,
                                     const std::string& name,
                                     const std::string& role) {
  const auto& tensors = reader.table().tensors;
  std::vector<int64_t> found;
  std::vector<std::string> roles;
  for (size_t t = 0; t < tensors.size(); ++t) {
    if (tensors[t].name != name) continue;
    found.push_back(static_cast<int64_t>(t));
    roles.push_back(tensors[t].role);
  }
  if (found.empty()) {
    return absl::NotFoundError(absl::StrCat(
        reader.directory(), " has no tensor \"", name, "\"; see ckpt show"));
  }
  if (role.empty() && found.size() == 1) return found.front();
  const auto wanted =
      std::find(roles.begin(), roles.end(), role.empty() ? "master" : role);
  if (wanted != roles.end()) return found[wanted - roles.begin()];
  return absl::InvalidArgumentError(
      absl::StrCat("tensor \"", name, "\" has the roles ",
                   absl::StrJoin(roles, ", "), "; choose one with --role"));
}

// Elements that numpy has no type for are widened to float, exactly.
bool IsWidened(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF8E5M2 ||
         dtype == DType::kF8E4M3 || dtype == DType::kF8E8M0;
}

std::string NumpyType(DType dtype) {
  if (dtype == DType::kBool) return "|b1";
  if (dtype == DType::kC64) return "<c8";
  if (IsWidened(dtype)) return "<f4";
  const char kind = absl::ascii_tolower(ckpt::Name(dtype).front());
  const int64_t size = ckpt::ItemSize(dtype);
  return absl::StrCat(size == 1 ? "|" : "<", std::string(1, kind), size);
}

// Version 1.0 of numpy's format: the header is padded to 64 bytes.
void PrintNpyHeader(DType dtype, const ckpt::Shape& shape) {
  const std::string dims = absl::StrCat("(", absl::StrJoin(shape, ", "),
                                        shape.size() == 1 ? ",)" : ")");
  std::string header =
      absl::StrCat("{'descr': '", NumpyType(dtype),
                   "', 'fortran_order': False, 'shape': ", dims, ", }");
  const size_t unpadded = 10 + header.size() + 1;
  header.append((64 - unpadded % 64) % 64, ' ');
  header.push_back('\n');
  std::cout << std::string("\x93NUMPY\x01\x00", 8)
            << static_cast<char>(header.size() & 0xff)
            << static_cast<char>(header.size() >> 8) << header;
}

void PrintNpyValues(DType dtype, const std::vector<std::byte>& bytes) {
  if (!IsWidened(dtype)) {
    std::cout.write(reinterpret_cast<const char*>(bytes.data()),
                    static_cast<std::streamsize>(bytes.size()));
    return;
  }
  const auto step = static_cast<size_t>(ckpt::ItemSize(dtype));
  for (size_t i = 0; i < bytes.size(); i += step) {
    const auto value = static_cast<float>(ckpt::ToDouble(dtype, &bytes[i]));
    std::cout.write(reinterpret_cast<const char*>(&value), sizeof(value));
  }
}

// A line for each row of `row_elements`; `position` counts across calls.
void PrintText(DType dtype, const std::vector<std::byte>& bytes,
               int64_t row_elements, int64_t& position) {
  const auto step = static_cast<size_t>(ckpt::ItemSize(dtype));
  for (size_t i = 0; i < bytes.size(); i += step) {
    const bool ends_row = ++position % row_elements == 0;
    std::cout << ckpt::FormatValue(dtype, &bytes[i]) << (ends_row ? '\n' : ' ');
  }
}

absl::StatusOr<int> Cat(const CatFlags& flags) {
  SS_ASSIGN_OR_RETURN(const std::shared_ptr<const ckpt::Reader> reader,
                      OpenCheckpoint(flags.checkpoint));
  const auto [name, slice_text] = SplitSlice(flags.tensor);
  SS_ASSIGN_OR_RETURN(const int64_t tensor,
                      ChooseTensor(*reader, name, flags.role));
  const ckpt::Tensor& info = reader->table().tensors[tensor];
  const absl::StatusOr<Slice> slice = ParseSlice(slice_text, info.shape);
  if (!slice.ok()) return Annotate(slice.status(), ckpt::Describe(info));

  DType dtype = info.dtype;
  if (!flags.dtype.empty()) {
    SS_ASSIGN_OR_RETURN(dtype,
                        ckpt::ParseDType(absl::AsciiStrToUpper(flags.dtype)));
    SS_RETURN_IF_ERROR(Annotate(ckpt::CheckConversion(info.dtype, dtype),
                                ckpt::Describe(info)));
  }
  if (flags.npy) PrintNpyHeader(dtype, slice->shape);
  const int64_t row_elements = slice->shape.empty() ? 1 : slice->shape.back();
  int64_t position = 0;
  const int64_t item_size = ckpt::ItemSize(dtype);
  std::vector<std::byte> read;
  std::vector<std::byte> bytes;
  for (const ckpt::Box& piece : SplitSlicePieces(*slice, kChunkElements)) {
    const ckpt::Box span = SpanOf(*slice, piece);
    read.resize(ckpt::NumElements(span) * item_size);
    SS_RETURN_IF_ERROR(reader->ReadTensor(tensor, span, read.data(), dtype));
    bytes.resize(ckpt::NumElements(piece) * item_size);
    CopyPiece(*slice, piece, item_size, read.data(), bytes.data());
    if (flags.npy) {
      PrintNpyValues(dtype, bytes);
    } else {
      PrintText(dtype, bytes, row_elements, position);
    }
  }
  return kExitDone;
}

}  // namespace

void AddCat(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("cat", "Prints the values of a tensor.");
  const auto flags = std::make_shared<CatFlags>();
  command
      ->add_option("CKPT", flags->checkpoint,
                   "A step or run directory, or a checkpoint of another format")
      ->required();
  command
      ->add_option("TENSOR", flags->tensor,
                   "A name, or a name and a slice of numpy's indices and "
                   "ranges: \"layers.0.attention.q.weight[-1,0:8:2]\"")
      ->required();
  command->add_option("--role", flags->role,
                      "Default: master, else the only role");
  command->add_option("--dtype", flags->dtype,
                      "Convert floats to F64, F32, F16, BF16, F8_E5M2 or "
                      "F8_E4M3: rounded to the nearest, ties to even");
  command->add_flag("--npy", flags->npy,
                    "Write a numpy .npy file to stdout, BF16 and F8 as "
                    "float32");
  command->callback(
      [flags, &action] { action = [flags] { return Cat(*flags); }; });
}

}  // namespace shardshift
