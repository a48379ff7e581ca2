#include "transpiler/pass_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/base/errors.h"
#include "tests/transpiler/test_passes.h"

namespace millrace::transpiler {
namespace {

using testing::FunctionPass;
using testing::op_list;

// A pass under a name, for PassInfo::factory().
template <typename Body>
StatusOr<std::unique_ptr<Pass>> pass(const char* name, Body body) {
  return std::unique_ptr<Pass>(std::make_unique<FunctionPass>(name, body));
}

StatusOr<std::unique_ptr<Pass>> make_append_pass_manager(const PassOptions& options) {
  return pass("append", [type = options.string("type")](Program& program, PassContext&) {
    program.root().append_op(type);
    return StatusOr<bool>(true);
  });
}
StatusOr<std::unique_ptr<Pass>> make_nothing(const PassOptions& /*options*/) {
  return pass("nothing", [](Program&, PassContext&) { return StatusOr<bool>(false); });
}
StatusOr<std::unique_ptr<Pass>> make_liar(const PassOptions& options) {
  return pass("liar", [startup = options.flag("startup")](Program& program, PassContext& context) {
    (startup ? *context.startup : program).root().append_op("scale");
    return StatusOr<bool>(false);
  });
}
StatusOr<std::unique_ptr<Pass>> make_undo(const PassOptions& /*options*/) {
  return pass("undo", [](Program& program, PassContext&) {
    Op& op = program.root().append_op("scale");
    program.root().erase(op);
    return StatusOr<bool>(false);
  });
}
StatusOr<std::unique_ptr<Pass>> make_fail(const PassOptions& /*options*/) {
  return pass("fail", [](Program& program, PassContext&) {
    return StatusOr<bool>(InvalidProgram("the op is bad").at(program.root().front().location()));
  });
}

// Replaces the first "old" op by a "new" one.
class Modernise final : public Pass {
 public:
  llvm::StringRef name() const override { return "modernise"; }
  StatusOr<bool> run(Program& program, PassContext& /*context*/) override {
    for (Op& op : program.root().ops()) {
      if (op.type() != "old") continue;
      op.set_type("new");
      return true;
    }
    return false;
  }
  bool takes_old_forms() const override { return true; }
};
Status no_old_ops(const Program& program) {
  for (const Op& op : program.root().ops()) {
    if (op.type() == "old") return InvalidProgram("op is old").at(op.location());
  }
  return Ok();
}

// Ops of type "bad" are not allowed.
Status no_bad_ops(const Program& program) {
  for (const Op& op : program.root().ops()) {
    if (op.type() == "bad") return InvalidProgram("op is bad").at(op.location());
  }
  return Ok();
}

class PassManagerTest : public ::testing::Test {
 protected:
  PassManagerTest() {
    passes_.add(PassInfo("append", "add an op")
                    .string("type", "relu", "type of the op")
                    .factory(make_append_pass_manager));
    passes_.add(PassInfo("nothing", "do nothing").factory(make_nothing));
    passes_.add(PassInfo("liar", "change something and deny it")
                    .flag("startup", false, "in the startup program")
                    .factory(make_liar));
    passes_.add(PassInfo("undo", "add an op and remove it").factory(make_undo));
    passes_.add(PassInfo("fail", "fail").factory(make_fail));
    passes_.add(PassInfo("modernise", "replace an old op").makes<Modernise>());
    context_.startup = startup_.get();
  }

  StatusOr<PipelineReport> run(llvm::StringRef pipeline) {
    MILLRACE_ASSIGN_OR_RETURN(const PassManager manager, PassManager::create(passes_, pipeline));
    return manager.run(*program_, context_, options_);
  }
  std::string error_of(llvm::StringRef pipeline) {
    const StatusOr<PipelineReport> report = run(pipeline);
    return report.ok() ? "ok" : report.status().to_string();
  }

  PassRegistry passes_;
  ops::OpRegistry ops_;
  PassContext context_{ops_};
  PassManagerOptions options_;
  std::unique_ptr<Program> program_ = Program::create();
  std::unique_ptr<Program> startup_ = Program::create();
};

TEST_F(PassManagerTest, RunsPassesInOrderAndReportsThem) {
  const StatusOr<PipelineReport> report = run("append{type=a},nothing,append{type=b}");
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(op_list(*program_), "a\nb\n");
  ASSERT_EQ(report->passes.size(), 3U);
  EXPECT_EQ(report->passes[2].pass, "append");
  EXPECT_TRUE(report->passes[2].changed);
  EXPECT_FALSE(report->passes[1].changed);
  EXPECT_EQ(report->passes[2].ops_before, 1U);
  EXPECT_EQ(report->passes[2].ops_after, 2U);
  EXPECT_GE(report->passes[2].run_ms, 0);
  EXPECT_TRUE(report->changed());
}

TEST_F(PassManagerTest, TheTableNamesEveryPass) {
  PipelineReport report;
  report.passes = {{"append", true, 1, 2, 0.5, 1.25}, {"nothing", false, 2, 2, 0.25, 0.25}};
  EXPECT_EQ(report.table(),
            "pass     changed    ops before -> after           run ms  check ms\n"
            "append   yes                 1 -> 2                0.500     1.250\n"
            "nothing  no                  2 -> 2                0.250     0.250\n"
            "total    yes                                       0.750     1.500\n");
}

TEST_F(PassManagerTest, AnEmptyPipelineChangesNothing) {
  const StatusOr<PipelineReport> report = run("");
  ASSERT_TRUE(report.ok());
  EXPECT_FALSE(report->changed());
}

TEST_F(PassManagerTest, DeniedChangesAreInternalErrors) {
  const StatusOr<PipelineReport> report = run("nothing,liar");
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), StatusCode::kInternal);
  EXPECT_EQ(report.status().to_string(),
            "error: pass 'liar' changed the program but reported that it did not\n"
            "  note: in pass 'liar' (2 of 2) of 'nothing,liar'");
  EXPECT_EQ(error_of("liar{startup=true}"),
            "error: pass 'liar' changed the program but reported that it did not\n"
            "  note: in pass 'liar' (1 of 1) of 'liar{startup=true}'");
}

TEST_F(PassManagerTest, ChangesThatAreUndoneAreNoLie) {
  EXPECT_EQ(error_of("undo"), "ok");
}

TEST_F(PassManagerTest, ChecksOfChangesCanBeSwitchedOff) {
  options_.check_changes = false;
  EXPECT_EQ(error_of("liar"), "ok");
}

TEST_F(PassManagerTest, ErrorsOfPassesGetANote) {
  EXPECT_EQ(error_of("append{type=a},fail,nothing"),
            "error: block 0, op 0 (a): the op is bad\n"
            "  note: in pass 'fail' (2 of 3) of 'append{type=a},fail,nothing'");
}

TEST_F(PassManagerTest, NotesNameWhatTheCallerAsksFor) {
  program_->root().append_op("a");
  options_.error_note = ErrorNote::kPass;
  EXPECT_EQ(error_of("nothing,fail"),
            "error: block 0, op 0 (a): the op is bad\n  note: in pass 'fail'");
  options_.error_note = ErrorNote::kNothing;
  EXPECT_EQ(error_of("nothing,fail"), "error: block 0, op 0 (a): the op is bad");
}

TEST_F(PassManagerTest, APassWithoutTextFormRunsAlone) {
  PassOptions liar_options;
  liar_options.set("startup", false, true);
  const PassManager manager = PassManager::of(*make_liar(liar_options));
  EXPECT_EQ(manager.pipeline().to_string(), "liar");
  EXPECT_EQ(manager.run(*program_, context_).status().to_string(),
            "error: pass 'liar' changed the program but reported that it did not\n"
            "  note: in pass 'liar' (1 of 1) of 'liar'");
}

// Writes down when it is called.
class CallRecorder final : public PassInstrumentation {
 public:
  Status begin(const Pipeline& pipeline) override {
    calls_ += "begin " + pipeline.to_string() + "\n";
    return pipeline.steps.size() > 2 ? InvalidArgument("too long") : Ok();
  }
  Status before(const PassEvent& event) override {
    calls_ += "before " + event.pass.str() + "\n";
    return Ok();
  }
  Status after(const PassEvent& event) override {
    calls_ += "after " + event.pass.str() + "\n";
    return Ok();
  }
  void finished(const PipelineReport& report) override {
    calls_ += "finished " + std::to_string(report.passes.size()) + "\n";
  }
  [[nodiscard]] const std::string& calls() const { return calls_; }

 private:
  std::string calls_;
};

TEST_F(PassManagerTest, InstrumentationsSeeBeginAndEndOfARun) {
  CallRecorder recorder;
  options_.instrumentations = {&recorder};
  EXPECT_EQ(error_of("nothing,undo"), "ok");
  EXPECT_EQ(recorder.calls(),
            "begin nothing,undo\nbefore nothing\nafter nothing\nbefore undo\nafter undo\n"
            "finished 2\n");
}

TEST_F(PassManagerTest, AnInstrumentationCanRefuseAPipeline) {
  CallRecorder recorder;
  options_.instrumentations = {&recorder};
  EXPECT_EQ(error_of("append,append,append"), "error: too long");
  EXPECT_EQ(recorder.calls(), "begin append,append,append\n");
  EXPECT_EQ(op_list(*program_), "");
}

TEST_F(PassManagerTest, PassesAreMadeBeforeAnyRuns) {
  EXPECT_EQ(error_of("append,nothng"),
            "error: there is no pass 'nothng'\n  hint: did you mean 'nothing'?\n"
            "  note: in pipeline 'append,nothng'");
  EXPECT_EQ(op_list(*program_), "");
}

TEST_F(PassManagerTest, AnInvalidInputIsTheInputsFault) {
  options_.verify = no_bad_ops;
  program_->root().append_op("bad");
  const StatusOr<PipelineReport> report = run("append");
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), StatusCode::kInvalidProgram);
  EXPECT_EQ(report.status().to_string(),
            "error: block 0, op 0 (bad): op is bad\n  note: before the first pass of 'append'");
}

TEST_F(PassManagerTest, AnInvalidResultIsThePassesFault) {
  options_.verify = no_bad_ops;
  const StatusOr<PipelineReport> report = run("append,append{type=bad},nothing");
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), StatusCode::kInternal);
  EXPECT_EQ(report.status().to_string(),
            "error: block 0, op 1 (bad): pass 'append' left an invalid program: op is bad\n"
            "  note: in pass 'append' (2 of 3) of 'append,append{type=bad},nothing'");
}

TEST_F(PassManagerTest, TheStartupProgramIsVerifiedToo) {
  options_.verify = no_bad_ops;
  startup_->root().append_op("bad");
  EXPECT_EQ(error_of("append"),
            "error: block 0, op 0 (bad): op is bad\n  note: in the startup program\n"
            "  note: before the first pass of 'append'");
}

TEST_F(PassManagerTest, OldFormsPassWhereAPassTakesThem) {
  options_.verify = no_old_ops;
  options_.verify_old_forms = no_bad_ops;
  program_->root().append_op("old");
  EXPECT_EQ(error_of("modernise,append"), "ok");
  EXPECT_EQ(op_list(*program_), "new\nrelu\n");
}

TEST_F(PassManagerTest, OldFormsThatAreLeftAreFoundBeforeTheNextPass) {
  options_.verify = no_old_ops;
  options_.verify_old_forms = no_bad_ops;
  for (int i = 0; i < 3; ++i) program_->root().append_op("old");
  EXPECT_EQ(error_of("modernise,modernise,append"),
            "error: block 0, op 2 (old): op is old\n"
            "  note: before pass 'append' of 'modernise,modernise,append'");
}

TEST_F(PassManagerTest, OldFormsAreNotForOtherPasses) {
  options_.verify = no_old_ops;
  options_.verify_old_forms = no_bad_ops;
  program_->root().append_op("old");
  EXPECT_EQ(error_of("append,modernise"),
            "error: block 0, op 0 (old): op is old\n"
            "  note: before the first pass of 'append,modernise'");
}

TEST_F(PassManagerTest, BadProgramsAreNotForPassesThatTakeOldForms) {
  options_.verify = no_old_ops;
  options_.verify_old_forms = no_bad_ops;
  program_->root().append_op("bad");
  EXPECT_EQ(error_of("modernise"),
            "error: block 0, op 0 (bad): op is bad\n  note: before the first pass of 'modernise'");
}

}  // namespace
}  // namespace millrace::transpiler
