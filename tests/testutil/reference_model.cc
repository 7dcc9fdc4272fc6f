// SPDX-License-Identifier: Apache-2.0
#include "tests/testutil/reference_model.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "reshard/layout/parameters.h"

namespace shardshift {
namespace {

using Vector = ReferenceModel::Vector;

void AddTo(Vector& x, const Vector& y) {
  for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

double Gelu(double x) {
  const double inner =
      std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1 + std::tanh(inner));
}

double ExactGelu(double x) {
  return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
}

double Silu(double x) { return x / (1 + std::exp(-x)); }

// Turns scores into probabilities; gives the logarithm of their sum.
double Softmax(Vector& scores) {
  const double max = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - max);
  for (double& score : scores) score /= sum;
  return max + std::log(sum);
}

}  // namespace

ReferenceModel::ReferenceModel(const reshard::ModelConfig& model,
                               int64_t seq_length,
                               const RouterLoss& router_loss)
    : model_(model), seq_length_(seq_length), router_loss_(router_loss) {
  for (const reshard::LogicalTensor& tensor : reshard::LogicalTensors(model)) {
    index_.emplace(tensor.name, static_cast<int64_t>(index_.size()));
  }
}

const Vector* ReferenceModel::Find(const Tensors& tensors,
                                   const std::string& name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors[it->second];
}

ReferenceModel::Rows ReferenceModel::Embed(
    const Tensors& tensors, std::span<const int32_t> tokens) const {
  const int64_t hidden = model_.hidden_size;
  const auto row = [hidden](const Vector& table, int64_t index) {
    return Vector(table.begin() + index * hidden,
                  table.begin() + (index + 1) * hidden);
  };
  const Vector* positions = Find(tensors, "embedding.position.weight");
  Rows x;
  for (int64_t t = 0; t < seq_length_; ++t) {
    x.push_back(row(*Find(tensors, "embedding.word.weight"), tokens[t]));
    if (positions != nullptr) AddTo(x.back(), row(*positions, t));
  }
  return x;
}

ReferenceModel::Rows ReferenceModel::Normalize(const Tensors& tensors,
                                               const std::string& name,
                                               const Rows& x,
                                               int64_t width) const {
  const Vector& weight = *Find(tensors, name + ".weight");
  const Vector* bias = Find(tensors, name + ".bias");
  const auto count = static_cast<double>(width);
  Rows y = x;
  const auto normalize = [&](double* values) {
    double mean = 0;
    if (model_.normalization == reshard::Normalization::kLayerNorm) {
      for (int64_t i = 0; i < width; ++i) mean += values[i] / count;
    }
    double variance = 0;
    for (int64_t i = 0; i < width; ++i) {
      variance += (values[i] - mean) * (values[i] - mean) / count;
    }
    const double scale = 1 / std::sqrt(variance + model_.norm_epsilon);
    for (int64_t i = 0; i < width; ++i) {
      values[i] = (values[i] - mean) * scale * weight[i];
      if (bias != nullptr) values[i] += (*bias)[i];
    }
  };
  for (Vector& row : y) {
    for (size_t at = 0; at < row.size(); at += width) normalize(&row[at]);
  }
  return y;
}

ReferenceModel::Rows ReferenceModel::Multiply(const Tensors& tensors,
                                              const std::string& name,
                                              const Rows& x) const {
  const Vector& weight = *Find(tensors, name + ".weight");
  const Vector* bias = Find(tensors, name + ".bias");
  const size_t in = x[0].size();
  Rows y(x.size(), Vector(weight.size() / in));
  for (size_t t = 0; t < x.size(); ++t) {
    for (size_t o = 0; o < y[t].size(); ++o) {
      for (size_t i = 0; i < in; ++i) y[t][o] += weight[o * in + i] * x[t][i];
    }
    if (bias != nullptr) AddTo(y[t], *bias);
  }
  return y;
}

double ReferenceModel::Frequency(int64_t pair) const {
  const double frequency =
      std::pow(model_.rotary_base, -2 * static_cast<double>(pair) /
                                       static_cast<double>(model_.kv_channels));
  if (!model_.use_rope_scaling) {
    return frequency / model_.rotary_seq_len_interpolation_factor;
  }
  const double turns =
      frequency *
      static_cast<double>(model_.rope_original_max_position_embeddings) /
      (2 * std::numbers::pi);
  const double kept = std::clamp(
      (turns - model_.rope_low_freq_factor) /
          (model_.rope_high_freq_factor - model_.rope_low_freq_factor),
      0.0, 1.0);
  return frequency * (kept + (1 - kept) / model_.rope_scaling_factor);
}

void ReferenceModel::Rotate(Vector& heads, int64_t position) const {
  const int64_t head = model_.kv_channels;
  const int64_t half = head / 2;
  for (size_t first = 0; first < heads.size(); first += head) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) * Frequency(i);
      const bool neighbours = model_.rotary_interleaved;
      double& a = heads[first + (neighbours ? 2 * i : i)];
      double& b = heads[first + (neighbours ? 2 * i + 1 : half + i)];
      const double rotated = a * std::cos(angle) - b * std::sin(angle);
      b = b * std::cos(angle) + a * std::sin(angle);
      a = rotated;
    }
  }
}

ReferenceModel::Rows ReferenceModel::Attend(const Rows& q, const Rows& k,
                                            const Rows& v) const {
  const int64_t head = model_.kv_channels;
  const int64_t heads_per_group =
      model_.num_attention_heads / model_.num_query_groups;
  Rows y(q.size(), Vector(q[0].size()));
  for (int64_t h = 0; h < model_.num_attention_heads; ++h) {
    const int64_t at = h * head;
    const int64_t group_at = h / heads_per_group * head;
    for (size_t t = 0; t < q.size(); ++t) {
      const size_t window = model_.sliding_window;
      const size_t first = window > 0 && t >= window ? t - window + 1 : 0;
      Vector scores(t + 1 - first);
      for (size_t s = 0; s < scores.size(); ++s) {
        for (int64_t i = 0; i < head; ++i) {
          scores[s] += q[t][at + i] * k[first + s][group_at + i];
        }
        scores[s] /= std::sqrt(static_cast<double>(head));
      }
      Softmax(scores);
      for (size_t s = 0; s < scores.size(); ++s) {
        for (int64_t i = 0; i < head; ++i) {
          y[t][at + i] += scores[s] * v[first + s][group_at + i];
        }
      }
    }
  }
  return y;
}

ReferenceModel::Rows ReferenceModel::Mlp(const Tensors& tensors,
                                         const std::string& prefix,
                                         const Rows& x) const {
  Rows inner = Multiply(tensors, prefix + "up", x);
  if (model_.swiglu) {
    const Rows gate = Multiply(tensors, prefix + "gate", x);
    for (size_t t = 0; t < inner.size(); ++t) {
      for (size_t i = 0; i < inner[t].size(); ++i) {
        inner[t][i] *= Silu(gate[t][i]);
      }
    }
  } else {
    for (Vector& row : inner) {
      for (double& value : row) {
        value = model_.exact_gelu ? ExactGelu(value) : Gelu(value);
      }
    }
  }
  return Multiply(tensors, prefix + "down", inner);
}

void ReferenceModel::AddRouter(const Rows& logits,
                               const std::vector<int64_t>& tokens_of,
                               RouterSums& sums) const {
  const auto count = static_cast<double>(seq_length_);
  double aux = 0;
  double z = 0;
  for (Vector probabilities : logits) {
    const double log_sum = Softmax(probabilities);
    z += log_sum * log_sum;
    for (size_t e = 0; e < tokens_of.size(); ++e) {
      aux += probabilities[e] * static_cast<double>(tokens_of[e]);
      sums.shares[e] += probabilities[e];
    }
  }
  for (size_t e = 0; e < tokens_of.size(); ++e) {
    sums.tokens[e] += static_cast<double>(tokens_of[e]);
  }
  aux *= static_cast<double>(model_.num_experts) /
         (static_cast<double>(model_.moe_router_topk) * count * count);
  // The mean over samples, as a sum over tokens.
  if (!router_loss_.of_batch) sums.loss += router_loss_.aux_coeff * aux * count;
  sums.loss += router_loss_.z_coeff * z;
}

double ReferenceModel::BatchLoss(const RouterSums& sums, double count) const {
  if (!router_loss_.of_batch) return 0;
  const double rows = static_cast<double>(model_.num_expert_layers()) * count;
  double loss = 0;
  for (size_t e = 0; e < sums.tokens.size(); ++e) {
    loss += sums.tokens[e] / rows * sums.shares[e] / rows;
  }
  return router_loss_.aux_coeff * static_cast<double>(model_.num_experts) *
         loss * count;
}

ReferenceModel::Rows ReferenceModel::Mixture(const Tensors& tensors,
                                             const std::string& prefix,
                                             const Rows& x,
                                             RouterSums& sums) const {
  const int64_t topk = model_.moe_router_topk;
  const Rows logits = Multiply(tensors, prefix + "router", x);
  std::vector<int64_t> tokens_of(model_.num_experts, 0);
  Rows y(x.size(), Vector(model_.hidden_size, 0.0));
  for (size_t t = 0; t < x.size(); ++t) {
    std::vector<int64_t> experts(model_.num_experts);
    std::iota(experts.begin(), experts.end(), 0);
    std::ranges::stable_sort(experts, [&](int64_t a, int64_t b) {
      return logits[t][a] > logits[t][b];
    });
    Vector weights;
    for (const int64_t e : experts) weights.push_back(logits[t][e]);
    if (!model_.moe_router_pre_softmax) weights.resize(topk);
    Softmax(weights);
    for (int64_t j = 0; j < topk; ++j) {
      ++tokens_of[experts[j]];
      Vector out =
          Mlp(tensors, prefix + "experts." + std::to_string(experts[j]) + ".",
              {x[t]})[0];
      for (double& value : out) value *= weights[j];
      AddTo(y[t], out);
    }
  }
  AddRouter(logits, tokens_of, sums);
  if (model_.moe_shared_expert_intermediate_size == 0) return y;
  Rows shared = Mlp(tensors, prefix + "shared_experts.", x);
  if (model_.moe_shared_expert_gate) {
    const Rows gate =
        Multiply(tensors, prefix + "shared_experts.output_gate", x);
    for (size_t t = 0; t < x.size(); ++t) {
      for (double& value : shared[t]) value /= 1 + std::exp(-gate[t][0]);
    }
  }
  for (size_t t = 0; t < x.size(); ++t) AddTo(y[t], shared[t]);
  return y;
}

double ReferenceModel::SampleLoss(const Tensors& tensors,
                                  std::span<const int32_t> tokens,
                                  std::span<const int32_t> labels,
                                  RouterSums& sums) const {
  double loss = 0;
  const auto add = [](Rows& x, const Rows& y) {
    for (size_t t = 0; t < x.size(); ++t) AddTo(x[t], y[t]);
  };
  const int64_t hidden = model_.hidden_size;
  Rows x = Embed(tensors, tokens);
  for (int64_t number = 0; number < model_.num_layers; ++number) {
    const std::string layer = "layers." + std::to_string(number) + ".";
    const Rows in = Normalize(tensors, layer + "attention_norm", x, hidden);
    Rows q = Multiply(tensors, layer + "attention.q", in);
    Rows k = Multiply(tensors, layer + "attention.k", in);
    const Rows v = Multiply(tensors, layer + "attention.v", in);
    if (model_.qk_layernorm) {
      q = Normalize(tensors, layer + "attention.q_norm", q, model_.kv_channels);
      k = Normalize(tensors, layer + "attention.k_norm", k, model_.kv_channels);
    }
    if (model_.position_embedding == reshard::PositionEmbedding::kRope) {
      for (int64_t t = 0; t < seq_length_; ++t) {
        Rotate(q[t], t);
        Rotate(k[t], t);
      }
    }
    add(x, Multiply(tensors, layer + "attention.proj", Attend(q, k, v)));
    const Rows mlp_in = Normalize(tensors, layer + "mlp_norm", x, hidden);
    add(x, model_.has_experts(number)
               ? Mixture(tensors, layer + "mlp.", mlp_in, sums)
               : Mlp(tensors, layer + "mlp.", mlp_in));
  }
  const bool untied = model_.untie_embeddings_and_output_weights;
  Rows logits = Multiply(tensors, untied ? "output" : "embedding.word",
                         Normalize(tensors, "final_norm", x, hidden));
  for (int64_t t = 0; t < seq_length_; ++t) {
    const double predicted = logits[t][labels[t]];
    loss += Softmax(logits[t]) - predicted;
  }
  return loss;
}

ReferenceModel::Losses ReferenceModel::MeanLoss(
    const Tensors& tensors, std::span<const int32_t> tokens,
    std::span<const int32_t> labels) const {
  RouterSums routers = {.tokens = Vector(model_.num_experts, 0.0),
                        .shares = Vector(model_.num_experts, 0.0)};
  double loss = 0;
  for (size_t at = 0; at < tokens.size(); at += seq_length_) {
    loss += SampleLoss(tensors, tokens.subspan(at, seq_length_),
                       labels.subspan(at, seq_length_), routers);
  }
  const auto count = static_cast<double>(tokens.size());
  routers.loss += BatchLoss(routers, count);
  return {.tokens = loss / count, .routers = routers.loss / count};
}

}  // namespace shardshift
