#include "framework/base/module.h"

#include <fstream>

#include <gmock/gmock.h>

#include "tests/framework/modules/same_build.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Module, IsFoundBesideTheProgramAndLoadedOnce) {
  const StatusOr<const SameBuild*> module = load_functions<SameBuild>("test_same_build");
  ASSERT_TRUE(module.ok()) << module.status().to_string();
  EXPECT_EQ((*module)->twice(21), 42);
  EXPECT_EQ(load_functions<SameBuild>("test_same_build").value(), *module);
}

TEST(Module, AMissingFileIsNamed) {
  const Status status = load_module("test_nowhere").status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("'test_nowhere' is unavailable"));
  EXPECT_THAT(status.location().file, ::testing::EndsWith("/millrace/test_nowhere.so"));
  EXPECT_THAT(status.hint(), HasSubstr("installed with the programs"));
}

TEST(Module, AnotherBuildIsRefused) {
  const Status status = load_module("test_other_build").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidData);
  EXPECT_THAT(status.message(), AllOf(HasSubstr(build_stamp()), HasSubstr("0.0.0 of long ago")));
}

TEST(Module, AFileWithoutTheFunctionIsNone) {
  EXPECT_THAT(load_module("test_no_entry").status().message(), HasSubstr("millrace_module"));
}

TEST(Module, AFileThatIsNoLibraryIsRefused) {
  // in the folder of the good modules, which the error of a missing module names
  const std::string missing = load_module("test_text").status().location().file;
  std::ofstream(missing) << "no library\n";
  const Status status = load_module("test_text").status();
  std::remove(missing.c_str());
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), HasSubstr("cannot be loaded"));
}

}  // namespace
}  // namespace millrace
