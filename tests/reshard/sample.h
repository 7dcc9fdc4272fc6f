// Models, layouts and run directories for tests.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TESTS_RESHARD_SAMPLE_H_
#define SHARDSHIFT_TESTS_RESHARD_SAMPLE_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ckpt/core/box.h"
#include "ckpt/format/table.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/model_config.h"
#include "reshard/layout/parameters.h"

namespace shardshift::reshard {

// 4 layers, hidden size 16, 4 heads of width 4, vocabulary 251 padded to 256.
// The GPT-2 kind has biases everywhere and tied embeddings; the Llama kind has
// 2 query groups, SwiGLU, no biases and untied embeddings.
ModelConfig GptModel();
ModelConfig LlamaModel();

// The Llama kind with 4 experts of width 8, a shared one with a gate, and norms
// of queries and keys.
ModelConfig MixtureModel();

int64_t Uniform(std::mt19937& random, int64_t min, int64_t max);

// Any mixture of the two kinds, small; a rank may hold nothing but padding of
// the vocabulary.
ModelConfig RandomModel(std::mt19937& random);

// A layout of at most 16 ranks that the model can have.
Layout RandomLayout(const ModelConfig& model, std::mt19937& random);

// The same two for every kind of model and layout there is: experts and their
// axes, interleaved and uneven stages.
ModelConfig RandomMixture(std::mt19937& random);
Layout RandomWideLayout(const ModelConfig& model, std::mt19937& random);

// The parameters of a rank with a plain layout: one buffer a rank.
std::vector<Parameter> LocalParameters(const ModelConfig& model,
                                       const Layout& layout,
                                       int64_t tensor_rank, int64_t stage);

// A box of up to `max_ndim` dims away from the origin, not empty.
ckpt::Box RandomBox(int64_t max_ndim, std::mt19937& random);

// Row-major indices, within `whole`, of the elements of `box`, in order.
std::vector<int64_t> ElementsOf(const ckpt::Box& whole, const ckpt::Box& box);

// Index into LogicalTensors(model).
int64_t TensorNamed(const ModelConfig& model, const std::string& name);

// The texts of WriteSynth.
nlohmann::json SampleState(const ModelConfig& model);
nlohmann::json SampleRecord(const Layout& layout);

// A synthetic checkpoint, step 3.
absl::Status WriteSynth(const std::string& run_dir, const ModelConfig& model,
                        const Layout& layout,
                        ckpt::Codec codec = ckpt::Codec::kNone);

// The step directory of WriteSynth and what is made from it.
std::string StepOf(const std::string& run_dir);

// Every file and link below a directory: path to contents.
std::map<std::string, std::string> Snapshot(const std::string& directory);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_TESTS_RESHARD_SAMPLE_H_
