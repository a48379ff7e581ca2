#include "transpiler/distribute/job_pass.h"

#include <gtest/gtest.h>

#include "tests/transpiler/test_passes.h"
#include "transpiler/distribute/distribution_passes.h"

namespace millrace::transpiler {
namespace {

using testing::FunctionPass;
using testing::op_list;

struct CountingJob final : Facts {
  int runs = 0;
};

Status edit_main(Program& main, PassContext& /*context*/, CountingJob& job) {
  ++job.runs;
  main.root().append_op("a");
  return Ok();
}
Status edit_startup(Program& /*main*/, PassContext& context, CountingJob& job) {
  ++job.runs;
  context.startup->root().append_op("b");
  return Ok();
}
Status edit_facts(Program& /*main*/, PassContext& /*context*/, CountingJob& job) {
  ++job.runs;
  return Ok();
}

// Changes the program and denies it.
StatusOr<std::unique_ptr<Pass>> make_silent(const PassOptions& /*options*/) {
  return std::unique_ptr<Pass>(
      std::make_unique<FunctionPass>("silent", [](Program& program, PassContext&) {
        program.root().append_op("scale");
        return StatusOr<bool>(false);
      }));
}

class JobPassTest : public ::testing::Test {
 protected:
  JobPassTest() {
    add_job_pass(passes_, "edit-main", "edit main", edit_main);
    add_job_pass(passes_, "edit-startup", "edit startup", edit_startup);
    add_job_pass(passes_, "edit-facts", "edit the facts", edit_facts);
    context_.startup = startup_.get();
    context_.job = &job_;
  }
  StatusOr<PipelineReport> run(llvm::StringRef pipeline) {
    MILLRACE_ASSIGN_OR_RETURN(const PassManager manager, PassManager::create(passes_, pipeline));
    return manager.run(*main_, context_);
  }

  PassRegistry passes_;
  ops::OpRegistry ops_;
  PassContext context_{ops_};
  CountingJob job_;
  std::unique_ptr<Program> main_ = Program::create();
  std::unique_ptr<Program> startup_ = Program::create();
};

TEST_F(JobPassTest, ReportsEditsOfBothPrograms) {
  const StatusOr<PipelineReport> report = run("edit-main,edit-startup,edit-facts");
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->passes[0].changed);
  EXPECT_TRUE(report->passes[1].changed);
  EXPECT_FALSE(report->passes[2].changed);
  EXPECT_EQ(job_.runs, 3);
  EXPECT_EQ(op_list(*main_), "a\n");
  EXPECT_EQ(op_list(*startup_), "b\n");
}

TEST_F(JobPassTest, NeedsTheFactsOfItsJob) {
  struct OtherJob final : Facts {
  } other;
  context_.job = &other;
  EXPECT_EQ(run("edit-main").status().message(), "pass 'edit-main' works only inside 'distribute'");
  context_.job = nullptr;
  EXPECT_EQ(run("edit-main").status().message(), "pass 'edit-main' works only inside 'distribute'");
  EXPECT_EQ(op_list(*main_), "");
}

TEST_F(JobPassTest, NeedsAStartupProgram) {
  context_.startup = nullptr;
  EXPECT_EQ(run("edit-main").status().message(), "there is no startup program");
}

TEST_F(JobPassTest, AChangeThatAPassOfAPipelineDeniesIsFound) {
  add_distribute_job_passes(passes_);
  passes_.add(PassInfo("silent", "change something and deny it").factory(make_silent));
  const Status status = run("collective-scale-loss-gradient{factor=0.5},edit-main,silent").status();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_EQ(status.message(), "pass 'silent' changed the program but reported that it did not");
}

}  // namespace
}  // namespace millrace::transpiler
