#include "transpiler/pass_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transpiler/register_all.h"

namespace millrace::transpiler {
namespace {

// Reports the options it was created with as a remark of its run.
class Recorder final : public Pass {
 public:
  explicit Recorder(const PassOptions& options)
      : text_((options.flag("flag") ? "true " : "false ") +
              std::to_string(options.integer("count")) + " " +
              std::to_string(options.real("rate")) + " " + options.string("mode")) {
    for (const std::string& name : options.strings("names")) text_ += " " + name;
    if (options.given("count")) text_ += " given";
  }
  llvm::StringRef name() const override { return "recorder"; }
  StatusOr<bool> run(Program& /*program*/, PassContext& context) override {
    context.remarks.push_back(text_);
    return false;
  }

 private:
  std::string text_;
};

class PassRegistryTest : public ::testing::Test {
 protected:
  PassRegistryTest() {
    passes_.add(PassInfo("recorder", "remember options")
                    .flag("flag", false, "a flag")
                    .integer("count", 3, "a count")
                    .range(1, 9)
                    .real("rate", 0.5, "a rate")
                    .range(0)
                    .string("mode", "fast", "a mode")
                    .one_of({"fast", "small"})
                    .strings("names", "some names")
                    .makes<Recorder>());
  }

  std::string options_of(llvm::StringRef text) {
    StatusOr<std::unique_ptr<Pass>> pass = passes_.make(parse_pipeline(text)->steps[0]);
    if (!pass.ok()) return pass.status().to_string();
    ops::OpRegistry ops;
    PassContext context(ops);
    const auto program = Program::create();
    EXPECT_TRUE((*pass)->run(*program, context).ok());
    return context.remarks[0];
  }

  PassRegistry passes_;
};

TEST_F(PassRegistryTest, FillsInDefaults) {
  EXPECT_EQ(options_of("recorder"), "false 3 0.500000 fast");
}

TEST_F(PassRegistryTest, ReadsEveryType) {
  EXPECT_EQ(options_of("recorder{flag=true,count=9,rate=1e-1,mode=small,names=[a,b]}"),
            "true 9 0.100000 small a b given");
  EXPECT_EQ(options_of("recorder{names=a}"), "false 3 0.500000 fast a");
}

TEST_F(PassRegistryTest, UnknownNamesGetTheNearestOne) {
  EXPECT_EQ(options_of("recordr"),
            "error: there is no pass 'recordr'\n  hint: did you mean 'recorder'?");
  EXPECT_EQ(
      options_of("recorder{coutn=1}"),
      "error: pass 'recorder' has no option 'coutn' (expected one of flag, count, rate, mode, "
      "names)\n  hint: did you mean 'count'?");
}

TEST_F(PassRegistryTest, BadValuesNamePassOptionExpectedAndFound) {
  const auto bad = [](const char* option, const char* expected, const char* found) {
    return std::string("error: option '") + option +
           "' of pass 'recorder' has a bad value (expected " + expected + ", found " + found + ")";
  };
  EXPECT_EQ(options_of("recorder{flag=yes}"), bad("flag", "bool", "yes"));
  EXPECT_EQ(options_of("recorder{count=1.5}"), bad("count", "int >= 1 <= 9", "1.5"));
  EXPECT_EQ(options_of("recorder{count=0}"), bad("count", "int >= 1 <= 9", "0"));
  EXPECT_EQ(options_of("recorder{count=99999999999999999999}"),
            bad("count", "int >= 1 <= 9", "99999999999999999999"));
  EXPECT_EQ(options_of("recorder{rate=-1}"), bad("rate", "float >= 0", "-1"));
  EXPECT_EQ(options_of("recorder{rate=nan}"), bad("rate", "float >= 0", "nan"));
  EXPECT_EQ(options_of("recorder{mode=slow}"), bad("mode", "one of fast, small", "slow"));
  EXPECT_EQ(options_of("recorder{mode=[fast]}"), bad("mode", "one of fast, small", "[fast]"));
}

TEST_F(PassRegistryTest, RequiredOptionsMustBeGiven) {
  passes_.add(PassInfo("needy", "needs something")
                  .strings("targets", "vars to compute")
                  .required()
                  .makes<Recorder>());
  EXPECT_EQ(options_of("needy"), "error: pass 'needy' needs the option 'targets': vars to compute");
}

TEST_F(PassRegistryTest, ErrorsOfAFactoryNameThePass) {
  passes_.add(PassInfo("picky", "refuses")
                  .factory([](const PassOptions& /*options*/) -> StatusOr<std::unique_ptr<Pass>> {
                    return Status(StatusCode::kInvalidArgument, "never");
                  }));
  EXPECT_EQ(options_of("picky"), "error: never\n  note: in pass 'picky'");
}

TEST(PassRegistryDeathTest, AddingANameTwiceAborts) {
  PassRegistry passes;
  passes.add(PassInfo("recorder", "").makes<Recorder>());
  EXPECT_DEATH(passes.add(PassInfo("recorder", "").makes<Recorder>()),
               "internal error: pass 'recorder' is registered twice");
}

TEST(RegisterAllPasses, EveryPassIsSortedAndDocumented) {
  PassRegistry passes;
  register_all(passes);
  std::string last;
  for (const PassInfo* info : passes.passes()) {
    EXPECT_LT(last, info->name().str());
    last = info->name().str();
    EXPECT_FALSE(info->summary().empty()) << last;
    EXPECT_FALSE(info->summary().endswith(".")) << last;
    for (const OptionDef& option : info->options())
      EXPECT_FALSE(option.doc.empty()) << last << ", " << option.name.str();
  }
  EXPECT_FALSE(last.empty());
}

}  // namespace
}  // namespace millrace::transpiler
