// Strategies accept the options of the original and refuse others by name.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/strategy/communicator_flags.h"
#include "fleet/strategy/distributed_strategy.h"
#include "fleet/strategy/strategy_remarks.h"
#include "fleet/strategy/table_settings.h"
#include "proto/fleet_desc.pb.h"

namespace millrace::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
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
  EXPECT_FALSE(strategy.mode().ok());  // no mode was set
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
  EXPECT_EQ(strategy.a_sync_configs().k_steps, -1);  // unchanged
}

TEST(Strategy, TellsWhatNobodyReads) {
  const auto remarks = [](const std::function<Status(DistributedStrategy&)>& set) {
    DistributedStrategy strategy;
    const Status status = set(strategy);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return strategy_remarks(strategy, transpiler::TablePlan());
  };
  const auto async = [&](const char* key, const ConfigValue& value) {
    return remarks([&](DistributedStrategy& s) { return s.set_a_sync_configs({{key, value}}); });
  };
  for (const auto& [key, value] :
       {std::pair<const char*, ConfigValue>("max_merge_var_num", int64_t{7}),
        {"send_queue_size", int64_t{7}},
        {"independent_recv_thread", true},
        {"min_send_grad_num_before_recv", int64_t{7}},
        {"thread_pool_size", int64_t{7}},
        {"send_wait_times", int64_t{7}},
        {"runtime_split_send_recv", true},
        {"heter_worker_device_guard", "gpu"},
        {"lr_decay_steps", int64_t{7}}}) {
    EXPECT_THAT(async(key, value),
                ElementsAre(HasSubstr("a_sync_configs." + std::string(key) + " has no effect")))
        << key;
  }
  EXPECT_THAT(async("k_steps", int64_t{7}), IsEmpty());
  EXPECT_THAT(async("thread_pool_size", int64_t{1}), IsEmpty());  // the default
  for (const char* const key : {"uri", "user", "passwd", "hadoop_bin"}) {
    EXPECT_THAT(remarks([&](DistributedStrategy& s) {
                  return s.set_fs_client_param({{key, "x"}});
                }),
                ElementsAre(HasSubstr("fs_client_param has no effect")));
  }
  EXPECT_THAT(remarks([](DistributedStrategy& s) {
                return s.set_trainer_desc_configs({{"dump_fields_path", "x"}});
              }),
              ElementsAre(HasSubstr("dump_fields_path has no effect")));
  EXPECT_THAT(remarks([](DistributedStrategy& s) { return s.set_table_configs("emb", {}); }),
              ElementsAre(HasSubstr("the program has no sparse table of that name")));
}

// The description of a table and the remarks about it, as one text.
std::string described(const ConfigDict& configs) {
  fleet_desc::TableParameter table;
  std::vector<std::string> remarks;
  const Status status = apply_table_settings("emb", configs, true, table, remarks);
  if (!status.ok()) return status.message();
  std::string text = table.DebugString();
  for (const std::string& remark : remarks) text += remark + "\n";
  return text;
}

TEST(Strategy, EverySettingOfATableIsSeen) {
  struct Row {
    const char* key;
    ConfigValue value;
    ConfigDict beside;
  };
  const ConfigDict apart{{"sparse_accessor_class", "DownpourUnitAccessor"}};
  const auto with = [](ConfigDict dict, const char* key, const ConfigValue& value) {
    dict[key] = value;
    return dict;
  };
  const ConfigDict adam{{"sparse_optimizer", "adam"}};
  const ConfigDict embed_adam = with(apart, "embed_sparse_optimizer", "adam");
  const ConfigDict embedx_adam = with(apart, "embedx_sparse_optimizer", "adam");
  const ConfigDict embed_naive = with(apart, "embed_sparse_optimizer", "naive");
  const std::vector<double> slots{3, 5};
  const std::vector<double> bounds{-1, 1};
  const int64_t whole = 5;
  for (const Row& row : {Row{"sparse_table_class", "DownpourSparseSSDTable", {}},
                         Row{"sparse_compress_in_save", false, {}},
                         Row{"sparse_shard_num", whole, {}},
                         Row{"sparse_accessor_class", "DownpourCtrDoubleAccessor", {}},
                         Row{"sparse_learning_rate", 0.5, {}},
                         Row{"sparse_initial_g2sum", 0.5, {}},
                         Row{"sparse_initial_range", 0.5, {}},
                         Row{"sparse_weight_bounds", bounds, {}},
                         Row{"sparse_embedx_dim", whole, {}},
                         Row{"sparse_embedx_threshold", whole, {}},
                         Row{"sparse_nonclk_coeff", 0.5, {}},
                         Row{"sparse_click_coeff", 0.5, {}},
                         Row{"sparse_base_threshold", 0.5, {}},
                         Row{"sparse_delta_threshold", 0.5, {}},
                         Row{"sparse_delta_keep_days", 0.5, {}},
                         Row{"sparse_delete_after_unseen_days", 0.5, {}},
                         Row{"sparse_show_click_decay_rate", 0.5, {}},
                         Row{"sparse_delete_threshold", 0.5, {}},
                         Row{"sparse_converter", "cat", {}},
                         Row{"sparse_deconverter", "cat", {}},
                         Row{"sparse_enable_cache", false, {}},
                         Row{"sparse_cache_rate", 0.5, {}},
                         Row{"sparse_cache_file_num", whole, {}},
                         Row{"sparse_beta1_decay_rate", 0.5, adam},
                         Row{"sparse_beta2_decay_rate", 0.5, adam},
                         Row{"sparse_ada_epsilon", 0.5, adam},
                         Row{"sparse_optimizer", "naive", {}},
                         Row{"sparse_ssd_unseenday_threshold", whole, {}},
                         Row{"embed_sparse_optimizer", "naive", apart},
                         Row{"embed_sparse_learning_rate", 0.5, apart},
                         Row{"embed_sparse_weight_bounds", bounds, apart},
                         Row{"embed_sparse_initial_range", 0.5, embed_naive},
                         Row{"embed_sparse_initial_g2sum", 0.5, apart},
                         Row{"embed_sparse_beta1_decay_rate", 0.5, embed_adam},
                         Row{"embed_sparse_beta2_decay_rate", 0.5, embed_adam},
                         Row{"embedx_sparse_optimizer", "naive", apart},
                         Row{"embedx_sparse_learning_rate", 0.5, apart},
                         Row{"embedx_sparse_weight_bounds", bounds, apart},
                         Row{"embedx_sparse_initial_range", 0.5, apart},
                         Row{"embedx_sparse_initial_g2sum", 0.5, apart},
                         Row{"embedx_sparse_beta1_decay_rate", 0.5, embedx_adam},
                         Row{"embedx_sparse_beta2_decay_rate", 0.5, embedx_adam},
                         Row{"sparse_fea_dim", whole, {}},
                         Row{"feature_learning_rate", 0.5, {}},
                         Row{"nodeid_slot", whole, {}},
                         Row{"sparse_load_filter_slots", slots, {}},
                         Row{"sparse_save_filter_slots", slots, {}}}) {
    EXPECT_NE(described(with(row.beside, row.key, row.value)), described(row.beside)) << row.key;
  }
  EXPECT_EQ(
      described({{"sparse_load_filter_slots", slots}}),
      "fleet_desc_configs['emb'].sparse_load_filter_slots: filtering of rows by slot in table "
      "files is not implemented");
  EXPECT_THAT(described({{"sparse_converter", "cat"}}),
              HasSubstr("sparse_converter has no effect except in ps_desc.txt"));
  EXPECT_THAT(described({{"embed_sparse_learning_rate", 0.5}}),
              HasSubstr("embed_sparse_learning_rate has no effect: neither DownpourCtrAccessor nor "
                        "its rules read it"));
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
        Row{{{"sparse_shard_num", -1}}, "sparse_shard_num: expected a whole number >= 0"},
        Row{{{"sparse_ssd_unseenday_threshold", int64_t{1} << 32}},
            "sparse_ssd_unseenday_threshold: expected a whole number of 32 bits, found 4294967296"},
        Row{{{"sparse_learning_rate", 1e39}},
            "sparse_learning_rate: expected a number that float32 can hold, found 1e+39"},
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
