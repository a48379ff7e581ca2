// What slices.json says about one server: the same for processes that were distributed alike,
// wherever they run, and different for other slices, servers or tables.
#include "jobs/config/distribution_facts.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "framework/base/file.h"
#include "jobs/config/typed_tables.h"
#include "tests/io/temp_folder.h"

namespace millrace::jobs {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

transpiler::SlicesFile two_servers(std::vector<std::string> endpoints, int64_t rows) {
  transpiler::SlicesFile slices;
  slices.properties.endpoints = std::move(endpoints);
  for (int64_t i = 0; i < 2; ++i) {
    transpiler::DistributedVar var;
    var.origin.name = "w";
    var.origin.shape = {rows, 3};
    var.slice.name = "w.block" + std::to_string(i);
    var.slice.shape = {2, 3};
    var.offset = 6 * i;
    var.vtype = "Param";
    var.endpoint = slices.properties.endpoints[static_cast<size_t>(i)];
    slices.overview.add_distributed_var(var);
    var.vtype = "Optimizer";
    slices.overview.add_distributed_var(var);
  }
  return slices;
}

TEST(DistributionFacts, AreThoseOfOneServer) {
  EXPECT_THAT(
      distribution_facts(two_servers({"a:1", "b:1"}, 4), {}, 1),
      ElementsAre("server 1 of 2", "slice w.block1 f32 [2, 3] from element 6 of w f32 [4, 3]"));
  EXPECT_THAT(distribution_facts(two_servers({"a:1", "b:1"}, 4), {}, 2), IsEmpty());
}

TEST(DistributionFacts, DependOnThePlanAndNotOnAddresses) {
  const auto facts = distribution_facts(two_servers({"a:1", "b:1"}, 4), {}, 0);
  EXPECT_EQ(facts, distribution_facts(two_servers({"c:2", "d:2"}, 4), {}, 0));
  EXPECT_NE(facts, distribution_facts(two_servers({"a:1", "b:1"}, 6), {}, 0));
  transpiler::SlicesFile geo = two_servers({"a:1", "b:1"}, 4);
  geo.properties.geo.emplace();
  geo.properties.geo->trainers = 3;
  EXPECT_EQ(distribution_facts(geo, {}, 0).back(), "geo with 3 trainers, pushes every 100 steps");
}

TEST(DistributionFacts, HaveModeTrainersAndOptimizers) {
  transpiler::SlicesFile slices = two_servers({"a:1", "b:1"}, 4);
  slices.properties.training = {"sync with 2 trainers", "momentum updates w"};
  const auto facts = distribution_facts(slices, {}, 0);
  EXPECT_THAT(facts, Contains("training: sync with 2 trainers"));
  EXPECT_THAT(facts, Contains("training: momentum updates w"));
}

TEST(DistributionFacts, HaveTheSettingsOfTypedTables) {
  ps::TypedTable table;
  table.param = "emb";
  table.endpoints = {"a:1", "b:1"};
  table.options.accessor.embedx_dim = 8;
  const auto slices = two_servers({"a:1", "b:1"}, 4);
  const auto facts = distribution_facts(slices, {table}, 0);
  EXPECT_THAT(facts.back(), HasSubstr("\"emb\""));
  table.endpoints = {"c:1", "d:1"};
  table.options.disk_path = "/elsewhere";
  EXPECT_EQ(facts, distribution_facts(slices, {table}, 0));
  table.options.accessor.embedx_dim = 9;
  EXPECT_NE(facts, distribution_facts(slices, {table}, 0));
}

TEST(TypedTables, AreReadAsWrittenAndNumbersMustFit) {
  const millrace::testing::TempFolder folder;
  const std::string path = folder.path() + "/tables.json";
  const auto read = [&](const std::string& text) {
    EXPECT_TRUE(write_file_atomically(path, text, Replace::kYes).ok());
    return read_typed_tables(folder.path() + "/slices.json");
  };
  ps::TypedTable table;
  table.param = "emb";
  table.endpoints = {"a:1", "b:1"};
  table.options.accessor.embedx_dim = table.options.accessor.fea_dim = 8;
  table.options.seed = UINT64_MAX;
  const std::string text = typed_tables_json({table});
  const auto again = read(text);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(typed_tables_json(*again), text);
  const auto with = [&](const std::string& key, const std::string& value) {
    nlohmann::json all = nlohmann::json::parse(text);
    all["tables"][0][key] = nlohmann::json::parse(value);
    return read(all.dump()).status().message();
  };
  EXPECT_EQ(with("shard_num", "8.0"), "");
  EXPECT_THAT(with("shard_num", "1.5"),
              HasSubstr("'tables[0].shard_num': expected a whole number from"));
  EXPECT_THAT(with("memory_rows", "-1"), HasSubstr("'tables[0].memory_rows': expected a whole"));
  EXPECT_THAT(with("width", "4294967304"), HasSubstr("'tables[0].width': expected a whole"));
}

}  // namespace
}  // namespace millrace::jobs
