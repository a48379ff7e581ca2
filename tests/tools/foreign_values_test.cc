// Values that were made for another job are refused where a job takes them: snapshots that are
// resharded, parameters of servers, and settings of typed tables that the table would ignore.
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/base/file.h"
#include "io/npz.h"
#include "tests/io/temp_folder.h"
#include "tests/support/process.h"

namespace millrace::tools {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ForeignWords = std::vector<std::string>;

constexpr const char* kForeignNet = R"(# millrace program 1

block 0 {
  param ema: f32(20, 4)
  param emb: f32(20, 4)
  param w: f32(4, 2)
  var ids: i64(-1, 1) need_check_feed
  var a0: f32(-1, 1, 4)
  var b0: f32(-1, 1, 4)
  var s: f32(-1, 1, 4)
  var e: f32(-1, 4)
  var xs: f32(0, -1, 1, 4)
  var h: f32(-1, 2)
  var q: f32(-1, 2)
  var loss: f32(1)
  lookup_table_v2 Ids=ids W=ema -> Out=a0 {is_sparse: true, padding_idx: -1l}
  lookup_table_v2 Ids=ids W=emb -> Out=b0 {is_sparse: true, padding_idx: -1l}
  elementwise_add X=a0 Y=b0 -> Out=s {axis: -1}
  reshape2 X=s -> Out=e XShape=xs {shape: [-1, 4]}
  mul X=e Y=w -> Out=h {x_num_col_dims: 1, y_num_col_dims: 1}
  square X=h -> Out=q
  mean X=q -> Out=loss
}
)";
constexpr const char* kForeignStartup = R"(# millrace program 1

block 0 {
  persist ema: f32(20, 4)
  persist emb: f32(20, 4)
  persist w: f32(4, 2)
  fill_constant -> Out=ema {shape: [20l, 4l], value: 0.5, dtype: 5}
  fill_constant -> Out=emb {shape: [20l, 4l], value: 0.25, dtype: 5}
  fill_constant -> Out=w {shape: [4l, 2l], value: 0.125, dtype: 5}
}
)";

struct ForeignEnded {
  int code = -1;
  std::string output;
};

class ForeignValues : public ::testing::Test {
 protected:
  void SetUp() override {
    write("net", kForeignNet);
    write("startup", kForeignStartup);
    write("min.json",
          R"({"losses": ["loss"], "optimizer": [{"type": "sgd", "learning_rate": 0.5}]})");
    expect_good(run("transpile-program", {"--program", at("net"), "--startup", at("startup"),
                                          "--minimize", at("min.json"), "-o", at("alone"), "-q"}));
    std::map<std::string, Value> feeds;
    for (int step = 0; step < 2; ++step) {
      auto& ids = feeds[fmt::format("t0/step{}/ids", step)].as<Tensor>();
      ASSERT_TRUE(ids.resize(DType::kInt64, {3, 1}).ok());
      for (int64_t i = 0; i < 3; ++i) ids.data<int64_t>()[i] = (i * 7 + step * 5) % 20;
    }
    write("feeds.npz", *io::npz_bytes(feeds));
  }

  [[nodiscard]] std::string at(const std::string& name) const { return folder_ / name; }
  void write(const std::string& name, const std::string& bytes) const {
    ASSERT_TRUE(write_file_atomically(at(name), bytes, Replace::kYes).ok());
  }
  static ForeignEnded run(const std::string& name, ForeignWords words) {
    words.insert(words.begin(), spawn::tool(name));
    spawn::Process process(words);
    const int code = process.wait(60'000);
    return {code, process.output()};
  }
  static void expect_good(const ForeignEnded& ended) { EXPECT_EQ(ended.code, 0) << ended.output; }

  /// Transpiles a job. \param fields  of its configuration beside the servers
  [[nodiscard]] ForeignEnded transpile_with(const std::string& job, const std::string& fields,
                                            int servers = 2) const {
    ForeignWords endpoints;
    for (int i = 0; i < servers; ++i) endpoints.push_back(fmt::format("127.0.0.1:{}", 7400 + i));
    write(job + ".json",
          fmt::format(R"({{"pservers": "{}", {}}})", fmt::join(endpoints, ","), fields));
    return run("transpile-program",
               {"--program", at("alone/main/__model__"), "--startup", at("alone/main/__startup__"),
                "--config", at(job + ".json"), "--trainer-id", "all", "-o", at(job), "-q"});
  }
  /// A job of one trainer with these typed tables: JSON.
  [[nodiscard]] ForeignEnded transpile(const std::string& job, const std::string& tables,
                                       int servers = 2) const {
    const std::string typed = tables.empty() ? "" : ", \"sparse_tables\": " + tables;
    return transpile_with(job, "\"trainers\": 1" + typed, servers);
  }
  /// Trains the job in one process.
  [[nodiscard]] ForeignEnded train(const std::string& job, const ForeignWords& more) const {
    ForeignWords words = {"--cluster",    "inproc",        "--transpiled", at(job),
                          "--feed-steps", at("feeds.npz"), "--steps",      "2",
                          "--fetch",      "loss",          "-o",           at("out.npz"),
                          "--force",      "--deadline-ms", "20000"};
    words.insert(words.end(), more.begin(), more.end());
    return run("run-program", words);
  }
  [[nodiscard]] ForeignEnded reshard(const std::string& from, const std::string& to) const {
    return run("checkpoint",
               {"reshard", at("of_" + from), "--slices", at(from + "/slices.json"), "--to-slices",
                at(to + "/slices.json"), "-o", at(from + "_to_" + to), "--force"});
  }
  void write_values(const std::string& name, const std::map<std::string, Dims>& dims) const {
    std::map<std::string, Value> values;
    for (const auto& [var, shape] : dims) {
      auto& tensor = values[var].as<Tensor>();
      ASSERT_TRUE(tensor.resize(DType::kFloat32, shape).ok());
      for (int64_t i = 0; i < tensor.numel(); ++i)
        tensor.data<float>()[i] = static_cast<float>(i % 7) * 0.1F;
    }
    write(name, *io::npz_bytes(values));
  }

 private:
  testing::TempFolder folder_;
};

// Both the second table of one job and the only one of another have a number that differs.
TEST_F(ForeignValues, SnapshotsOfOtherTablesAreNotResharded) {
  for (const auto& [job, tables] :
       {std::pair("plain", ""), {"one", R"({"emb": {}})"}, {"both", R"({"ema": {}, "emb": {}})"}}) {
    expect_good(transpile(job, tables));
    expect_good(train(job, {"-q", "--snapshot-dir", at(std::string("of_") + job)}));
  }
  for (const auto& [from, to, var] : {std::tuple("plain", "one", "'emb'"),
                                      {"one", "both", "'ema'"},
                                      {"plain", "both", "'ema'"}}) {
    const ForeignEnded refused = reshard(from, to);
    EXPECT_EQ(refused.code, 7) << from << " to " << to;
    EXPECT_THAT(refused.output,
                AllOf(HasSubstr(var), HasSubstr("no typed table in the snapshots")));
  }
  EXPECT_THAT(reshard("both", "one").output, HasSubstr("'ema' is a typed table in the snapshots"));
  // the same tables for another number of servers
  expect_good(transpile("three", R"({"ema": {}, "emb": {}})", 3));
  expect_good(reshard("both", "three"));
  for (const auto& [job, snapshots] : {std::pair("both", "of_both"), {"three", "both_to_three"}})
    expect_good(run("checkpoint",
                    {"convert", at(snapshots), "--slices", at(std::string(job) + "/slices.json"),
                     "--to", "npz", "-o", at(std::string(job) + ".npz"), "-q"}));
  expect_good(run("checkpoint", {"diff", at("both.npz"), at("three.npz")}));
  expect_good(train("three", {"-q", "--snapshot-dir", at("both_to_three")}));
}

TEST_F(ForeignValues, SnapshotsForOtherServersAreRefused) {
  expect_good(transpile("two", ""));
  expect_good(transpile("three", "", 3));
  expect_good(train("two", {"-q", "--snapshot-dir", at("of_two")}));
  expect_good(reshard("two", "three"));
  const ForeignEnded refused = train("two", {"-q", "--snapshot-dir", at("two_to_three")});
  EXPECT_EQ(refused.code, 3) << refused.output;
  EXPECT_THAT(refused.output,
              AllOf(HasSubstr("the snapshot was made for the servers of another job"),
                    HasSubstr("server 0 of 3")));
}

TEST_F(ForeignValues, RowsOfAnotherNumberAndMissingOnesAreNoticed) {
  expect_good(transpile("job", R"({"emb": {}})"));
  write_values("some.npz", {{"ema", {20, 4}}, {"w", {4, 2}}});
  const ForeignEnded warned = train("job", {"--params", at("some.npz")});
  expect_good(warned);
  EXPECT_THAT(warned.output, AllOf(HasSubstr("warning"), HasSubstr("lack the embedding 'emb'")));
  write_values("all.npz", {{"ema", {20, 4}}, {"emb", {20, 4}}, {"w", {4, 2}}});
  EXPECT_THAT(train("job", {"--params", at("all.npz")}).output, Not(HasSubstr("lack")));
  // servers alone are given the file, so no trainer compares it with its program
  const auto serve = [&](const char* params) {
    return run("pserver", {"--program", at("job/pserver_0/__model__"), "--startup",
                           at("job/pserver_0/__startup__"), "--slices", at("job/slices.json"),
                           "--params", at(params)});
  };
  write_values("short.npz", {{"ema", {20, 4}}, {"emb", {10, 4}}, {"w", {4, 2}}});
  EXPECT_THAT(serve("short.npz").output, HasSubstr("'emb' must be f32(20, 4), found f32 [10, 4]"));
}

TEST_F(ForeignValues, ServersRefuseValuesOfOtherDims) {
  expect_good(transpile("job", "", 1));
  const auto serve = [&](const std::string& params) {
    return run("pserver", {"--program", at("job/pserver_0/__model__"), "--startup",
                           at("job/pserver_0/__startup__"), "--slices", at("job/slices.json"),
                           "--params", at(params)});
  };
  write_values("turned.npz", {{"ema", {20, 4}}, {"emb", {20, 4}}, {"w", {2, 4}}});
  write_values("tall.npz", {{"ema", {40, 4}}, {"emb", {20, 4}}, {"w", {4, 2}}});
  EXPECT_THAT(serve("turned.npz").output, HasSubstr("expected f32 [4, 2], found f32 [2, 4]"));
  EXPECT_THAT(serve("tall.npz").output, HasSubstr("expected f32 [20, 4], found f32 [40, 4]"));
  for (const std::string& name : {std::string("turned"), std::string("tall")}) {
    expect_good(run("checkpoint", {"convert", at(name + ".npz"), "--to", "fluid-separate", "-o",
                                   at(name), "-q"}));
    const ForeignEnded refused = serve(name);
    EXPECT_EQ(refused.code, 3) << refused.output;
    EXPECT_THAT(refused.output, HasSubstr(name == "tall" ? "[20, 4]" : "[4, 2]"));
  }
}

TEST_F(ForeignValues, ParametersThatAFileLacksAreNamed) {
  expect_good(transpile("job", "", 1));
  write_values("some.npz", {{"ema", {20, 4}}, {"emb", {20, 4}}});
  const ForeignEnded trained = train("job", {"--params", at("some.npz")});
  expect_good(trained);
  EXPECT_THAT(trained.output,
              HasSubstr("some.npz has no values for these vars, which keep those of the startup "
                        "program: w\n"));
  // and one that only trainers hold
  const auto add = [](std::string text, const std::string& var, const std::string& op) {
    text.insert(text.find("  persist ema") == std::string::npos ? text.find("  param ema")
                                                                : text.find("  persist ema"),
                var);
    return text.insert(text.rfind('}'), op);
  };
  const std::string declared = "  persist seen: f32(1)\n";
  write("net", add(kForeignNet, declared, "  increment X=seen -> Out=seen {step: 1.0}\n"));
  write("startup", add(kForeignStartup, declared,
                       "  fill_constant -> Out=seen {shape: [1l], value: 0.0, dtype: 5}\n"));
  expect_good(
      run("transpile-program", {"--program", at("net"), "--startup", at("startup"), "--minimize",
                                at("min.json"), "-o", at("alone"), "-q", "--force"}));
  expect_good(transpile("counts", "", 1));
  write_values("all.npz", {{"ema", {20, 4}}, {"emb", {20, 4}}, {"w", {4, 2}}});
  const ForeignEnded counted = train("counts", {"--params", at("all.npz")});
  expect_good(counted);
  EXPECT_THAT(counted.output, HasSubstr("all.npz has no values for these vars, which keep those of "
                                        "the startup program: seen\n"));
}

TEST_F(ForeignValues, SettingsThatATableWouldIgnoreAreRefused) {
  struct Row {
    const char* settings;
    const char* message;
  };
  for (const Row& row :
       {Row{R"({"embed_sgd_param": {"learning_rate": 5}})",
            "'sparse_tables.emb.embed_sgd_param' has no effect on a MemorySparseTable of "
            "EmbeddingAccessor"},
        Row{R"({"embedx_threshold": 3})", "embedx_threshold' has no effect"},
        Row{R"({"shrink_every": 3})", "shrink_every' has no effect"},
        Row{R"({"memory_rows": 3})", "memory_rows' has no effect"},
        Row{R"({"embedx_sgd_param": {"initial_range": 3}})",
            "embedx_sgd_param.initial_range' has no effect with the rule SparseNaiveSGDRule"},
        Row{R"({"embedx_sgd_param": {"beta1_decay_rate": 0.5}})",
            "beta1_decay_rate' has no effect with the rule SparseNaiveSGDRule"},
        Row{R"({"embedx_sgd_param": {"learning_rate": 1e39}})",
            "expected a number that float32 can hold"},
        Row{R"({"accessor_class": "SparseAccessor", "show_scale": false})",
            "show_scale' has no effect on a MemorySparseTable of SparseAccessor"},
        Row{R"({"accessor_class": "SparseAccessor", "initializer": "fill_constant&1"})",
            "initializer' has no effect"}}) {
    const ForeignEnded refused = transpile("job", fmt::format(R"({{"emb": {}}})", row.settings));
    EXPECT_EQ(refused.code, 3) << row.settings << refused.output;
    EXPECT_THAT(refused.output, HasSubstr(row.message)) << row.settings;
  }
  expect_good(transpile("job", R"({"emb": {"accessor_class": "CtrCommonAccessor", "shrink_every": 3,
                                  "zero_init": false, "embed_sgd_param": {"initial_range": 0.5}}})"));
}

// Trainers took the parameters of the file for their first step.
TEST_F(ForeignValues, ParametersDoNotReplaceThoseOfSnapshots) {
  expect_good(transpile("two", ""));
  expect_good(transpile("three", "", 3));
  expect_good(train("two", {"-q", "--snapshot-dir", at("of_two")}));
  write_values("other.npz", {{"ema", {20, 4}}, {"emb", {20, 4}}, {"w", {4, 2}}});
  for (const char* const name : {"plain", "given"}) {
    expect_good(reshard("two", "three"));
    ForeignWords more = {"--snapshot-dir", at("two_to_three"), "--save-persistables",
                         at(std::string(name) + ".npz")};
    if (name == std::string("given")) more.insert(more.end(), {"--params", at("other.npz")});
    const ForeignEnded ended = train("three", more);
    expect_good(ended);
    EXPECT_EQ(ended.output.find("has other values for") != std::string::npos,
              name == std::string("given"))
        << ended.output;
  }
  expect_good(run("checkpoint", {"diff", at("plain.npz"), at("given.npz")}));
}

// It waited for the other trainer for ever.
TEST_F(ForeignValues, AFolderWithoutAllTrainersIsRefused) {
  expect_good(
      transpile_with("job", R"("trainers": 2, "sync_mode": false, "config_sync_mode": false)"));
  std::filesystem::remove_all(at("job/trainer_1"));
  const ForeignEnded refused = train("job", {});
  EXPECT_EQ(refused.code, 3) << refused.output;
  EXPECT_THAT(refused.output,
              HasSubstr("server 0 expects 2 trainers, but the folder has programs of 1"));
}

// Its servers took no snapshot after the first.
TEST_F(ForeignValues, AsynchronousServersTakeNoSnapshotsBySteps) {
  expect_good(
      transpile_with("job", R"("trainers": 1, "sync_mode": false, "config_sync_mode": false)"));
  const ForeignWords by_steps = {"--snapshot-dir", at("snapshots"), "--snapshot-every", "2"};
  const ForeignEnded refused = train("job", by_steps);
  EXPECT_NE(refused.code, 0);
  EXPECT_THAT(refused.output, HasSubstr("this server is asynchronous and counts no steps"));
  ForeignWords by_time = by_steps;
  by_time.insert(by_time.end(), {"--snapshot-interval-ms", "10"});
  const ForeignEnded warned = train("job", by_time);
  expect_good(warned);
  EXPECT_THAT(warned.output, HasSubstr("snapshot_every has no effect"));
}

}  // namespace
}  // namespace millrace::tools
