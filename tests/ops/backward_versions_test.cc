// Versions of vars in programs with recurrences, and the vars that a loss is computed from.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/text_form/parse.h"
#include "framework/text_form/print.h"
#include "ops/backward/versions.h"
#include "ops/registry.h"

namespace millrace::ops::backward {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

std::unique_ptr<Program> parsed(const std::string& root, const std::string& step) {
  auto program = parse_program(
      "# millrace program 1\n\nblock 0 {\n" + root + "}\n\nblock 1 parent=0 {\n" + step + "}\n",
      "test");
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  return program.ok() ? *std::move(program) : Program::create();
}

std::string split(const std::unique_ptr<Program>& program) {
  split_versions(*standard_registry(), *program, "loss", nullptr);
  return print_program(*program);
}

const std::string kRoot =
    "  var x: f32(2, 2)\n  var a: f32(2, 2)\n  var y: f32(2, 2)\n  var loss: f32()\n"
    "  var s: step_scopes\n";

std::string recurrence(const std::string& state) {
  return "  recurrent initial_states=a inputs=x parameters=[] -> outputs=y step_scopes=s "
         "{ex_states: [\"p\"], states: [\"" +
         state + "\"], sub_block: ^1}\n  mean X=y -> Out=loss\n";
}

// Each time step computes y from the state that the one before has left.
TEST(NamesBehindTest, GoThroughTheStatesOfARecurrence) {
  const auto program = parsed(kRoot + recurrence("q"),
                              "  var p: f32(2)\n  var q: f32(2)\n  var u: f32(2)\n  var y: f32(2)\n"
                              "  var x: f32(2)\n  scale X=x -> Out=u\n  square X=u -> Out=u\n"
                              "  assign X=u -> Out=q\n  scale X=p -> Out=y\n");
  EXPECT_THAT(names_leading_to(*program, "loss"), IsSupersetOf({"p", "q", "u", "x"}));
  EXPECT_THAT(split(program), HasSubstr("  square X=u@VERSION@0 -> Out=u\n"));
}

// Integers have no gradient that would need another name.
TEST(RecurrenceTest, AnIntegerStateThatIsOnlyReadKeepsItsName) {
  std::string root = kRoot + recurrence("x");
  root.replace(root.find("x: f32"), 6, "x: i64");
  const auto program = parsed(root,
                              "  var p: i64(2)\n  var x: i64(2)\n  var y: f32(2)\n"
                              "  cast X=x -> Out=y {in_dtype: 3, out_dtype: 5}\n");
  const std::string before = print_program(*program);
  EXPECT_EQ(split(program), before);
}

// h is a var of the block itself, where no op has written it before the recurrence.
TEST(RecurrenceTest, AnInitialStateWithoutAValueKeepsItsName) {
  const auto program =
      parsed(kRoot +
                 "  var c: bool(1)\n"
                 "  conditional_block Cond=c Input=x -> Out=y Scope=s {is_scalar_condition: true, "
                 "sub_block: ^1}\n"
                 "  mean X=y -> Out=loss\n",
             "  var h: f32(2, 2)\n  var s2: step_scopes\n"
             "  recurrent initial_states=h inputs=[] parameters=[] -> outputs=h step_scopes=s2 "
             "{ex_states: [\"p\"], states: [\"h\"], sub_block: ^2}\n"
             "  assign X=h -> Out=y\n}\n\n"
             "block 2 parent=1 {\n  var p: f32(2)\n  var h: f32(2)\n  scale X=p -> Out=h\n");
  EXPECT_THAT(split(program), HasSubstr("recurrent initial_states=h "));
}

// A choice between the value of a branch and the earlier one has a mask for select_input.
TEST(BranchTest, AChoiceHasVarsOfItsOwnTypes) {
  const auto program =
      parsed(kRoot +
                 "  var c: bool(1)\n  tanh X=x -> Out=y\n"
                 "  conditional_block Cond=c Input=a -> Out=y Scope=s {is_scalar_condition: true, "
                 "sub_block: ^1}\n"
                 "  mean X=y -> Out=loss\n",
             "  assign X=a -> Out=y\n");
  const std::string text = split(program);
  EXPECT_THAT(text, HasSubstr("  var c@VERSION@0: bool(1) stop_gradient\n"));
  EXPECT_THAT(text, HasSubstr("  var c@VERSION@1: i32(1) stop_gradient\n"));
  EXPECT_THAT(text, HasSubstr("  var c@VERSION@2: step_scopes stop_gradient\n"));
}

}  // namespace
}  // namespace millrace::ops::backward
