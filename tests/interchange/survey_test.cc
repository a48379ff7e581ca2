// The report of migrate: what each program below a folder is, and what can be done with it.

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "framework/export.h"
#include "framework/read_program.h"
#include "interchange/onnx/export.h"
#include "interchange/pir/export.h"
#include "interchange/survey/find_programs.h"
#include "interchange/survey/report.h"
#include "tests/io/temp_folder.h"

namespace millrace::interchange {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kPrograms = "tests/data/programs/";
constexpr const char* kFitALine = "tests/data/models/fit_a_line_2018";

SurveyOptions with_onnx() {
  SurveyOptions options;
  options.targets.push_back(
      {"onnx", onnx_op_types(), [](const Program& program, const io::ParamValues& params) {
         return export_onnx(program, params).status();
       }});
  return options;
}

std::unique_ptr<Program> program_of(const std::string& text) {
  StatusOr<std::unique_ptr<Program>> program =
      read_program_bytes("# millrace program 1\n" + text, "test");
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  return program.ok() ? *std::move(program) : std::make_unique<Program>();
}

TEST(FindPrograms, TakesTheNamesOfPrograms) {
  const millrace::testing::TempFolder folder;
  std::filesystem::create_directories(folder / "job/trainer_0");
  for (const std::string name :
       {"job/trainer_0/__model__", "job/trainer_0/__startup__", "job/slices.json", "m.pdmodel",
        "m.pdiparams", "main_program", "fc_0.w_0", "a.desc", "b.pb"})
    std::ofstream(folder / name) << "x";
  std::filesystem::create_symlink(folder / "b.pb", folder / "link.pb");
  const auto found = find_programs(folder / "");
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  std::vector<std::string> names;
  for (const std::string& path : *found)
    names.push_back(std::filesystem::path(path).lexically_relative(folder / "").string());
  EXPECT_THAT(names, ElementsAre("a.desc", "b.pb", "job/trainer_0/__model__",
                                 "job/trainer_0/__startup__", "m.pdmodel", "main_program"));
  EXPECT_EQ(find_programs(folder / "absent").status().code(), StatusCode::kNotFound);
  EXPECT_THAT(*find_programs(folder / "fc_0.w_0"), ElementsAre(folder / "fc_0.w_0"));
}

TEST(ProgramKind, FollowsFromTheOps) {
  const auto kind = [](const std::string& name) {
    const auto program = read_program(kPrograms + name);
    EXPECT_TRUE(program.ok()) << program.status().to_string();
    return kind_of(**program);
  };
  EXPECT_EQ(kind("fit_a_line_2018.pb"), ProgramKind::kInference);
  EXPECT_EQ(kind("dist_table_pserver.pb"), ProgramKind::kServer);
  EXPECT_EQ(kind("dist_table_trainer.pb"), ProgramKind::kTrainer);
  EXPECT_EQ(kind("paddlerec_startup.pb"), ProgramKind::kStartup);
  EXPECT_EQ(kind("divide.txt"), ProgramKind::kForward);
  EXPECT_EQ(kind_of(*program_of("block 0 {\n}\n")), ProgramKind::kEmpty);
}

TEST(ProgramKind, TheReleaseFollowsFromTheFieldsOfTheFile) {
  Program program;
  program.set_version(true, 2002002);
  EXPECT_EQ(release_of(program), "2.2.2");
  program.set_version(true, 0);
  EXPECT_EQ(release_of(program), "1.6 or later without a number");
  program.set_unknown(std::make_shared<const std::string>("\x1a\x00", 2));
  EXPECT_EQ(release_of(program), "1.6 to 1.8 without a number");
  program.set_unknown(std::make_shared<const std::string>("\x12\x00", 2));
  EXPECT_EQ(release_of(program), "1.5 or earlier");
  program.set_op_versions(true, {{"adam", 1}});
  EXPECT_EQ(release_of(program), "2.x without a number");
  program.set_op_versions(false, {});
  program.set_version(false, std::nullopt);
  program.set_unknown(nullptr);
  EXPECT_EQ(release_of(program), "1.5 or earlier");
}

TEST(Survey, AModelWithItsParametersIsConvertible) {
  SurveyOptions options = with_onnx();
  options.compile = [](const Program&) { return Ok(); };
  const auto found = survey(kFitALine, options);
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  ASSERT_EQ(found->size(), 1U);
  const SurveyedProgram& program = found->front();
  EXPECT_EQ(program.kind, ProgramKind::kInference);
  EXPECT_EQ(program.param_count, 2U);
  EXPECT_TRUE(program.params_status.ok()) << program.params_status.to_string();
  EXPECT_EQ(program.runs.answer, Answer::kYes);
  ASSERT_EQ(program.targets.size(), 1U);
  EXPECT_EQ(program.targets[0].answer, Answer::kYes);
  EXPECT_THAT(program.inputs, ElementsAre("x f32[-1,13]"));
}

// What has not been tried is not said to run.
TEST(Survey, ProgramsOfJobsAreOnlyVerified) {
  SurveyOptions options;
  options.compile = [](const Program&) { return Ok(); };
  const std::string trainer = std::string(kPrograms) + "dist_table_trainer.pb";
  EXPECT_EQ(survey_program(trainer, options).runs.answer, Answer::kUnknown);
  EXPECT_EQ(survey_program(std::string(kPrograms) + "fit_a_line_2018.pb", {}).runs.answer,
            Answer::kUnknown);
}

// A format takes programs of training if its target says so.
TEST(Survey, ProgramsOfTrainingAreMeantForSomeFormats) {
  SurveyOptions options = with_onnx();
  options.targets.push_back({"pir", pir_op_types(),
                             [](const Program& program, const io::ParamValues& params) {
                               return export_pir(program, params).status();
                             },
                             true});
  const SurveyedProgram startup =
      survey_program(std::string(kPrograms) + "paddlerec_startup.pb", options);
  EXPECT_EQ(startup.kind, ProgramKind::kStartup);
  ASSERT_EQ(startup.targets.size(), 2U);
  EXPECT_EQ(startup.targets[0].answer, Answer::kNotMeant);
  EXPECT_EQ(startup.targets[1].answer, Answer::kYes);
}

TEST(Survey, SaysWhatIsInTheWay) {
  const millrace::testing::TempFolder folder;
  std::filesystem::copy_file(std::string(kPrograms) + "custom_gap.pb", folder / "custom.pb");
  std::filesystem::copy_file(std::string(kPrograms) + "dqn_breakout.pb", folder / "dqn.pb");
  std::ofstream(folder / "notes.desc") << "no program";
  SurveyOptions options = with_onnx();
  options.compile = [](const Program& program) -> Status {
    if (program.root().op_count() > 20) return Unimplemented("too long");
    return Unimplemented("op 'gap' has no kernel");
  };
  const auto found = survey(folder / "", options);
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  ASSERT_EQ(found->size(), 3U);
  const SurveyedProgram& custom = (*found)[0];
  EXPECT_EQ(custom.runs.answer, Answer::kNo);
  EXPECT_THAT(custom.runs.reasons, ElementsAre("op 'gap' has no kernel"));
  EXPECT_EQ(custom.targets[0].answer, Answer::kNo);
  EXPECT_THAT(custom.targets[0].reasons, ElementsAre("op 'gap' has no converter (1 of them)"));
  // an attribute in the form of an older release; no parameters next to the file
  const SurveyedProgram& dqn = (*found)[1];
  EXPECT_GT(dqn.upgrade_count, 0U);
  EXPECT_THAT(dqn.upgrades, Not(IsEmpty()));
  EXPECT_EQ(dqn.runs.answer, Answer::kNo);
  EXPECT_THAT(dqn.runs.reasons, ElementsAre("too long"));
  EXPECT_EQ(dqn.targets[0].answer, Answer::kUnknown);
  EXPECT_THAT(dqn.targets[0].reasons[0], HasSubstr("parameters are not there"));
  EXPECT_FALSE((*found)[2].unreadable.ok());
}

TEST(Survey, ReportsHaveAllOfIt) {
  Report report{.folder = kFitALine, .targets = {"onnx"}, .programs = {}};
  SurveyOptions options = with_onnx();
  options.compile = [](const Program&) { return Ok(); };
  report.programs = survey(kFitALine, options).value();
  SurveyedProgram broken;
  broken.path = std::string(kFitALine) + "/<b>.pb";
  broken.unreadable = Status(StatusCode::kInvalidProgram, "cut off");
  report.programs.push_back(broken);
  const std::string text = report_text(report);
  EXPECT_THAT(
      text,
      HasSubstr("__model__: inference model, release 1.5 or earlier, 4 ops, parameters 2 in"));
  EXPECT_THAT(text, HasSubstr("runs yes, onnx yes"));
  EXPECT_THAT(text, HasSubstr("<b>.pb: no program: cut off"));
  EXPECT_THAT(text, HasSubstr("2 files\nruns: 1 of 1\nonnx: 1 of 1\n"));
  const auto json = nlohmann::json::parse(report_json(report));
  EXPECT_EQ(json["programs"][0]["onnx"]["answer"], "yes");
  EXPECT_EQ(json["programs"][0]["op_types"]["mul"], 1);
  EXPECT_EQ(json["programs"][1]["error"], "cut off");
  const std::string page = report_html(report);
  EXPECT_THAT(page, HasSubstr("&lt;b&gt;.pb"));
  EXPECT_THAT(page, Not(HasSubstr("<b>.pb")));
  EXPECT_THAT(page, HasSubstr("<td class=\"yes\">yes</td>"));
}

}  // namespace
}  // namespace millrace::interchange
