// SPDX-License-Identifier: Apache-2.0
#include "tests/reshard/formats/megatron_sample.h"

#include "absl/strings/match.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "ckpt/reader.h"
#include "reshard/exec/export.h"
#include "reshard/formats/plan_export.h"
#include "reshard/formats/torch_file.h"
#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {

std::string MegatronSampleTest::Path(const std::string& name) const {
  return ckpt::JoinPath(directory_.path(), name);
}

void MegatronSampleTest::Make(const ModelConfig& model, const Layout& layout) {
  ASSERT_OK(WriteSynth(Path("run"), model, {}));
  ASSERT_OK(Export("run", "megatron", layout));
}

absl::Status MegatronSampleTest::Export(const std::string& from,
                                        const std::string& to,
                                        const SampleExport& choice) const {
  OpenOptions options;
  options.foreign.weights_only = choice.weights_only;
  SS_ASSIGN_OR_RETURN(OpenedSource source, OpenSource(Path(from), options));
  ExportChoice wanted;
  wanted.layout = choice.layout;
  wanted.choice.weights_only = choice.weights_only;
  wanted.choice.dtype = choice.dtype;
  const auto make = [&](const OpenedSource& opened,
                        const auto& verify) -> absl::StatusOr<ReshardReport> {
    const ReshardOptions how = {.before_publish = verify};
    if (choice.to == Format::kNative) {
      return ReshardCheckpoint(*opened.reader, Path(to), choice.layout, how);
    }
    SS_ASSIGN_OR_RETURN(const ExportPlan plan,
                        PlanExport(opened, choice.to, wanted));
    return ExportCheckpoint(*opened.reader, Path(to), plan, how);
  };
  SS_ASSIGN_OR_RETURN(const ReshardReport report,
                      CopyVerified(Path(from), options, source, make));
  return report.proof;
}

std::string MegatronSampleTest::FileOf(const std::string& rank,
                                       const std::string& name) const {
  return ckpt::JoinPath(Path("megatron/iter_0000003"),
                        ckpt::JoinPath(rank, name));
}

std::vector<std::string> MegatronSampleTest::NamesOf(
    const std::string& rank, const std::string& chunk) const {
  std::vector<std::string> names;
  const auto read = [&]() -> absl::Status {
    SS_ASSIGN_OR_RETURN(const ckpt::File file,
                        ckpt::File::OpenForRead(FileOf(rank)));
    SS_ASSIGN_OR_RETURN(const TorchFile torch, TorchFile::Read(file));
    SS_ASSIGN_OR_RETURN(const PickleValue module, torch.root().Get(chunk));
    SS_ASSIGN_OR_RETURN(const auto entries, module.AsEntries());
    for (const auto& [key, value] : entries) {
      names.emplace_back(*key.AsString());
    }
    return absl::OkStatus();
  };
  EXPECT_OK(read());
  return names;
}

bool MegatronSampleTest::Has(const std::vector<std::string>& names,
                             absl::string_view part) {
  for (const std::string& name : names) {
    if (absl::StrContains(name, part)) return true;
  }
  return false;
}

absl::StatusOr<OpenedSource> MegatronSampleTest::Open(const std::string& name,
                                                      bool weights_only) const {
  OpenOptions options;
  options.foreign.weights_only = weights_only;
  options.verify = true;
  options.fingerprints = true;
  return OpenSource(Path(name), options);
}

void MegatronSampleTest::ExpectEqual(const std::string& copy) const {
  ASSERT_OK_AND_ASSIGN(const OpenedSource a, OpenSource(Path("run"), {}));
  ASSERT_OK_AND_ASSIGN(const OpenedSource b, Open(copy));
  EXPECT_EQ(ckpt::RootFingerprintOf(a.reader->table()),
            ckpt::RootFingerprintOf(b.reader->table()));
}

Layout Stages(int64_t pipeline, int64_t chunks) {
  Layout layout;
  layout.pipeline = pipeline;
  layout.virtual_stages = chunks;
  return layout;
}

}  // namespace shardshift::reshard
