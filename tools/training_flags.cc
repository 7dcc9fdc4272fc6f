// SPDX-License-Identifier: Apache-2.0
#include "tools/training_flags.h"

#include <string>

#include "tools/flag_group.h"

namespace shardshift {
namespace {

void AddActivationFlags(CLI::App& app, ActivationFlags& flags) {
  FlagGroup group(app, "Layout");
  group.Switch("--sequence-parallel,!--no-sequence-parallel",
               flags.sequence_parallel,
               "tensor-parallel ranks share out the positions, too, between "
               "attention and feed-forward blocks; nothing on one such rank");
  FlagGroup run(app, "Run");
  run.Choice("--recompute-granularity", flags.recompute_granularity,
             {"none", "selective", "full"},
             "what is computed again for the backward pass, to save memory: "
             "none (default), selective (attention probabilities), full "
             "(layers)");
  run.Choice("--recompute-method", flags.recompute_method, {"uniform", "block"},
             "full recomputation of all layers of a stage in groups (uniform), "
             "or of its first ones (block)");
  run.Int("--recompute-num-layers", flags.recompute_num_layers, 1,
          "layers of such a group, or how many first ones");
}

void AddMixtureLossFlags(CLI::App& app, RunFlags& flags) {
  FlagGroup group(app, "Experts");
  group.Choice("--moe-router-load-balancing-type",
               flags.moe_router_load_balancing_type,
               {"seq_aux_loss", "load_balancing_loss"},
               "the loss of --moe-aux-loss-coeff: Megatron's seq_aux_loss "
               "(default), of each sequence and layer; or transformers' "
               "load_balancing_loss, of the whole batch and all layers, with "
               "one more forward pass. Of a micro-batch, as other types are, "
               "the layout would show");
  group.Number("--moe-aux-loss-coeff", flags.moe_aux_loss_coeff, 0, kMaxNumber,
               "factor of the loss that balances the experts' load (0)");
  group.Number("--moe-z-loss-coeff", flags.moe_z_loss_coeff, 0, kMaxNumber,
               "factor of the loss that keeps the router's logits small (0)");
}

void AddPrecisionFlags(CLI::App& app, PrecisionFlags& flags) {
  const auto add = [&app, &flags](const char* precision, const char* help) {
    const auto set = [&flags, precision] { flags.precision = precision; };
    return app.add_flag_callback(std::string("--") + precision, set, help)
        ->group("Precision");
  };
  CLI::Option* fp32 = add("fp32", "compute in fp32 (default)");
  CLI::Option* bf16 = add("bf16",
                          "compute in bf16, with fp32 master weights and "
                          "gradients");
  CLI::Option* fp16 = add("fp16",
                          "compute in fp16, with fp32 master weights and "
                          "gradients, and a loss scale");
  fp32->excludes(bf16)->excludes(fp16);
  bf16->excludes(fp16);
  FlagGroup group(app, "Precision");
  group.Number("--loss-scale", flags.loss_scale, 0, kMaxNumber,
               "of fp16, a constant power of two up to 2^64; 0 (default) "
               "adapts it");
  group.Number("--initial-loss-scale", flags.initial_loss_scale, 0, kMaxNumber,
               "adapted loss scale to begin with, a power of two "
               "(4294967296 = 2^32)");
  group.Number("--min-loss-scale", flags.min_loss_scale, 0, kMaxNumber,
               "below which it does not fall, a power of two (1)");
  group.Int("--loss-scale-window", flags.loss_scale_window, 1,
            "iterations in a row without overflow that double it (1000)");
  group.Int("--hysteresis", flags.hysteresis, 1,
            "overflows since it last grew, from which on each halves it (2)");
}

}  // namespace

void AddTrainingFlags(CLI::App& app, RunFlags& flags) {
  AddActivationFlags(app, flags.activations);
  AddMixtureLossFlags(app, flags);
  AddPrecisionFlags(app, flags.precision);
}

}  // namespace shardshift
