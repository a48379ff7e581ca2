// checkpoint and run-program as processes: arrays and complex numbers in every form, memory that
// does not grow with the number of values, and signals that leave no partial files.

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/checkpoint/checkpoint.h"
#include "io/npz.h"
#include "tests/io/checkpoint/states.h"
#include "tests/io/temp_folder.h"
#include "tests/support/sanitizers.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Words = std::vector<std::string>;

struct Ended {
  int code = -1;  ///< of exit(); -1: ended by a signal
  int64_t peak_kb = 0;
  std::string out;  ///< stdout and stderr
};

class Process {
 public:
  Process(const std::string& tool, const Words& words, std::string log) : log_(std::move(log)) {
    const char* const folder = std::getenv("MILLRACE_BIN_DIR");
    EXPECT_NE(folder, nullptr);
    const std::string path = std::string(folder == nullptr ? "." : folder) + "/" + tool;
    child_ = ::fork();
    if (child_ != 0) return;
    const int out = ::open(log_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    ::dup2(out, 1);
    ::dup2(out, 2);
    std::vector<char*> arguments = {const_cast<char*>(path.c_str())};
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    ::execv(path.c_str(), arguments.data());
    ::_exit(127);
  }
  void signal(int number) const { ::kill(child_, number); }
  [[nodiscard]] Ended wait() const {
    int status = 0;
    rusage usage{};
    EXPECT_EQ(::wait4(child_, &status, 0, &usage), child_);
    Ended ended;
    if (WIFEXITED(status)) ended.code = WEXITSTATUS(status);
    ended.peak_kb = usage.ru_maxrss;
    std::ifstream in(log_);
    ended.out.assign(std::istreambuf_iterator<char>(in), {});
    return ended;
  }

 private:
  std::string log_;
  pid_t child_ = -1;
};

class CheckpointProcess : public ::testing::Test {
 protected:
  [[nodiscard]] std::string at(const std::string& name) const { return folder_ / name; }
  Ended run(const Words& words) const { return Process("checkpoint", words, at("log")).wait(); }
  void succeed(const Words& words) const {
    const Ended ended = run(words);
    EXPECT_EQ(ended.code, 0) << words[0] << "\n" << ended.out;
  }
  // Names in the test's folder, except the log.
  [[nodiscard]] std::vector<std::string> left() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path()))
      if (entry.path().filename() != "log") names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }

  testing::TempFolder folder_;
};

std::map<std::string, Value> arrays_and_complex() {
  std::map<std::string, Value> values;
  TensorArray& array = values["steps"].as<TensorArray>();
  array.resize(3);
  array[0] = std::move(testing::counting({2, 3}).as<Tensor>());
  array[2] = std::move(testing::counting({4}, 7).as<Tensor>());
  for (const DType dtype : {DType::kComplex64, DType::kComplex128}) {
    Tensor& z = values[std::string(dtype_name(dtype))].as<Tensor>();
    EXPECT_TRUE(z.resize(dtype, {2, 2}).ok());
    for (int64_t i = 0; i < z.bytes(); ++i) z.raw()[i] = std::byte(i % 60);
  }
  values["plain"] = testing::counting({5});
  return values;
}

TEST_F(CheckpointProcess, ArraysAndComplexNumbersInEveryForm) {
  const std::map<std::string, Value> values = arrays_and_complex();
  io::LocalState state;
  for (const auto& [name, value] : values) state.add(name, value);
  ASSERT_EQ(testing::outcome(io::save_state_dict(state, at("c"))), "ok");
  succeed({"verify", at("c")});
  succeed({"convert", at("c"), "--to", "safetensors", "-o", at("s.safetensors")});
  succeed({"convert", at("s.safetensors"), "--to", "checkpoint", "-o", at("c2")});
  succeed({"reshard", at("c2"), "--ranks", "2", "--cut-whole", "-o", at("c3")});
  succeed({"verify", at("c3")});
  succeed({"diff", at("c"), at("c3")});
  succeed({"diff", at("c"), at("s.safetensors")});
  succeed({"convert", at("c3"), "--to", "npz", "-o", at("n.npz"), "--vars", "plain,steps,c*"});
  // an npz archive has an empty array for an element that was never written
  EXPECT_THAT(run({"diff", at("c"), at("n.npz")}).out, HasSubstr("steps[1]: only in B"));
  const auto back = io::Checkpoint::open(at("c3"));
  ASSERT_EQ(testing::outcome(back), "ok");
  const auto steps = back->load("steps");
  ASSERT_EQ(testing::outcome(steps), "ok");
  EXPECT_FALSE((*steps->get_if<TensorArray>())[1].initialized());
  EXPECT_THAT(run({"show", at("c"), "steps"}).out,
              ::testing::AllOf(HasSubstr("steps[0]"), HasSubstr("element 1 was never written")));
  EXPECT_THAT(run({"convert", at("c"), "--to", "fluid-separate", "-o", at("f")}).out,
              HasSubstr("'steps'"));
  EXPECT_FALSE(fs::exists(at("f")));
}

TEST_F(CheckpointProcess, ComplexNumbersAreComparedInThePlane) {
  for (const double imaginary : {4.0, 4.5}) {
    Value value;
    Tensor& z = value.as<Tensor>();
    ASSERT_TRUE(z.resize(DType::kComplex128, {1}).ok());
    reinterpret_cast<double*>(z.raw())[0] = 3;
    reinterpret_cast<double*>(z.raw())[1] = imaginary;
    io::LocalState state;
    state.add("z", value);
    ASSERT_EQ(testing::outcome(io::save_state_dict(state, at(imaginary > 4 ? "b" : "a"))), "ok");
  }
  const Ended differ = run({"diff", at("a"), at("b")});
  EXPECT_EQ(differ.code, 1);
  EXPECT_THAT(differ.out, HasSubstr("z: 1 elements differ, by at most 0.5"));
  succeed({"diff", at("a"), at("b"), "--atol", "0.5"});
}

TEST_F(CheckpointProcess, MemoryDoesNotGrowWithTheNumberOfValues) {
  if (spawn::kSanitizerKeepsMemory) GTEST_SKIP() << "a sanitizer keeps memory that was freed";
  constexpr int kValues = 24;
  constexpr int64_t kValueBytes = int64_t{4} << 20U;
  std::map<std::string, Value> values;
  for (int i = 0; i < kValues; ++i)
    values["v" + std::to_string(i)] = testing::counting({kValueBytes / 4}, static_cast<float>(i));
  testing::put_file(at("in.npz"), *io::npz_bytes(values));
  values.clear();
  // includes the memory of the test, because a child starts with it
  const int64_t base = run({"--version"}).peak_kb;
  ASSERT_LT(base, 64 << 10);
  const std::vector<std::pair<std::string, std::string>> steps = {
      {"in.npz", "checkpoint"},
      {"checkpoint", "npz"},
      {"npz", "safetensors"},
      {"safetensors", "fluid-separate"},
      {"fluid-separate", "checkpoint2"},
      {"checkpoint2", "fluid-combined"}};
  for (const auto& [from, to] : steps) {
    std::string form = to;
    if (form.back() == '2') form.pop_back();
    const Ended ended =
        run({"convert", at(from), "--to", form, "-o", at(to), "--no-sync", "--threads", "1"});
    ASSERT_EQ(ended.code, 0) << ended.out;
    // two values and a few blocks; all values together are 96 MiB
    EXPECT_LT(ended.peak_kb - base, 4 * kValueBytes / 1024) << from << " to " << to;
  }
  succeed({"diff", at("in.npz"), at("checkpoint2")});
}

// Waits until a file of the output exists, so that the signal arrives in the middle.
bool wait_for(const std::function<bool()>& there) {
  for (int i = 0; i < 2000; ++i) {
    if (there()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

TEST_F(CheckpointProcess, ManifestsLieBesideWhatIsWritten) {
  const std::string model = "tests/data/models/fit_a_line_2018";
  succeed({"convert", model, "--to", "fluid-separate", "-o", at("f")});
  succeed({"convert", model, "--to", "fluid-combined", "-o", at("one")});
  succeed({"export", at("f"), "--model-dir", model, "-o", at("m")});
  EXPECT_THAT(left(), ElementsAre("f", "f.manifest.json", "m", "m.manifest.json", "one",
                                  "one.manifest.json"));
  const auto infer = [&] {
    return Process("run-program", {"--model-dir", at("m"), "--feed", "x=1x13xf32=zeros"}, at("log"))
        .wait();
  };
  EXPECT_EQ(infer().code, 0);
  std::string bytes = testing::bytes_of(at("m/fc_0.w_0"));
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  testing::put_file(at("m/fc_0.w_0"), bytes);
  EXPECT_THAT(infer().out, HasSubstr("as its manifest says"));
  fs::remove(at("m.manifest.json"));
  EXPECT_EQ(infer().code, 0);
}

TEST_F(CheckpointProcess, SignalsLeaveNothingHalfWritten) {
  std::map<std::string, Value> values;
  for (int i = 0; i < 40; ++i)
    values["v" + std::to_string(i)] = testing::counting({1 << 20}, static_cast<float>(i));
  testing::put_file(at("in.npz"), *io::npz_bytes(values));
  values.clear();
  int interrupted = 0;
  for (const std::string form : {"checkpoint", "safetensors", "npz", "fluid-separate"}) {
    for (const auto& [number, code] : {std::pair(SIGINT, 130), std::pair(SIGTERM, 143)}) {
      const Process process("checkpoint", {"convert", at("in.npz"), "--to", form, "-o", at("out")},
                            at("log"));
      wait_for([&] { return left().size() > 1; });
      process.signal(number);
      const Ended ended = process.wait();
      if (ended.code == 0) {  // it finished before the signal
        fs::remove_all(at("out"));
        continue;
      }
      ++interrupted;
      EXPECT_EQ(ended.code, code) << ended.out;
      EXPECT_THAT(ended.out, HasSubstr("stopped by signal"));
      EXPECT_THAT(left(), ElementsAre("in.npz")) << form;
    }
  }
  EXPECT_GT(interrupted, 0);
}

TEST_F(CheckpointProcess, ATrainingRunEndsBehindItsStep) {
  {
    std::ofstream data(at("d.csv"));
    for (int i = 0; i < 400; ++i) {
      for (int k = 0; k < 14; ++k) data << (k == 0 ? "" : ",") << (i * 31 + k * 17) % 23 * 0.05;
      data << "\n";
    }
  }
  const std::string model = "tests/data/fit_a_line/";
  const Words train = {"--program",
                       model + "main.pb",
                       "--startup",
                       model + "startup.pb",
                       "--data",
                       at("d.csv"),
                       "--columns",
                       "x=0:12,y=13",
                       "--batch-size",
                       "10",
                       "--seed",
                       "3",
                       "--epochs",
                       "200000",
                       "--save-every",
                       "1000000",
                       "--checkpoint-dir",
                       at("ck"),
                       "--save-persistables",
                       at("end.npz"),
                       "--resume",
                       "auto"};
  for (const auto& [number, code] : {std::pair(SIGINT, 130), std::pair(SIGTERM, 143)}) {
    const Process process("run-program", train, at("log"));
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    process.signal(number);
    const Ended ended = process.wait();
    EXPECT_EQ(ended.code, code) << ended.out;
    EXPECT_FALSE(fs::exists(at("end.npz")));
  }
  // The part that the second process did before the signal is complete.
  succeed({"verify", at("ck")});
  EXPECT_GE(std::distance(fs::directory_iterator(at("ck")), fs::directory_iterator()), 1);
  EXPECT_THAT(run({"gc", at("ck"), "--keep", "1", "--all-incomplete"}).out,
              ::testing::Not(HasSubstr("incomplete")));
}

}  // namespace
}  // namespace millrace::tools
