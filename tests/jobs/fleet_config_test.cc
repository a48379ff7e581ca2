// Valid contents of a file of --fleet, and errors in others.

#include "jobs/config/fleet_config.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jobs/config/rate_schedule.h"

namespace millrace::jobs {
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
    "all_optimizers": true, "dense_gradients": "all_reduce",
    "fleet_desc_configs": {"use_cvm": false, "dense_table": {"x": 1},
                           "emb": {"sparse_shard_num": 7, "sparse_weight_bounds": [-1, 1]}}})");
  ASSERT_TRUE(spec.ok()) << spec.status().to_string();
  EXPECT_EQ(*spec->strategy.mode(), ps::CommMode::kGeo);
  EXPECT_THAT(spec->servers, ElementsAre("a:1", "b:2"));
  EXPECT_EQ(spec->workers, 3);
  EXPECT_TRUE(spec->strategy.adam_d2sum());
  EXPECT_TRUE(spec->strategy.all_optimizers());
  EXPECT_TRUE(spec->all_reduces_dense);
  EXPECT_FALSE(spec->strategy.use_cvm());
  EXPECT_NE(spec->strategy.table_configs("emb"), nullptr);
  EXPECT_EQ(spec->strategy.table_configs("dense_table"), nullptr);
  EXPECT_EQ(spec->environment("FLAGS_x"), "y");
  EXPECT_EQ(spec->environment("CPU_NUM"), "8");
}

// The number of trainers decides, as in the original.
TEST(FleetConfig, TrainersMayHaveFewerOrMoreEndpoints) {
  for (const char* const trainers : {"1", "2", "3"}) {
    const auto spec = parse(std::string(R"({"mode": "sync", "pservers": "a:1", "trainers": )") +
                            trainers + R"(, "trainer_endpoints": "b:1, c:1"})");
    ASSERT_TRUE(spec.ok()) << spec.status().to_string();
    EXPECT_EQ(std::to_string(spec->workers), trainers);
    EXPECT_THAT(spec->worker_endpoints, ElementsAre("b:1", "c:1"));
  }
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
  EXPECT_THAT(fault(R"(, "a_sync_configs": {"k_steps": 5})"),
              HasSubstr("'mode' is async, but a_sync_configs.k_steps is 5, which is for geo"));
  EXPECT_THAT(fault(R"(, "a_sync_configs": {"colour": 1})"), HasSubstr("key 'colour'"));
  EXPECT_THAT(fault(R"(, "a_sync_configs": 3)"), HasSubstr("'a_sync_configs': expected an object"));
  EXPECT_THAT(fault(R"(, "fleet_desc_configs": {"emb": {"sparse_colour": 1}})"),
              HasSubstr("key 'sparse_colour'"));
  EXPECT_THAT(fault(R"(, "fleet_desc_configs": {"use_cvm": 1})"),
              HasSubstr("'fleet_desc_configs.use_cvm': expected true or false, found 1"));
  EXPECT_THAT(fault(R"(, "fleet_desc_configs": {"emb": 8})"),
              HasSubstr("expected an object with settings of a table, found 8"));
  EXPECT_THAT(fault(R"(, "env": {"CPU_NUM": 4})"), HasSubstr("'env.CPU_NUM': expected a string"));
  EXPECT_EQ(fault(R"(, "dense_gradients": "ring")"),
            "'dense_gradients': expected servers or all_reduce, found 'ring'");
  EXPECT_EQ(fault(R"(, "dense_gradients": "servers")"), "");
  EXPECT_THAT(fault(R"(, "colour": 1)"), HasSubstr("colour"));
  EXPECT_EQ(parse(R"({"mode": "sync", "pservers": "a:1,", "trainers": 1})").status().message(),
            "'pservers' has '' (expected host:port with a port up to 65535)");
  EXPECT_EQ(fault(R"(, "trainer_endpoints": "a:1,,b:1")"),
            "'trainer_endpoints' has '' (expected host:port with a port up to 65535)");
  EXPECT_EQ(fault(R"(, "heter_workers": "a:1,a:1")"), "'heter_workers' names 'a:1' twice");
  EXPECT_EQ(fault(""), "");
}

TEST(RateSchedule, FollowsTheSchedulerObjects) {
  const auto at = [](const std::string& text, int64_t step) {
    const auto rate = parse_rate_schedule(text);
    EXPECT_TRUE(rate.ok()) << rate.status().to_string();
    return rate.ok() ? (*rate)(step) : -1.0F;
  };
  const std::string noam = R"({"type": "noam_scheduler", "d_model": 4, "warmup_steps": 10})";
  EXPECT_EQ(at(noam, 0), 0.0F);
  EXPECT_NEAR(at(noam, 1), 0.5 * std::pow(10.0, -1.5), 1e-8);
  EXPECT_NEAR(at(noam, 10), 0.5 * std::pow(10.0, -0.5), 1e-7);
  EXPECT_NEAR(at(noam, 40), 0.5 * std::pow(40.0, -0.5), 1e-7);
  const std::string numbers = R"("learning_rate": 0.5, "gamma": 0.9})";
  EXPECT_NEAR(at(R"({"type": "exponential_scheduler", )" + numbers, 3), 0.5 * 0.729, 1e-7);
  EXPECT_NEAR(at(R"({"type": "natural_exp_scheduler", )" + numbers, 3), 0.5 * std::exp(-2.7), 1e-7);
  EXPECT_NEAR(at(R"({"type": "inverse_time_scheduler", )" + numbers, 3), 0.5 / 3.7, 1e-7);
}

TEST(RateSchedule, OddOnesAreRefusedByName) {
  const auto message = [](const std::string& text) {
    return parse_rate_schedule(text).status().message();
  };
  EXPECT_THAT(message("[]"), HasSubstr("expected a JSON object"));
  EXPECT_THAT(message(R"({"type": "cosine", "learning_rate": 1, "gamma": 1})"),
              HasSubstr("found 'cosine'"));
  EXPECT_THAT(message(R"({"type": "noam_scheduler", "d_model": 0, "warmup_steps": 1})"),
              HasSubstr("expected numbers above 0"));
  EXPECT_THAT(message(R"({"type": "exponential_scheduler", "learning_rate": 1})"),
              HasSubstr("gamma"));
}

}  // namespace
}  // namespace millrace::jobs
