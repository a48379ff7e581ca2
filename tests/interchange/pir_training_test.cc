// Training and startup programs as PIR programs: what is stored, what is updated in place, what is
// left in the scope.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "framework/tensor/tensor.h"
#include "interchange/pir/export.h"
#include "tests/support/program_builder.h"

namespace millrace::interchange {
namespace {

using millrace::testing::ProgramBuilder;
using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Json ops_in(const PirModel& model) {
  return Json::parse(model.program)["program"]["regions"][0]["blocks"][0]["ops"];
}

std::vector<std::string> kinds_in(const PirModel& model) {
  std::vector<std::string> kinds;
  for (const Json& op : ops_in(model)) kinds.push_back(op["#"]);
  return kinds;
}

const Json& only_op(const Json& ops, const std::string& kind) {
  static const Json kNone;
  for (const Json& op : ops)
    if (op["#"] == kind) return op;
  ADD_FAILURE() << "no op " << kind;
  return kNone;
}

PirModel exported(ProgramBuilder& program, const PirOptions& options = {},
                  const io::ParamValues& params = {}) {
  const auto made = export_pir(program.program(), params, options);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return made.ok() ? *made : PirModel{};
}

// w -= rate * g, where g is fed.
ProgramBuilder descent(const std::string& out = "w") {
  ProgramBuilder program;
  program.param("w", {2, 1}).param("rate", {1}).var("g", {2, 1});
  if (out != "w") program.var(out, {2, 1});
  program.op("sgd", {{"Param", {"w"}}, {"Grad", {"g"}}, {"LearningRate", {"rate"}}},
             {{"ParamOut", {out}}});
  return program;
}

TEST(PirTraining, AnUpdateIsInPlace) {
  ProgramBuilder program = descent();
  const PirModel model = exported(program);
  EXPECT_THAT(kinds_in(model), ElementsAre("p", "p", "1.data", "1.sgd_"));
  const Json ops = ops_in(model);
  EXPECT_EQ(only_op(ops, "1.sgd_")["I"][0]["%"], ops[0]["O"]["%"]);
  EXPECT_THAT(model.parameters, ElementsAre());  // a startup program sets them
}

// The parameter keeps its value if the result of the update is another var.
TEST(PirTraining, AnUpdateOfAnotherVarWorksOnACopy) {
  ProgramBuilder program = descent("other");
  const PirModel model = exported(program);
  EXPECT_THAT(kinds_in(model), ElementsAre("p", "p", "1.data", "1.assign", "1.sgd_", "1.fetch"));
  const Json ops = ops_in(model);
  EXPECT_EQ(only_op(ops, "1.sgd_")["I"][0]["%"], only_op(ops, "1.assign")["O"][0]["%"]);
}

TEST(PirTraining, ParametersAreAllStoredOrNone) {
  io::ParamValues params;
  ASSERT_TRUE(params["w"].as<Tensor>().resize(DType::kFloat32, {2, 1}).ok());
  ProgramBuilder program = descent();
  const auto partial = export_pir(program.program(), params);
  ASSERT_FALSE(partial.ok());
  EXPECT_EQ(partial.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(partial.status().to_string(), HasSubstr("the parameter 'rate' has no value"));
  ASSERT_TRUE(params["rate"].as<Tensor>().resize(DType::kFloat32, {1}).ok());
  EXPECT_THAT(exported(program, {}, params).parameters, ElementsAre("rate", "w"));
}

// A persistable var that an op sets by value gets it in its memory.
TEST(PirTraining, NewValuesOfStoredVarsAreWrittenBack) {
  ProgramBuilder program;
  program.param("counter", {1}).var("before", {1});
  program.op("assign", {{"X", {"counter"}}}, {{"Out", {"before"}}});
  program.op("increment", {{"X", {"counter"}}}, {{"Out", {"counter"}}}).set_float("step", 1.0F);
  const PirModel model = exported(program, {.input_dims = {}, .fetches = {"before"}});
  EXPECT_THAT(kinds_in(model),
              ElementsAre("p", "1.assign", "1.increment", "1.assign_out_", "1.fetch"));
  const Json ops = ops_in(model);
  EXPECT_EQ(ops[3]["I"][1]["%"], ops[0]["O"]["%"]);
  EXPECT_EQ(ops[4]["I"][0]["%"], ops[1]["O"][0]["%"]);
}

TEST(PirTraining, AStartupProgramLeavesItsVars) {
  ProgramBuilder program;
  program.param("w", {2, 1});
  Op& fill = program.op("fill_constant", {}, {{"Out", {"w"}}});
  fill.set_float("value", 0.5F);
  fill.set_attr("shape", AttrValue::of_longs({2, 1}));
  fill.set_int("dtype", 5);
  const PirModel model = exported(program);
  EXPECT_THAT(kinds_in(model), ElementsAre("1.full", "1.assign", "0.shadow_output"));
  const Json ops = ops_in(model);
  EXPECT_EQ(ops[1]["OA"][0]["N"], "persistable");
  EXPECT_EQ(ops[2]["A"][0]["AT"]["D"], "w");
}

// Gradients that nothing needs have no type; the smaller operand gets its extents back.
TEST(PirTraining, GradientsOfAlignedOperands) {
  ProgramBuilder program;
  program.var("x", {4, 2, 3}).var("y", {2}).var("dy", {2}).var("dout", {4, 2, 3});
  program
      .op("elementwise_add_grad", {{"X", {"x"}}, {"Y", {"y"}}, {"Out@GRAD", {"dout"}}},
          {{"X@GRAD", {"@EMPTY@"}}, {"Y@GRAD", {"dy"}}})
      .set_int("axis", 1);
  const Json ops = ops_in(exported(program));
  const Json& gradient = only_op(ops, "1.add_grad");
  EXPECT_EQ(gradient["O"][0]["TT"]["#"], "NULL");
  EXPECT_EQ(gradient["O"][1]["TT"]["D"][1], Json::parse("[2,1]"));
  EXPECT_EQ(only_op(ops, "1.squeeze")["O"][0]["TT"]["D"][1], Json::parse("[2]"));
}

// Without fetch ops, the losses are returned, as the roles of their ops say.
TEST(PirTraining, LossesAreReturned) {
  ProgramBuilder program;
  program.var("x", {4, 1}).var("loss", {1}).var("unread", {4, 1});
  program.op("mean", {{"X", {"x"}}}, {{"Out", {"loss"}}}).set_int("op_role", 0x100);
  program.op("relu", {{"X", {"x"}}}, {{"Out", {"unread"}}});
  const auto fetched = [&](const PirOptions& options) {
    return only_op(ops_in(exported(program, options)), "1.fetch")["A"][0]["AT"]["D"];
  };
  EXPECT_EQ(fetched({}), "loss");
  EXPECT_EQ(fetched({.input_dims = {}, .fetches = {"unread"}}), "unread");
  const auto absent = export_pir(program.program(), {}, {.input_dims = {}, .fetches = {"z"}});
  ASSERT_FALSE(absent.ok());
  EXPECT_THAT(absent.status().to_string(), HasSubstr("the fetched var 'z' has no value"));
}

TEST(PirTraining, InputDimsOfVarsWithoutFeedOps) {
  ProgramBuilder program;
  program.var("x", {-1, 2}).var("y", {-1, 2});
  program.op("relu", {{"X", {"x"}}}, {{"Out", {"y"}}});
  const PirModel model = exported(program, {.input_dims = {{"x", {3, 2}}}, .fetches = {}});
  EXPECT_EQ(only_op(ops_in(model), "1.data")["O"][0]["TT"]["D"][1], Json::parse("[3,2]"));
  const auto error = [&](const std::string& name, const Dims& dims) {
    const auto made =
        export_pir(program.program(), {}, {.input_dims = {{name, dims}}, .fetches = {}});
    EXPECT_FALSE(made.ok());
    return made.ok() ? "" : made.status().to_string();
  };
  EXPECT_THAT(error("x", {3}), HasSubstr("dims of the input 'x': expected 2 of them, found 1"));
  EXPECT_THAT(error("y", {3, 2}), HasSubstr("dims of 'y', which is no input of the program"));
}

// The update of rows by adam reads which rows there are.
TEST(PirTraining, AdamOfGradientsOfRowsIsRefused) {
  ProgramBuilder program;
  program.param("w", {4, 2}).param("rate", {1}).param("m1", {4, 2}).param("m2", {4, 2});
  program.param("p1", {1}).param("p2", {1}).var("ids", {3, 1}, DType::kInt64).var("dout", {3, 2});
  VarSpec rows = VarSpec::tensor(DType::kFloat32, {4, 2});
  rows.kind = VarKind::kSelectedRows;
  rows.form = TensorForm::kSelectedRows;
  program.block().declare("dw", std::move(rows));
  Op& lookup =
      program.op("lookup_table_grad", {{"W", {"w"}}, {"Ids", {"ids"}}, {"Out@GRAD", {"dout"}}},
                 {{"W@GRAD", {"dw"}}});
  lookup.set_bool("is_sparse", true);
  program.op("adam",
             {{"Param", {"w"}},
              {"Grad", {"dw"}},
              {"LearningRate", {"rate"}},
              {"Moment1", {"m1"}},
              {"Moment2", {"m2"}},
              {"Beta1Pow", {"p1"}},
              {"Beta2Pow", {"p2"}}},
             {{"ParamOut", {"w"}},
              {"Moment1Out", {"m1"}},
              {"Moment2Out", {"m2"}},
              {"Beta1PowOut", {"p1"}},
              {"Beta2PowOut", {"p2"}}});
  const auto made = export_pir(program.program(), {});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(made.status().to_string(),
              HasSubstr("'dw' is a var of kind selected_rows, expected a dense tensor"));
}

// A bias would be added to all rows of a dense gradient, not only to those of the gradient.
TEST(PirTraining, ABiasOfRowsIsRefused) {
  ProgramBuilder program;
  program.param("w", {4, 2}).var("ids", {3, 1}, DType::kInt64).var("dout", {3, 2});
  for (const char* name : {"dw", "scaled"}) {
    VarSpec rows = VarSpec::tensor(DType::kFloat32, {4, 2});
    rows.kind = VarKind::kSelectedRows;
    rows.form = TensorForm::kSelectedRows;
    program.block().declare(name, std::move(rows));
  }
  program
      .op("lookup_table_grad", {{"W", {"w"}}, {"Ids", {"ids"}}, {"Out@GRAD", {"dout"}}},
          {{"W@GRAD", {"dw"}}})
      .set_bool("is_sparse", true);
  Op& scale = program.op("scale", {{"X", {"dw"}}}, {{"Out", {"scaled"}}});
  scale.set_float("scale", 2.0F);
  EXPECT_EQ(only_op(ops_in(exported(program)), "1.embedding_grad")["A"][0]["AT"]["D"], -1);
  scale.set_float("bias", 1.0F);
  EXPECT_FALSE(export_pir(program.program(), {}).ok());
}

}  // namespace
}  // namespace millrace::interchange
