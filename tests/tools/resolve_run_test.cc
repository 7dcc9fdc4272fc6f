// SPDX-License-Identifier: Apache-2.0
#include "tools/resolve_run.h"

#include <gmock/gmock.h>

#include <functional>
#include <vector>

#include "tests/testutil/status_matchers.h"

namespace shardshift {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The flags a first start needs, and no other.
RunFlags NeededFlags() {
  RunFlags flags;
  flags.model.num_layers = 4;
  flags.model.hidden_size = 32;
  flags.model.num_attention_heads = 8;
  flags.model.vocab_size = 61;
  flags.seq_length = 16;
  flags.micro_batch_size = 2;
  flags.global_batch_size = 16;
  flags.train_iters = 10;
  flags.lr = 1e-3;
  return flags;
}

CheckpointRun Checkpoint() {
  RunFlags flags = NeededFlags();
  flags.layout.tensor = flags.layout.pipeline = flags.layout.data = 2;
  const absl::StatusOr<ResolvedRun> run = ResolveNewRun(flags);
  EXPECT_OK(run);
  return {.run = {.config = run->config, .progress = {}, .data = {}},
          .layout = run->layout,
          .micro_batch_size = run->micro_batch_size};
}

TEST(ResolveNewRun, FillsDefaultsThatFollowFromFlags) {
  ASSERT_OK_AND_ASSIGN(const ResolvedRun run, ResolveNewRun(NeededFlags()));
  const reshard::ModelConfig& model = run.config.model;
  EXPECT_EQ(model.ffn_hidden_size, 128);
  EXPECT_EQ(model.kv_channels, 4);
  EXPECT_EQ(model.num_query_groups, 8);
  EXPECT_EQ(model.max_position_embeddings, 16);
  EXPECT_EQ(model.normalization, reshard::Normalization::kLayerNorm);
  EXPECT_TRUE(model.add_bias_linear);
  EXPECT_EQ(run.config.numerics.tensor_granularity, 8);
  EXPECT_EQ(run.config.numerics.data_granularity, 16);
  EXPECT_EQ(model.padded_vocab_size, 128 * 8);
  EXPECT_EQ(run.config.schedule.decay_samples, 10 * 16);
  EXPECT_EQ(run.config.seed, 1234);
  EXPECT_EQ(run.layout, reshard::Layout{});
  EXPECT_THAT(run.changes, IsEmpty());
}

TEST(ResolveNewRun, MakesTheGlobalBatchOfOneMicroBatchARank) {
  RunFlags flags = NeededFlags();
  flags.global_batch_size.reset();
  flags.layout.data = 4;
  ASSERT_OK_AND_ASSIGN(const ResolvedRun run, ResolveNewRun(flags));
  EXPECT_EQ(run.config.global_batch_size, 8);
}

TEST(ResolveNewRun, TakesFlagsOverDefaults) {
  RunFlags flags = NeededFlags();
  flags.model.ffn_hidden_size = 64;
  flags.model.num_query_groups = 2;
  flags.model.normalization = "RMSNorm";
  flags.model.position_embedding_type = "rope";
  flags.model.swiglu = true;
  flags.model.disable_bias_linear = true;
  flags.model.make_vocab_size_divisible_by = 4;
  flags.tensor_granularity = 4;
  flags.data_granularity = 8;
  flags.seed = 5;
  flags.adam_beta2 = 0.95;
  flags.lr_decay_style = "cosine";
  flags.lr_warmup_iters = 3;
  flags.lr_decay_iters = 7;
  ASSERT_OK_AND_ASSIGN(const ResolvedRun run, ResolveNewRun(flags));
  const trainer::RunConfig& config = run.config;
  EXPECT_EQ(config.model.ffn_hidden_size, 64);
  EXPECT_EQ(config.model.num_query_groups, 2);
  EXPECT_EQ(config.model.normalization, reshard::Normalization::kRmsNorm);
  EXPECT_EQ(config.model.position_embedding, reshard::PositionEmbedding::kRope);
  EXPECT_TRUE(config.model.swiglu);
  EXPECT_FALSE(config.model.add_bias_linear);
  EXPECT_EQ(config.model.padded_vocab_size, 64);
  EXPECT_EQ(config.numerics.tensor_granularity, 4);
  EXPECT_EQ(config.numerics.data_granularity, 8);
  EXPECT_EQ(config.seed, 5);
  EXPECT_EQ(config.optimizer.beta2, 0.95);
  EXPECT_EQ(config.schedule.style, trainer::LrDecayStyle::kCosine);
  EXPECT_EQ(config.schedule.warmup_samples, 3 * 16);
  EXPECT_EQ(config.schedule.decay_samples, 7 * 16);
}

TEST(ResolveNewRun, NamesTheFlagThatIsMissing) {
  const auto missing = [](const char* flag,
                          const std::function<void(RunFlags&)>& drop) {
    RunFlags flags = NeededFlags();
    drop(flags);
    EXPECT_THAT(ResolveNewRun(flags),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(flag)));
  };
  missing("--num-layers", [](RunFlags& f) { f.model.num_layers.reset(); });
  missing("--hidden-size", [](RunFlags& f) { f.model.hidden_size.reset(); });
  missing("--num-attention-heads",
          [](RunFlags& f) { f.model.num_attention_heads.reset(); });
  missing("--vocab-size", [](RunFlags& f) { f.model.vocab_size.reset(); });
  missing("--seq-length", [](RunFlags& f) { f.seq_length.reset(); });
  missing("--micro-batch-size",
          [](RunFlags& f) { f.micro_batch_size.reset(); });
  missing("--lr", [](RunFlags& f) { f.lr.reset(); });
  missing("--train-iters", [](RunFlags& f) { f.train_iters.reset(); });
  missing("--hidden-size 34", [](RunFlags& f) { f.model.hidden_size = 34; });
}

TEST(ResolveResumedRun, KeepsTheCheckpointsRunWithoutFlags) {
  const CheckpointRun checkpoint = Checkpoint();
  ASSERT_OK_AND_ASSIGN(const ResolvedRun run,
                       ResolveResumedRun({}, checkpoint));
  EXPECT_EQ(run.layout, checkpoint.layout);
  EXPECT_EQ(run.micro_batch_size, 2);
  EXPECT_EQ(
      trainer::ToState({.config = run.config, .progress = {}, .data = {}}),
      trainer::ToState(checkpoint.run));
  EXPECT_THAT(run.changes, IsEmpty());
}

TEST(ResolveResumedRun, TakesTheSameFlagsAgainWithoutAWord) {
  RunFlags flags = NeededFlags();
  flags.lr_decay_iters = 10;
  ASSERT_OK_AND_ASSIGN(const ResolvedRun run,
                       ResolveResumedRun(flags, Checkpoint()));
  EXPECT_THAT(run.changes, IsEmpty());
}

TEST(ResolveResumedRun, ChangesLayoutFreelyAndSaysSo) {
  RunFlags flags;
  flags.layout.tensor = 4;
  flags.layout.pipeline = 1;
  flags.layout.distributed_optimizer = true;
  flags.micro_batch_size = 1;
  flags.activations.sequence_parallel = true;
  ASSERT_OK_AND_ASSIGN(const ResolvedRun run,
                       ResolveResumedRun(flags, Checkpoint()));
  EXPECT_TRUE(run.activations.sequence_parallel);
  EXPECT_EQ(run.layout, (reshard::Layout{.tensor = 4,
                                         .pipeline = 1,
                                         .data = 2,
                                         .distributed_optimizer = true}));
  EXPECT_THAT(run.changes,
              ElementsAre(HasSubstr("--tensor-model-parallel-size is 4, the "
                                    "checkpoint's run has 2"),
                          HasSubstr("--pipeline-model-parallel-size is 1"),
                          HasSubstr("--use-distributed-optimizer is on"),
                          HasSubstr("--micro-batch-size is 1"),
                          HasSubstr("--sequence-parallel is on")));
}

// Which flags go with which granularity.
TEST(ResolveNewRun, TakesTheFlagsOfRecomputationTogether) {
  const auto resolve = [](std::optional<std::string> granularity,
                          std::optional<std::string> method,
                          std::optional<int64_t> num_layers) {
    RunFlags flags = NeededFlags();
    flags.activations.recompute_granularity = std::move(granularity);
    flags.activations.recompute_method = std::move(method);
    flags.activations.recompute_num_layers = num_layers;
    return ResolveNewRun(flags);
  };
  ASSERT_OK_AND_ASSIGN(const ResolvedRun full, resolve("full", "block", 2));
  EXPECT_EQ(
      full.activations.recompute,
      (trainer::Recompute{.granularity = trainer::RecomputeGranularity::kFull,
                          .method = trainer::RecomputeMethod::kBlock,
                          .num_layers = 2}));
  EXPECT_OK(resolve("selective", std::nullopt, std::nullopt));
  const auto refused = [](const char* flag) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(flag));
  };
  EXPECT_THAT(resolve("full", "block", std::nullopt),
              refused("needs --recompute-num-layers"));
  EXPECT_THAT(resolve("full", std::nullopt, 2),
              refused("needs --recompute-method"));
  EXPECT_THAT(resolve("selective", "uniform", std::nullopt),
              refused("--recompute-method goes with"));
  EXPECT_THAT(resolve(std::nullopt, std::nullopt, 2),
              refused("--recompute-num-layers goes with"));
}

TEST(ResolveResumedRun, ChangesWhatIsRecomputedFreely) {
  CheckpointRun checkpoint = Checkpoint();
  checkpoint.activations.recompute = {
      .granularity = trainer::RecomputeGranularity::kFull,
      .method = trainer::RecomputeMethod::kBlock,
      .num_layers = 2};
  RunFlags flags;
  flags.activations.recompute_num_layers = 3;
  ASSERT_OK_AND_ASSIGN(const ResolvedRun more,
                       ResolveResumedRun(flags, checkpoint));
  EXPECT_EQ(more.activations.recompute.num_layers, 3);
  EXPECT_EQ(more.activations.recompute.method,
            trainer::RecomputeMethod::kBlock);
  flags.activations.recompute_num_layers.reset();
  flags.activations.recompute_granularity = "none";
  ASSERT_OK_AND_ASSIGN(const ResolvedRun none,
                       ResolveResumedRun(flags, checkpoint));
  EXPECT_EQ(none.activations.recompute, trainer::Recompute());
  EXPECT_THAT(none.changes,
              ElementsAre(HasSubstr("--recompute-granularity is none, the "
                                    "checkpoint's run has full")));
}

TEST(ResolveResumedRun, KeepsHowTheCheckpointsRunKeptActivations) {
  CheckpointRun checkpoint = Checkpoint();
  checkpoint.activations.sequence_parallel = true;
  ASSERT_OK_AND_ASSIGN(const ResolvedRun run,
                       ResolveResumedRun({}, checkpoint));
  EXPECT_EQ(run.activations, checkpoint.activations);
  EXPECT_THAT(run.changes, IsEmpty());
}

TEST(ResolveResumedRun, RefusesAnotherModelSeedOrSequence) {
  const auto refused = [](const char* says,
                          const std::function<void(RunFlags&)>& change) {
    RunFlags flags;
    flags.override_schedule = true;  // does not reach these
    change(flags);
    EXPECT_THAT(ResolveResumedRun(flags, Checkpoint()),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(says)));
  };
  refused("--num-layers is 2, the checkpoint's run has 4",
          [](RunFlags& f) { f.model.num_layers = 2; });
  refused("--ffn-hidden-size is 64",
          [](RunFlags& f) { f.model.ffn_hidden_size = 64; });
  refused("--num-query-groups is 1",
          [](RunFlags& f) { f.model.group_query_attention = true; });
  refused("--normalization is RMSNorm",
          [](RunFlags& f) { f.model.normalization = "RMSNorm"; });
  refused("--position-embedding-type is rope",
          [](RunFlags& f) { f.model.position_embedding_type = "rope"; });
  refused("biases", [](RunFlags& f) { f.model.disable_bias_linear = true; });
  refused("--untie-embeddings-and-output-weights is on",
          [](RunFlags& f) { f.model.untie_embeddings = true; });
  refused("padded vocabulary",
          [](RunFlags& f) { f.model.make_vocab_size_divisible_by = 64; });
  refused("--seq-length is 8", [](RunFlags& f) { f.seq_length = 8; });
  refused("--seed is 9", [](RunFlags& f) { f.seed = 9; });
}

TEST(ResolveResumedRun, ChangesTheScheduleOnlyWhenTold) {
  const std::vector<std::function<void(RunFlags&)>> changes = {
      [](RunFlags& f) { f.lr = 0.5; },
      [](RunFlags& f) { f.min_lr = 1e-5; },
      [](RunFlags& f) { f.lr_decay_style = "cosine"; },
      [](RunFlags& f) { f.lr_decay_iters = 99; },
      [](RunFlags& f) { f.lr_warmup_iters = 1; },
      [](RunFlags& f) { f.weight_decay = 0.5; },
      [](RunFlags& f) { f.adam_beta1 = 0.5; },
      [](RunFlags& f) { f.clip_grad = 2; },
      [](RunFlags& f) { f.global_batch_size = 32; }};
  for (const auto& change : changes) {
    RunFlags flags;
    change(flags);
    EXPECT_THAT(ResolveResumedRun(flags, Checkpoint()),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("--override-opt-param-scheduler")));
    flags.override_schedule = true;
    ASSERT_OK_AND_ASSIGN(const ResolvedRun run,
                         ResolveResumedRun(flags, Checkpoint()));
    EXPECT_EQ(run.changes.size(), 1);
  }
}

TEST(ResolveResumedRun, LetsTrainItersMoveWithoutTheSchedule) {
  RunFlags flags;
  flags.train_iters = 1000;
  ASSERT_OK_AND_ASSIGN(const ResolvedRun run,
                       ResolveResumedRun(flags, Checkpoint()));
  EXPECT_EQ(run.config.schedule.decay_samples, 10 * 16);
}

// As of an index that was made anew.
TEST(ResolveResumedRun, TakesFlagsAndDefaultsForWhatTheCheckpointDoesNotTell) {
  CheckpointRun checkpoint = Checkpoint();
  checkpoint.layout.reset();
  checkpoint.micro_batch_size.reset();
  RunFlags flags;
  flags.layout.tensor = 4;
  EXPECT_THAT(ResolveResumedRun(flags, checkpoint),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--micro-batch-size is missing; the "
                                 "checkpoint does not tell it")));
  flags.micro_batch_size = 1;
  EXPECT_THAT(ResolveResumedRun(flags, checkpoint),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--fp32, --bf16 or --fp16 is missing")));
  flags.precision.precision = "bf16";
  ASSERT_OK_AND_ASSIGN(const ResolvedRun run,
                       ResolveResumedRun(flags, checkpoint));
  EXPECT_EQ(run.activations.precision, trainer::Precision::kBf16);
  EXPECT_EQ(run.layout, reshard::Layout{.tensor = 4});
  EXPECT_EQ(run.micro_batch_size, 1);
  EXPECT_THAT(run.changes, IsEmpty());
}

TEST(ResolveResumedRun, RefusesALayoutBeyondTheRunsGranularity) {
  RunFlags flags;
  flags.layout.data = 16;
  flags.micro_batch_size = 1;
  CheckpointRun checkpoint = Checkpoint();
  checkpoint.run.config.numerics.data_granularity = 8;
  EXPECT_THAT(ResolveResumedRun(flags, checkpoint),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--data-granularity")));
  flags.data_granularity = 16;
  EXPECT_OK(ResolveResumedRun(flags, checkpoint));
}

TEST(ResolveNewRun, TakesTheWidthOfAnExpertFromTheFeedForwardBlock) {
  RunFlags flags = NeededFlags();
  flags.model.num_experts = 4;
  flags.layout.expert = flags.layout.data = 2;
  ASSERT_OK_AND_ASSIGN(const ResolvedRun run, ResolveNewRun(flags));
  EXPECT_EQ(run.config.model.moe_ffn_hidden_size, 128);
  EXPECT_EQ(run.layout.expert, 2);
  flags.model.moe_ffn_hidden_size = 12;
  ASSERT_OK_AND_ASSIGN(const ResolvedRun narrow, ResolveNewRun(flags));
  EXPECT_EQ(narrow.config.model.moe_ffn_hidden_size, 12);
  EXPECT_EQ(narrow.config.numerics.tensor_granularity, 4);
}

TEST(ResolveNewRun, TakesTheModelOfWeightsAndNoFlagAgainstIt) {
  const KnownModel weights = {.model = Checkpoint().run.config.model,
                              .origin = "the weights"};
  RunFlags flags = NeededFlags();
  flags.model = {};
  ASSERT_OK_AND_ASSIGN(const ResolvedRun run, ResolveNewRun(flags, weights));
  EXPECT_EQ(run.config.model, weights.model);
  flags.model.num_layers = 4;
  EXPECT_OK(ResolveNewRun(flags, weights));
  flags.model.num_layers = 3;
  EXPECT_THAT(ResolveNewRun(flags, weights),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--num-layers is 3, the weights has 4")));
  // As Hugging Face has it, without padding.
  KnownModel unpadded = weights;
  unpadded.model.padded_vocab_size = unpadded.model.vocab_size;
  EXPECT_OK(CheckSameModel(weights, unpadded));
  unpadded.model.sliding_window = 4;
  EXPECT_THAT(CheckSameModel(unpadded, weights),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("sliding_window 4, the weights has its "
                                 "default")));
}

TEST(ResolveResumedRun, RefusesWhatTheTrainerCannotRun) {
  CheckpointRun checkpoint = Checkpoint();
  checkpoint.run.config.model.num_experts = 4;
  checkpoint.run.config.model.add_bias_linear = true;
  EXPECT_THAT(
      ResolveResumedRun({}, checkpoint),
      StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("--num-experts 4")));
}

TEST(ResolveResumedRun, KeepsTheStagesOfTheCheckpoint) {
  CheckpointRun checkpoint = Checkpoint();
  checkpoint.layout->virtual_stages = 2;
  RunFlags flags;
  flags.layout.pipeline = checkpoint.layout->pipeline;
  flags.layout.data = 1;
  ASSERT_OK_AND_ASSIGN(const ResolvedRun run,
                       ResolveResumedRun(flags, checkpoint));
  EXPECT_EQ(run.layout.virtual_stages, 2);
  EXPECT_THAT(run.changes,
              ::testing::ElementsAre(HasSubstr("--data-parallel-size is 1")));
}

TEST(ResolveResumedRun, TakesTheStageFlagsTogether) {
  CheckpointRun checkpoint = Checkpoint();
  checkpoint.layout->virtual_stages = 2;
  RunFlags flags;
  flags.layout.first_stage_layers = 1;
  ASSERT_OK_AND_ASSIGN(const ResolvedRun uneven,
                       ResolveResumedRun(flags, checkpoint));
  EXPECT_EQ(uneven.layout.virtual_stages, 0);
  EXPECT_EQ(uneven.layout.first_stage_layers, 1);
  EXPECT_EQ(uneven.layout.data, checkpoint.layout->data);
  EXPECT_THAT(uneven.changes,
              ::testing::ElementsAre(
                  "layers go to stages as in TP2 PP2 DP2 first-stage-layers=1, "
                  "in the checkpoint's run as in TP2 PP2 DP2 VPP2"));
  flags = {};
  flags.layout.pipeline = 1;
  ASSERT_OK_AND_ASSIGN(const ResolvedRun one_stage,
                       ResolveResumedRun(flags, checkpoint));
  EXPECT_EQ(one_stage.layout,
            (reshard::Layout{.tensor = 2, .pipeline = 1, .data = 2}));
}

}  // namespace
}  // namespace shardshift
