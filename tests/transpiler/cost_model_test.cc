// The cost model: each load computed by hand for small inputs, and its speed for large ones.

#include "transpiler/distribute/cost_model.h"

#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "transpiler/distribute/units.h"

namespace millrace::transpiler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

CostSlice dense(const std::string& name, int32_t server, int64_t floats) {
  CostSlice slice;
  slice.name = name;
  slice.server = server;
  slice.rows = floats;
  slice.bytes = floats * 4;
  slice.state_bytes = floats * 4;
  slice.update_flops = 3.0 * static_cast<double>(floats);
  return slice;
}

CostInput two_servers() {
  CostInput input;
  input.endpoints = {"h:1", "h:2"};
  input.trainers = 4;
  input.slices = {dense("w.block0", 0, 300), dense("w.block1", 1, 100)};
  return input;
}

CostReport must_estimate(const CostInput& input, const CostOptions& options = {}) {
  StatusOr<CostReport> report = estimate_cost(input, options);
  EXPECT_TRUE(report.ok()) << report.status().to_string();
  return std::move(*report);
}

TEST(CostModelTest, DenseSlicesTravelWholeForEveryTrainer) {
  const CostReport report = must_estimate(two_servers());
  const ServerCost& server = report.servers[0];
  EXPECT_DOUBLE_EQ(server.held_bytes, 2400);
  EXPECT_DOUBLE_EQ(server.in_bytes, 4 * 1200);
  EXPECT_DOUBLE_EQ(server.out_bytes, 4 * 1200);
  EXPECT_DOUBLE_EQ(server.flops, 900 + 5 * 300);  // update, 4 gradients merged and divided
  EXPECT_EQ(server.largest, "w.block0");
}

TEST(CostModelTest, AsynchronousServersUpdateForEveryTrainer) {
  CostInput input = two_servers();
  input.sync = false;
  EXPECT_DOUBLE_EQ(must_estimate(input).servers[0].flops, 4 * 900);
}

TEST(CostModelTest, RowsTravelAloneFromSparseTables) {
  CostInput input = two_servers();
  CostSlice& table = input.slices[0];
  table.traffic = Traffic::kSparse;
  table.rows = 100;  // of 12 bytes
  table.share_of_table = 0.5;
  CostReport report = must_estimate(input, {.sparse_rows_per_step = 20});
  EXPECT_DOUBLE_EQ(report.servers[0].in_bytes, 4 * 10 * (12 + 8));
  EXPECT_DOUBLE_EQ(report.servers[0].out_bytes, 4 * 1200);
  EXPECT_DOUBLE_EQ(report.servers[0].flops, 40 * 9 + 40 * 3);
  table.traffic = Traffic::kPrefetch;
  report = must_estimate(input, {.sparse_rows_per_step = 20});
  EXPECT_DOUBLE_EQ(report.servers[0].in_bytes, 4 * 10 * (12 + 8 + 8));
  EXPECT_DOUBLE_EQ(report.servers[0].out_bytes, 4 * 10 * 12);
  report = must_estimate(
      input, {.sparse_rows_per_step = 1'000'000});  // at most as many rows as the table has
  EXPECT_DOUBLE_EQ(report.servers[0].out_bytes, 4 * 1200);
}

TEST(CostModelTest, ImbalanceAndHotSpotsNameTheServer) {
  const CostReport report = must_estimate(two_servers());
  EXPECT_EQ(report.loads[0].name, "held");
  EXPECT_DOUBLE_EQ(report.loads[0].total, 3200);
  EXPECT_DOUBLE_EQ(report.loads[0].imbalance, 1.5);
  ASSERT_EQ(report.hot_spots.size(), 4u);
  EXPECT_EQ(report.hot_spots[0].server, 0);
  EXPECT_DOUBLE_EQ(report.hot_spots[0].factor, 1.5);
  EXPECT_TRUE(must_estimate(two_servers(), {.hot_factor = 1.6}).hot_spots.empty());
}

TEST(CostModelTest, HotSpotsAsHotAsEachOtherKeepTheOrderOfTheLoads) {
  CostInput input = two_servers();
  for (CostSlice& slice : input.slices) slice.update_flops = 0;
  input.sync = false;
  const CostReport report = must_estimate(input);
  std::vector<std::string> loads;
  for (const HotSpot& spot : report.hot_spots) loads.push_back(spot.load);
  EXPECT_THAT(loads, ElementsAre("held", "in", "out"));
  const std::string table = cost_table(report);
  for (const std::string& load : loads)
    EXPECT_THAT(table, HasSubstr("hot: h:1 has 1.50 times the mean of '" + load + "'"));
}

TEST(CostModelTest, TheSlowestServerBoundsTheStep) {
  const CostReport report =
      must_estimate(two_servers(), {.network_bytes_per_s = 4800, .flops_per_s = 1200});
  EXPECT_DOUBLE_EQ(report.servers[0].floor_s, 2);  // 2400 flops; bytes take 1 s
  EXPECT_DOUBLE_EQ(report.floor_s, 2);
}

TEST(CostModelTest, TenThousandTrainersOnAThousandServersAreNoWork) {
  CostInput input;
  input.trainers = 10'000;
  for (int i = 0; i < 1000; ++i) input.endpoints.push_back("h" + std::to_string(i) + ":1");
  for (int i = 0; i < 100'000; ++i) input.slices.push_back(dense("w", i % 1000, 10'000));
  const auto begin = std::chrono::steady_clock::now();
  const CostReport report = must_estimate(input);
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(spent.count(), 2.0);  // measured: below 20 ms
  EXPECT_DOUBLE_EQ(report.loads[1].total, 1e4 * 1e5 * 4e4);
  EXPECT_DOUBLE_EQ(report.loads[1].imbalance, 1);
  const std::string table = cost_table(report);
  EXPECT_THAT(table, HasSubstr("1000 servers, 10000 trainers"));
  EXPECT_THAT(table, HasSubstr("... and 968 faster ones"));
}

TEST(CostModelTest, TableAndJsonSayTheSame) {
  const CostReport report = must_estimate(two_servers());
  const std::string table = cost_table(report);
  EXPECT_THAT(table, HasSubstr("2 servers, 4 trainers, merged updates"));
  EXPECT_THAT(table, HasSubstr("held      3.12 KiB    1.56 KiB    2.34 KiB      1.50"));
  EXPECT_THAT(table, HasSubstr("hot: h:1 has 1.50 times the mean of 'held', mostly from w.block0"));
  const auto json = nlohmann::json::parse(cost_json(report));
  EXPECT_EQ(json["loads"]["held"]["max"], 2400);
  EXPECT_EQ(json["servers"][1]["endpoint"], "h:2");
  EXPECT_EQ(json["hot_spots"][0]["endpoint"], "h:1");
}

TEST(CostModelTest, BadInputIsRefused) {
  CostInput input = two_servers();
  auto refusal = [&](const CostOptions& options = {}) {
    return estimate_cost(input, options).status().message();
  };
  EXPECT_EQ(refusal({.sparse_rows_per_step = 0}), "an option of the cost model is not positive");
  input.slices[0].server = 2;
  EXPECT_EQ(refusal(), "slice 'w.block0' is on server 2, expected 0..1");
  input.trainers = 0;
  EXPECT_EQ(refusal(), "the number of trainers is 0, expected 1 or more");
  input.endpoints.clear();
  EXPECT_EQ(refusal(), "the cost model needs at least one server");
}

TEST(UnitsTest, ThreeDigitsAndAUnit) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1536), "1.50 KiB");
  EXPECT_EQ(bytes_text(12.0 * (1 << 30)), "12.0 GiB");
  EXPECT_EQ(flops_text(2e6), "2.00 Mflop");
  EXPECT_EQ(seconds_text(1.2e-5), "12 us");
  EXPECT_EQ(seconds_text(0.0031), "3.10 ms");
  EXPECT_EQ(seconds_text(2), "2.00 s");
}

}  // namespace
}  // namespace millrace::transpiler
