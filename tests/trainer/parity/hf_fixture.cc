// SPDX-License-Identifier: Apache-2.0
#include "tests/trainer/parity/hf_fixture.h"

#include <cassert>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/formats/hf_config.h"
#include "reshard/formats/hf_names.h"
#include "reshard/formats/safetensors.h"
#include "reshard/layout/parameters.h"

namespace shardshift::trainer {
namespace {

template <typename T>
std::vector<double> Widen(const std::vector<std::byte>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return {values.begin(), values.end()};
}

absl::StatusOr<FixtureTensors> ReadTensors(const std::string& path) {
  SS_ASSIGN_OR_RETURN(const ckpt::File file, ckpt::File::OpenForRead(path));
  SS_ASSIGN_OR_RETURN(const reshard::SafetensorsHeader header,
                      reshard::ReadSafetensorsHeader(file));
  FixtureTensors tensors;
  for (const reshard::SafetensorsTensor& tensor : header.tensors) {
    std::vector<std::byte> bytes(tensor.num_bytes());
    SS_RETURN_IF_ERROR(file.ReadAt(tensor.begin, bytes));
    FixtureTensor& read = tensors[tensor.name];
    read.shape = tensor.shape;
    switch (tensor.dtype) {
      case ckpt::DType::kF32:
        read.values = Widen<float>(bytes);
        break;
      case ckpt::DType::kF64:
        read.values = Widen<double>(bytes);
        break;
      case ckpt::DType::kI64:
        read.values = Widen<int64_t>(bytes);
        break;
      default:
        return absl::UnimplementedError(
            absl::StrCat(path, ": dtype of ", tensor.name));
    }
  }
  return tensors;
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

absl::StatusOr<AdamWFixture> ReadAdamW(const std::string& path) {
  SS_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  const nlohmann::json json = nlohmann::json::parse(text);
  return AdamWFixture{
      .lr = json["lr"].get<std::vector<double>>(),
      .losses = json["losses_f64"].get<std::vector<double>>(),
      .grad_norms = json["grad_norms_f64"].get<std::vector<double>>()};
}

}  // namespace

absl::StatusOr<HfFixture> HfFixture::Open(const std::string& name) {
  const std::string folder = absl::StrCat(SHARDSHIFT_PARITY_DATA, "/", name);
  HfFixture fixture;
  SS_ASSIGN_OR_RETURN(fixture.source_, reshard::OpenSource(folder, {}));
  SS_ASSIGN_OR_RETURN(const reshard::WholeModel whole,
                      reshard::ReadWholeModel(fixture.reader()));
  fixture.model_ = whole.state.model;
  SS_ASSIGN_OR_RETURN(const std::string config,
                      ReadText(absl::StrCat(folder, "/config.json")));
  SS_ASSIGN_OR_RETURN(const reshard::HfConfig parsed,
                      reshard::ParseHfConfig(config));
  SS_ASSIGN_OR_RETURN(
      fixture.stored_,
      reshard::HfTensors(fixture.model_, {.family = parsed.family}));
  SS_ASSIGN_OR_RETURN(fixture.parity_,
                      ReadTensors(absl::StrCat(folder, "/parity.safetensors")));
  SS_ASSIGN_OR_RETURN(
      FixtureTensors batches,
      ReadTensors(absl::StrCat(folder, "/batches.safetensors")));
  fixture.batches_ = std::move(batches["batches"]);
  SS_ASSIGN_OR_RETURN(fixture.adamw_,
                      ReadAdamW(absl::StrCat(folder, "/adamw.json")));
  return fixture;
}

Batch HfFixture::ParityBatch() const {
  const FixtureTensor& ids = parity_.at("input_ids");
  Batch batch{.num_samples = ids.shape[0], .micro_batch_size = 1};
  const int64_t positions = ids.shape[1];
  for (size_t i = 0; i < ids.values.size(); ++i) {
    batch.tokens.push_back(static_cast<int32_t>(ids.values[i]));
    const bool is_last = static_cast<int64_t>(i) % positions == positions - 1;
    batch.labels.push_back(is_last ? 0
                                   : static_cast<int32_t>(ids.values[i + 1]));
  }
  return batch;
}

Batch HfFixture::AdamWBatch(int64_t step) const {
  Batch batch{.num_samples = batches_.shape[1], .micro_batch_size = 1};
  const int64_t stride = batches_.shape[2];
  for (int64_t sample = 0; sample < batch.num_samples; ++sample) {
    const double* ids =
        &batches_.values[(step * batch.num_samples + sample) * stride];
    batch.tokens.insert(batch.tokens.end(), ids, ids + stride - 1);
    batch.labels.insert(batch.labels.end(), ids + 1, ids + stride);
  }
  return batch;
}

absl::StatusOr<FixtureTensors> HfFixture::ToHf(
    const LogicalValues& values) const {
  FixtureTensors tensors;
  for (const reshard::StoredTensor& stored : stored_) {
    const int64_t size = ckpt::NumElements(stored.shape);
    std::vector<double> image;
    for (const reshard::Piece& piece : stored.pieces) {
      const std::vector<float>& whole = values[piece.tensor];
      if (piece.offset != std::ssize(image) ||
          ckpt::NumElements(piece.box) != std::ssize(whole)) {
        return absl::InternalError(absl::StrCat(stored.name, " has a gap"));
      }
      image.insert(image.end(), whole.begin(), whole.end());
    }
    if (std::ssize(image) != size) {
      return absl::InternalError(absl::StrCat(stored.name, " is not full"));
    }
    FixtureTensor& tensor = tensors[stored.name];
    tensor.shape = stored.shape;
    tensor.values = image;
    if (!stored.transposed) continue;
    const int64_t rows = stored.shape[0];
    const int64_t columns = stored.shape[1];
    for (int64_t i = 0; i < size; ++i) {
      tensor.values[i] = image[i % columns * rows + i / columns];
    }
  }
  return tensors;
}

double RelativeError(const std::vector<double>& a,
                     const std::vector<double>& b) {
  assert(a.size() == b.size());
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference / size);
}

}  // namespace shardshift::trainer
