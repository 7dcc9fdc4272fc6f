// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/dcp_export.h"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/exec/generic_plan.h"
#include "reshard/formats/dcp_writer.h"
#include "reshard/formats/generic.h"

namespace shardshift::reshard {
namespace {

absl::Status AddObjects(const CheckpointState& state, size_t file,
                        DcpWriter& writer) {
  const auto generic = state.state.find("generic");
  if (generic == state.state.end() || !generic->contains("objects")) {
    return absl::OkStatus();
  }
  for (const auto& [escaped, value] : (*generic)["objects"].items()) {
    std::string key;
    std::string bytes;
    if (!value.is_string() || !absl::CUnescape(escaped, &key) ||
        !absl::Base64Unescape(value.get<std::string>(), &bytes)) {
      return absl::DataLossError(
          absl::StrCat("checkpoint state: object ", escaped, " is no base64"));
    }
    writer.AddBytes(std::move(key), file, std::move(bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ExportPlan> PlanDcpExport(const ckpt::Reader& source,
                                         const ExportChoice& choice) {
  SS_ASSIGN_OR_RETURN(const CheckpointState state, ReadTexts(source));
  SS_ASSIGN_OR_RETURN(const CopyPlan copies,
                      PlanGenericCopy(source, 1, choice.choice));
  ExportPlan plan;
  DcpWriter writer({});
  const size_t file = writer.AddFile(kDcpDataFile);
  SS_RETURN_IF_ERROR(AddObjects(state, file, writer));
  for (const TensorCopy& copy : copies.tensors) {
    const ckpt::FragmentSpec& spec =
        copies.parts[0].specs[copy.targets[0].spec];
    const size_t tensor = writer.AddTensor(KeyOfName({spec.tensor, spec.role}),
                                           spec.dtype, spec.shape);
    writer.AddChunk(tensor, file, spec.box, {{spec, 0}});
    plan.tensors.push_back({copy.source, spec.tensor, spec.role});
  }
  std::move(writer).Finish(plan);
  NameState(state.state, {"generic"}, plan.left_out);
  return plan;
}

}  // namespace shardshift::reshard
