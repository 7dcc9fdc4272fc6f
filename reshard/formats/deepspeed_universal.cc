// A universal checkpoint: a folder of files for each parameter.
// Source: distributed-optimizer.md 4.4.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/deepspeed.h"
#include "reshard/formats/deepspeed_files.h"
#include "reshard/formats/deepspeed_model.h"
#include "reshard/formats/deepspeed_values.h"
#include "reshard/formats/deepspeed_zero.h"

namespace shardshift::reshard {
namespace {

constexpr char kMasterFile[] = "fp32.pt";
constexpr char kStepFile[] = "step.pt";

class UniversalReader {
 public:
  explicit UniversalReader(std::string directory)
      : directory_(std::move(directory)),
        zero_(ckpt::JoinPath(directory_, "zero")) {}

  absl::StatusOr<ForeignCheckpoint> Read() {
    SS_ASSIGN_OR_RETURN(const bool exists, ckpt::Exists(zero_));
    if (!exists) {
      return absl::NotFoundError(absl::StrCat(
          directory_, " has no folder zero, as a universal checkpoint has"));
    }
    SS_RETURN_IF_ERROR(ReadModels());
    SS_ASSIGN_OR_RETURN(std::vector<std::string> names,
                        ckpt::ListDirectory(zero_));
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      SS_ASSIGN_OR_RETURN(const bool is_folder,
                          ckpt::IsDirectory(ckpt::JoinPath(zero_, name)));
      if (is_folder) SS_RETURN_IF_ERROR(ReadFolder(name));
    }
    SS_RETURN_IF_ERROR(CheckAllThere());
    if (folder_.ranks.front().sharded) {
      // The converter makes no folders of what ZeRO-3 does not train.
      const DeepSpeedModel model = WithoutSeen();
      if (folder_.ranks.size() > 1 && !model.frozen.empty()) {
        return absl::UnimplementedError(
            absl::StrCat(directory_, " has shards of the frozen parameter ",
                         model.frozen.front().name,
                         " of tensor-parallel ranks, which cannot be read"));
      }
      SS_RETURN_IF_ERROR(AddUntrainedSharded(folder_.ranks.front(), model,
                                             model_file_, contents_));
    } else if (folder_.ranks.size() > 1 || !folder_.layers.empty()) {
      contents_.left_out.emplace_back(
          "weights of the model in files of model-parallel ranks, which are "
          "not compared with the masters");
    } else {
      SS_RETURN_IF_ERROR(AddWeights(OnlyTrained(), {}, model_file_, contents_));
    }
    SS_RETURN_IF_ERROR(ReadOptimizer());
    return Finish(directory_, "universal", model_, std::move(contents_));
  }

 private:
  // Of which list of param_shapes, and its shape there.
  struct Trained {
    size_t list = 0;
    ckpt::Shape shape;
  };

  absl::Status ReadModels() {
    SS_ASSIGN_OR_RETURN(folder_, ListDeepSpeedFiles(directory_));
    // Each of ZeRO-3's has all names, those of model-parallel ranks their own.
    for (size_t i = 0; i < folder_.ranks.size(); ++i) {
      const DeepSpeedFiles& files = folder_.ranks[i];
      SS_ASSIGN_OR_RETURN(const OpenedTorch source,
                          OpenTorch(files.models.front()));
      SS_ASSIGN_OR_RETURN(DeepSpeedModel model, ReadDeepSpeedModel(source));
      if (!model.param_shapes.has_value()) {
        return absl::DataLossError(absl::StrCat(
            model.path, " has no param_shapes, expected what is trained"));
      }
      AddShapes(*model.param_shapes);
      if (i == 0) {
        model_ = std::move(model);
        model_file_ =
            contents_.tensors.AddFile(source.torch.path(), source.num_bytes);
      } else {
        model_.shared.insert(model.shared.begin(), model.shared.end());
      }
    }
    steps_.resize(lists_.size());
    return absl::OkStatus();
  }

  void AddShapes(const std::vector<std::vector<ShapedName>>& shapes) {
    lists_.resize(std::max(lists_.size(), shapes.size()));
    for (size_t g = 0; g < shapes.size(); ++g) {
      for (const ShapedName& p : shapes[g]) {
        const bool is_new =
            trained_.try_emplace(p.name, Trained{g, p.shape}).second;
        if (is_new) lists_[g].push_back(p);
      }
    }
  }

  absl::Status ReadFolder(const std::string& name) {
    const auto trained = trained_.find(name);
    if (trained == trained_.end() && model_.shared.contains(name)) {
      return absl::OkStatus();
    }
    const std::string folder = ckpt::JoinPath(zero_, name);
    SS_ASSIGN_OR_RETURN(std::vector<std::string> names,
                        ckpt::ListDirectory(folder));
    std::sort(names.begin(), names.end());
    bool has_values = false;
    for (const std::string& file : names) {
      absl::string_view role = file;
      if (!absl::ConsumeSuffix(&role, ".pt")) continue;
      SS_ASSIGN_OR_RETURN(const OpenedTorch source,
                          OpenTorch(ckpt::JoinPath(folder, file)));
      if (file == kStepFile) {
        SS_ASSIGN_OR_RETURN(const double step,
                            ReadStep(source, source.torch.root()));
        if (trained != trained_.end()) {
          steps_[trained->second.list].insert(step);
        }
        continue;
      }
      if (file == kMasterFile) {
        has_values = true;
        role = trained == trained_.end() ? "weight" : "master";
      } else if (role == "master" || role == "weight") {
        continue;
      }
      SS_RETURN_IF_ERROR(Annotate(AddFile(source, name, std::string(role)),
                                  source.torch.path()));
    }
    if (!has_values) {
      return absl::DataLossError(absl::StrCat(folder, " has no ", kMasterFile));
    }
    seen_.insert(name);
    return absl::OkStatus();
  }

  // A dict around the tensor, or the tensor alone and flat.
  absl::Status AddFile(const OpenedTorch& source, const std::string& name,
                       const std::string& role) {
    const PickleValue root = source.torch.root();
    const bool is_flat = TorchFile::IsTensor(root);
    std::optional<PickleValue> value = root;
    if (!is_flat) {
      SS_ASSIGN_OR_RETURN(value, root.Get("param"));
    }
    SS_ASSIGN_OR_RETURN(const TorchTensor tensor, source.torch.Tensor(*value));
    const auto trained = trained_.find(name);
    const bool is_trained = trained != trained_.end();
    if (is_flat && !is_trained) {
      return absl::DataLossError(absl::StrCat(
          "has a flat tensor, and no param_shapes tells the shape of ", name));
    }
    // Those of several model-parallel ranks are parts.
    const bool is_whole = folder_.ranks.size() == 1;
    if (is_trained && (is_flat || is_whole)) {
      const ckpt::Shape& shape = trained->second.shape;
      const ckpt::Shape expected =
          is_flat ? ckpt::Shape{ckpt::NumElements(shape)} : shape;
      if (tensor.shape != expected || (is_flat && !is_whole)) {
        return absl::DataLossError(absl::StrCat(
            "has shape ", ckpt::ToString(tensor.shape), ", expected ",
            ckpt::ToString(expected), " by param_shapes of ", model_.path));
      }
    }
    const int64_t file =
        contents_.tensors.AddFile(source.torch.path(), source.num_bytes);
    if (!is_flat || !tensor.IsDense()) {
      return contents_.tensors.AddWhole(name, role, tensor, file);
    }
    contents_.tensors.AddCheck(tensor, file);
    return contents_.tensors.AddRun(
        {name, role, tensor.dtype, trained->second.shape}, 0,
        ckpt::NumElements(tensor.shape), file, tensor.offset_bytes);
  }

  absl::Status CheckAllThere() const {
    for (const auto& [name, trained] : trained_) {
      if (seen_.contains(name)) continue;
      return absl::DataLossError(absl::StrCat(ckpt::JoinPath(zero_, name),
                                              " is missing; param_shapes of ",
                                              model_.path, " lists it"));
    }
    return absl::OkStatus();
  }

  // The model without what a folder has told.
  DeepSpeedModel WithoutSeen() const {
    DeepSpeedModel model = model_;
    std::erase_if(model.buffers, [this](const std::string& name) {
      return seen_.contains(name);
    });
    std::erase_if(model.frozen, [this](const ShapedName& frozen) {
      return seen_.contains(frozen.name);
    });
    return model;
  }

  // The model's weights that folders have masters of.
  DeepSpeedModel OnlyTrained() const {
    DeepSpeedModel model = model_;
    std::erase_if(model.module, [this](const NamedTensor& named) {
      return !trained_.contains(named.name);
    });
    model.frozen.clear();
    model.frozen_fragments.clear();
    return model;
  }

  absl::Status ReadOptimizer() {
    const std::string path = ckpt::JoinPath(zero_, "optimizer_state.pt");
    SS_ASSIGN_OR_RETURN(const OpenedTorch source, OpenTorch(path));
    const auto read = [&]() -> absl::Status {
      const PickleValue root = source.torch.root();
      SS_ASSIGN_OR_RETURN(const auto inner, root.Find("optimizer_state_dict"));
      if (inner.has_value()) {
        SS_RETURN_IF_ERROR(ReadSteps(source, *inner));
      }
      SS_ASSIGN_OR_RETURN(const PickleValue groups, root.Get("param_groups"));
      SS_ASSIGN_OR_RETURN(contents_.generic["groups"],
                          GroupsOf(groups, lists_, steps_));
      SS_ASSIGN_OR_RETURN(const auto scaler, root.Find("loss_scaler"));
      if (scaler.has_value() && scaler->kind() == PickleKind::kObject) {
        SS_ASSIGN_OR_RETURN(contents_.generic["loss_scaler"],
                            ScalarsOf(*scaler));
      }
      return absl::OkStatus();
    };
    return Annotate(read(), path);
  }

  // Of what was ZeRO-3, which has no file for them.
  absl::Status ReadSteps(const OpenedTorch& source, const PickleValue& inner) {
    SS_ASSIGN_OR_RETURN(const PickleValue state, inner.Get("state"));
    SS_ASSIGN_OR_RETURN(const auto entries, state.AsEntries());
    for (const auto& [key, value] : entries) {
      SS_ASSIGN_OR_RETURN(const int64_t list, key.AsInt());
      if (list < 0 || list >= std::ssize(steps_)) {
        return value.Error(absl::StrCat("is of list ", list,
                                        " of param_shapes, which has ",
                                        steps_.size()));
      }
      SS_ASSIGN_OR_RETURN(const auto step, value.Find("step"));
      if (!step.has_value()) continue;
      SS_ASSIGN_OR_RETURN(const double number, ReadStep(source, *step));
      steps_[list].insert(number);
    }
    return absl::OkStatus();
  }

  const std::string directory_;
  const std::string zero_;
  DeepSpeedFolder folder_;
  DeepSpeedModel model_;  // of the first file
  int64_t model_file_ = 0;
  DeepSpeedContents contents_;
  std::map<std::string, Trained> trained_;
  std::vector<std::vector<ShapedName>> lists_;  // param_shapes of all files
  std::vector<std::set<double>> steps_;         // by list
  std::set<std::string> seen_;                  // folders
};

}  // namespace

absl::StatusOr<ForeignCheckpoint> ReadDeepSpeedUniversal(
    const std::string& path) {
  SS_ASSIGN_OR_RETURN(std::string directory,
                      DeepSpeedTag(path, "latest_universal"));
  return UniversalReader(std::move(directory)).Read();
}

}  // namespace shardshift::reshard
