// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "trainer/data/indexed_dataset.h"
#include "trainer/data/token_source.h"

namespace shardshift::trainer {
namespace {

absl::StatusOr<nlohmann::json> FileIdentity(const IndexedDataset& dataset) {
  SS_ASSIGN_OR_RETURN(std::string index_digest, dataset.IndexDigest());
  SS_ASSIGN_OR_RETURN(std::string tokens_digest, dataset.TokensDigest());
  return nlohmann::json{{"documents", dataset.num_documents()},
                        {"index_digest", std::move(index_digest)},
                        {"sequences", dataset.num_sequences()},
                        {"tokens", dataset.num_tokens()},
                        {"tokens_digest", std::move(tokens_digest)}};
}

class IndexedTokenSource : public TokenSource {
 public:
  IndexedTokenSource(std::vector<IndexedDataset> datasets,
                     nlohmann::json identity, int64_t seq_length,
                     int64_t vocab_size)
      : datasets_(std::move(datasets)),
        identity_(std::move(identity)),
        seq_length_(seq_length),
        vocab_size_(vocab_size) {
    for (const IndexedDataset& dataset : datasets_) {
      num_tokens_ += dataset.num_tokens();
    }
  }

  // The last label of a sample is the first input of the next.
  int64_t num_samples() const override {
    return std::max<int64_t>(num_tokens_ - 1, 0) / seq_length_;
  }
  int64_t seq_length() const override { return seq_length_; }
  int64_t num_tokens() const { return num_tokens_; }
  nlohmann::json Identity() const override { return identity_; }

  absl::Status Sample(int64_t index, std::span<int32_t> tokens) const override {
    if (index < 0 || index >= num_samples()) {
      return absl::OutOfRangeError(
          absl::StrCat("sample ", index, " of a data set of ", num_samples()));
    }
    int64_t skip = index * seq_length_;
    for (const IndexedDataset& dataset : datasets_) {
      const int64_t here =
          std::min<int64_t>(dataset.num_tokens() - skip, std::ssize(tokens));
      if (here > 0) {
        SS_RETURN_IF_ERROR(
            dataset.ReadTokens(skip, vocab_size_, tokens.first(here)));
        tokens = tokens.subspan(here);
      }
      skip = std::max<int64_t>(skip - dataset.num_tokens(), 0);
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<IndexedDataset> datasets_;
  const nlohmann::json identity_;
  const int64_t seq_length_;
  const int64_t vocab_size_;
  int64_t num_tokens_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TokenSource>> OpenIndexedTokenSource(
    const std::vector<std::string>& prefixes, int64_t seq_length,
    int64_t vocab_size) {
  std::vector<IndexedDataset> datasets;
  nlohmann::json files = nlohmann::json::array();
  for (const std::string& prefix : prefixes) {
    SS_ASSIGN_OR_RETURN(IndexedDataset dataset, IndexedDataset::Open(prefix));
    SS_ASSIGN_OR_RETURN(nlohmann::json identity, FileIdentity(dataset));
    files.push_back(std::move(identity));
    datasets.push_back(std::move(dataset));
  }
  auto source = std::make_unique<IndexedTokenSource>(
      std::move(datasets),
      nlohmann::json{{"files", std::move(files)}, {"kind", "indexed"}},
      seq_length, vocab_size);
  if (source->num_samples() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the data hold ", source->num_tokens(), " tokens, one sample needs ",
        seq_length + 1, "; shorten --seq-length or give more data"));
  }
  return source;
}

}  // namespace shardshift::trainer
