#include <array>
#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "executor/session.h"
#include "framework/program.h"
#include "tests/support/sanitizers.h"

namespace millrace::fork_test {
namespace {

// Output and exit status of a forked process; its output is "hangs" if it does not end.
struct Child {
  std::string output;
  int status = -1;
};

Child in_child(const std::function<std::string()>& body) {
  std::array<int, 2> pipe{};
  EXPECT_EQ(::pipe(pipe.data()), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const std::string text = body();
    const ssize_t written = ::write(pipe[1], text.data(), text.size());
    ::_exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  Child child;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (::waitpid(pid, &child.status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() >= deadline) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, &child.status, 0);
      child.output = "hangs";
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  ::close(pipe[1]);
  std::array<char, 1000> text{};
  const ssize_t size = ::read(pipe[0], text.data(), text.size());
  ::close(pipe[0]);
  if (size > 0) child.output.assign(text.data(), static_cast<size_t>(size));
  return child;
}

constexpr int64_t kRows = 400;
constexpr int64_t kColumns = 128;

// out = (2 x) w: an elementwise op, whose loops are ours, and a product, whose loops are a
// library's; both are large enough for several threads.
std::unique_ptr<Program> product() {
  auto program = Program::create();
  Block& block = program->root();
  for (const char* name : {"x", "twice", "out"})
    block.declare(name, VarSpec::tensor(DType::kFloat32, {-1, kColumns}));
  VarSpec weight = VarSpec::tensor(DType::kFloat32, {kColumns, kColumns});
  weight.persistable = true;
  block.declare("w", weight);
  block.append_op("scale").set_input("X", "x").set_output("Out", "twice").set_float("scale", 2);
  block.append_op("mul").set_input("X", "twice").set_input("Y", "w").set_output("Out", "out");
  return program;
}

Session opened(int threads, int devices) {
  SessionOptions options;
  options.threads = threads;
  options.devices = devices;
  auto session = Session::open(*product(), nullptr, options);
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  const std::vector<float> ones(kColumns * kColumns, 1);
  const Status set = session->set("w", Array::of<float>({kColumns, kColumns}, ones));
  EXPECT_TRUE(set.ok()) << set.to_string();
  return std::move(session).value();
}

// "right", or what is wrong.
std::string run(Session& session) {
  Arrays feeds;
  feeds["x"] = Array::of<float>({kRows, kColumns}, std::vector<float>(kRows * kColumns, 0.5F));
  const auto results = session.run(feeds, {"out"});
  if (!results.ok()) return results.status().to_string();
  for (const float value : results->at("out").values<float>()) {
    if (value != static_cast<float>(kColumns)) return "wrong: " + std::to_string(value);
  }
  return "right";
}

class Fork : public ::testing::Test {
 protected:
  void SetUp() override {
    if (spawn::kThreadSanitizer) GTEST_SKIP() << "its builds have threads of other kinds";
  }
};

// The threads of the parent do not exist in the child, which waited for them.
TEST_F(Fork, SessionsRunInTheChildAndInTheParent) {
  Session session = opened(2, 1);
  ASSERT_EQ(run(session), "right");
  const Child same = in_child([&] { return run(session); });
  EXPECT_EQ(same.output, "right");
  EXPECT_EQ(same.status, 0);
  const Child other = in_child([] {
    Session own = opened(2, 1);
    return run(own);
  });
  EXPECT_EQ(other.output, "right");
  EXPECT_EQ(run(session), "right");
}

// The threads of the devices belong to the parent: the child could neither run nor end.
TEST_F(Fork, SeveralDevicesRunInTheChildAndInTheParent) {
  auto session = std::make_unique<Session>(opened(2, 2));
  ASSERT_EQ(run(*session), "right");
  const Child used = in_child([&] {
    const std::string result = run(*session);
    session.reset();
    return result;
  });
  EXPECT_EQ(used.output, "right");
  const Child unused = in_child([&] {
    session.reset();
    return std::string("destroyed");
  });
  EXPECT_EQ(unused.output, "destroyed");
  EXPECT_EQ(run(*session), "right");
}

}  // namespace
}  // namespace millrace::fork_test
