// SPDX-License-Identifier: Apache-2.0
#include "tests/ckpt/golden.h"

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/box_copy.h"
#include "ckpt/core/coding.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "nlohmann/json.hpp"

namespace shardshift::ckpt {
namespace {

using nlohmann::json;

GoldenTensor TensorFrom(const json& object) {
  GoldenTensor tensor;
  tensor.info = {object.at("name"), object.at("role"),
                 ParseDType(object.at("dtype").get<std::string>()).value(),
                 object.at("shape")};
  tensor.fingerprint = object.at("fingerprint");
  const std::string values =
      absl::HexStringToBytes(object.at("values").get<std::string>());
  const auto bytes = AsBytes(values);
  tensor.values.assign(bytes.begin(), bytes.end());
  for (const json& piece : object.at("fragments")) {
    tensor.pieces.push_back(
        {piece.at("part"), {piece.at("start"), piece.at("extent")}});
  }
  return tensor;
}

std::vector<std::byte> ImageOf(const GoldenTensor& tensor, const Box& box) {
  const int64_t item_size = ItemSize(tensor.info.dtype);
  std::vector<std::byte> image(NumElements(box) * item_size);
  if (image.empty()) return image;
  CopyBox(tensor.values.data(), WholeBox(tensor.info.shape), image.data(), box,
          box, item_size);
  return image;
}

struct PartContent {
  std::vector<FragmentSpec> specs;
  std::vector<std::vector<std::byte>> images;
};

}  // namespace

absl::StatusOr<Golden> ReadGolden(const std::string& path) {
  SS_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  try {
    const json object = json::parse(text);
    Golden golden = {.id = {object.at("step"), object.at("state")},
                     .record = object.at("record"),
                     .root_fingerprint = object.at("root_fingerprint"),
                     .codec = static_cast<Codec>(object.value("codec", 0))};
    for (const json& tensor : object.at("tensors")) {
      golden.tensors.push_back(TensorFrom(tensor));
    }
    return golden;
  } catch (const json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", error.what()));
  }
}

absl::Status WriteGolden(const std::string& run_dir, const Golden& golden) {
  std::map<int64_t, PartContent> parts;
  for (const GoldenTensor& tensor : golden.tensors) {
    const Tensor& info = tensor.info;
    for (const auto& [part, box] : tensor.pieces) {
      parts[part].specs.push_back(
          {info.name, info.role, info.dtype, info.shape, box});
      parts[part].images.push_back(ImageOf(tensor, box));
    }
  }
  SS_ASSIGN_OR_RETURN(const std::string partial,
                      BeginCheckpoint(run_dir, golden.id.step));
  std::vector<PartReceipt> receipts;
  for (const auto& [part, content] : parts) {
    SS_ASSIGN_OR_RETURN(const std::unique_ptr<PartWriter> writer,
                        PartWriter::Create(partial, part, golden.id,
                                           content.specs, golden.codec));
    SS_RETURN_IF_ERROR(
        writer->WriteFragments(std::vector<std::span<const std::byte>>(
            content.images.begin(), content.images.end())));
    SS_ASSIGN_OR_RETURN(PartReceipt receipt, writer->Close());
    receipts.push_back(std::move(receipt));
  }
  return CommitCheckpoint(run_dir, golden.id, receipts, golden.record,
                          /*replace_existing=*/false);
}

}  // namespace shardshift::ckpt
