// What a file of --fleet may say, and what is wrong with others.

#include "tools/transpile/fleet_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

StatusOr<fleet::JobSpec> parse(const std::string& text) {
  return parse_fleet_config(text, [](const std::string& name) -> std::optional<std::string> {
    return name == "CPU_NUM" ? std::optional<std::string>("8") : std::nullopt;
  });
}

std::string fault(const std::string& more) {
  return parse(R"({"mode": "async", "pservers": "a:1", "trainers": 1)" + more + "}")
      .status()
      .message();
}

TEST(FleetConfig, SaysTheJob) {
  const auto spec = parse(R"({"mode": "geo", "pservers": "a:1, b:2", "trainers": 3,
    "a_sync_configs": {"k_steps": 100}, "env": {"FLAGS_x": "y"}, "adam_d2sum": true,
    "fleet_desc_configs": {"use_cvm": false, "dense_table": {"x": 1},
                           "emb": {"sparse_shard_num": 7, "sparse_weight_bounds": [-1, 1]}}})");
  ASSERT_TRUE(spec.ok()) << spec.status().to_string();
  EXPECT_EQ(*spec->strategy.mode(), ps::CommMode::kGeo);
  EXPECT_THAT(spec->servers, ElementsAre("a:1", "b:2"));
  EXPECT_EQ(spec->workers, 3);
  EXPECT_TRUE(spec->strategy.adam_d2sum());
  EXPECT_FALSE(spec->strategy.use_cvm());
  EXPECT_NE(spec->strategy.table_configs("emb"), nullptr);
  EXPECT_EQ(spec->strategy.table_configs("dense_table"), nullptr);
  EXPECT_EQ(spec->environment("FLAGS_x"), "y");
  EXPECT_EQ(spec->environment("CPU_NUM"), "8");
}

TEST(FleetConfig, NamesWhatIsWrong) {
  EXPECT_EQ(parse("[]").status().message(), "expected a JSON object, found a list");
  EXPECT_THAT(parse(R"({"mode": "half", "pservers": "a:1", "trainers": 1})").status().message(),
              HasSubstr("'mode': expected sync, async or geo, found 'half'"));
  EXPECT_THAT(parse(R"({"mode": "geo", "pservers": "a:1", "trainers": 1})").status().message(),
              HasSubstr("'mode' is geo, but a_sync_configs.k_steps is 0"));
  EXPECT_THAT(parse(R"({"mode": "sync", "pservers": "a:1", "trainers": 1.5})").status().message(),
              HasSubstr("'trainers': expected a whole number from 1"));
  EXPECT_THAT(parse(R"({"mode": "sync", "trainers": 1})").status().message(),
              HasSubstr("pservers"));
  EXPECT_THAT(fault(R"(, "a_sync_configs": {"colour": 1})"), HasSubstr("key 'colour'"));
  EXPECT_THAT(fault(R"(, "a_sync_configs": 3)"), HasSubstr("'a_sync_configs': expected an object"));
  EXPECT_THAT(fault(R"(, "fleet_desc_configs": {"emb": {"sparse_colour": 1}})"),
              HasSubstr("key 'sparse_colour'"));
  EXPECT_THAT(fault(R"(, "env": {"CPU_NUM": 4})"), HasSubstr("'env.CPU_NUM': expected a string"));
  EXPECT_THAT(fault(R"(, "colour": 1)"), HasSubstr("colour"));
  EXPECT_EQ(fault(""), "");
}

}  // namespace
}  // namespace millrace::tools
