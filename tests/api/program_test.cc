// Programs as plain values, edits, checks, passes and views of the installed library.

#include "api/program.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/program_file.h"
#include "tests/api/nets.h"

namespace millrace::api {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A loop whose body reads w of block 0.
constexpr const char* kLoop = R"(# millrace program 1
block 0 {
  var w: f32(2, 2) persistable
  var flag: bool(1)
  var scopes: step_scopes

  while X=w Condition=flag -> Out=w StepScopes=scopes {sub_block: ^1}
}

block 1 parent=0 {
  var local: f32(2, 2)

  scale X=w -> Out=local {scale: 2.0, bias: 0.0}
}
)";

ProgramPtr loop() {
  return value_of(parse_program_bytes(kLoop, "loop"));
}

ProgramEditor::OpId first_op(const ProgramEditor& editor, const std::string& type, int block = 0) {
  for (const ProgramEditor::OpId op : value_of(editor.ops(block)))
    if (value_of(editor.op_type(op)) == type) return op;
  throw std::runtime_error("no op " + type);
}

const AttrData& attr_of(const OpData& op, const std::string& name) {
  for (const AttrData& attr : op.attrs)
    if (attr.name == name) return attr;
  throw std::runtime_error("no attribute " + name);
}

TEST(ApiProgram, WhatIsNotEditedKeepsItsBytes) {
  const std::string bytes = program_bytes(SmallNet().net.main());
  const ProgramPtr read = value_of(parse_program_bytes(bytes, "net"));
  const ProgramEditor editor(*read);
  EXPECT_EQ(program_bytes(*editor.program()), bytes);
  EXPECT_EQ(editor.program(), editor.program());
}

TEST(ApiProgram, OpsAreShownAsTheyAre) {
  const ProgramEditor editor(*loop());
  EXPECT_EQ(editor.block_count(), 2);
  EXPECT_EQ(value_of(editor.parent(1)), 0);
  const ProgramEditor::OpId scale = first_op(editor, "scale", 1);
  const OpData op = value_of(editor.op(scale));
  ASSERT_EQ(op.inputs.size(), 1U);
  EXPECT_EQ(op.inputs[0].name, "X");
  EXPECT_THAT(op.inputs[0].vars, ElementsAre("w"));
  EXPECT_EQ(attr_of(op, "scale").kind, AttrKind::kFloat);
  EXPECT_EQ(std::get<double>(attr_of(op, "scale").value), 2.0);
  EXPECT_EQ(value_of(editor.place(scale)), std::make_pair(1, int64_t{0}));
  const OpData loop_op = value_of(editor.op(first_op(editor, "while")));
  EXPECT_EQ(attr_of(loop_op, "sub_block").kind, AttrKind::kBlock);
  EXPECT_EQ(std::get<int64_t>(attr_of(loop_op, "sub_block").value), 1);
}

TEST(ApiProgram, VarsAreThoseThatABlockSees) {
  const ProgramEditor editor(*loop());
  const VarData w = value_of(editor.var(1, "w"));
  EXPECT_EQ(w.dtype, DType::kFloat32);
  EXPECT_THAT(w.dims, ElementsAre(2, 2));
  EXPECT_TRUE(w.persistable);
  EXPECT_FALSE(value_of(editor.var(0, "scopes")).dtype.has_value());
  EXPECT_EQ(value_of(editor.vars(1)).size(), 1U);
  EXPECT_EQ(editor.var(0, "local").status().code(), StatusCode::kNotFound);
}

TEST(ApiProgram, EditsChangeOnlyTheCopy) {
  const ProgramPtr given = loop();
  ProgramEditor editor(*given);
  const ProgramPtr before = editor.program();
  check(editor.set_attr(first_op(editor, "scale", 1), {"scale", int64_t{3}}));
  EXPECT_NE(editor.program(), before);
  EXPECT_THAT(compare(*before, *given), IsEmpty());
  const std::vector<ProgramDifference> differences = compare(*given, *editor.program());
  ASSERT_EQ(differences.size(), 1U);
  EXPECT_EQ(differences[0].what, "attr scale");
  EXPECT_EQ(differences[0].block, 1);
  EXPECT_THAT(differences[0].text, HasSubstr("2.0 -> 3.0"));
}

TEST(ApiProgram, KindsOfNewAttributesComeFromTheSchema) {
  ProgramEditor editor(*loop());
  check(editor.declare(0, {.name = "y", .dtype = DType::kFloat32, .dims = {2, 2}}));
  const ProgramEditor::OpId op = value_of(editor.insert_op(
      0,
      {"scale",
       {{"X", {"w"}}},
       {{"Out", {"y"}}},
       {{"bias", int64_t{1}}, {"own", int64_t{1} << 40}, {"words", std::vector<std::string>{}}}},
      first_op(editor, "while")));
  EXPECT_EQ(value_of(editor.ops(0))[0], op);
  const OpData data = value_of(editor.op(op));
  EXPECT_EQ(attr_of(data, "bias").kind, AttrKind::kFloat);
  EXPECT_EQ(attr_of(data, "own").kind, AttrKind::kLong);
  EXPECT_EQ(attr_of(data, "words").kind, AttrKind::kStrings);
  check(editor.remove_attr(op, "own"));
  check(editor.remove_attr(op, "words"));
  EXPECT_THAT(verify(*editor.program()), IsEmpty());
}

TEST(ApiProgram, ValuesThatDoNotFitAreRefused) {
  ProgramEditor editor(*loop());
  const ProgramEditor::OpId scale = first_op(editor, "scale", 1);
  const Status text = editor.set_attr(scale, {"scale", std::string("two")});
  EXPECT_EQ(text.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(text.to_string(), HasSubstr("expected a value of kind float, found one of kind str"));
  EXPECT_THAT(editor.set_attr(scale, {"scale", 1e60}).to_string(), HasSubstr("a number of f32"));
  EXPECT_THAT(editor.set_attr(scale, {"n", int64_t{1} << 40, AttrKind::kInt}).to_string(),
              HasSubstr("32 bits"));
  EXPECT_EQ(
      editor.declare(0, {.name = "v", .kind = VarKind::kReader, .dtype = DType::kInt32}).code(),
      StatusCode::kInvalidArgument);
  EXPECT_EQ(editor.declare(0, {.name = "v", .dtype = DType::kInt32, .dims = {-2}}).code(),
            StatusCode::kInvalidArgument);
  EXPECT_FALSE(editor.insert_op(0, {"scale", {}, {}, {{"scale", std::string("two")}}}).ok());
  EXPECT_EQ(program_bytes(*editor.program()), program_bytes(*loop()));
}

TEST(ApiProgram, EveryKindOfAttributeComesBack) {
  ProgramEditor editor;
  const std::vector<AttrData> attrs = {
      {"bool", true, AttrKind::kBool},
      {"int", int64_t{-7}, AttrKind::kInt},
      {"long", int64_t{1} << 40, AttrKind::kLong},
      {"block", int64_t{0}, AttrKind::kBlock},
      {"float", 0.5, AttrKind::kFloat},
      {"float64", 1e60, AttrKind::kFloat64},
      {"string", std::string("a\0b", 3), AttrKind::kString},
      {"var", std::string("w"), AttrKind::kVar},
      {"bools", std::vector<bool>{true, false}, AttrKind::kBools},
      {"ints", std::vector<int64_t>{1, -2}, AttrKind::kInts},
      {"blocks", std::vector<int64_t>{0}, AttrKind::kBlocks},
      {"longs", std::vector<int64_t>{int64_t{1} << 40}, AttrKind::kLongs},
      {"floats", std::vector<double>{0.5, 2}, AttrKind::kFloats},
      {"float64s", std::vector<double>{1e60}, AttrKind::kFloat64s},
      {"strings", std::vector<std::string>{"a", ""}, AttrKind::kStrings},
      {"vars", std::vector<std::string>{"w"}, AttrKind::kVars},
      {"scalar", std::vector<ScalarData>{std::complex<double>(1, 2)}, AttrKind::kScalar},
      {"scalars", std::vector<ScalarData>{true, int64_t{3}, 0.5}, AttrKind::kScalars}};
  const ProgramEditor::OpId op = value_of(editor.insert_op(0, {"own_op", {}, {}, attrs}));
  const ProgramPtr read = value_of(parse_program_bytes(program_bytes(*editor.program()), "own"));
  for (const OpData& data : {value_of(editor.op(op)), value_of(ProgramEditor(*read).op(0))}) {
    ASSERT_EQ(data.attrs.size(), attrs.size());
    for (size_t i = 0; i < attrs.size(); ++i) {
      EXPECT_EQ(data.attrs[i].kind, attrs[i].kind) << attrs[i].name;
      EXPECT_EQ(data.attrs[i].value, attrs[i].value) << attrs[i].name;
    }
  }
}

TEST(ApiProgram, ErasedOpsAreGone) {
  ProgramEditor editor(*loop());
  const ProgramEditor::OpId scale = first_op(editor, "scale", 1);
  check(editor.erase_op(scale));
  EXPECT_EQ(editor.op(scale).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(editor.erase_op(scale).code(), StatusCode::kNotFound);
  EXPECT_THAT(value_of(editor.ops(1)), IsEmpty());
  EXPECT_EQ(editor.insert_op(1, {"scale", {}, {}, {}}, first_op(editor, "while")).status().code(),
            StatusCode::kNotFound)
      << "the op is in another block";
}

TEST(ApiProgram, RenamingReachesTheBlocksInside) {
  ProgramEditor editor(*loop());
  check(editor.rename_var(0, "w", "weight"));
  EXPECT_THAT(value_of(editor.op(first_op(editor, "scale", 1))).inputs[0].vars,
              ElementsAre("weight"));
  EXPECT_TRUE(editor.var(1, "weight").ok());
  EXPECT_EQ(editor.rename_var(0, "weight", "local").code(), StatusCode::kInvalidArgument)
      << "block 1 has a var of that name";
  EXPECT_EQ(editor.rename_var(0, "w", "v").code(), StatusCode::kNotFound);
}

TEST(ApiProgram, DeclarationsKeepWhatIsNotStated) {
  ProgramEditor editor(*loop());
  VarData w = value_of(editor.var(0, "w"));
  w.dims = {-1, 2};
  check(editor.declare(0, w));
  EXPECT_THAT(value_of(editor.var(0, "w")).dims, ElementsAre(-1, 2));
  EXPECT_TRUE(value_of(editor.var(0, "w")).persistable);
  check(editor.erase_var(0, "w"));
  const std::vector<ProblemFound> problems = verify(*editor.program());
  ASSERT_THAT(problems, Not(IsEmpty()));
  EXPECT_EQ(problems[0].rule, "undeclared-var");
  EXPECT_TRUE(problems[0].is_error);
}

TEST(ApiProgram, BlocksCanBeAdded) {
  ProgramEditor editor;
  EXPECT_EQ(value_of(editor.add_block(0)), 1);
  EXPECT_EQ(editor.add_block(7).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(value_of(ProgramEditor(*editor.program()).parent(1)), 0);
}

TEST(ApiProgram, PassesWorkOnCopies) {
  const SmallNet net(/*dropout=*/false, /*trains=*/false);
  const PassesResult result = value_of(run_passes(
      net.net.main(), "remove-dead-ops{keep=[" + net.guess.name() + "]}", &net.net.startup()));
  EXPECT_LT(value_of(ProgramEditor(*result.program).ops(0)).size(),
            value_of(ProgramEditor(net.net.main()).ops(0)).size());
  EXPECT_NE(result.startup, nullptr);
  EXPECT_EQ(run_passes(net.net.main(), "no-such-pass").status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_THAT(pass_names(), Contains("remove-dead-ops"));
  EXPECT_THAT(op_types(), Contains("conv2d"));
}

TEST(ApiProgram, Views) {
  const ProgramPtr program = loop();
  EXPECT_THAT(view_program(*program, ProgramView::kSummary, "loop"), HasSubstr("while"));
  EXPECT_THAT(view_program(*program, ProgramView::kHtml, "loop"), HasSubstr("<html"));
  EXPECT_THAT(view_program(*program, ProgramView::kJson), HasSubstr("millrace.program"));
  EXPECT_THAT(view_program(*program, ProgramView::kDot), HasSubstr("digraph"));
  EXPECT_THAT(view_program(*program, ProgramView::kSvg), HasSubstr("<svg"));
}

}  // namespace
}  // namespace millrace::api
