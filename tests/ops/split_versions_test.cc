#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/op_attrs.h"
#include "framework/read_program.h"
#include "ops/backward/array_reads.h"
#include "ops/backward/versions.h"
#include "ops/registry.h"

namespace millrace::ops::backward {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// h = tanh(x), which other ops of the tests overwrite; loss = mean(h).
class SplitVersionsTest : public ::testing::Test {
 protected:
  SplitVersionsTest() {
    for (const char* const name : {"x", "h", "a"})
      root().declare(name, VarSpec::tensor(DType::kFloat32, {2, 2}));
    for (const char* const name : {"one", "two", "c", "d"})
      root().declare(name, VarSpec::tensor(DType::kBool, {1}));
    root().declare("loss", VarSpec::tensor(DType::kFloat32, {}));
  }

  Block& root() { return program_->root(); }

  static Op& op(Block& block, const char* type, const char* x, const char* out) {
    return block.append_op(type).set_input("X", x).set_output("Out", out);
  }

  // A branch that assigns a to h.
  Op& branch(const char* condition) {
    Op& made = root().append_op("conditional_block");
    Block& body = program_->add_block(0);
    op(body, "assign", "a", "h");
    return made.set_input("Cond", condition)
        .set_input("Input", "a")
        .set_output("Out", "h")
        .set_attr("sub_block", AttrValue::of_block(body.index()))
        .set_bool("is_scalar_condition", true);
  }

  // A loop that reads and writes h.
  Op& loop(Block& block) {
    Op& made = block.append_op("while");
    Block& body = program_->add_block(block.index());
    body.declare("a", VarSpec::tensor(DType::kFloat32, {2, 2}));
    op(body, "square", "h", "a");
    op(body, "assign", "a", "h");
    return made.set_input("X", "h")
        .set_input("Condition", "one")
        .set_output("Out", "h")
        .set_attr("sub_block", AttrValue::of_block(body.index()));
  }

  void split() { split_versions(*standard_registry(), *program_, "loss", &warnings_); }

  std::vector<std::string> text() { return text_of(root()); }

  static std::vector<std::string> text_of(const Block& block) {
    std::vector<std::string> lines;
    for (const Op& each : block.ops()) {
      std::string line = each.output_names().empty() ? "" : each.output_names()[0].str();
      line += " = " + each.type().str();
      for (const llvm::StringRef name : each.input_names()) line += " " + name.str();
      lines.push_back(line);
    }
    return lines;
  }

  std::unique_ptr<Program> program_ = Program::create();
  std::vector<Status> warnings_;
};

TEST_F(SplitVersionsTest, GivesEachValueANameAndTheLastItsOwn) {
  op(root(), "tanh", "x", "h");
  op(root(), "scale", "h", "a");
  op(root(), "square", "h", "h");
  op(root(), "assign", "a", "h");
  op(root(), "mean", "h", "loss");
  split();
  EXPECT_THAT(text(),
              ElementsAre("h@VERSION@0 = tanh x", "a = scale h@VERSION@0",
                          "h@VERSION@1 = square h@VERSION@0", "h = assign a", "loss = mean h"));
  EXPECT_NE(root().find_var("h@VERSION@1"), nullptr);
}

TEST_F(SplitVersionsTest, LeavesWhatTheLossIsNotComputedFrom) {
  op(root(), "tanh", "x", "h");
  op(root(), "square", "h", "h");
  op(root(), "mean", "x", "loss");
  const std::vector<std::string> before = text();
  split();
  EXPECT_EQ(text(), before);
}

TEST_F(SplitVersionsTest, CopiesWhatIsFed) {
  op(root(), "feed", "holder", "x");
  op(root(), "tanh", "x", "a");
  op(root(), "scale", "a", "x");
  op(root(), "mean", "x", "loss");
  VarSpec fed = root().find_var("x")->spec();
  fed.need_check_feed = true;
  root().find_var("x")->set_spec(fed);
  split();
  EXPECT_FALSE(root().find_var("x@VERSION@0")->spec().need_check_feed.has_value())
      << "the copy is not fed";
  EXPECT_THAT(text(), ElementsAre("x = feed holder", "x@VERSION@0 = assign x",
                                  "a = tanh x@VERSION@0", "x = scale a", "loss = mean x"));
}

TEST_F(SplitVersionsTest, KeepsTheCounterThatGradientsCountBack) {
  root().declare("x", VarSpec::tensor(DType::kFloat32, {1}));
  op(root(), "scale", "a", "x");
  op(root(), "increment", "x", "x");
  op(root(), "mean", "x", "loss");
  const std::vector<std::string> before = text();
  split();
  EXPECT_EQ(text(), before);
}

TEST_F(SplitVersionsTest, MakesAChoiceOfABranchThatOverwrites) {
  op(root(), "tanh", "x", "h");
  branch("one");
  op(root(), "mean", "h", "loss");
  split();
  EXPECT_THAT(
      text(),
      ElementsAre("h@VERSION@0 = tanh x", "one@VERSION@0 = logical_not one",
                  "one@VERSION@1 = cast one", "h@VERSION@1 = conditional_block one a",
                  "h@VERSION@2 = conditional_block one@VERSION@0 h@VERSION@0",
                  "h = select_input h@VERSION@2 h@VERSION@1 one@VERSION@1", "loss = mean h"));
  EXPECT_TRUE(program_->block(1).front().writes("h@VERSION@1"));
  EXPECT_TRUE(program_->block(2).front().reads("h@VERSION@0"));
  const std::vector<std::string> once = text();
  split();
  EXPECT_EQ(text(), once) << "a second loss finds nothing to do";
}

TEST_F(SplitVersionsTest, LeavesCasesThatExcludeEachOther) {
  op(root(), "logical_not", "one", "c");
  root().append_op("logical_and").set_input("X", "c").set_input("Y", "two").set_output("Out", "d");
  branch("one");
  branch("d");
  op(root(), "mean", "h", "loss");
  const std::vector<std::string> before = text();
  split();
  EXPECT_EQ(text(), before);
}

TEST_F(SplitVersionsTest, SplitsBranchesThatMayBothBeTaken) {
  branch("one");
  branch("two");
  op(root(), "mean", "h", "loss");
  split();
  EXPECT_TRUE(root().has_readers("h@VERSION@0"));
  EXPECT_TRUE(root().first_writer("h")->type() == "select_input");
}

// If neither of two conditions holds, the branch of the first one is not taken.
TEST_F(SplitVersionsTest, LeavesTheCaseWhereNoOtherConditionHolds) {
  root().append_op("logical_or").set_input("X", "one").set_input("Y", "two").set_output("Out", "c");
  op(root(), "logical_not", "c", "d");
  branch("one");
  branch("d");
  op(root(), "mean", "h", "loss");
  const std::vector<std::string> before = text();
  split();
  EXPECT_EQ(text(), before);
}

// If one of two conditions holds, it may be the second one, while the first one does not hold.
TEST_F(SplitVersionsTest, AConditionThatHoldsForOneOfTwoReasonsExcludesNeither) {
  root().append_op("logical_or").set_input("X", "one").set_input("Y", "two").set_output("Out", "c");
  op(root(), "logical_not", "one", "d");
  branch("c");
  branch("d");
  op(root(), "mean", "h", "loss");
  split();
  EXPECT_TRUE(root().has_readers("h@VERSION@0"));
}

TEST_F(SplitVersionsTest, AConditionThatIsOverwrittenExcludesNothing) {
  op(root(), "logical_not", "one", "c");
  op(root(), "assign", "two", "c");
  branch("one");
  branch("c");
  op(root(), "mean", "h", "loss");
  split();
  EXPECT_TRUE(root().has_readers("h@VERSION@0"));
}

TEST_F(SplitVersionsTest, WarnsOfABlockWithoutASingleCondition) {
  op(root(), "tanh", "x", "h");
  branch("one").set_bool("is_scalar_condition", false);
  op(root(), "mean", "h", "loss");
  const std::vector<std::string> before = text();
  split();
  EXPECT_EQ(text(), before);
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_THAT(warnings_[0].message(), HasSubstr("'h', which other ops also write"));
  EXPECT_EQ(warnings_[0].location().op_type, "conditional_block");
}

TEST_F(SplitVersionsTest, ABlockThatAloneWritesAVarNeedsNoWarning) {
  branch("one").set_bool("is_scalar_condition", false);
  op(root(), "mean", "h", "loss");
  split();
  EXPECT_THAT(warnings_, IsEmpty());
}

// Where the branch is not taken, h is computed from the time step of the sequence x.
TEST_F(SplitVersionsTest, ABranchMayOverwriteTheTimeStepOfASequence) {
  Op& recurrence = root().append_op("recurrent");
  Block& step = program_->add_block(0);
  for (const char* const name : {"x", "h", "previous"})
    step.declare(name, VarSpec::tensor(DType::kFloat32, {2}));
  Block& body = program_->add_block(step.index());
  op(body, "assign", "previous", "x");
  step.append_op("conditional_block")
      .set_input("Cond", "one")
      .set_input("Input", "previous")
      .set_output("Out", "x")
      .set_attr("sub_block", AttrValue::of_block(body.index()))
      .set_bool("is_scalar_condition", true);
  op(step, "scale", "x", "h");
  recurrence.set_input("inputs", "x").set_input("initial_states", "a").set_output("outputs", "h");
  recurrence.set_strings("ex_states", {"previous"}).set_strings("states", {"h"});
  recurrence.set_attr("sub_block", AttrValue::of_block(step.index()));
  op(root(), "mean", "h", "loss");
  split();
  EXPECT_THAT(text_of(step), Contains(HasSubstr("= select_input ")));
}

TEST_F(SplitVersionsTest, LetsALoopStartFromACopy) {
  op(root(), "tanh", "x", "h");
  loop(root());
  op(root(), "mean", "h", "loss");
  split();
  EXPECT_THAT(text(), ElementsAre("h@VERSION@0 = tanh x", "h = assign h@VERSION@0",
                                  "h = while h one", "loss = mean h"));
}

// No gradient needs the value that assign has written, so the loop may overwrite it.
TEST_F(SplitVersionsTest, LetsALoopStartFromAnAssignedValueItself) {
  op(root(), "assign", "x", "h");
  loop(root());
  op(root(), "mean", "h", "loss");
  const std::vector<std::string> before = text();
  split();
  EXPECT_EQ(text(), before);
}

// The gradient of scale is added to that of the value of the iteration before, which the inner loop
// must not replace.
TEST_F(SplitVersionsTest, LetsAnInnerLoopWorkOnACopyAfterAReadOfTheOuterLoop) {
  op(root(), "assign", "x", "h");
  Op& outer = root().append_op("while");
  Block& body = program_->add_block(0);
  body.declare("u", VarSpec::tensor(DType::kFloat32, {2, 2}));
  op(body, "scale", "h", "u");
  op(body, "assign", "u", "h");
  loop(body);
  outer.set_input("X", "h").set_input("Condition", "one").set_output("Out", "h");
  outer.set_attr("sub_block", AttrValue::of_block(body.index()));
  op(root(), "mean", "h", "loss");
  split();
  EXPECT_THAT(text(), ElementsAre("h = assign x", "h = while h one", "loss = mean h"));
  EXPECT_THAT(
      text_of(body),
      ElementsAre("u = scale h", "h@VERSION@0 = assign u", "h@VERSION@1 = assign h@VERSION@0",
                  "h@VERSION@1 = while h@VERSION@1 one", "h = assign h@VERSION@1"));
}

TEST_F(SplitVersionsTest, StartsARecurrenceFromTheEarlierValueThatItReplaces) {
  for (const bool is_last : {true, false}) {
    program_ = Program::create();
    for (const char* const name : {"x", "h"})
      root().declare(name, VarSpec::tensor(DType::kFloat32, {2, 2}));
    op(root(), "tanh", "x", "h");
    Op& recurrence = root().append_op("recurrent");
    Block& step = program_->add_block(0);
    for (const char* const name : {"h", "previous", "next"})
      step.declare(name, VarSpec::tensor(DType::kFloat32, {2}));
    op(step, "scale", "previous", "h");
    op(step, "assign", "h", "next");
    recurrence.set_input("initial_states", "h").set_output("outputs", "h");
    recurrence.set_strings("ex_states", {"previous"}).set_strings("states", {"next"});
    recurrence.set_attr("sub_block", AttrValue::of_block(step.index()));
    if (!is_last) op(root(), "square", "h", "h");
    op(root(), "mean", "h", "loss");
    split();
    EXPECT_EQ(root().front().first_output("Out"), "h@VERSION@0");
    EXPECT_EQ(recurrence.first_input("initial_states"), "h@VERSION@0");
    EXPECT_EQ(recurrence.first_output("outputs"), is_last ? "h" : "h@VERSION@1");
  }
}

// The body of the branch assigns h before its loop reads it, so that a second loss finds nothing to
// do.
TEST_F(SplitVersionsTest, SplitsABranchThatAssignsAndLoopsOnce) {
  op(root(), "tanh", "x", "h");
  Op& made = branch("one");
  loop(program_->block(1));
  op(root(), "mean", "h", "loss");
  split();
  EXPECT_THAT(made.input("Input"), ElementsAre("a"));
  const std::vector<std::string> once = text();
  const std::vector<std::string> body = text_of(program_->block(1));
  split();
  EXPECT_EQ(text(), once);
  EXPECT_EQ(text_of(program_->block(1)), body);
}

TEST_F(SplitVersionsTest, CopiesNothingForALoopThatWritesTheFirstValue) {
  Op& made = root().append_op("while");
  Block& body = program_->add_block(0);
  op(body, "assign", "x", "h");
  made.set_input("X", "x").set_input("Condition", "one").set_output("Out", "h");
  made.set_attr("sub_block", AttrValue::of_block(body.index()));
  op(root(), "square", "h", "h");
  op(root(), "mean", "h", "loss");
  split();
  EXPECT_THAT(text(),
              ElementsAre("h@VERSION@0 = while x one", "h = square h@VERSION@0", "loss = mean h"));
  EXPECT_THAT(text_of(body), ElementsAre("h@VERSION@0 = assign x"));
}

// The gradient of tanh reads its result, and the executor keeps what an iteration finds in h.
TEST_F(SplitVersionsTest, CopiesAResultOfALoopThatItsGradientReads) {
  Op& made = root().append_op("while");
  Block& body = program_->add_block(0);
  op(body, "tanh", "x", "h");
  made.set_input("X", "x").set_input("Condition", "one").set_output("Out", "h");
  made.set_attr("sub_block", AttrValue::of_block(body.index()));
  op(root(), "mean", "h", "loss");
  split();
  EXPECT_THAT(text_of(body), ElementsAre("h@VERSION@0 = tanh x", "h = assign h@VERSION@0"));
}

// A loop without iterations leaves the earlier value, so the loop has an input for it.
TEST_F(SplitVersionsTest, ListsTheCopyAmongTheInputsOfALoopThatDoesNotReadIt) {
  op(root(), "tanh", "x", "h");
  Op& made = root().append_op("while");
  Block& body = program_->add_block(0);
  op(body, "square", "x", "h");
  made.set_input("X", "x").set_input("Condition", "one").set_output("Out", "h");
  made.set_attr("sub_block", AttrValue::of_block(body.index()));
  op(root(), "mean", "h", "loss");
  split();
  EXPECT_THAT(text(), ElementsAre("h@VERSION@0 = tanh x", "h = assign h@VERSION@0",
                                  "h = while x h one", "loss = mean h"));
  EXPECT_THAT(made.input("X"), ElementsAre("x", "h"));
}

// An output of a recurrence has the name of its time step inside.
TEST_F(SplitVersionsTest, RenamesAnOutputOfARecurrenceInItsTimeStepToo) {
  Op& recurrence = root().append_op("recurrent");
  Block& step = program_->add_block(0);
  for (const char* const name : {"h", "previous"})
    step.declare(name, VarSpec::tensor(DType::kFloat32, {2}));
  op(step, "assign", "previous", "h");
  const Block& inner = steps_of(loop(step));
  recurrence.set_input("initial_states", "x").set_output("outputs", "h");
  recurrence.set_strings("ex_states", {"previous"}).set_strings("states", {"h"});
  recurrence.set_attr("sub_block", AttrValue::of_block(step.index()));
  op(root(), "square", "h", "h");
  op(root(), "mean", "h", "loss");
  split();
  EXPECT_THAT(text(),
              ElementsAre("h@VERSION@0 = recurrent x", "h = square h@VERSION@0", "loss = mean h"));
  EXPECT_THAT(text_of(step),
              ElementsAre("h@VERSION@0 = assign previous", "h@VERSION@0 = while h@VERSION@0 one"));
  EXPECT_THAT(text_of(inner), ElementsAre("a = square h@VERSION@0", "h@VERSION@0 = assign a"));
  EXPECT_NE(step.find_var("h@VERSION@0"), nullptr);
  EXPECT_EQ(step.find_var("h"), nullptr);
  EXPECT_THAT(get_attr_or<std::vector<std::string>>(recurrence, "states", {}),
              ElementsAre("h@VERSION@0"));
  EXPECT_THAT(get_attr_or<std::vector<std::string>>(recurrence, "ex_states", {}),
              ElementsAre("previous"));
}

// The inner branch is not taken where the outer one must keep the earlier value.
TEST_F(SplitVersionsTest, ListsTheEarlierValueAmongTheInputsOfAnOuterBranch) {
  op(root(), "tanh", "x", "h");
  Op& outer = root().append_op("conditional_block");
  Block& body = program_->add_block(0);
  Block& inner = program_->add_block(body.index());
  op(inner, "assign", "a", "h");
  body.append_op("conditional_block")
      .set_input("Cond", "two")
      .set_input("Input", "a")
      .set_output("Out", "h")
      .set_attr("sub_block", AttrValue::of_block(inner.index()))
      .set_bool("is_scalar_condition", true);
  outer.set_input("Cond", "one")
      .set_input("Input", "a")
      .set_output("Out", "h")
      .set_attr("sub_block", AttrValue::of_block(body.index()))
      .set_bool("is_scalar_condition", true);
  op(root(), "mean", "h", "loss");
  split();
  EXPECT_THAT(outer.input("Input"), ElementsAre("a", "h@VERSION@0"));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(SplitVersionsTest, TellsBranchesByTheirOneCondition) {
  Op& made = root().append_op("conditional_block");
  const Block& body = program_->add_block(0);
  made.set_input("Cond", "one");
  EXPECT_EQ(block_kind(made), BlockKind::kNone);
  made.set_attr("sub_block", AttrValue::of_block(body.index()));
  EXPECT_EQ(block_kind(made), BlockKind::kOther) << "not scalar unless the attribute says so";
  made.set_bool("is_scalar_condition", true);
  EXPECT_EQ(block_kind(made), BlockKind::kBranch);
  made.set_input("Cond", llvm::ArrayRef<std::string>({"one", "two"}));
  EXPECT_EQ(block_kind(made), BlockKind::kOther);
}

TEST_F(SplitVersionsTest, AnOpTouchesWhatItsBlockDoesNotDeclare) {
  Op& made = root().append_op("while");
  Block& body = program_->add_block(0);
  body.declare("u", VarSpec::tensor(DType::kFloat32, {2, 2}));
  op(body, "tanh", "x", "u");
  op(body, "scale", "u", "h");
  made.set_input("Condition", "one").set_output("StepScopes", "s");
  made.set_attr("sub_block", AttrValue::of_block(body.index()));
  const Touched touched = touched_by(made);
  EXPECT_THAT(touched.reads, ElementsAre("one", "x"));
  EXPECT_THAT(touched.writes, ElementsAre("h", "s"));
}

TEST(ArrayReadsTest, AreCountedByElement) {
  const std::string base = "tests/data/backward/control_flow/";
  const auto apart = [&](const std::string& net) {
    auto program = read_program(base + net + ".forward.pb", {});
    EXPECT_TRUE(program.ok());
    std::vector<Status> warnings;
    Names names;
    for (const Op& op : (*program)->root().ops()) names.merge(arrays_read_apart(op, &warnings));
    EXPECT_THAT(warnings, IsEmpty());
    return names.size();
  };
  EXPECT_EQ(apart("memory_read_outside"), 1U);
  EXPECT_EQ(apart("memory_two_back"), 1U);
  EXPECT_EQ(apart("read_twice"), 0U) << "the same element";
  EXPECT_EQ(apart("nested_loops"), 0U) << "the last element, which no step reads";
}

TEST(ArrayReadsTest, SaysThatReadsInBranchesAreNotToldApart) {
  auto program = read_program("tests/data/backward/control_flow/cond_reads_memory.forward.pb", {});
  ASSERT_TRUE(program.ok());
  Block& root = (*program)->root();
  const Op* loop = nullptr;
  for (const Op& op : root.ops())
    if (op.type() == "while") loop = &op;
  ASSERT_NE(loop, nullptr);
  std::string memory;
  for (const Block& block : (*program)->blocks())
    for (const Op& op : block.ops())
      if (block.index() > 0 && op.type() == "read_from_array") memory = op.first_input("X").str();
  std::vector<Status> warnings;
  EXPECT_THAT(arrays_read_apart(*loop, &warnings), IsEmpty());
  EXPECT_THAT(warnings, IsEmpty()) << "one read";
  root.append_op("read_from_array")
      .set_input("X", memory)
      .set_input("I", "k")
      .set_output("Out", "z");
  EXPECT_THAT(arrays_read_apart(*loop, &warnings), IsEmpty());
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0].message(), HasSubstr("is read in a branch of the loop"));
}

}  // namespace
}  // namespace millrace::ops::backward
