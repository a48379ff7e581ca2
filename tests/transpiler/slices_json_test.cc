// slices.json: its contents, round trips, and refused inputs.

#include "transpiler/distribute/slices_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/transpiler/overview.h"

namespace millrace::transpiler {
namespace {

using nlohmann::json;

TEST(SlicesJsonTest, SaysWhatWentWhere) {
  const json file = json::parse(slices_json(small_properties(), small_overview()));
  EXPECT_EQ(file["schema"], "millrace.slices");
  EXPECT_EQ(file["version"], 1);
  EXPECT_EQ(file["vars"][0], json::parse(R"({
      "name": "w", "vtype": "Param", "dtype": "f32", "dims": [4, 2], "bytes": 32, "slices": [
      {"name": "w.block1", "endpoint": "h:1", "block_id": 1, "offset": 4, "dims": [2, 2], "bytes": 16},
      {"name": "w.block0", "endpoint": "h:2", "block_id": 0, "offset": 0, "dims": [2, 2], "bytes": 16}]})"));
  EXPECT_EQ(file["servers"], json::parse(R"([
      {"endpoint": "h:1", "bytes": 44, "param_bytes": 24, "state_bytes": 20, "slices": 4},
      {"endpoint": "h:2", "bytes": 36, "param_bytes": 16, "state_bytes": 20, "slices": 3}])"));
  EXPECT_DOUBLE_EQ(file["imbalance"], 44.0 / 40.0);
}

TEST(SlicesJsonTest, OverviewHasTheFormOfTheReferences) {
  const json overview = json::parse(slices_json(small_properties(), small_overview()))["overview"];
  EXPECT_EQ(overview["ps_endpoint"], "h:2");
  EXPECT_EQ(overview["distributed_lookup_table"], nullptr);
  EXPECT_EQ(overview["vars"].size(), 7u);
  EXPECT_EQ(overview["vars"][0], json::parse(R"({
      "origin": {"name": "w", "shape": [4, 2], "dtype": 5, "type": 7, "lod_level": 0, "persistable": true},
      "slice": {"name": "w.block1", "shape": [2, 2], "dtype": 5, "type": 7, "lod_level": 0, "persistable": false},
      "is_slice": true, "block_id": 1, "offset": 4, "vtype": "Param", "endpoint": "h:1"})"));
  const json plain = json::parse(slices_json(ProgramProperties{}, VarsDistributed{}))["overview"];
  EXPECT_EQ(plain, json::parse(R"({"is_distributed": false, "is_chief": false, "ps_endpoint": null,
      "endpoints": [], "distributed_lookup_table": null, "vars": []})"));
}

TEST(SlicesJsonTest, ReadsBack) {
  ProgramProperties properties = small_properties();
  properties.distributed_lookup_table = "emb";
  properties.rates = {"rate_0", "rate_1"};
  properties.schedule = {"counter"};
  properties.training = {"sync with 2 trainers", "sgd updates w"};
  const std::string text = slices_json(properties, small_overview());
  const auto file = parse_slices_json(text);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ(file->properties.endpoints, properties.endpoints);
  EXPECT_TRUE(file->properties.is_distributed);
  EXPECT_EQ(file->properties.rates, properties.rates);
  EXPECT_EQ(file->properties.schedule, properties.schedule);
  EXPECT_EQ(file->properties.training, properties.training);
  EXPECT_EQ(slices_json(file->properties, file->overview), text);
}

ProgramProperties geo_properties() {
  ProgramProperties properties = small_properties();
  properties.geo = GeoFacts{.push_nums = 7,
                            .trainers = 3,
                            .vars = {{.origin = "w",
                                      .var_names = {"w.block0", "w.block1"},
                                      .sections = {2, 2},
                                      .epmap = {"h:2", "h:1"},
                                      .is_sparse = true}}};
  return properties;
}

TEST(SlicesJsonTest, GeoCommunicatorsFindWhatTheyNeed) {
  const std::string text = slices_json(geo_properties(), small_overview());
  EXPECT_EQ(json::parse(text)["geo"], json::parse(R"({"push_nums": 7, "trainers": 3, "vars": [
      {"name": "w", "var_names": ["w.block0", "w.block1"], "sections": [2, 2],
       "epmap": ["h:2", "h:1"], "is_sparse": true}]})"));
  const auto file = parse_slices_json(text);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ(file->properties.geo, geo_properties().geo);
  EXPECT_EQ(slices_json(file->properties, file->overview), text);
  const std::string other = slices_json(small_properties(), small_overview());
  EXPECT_FALSE(json::parse(other).contains("geo"));
  EXPECT_FALSE(parse_slices_json(other)->properties.geo.has_value());
}

TEST(SlicesJsonTest, LayoutIsThatOfAnIndentedDocument) {
  VarsDistributed overview = small_overview();
  overview.add_distributed_var(
      whole_var(float_var("tab\t \"q\" \\ del\x7f \xc3\xa9 \xff", {}), "Param", "h:1"));
  ProgramProperties properties = small_properties();
  for (const auto& text :
       {slices_json(properties, overview), slices_json(ProgramProperties(), VarsDistributed())}) {
    EXPECT_EQ(nlohmann::ordered_json::parse(text).dump(1) + "\n", text);
  }
  EXPECT_THAT(slices_json(properties, overview),
              ::testing::HasSubstr("\"tab\\t \\\"q\\\" \\\\ del\x7f \xc3\xa9 \xef\xbf\xbd\""));
}

std::string refusal(const char* pointer, const json& value) {
  json file = json::parse(slices_json(geo_properties(), small_overview()));
  file[json::json_pointer(pointer)] = value;
  return parse_slices_json(file.dump()).status().message();
}

TEST(SlicesJsonTest, BadFilesAreRefused) {
  EXPECT_EQ(parse_slices_json("{").status().message(), "slices.json: the text is not valid JSON");
  EXPECT_EQ(parse_slices_json("[]").status().message(), "slices.json: the file is not an object");
  EXPECT_EQ(parse_slices_json("{}").status().message(), "slices.json: schema is not a string");
  EXPECT_EQ(refusal("/schema", "x"), "slices.json: schema is \"x\", expected \"millrace.slices\"");
  EXPECT_EQ(refusal("/version", 2), "slices.json: version is 2, this build reads 1 to 1");
  EXPECT_EQ(refusal("/overview", 1), "slices.json: overview is not an object");
  EXPECT_EQ(refusal("/overview/is_chief", 1),
            "slices.json: overview.is_chief is not true or false");
  EXPECT_EQ(refusal("/overview/endpoints", {1}),
            "slices.json: overview.endpoints is not a list of strings");
  EXPECT_EQ(refusal("/overview/vars", 3), "slices.json: overview.vars is not a list");
  EXPECT_EQ(refusal("/overview/vars/2", 3), "slices.json: overview.vars[2] is not an object");
  EXPECT_EQ(refusal("/overview/vars/2/offset", "0"),
            "slices.json: overview.vars[2].offset is not an integer");
  EXPECT_EQ(refusal("/overview/vars/0/origin/shape", {"a"}),
            "slices.json: overview.vars[0].origin.shape is not a list of integers");
  EXPECT_EQ(refusal("/overview/vars/0/slice/lod_level", 5'000'000'000),
            "slices.json: overview.vars[0].slice.lod_level is not an integer of 31 bits");
  EXPECT_EQ(refusal("/overview/vars/0/slice/dtype", 99),
            "slices.json: overview.vars[0].slice has dtype 99 and type 7, which do not exist");
  EXPECT_EQ(refusal("/overview/vars/0/offset", UINT64_MAX),
            "slices.json: overview.vars[0].offset is not an integer of 63 bits");
  EXPECT_EQ(refusal("/geo", nullptr), "slices.json: geo is not an object");
  EXPECT_EQ(refusal("/geo/vars", 1), "slices.json: geo.vars is not a list");
  EXPECT_EQ(refusal("/geo/push_nums", 0),
            "slices.json: geo has push_nums 0 and trainers 3, expected 1 or more");
  EXPECT_EQ(refusal("/geo/vars/0/is_sparse", "False"),
            "slices.json: geo.vars[0].is_sparse is not true or false");
  EXPECT_EQ(refusal("/geo/vars/0/sections", {4}),
            "slices.json: geo.vars[0] has 2 var_names, 1 sections and 2 epmap, expected equal "
            "numbers");
}

TEST(SlicesJsonTest, ImbalanceIsLargestOverMean) {
  EXPECT_DOUBLE_EQ(imbalance({}), 1);
  EXPECT_DOUBLE_EQ(imbalance({0, 0}), 1);
  EXPECT_DOUBLE_EQ(imbalance({2, 2}), 1);
  EXPECT_DOUBLE_EQ(imbalance({3, 1}), 1.5);
}

TEST(SlicesJsonTest, SizesThatNobodyKnowsCountAsNothing) {
  EXPECT_EQ(slice_bytes(float_var("x", {3, 2})), 24);
  EXPECT_EQ(slice_bytes(float_var("x", {-1, 2})), 0);
  EXPECT_EQ(slice_bytes(float_var("x", {INT64_MAX / 2})), 0);
}

}  // namespace
}  // namespace millrace::transpiler
