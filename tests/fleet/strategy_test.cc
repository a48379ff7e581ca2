// Strategies take what the original takes and refuse the rest by name.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/strategy/communicator_flags.h"
#include "fleet/strategy/distributed_strategy.h"

namespace millrace::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

EnvironmentReader variables(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  };
}

TEST(Strategy, ModeOfEveryPair) {
  struct Row {
    bool a_sync;
    int64_t k_steps;
    int mode;  // -1: none
  };
  for (const Row& row : {Row{false, 0, 0}, Row{true, 0, 1}, Row{true, 1, 3}, Row{true, 400, 3},
                         Row{false, 1, -1}, Row{false, -1, -1}, Row{true, -1, -1}}) {
    DistributedStrategy strategy;
    strategy.set_a_sync(row.a_sync);
    ASSERT_TRUE(strategy.set_a_sync_configs({{"k_steps", row.k_steps}}).ok());
    const auto mode = strategy.mode();
    EXPECT_EQ(mode.ok() ? static_cast<int>(*mode) : -1, row.mode) << row.a_sync << row.k_steps;
    if (row.mode == -1) {
      EXPECT_THAT(mode.status().message(),
                  HasSubstr("k_steps=" + std::to_string(row.k_steps) + " is no mode"));
    }
  }
}

TEST(Strategy, TheSwitchResetsTheSteps) {
  DistributedStrategy strategy;
  EXPECT_FALSE(strategy.mode().ok());  // nobody has chosen
  ASSERT_TRUE(strategy.set_a_sync_configs({{"k_steps", int64_t{5}}}).ok());
  strategy.set_a_sync(true);
  EXPECT_EQ(*strategy.mode(), ps::CommMode::kAsync);
}

TEST(Strategy, RefusesUnknownKeysAndTypes) {
  DistributedStrategy strategy;
  const Status unknown = strategy.set_a_sync_configs({{"k_step", int64_t{1}}});
  EXPECT_EQ(unknown.message(), "a_sync_configs: key 'k_step' is not known");
  EXPECT_EQ(unknown.hint(), "did you mean 'k_steps'?");
  EXPECT_EQ(strategy.set_a_sync_configs({{"k_steps", "many"}}).message(),
            "a_sync_configs.k_steps: expected a whole number, found a string");
  EXPECT_EQ(strategy.set_a_sync_configs({{"heter_worker_device_guard", "tpu"}}).message(),
            "a_sync_configs.heter_worker_device_guard: expected cpu, gpu or xpu, found 'tpu'");
  EXPECT_TRUE(strategy.set_a_sync_configs({{"heter_worker_device_guard", "GPU"}}).ok());
  EXPECT_EQ(strategy.set_trainer_desc_configs({{"dump_fields", "x"}}).message(),
            "trainer_desc_configs.dump_fields: expected a list of strings, found a string");
  EXPECT_THAT(strategy.set_fs_client_param({{"url", "x"}}).message(),
              HasSubstr("key 'url' is not known"));
  EXPECT_EQ(strategy.a_sync_configs().k_steps, -1);  // as it was
}

TEST(Strategy, RefusesWrongTableSettings) {
  struct Row {
    ConfigDict configs;
    std::string message;
  };
  DistributedStrategy strategy;
  for (const Row& row :
       {Row{{{"sparse_colour", int64_t{1}}}, "['emb']: key 'sparse_colour' is not known"},
        Row{{{"sparse_table_class", "Other"}},
            "sparse_table_class: expected DownpourSparseTable or DownpourSparseSSDTable, found "
            "'Other'"},
        Row{{{"sparse_accessor_class", "Other"}},
            "sparse_accessor_class: expected one of DownpourSparseValueAccessor"},
        Row{{{"sparse_optimizer", "lamb"}},
            "sparse_optimizer: expected one of naive, adagrad, adagrad_v2, std_adagrad, adam, "
            "shared_adam, found 'lamb'"},
        Row{{{"sparse_accessor_class", "DownpourUnitAccessor"},
             {"embedx_sparse_optimizer", "lamb"}},
            "embedx_sparse_optimizer: expected one of"},
        Row{{{"sparse_weight_bounds", std::vector<double>{1}}},
            "sparse_weight_bounds: expected two numbers, found 1"},
        Row{{{"sparse_shard_num", -1}}, "sparse_shard_num: expected a whole number from 0"},
        Row{{{"sparse_learning_rate", "fast"}},
            "sparse_learning_rate: expected a number, found a string"}}) {
    EXPECT_THAT(strategy.set_table_configs("emb", row.configs).message(), HasSubstr(row.message));
  }
  EXPECT_EQ(strategy.table_configs("emb"), nullptr);
  EXPECT_TRUE(strategy.set_table_configs("emb", {{"sparse_shard_num", int64_t{7}}}).ok());
  EXPECT_NE(strategy.table_configs("emb"), nullptr);
}

TEST(CommunicatorFlags, FollowModeAndEnvironment) {
  const auto environment = variables({{"CPU_NUM", "4"},
                                      {"FLAGS_communicator_send_queue_size", "9"},
                                      {"FLAGS_communicator_thread_pool_size", "2"}});
  EXPECT_THAT(communicator_flags(ps::CommMode::kSync, 0, environment),
              ElementsAre(Pair("communicator_max_merge_var_num", "4"),
                          Pair("communicator_send_queue_size", "4"),
                          Pair("communicator_send_wait_times", "5"),
                          Pair("communicator_thread_pool_size", "2")));
  EXPECT_THAT(communicator_flags(ps::CommMode::kGeo, 100, environment),
              ElementsAre(Pair("communicator_max_merge_var_num", "100"),
                          Pair("communicator_send_queue_size", "9"),
                          Pair("communicator_send_wait_times", "5"),
                          Pair("communicator_thread_pool_size", "2")));
  EXPECT_THAT(communicator_flags(ps::CommMode::kAsync, 0, variables({})),
              ElementsAre(Pair("communicator_independent_recv_thread", "1"),
                          Pair("communicator_is_sgd_optimizer", "1"),
                          Pair("communicator_max_merge_var_num", "1"),
                          Pair("communicator_min_send_grad_num_before_recv", "1"),
                          Pair("communicator_send_queue_size", "1"),
                          Pair("communicator_send_wait_times", "5"),
                          Pair("communicator_thread_pool_size", "5")));
}

}  // namespace
}  // namespace millrace::fleet
