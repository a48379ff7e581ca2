// Jobs of transpiled programs whose servers hold more than parameters and optimizer state: averages
// of parameters and counters of schedules. They are saved, a later job continues from them, and a
// feed that would not reach them is refused.

#include <chrono>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/base/file.h"
#include "framework/export.h"
#include "framework/read_program.h"
#include "io/npz.h"
#include "tests/io/temp_folder.h"
#include "tests/support/process.h"

namespace millrace::tools {
namespace {

using ::testing::HasSubstr;
using KeptWords = std::vector<std::string>;
using KeptValues = std::map<std::string, Value>;

constexpr const char* kNet[2] = {R"(# millrace program 1

block 0 {
  param w: f32(200, 100)
  param b: f32(100)
  var x: f32(-1, 200) need_check_feed
  var h: f32(-1, 100)
  var o: f32(-1, 100)
  var q: f32(-1, 100)
  var loss: f32(1)
  mul X=x Y=w -> Out=h {x_num_col_dims: 1, y_num_col_dims: 1}
  elementwise_add X=h Y=b -> Out=o {axis: 1}
  square X=o -> Out=q
  mean X=q -> Out=loss
}
)",
                                 R"(# millrace program 1

block 0 {
  persist w: f32(200, 100)
  persist b: f32(100)
  uniform_random -> Out=w {shape: [200l, 100l], seed: 2, min: -0.5, max: 0.5, dtype: 5}
  fill_constant -> Out=b {shape: [100l], value: 0.5, dtype: 5}
}
)"};
constexpr const char* kCounter = "@LR_DECAY_COUNTER@";

// The net with batch_norm between its sum and its square; trainers hold its moving mean and
// variance.
std::string with_batch_norm(std::string text, bool startup) {
  const auto put = [&text](const std::string& before, const std::string& more) {
    text.insert(text.find(before), more);
  };
  if (startup) {
    put("  uniform_random",
        "  persist size: f32(100)\n  persist shift: f32(100)\n"
        "  persist mean: f32(100)\n  persist spread: f32(100)\n");
    using Filled = std::pair<const char*, const char*>;
    for (const auto& [name, value] : {Filled("size", "1.0"), Filled("shift", "0.0"),
                                      Filled("mean", "0.0"), Filled("spread", "1.0")})
      text.insert(text.rfind('}'),
                  fmt::format("  fill_constant -> Out={} {{shape: [100l], value: {}, dtype: 5}}\n",
                              name, value));
    return text;
  }
  put("  var x:",
      "  param size: f32(100)\n  param shift: f32(100)\n"
      "  persist mean: f32(100) stop_gradient\n"
      "  persist spread: f32(100) stop_gradient\n  var n: f32(-1, 100)\n"
      "  var own_mean: f32(100)\n  var own_spread: f32(100)\n");
  put("  square",
      "  batch_norm X=o Scale=size Bias=shift Mean=mean Variance=spread -> "
      "Y=n MeanOut=mean VarianceOut=spread SavedMean=own_mean "
      "SavedVariance=own_spread {momentum: 0.5, epsilon: 0.1, data_layout: \"NCHW\"}\n");
  text.replace(text.find("square X=o"), 10, "square X=n");
  return text;
}

// Looks row 7 up in each step; main program and startup program.
constexpr const char* kLookUpNet[2] = {R"(# millrace program 1

block 0 {
  param w: f32(100, 200)
  var x: f32(-1, 200) need_check_feed
  var ids: i64(4, 1)
  var h: f32(4, 200)
  var o: f32(4, 200)
  var q: f32(4, 200)
  var loss: f32(1)
  fill_constant -> Out=ids {shape: [4l, 1l], value: 7.0, dtype: 3}
  lookup_table Ids=ids W=w -> Out=h {is_sparse: true}
  elementwise_add X=h Y=x -> Out=o
  square X=o -> Out=q
  mean X=q -> Out=loss
}
)",
                                       R"(# millrace program 1

block 0 {
  persist w: f32(100, 200)
  fill_constant -> Out=w {shape: [100l, 200l], value: 0.5, dtype: 5}
}
)"};

struct KeptEnd {
  int code = -1;
  std::string output;
};

class KeptByServers : public ::testing::Test {
 protected:
  [[nodiscard]] std::string at(const std::string& name) const { return folder_ / name; }
  void write(const std::string& name, const std::string& bytes) const {
    ASSERT_TRUE(write_file_atomically(at(name), bytes, Replace::kYes).ok());
  }
  static KeptEnd run(const std::string& name, const KeptWords& words) {
    KeptWords command{spawn::tool(name)};
    command.insert(command.end(), words.begin(), words.end());
    spawn::Process process(command);
    const int code = process.wait(60'000);
    return {code, process.output()};
  }
  static void succeed(const std::string& name, const KeptWords& words) {
    const KeptEnd ended = run(name, words);
    ASSERT_EQ(ended.code, 0) << name << " " << fmt::format("{}", fmt::join(words, " ")) << "\n"
                             << ended.output;
  }

  // The training program for one process.
  void minimize(const std::string& rate) const { minimize_net(kNet[0], kNet[1], rate); }
  void minimize_net(const std::string& main, const std::string& startup,
                    const std::string& rate) const {
    write("net", main);
    write("net_startup", startup);
    write("min.json", R"({"losses": ["loss"], "optimizer": [{"type": "sgd", )" + rate + "}]}");
    succeed("transpile-program",
            {"--program", at("net"), "--startup", at("net_startup"), "--minimize", at("min.json"),
             "-o", at("alone"), "--force", "-q"});
  }
  // Averages of both parameters, as the original's ExponentialMovingAverage appends them.
  void append_averages(const char* extra_op = nullptr) const {
    const std::string main_path = at("alone/main/__model__");
    const std::string startup_path = at("alone/main/__startup__");
    auto main = *read_program(main_path, {});
    auto startup = *read_program(startup_path, {});
    const auto keep = [&](const std::string& name, llvm::ArrayRef<int64_t> dims, float value) {
      VarSpec spec = VarSpec::tensor(DType::kFloat32, dims);
      spec.persistable = true;
      main->root().declare(name, spec);
      startup->root().declare(name, spec);
      Op& fill = startup->root().append_op("fill_constant");
      fill.set_output("Out", name).set_float("value", value).set_int("dtype", 5);
      fill.set_attr("shape", AttrValue::of_longs({dims.begin(), dims.end()}));
    };
    keep("decay", {1}, 0.75F);
    const auto append = [&](const char* type, const std::string& param) -> Op& {
      Op& op = main->root().append_op(type);
      op.set_int("op_role", 2).set_strings("op_role_var", {param, param + "@GRAD"});
      return op;
    };
    for (const std::string param : {"w", "b"}) {
      const llvm::ArrayRef<int64_t> dims = main->root().find_var(param)->dims();
      keep(param + "_ema", dims, 0);
      for (const char* const end : {"_old", "_now", "_sum"})
        main->root().declare(param + end, VarSpec::tensor(DType::kFloat32, dims));
      append("elementwise_mul", param)
          .set_input("X", param + "_ema")
          .set_input("Y", "decay")
          .set_output("Out", param + "_old");
      append("scale", param)
          .set_input("X", param)
          .set_output("Out", param + "_now")
          .set_float("scale", 0.25F);
      append("elementwise_add", param)
          .set_input("X", param + "_old")
          .set_input("Y", param + "_now")
          .set_output("Out", param + "_sum");
      append("assign", param).set_input("X", param + "_sum").set_output("Out", param + "_ema");
    }
    if (extra_op != nullptr) {
      keep("norm", {1}, 0);
      append(extra_op, "w").set_input("X", "w").set_output("Out", "norm");
    }
    write("alone/main/__model__", export_program(*main));
    write("alone/main/__startup__", export_program(*startup));
  }
  [[nodiscard]] KeptEnd distribute() const {
    write("job.json",
          R"({"pservers": "127.0.0.1:7300,127.0.0.1:7301", "trainers": 2, "sync_mode": true})");
    return run("transpile-program",
               {"--program", at("alone/main/__model__"), "--startup", at("alone/main/__startup__"),
                "--config", at("job.json"), "--trainer-id", "all", "-o", at("job"), "--force"});
  }
  // The same batches for both trainers and the one process, so that means equal those of one.
  void write_feeds(int begin, int end, const std::string& more = "", int trainers = 2) const {
    KeptValues own;
    KeptValues all;
    for (int step = begin; step < end; ++step) {
      for (const std::string where : {"", "t0/", "t1/"}) {
        if (where == "t1/" && trainers < 2) continue;
        KeptValues& to = where.empty() ? own : all;
        const std::string prefix = fmt::format("{}step{}/", where, step - begin);
        auto& x = to[prefix + "x"].as<Tensor>();
        ASSERT_TRUE(x.resize(DType::kFloat32, {4, 200}).ok());
        for (int64_t i = 0; i < 800; ++i)
          x.data<float>()[i] = static_cast<float>((i * 7 + step * 11) % 13) * 0.1F - 0.6F;
        if (more.empty()) continue;
        auto& fed = to[prefix + more].as<Tensor>();
        ASSERT_TRUE(fed.resize(DType::kFloat32, {1}).ok());
        fed.data<float>()[0] = 0.5F;
      }
    }
    write("own.npz", *io::npz_bytes(own));
    write("all.npz", *io::npz_bytes(all));
  }
  // Fixed initial values of parameters: each slice of a sliced one would draw different numbers.
  void write_first_values() const {
    KeptValues first;
    auto& w = first["w"].as<Tensor>();
    auto& b = first["b"].as<Tensor>();
    ASSERT_TRUE(w.resize(DType::kFloat32, {200, 100}).ok());
    ASSERT_TRUE(b.resize(DType::kFloat32, {100}).ok());
    for (int64_t i = 0; i < w.numel(); ++i)
      w.data<float>()[i] = static_cast<float>(i * 37 % 101) * 0.01F - 0.5F;
    for (int64_t i = 0; i < b.numel(); ++i) b.data<float>()[i] = 0.5F;
    write("first.npz", *io::npz_bytes(first));
  }
  [[nodiscard]] KeptWords alone(int steps) const {
    return {"--program",    at("alone/main/__model__"),
            "--startup",    at("alone/main/__startup__"),
            "--feed-steps", at("own.npz"),
            "--steps",      std::to_string(steps),
            "--fetch",      "loss",
            "--output",     at("out.npz"),
            "--force",      "-q"};
  }
  [[nodiscard]] KeptWords together(int steps) const {
    return {"--cluster",    "inproc",      "--transpiled", at("job"),
            "--feed-steps", at("all.npz"), "--steps",      std::to_string(steps),
            "--fetch",      "loss",        "--output",     at("out.npz"),
            "--force",      "-q"};
  }
  static KeptWords with(KeptWords words, const KeptWords& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // The job ends with the values of one process.
  void expect_alike(const std::string& job, const std::string& one, const KeptWords& names) const {
    const auto found = io::read_values(at(job));
    const auto wanted = io::read_values(at(one));
    ASSERT_TRUE(found.ok() && wanted.ok());
    for (const std::string& name : names) {
      ASSERT_TRUE(found->contains(name)) << name;
      ASSERT_TRUE(wanted->contains(name)) << name;
      const auto& own = *found->at(name).get_if<Tensor>();
      const auto& other = *wanted->at(name).get_if<Tensor>();
      ASSERT_EQ(own.dims(), other.dims()) << name;
      ASSERT_EQ(own.dtype(), other.dtype()) << name;
      for (int64_t i = 0; i < own.numel(); ++i) {
        if (own.dtype() == DType::kInt64)
          ASSERT_EQ(own.data<int64_t>()[i], other.data<int64_t>()[i]) << name;
        else
          ASSERT_NEAR(own.data<float>()[i], other.data<float>()[i], 1e-6F) << name << " " << i;
      }
    }
  }

  testing::TempFolder folder_;
};

TEST_F(KeptByServers, AveragesOfCutParametersAreSavedAndLoaded) {
  minimize(R"("learning_rate": 0.1)");
  append_averages();
  const KeptEnd made = distribute();
  ASSERT_EQ(made.code, 0) << made.output;
  write_feeds(0, 6);
  write_first_values();
  const KeptWords begin{"--params", at("first.npz")};
  succeed("run-program", with(with(alone(6), begin), {"--save-persistables", at("one.npz")}));
  succeed("run-program", with(with(together(6), begin), {"--save-persistables", at("after.npz")}));
  const KeptWords names{"w", "b", "w_ema", "b_ema", "decay"};
  expect_alike("after.npz", "one.npz", names);

  // A job that is stopped and continues ends with the same values.
  write_feeds(0, 3);
  succeed("run-program", with(with(together(3), begin), {"--save-params", at("saved"),
                                                         "--save-persistables", at("saved.npz")}));
  for (const std::string& name : names)
    EXPECT_TRUE(std::filesystem::exists(at("saved/" + name))) << name;
  write_feeds(3, 6);
  succeed("run-program",
          with(together(3), {"--params", at("saved"), "--save-persistables", at("later.npz")}));
  expect_alike("later.npz", "one.npz", names);
  // and so does one process, whose startup program sets the rate
  succeed("run-program",
          with(alone(3), {"--params", at("saved.npz"), "--save-persistables", at("later.npz")}));
  expect_alike("later.npz", "one.npz", names);
}

TEST_F(KeptByServers, WhatSchedulesCountIsSavedAndLoaded) {
  minimize(R"("schedule": {"type": "exponential", "learning_rate": 0.2, "decay_steps": 1,
                           "decay_rate": 0.5})");
  const KeptEnd made = distribute();
  ASSERT_EQ(made.code, 0) << made.output;
  write_feeds(0, 6);
  write_first_values();
  const KeptWords begin{"--params", at("first.npz")};
  succeed("run-program", with(with(alone(6), begin), {"--save-persistables", at("one.npz")}));
  const KeptWords names{"w", "b", kCounter};
  succeed("run-program", with(with(together(6), begin), {"--save-persistables", at("after.npz")}));
  expect_alike("after.npz", "one.npz", names);
  write_feeds(0, 3);
  succeed("run-program", with(with(together(3), begin), {"--save-params", at("saved")}));
  write_feeds(3, 6);
  succeed("run-program",
          with(together(3), {"--params", at("saved"), "--save-persistables", at("later.npz")}));
  expect_alike("later.npz", "one.npz", names);
}

TEST_F(KeptByServers, WhatTrainersAloneHoldIsSavedAndLoaded) {
  const std::string rate = R"("learning_rate": 0.1)";
  minimize_net(with_batch_norm(kNet[0], false), with_batch_norm(kNet[1], true), rate);
  const KeptEnd made = distribute();
  ASSERT_EQ(made.code, 0) << made.output;
  write_feeds(0, 6);
  write_first_values();
  const KeptWords begin{"--params", at("first.npz")};
  succeed("run-program", with(with(alone(6), begin), {"--save-persistables", at("one.npz")}));
  const KeptWords names{"w", "b", "size", "shift", "mean", "spread"};
  write_feeds(0, 3);
  succeed("run-program", with(with(together(3), begin), {"--save-persistables", at("saved.npz")}));
  write_feeds(3, 6);
  succeed("run-program",
          with(together(3), {"--params", at("saved.npz"), "--save-persistables", at("later.npz")}));
  expect_alike("later.npz", "one.npz", names);
}

// Trainers look rows up in their own copy of a sparse table, which they receive in each step. The
// rows of the first step are those that the servers begin with, although the startup program of a
// trainer only declares the table.
TEST_F(KeptByServers, FirstLookUpsFindTheRowsOfTheServers) {
  minimize_net(kLookUpNet[0], kLookUpNet[1], R"("learning_rate": 0.1)");
  const KeptEnd made = distribute();
  ASSERT_EQ(made.code, 0) << made.output;
  write_feeds(0, 3);
  succeed("run-program", with(alone(3), {"--save-persistables", at("one.npz")}));
  succeed("run-program", with(together(3), {"--save-persistables", at("after.npz")}));
  expect_alike("after.npz", "one.npz", {"w"});
}

// All ids are rows of the first slice, so the server of the second one never moves its powers of
// beta.
TEST_F(KeptByServers, PowersThatDifferFromServerToServerAreTold) {
  write("net", kLookUpNet[0]);
  write("net_startup", kLookUpNet[1]);
  write("min.json",
        R"({"losses": ["loss"], "optimizer": [{"type": "adam", "learning_rate": 0.1}]})");
  succeed("transpile-program", {"--program", at("net"), "--startup", at("net_startup"),
                                "--minimize", at("min.json"), "-o", at("alone"), "-q"});
  const KeptEnd made = distribute();
  ASSERT_EQ(made.code, 0) << made.output;
  write_feeds(0, 3);
  KeptWords words = with(together(3), {"--save-persistables", at("after.npz")});
  std::erase(words, "-q");
  const KeptEnd ended = run("run-program", words);
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(ended.output, ::testing::ContainsRegex("beta1_pow_acc_0' on 127.0.0.1:730[01] is "
                                                     "another one than on 127.0.0.1:730[01]"));
}

TEST_F(KeptByServers, WhatNeedsAWholeParameterIsRefusedOnSlices) {
  minimize(R"("learning_rate": 0.1)");
  append_averages("squared_l2_norm");
  const KeptEnd made = distribute();
  EXPECT_EQ(made.code, 7) << made.output;
  EXPECT_THAT(made.output, HasSubstr("'squared_l2_norm' is run in addition to the update of the "
                                     "param 'w', which is sliced over servers"));
}

TEST_F(KeptByServers, AFeedThatDoesNotReachThemIsRefused) {
  minimize(R"("schedule": {"type": "exponential_scheduler", "learning_rate": 0.1, "gamma": 0.5})");
  ASSERT_EQ(distribute().code, 0);
  for (const char* const name : {"learning_rate_0", "b"}) {
    write_feeds(0, 2, name);
    const KeptEnd ended = run("run-program", together(2));
    EXPECT_NE(ended.code, 0) << name;
    EXPECT_THAT(ended.output,
                HasSubstr(fmt::format("feed: '{}' is held by the servers, so a feed has no "
                                      "effect on it",
                                      name)));
  }
  write_feeds(0, 2, "something_else");  // columns for vars of no program are ignored
  succeed("run-program", together(2));
}

// With one trainer an asynchronous job is as exact as one process.
TEST_F(KeptByServers, AsynchronousSchedulesGoOnToo) {
  minimize(R"("schedule": {"type": "exponential", "learning_rate": 0.2, "decay_steps": 1,
                           "decay_rate": 0.5})");
  write("job.json",
        R"({"pservers": "127.0.0.1:7300,127.0.0.1:7301", "trainers": 1, "sync_mode": false,
            "config_sync_mode": false, "runtime_split_send_recv": false})");
  succeed("transpile-program",
          {"--program", at("alone/main/__model__"), "--startup", at("alone/main/__startup__"),
           "--config", at("job.json"), "--trainer-id", "all", "-o", at("job"), "--force", "-q"});
  write_first_values();
  write_feeds(0, 6, "", 1);
  succeed("run-program",
          with(together(6), {"--params", at("first.npz"), "--save-persistables", at("one.npz")}));
  write_feeds(0, 3, "", 1);
  succeed("run-program", with(together(3), {"--params", at("first.npz"), "--save-params",
                                            at("saved"), "--save-persistables", at("saved.npz")}));
  write_feeds(3, 6, "", 1);
  for (const char* const saved : {"saved", "saved.npz"}) {
    succeed("run-program",
            with(together(3), {"--params", at(saved), "--save-persistables", at("later.npz")}));
    expect_alike("later.npz", "one.npz", {"w", "b", kCounter});
  }
}

TEST_F(KeptByServers, AnEarlierJobInTheFolderIsNotTakenUp) {
  minimize(R"("learning_rate": 0.1)");
  ASSERT_EQ(distribute().code, 0);  // two trainers, two servers
  write("trainer_0_runtime", "");
  std::filesystem::rename(at("trainer_0_runtime"), at("job/trainer_0/runtime.json"));
  std::filesystem::rename(at("job/slices.json"), at("job/tables.json"));
  write("small.json", R"({"pservers": "127.0.0.1:7300", "trainers": 1, "sync_mode": true})");
  KeptWords words{"--program",    at("alone/main/__model__"),
                  "--startup",    at("alone/main/__startup__"),
                  "--config",     at("small.json"),
                  "--trainer-id", "all",
                  "-o",           at("job")};
  const KeptEnd refused = run("transpile-program", words);
  EXPECT_EQ(refused.code, 3);
  EXPECT_THAT(refused.output, HasSubstr("of an earlier job, which the new job would use"));
  words.push_back("--force");
  succeed("transpile-program", words);
  for (const char* const gone : {"trainer_1/__model__", "pserver_1/__model__",
                                 "pserver_1/__startup__", "trainer_0/runtime.json", "tables.json"})
    EXPECT_FALSE(std::filesystem::exists(at(std::string("job/") + gone))) << gone;
  EXPECT_TRUE(std::filesystem::exists(at("job/trainer_0/__model__")));
  // Batches of a trainer that the job does not have are ignored.
  write_feeds(0, 1);
  const KeptEnd ended = run("run-program", together(1));
  EXPECT_EQ(ended.code, 3);
  EXPECT_THAT(ended.output, HasSubstr("is for trainer 1, but the job has 1"));
}

// A trainer that is still opening when another one has failed no longer finds a server.
TEST_F(KeptByServers, AJobWhoseFirstStepFailsEndsAtOnce) {
  minimize(R"("learning_rate": 0.1)");
  ASSERT_EQ(distribute().code, 0);
  write_feeds(0, 1, "b");
  for (int i = 0; i < 12; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(run("run-program", together(1)).code, 3);
    ASSERT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20)) << i;
  }
}

TEST_F(KeptByServers, ARateWithoutItsScheduleIsTold) {
  write("net", kNet[0]);
  write("net_startup", kNet[1]);
  const auto told = [&](const std::string& rate) {
    write("min.json", R"({"losses": ["loss"], "optimizer": [{"type": "sgd", )" + rate + "}]}");
    const KeptEnd made =
        run("transpile-program", {"--program", at("net"), "--startup", at("net_startup"),
                                  "--minimize", at("min.json"), "-o", at("alone"), "--force"});
    EXPECT_EQ(made.code, 0) << made.output;
    return made.output;
  };
  const auto warning = HasSubstr("the learning rate 'learning_rate_0' keeps its initial value");
  EXPECT_THAT(told(R"("schedule": {"type": "exponential_scheduler", "learning_rate": 0.1,
                                   "gamma": 0.5})"),
              warning);
  EXPECT_THAT(told(R"("learning_rate": 0.1)"), ::testing::Not(warning));
  write("min.json", R"({"losses": ["loss"], "optimizer": [{"type": "sgd", "learning_rate": 0.5,
                        "schedule": {"type": "constant", "learning_rate": 0.1}}]})");
  const KeptEnd both =
      run("transpile-program", {"--program", at("net"), "--startup", at("net_startup"),
                                "--minimize", at("min.json"), "-o", at("alone"), "--force"});
  EXPECT_EQ(both.code, 3);
  EXPECT_THAT(both.output, HasSubstr("'optimizer[0].learning_rate': expected that of "
                                     "'optimizer[0].schedule', 0.1, found 0.5"));
}

}  // namespace
}  // namespace millrace::tools
