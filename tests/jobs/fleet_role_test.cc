// Errors in runtime.json, the file that says which process of a fleet job a folder is.

#include "jobs/ps/fleet_role.h"

#include <filesystem>

#include <gmock/gmock.h>

#include "jobs/config/slices_file.h"
#include "jobs/config/typed_tables.h"
#include "jobs/ps/job_folder.h"
#include "tests/io/temp_folder.h"

namespace millrace::jobs {
namespace {

using ::testing::HasSubstr;

TEST(FleetRuntimeJson, NamesWhatIsWrong) {
  const auto fault = [](const std::string& text) {
    FleetRole role;
    return parse_fleet_runtime(text, role).message();
  };
  const std::string good =
      R"("communicator_mode": 0, "role_id": 0, "endpoints": ["a:1"], "fleet_opt": {"mpi_size": 2})";
  EXPECT_EQ(fault("{" + good + "}"), "");
  EXPECT_EQ(fault("[]"), "expected a JSON object");
  EXPECT_THAT(fault("{}"), HasSubstr("communicator_mode"));
  EXPECT_THAT(fault(R"({"communicator_mode": 9, "role_id": 0})"), HasSubstr("expected 0 to 3"));
  EXPECT_THAT(fault(R"({"communicator_mode": 0, "role_id": 0.5})"),
              HasSubstr("'role_id': expected a whole number"));
  EXPECT_THAT(fault("{" + good + R"(, "recv_dense": {"x": []}})"),
              HasSubstr("expected table numbers as keys, found 'x'"));
  EXPECT_THAT(fault("{" + good + R"(, "recv_dense": 3})"), HasSubstr("recv_dense"));
  EXPECT_THAT(fault("{" + good + R"(, "send_context": {"g": {"colour": 1, "table_id": 0,
                    "trainer_id": 0}}})"),
              HasSubstr("send_context.g.colour"));
  EXPECT_THAT(fault("{" + good + R"(, "send_context": {"g": {"sections": [2.5], "table_id": 0,
                    "trainer_id": 0}}})"),
              HasSubstr("'send_context.g.sections': expected whole numbers"));
  EXPECT_THAT(fault(R"({"communicator_mode": 0, "role_id": 4, "endpoints": ["a:1"],
                    "fleet_opt": {"mpi_size": 2}})"),
              HasSubstr("'role_id': expected less than 1, found 4"));
}

TEST(FleetRuntimeJson, RefusesTrainersThatDoMoreThanTrain) {
  const auto fault = [](const std::string& option) {
    FleetRole role;
    return parse_fleet_runtime(R"({"communicator_mode": 0, "role_id": 0, "endpoints": ["a:1"],
        "barrier_table_id": 1, "fleet_opt": {"mpi_size": 2, )" +
                                   option + "}}",
                               role);
  };
  EXPECT_EQ(fault(R"("trainer": "MultiTrainer", "device_worker": "Hogwild", "dump_fields": [])")
                .message(),
            "");
  const Status status = fault(R"("stat_var_names": ["x"])");
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("fleet_opt.stat_var_names"));
  EXPECT_THAT(fault(R"("trainer": "PipelineTrainer")").message(),
              HasSubstr("fleet_opt.trainer 'PipelineTrainer'"));
  EXPECT_THAT(fault(R"("device_worker": "Section")").message(),
              HasSubstr("fleet_opt.device_worker 'Section'"));
}

TEST(FleetRuntimeJson, SaysWhoAveragesDenseGradients) {
  const std::string start =
      R"({"communicator_mode": 0, "role_id": 0, "endpoints": ["a:1"], "fleet_opt": {"mpi_size": 2})";
  FleetRole role;
  Status status = parse_fleet_runtime(start + "}", role);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_FALSE(role.all_reduces_dense);
  status = parse_fleet_runtime(start + R"(, "dense_gradients": "all_reduce",
      "scheduled_rate": "learning_rate_0", "trainer_endpoints": ["b:1", "c:1"]})",
                               role);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(role.all_reduces_dense);
  EXPECT_EQ(role.scheduled_rate, "learning_rate_0");
  EXPECT_EQ(role.trainer_endpoints, std::vector<std::string>({"b:1", "c:1"}));
  EXPECT_THAT(parse_fleet_runtime(start + R"(, "dense_gradients": "ring"})", role).message(),
              HasSubstr("'dense_gradients': expected servers or all_reduce, found 'ring'"));
}

TEST(FleetRuntimeJson, SaysWhatTrainersDump) {
  FleetRole role;
  const Status status = parse_fleet_runtime(
      R"({"communicator_mode": 0, "role_id": 0, "endpoints": ["a:1"], "barrier_table_id": 1,
          "fleet_opt": {"mpi_size": 2, "dump_fields": ["prob"], "dump_param": ["w", "b"],
                        "dump_fields_path": "out"}})",
      role);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(role.dump_fields, std::vector<std::string>({"prob"}));
  EXPECT_EQ(role.dump_params, std::vector<std::string>({"w", "b"}));
  EXPECT_EQ(role.dump_path, "out");
}

// Such a folder cannot be searched, like one without permission. The functions return errors.
TEST(JobFolder, CannotBeSearched) {
  const testing::TempFolder folder;
  const std::string loop = folder / "loop";
  std::filesystem::create_symlink(loop, loop);
  const auto too_many = HasSubstr("Too many levels of symbolic links");
  EXPECT_THAT(open_job_folder(loop).status().to_string(), too_many);
  const std::string program = loop + "/__model__";
  EXPECT_TRUE(is_fleet_role(program));
  EXPECT_THAT(read_fleet_role(program, "", {}).status().to_string(), too_many);
  EXPECT_EQ(find_slices("", loop + "/trainer_0/__model__"), loop + "/slices.json");
  EXPECT_THAT(read_typed_tables(loop + "/slices.json").status().to_string(), too_many);
}

}  // namespace
}  // namespace millrace::jobs
