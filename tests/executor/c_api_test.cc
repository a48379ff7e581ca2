#include "executor/c_api.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/support/sanitizers.h"

namespace {

namespace spawn = millrace::spawn;
using ::testing::HasSubstr;

// y = x * w + b; see tests/data/models/README.md
constexpr const char* kModel = "tests/data/models/linear";

TEST(CApi, RunsAModel) {
  char error[256] = "left over";
  mr_session* session = nullptr;
  ASSERT_EQ(mr_open_model(kModel, 1, &session, error, sizeof error), 0) << error;
  EXPECT_STREQ(error, "");
  ASSERT_NE(mr_input_name(session, 0), nullptr);
  EXPECT_EQ(mr_input_name(session, 1), nullptr);
  const std::vector<int64_t> dims{2, 3};
  const std::vector<float> x{0, 0, 0, 1, 1, 1};
  const mr_array feed{mr_input_name(session, 0), MR_FLOAT32, 2, dims.data(), x.data(),
                      x.size() * sizeof(float)};
  mr_array result{};
  ASSERT_EQ(mr_run(session, &feed, 1, nullptr, 1, &result, error, sizeof error), 0) << error;
  EXPECT_STREQ(result.name, mr_output_name(session, 0));
  ASSERT_EQ(result.rank, 2);
  EXPECT_EQ(result.dims[0], 2);
  EXPECT_EQ(result.dtype, MR_FLOAT32);
  mr_close(session);
}

TEST(CApi, OpensOnADevice) {
  char error[256];
  mr_session* session = nullptr;
  ASSERT_EQ(mr_open_model_on("gpu:emulated", kModel, 1, &session, error, sizeof error), 0) << error;
  mr_close(session);
  EXPECT_EQ(mr_open_model_on("gpu:4711", kModel, 1, &session, error, sizeof error), 7);
  EXPECT_THAT(error, HasSubstr("gpu:4711"));
  EXPECT_EQ(session, nullptr);
  EXPECT_EQ(mr_open_program_on("disk", "p", nullptr, 1, &session, error, sizeof error), 3);
}

TEST(CApi, SaysWhatIsWrong) {
  char error[16];
  mr_session* session = nullptr;
  EXPECT_EQ(mr_open_model("tests/data/no_such_model", 1, &session, error, sizeof error), 3);
  EXPECT_EQ(session, nullptr);
  EXPECT_THAT(error, HasSubstr("error: "));
  EXPECT_LT(std::strlen(error), sizeof error);
  EXPECT_EQ(mr_open_model("tests/data/no_such_model", 1, &session, nullptr, 0), 3);
  EXPECT_EQ(mr_open_model(kModel, 0, &session, nullptr, 0), 3);
  mr_close(session);
}

TEST(CApi, RefusesAFeedWithoutDtype) {
  mr_session* session = nullptr;
  ASSERT_EQ(mr_open_model(kModel, 1, &session, nullptr, 0), 0);
  const mr_array feed{"x", 99, 0, nullptr, nullptr, 0};
  char error[256];
  EXPECT_EQ(mr_run(session, &feed, 1, nullptr, 0, nullptr, error, sizeof error), 3);
  EXPECT_THAT(error, HasSubstr("feed 0: expected a name, a dtype, a rank and data"));
  mr_close(session);
}

// None of these may read memory that the caller does not have, or throw through the C interface.
TEST(CApi, RefusesFeedsWhoseBytesDoNotFitTheirDims) {
  mr_session* session = nullptr;
  ASSERT_EQ(mr_open_model(kModel, 1, &session, nullptr, 0), 0);
  const std::vector<int64_t> dims{2, 3};
  const std::vector<int64_t> negative{2, -3};
  const std::vector<int64_t> huge{int64_t{1} << 60U};
  const std::vector<float> x(6);
  char error[256];
  const auto code_of = [&](const mr_array& feed) {
    return mr_run(session, &feed, 1, nullptr, 0, nullptr, error, sizeof error);
  };
  EXPECT_EQ(
      code_of({"x", MR_FLOAT32, 2, dims.data(), x.data(), std::numeric_limits<size_t>::max()}), 3);
  EXPECT_THAT(error, HasSubstr("feed 0 'x': expected 24 bytes, found 18446744073709551615"));
  EXPECT_EQ(code_of({"x", MR_FLOAT32, 2, nullptr, x.data(), 24}), 3);
  EXPECT_THAT(error, HasSubstr("feed 0: expected a name, a dtype, a rank and data"));
  EXPECT_EQ(code_of({"x", MR_FLOAT32, 2, negative.data(), x.data(), 24}), 3);
  EXPECT_THAT(error, HasSubstr("feed 0 'x': expected dims of at least 0"));
  EXPECT_EQ(code_of({"x", MR_FLOAT32, 1, huge.data(), x.data(), size_t{1} << 62U}), 6);
  EXPECT_THAT(error, HasSubstr("above the limit"));
  mr_close(session);
}

// Runs with a feed of 512 MiB in a process that gets no more than 64 MiB; ends with the code of the
// run.
[[noreturn]] void run_without_memory() {
  mr_session* session = nullptr;
  char error[256];
  const int opened = mr_open_model(kModel, 1, &session, error, sizeof error);
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t bytes = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE)) + (64U << 20U);
  rlimit limit{};
  limit.rlim_cur = limit.rlim_max = bytes;
  const int64_t dims = 1 << 27;  // the data is not read, because its copy gets no memory
  const mr_array feed{"x", MR_FLOAT32, 1, &dims, &dims, size_t{4} << 27U};
  if (opened != 0 || setrlimit(RLIMIT_AS, &limit) != 0) std::exit(1);
  const int code = mr_run(session, &feed, 1, nullptr, 0, nullptr, error, sizeof error);
  std::fprintf(stderr, "%s", error);
  std::exit(code);
}

// An exception that leaves the library ends a C program.
TEST(CApiDeathTest, ReturnsMemoryThatIsMissingAsAnError) {
  if (spawn::kSanitizerKeepsMemory) GTEST_SKIP() << "the sanitizer needs the address space";
  EXPECT_EXIT(run_without_memory(), ::testing::ExitedWithCode(6), "out of memory: a call of the C");
}

// These calls ended the process.
TEST(CApi, RefusesNullForASessionAndForArrays) {
  char error[256];
  const auto expect_null = [&](int code, const std::string& text) {
    EXPECT_EQ(code, 2) << text;
    EXPECT_EQ(error, "error: " + text + ", found null");
  };
  const std::string no_session = "session: expected a session";
  const std::string no_pointer = "session: expected a pointer";
  mr_array result{};
  expect_null(mr_open_model(kModel, 1, nullptr, error, sizeof error), no_pointer);
  expect_null(mr_open_program("p", nullptr, 1, nullptr, error, sizeof error), no_pointer);
  expect_null(mr_run(nullptr, nullptr, 0, nullptr, 0, &result, error, sizeof error), no_session);
  expect_null(mr_load_params(nullptr, "p", error, sizeof error), no_session);
  expect_null(mr_save_params(nullptr, "p", error, sizeof error), no_session);
  EXPECT_EQ(mr_input_name(nullptr, 0), nullptr);
  EXPECT_EQ(mr_output_name(nullptr, 0), nullptr);
  mr_close(nullptr);
  mr_session* session = nullptr;
  ASSERT_EQ(mr_open_model(kModel, 1, &session, error, sizeof error), 0) << error;
  expect_null(mr_run(session, nullptr, 1, nullptr, 1, &result, error, sizeof error),
              "feeds: expected 1 array");
  const int64_t dims[] = {1, 3};
  const float x[] = {1, 2, 3};
  const mr_array feed{"x", MR_FLOAT32, 2, dims, x, sizeof x};
  expect_null(mr_run(session, &feed, 1, nullptr, 1, nullptr, error, sizeof error),
              "results: expected room for 1 array");
  mr_close(session);
}

// The later one replaced the earlier one.
TEST(CApi, RefusesAFeedThatIsGivenTwice) {
  mr_session* session = nullptr;
  ASSERT_EQ(mr_open_model(kModel, 1, &session, nullptr, 0), 0);
  const int64_t dims[] = {1, 3};
  const float x[] = {1, 2, 3};
  const mr_array feed{"x", MR_FLOAT32, 2, dims, x, sizeof x};
  const mr_array twice[] = {feed, feed};
  mr_array result{};
  char error[256];
  EXPECT_EQ(mr_run(session, twice, 2, nullptr, 1, &result, error, sizeof error), 3);
  EXPECT_STREQ(error, "error: feed 1 'x': expected one feed of that name, found two");
  mr_close(session);
}

TEST(CApi, RefusesNullForAName) {
  mr_session* session = nullptr;
  char error[256];
  EXPECT_EQ(mr_open_model(nullptr, 1, &session, error, sizeof error), 2);
  EXPECT_THAT(error, HasSubstr("folder: expected a path, found null"));
  EXPECT_EQ(mr_open_model_on(nullptr, kModel, 1, &session, error, sizeof error), 2);
  EXPECT_THAT(error, HasSubstr("device: expected a name, found null"));
  EXPECT_EQ(mr_open_program(nullptr, nullptr, 1, &session, error, sizeof error), 2);
  EXPECT_THAT(error, HasSubstr("program: expected a path, found null"));
  ASSERT_EQ(mr_open_model(kModel, 1, &session, error, sizeof error), 0);
  EXPECT_EQ(mr_save_params(session, nullptr, error, sizeof error), 2);
  EXPECT_EQ(mr_load_params(session, nullptr, error, sizeof error), 2);
  EXPECT_THAT(error, HasSubstr("path: expected a path, found null"));
  const char* const fetches[] = {nullptr};
  mr_array result{};
  EXPECT_EQ(mr_run(session, nullptr, 0, fetches, 1, &result, error, sizeof error), 2);
  EXPECT_THAT(error, HasSubstr("fetch 0: expected a name, found null"));
  mr_close(session);
}

}  // namespace
