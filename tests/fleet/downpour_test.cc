// Descriptions of DownpourSGD jobs equal those of the original.

#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "fleet/downpour/downpour_job.h"
#include "fleet/downpour/downpour_server.h"
#include "fleet/downpour/downpour_sgd.h"
#include "fleet/downpour/downpour_worker.h"
#include "framework/read_program.h"
#include "ops/registry.h"
#include "proto/pslib_desc.pb.h"

namespace millrace::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two slots, a layer of 8, and if wanted statistics of the 20 columns before it.
std::unique_ptr<Program> model(int number, bool data_norm, const std::string& table = "emb",
                               const std::string& more = "") {
  const std::string fc = "fc_" + std::to_string(number);
  const std::string dn = "dn" + std::to_string(number);
  std::string text = R"(# millrace program 1

block 0 {
  param emb: f32(1000, 10)
  param other: f32(1000, 10)
  var slot0: i64(-1, 1)
  var slot1: i64(-1, 1)
  var emb_0.tmp_0: f32(-1, 10)
  var emb_1.tmp_0: f32(-1, 10)
  var x: f32(-1, 20)
  var y: f32(-1, 20)
  var h: f32(-1, 8)
  var s: f32(-1, 8)
  var loss: f32(1)
)";
  text += "  param " + fc + ".w_0: f32(20, 8)\n  param " + fc + ".b_0: f32(8)\n";
  if (data_norm) {
    for (const char* const end : {".batch_size", ".batch_sum", ".batch_square_sum"})
      text += "  param " + dn + end + ": f32(20)\n";
    text += "  var means: f32(20)\n  var scales: f32(20)\n";
  }
  text +=
      "  lookup_table Ids=slot0 W=emb -> Out=emb_0.tmp_0 {is_distributed: true, is_sparse: "
      "true, padding_idx: -1l}\n";
  text += "  lookup_table Ids=slot1 W=" + table +
          " -> Out=emb_1.tmp_0 {is_distributed: true, is_sparse: true, padding_idx: -1l}\n";
  text += "  concat X=emb_0.tmp_0, emb_1.tmp_0 -> Out=x {axis: 1}\n";
  if (data_norm) {
    text += "  data_norm X=x BatchSize=" + dn + ".batch_size BatchSum=" + dn +
            ".batch_sum BatchSquareSum=" + dn +
            ".batch_square_sum -> Y=y Means=means Scales=scales {epsilon: 1e-4}\n";
  }
  text += std::string("  mul X=") + (data_norm ? "y" : "x") + " Y=" + fc +
          ".w_0 -> Out=h {x_num_col_dims: 1, y_num_col_dims: 1}\n  elementwise_add X=h Y=" + fc +
          ".b_0 -> Out=s {axis: 1}\n" + more + "  mean X=s -> Out=loss\n}\n";
  auto program = read_program_bytes(text, "model", {});
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  return program.ok() ? *std::move(program) : Program::create();
}

StatusOr<DownpourResult> minimize(const std::vector<Program*>& programs,
                                  const DownpourOptions& options = {}) {
  const auto registry = ops::standard_registry();
  std::vector<DownpourLoss> losses;
  for (Program* const program : programs) losses.push_back({program, "loss"});
  return minimize_downpour(*registry, losses, options);
}

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in.good()) << path;
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

pslib_desc::PSParameter parse_downpour(const std::string& text) {
  pslib_desc::PSParameter out;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &out)) << text;
  return out;
}

void expect_golden(const std::string& name, const DownpourResult& made) {
  const std::string base = "tests/data/fleet/downpour/" + name;
  google::protobuf::util::MessageDifferencer differencer;
  std::string differences;
  differencer.ReportDifferencesToString(&differences);
  EXPECT_TRUE(differencer.Compare(parse_downpour(text_of(base + ".fleet_desc.txt")),
                                  parse_downpour(made.info.fleet_desc)))
      << differences;
  const auto wanted = nlohmann::json::parse(text_of(base + ".program_configs.json"));
  ASSERT_EQ(wanted.size(), made.info.program_configs.size());
  for (const auto& [id, tables] : made.info.program_configs) {
    EXPECT_EQ(wanted[id]["pull_sparse"], tables.pull_sparse);
    EXPECT_EQ(wanted[id]["push_sparse"], tables.push_sparse);
    EXPECT_EQ(wanted[id]["pull_dense"], tables.pull_dense);
    EXPECT_EQ(wanted[id]["push_dense"], tables.push_dense);
  }
}

TEST(Downpour, OneLoss) {
  const auto program = model(0, false);
  const auto made = minimize({program.get()});
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  expect_golden("one_loss", *made);
  EXPECT_EQ(made->info.trainer, "DistMultiTrainer");
  EXPECT_EQ(made->info.device_worker, "DownpourSGD");
  EXPECT_THAT(made->info.worker_skipped_ops, ElementsAre("lookup_table", "lookup_table_grad"));
  ASSERT_EQ(made->param_grads.size(), 1U);
  EXPECT_EQ(made->param_grads[0].front(), (ops::ParamGrad{"emb", "emb@GRAD"}));
}

TEST(Downpour, OneLossWithStatistics) {
  const auto program = model(0, true);
  const auto made = minimize({program.get()});
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  expect_golden("one_loss_data_norm", *made);
}

TEST(Downpour, TwoLosses) {
  const auto first = model(0, true);
  const auto second = model(1, true);
  const auto made = minimize({first.get(), second.get()});
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  expect_golden("two_losses_data_norm", *made);
}

TEST(Downpour, SettingsChangeTheDescription) {
  const auto program = model(0, false);
  DownpourOptions options;
  options.sparse_configs = {{"sparse_accessor_class", "DownpourFeatureValueAccessor"},
                            {"sparse_learning_rate", 0.1},
                            {"sparse_embedx_dim", int64_t{4}},
                            {"sparse_shard_num", int64_t{10}}};
  options.dense_configs = {{"dense_learning_rate", 0.001}};
  const auto made = minimize({program.get()}, options);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  expect_golden("strategy_keys", *made);
}

TEST(Downpour, FirstVersionsTookTheUsersRate) {
  const auto program = model(0, false);
  DownpourOptions options;
  options.early = true;
  options.learning_rate = 0.25;
  options.window = 3;
  options.program_config_messages = true;
  const auto made = minimize({program.get()}, options);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const auto desc = parse_downpour(made->info.fleet_desc);
  const auto& tables = desc.server_param().downpour_server_param().downpour_table_param();
  EXPECT_EQ(tables[0].accessor().accessor_class(), "DownpourFeatureValueAccessor");
  EXPECT_EQ(tables[0].accessor().sparse_sgd_param().learning_rate(), 0.25);
  EXPECT_EQ(tables[0].accessor().embedx_threshold(), 5U);
  EXPECT_EQ(tables[1].accessor().dense_sgd_param().adam().learning_rate(), 0.25);
  EXPECT_EQ(desc.trainer_param(0).push_dense_per_batch(), 3);
  ASSERT_EQ(desc.trainer_param(0).program_config_size(), 1);
  EXPECT_EQ(desc.trainer_param(0).program_config(0).program_id(), "PROGRAM_0");
}

TEST(Downpour, TheUsersDescriptionComesFirst) {
  const auto program = model(0, false);
  DownpourOptions options;
  options.fleet_desc = R"(
    fs_client_param { uri: "hdfs://x" }
    server_param { downpour_server_param {
      downpour_table_param { table_id: 0 type: PS_SPARSE_TABLE shard_num: 7 }
      downpour_table_param { table_id: 1 type: PS_DENSE_TABLE table_class: "Own" }
    } }
    trainer_param { skip_op: "pull" })";
  const auto made = minimize({program.get()}, options);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const auto desc = parse_downpour(made->info.fleet_desc);
  const auto& tables = desc.server_param().downpour_server_param().downpour_table_param();
  ASSERT_EQ(tables.size(), 2);
  EXPECT_EQ(tables[0].shard_num(), 7U);
  EXPECT_EQ(tables[1].table_class(), "Own");
  EXPECT_EQ(tables[1].accessor().fea_dim(), 168U);
  EXPECT_EQ(desc.fs_client_param().uri(), "hdfs://x");
  EXPECT_THAT(desc.trainer_param(0).skip_op(), ElementsAre("pull"));
  EXPECT_THAT(made->info.worker_skipped_ops, ElementsAre("lookup_table", "lookup_table_grad"));
}

TEST(Downpour, ErrorsNameWhatIsWrong) {
  EXPECT_EQ(minimize({}).status().message(), "DownpourSGD needs at least one loss");
  const auto two_tables = model(0, false, "other");
  EXPECT_EQ(minimize({two_tables.get()}).status().message(),
            "'emb' and 'other' are both distributed lookup tables, expected one");
  const auto program = model(0, false);
  DownpourOptions options;
  options.sparse_configs = {{"sparse_colour", int64_t{1}}};
  EXPECT_THAT(minimize({program.get()}, options).status().message(),
              HasSubstr("strategy of sparse tables: key 'sparse_colour' is not known"));
  options.sparse_configs = {{"sparse_table_class", "Other"}};
  EXPECT_THAT(minimize({program.get()}, options).status().message(),
              HasSubstr("expected DownpourSparseTable or DownpourSparseSSDTable, found 'Other'"));
  options.sparse_configs = {};
  options.fleet_desc = "server_param {";
  EXPECT_EQ(minimize({program.get()}, options).status().message(),
            "fleet_desc: line 1, column 15: Expected identifier, got: ");
  options.fleet_desc =
      "server_param { downpour_server_param { downpour_table_param { table_id: 0 type: "
      "PS_DENSE_TABLE } } }";
  EXPECT_EQ(minimize({program.get()}, options).status().message(),
            "table 0 is of type PS_DENSE_TABLE, expected PS_SPARSE_TABLE");
}

// An op that needs more than the tables offer, in the forward program of a loss.
std::string refused_with(const std::string& line, const std::string& vars = "") {
  const auto program = model(0, false, "emb", vars + line);
  return minimize({program.get()}).status().message();
}

TEST(Downpour, WhatTheTablesWouldLeaveOutIsRefused) {
  for (const char* const line : {
           "  sgd Param=fc_0.w_0 Grad=fc_0.w_0 LearningRate=loss -> ParamOut=fc_0.w_0 {op_role: "
           "2}\n",
           "  clip X=s -> Out=s {min: -1.0, max: 1.0, op_role: 2}\n",
           "  scale X=fc_0.w_0 -> Out=fc_0.w_0 {scale: 0.5, op_role: 2}\n",
           "  assign X=fc_0.w_0 -> Out=other {op_role: 2}\n",
       })
    EXPECT_THAT(refused_with(line),
                HasSubstr("tables of DownpourSGD only update by their own rules"))
        << line;
  EXPECT_THAT(refused_with("  increment X=loss -> Out=loss {step: 1.0, op_role: 16}\n"),
              HasSubstr("'increment' belongs to a learning rate schedule"));
  EXPECT_THAT(refused_with("  scale X=loss -> Out=loss {scale: 0.5, op_role: 18}\n"),
              HasSubstr("'scale' belongs to a learning rate schedule"));
  EXPECT_THAT(
      refused_with("  lookup_table Ids=slot0 W=other -> Out=emb_1.tmp_0 {is_sparse: true}\n"),
      HasSubstr("the embedding 'other' is sparse, but not a distributed lookup table"));
  const auto nested = model(0, false);
  Op& lookup = nested->add_block(0).append_op("lookup_table");
  lookup.set_input("W", "emb").set_input("Ids", "slot0").set_bool("is_distributed", true);
  EXPECT_THAT(minimize({nested.get()}).status().message(),
              HasSubstr("the distributed lookup of 'emb' is in a sub-block"));
}

TEST(Downpour, SlotsOfLaterProgramsAreThoseOfTheFirst) {
  const auto first = model(0, false);
  const auto second = model(1, false);
  Op& lookup = second->root().front();
  ASSERT_EQ(lookup.type(), "lookup_table");
  lookup.set_input("Ids", "slot1");
  EXPECT_THAT(
      minimize({first.get(), second.get()}).status().message(),
      HasSubstr(
          "a program looks up 'slot1' for 'emb_0.tmp_0', which the program of the first loss"));
  const auto third = model(2, false, "other");
  third->root().front().set_input("W", "other");
  EXPECT_THAT(minimize({model(0, false).get(), third.get()}).status().message(),
              HasSubstr("'other' is the distributed lookup table of another loss's program"));
}

TEST(Downpour, ARateThatNobodyReadsIsRefused) {
  const auto program = model(0, false);
  DownpourOptions options;
  options.learning_rate = 0.1;
  EXPECT_THAT(minimize({program.get()}, options).status().message(),
              HasSubstr("learning_rate 0.1 has no effect without 'early'"));
}

TEST(Downpour, RulesOfDenseTablesAreThoseThatDescriptionsHave) {
  const auto program = model(0, true);
  DownpourOptions options;
  options.dense_configs = {{"dense_optimizer", "momentum"}};
  EXPECT_EQ(minimize({program.get()}, options).status().message(),
            "strategy of dense tables.dense_optimizer: expected adam or naive, found 'momentum'");
  options.dense_configs = {};
  options.data_norm_configs = {{"datanorm_operation", "sum"}};
  EXPECT_EQ(minimize({model(0, true).get()}, options).status().message(),
            "strategy of data_norm tables.datanorm_operation: expected summary, found 'sum'");
}

TEST(DownpourJob, WorkersOfOtherKindsAreRefused) {
  const auto refused = [](JobSpec spec) {
    spec.servers = {"a:1"};
    return DownpourJob::create(*ops::standard_registry(), *model(0, false), *Program::create(),
                               "loss", {}, std::move(spec))
        .status()
        .message();
  };
  JobSpec spec;
  spec.all_reduces_dense = true;
  EXPECT_THAT(refused(spec), HasSubstr("workers keep the dense parameters"));
  spec = {};
  spec.heter.endpoints = {"h:1"};
  EXPECT_THAT(refused(spec), HasSubstr("heter workers"));
  spec = {};
  spec.environment = [](const std::string& name) -> std::optional<std::string> {
    if (name == "PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST") return "h:1";
    return std::nullopt;
  };
  EXPECT_THAT(refused(spec), HasSubstr("heter workers"));
}

TEST(Downpour, SettingsWithoutEffectAreTold) {
  DownpourOptions options;
  options.dense_configs = {{"dense_optimizer", "naive"}, {"dense_learning_rate", 0.1}};
  options.sparse_configs = {{"sparse_optimizer", "adam"}, {"sparse_learning_rate", 0.1}};
  const auto made = minimize({model(0, false).get()}, options);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_THAT(
      made->remarks,
      ElementsAre(
          "strategy of sparse tables.sparse_optimizer has no effect: neither "
          "DownpourCtrAccessor nor its rules read it",
          "strategy of dense tables.dense_learning_rate has no effect on the rule 'naive'"));
  EXPECT_THAT(minimize({model(0, false).get()})->remarks, ::testing::IsEmpty());
}

TEST(DownpourServer, RulesAndBoundsAreChecked) {
  const auto refused = [](const ConfigDict& configs) {
    return DownpourServer(nullptr).add_sparse_table(0, configs).message();
  };
  EXPECT_THAT(refused({{"sparse_accessor_class", "DownpourUnitAccessor"},
                       {"embedx_sparse_optimizer", "lamb"}}),
              HasSubstr("strategy of sparse tables.embedx_sparse_optimizer: expected one of naive, "
                        "adagrad, std_adagrad, adam, found 'lamb'"));
  EXPECT_THAT(refused({{"sparse_weight_bounds", std::vector<double>{1}}}),
              HasSubstr("sparse_weight_bounds: expected two numbers, found 1"));
}

TEST(DownpourWorker, SlotsWithoutGradientComeLast) {
  DownpourWorker worker(1);
  ASSERT_TRUE(worker.add_sparse_table(0, {{"a", "va", false}, {"b", "vb", true}}).ok());
  const auto& table = worker.desc().sparse_table(0);
  EXPECT_THAT(table.slot_key(), ElementsAre("b", "a"));
  EXPECT_THAT(table.slot_value(), ElementsAre("vb", "va"));
  EXPECT_THAT(table.slot_gradient(), ElementsAre("vb@GRAD"));
  EXPECT_THAT(worker.add_sparse_table(0, {{"c", "vc", true}}).message(),
              HasSubstr("has no slot 'c'"));
}

TEST(DownpourServer, EmbeddingsAreNotDense) {
  DownpourServer server;
  ASSERT_TRUE(server.add_dense_table(1, {{"emb", 100}, {"w", 6}}, {"emb"}, {}).ok());
  const auto& table = server.desc().downpour_server_param().downpour_table_param(0);
  EXPECT_EQ(table.accessor().fea_dim(), 6U);
  EXPECT_THAT(server.add_data_norm_table(2, {}, {}, {{"dense_optimizer", "adam"}}).message(),
              HasSubstr("strategy of data_norm tables: key 'dense_optimizer' is not known"));
}

}  // namespace
}  // namespace millrace::fleet
