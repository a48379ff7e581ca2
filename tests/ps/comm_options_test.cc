#include "ps/communicator/comm_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

// Settings have the original's names, defaults and forced values.

namespace millrace::ps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using Settings = std::map<std::string, std::string>;

CommunicatorOptions parse(CommMode mode, const Settings& settings, int cpu_num = 1,
                          Remarks* remarks = nullptr) {
  Remarks own;
  auto options = communicator_options(mode, settings, cpu_num, 100, remarks ? *remarks : own);
  EXPECT_TRUE(options.ok()) << options.status().to_string();
  return *options;
}

TEST(CommOptionsTest, EachModePassesItsOwnFlags) {
  EXPECT_THAT(communicator_flags(CommMode::kSync, parse(CommMode::kSync, {})),
              ElementsAre(Pair("communicator_max_merge_var_num", "1"),
                          Pair("communicator_send_queue_size", "1"),
                          Pair("communicator_send_wait_times", "5"),
                          Pair("communicator_thread_pool_size", "5")));
  EXPECT_THAT(communicator_flags(CommMode::kAsync, parse(CommMode::kAsync, {}, 4)),
              ElementsAre(Pair("communicator_independent_recv_thread", "1"),
                          Pair("communicator_is_sgd_optimizer", "1"),
                          Pair("communicator_max_merge_var_num", "4"),
                          Pair("communicator_min_send_grad_num_before_recv", "4"),
                          Pair("communicator_send_queue_size", "4"),
                          Pair("communicator_send_wait_times", "5"),
                          Pair("communicator_thread_pool_size", "5")));
  EXPECT_THAT(communicator_flags(CommMode::kGeo, parse(CommMode::kGeo, {})),
              ElementsAre(Pair("communicator_max_merge_var_num", "100"),
                          Pair("communicator_send_queue_size", "100"),
                          Pair("communicator_send_wait_times", "5"),
                          Pair("communicator_thread_pool_size", "5")));
}

TEST(CommOptionsTest, FlagsWinOverPlainKeys) {
  const CommunicatorOptions options =
      parse(CommMode::kAsync, {{"communicator_max_merge_var_num", "3"},
                               {"FLAGS_communicator_max_merge_var_num", "7"},
                               {"FLAGS_communicator_independent_recv_thread", "0"},
                               {"FLAGS_communicator_rpc_deadline", "77"},
                               {"trainers", "4"},
                               {"trainer_id", "2"},
                               {"need_global_step", "1"},
                               {"barrier_table_id", "9"},
                               {"pserver_endpoints", "a:1,b:2"},
                               {"PATH", "/bin"}});
  EXPECT_EQ(options.max_merge_var_num, 7);
  EXPECT_FALSE(options.independent_recv_thread);
  EXPECT_EQ(options.rpc_deadline_ms, 77);
  EXPECT_EQ(options.trainers, 4);
  EXPECT_EQ(options.trainer_id, 2);
  EXPECT_TRUE(options.need_global_step);
  EXPECT_EQ(options.barrier_table_id, 9);
  EXPECT_THAT(options.pserver_endpoints, ElementsAre("a:1", "b:2"));
}

TEST(CommOptionsTest, SyncAndHalfAsyncForceTheNumberOfThreads) {
  const Settings settings{{"FLAGS_communicator_max_merge_var_num", "20"},
                          {"FLAGS_communicator_send_queue_size", "20"}};
  for (const CommMode mode : {CommMode::kSync, CommMode::kHalfAsync}) {
    Remarks remarks;
    const CommunicatorOptions options = parse(mode, settings, 2, &remarks);
    EXPECT_EQ(options.max_merge_var_num, 2);
    EXPECT_EQ(options.send_queue_size, 2);
    ASSERT_EQ(remarks.size(), 2U);
    EXPECT_THAT(remarks[0], HasSubstr("max_merge_var_num is 2, not 20"));
  }
  Remarks remarks;
  EXPECT_EQ(parse(CommMode::kAsync, settings, 2, &remarks).send_queue_size, 20);
  EXPECT_THAT(remarks, IsEmpty());
}

TEST(CommOptionsTest, TellsWhatNobodyReads) {
  const auto remark = [](CommMode mode, const char* key, const char* value) {
    Remarks remarks;
    parse(mode, {{key, value}}, 1, &remarks);
    return remarks.size() == 1 ? remarks.front() : std::to_string(remarks.size()) + " remarks";
  };
  EXPECT_EQ(remark(CommMode::kAsync, "FLAGS_communicator_rpc_retry_times", "9"),
            "communicator_rpc_retry_times has no effect: calls are repeated until their deadline");
  EXPECT_EQ(remark(CommMode::kSync, "communicator_is_sgd_optimizer", "0"),
            "communicator_is_sgd_optimizer has no effect: it is read in async mode, not in sync");
  EXPECT_EQ(remark(CommMode::kAsync, "barrier_table_id", "9"),
            "barrier_table_id has no effect: barriers need no table");
  EXPECT_EQ(remark(CommMode::kAsync, "pserver_endpoints", "a:1"),
            "pserver_endpoints has no effect: the contexts name the servers");
  EXPECT_EQ(remark(CommMode::kGeo, "FLAGS_communicator_independent_recv_thread", "0"),
            "communicator_independent_recv_thread has no effect: it is read in async mode, not in "
            "geo");
  EXPECT_EQ(remark(CommMode::kHalfAsync, "communicator_min_send_grad_num_before_recv", "7"),
            "communicator_min_send_grad_num_before_recv has no effect: it is read in async mode, "
            "not in half-async");
  // the options that jobs pass on explicitly
  EXPECT_EQ(remark(CommMode::kAsync, "communicator_is_sgd_optimizer", "0"), "0 remarks");
  EXPECT_EQ(remark(CommMode::kAsync, "communicator_independent_recv_thread", "0"), "0 remarks");
}

TEST(CommOptionsTest, SaysWhatIsWrong) {
  Remarks remarks;
  const auto message = [&](const Settings& settings) {
    return communicator_options(CommMode::kAsync, settings, 1, 1, remarks).status().message();
  };
  EXPECT_EQ(message({{"FLAGS_communicator_send_queue_size", "0"}}),
            "communicator_send_queue_size is 0, expected at least 1");
  EXPECT_EQ(message({{"communicator_thread_pool_size", "5x"}}),
            "communicator_thread_pool_size is '5x', expected an integer");
  EXPECT_EQ(message({{"need_global_step", "maybe"}}),
            "need_global_step is 'maybe', expected 0 or 1");
  EXPECT_EQ(message({{"trainers", "0"}}), "trainers is 0, expected at least 1");
  EXPECT_THAT(remarks, IsEmpty());
  parse(CommMode::kAsync, {{"FLAGS_communicator_speed", "1"}}, 1, &remarks);
  EXPECT_THAT(remarks, ElementsAre("'FLAGS_communicator_speed' is not a communicator setting"));
}

TEST(CommOptionsTest, ModesAreNumbersFromZeroToThree) {
  EXPECT_EQ(*comm_mode(3), CommMode::kGeo);
  EXPECT_EQ(comm_mode(4).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(comm_mode(-1).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace millrace::ps
