#pragma once

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "framework/base/file.h"
#include "io/npz.h"
#include "tests/io/temp_folder.h"
#include "tests/support/process.h"

namespace millrace::tools {

/// A folder in which a test transpiles a net of one param `w` [6000, 4] and runs it, in one process
/// and as a job with two servers, by the tools.
class SmallJob : public ::testing::Test {
 protected:
  using Words = std::vector<std::string>;
  using Values = std::map<std::string, Value>;

  [[nodiscard]] std::string at(const std::string& name) const { return folder_ / name; }
  void write(const std::string& name, const std::string& bytes) const {
    ASSERT_TRUE(write_file_atomically(at(name), bytes, Replace::kYes).ok());
  }
  void write(const std::string& name, const Values& values) const {
    write(name, *io::npz_bytes(values));
  }
  /// Runs a tool, which has to end with status 0.
  static void succeed(const std::string& name, Words words, const Words& more = {}) {
    words.insert(words.begin(), spawn::tool(name));
    words.insert(words.end(), more.begin(), more.end());
    spawn::Process process(words);
    ASSERT_EQ(process.wait(60'000), 0) << name << "\n" << process.output();
  }

  /// Makes the training program of one process (`alone`) and the programs of a job (`job`). The
  /// ops compute `loss` from `x` [rows, 4] and `y` [rows, 1], ids below 6000.
  void make_programs(const std::string& vars_and_ops, const std::string& optimizer, int trainers,
                     const Words& flags) const {
    write("net",
          "# millrace program 1\n\nblock 0 {\n  param w: f32(6000, 4)\n"
          "  var x: f32(-1, 4) need_check_feed\n  var y: i64(-1, 1) need_check_feed\n" +
              vars_and_ops + "}\n");
    write("startup",
          "# millrace program 1\n\nblock 0 {\n  persist w: f32(6000, 4)\n"
          "  fill_constant -> Out=w {shape: [6000l, 4l], value: 0.5, dtype: 5}\n}\n");
    write("min.json", R"({"losses": ["loss"], "optimizer": [{"type": ")" + optimizer +
                          R"(", "learning_rate": 0.1}]})");
    succeed("transpile-program", {"--program", at("net"), "--startup", at("startup"), "--minimize",
                                  at("min.json"), "-o", at("alone"), "-q"});
    succeed("transpile-program",
            {"--program", at("alone/main/__model__"), "--startup", at("alone/main/__startup__"),
             "--pservers", "127.0.0.1:7300,127.0.0.1:7301", "--trainers", std::to_string(trainers),
             "--trainer-id", "all", "-o", at("job"), "-q"},
            flags);
    Values first;  // a table of different rows
    auto& w = first["w"].as<Tensor>();
    ASSERT_TRUE(w.resize(DType::kFloat32, {6000, 4}).ok());
    for (int64_t i = 0; i < w.numel(); ++i) w.data<float>()[i] = first_value(i);
    write("first.npz", first);
  }
  static float first_value(int64_t i) { return static_cast<float>(i * 37 % 101) * 0.01F - 0.5F; }

  /// Adds a batch of three rows to the feeds of `--feed-steps`, under `<prefix>x` and `<prefix>y`.
  static void add_batch(Values& feeds, const std::string& prefix, int number) {
    auto& x = feeds[prefix + "x"].as<Tensor>();
    auto& y = feeds[prefix + "y"].as<Tensor>();
    ASSERT_TRUE(x.resize(DType::kFloat32, {3, 4}).ok());
    ASSERT_TRUE(y.resize(DType::kInt64, {3, 1}).ok());
    for (int64_t i = 0; i < 12; ++i)
      x.data<float>()[i] = static_cast<float>((i * 7 + number * 11) % 13) * 0.1F - 0.6F;
    for (int64_t i = 0; i < 3; ++i) y.data<int64_t>()[i] = (i * 2999 + number * 7) % 6000;
  }

  /// `w` after training in one process, or by the job.
  std::vector<float> train_alone(int steps, const std::string& feeds) const {
    return train({"--program", at("alone/main/__model__"), "--startup",
                  at("alone/main/__startup__"), "--feed-steps", at(feeds)},
                 steps);
  }
  std::vector<float> train_job(int steps, const std::string& feeds) const {
    return train({"--cluster", "inproc", "--transpiled", at("job"), "--feed-steps", at(feeds)},
                 steps);
  }

 private:
  std::vector<float> train(const Words& words, int steps) const {
    succeed("run-program", words,
            {"--steps", std::to_string(steps), "--params", at("first.npz"), "-q",
             "--save-persistables", at("after.npz"), "--force"});
    const auto values = io::read_values(at("after.npz"));
    EXPECT_TRUE(values.ok());
    if (!values.ok()) return {};
    const auto numbers = values->at("w").get_if<Tensor>()->values<float>();
    return {numbers.begin(), numbers.end()};
  }

  testing::TempFolder folder_;
};

}  // namespace millrace::tools
