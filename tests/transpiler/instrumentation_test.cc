#include "transpiler/instrumentation.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "tests/transpiler/test_passes.h"

namespace millrace::transpiler {
namespace {

using ::testing::ElementsAre;
using testing::FunctionPass;
using testing::op_list;

StatusOr<std::unique_ptr<Pass>> make_append_instrumentation(const PassOptions& options) {
  return std::unique_ptr<Pass>(std::make_unique<FunctionPass>(
      "append", [type = options.string("type")](Program& program, PassContext&) -> StatusOr<bool> {
        if (type == "bad") return InvalidProgram("no");
        program.root().append_op(type);
        return true;
      }));
}

std::string read_instrumentation(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

class InstrumentationTest : public ::testing::Test {
 protected:
  InstrumentationTest() {
    passes_.add(PassInfo("append", "add an op")
                    .string("type", "relu", "type")
                    .factory(make_append_instrumentation));
  }
  ~InstrumentationTest() override { std::filesystem::remove_all(folder_); }

  Status run(const Pipeline& pipeline, PassInstrumentation& watcher) {
    MILLRACE_ASSIGN_OR_RETURN(const PassManager manager, PassManager::create(passes_, pipeline));
    PassManagerOptions options;
    options.instrumentations = {&watcher};
    StatusOr<PipelineReport> report = manager.run(*program_, context_, options);
    return report.ok() ? Ok() : std::move(report).status();
  }

  std::vector<std::string> files() {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      out.push_back(entry.path().filename());
    std::sort(out.begin(), out.end());
    return out;
  }

  const std::filesystem::path folder_ = std::filesystem::temp_directory_path() /
                                        ("millrace-instrumentation-" + std::to_string(getpid()));
  PassRegistry passes_;
  ops::OpRegistry ops_;
  PassContext context_{ops_};
  std::unique_ptr<Program> program_ = Program::create();
};

TEST_F(InstrumentationTest, PrintsAfterEveryPass) {
  const Pipeline pipeline = *parse_pipeline("append{type=a},append{type=b}");
  std::string out;
  auto watcher = print_after({}, op_list, [&](const std::string& text) { out += text; });
  ASSERT_TRUE(run(pipeline, *watcher).ok());
  EXPECT_EQ(out,
            "# after 'append' (1 of 2): changed\na\n"
            "# after 'append' (2 of 2): changed\na\nb\n");
}

TEST_F(InstrumentationTest, PrintsTheStartupProgramToo) {
  const Pipeline pipeline = *parse_pipeline("append{type=a}");
  const auto startup = Program::create();
  startup->root().append_op("s");
  context_.startup = startup.get();
  std::string out;
  auto watcher = print_after({"append"}, op_list, [&](const std::string& text) { out += text; });
  ASSERT_TRUE(run(pipeline, *watcher).ok());
  EXPECT_EQ(out,
            "# after 'append' (1 of 1): changed\na\n"
            "# after 'append' (1 of 1): changed, startup program\ns\n");
}

TEST_F(InstrumentationTest, PrintingAfterAPassThatDoesNotRunIsAnError) {
  const Pipeline pipeline = *parse_pipeline("append");
  const auto watcher = print_after({"apend"}, op_list, [](const std::string&) {});
  EXPECT_EQ(run(pipeline, *watcher).to_string(),
            "error: cannot print after 'apend': the pipeline 'append' has no such pass\n"
            "  hint: did you mean 'append'?");
  EXPECT_EQ(op_list(*program_), "");
}

TEST_F(InstrumentationTest, DumpsNumberedFiles) {
  const Pipeline pipeline = *parse_pipeline("append{type=a},append{type=b}");
  const auto watcher = dump_to_folder(folder_ / "deep", op_list);
  ASSERT_TRUE(run(pipeline, *watcher).ok());
  const auto deep = folder_ / "deep";
  EXPECT_EQ(read_instrumentation(deep / "pipeline.txt"), "append{type=a},append{type=b}\n");
  EXPECT_EQ(read_instrumentation(deep / "000-input.prog"), "");
  EXPECT_EQ(read_instrumentation(deep / "001-append.prog"), "a\n");
  EXPECT_EQ(read_instrumentation(deep / "002-append.prog"), "a\nb\n");
}

TEST_F(InstrumentationTest, DumpsTheErrorOfAFailedRun) {
  const Pipeline pipeline = *parse_pipeline("append{type=bad}");
  const auto watcher = dump_to_folder(folder_, op_list);
  ASSERT_FALSE(run(pipeline, *watcher).ok());
  EXPECT_THAT(files(), ElementsAre("000-input.prog", "failed.txt", "pipeline.txt"));
  EXPECT_EQ(read_instrumentation(folder_ / "failed.txt"),
            "error: no\n  note: in pass 'append' (1 of 1) of 'append{type=bad}'\n");
}

TEST_F(InstrumentationTest, AFolderThatCannotBeMadeEndsTheRun) {
  const Pipeline pipeline = *parse_pipeline("append");
  const auto watcher = dump_to_folder("/dev/null/dump", op_list);
  const Status status = run(pipeline, *watcher);
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("cannot create the folder '/dev/null/dump'"));
  EXPECT_EQ(op_list(*program_), "");
}

}  // namespace
}  // namespace millrace::transpiler
