// Losses over many classes whose weight is on servers: jobs end with the values of one process.
// Trainers fetch the rows of the classes or nodes of a step; geo trainers send those they trained.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "framework/base/file.h"
#include "io/npz.h"
#include "tests/io/temp_folder.h"
#include "tests/support/process.h"

namespace millrace::tools {
namespace {

using LossWords = std::vector<std::string>;

constexpr int64_t kClasses = 6000;
constexpr int kSteps = 5;
constexpr const char* kStartup = R"(# millrace program 1

block 0 {
  persist w: f32(6000, 4)
  uniform_random -> Out=w {shape: [6000l, 4l], seed: 2, min: -0.5, max: 0.5, dtype: 5}
}
)";
constexpr const char* kNce =
    "nce Input=x Label=y Weight=w -> Cost=cost SampleLogits=scores SampleLabels=classes "
    "{num_total_classes: 6000, num_neg_samples: 5, sampler: 1, seed: 9, ";
constexpr const char* kTree =
    "hierarchical_sigmoid X=x Label=y W=w -> Out=cost PreOut=scores {num_classes: 6001, ";

struct LossJob {
  const char* name;
  const char* loss;
  int trainers;
  LossWords flags;
};

class SampledLosses : public ::testing::TestWithParam<LossJob> {
 protected:
  [[nodiscard]] std::string at(const std::string& name) const { return folder_ / name; }
  void write(const std::string& name, const std::string& bytes) const {
    ASSERT_TRUE(write_file_atomically(at(name), bytes, Replace::kYes).ok());
  }
  static void succeed(const std::string& name, LossWords words, const LossWords& more = {}) {
    words.insert(words.begin(), spawn::tool(name));
    words.insert(words.end(), more.begin(), more.end());
    spawn::Process process(words);
    ASSERT_EQ(process.wait(60'000), 0) << name << "\n" << process.output();
  }
  // The same batches for the one process and for every trainer, so that means are those of one.
  void write_values() const {
    std::map<std::string, Value> feeds[2];
    for (int step = 0; step < kSteps; ++step) {
      for (const std::string where : {"", "t0/", "t1/"}) {
        if (where == "t1/" && GetParam().trainers < 2) continue;
        const std::string prefix = fmt::format("{}step{}/", where, step);
        auto& to = feeds[where.empty() ? 0 : 1];
        auto& x = to[prefix + "x"].as<Tensor>();
        auto& y = to[prefix + "y"].as<Tensor>();
        ASSERT_TRUE(x.resize(DType::kFloat32, {3, 4}).ok());
        ASSERT_TRUE(y.resize(DType::kInt64, {3, 1}).ok());
        for (int64_t i = 0; i < 12; ++i)
          x.data<float>()[i] = static_cast<float>((i * 7 + step * 11) % 13) * 0.1F - 0.6F;
        for (int64_t i = 0; i < 3; ++i) y.data<int64_t>()[i] = (i * 2999 + step * 7) % kClasses;
      }
    }
    write("own.npz", *io::npz_bytes(feeds[0]));
    write("all.npz", *io::npz_bytes(feeds[1]));
    // each slice of a table would draw different numbers
    std::map<std::string, Value> first;
    auto& w = first["w"].as<Tensor>();
    ASSERT_TRUE(w.resize(DType::kFloat32, {kClasses, 4}).ok());
    for (int64_t i = 0; i < w.numel(); ++i)
      w.data<float>()[i] = static_cast<float>(i * 37 % 101) * 0.01F - 0.5F;
    write("first.npz", *io::npz_bytes(first));
  }

  testing::TempFolder folder_;
};

TEST_P(SampledLosses, EndWithTheValuesOfOneProcess) {
  const LossJob& job = GetParam();
  write("net", fmt::format("# millrace program 1\n\nblock 0 {{\n  param w: f32(6000, 4)\n"
                           "  var x: f32(-1, 4) need_check_feed\n"
                           "  var y: i64(-1, 1) need_check_feed\n  var cost: f32(-1, 1)\n"
                           "  var scores: f32(-1, -1)\n  var classes: i64(-1, 6)\n"
                           "  var loss: f32(1)\n  {}is_sparse: true, remote_prefetch: true}}\n"
                           "  mean X=cost -> Out=loss\n}}\n",
                           job.loss));
  write("startup", kStartup);
  write("min.json",
        R"({"losses": ["loss"], "optimizer": [{"type": "adagrad", "learning_rate": 0.1}]})");
  succeed("transpile-program", {"--program", at("net"), "--startup", at("startup"), "--minimize",
                                at("min.json"), "-o", at("alone"), "-q"});
  const std::string main = at("alone/main/__model__");
  const std::string startup = at("alone/main/__startup__");
  succeed(
      "transpile-program",
      {"--program", main, "--startup", startup, "--pservers", "127.0.0.1:7300,127.0.0.1:7301",
       "--trainers", std::to_string(job.trainers), "--trainer-id", "all", "-o", at("job"), "-q"},
      job.flags);
  write_values();
  const LossWords ends = {"--steps", std::to_string(kSteps), "--params", at("first.npz"), "-q"};
  succeed("run-program",
          {"--program", main, "--startup", startup, "--feed-steps", at("own.npz"),
           "--save-persistables", at("one.npz")},
          ends);
  succeed("run-program",
          {"--cluster", "inproc", "--transpiled", at("job"), "--feed-steps", at("all.npz"),
           "--save-persistables", at("after.npz")},
          ends);
  const auto found = io::read_values(at("after.npz"));
  const auto wanted = io::read_values(at("one.npz"));
  ASSERT_TRUE(found.ok() && wanted.ok());
  const auto& after = *found->at("w").get_if<Tensor>();
  const auto& one = *wanted->at("w").get_if<Tensor>();
  ASSERT_EQ(after.dims(), one.dims());
  int64_t trained = 0;
  for (int64_t i = 0; i < one.numel(); ++i) {
    ASSERT_NEAR(after.data<float>()[i], one.data<float>()[i], 1e-6F) << i;
    trained += one.data<float>()[i] != static_cast<float>(i * 37 % 101) * 0.01F - 0.5F ? 1 : 0;
  }
  EXPECT_GT(trained, 4 * kSteps) << "the one process trains rows";
}

const LossWords kGeo = {
    "--transpiler", "geo", "--geo-sgd-mode", "true", "--geo-sgd-need-push-nums", "1"};
INSTANTIATE_TEST_SUITE_P(
    Jobs, SampledLosses,
    ::testing::Values(
        LossJob{"nce_sync", kNce, 2, {}}, LossJob{"tree_sync", kTree, 2, {}},
        LossJob{"nce_async", kNce, 1, {"--sync-mode", "false", "--config-sync-mode", "false"}},
        LossJob{"nce_one_by_one", kNce, 1, {"--sync-mode", "false"}},
        LossJob{"nce_geo", kNce, 1, kGeo}, LossJob{"tree_geo", kTree, 1, kGeo}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace millrace::tools
