// The rank and job of a process, from the variables of every launcher.

#include "fleet/launch/job_environment.h"

#include <map>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Variables = std::map<std::string, std::string>;

StatusOr<JobEnvironment> read(const Variables& variables) {
  return read_job_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

JobEnvironment expect(const Variables& variables) {
  auto job = read(variables);
  EXPECT_TRUE(job.ok()) << job.status().to_string();
  return job.ok() ? *job : JobEnvironment();
}

TEST(JobEnvironmentTest, TellsWhatNobodyReads) {
  const auto remarks = [](const Variables& variables) {
    return unread_variables([&](const std::string& name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    });
  };
  EXPECT_THAT(remarks({{"PADDLE_WITH_GLOO", "0"}, {"PADDLE_GLOO_RENDEZVOUS", "3"}}), IsEmpty());
  EXPECT_THAT(remarks({{"FLAGS_LAUNCH_BARRIER", "1"}}), IsEmpty());
  EXPECT_THAT(remarks({{"PADDLE_WITH_GLOO", "1"}}),
              ElementsAre(HasSubstr("PADDLE_WITH_GLOO=1 has no effect")));
  for (const char* const name :
       {"PADDLE_GLOO_RENDEZVOUS", "PADDLE_GLOO_FS_NAME", "PADDLE_GLOO_FS_UGI",
        "PADDLE_GLOO_FS_PATH", "PADDLE_GLOO_HTTP_ENDPOINT"}) {
    EXPECT_THAT(remarks({{"PADDLE_WITH_GLOO", "2"}, {name, "x"}}),
                ElementsAre(HasSubstr("PADDLE_WITH_GLOO=2"),
                            HasSubstr(std::string(name) + " has no effect")));
  }
  EXPECT_THAT(remarks({{"FLAGS_LAUNCH_BARRIER", "0"}}),
              ElementsAre(HasSubstr("FLAGS_LAUNCH_BARRIER=0 has no effect")));
  EXPECT_THAT(remarks({{"FLAGS_check_nan_inf", "0"}, {"FLAGS_check_nan_inf_level", "0"}}),
              IsEmpty());
  for (const char* const name :
       {"FLAGS_check_nan_inf", "FLAGS_check_nan_inf_level", "PADDLE_INF_NAN_SKIP_OP",
        "PADDLE_INF_NAN_SKIP_ROLE", "PADDLE_INF_NAN_SKIP_VAR"})
    EXPECT_THAT(remarks({{name, "1"}}),
                ElementsAre(name + std::string("=1 has no effect on the tools, which have "
                                               "--check-nan")));
  EXPECT_THAT(remarks({{"FLAGS_rpc_deadline", "9"}, {"FLAGS_rpc_retry_times", "2"}}),
              ElementsAre(HasSubstr("have --deadline-ms"), HasSubstr("--reconnect-timeout-ms")));
  for (const char* const name : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}) {
    EXPECT_THAT(remarks({{name, "avx2"}}), IsEmpty());
    EXPECT_THAT(remarks({{name, "AVX512"}}),
                ElementsAre(HasSubstr(name + std::string("=AVX512 has no effect: expected one of "
                                                         "ALL, DEFAULT"))));
  }
}

// All settings of a launcher, as one text.
std::string told(const Variables& variables) {
  const auto job = read(variables);
  if (!job.ok()) return job.status().message();
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {}", job->source, job->role, job->rank,
                     job->size, job->local_rank, join_list(job->trainer_endpoints),
                     join_list(job->server_endpoints), job->own_endpoint, job->master, job->job,
                     job->by_mpirun);
}

TEST(JobEnvironmentTest, EveryVariableIsSeen) {
  const Variables collective{{"PADDLE_TRAINER_ID", "0"}, {"PADDLE_PORT", "1"}};
  const Variables servers{{"TRAINING_ROLE", "TRAINER"}, {"PADDLE_PORT", "1"}};
  const Variables slurm{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}};
  const Variables mpi{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}};
  const Variables pmi{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}};
  const Variables torch{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "9"}};
  struct Row {
    const char* name;
    const char* value;
    Variables beside;
  };
  for (const Row& row : {Row{"PADDLE_TRAINERS_NUM", "2", collective},
                         Row{"PADDLE_GLOBAL_SIZE", "2", collective},
                         Row{"PADDLE_TRAINER_ENDPOINTS", "a:1", collective},
                         Row{"PADDLE_TRAINERS_ENDPOINTS", "a:1", collective},
                         Row{"PADDLE_CURRENT_ENDPOINT", "a:1", collective},
                         Row{"PADDLE_CURRENT_IP", "a", collective},
                         Row{"POD_IP", "a", collective},
                         Row{"PADDLE_LOCAL_RANK", "1", collective},
                         Row{"PADDLE_RANK_IN_NODE", "1", collective},
                         Row{"PADDLE_MASTER", "a:1", collective},
                         Row{"PADDLE_JOB_ID", "j", collective},
                         Row{"SYS_JOB_ID", "j", collective},
                         Row{"TRAINING_ROLE", "TRAINER", collective},
                         Row{"PADDLE_ROLE", "TRAINER", collective},
                         Row{"PADDLE_TRAINING_ROLE", "TRAINER", collective},
                         Row{"PADDLE_PSERVERS_IP_PORT_LIST", "a:1", servers},
                         Row{"PADDLE_PSERVER_ENDPOINTS", "a:1", servers},
                         Row{"PADDLE_PSERVER_IPS", "a", servers},
                         Row{"PADDLE_PSERVERS", "a", servers},
                         Row{"PADDLE_TRAINER_ID", "1", {{"PADDLE_TRAINERS_NUM", "2"}}},
                         Row{"SLURM_LOCALID", "1", slurm},
                         Row{"OMPI_COMM_WORLD_LOCAL_RANK", "1", mpi},
                         Row{"MPI_LOCALRANKID", "1", pmi},
                         Row{"LOCAL_RANK", "1", torch},
                         Row{"MASTER_ADDR", "a", torch}}) {
    Variables with = row.beside;
    with[row.name] = row.value;
    EXPECT_NE(told(with), told(row.beside)) << row.name;
  }
}

TEST(JobEnvironmentTest, IsAloneWithoutALauncher) {
  const JobEnvironment job = expect({});
  EXPECT_EQ(job.source, "none");
  EXPECT_TRUE(job.is_alone());
}

TEST(JobEnvironmentTest, ReadsCollectiveJobs) {
  const JobEnvironment job = expect({{"PADDLE_TRAINER_ID", "1"},
                                     {"PADDLE_TRAINERS_NUM", "2"},
                                     {"PADDLE_TRAINER_ENDPOINTS", "a:1, b:2"},
                                     {"PADDLE_CURRENT_ENDPOINT", "b:2"}});
  EXPECT_EQ(job.source, "PADDLE");
  EXPECT_EQ(job.rank, 1);
  EXPECT_EQ(job.size, 2);
  EXPECT_THAT(job.trainer_endpoints, ElementsAre("a:1", "b:2"));
  // the rank is derived from the endpoint of the process if it is not given
  EXPECT_EQ(
      expect({{"PADDLE_TRAINER_ENDPOINTS", "a:1,b:2"}, {"PADDLE_CURRENT_ENDPOINT", "b:2"}}).rank,
      1);
}

TEST(JobEnvironmentTest, ReadsServersAndOldNames) {
  const JobEnvironment server = expect({{"TRAINING_ROLE", "PSERVER"},
                                        {"PADDLE_PSERVERS_IP_PORT_LIST", "10.0.0.1:61,10.0.0.2:61"},
                                        {"PADDLE_TRAINERS_NUM", "4"},
                                        {"POD_IP", "10.0.0.2"},
                                        {"PADDLE_PORT", "61"}});
  EXPECT_EQ(server.role, "PSERVER");
  EXPECT_EQ(server.rank, 1);
  EXPECT_EQ(server.size, 4);
  const JobEnvironment old = expect({{"PADDLE_TRAINING_ROLE", "TRAINER"},
                                     {"PADDLE_PSERVER_IPS", "h1,h2"},
                                     {"PADDLE_PSERVER_PORT", "6174"},
                                     {"PADDLE_TRAINERS_NUM", "2"},
                                     {"PADDLE_TRAINER_ID", "0"}});
  EXPECT_THAT(old.server_endpoints, ElementsAre("h1:6174", "h2:6174"));
}

// Trainers of such jobs do not connect to each other, so their number decides.
TEST(JobEnvironmentTest, TrainersOfServersMayHaveOtherNumbersOfEndpoints) {
  const JobEnvironment job = expect({{"TRAINING_ROLE", "TRAINER"},
                                     {"PADDLE_PSERVERS_IP_PORT_LIST", "s:1"},
                                     {"PADDLE_TRAINER_ID", "2"},
                                     {"PADDLE_TRAINERS_NUM", "3"},
                                     {"PADDLE_TRAINER_ENDPOINTS", "a:1,b:2"}});
  EXPECT_EQ(job.size, 3);
  EXPECT_EQ(job.rank, 2);
}

TEST(JobEnvironmentTest, ReadsOtherLaunchersInOrder) {
  const Variables torch{{"RANK", "3"},
                        {"WORLD_SIZE", "4"},
                        {"LOCAL_RANK", "1"},
                        {"MASTER_ADDR", "m"},
                        {"MASTER_PORT", "29500"}};
  EXPECT_EQ(expect(torch).source, "torchrun");
  EXPECT_EQ(expect(torch).rank, 3);
  EXPECT_EQ(expect(torch).master, "m:29500");
  Variables mpi = torch;
  mpi.insert({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
  EXPECT_EQ(expect(mpi).source, "Open MPI");
  EXPECT_TRUE(expect(mpi).by_mpirun);
  Variables slurm = mpi;
  slurm.insert({{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}});
  EXPECT_EQ(expect(slurm).source, "Slurm");
  EXPECT_EQ(expect({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}).source, "PMI");
}

TEST(JobEnvironmentTest, NamesWhatIsWrong) {
  EXPECT_THAT(read({{"PADDLE_TRAINER_ID", "two"}, {"PADDLE_TRAINERS_NUM", "2"}}).status().message(),
              HasSubstr("expected a number in PADDLE_TRAINER_ID, found 'two'"));
  EXPECT_THAT(read({{"PADDLE_TRAINER_ID", "2"}, {"PADDLE_TRAINERS_NUM", "2"}}).status().message(),
              HasSubstr("PADDLE_TRAINER_ID is 2, but PADDLE_TRAINERS_NUM is 2"));
  EXPECT_THAT(read({{"PADDLE_TRAINERS_NUM", "2"}}).status().message(),
              HasSubstr("PADDLE_TRAINER_ID is not set"));
  EXPECT_THAT(read({{"PADDLE_TRAINER_ID", "0"},
                    {"PADDLE_TRAINERS_NUM", "3"},
                    {"PADDLE_TRAINER_ENDPOINTS", "a:1,b:2"}})
                  .status()
                  .message(),
              HasSubstr("has 2 entries"));
  EXPECT_THAT(read({{"PADDLE_TRAINER_ID", "0"},
                    {"PADDLE_TRAINER_ENDPOINTS", "a:1,b:2"},
                    {"PADDLE_CURRENT_ENDPOINT", "b:2"}})
                  .status()
                  .message(),
              HasSubstr("is number 1 in"));
  EXPECT_THAT(read({{"TRAINING_ROLE", "WORKER"}}).status().message(), HasSubstr("'WORKER'"));
  EXPECT_THAT(read({{"TRAINING_ROLE", "PSERVER"},
                    {"PADDLE_PSERVERS_IP_PORT_LIST", "a:1"},
                    {"POD_IP", "b"},
                    {"PADDLE_PORT", "1"}})
                  .status()
                  .message(),
              HasSubstr("this server is 'b:1'"));
  EXPECT_THAT(read({{"RANK", "4"}, {"WORLD_SIZE", "4"}}).status().message(),
              HasSubstr("RANK is 4, but WORLD_SIZE is 4"));
}

TEST(JobKeyFile, IsInMillraceJobKey) {
  const auto with = [](const std::string& name) {
    return name == "MILLRACE_JOB_KEY" ? std::optional<std::string>("/k") : std::nullopt;
  };
  EXPECT_EQ(job_key_file(with), "/k");
  EXPECT_EQ(job_key_file([](const std::string&) { return std::nullopt; }), "");
}

}  // namespace
}  // namespace millrace::fleet
