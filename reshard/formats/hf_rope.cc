// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/hf_rope.h"

#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "reshard/layout/json_text.h"

namespace shardshift::reshard {
namespace {

using nlohmann::json;

constexpr char kPlain[] = "default";
constexpr char kLinear[] = "linear";
constexpr char kLlama3[] = "llama3";

std::string ReadType(JsonFields& rope) {
  const std::string old = rope.Text("type", kPlain);
  std::string type = rope.Text("rope_type", old);
  if (!rope.IsNull("type") && type != old) {
    rope.RefuseValue("type", absl::StrCat("what rope_type is: ", Quoted(type)));
  }
  return type;
}

void ReadScaling(JsonFields& rope, const std::string& type,
                 ModelConfig& model) {
  std::vector<absl::string_view> known = {"rope_type", "type", "rope_theta",
                                          "partial_rotary_factor"};
  if (type == kLinear) {
    known.push_back("factor");
    model.rotary_seq_len_interpolation_factor = rope.Number("factor");
  } else if (type == kLlama3) {
    known.insert(known.end(), {"factor", "low_freq_factor", "high_freq_factor",
                               "original_max_position_embeddings"});
    model.use_rope_scaling = true;
    model.rope_scaling_factor = rope.Number("factor");
    model.rope_low_freq_factor = rope.Number("low_freq_factor");
    model.rope_high_freq_factor = rope.Number("high_freq_factor");
    model.rope_original_max_position_embeddings =
        rope.Int("original_max_position_embeddings");
  } else if (type != kPlain) {
    rope.Refuse(absl::UnimplementedError(absl::StrCat(
        "rope_type ", Quoted(type),
        " is not supported, only default, linear "
        "and llama3; `reshard --generic` takes the tensors as they are")));
  }
  for (const auto& [key, value] : rope.object().items()) {
    if (absl::c_linear_search(known, key)) continue;
    rope.RefuseValue(key,
                     absl::StrCat("no such key with rope_type ", Quoted(type)));
  }
}

void RefusePartial(JsonFields& fields) {
  constexpr char kKey[] = "partial_rotary_factor";
  if (fields.Number(kKey, 1.0) != 1) {
    fields.RefuseValue(kKey, "1: only whole heads are rotated here");
  }
}

}  // namespace

void ReadHfRope(JsonFields& fields, double default_theta, ModelConfig& model) {
  RefusePartial(fields);
  model.rotary_base = fields.Number("rope_theta", default_theta);
  const bool is_new = !fields.IsNull("rope_parameters");
  const char* key = is_new ? "rope_parameters" : "rope_scaling";
  if (is_new && !fields.IsNull("rope_scaling")) {
    fields.RefuseValue("rope_scaling", "none beside \"rope_parameters\"");
  }
  const json& value = fields.Value(key);
  if (value.is_null()) return;
  if (!value.is_object()) return fields.RefuseValue(key, "an object");
  JsonFields rope(value, absl::StrCat(key, "."));
  RefusePartial(rope);
  const double theta = rope.Number("rope_theta", model.rotary_base);
  if (!fields.IsNull("rope_theta") && theta != model.rotary_base) {
    rope.RefuseValue("rope_theta", absl::StrCat("\"rope_theta\" beside it, ",
                                                model.rotary_base));
  }
  model.rotary_base = theta;
  ReadScaling(rope, ReadType(rope), model);
  fields.Refuse(rope.status());
}

void WriteHfRope(const ModelConfig& model, json& config) {
  config["rope_theta"] = model.rotary_base;
  json& scaling = config["rope_scaling"];
  if (model.use_rope_scaling) {
    scaling = {{"rope_type", kLlama3},
               {"factor", model.rope_scaling_factor},
               {"low_freq_factor", model.rope_low_freq_factor},
               {"high_freq_factor", model.rope_high_freq_factor},
               {"original_max_position_embeddings",
                model.rope_original_max_position_embeddings}};
  } else if (model.rotary_seq_len_interpolation_factor != 1) {
    scaling = {{"rope_type", kLinear},
               {"factor", model.rotary_seq_len_interpolation_factor}};
  }
}

}  // namespace shardshift::reshard
