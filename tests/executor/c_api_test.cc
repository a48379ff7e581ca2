#include "executor/c_api.h"

#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

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

}  // namespace
