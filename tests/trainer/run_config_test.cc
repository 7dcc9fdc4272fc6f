// SPDX-License-Identifier: Apache-2.0
#include "trainer/run_config.h"

#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "tests/testutil/status_matchers.h"
#include "tests/trainer/tiny_model.h"
#include "trainer/run_state.h"

namespace shardshift::trainer {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// No field has its default or the value of another.
StoredRun DistinctRun() {
  StoredRun run;
  run.config = TinyLlama();
  run.config.seed = 77;
  run.config.init_method_std = 0.1;
  run.config.optimizer = {.beta1 = 0.8,
                          .beta2 = 0.95,
                          .eps = 1e-7,
                          .weight_decay = 0.3,
                          .clip_grad = 0.7};
  run.config.schedule = {.style = LrDecayStyle::kInverseSquareRoot,
                         .max_lr = 1.0 / 3,
                         .min_lr = 1e-5,
                         .init_lr = 1e-6,
                         .warmup_samples = 48,
                         .decay_samples = 320};
  run.config.loss_scaling = {.constant = 0x1p4,
                             .initial = 0x1p20,
                             .min = 2.0,
                             .window = 17,
                             .hysteresis = 5};
  run.progress = {
      .step = 12,
      .consumed_samples = 192,
      .skipped_iterations = 2,
      .skipped_samples = 31,
      .loss_scale = LossScale{
          .scale = 0x1p9, .growth_tracker = 7, .hysteresis_tracker = 4}};
  run.data = {{"order", "shuffled"}, {"source", {{"tokens", 99}}}};
  return run;
}

TEST(RunState, ComesBackWhole) {
  const StoredRun run = DistinctRun();
  const json state = json::parse(ToState(run).dump());
  ASSERT_OK_AND_ASSIGN(const StoredRun back, RunFromState(state));
  EXPECT_EQ(back.config.model, run.config.model);
  EXPECT_EQ(back.config.seq_length, run.config.seq_length);
  EXPECT_EQ(back.config.global_batch_size, run.config.global_batch_size);
  EXPECT_EQ(back.config.seed, run.config.seed);
  EXPECT_EQ(back.config.init_method_std, run.config.init_method_std);
  EXPECT_EQ(back.config.optimizer, run.config.optimizer);
  EXPECT_EQ(back.config.schedule.style, run.config.schedule.style);
  EXPECT_EQ(back.config.numerics, run.config.numerics);
  EXPECT_EQ(back.progress.step, 12);
  EXPECT_EQ(back.progress.consumed_samples, 192);
  EXPECT_EQ(back.progress.skipped_iterations, 2);
  EXPECT_EQ(back.progress.skipped_samples, 31);
  EXPECT_EQ(back.progress.loss_scale, run.progress.loss_scale);
  EXPECT_EQ(back.config.loss_scaling, run.config.loss_scaling);
  EXPECT_EQ(back.data, run.data);
  EXPECT_EQ(ToState(back), state);
}

TEST(RunState, IsRefusedWithoutAnyOneOfItsKeys) {
  const json state = ToState(DistinctRun());
  for (const char* section : {"model", "training", "optimizer", "loss_scaling",
                              "schedule", "numerics", "progress"}) {
    for (const auto& [key, value] : state[section].items()) {
      json damaged = state;
      damaged[section].erase(key);
      // What is not there where nothing was skipped.
      if (!absl::StartsWith(key, "skipped_")) {
        EXPECT_THAT(RunFromState(damaged),
                    StatusIs(absl::StatusCode::kDataLoss, HasSubstr(key)))
            << section;
      }
      damaged[section][key] = json::array();
      EXPECT_THAT(RunFromState(damaged),
                  StatusIs(absl::StatusCode::kDataLoss, HasSubstr(key)))
          << section;
    }
    json damaged = state;
    damaged.erase(section);
    if (std::string_view(section) == "loss_scaling") continue;  // its defaults
    EXPECT_THAT(RunFromState(damaged),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr(section)));
  }
}

TEST(RunState, IsRefusedWithAnotherOptimizer) {
  json state = ToState(DistinctRun());
  state["optimizer"]["name"] = "sgd";
  EXPECT_THAT(RunFromState(state),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("\"sgd\"")));
}

TEST(RunState, IsRefusedWithNegativeProgress) {
  json state = ToState(DistinctRun());
  state["progress"]["step"] = -1;
  EXPECT_THAT(RunFromState(state),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("progress")));
}

TEST(RunState, IsRefusedWithMoreSkippedThanDoneOrALossScaleThatCannotBe) {
  const json state = ToState(DistinctRun());
  const std::pair<const char*, json> wrong[] = {{"skipped_iterations", 13},
                                                {"skipped_samples", 193},
                                                {"loss_scale", 3.0},
                                                {"growth_tracker", -1},
                                                {"hysteresis_tracker", -1}};
  for (const auto& [key, value] : wrong) {
    json damaged = state;
    damaged["progress"][key] = value;
    EXPECT_THAT(RunFromState(damaged),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("progress")))
        << key;
  }
}

TEST(RunState, HasNoTrackersWhereNoLossIsScaled) {
  StoredRun run = DistinctRun();
  run.progress = {.step = 12, .consumed_samples = 192};
  const json progress = {{"step", 12},
                         {"consumed_samples", 192},
                         {"skipped_iterations", 0},
                         {"loss_scale", 1.0}};
  EXPECT_EQ(ToState(run)["progress"], progress);
  ASSERT_OK_AND_ASSIGN(const StoredRun back, RunFromState(ToState(run)));
  EXPECT_EQ(back.progress.loss_scale, std::nullopt);
}

TEST(RunState, HasKeysOfTheRoutersLossWhereThereIsOne) {
  StoredRun run = DistinctRun();
  EXPECT_FALSE(
      ToState(run)["training"].contains("moe_router_load_balancing_type"));
  run.config.moe_loss = {.load_balancing = LoadBalancing::kLoadBalancingLoss,
                         .aux_coeff = 0.5,
                         .z_coeff = 0.25};
  json state = ToState(run);
  ASSERT_OK_AND_ASSIGN(const StoredRun back, RunFromState(state));
  EXPECT_EQ(back.config.moe_loss.load_balancing,
            LoadBalancing::kLoadBalancingLoss);
  EXPECT_EQ(back.config.moe_loss.aux_coeff, 0.5);
  EXPECT_EQ(back.config.moe_loss.z_coeff, 0.25);
  for (const json& wrong : {json("sinkhorn"), json(1)}) {
    state["training"]["moe_router_load_balancing_type"] = wrong;
    EXPECT_THAT(RunFromState(state),
                StatusIs(absl::StatusCode::kDataLoss,
                         HasSubstr("moe_router_load_balancing_type")));
  }
}

TEST(RunState, HasKeysOfDropoutWhereSomethingIsDropped) {
  StoredRun run = DistinctRun();
  EXPECT_FALSE(ToState(run)["training"].contains("attention_dropout"));
  EXPECT_FALSE(ToState(run)["training"].contains("hidden_dropout"));
  run.config.attention_dropout = 0.1;
  run.config.hidden_dropout = 0.25;
  json state = ToState(run);
  ASSERT_OK_AND_ASSIGN(const StoredRun back, RunFromState(state));
  EXPECT_EQ(back.config.attention_dropout, 0.1);
  EXPECT_EQ(back.config.hidden_dropout, 0.25);
  state["training"]["hidden_dropout"] = "much";
  EXPECT_THAT(RunFromState(state), StatusIs(absl::StatusCode::kDataLoss,
                                            HasSubstr("hidden_dropout")));
}

TEST(Validate, RefusesToDropEverything) {
  RunConfig config = TinyGpt();
  config.hidden_dropout = 1;
  EXPECT_THAT(Validate(config, {}, 1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--hidden-dropout")));
}

TEST(ToRecord, HoldsWhatActivationsDoNotHaveByDefault) {
  EXPECT_FALSE(ToRecord({}, 1, {}).contains("sequence_parallel"));
  const ActivationOptions options = {.sequence_parallel = true};
  const json record = ToRecord({}, 1, options);
  EXPECT_EQ(record["sequence_parallel"], true);
  ASSERT_OK_AND_ASSIGN(const ActivationOptions back,
                       ActivationsFromRecord(record));
  EXPECT_EQ(back, options);
  ASSERT_OK_AND_ASSIGN(const ActivationOptions none,
                       ActivationsFromRecord(json::object()));
  EXPECT_EQ(none, ActivationOptions());
  EXPECT_THAT(
      ActivationsFromRecord({{"sequence_parallel", 1}}),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("sequence_parallel")));
}

TEST(RecordFromJson, TellsWhatTheRecordHolds) {
  ASSERT_OK_AND_ASSIGN(
      const StoredRecord record,
      RecordFromJson(ToRecord({}, 3, {.sequence_parallel = true})));
  EXPECT_EQ(record.micro_batch_size, 3);
  EXPECT_TRUE(record.activations.sequence_parallel);
  ASSERT_OK_AND_ASSIGN(const StoredRecord nothing,
                       RecordFromJson(json::object()));
  EXPECT_EQ(nothing.micro_batch_size, std::nullopt);
  EXPECT_THAT(
      RecordFromJson({{"micro_batch_size", "3"}}),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("micro_batch_size")));
}

TEST(ToRecord, HoldsWhatIsRecomputed) {
  EXPECT_FALSE(ToRecord({}, 1, {}).contains("recompute_granularity"));
  for (const Recompute& recompute :
       {Recompute{.granularity = RecomputeGranularity::kSelective},
        Recompute{.granularity = RecomputeGranularity::kFull,
        .method = RecomputeMethod::kBlock,
        .num_layers = 3}}) {
    const ActivationOptions options = {.recompute = recompute};
    ASSERT_OK_AND_ASSIGN(const ActivationOptions back,
                         ActivationsFromRecord(ToRecord({}, 1, options)));
    EXPECT_EQ(back, options);
  }
  const json full = {{"recompute_granularity", "full"},
                     {"recompute_method", "uniform"},
                     {"recompute_num_layers", 2}};
  EXPECT_OK(ActivationsFromRecord(full));
  for (const auto& [key, value] : full.items()) {
    for (const json& wrong : {json("some"), json(0), json(nullptr)}) {
      json record = full;
      record[key] = wrong;
      EXPECT_THAT(ActivationsFromRecord(record),
                  StatusIs(absl::StatusCode::kDataLoss, HasSubstr(key)))
          << record;
    }
  }
}

TEST(ToRecord, HoldsLayoutAndMicroBatch) {
  const json record = ToRecord({.tensor = 2, .pipeline = 4}, 3);
  EXPECT_EQ(record["layout"]["tensor_model_parallel_size"], 2);
  EXPECT_EQ(record["layout"]["pipeline_model_parallel_size"], 4);
  EXPECT_EQ(record["micro_batch_size"], 3);
}

struct Wrong {
  const char* says;
  std::function<void(RunConfig&)> break_it = [](RunConfig&) {};
  reshard::Layout layout = {};
  int64_t micro_batch_size = 1;
};

std::vector<Wrong> WrongRuns() {
  return {
      {"--seq-length", [](RunConfig& c) { c.seq_length = 0; }},
      {"--global-batch-size", [](RunConfig& c) { c.global_batch_size = 0; }},
      {"--micro-batch-size", [](RunConfig&) {}, {}, 0},
      {"--max-position-embeddings", [](RunConfig& c) { c.seq_length = 24; }},
      {"--global-batch-size 16 is not divisible by --micro-batch-size 2 times "
       "--data-parallel-size 16",
       [](RunConfig&) {},
       {.data = 16},
       2},
      {"--num-attention-heads",
       [](RunConfig& c) {
         c.model.num_attention_heads = c.model.num_query_groups = 6;
       },
       {.tensor = 4}},
      {"--num-layers", [](RunConfig&) {}, {.pipeline = 3}},
      {"--tensor-granularity",
       [](RunConfig& c) { c.numerics.tensor_granularity = 3; }},
      {"--seq-length", [](RunConfig& c) { c.seq_length = 12; }},
      {"--data-granularity",
       [](RunConfig& c) { c.numerics.data_granularity = 5; }},
      {"--tensor-model-parallel-size 4",
       [](RunConfig& c) { c.numerics.tensor_granularity = 2; },
       {.tensor = 4}},
      {"--data-parallel-size 8",
       [](RunConfig& c) { c.numerics.data_granularity = 4; },
       {.data = 8}},
      {"--lr", [](RunConfig& c) { c.schedule.max_lr = -1; }},
  };
}

TEST(ValidateRun, NamesTheFlagOfWhatCannotBe) {
  ASSERT_OK(Validate(TinyGpt(), {}, 1));
  for (const Wrong& wrong : WrongRuns()) {
    RunConfig config = TinyGpt();
    wrong.break_it(config);
    EXPECT_THAT(
        Validate(config, wrong.layout, wrong.micro_batch_size),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(wrong.says)));
  }
}

// micro-batch x data-parallel once wrapped to 0, and divided the batch.
TEST(ValidateRun, RefusesSizesWhoseProductsOverflow) {
  const RunConfig config = TinyGpt();
  const reshard::Layout layout = {.data = 4};
  for (const int64_t micro_batch : {int64_t{1} << 62, int64_t{1} << 31}) {
    EXPECT_THAT(Validate(config, layout, micro_batch),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("--micro-batch-size is")));
  }
}

TEST(CheckTrainable, RefusesExpertsWithBiases) {
  for (const TinyFamily& family : TinyFamilies()) {
    EXPECT_OK(CheckTrainable(family.config.model)) << family.name;
  }
  reshard::ModelConfig model = TinyMixtral().model;
  EXPECT_OK(CheckTrainable(model));
  model.add_bias_linear = true;
  EXPECT_THAT(CheckTrainable(model),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("--disable-bias-linear")));
}

TEST(ValidateActivations, ExpertsUnderTensorParallelismNeedSequenceParallel) {
  const reshard::ModelConfig model = TinyMixtral().model;
  EXPECT_OK(Validate(ActivationOptions{}, model, {.data = 2}));
  EXPECT_OK(Validate(ActivationOptions{.sequence_parallel = true}, model,
                     {.tensor = 2}));
  EXPECT_OK(Validate(ActivationOptions{}, TinyLlama().model, {.tensor = 2}));
  EXPECT_THAT(Validate(ActivationOptions{}, model, {.tensor = 2}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--sequence-parallel")));
}

TEST(ValidateRun, KeepsASampleOnOneCopyOfTheExperts) {
  const RunConfig config = TinyMixtral();
  EXPECT_OK(Validate(
      config, {.tensor = 2, .data = 2, .expert = 4, .expert_tensor = 1}, 1));
  EXPECT_THAT(Validate(config, {.tensor = 2, .data = 2, .expert_tensor = 1}, 1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--expert-tensor-parallel-size 1 is not "
                                 "divisible by --tensor-model-parallel-size")));
}

TEST(ValidateRun, AcceptsEveryTinyLayout) {
  for (const reshard::Layout& layout : TinyLayouts()) {
    for (const TinyFamily& family : TinyFamilies()) {
      EXPECT_OK(Validate(family.config, layout, 2)) << NameOf(layout);
    }
  }
}

}  // namespace
}  // namespace shardshift::trainer
