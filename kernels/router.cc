// SPDX-License-Identifier: Apache-2.0
#include "kernels/router.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "kernels/lane_sum.h"
#include "kernels/math.h"

namespace shardshift::kernels {
namespace {

// e^x for x <= 0, 0 where it would be below the range of Exp.
double ExpOfNegative(double x) {
  constexpr double kLeast = -700;
  return x < kLeast ? 0 : Exp(x);
}

double Sigmoid(float x) {
  const double e = ExpOfNegative(-std::abs(static_cast<double>(x)));
  return x < 0 ? e / (1 + e) : 1 / (1 + e);
}

void Choose(std::span<const float> logits, std::span<int32_t> chosen) {
  std::vector<bool> is_chosen(logits.size());
  for (int32_t& choice : chosen) {
    int32_t best = -1;
    for (int32_t e = 0; e < std::ssize(logits); ++e) {
      if (is_chosen[e]) continue;
      if (best < 0 || logits[e] > logits[best]) best = e;
    }
    is_chosen[best] = true;
    choice = best;
  }
}

// A softmax of logits(0..count-1), and the logarithm of its sum.
template <typename Logit>
double Softmax(int64_t count, Logit logit, double* p) {
  double max = logit(0);
  for (int64_t i = 1; i < count; ++i) max = std::max(max, logit(i));
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    p[i] = ExpOfNegative(logit(i) - max);
    sum += p[i];
  }
  for (int64_t i = 0; i < count; ++i) p[i] /= sum;
  return max + Log(sum);
}

// The softmaxes of one row.
class Row {
 public:
  Row(const float* logits, int64_t experts, const int32_t* chosen, int64_t topk)
      : logits_(logits), chosen_(chosen), all_(experts), of_chosen_(topk) {}

  double OverAll() {
    return Softmax(
        std::ssize(all_),
        [this](int64_t e) { return static_cast<double>(logits_[e]); },
        all_.data());
  }
  void OverChosen() {
    Softmax(
        std::ssize(of_chosen_),
        [this](int64_t j) { return static_cast<double>(logits_[chosen_[j]]); },
        of_chosen_.data());
  }
  const std::vector<double>& all() const { return all_; }
  const std::vector<double>& of_chosen() const { return of_chosen_; }

 private:
  const float* logits_;
  const int32_t* chosen_;
  std::vector<double> all_;
  std::vector<double> of_chosen_;
};

// Adds the gradient of sum over j of d(j) p(index(j)) through the softmax p
// over all experts.
template <typename Index, typename Gradient>
void AddThroughSoftmax(const std::vector<double>& p, int64_t count, Index index,
                       Gradient d, std::vector<double>& dlogits) {
  double dot = 0;
  for (int64_t j = 0; j < count; ++j) {
    dot += p[index(j)] * d(j);
    dlogits[index(j)] += p[index(j)] * d(j);
  }
  for (size_t e = 0; e < p.size(); ++e) dlogits[e] -= p[e] * dot;
}

}  // namespace

void Route(const RouteArgs& args) {
  for (int64_t r = 0; r < args.rows; ++r) {
    const float* logits = args.logits + r * args.experts;
    int32_t* chosen = args.chosen + r * args.topk;
    Choose({logits, static_cast<size_t>(args.experts)},
           {chosen, static_cast<size_t>(args.topk)});
    Row row(logits, args.experts, chosen, args.topk);
    if (args.over_all) {
      row.OverAll();
    } else {
      row.OverChosen();
    }
    for (int64_t j = 0; j < args.topk; ++j) {
      args.weights[r * args.topk + j] = static_cast<float>(
          args.over_all ? row.all()[chosen[j]] : row.of_chosen()[j]);
    }
  }
}

void RouteBackward(const RouteBackwardArgs& args) {
  const auto same = [](int64_t e) { return e; };
  for (int64_t r = 0; r < args.rows; ++r) {
    const int32_t* chosen = args.chosen + r * args.topk;
    const float* dweights = args.dweights + r * args.topk;
    Row row(args.logits + r * args.experts, args.experts, chosen, args.topk);
    std::vector<double> dlogits(args.experts, 0.0);
    if (args.over_all || args.load != nullptr || args.z_loss != 0) {
      const double log_sum = row.OverAll();
      for (int64_t e = 0; e < args.experts; ++e) {
        dlogits[e] = 2 * args.z_loss * log_sum * row.all()[e];
      }
    }
    if (args.load != nullptr) {
      AddThroughSoftmax(
          row.all(), args.experts, same,
          [&](int64_t e) { return args.load[e]; }, dlogits);
    }
    if (args.over_all) {
      AddThroughSoftmax(
          row.all(), args.topk, [&](int64_t j) { return chosen[j]; },
          [&](int64_t j) { return static_cast<double>(dweights[j]); }, dlogits);
    } else {
      row.OverChosen();
      std::vector<double> of_chosen(args.topk, 0.0);
      AddThroughSoftmax(
          row.of_chosen(), args.topk, same,
          [&](int64_t j) { return static_cast<double>(dweights[j]); },
          of_chosen);
      for (int64_t j = 0; j < args.topk; ++j)
        dlogits[chosen[j]] += of_chosen[j];
    }
    for (int64_t e = 0; e < args.experts; ++e) {
      args.dlogits[r * args.experts + e] = static_cast<float>(dlogits[e]);
    }
  }
}

void Combine(const CombineArgs& args) {
  for (int64_t r = 0; r < args.rows; ++r) {
    float* y = args.y + r * args.width;
    for (int64_t j = 0; j < args.topk; ++j) {
      const float* output = args.outputs[r * args.topk + j];
      const float weight =
          args.weights == nullptr ? 1.0F : args.weights[r * args.topk + j];
      for (int64_t i = 0; i < args.width; ++i) {
        y[i] = std::fmaf(weight, output[i], y[i]);
      }
    }
  }
}

void CombineBackward(const CombineBackwardArgs& args) {
  for (int64_t r = 0; r < args.rows; ++r) {
    const float* dy = args.dy + r * args.width;
    for (int64_t slot = r * args.topk; slot < (r + 1) * args.topk; ++slot) {
      LaneSum sum;
      for (int64_t i = 0; i < args.width; ++i) {
        sum.AddProduct(i, args.outputs[slot][i], dy[i]);
      }
      args.dweights[slot] = sum.Total();
      for (int64_t i = 0; i < args.width; ++i) {
        args.doutputs[slot][i] = args.weights[slot] * dy[i];
      }
    }
  }
}

void Gate(const GateArgs& args) {
  for (int64_t r = 0; r < args.rows; ++r) {
    const auto open = static_cast<float>(Sigmoid(args.gate[r]));
    for (int64_t i = r * args.width; i < (r + 1) * args.width; ++i) {
      args.y[i] = open * args.x[i];
    }
  }
}

void GateBackward(const GateBackwardArgs& args) {
  for (int64_t r = 0; r < args.rows; ++r) {
    const double open = Sigmoid(args.gate[r]);
    const float* x = args.x + r * args.width;
    const float* dy = args.dy + r * args.width;
    LaneSum sum;
    for (int64_t i = 0; i < args.width; ++i) sum.AddProduct(i, x[i], dy[i]);
    args.dgate[r] = static_cast<float>(static_cast<double>(sum.Total()) * open *
                                       (1 - open));
    float* dx = args.dx + r * args.width;
    for (int64_t i = 0; i < args.width; ++i) {
      dx[i] = static_cast<float>(open) * dy[i];
    }
  }
}

}  // namespace shardshift::kernels
