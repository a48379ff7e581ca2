#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <llvm/ADT/STLExtras.h>

#include "framework/diff/diff.h"
#include "framework/op_attrs.h"
#include "framework/read_program.h"
#include "ops/backward/append_backward.h"
#include "ops/minimize/error_clip.h"
#include "ops/verify.h"

namespace millrace::ops {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class BackwardTest : public ::testing::Test {
 protected:
  BackwardTest() {
    Block& block = program_->root();
    for (const char* const name : {"x", "a", "b", "c"})
      block.declare(name, VarSpec::tensor(DType::kFloat32, {-1, 4}));
    block.declare("loss", VarSpec::tensor(DType::kFloat32, {}));
    VarSpec w = VarSpec::tensor(DType::kFloat32, {4, 4});
    w.persistable = true;
    w.is_parameter = true;
    block.declare("w", w);
    stop("x");
  }

  void stop(const char* name) {
    VarSpec spec = program_->root().find_var(name)->spec();
    spec.stop_gradient = true;
    program_->root().find_var(name)->set_spec(spec);
  }

  Op& op(const char* type, std::vector<std::pair<const char*, const char*>> inputs,
         const char* out) {
    Op& made = program_->root().append_op(type);
    for (const auto& [slot, name] : inputs) made.set_input(slot, name);
    made.set_output("Out", out);
    return made;
  }

  std::vector<ParamGrad> backward(BackwardRequest request = {}) {
    if (request.loss.empty()) request.loss = "loss";
    StatusOr<std::vector<ParamGrad>> pairs = append_backward(*registry_, *program_, request);
    EXPECT_TRUE(pairs.ok()) << pairs.status().to_string();
    if (!pairs.ok()) return {};
    const Status status = check_program(*registry_, *program_);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return *pairs;
  }

  std::vector<std::string> op_types() const {
    std::vector<std::string> types;
    for (const Op& o : program_->root().ops()) types.push_back(o.type().str());
    return types;
  }

  std::unique_ptr<OpRegistry> registry_ = standard_registry();
  std::unique_ptr<Program> program_ = Program::create();
};

TEST_F(BackwardTest, GoesBackFromTheLossToParameters) {
  op("mul", {{"X", "x"}, {"Y", "w"}}, "a");
  op("tanh", {{"X", "a"}}, "b");
  op("mean", {{"X", "b"}}, "loss");
  EXPECT_THAT(backward(), ElementsAre(ParamGrad{"w", "w@GRAD"}));
  EXPECT_THAT(op_types(), ElementsAre("mul", "tanh", "mean", "fill_constant", "mean_grad",
                                      "tanh_grad", "mul_grad"));
  const Op& last = program_->root().back();
  EXPECT_EQ(last.find_attr("op_role_var")->strings(), (llvm::ArrayRef<std::string>{"w", "w@GRAD"}));
  EXPECT_TRUE(last.output("X@GRAD").empty()) << "x takes no gradient";
  EXPECT_EQ(program_->root().find_var("w@GRAD")->dims(), (llvm::ArrayRef<int64_t>{4, 4}));
}

TEST_F(BackwardTest, TheGradientOfTheLossHasTheDimsOfTheLoss) {
  program_->root().declare("loss", VarSpec::tensor(DType::kFloat32, {1, 1}));
  op("reduce_mean", {{"X", "w"}}, "loss").set_bool("keep_dim", true).set_bool("reduce_all", true);
  backward();
  for (const Op& made : program_->root().ops()) {
    if (made.type() != "fill_constant") continue;
    EXPECT_EQ(made.first_output("Out"), "loss@GRAD");
    EXPECT_THAT(get_attr_or<std::vector<int64_t>>(made, "shape", {}), ElementsAre(1, 1));
    EXPECT_EQ(get_attr_or<float>(made, "value", 0), 1.0F);
  }
}

TEST_F(BackwardTest, SumsTheGradientsOfAVarThatIsReadTwice) {
  op("mul", {{"X", "x"}, {"Y", "w"}}, "a");
  op("elementwise_mul", {{"X", "a"}, {"Y", "a"}}, "b");
  op("mean", {{"X", "b"}}, "loss");
  backward();
  const Op* sum = nullptr;
  for (const Op& o : program_->root().ops())
    if (o.type() == "sum") sum = &o;
  ASSERT_NE(sum, nullptr);
  EXPECT_THAT(sum->input("X"), ElementsAre("a@GRAD@RENAME@block0@0", "a@GRAD@RENAME@block0@1"));
  EXPECT_EQ(sum->first_output("Out"), "a@GRAD");
}

TEST_F(BackwardTest, SumsBeforeAReaderThatGoesLater) {
  program_->root().declare("u", VarSpec::tensor(DType::kFloat32, {-1, 4}));
  program_->root().declare("v", VarSpec::tensor(DType::kFloat32, {-1, 4}));
  op("mul", {{"X", "x"}, {"Y", "w"}}, "b");
  op("tanh", {{"X", "c"}}, "a");
  op("elementwise_add", {{"X", "a"}, {"Y", "a"}}, "u");
  op("elementwise_add", {{"X", "u"}, {"Y", "b"}}, "v");
  op("mean", {{"X", "v"}}, "loss");
  BackwardRequest request;
  request.no_grad = {"c"};
  backward(request);
  const std::vector<std::string> types = op_types();
  EXPECT_THAT(std::vector<std::string>(types.begin() + 5, types.end()),
              ElementsAre("fill_constant", "mean_grad", "elementwise_add_grad",
                          "elementwise_add_grad", "sum", "mul_grad"));
}

TEST_F(BackwardTest, LeavesOutWhatNoGradientFlowsThrough) {
  op("mul", {{"X", "x"}, {"Y", "w"}}, "a");
  op("tanh", {{"X", "a"}}, "b");
  op("mean", {{"X", "b"}}, "loss");
  BackwardRequest request;
  request.no_grad = {"b"};
  EXPECT_TRUE(backward(request).empty());
  EXPECT_THAT(op_types(), ElementsAre("mul", "tanh", "mean", "fill_constant"));
}

TEST_F(BackwardTest, ClipsTheWholeGradientOfAVar) {
  op("mul", {{"X", "x"}, {"Y", "w"}}, "a");
  op("tanh", {{"X", "a"}}, "b");
  op("mean", {{"X", "b"}}, "loss");
  BackwardRequest request;
  request.after_append = clip_errors({{"a", {-1, 2}}});
  backward(request);
  EXPECT_THAT(op_types(), ElementsAre("mul", "tanh", "mean", "fill_constant", "mean_grad",
                                      "tanh_grad", "clip", "mul_grad"));
}

TEST_F(BackwardTest, ReadsTheValueThatALaterOpOverwrites) {
  op("mul", {{"X", "x"}, {"Y", "w"}}, "a");
  op("tanh", {{"X", "a"}}, "b");
  op("mean", {{"X", "b"}}, "loss");
  op("scale", {{"X", "x"}}, "b");
  std::vector<Status> warnings;
  BackwardRequest request;
  request.warnings = &warnings;
  backward(request);
  EXPECT_TRUE(warnings.empty());
  const Op* tanh_grad = nullptr;
  for (const Op& o : program_->root().ops())
    if (o.type() == "tanh_grad") tanh_grad = &o;
  ASSERT_NE(tanh_grad, nullptr);
  EXPECT_EQ(tanh_grad->first_input("Out"), "b@VERSION@0");
}

// A var that is incremented in place keeps its name.
TEST_F(BackwardTest, SaysThatAValueIsOverwrittenBeforeItsGradientRuns) {
  for (const char* const name : {"a", "b"})
    program_->root().declare(name, VarSpec::tensor(DType::kFloat32, {1}));
  op("mean", {{"X", "w"}}, "a");
  op("tanh", {{"X", "a"}}, "b");
  op("mean", {{"X", "b"}}, "loss");
  op("increment", {{"X", "b"}}, "b");
  std::vector<Status> warnings;
  BackwardRequest request;
  request.warnings = &warnings;
  backward(request);
  ASSERT_EQ(warnings.size(), 2U) << "of mean, which reads its dims alone, and of tanh";
  EXPECT_EQ(warnings[1].location().op_type, "tanh");
  EXPECT_THAT(warnings[1].message(),
              HasSubstr("reads 'b', which op 3 (increment) has overwritten by then"));
}

TEST_F(BackwardTest, IdsThatAreOverwrittenAreCopiedForTheirGradient) {
  program_->root().declare("ids", VarSpec::tensor(DType::kInt64, {4, 1}));
  program_->root().declare("rows", VarSpec::tensor(DType::kFloat32, {4, 4}));
  op("lookup_table", {{"W", "w"}, {"Ids", "ids"}}, "rows");
  op("mean", {{"X", "rows"}}, "loss");
  op("scale", {{"X", "ids"}}, "ids");
  std::vector<Status> warnings;
  BackwardRequest request;
  request.warnings = &warnings;
  backward(request);
  EXPECT_TRUE(warnings.empty());
  std::vector<std::string> reads;  // of ids, and of copies
  for (const Op& op : program_->root().ops())
    for (const llvm::StringRef name : op.input_names())
      if (name.startswith("ids")) reads.push_back(op.type().str() + " " + name.str());
  EXPECT_THAT(reads, ElementsAre("lookup_table ids", "assign ids", "scale ids",
                                 "lookup_table_grad ids@VERSION@0"));
}

class OverwrittenFloatTest : public BackwardTest, public ::testing::WithParamInterface<DType> {};

TEST_P(OverwrittenFloatTest, KeepsItsFirstValueInEveryWidth) {
  for (const char* const name : {"x", "a", "b", "w", "loss"}) {
    VarSpec spec = program_->root().find_var(name)->spec();
    spec.dtype = GetParam();
    program_->root().find_var(name)->set_spec(spec);
  }
  op("mul", {{"X", "x"}, {"Y", "w"}}, "a");
  op("tanh", {{"X", "a"}}, "b");
  op("mean", {{"X", "b"}}, "loss");
  op("scale", {{"X", "x"}}, "b");
  std::vector<Status> warnings;
  BackwardRequest request;
  request.warnings = &warnings;
  backward(request);
  EXPECT_TRUE(warnings.empty());
  EXPECT_TRUE(llvm::any_of(program_->root().ops(), [](const Op& o) {
    return o.type() == "tanh_grad" && o.first_input("Out") == "b@VERSION@0";
  }));
}

INSTANTIATE_TEST_SUITE_P(Types, OverwrittenFloatTest,
                         ::testing::Values(DType::kFloat16, DType::kBfloat16, DType::kFloat32,
                                           DType::kFloat64));

TEST_F(BackwardTest, FillsTheGradientOfAnOutputWithoutOneWithZeros) {
  for (const char* const name : {"b", "c"}) {
    VarSpec half = program_->root().find_var(name)->spec();
    half.dims = {-1, 2};
    program_->root().find_var(name)->set_spec(half);
  }
  op("mul", {{"X", "x"}, {"Y", "w"}}, "a");
  const std::vector<std::string> halves{"b", "c"};
  Op& split = program_->root().append_op("split");
  split.set_input("X", "a").set_output("Out", llvm::ArrayRef<std::string>(halves));
  split.set_int("axis", 1).set_int("num", 2);
  op("mean", {{"X", "b"}}, "loss");
  EXPECT_THAT(backward(), ElementsAre(ParamGrad{"w", "w@GRAD"}));
  EXPECT_THAT(op_types(), ElementsAre("mul", "split", "mean", "fill_constant", "mean_grad",
                                      "fill_any_like", "concat", "mul_grad"));
  for (const Op& made : program_->root().ops()) {
    if (made.type() != "fill_any_like") continue;
    EXPECT_EQ(made.first_input("X"), "c");
    EXPECT_EQ(made.first_output("Out"), "c@GRAD");
    EXPECT_EQ(get_attr_or<float>(made, "value", 1), 0.0F);
    EXPECT_EQ(get_attr_or<int32_t>(made, "dtype", 0), -1) << "that of X";
  }
}

struct LookUp {
  const char* type;
  std::optional<bool> is_sparse;
  VarKind wanted;
};

class LookUpGradientTest : public BackwardTest, public ::testing::WithParamInterface<LookUp> {};

TEST_P(LookUpGradientTest, IsOfTheKindThatItsOpSays) {
  VarSpec ids = VarSpec::tensor(DType::kInt64, {-1, 1});
  ids.stop_gradient = true;
  program_->root().declare("ids", ids);
  Op& look_up = op(GetParam().type, {{"Ids", "ids"}, {"W", "w"}}, "a");
  if (GetParam().is_sparse) look_up.set_bool("is_sparse", *GetParam().is_sparse);
  op("mean", {{"X", "a"}}, "loss");
  backward();
  const VarSpec& grad = program_->root().find_var("w@GRAD")->spec();
  EXPECT_EQ(grad.kind, GetParam().wanted);
  if (grad.kind != VarKind::kSelectedRows) return;
  EXPECT_EQ(grad.form, TensorForm::kSelectedRows);
  EXPECT_FALSE(grad.lod_level.has_value());
}

INSTANTIATE_TEST_SUITE_P(Ops, LookUpGradientTest,
                         ::testing::Values(LookUp{"lookup_table", true, VarKind::kSelectedRows},
                                           LookUp{"lookup_table", false, VarKind::kLodTensor},
                                           LookUp{"lookup_table", std::nullopt,
                                                  VarKind::kLodTensor},
                                           LookUp{"lookup_table_v2", true, VarKind::kSelectedRows},
                                           LookUp{"lookup_table_v2", false, VarKind::kLodTensor}));

TEST_F(BackwardTest, TheGradientOfAVarWithoutAShapeHasNoShape) {
  program_->root().find_var("a")->set_spec(VarSpec::shapeless(VarKind::kLodTensor));
  op("mul", {{"X", "x"}, {"Y", "w"}}, "a");
  op("square", {{"X", "a"}}, "b");
  op("mean", {{"X", "b"}}, "loss");
  backward();
  EXPECT_FALSE(program_->root().find_var("a@GRAD")->spec().has_tensor());
  EXPECT_EQ(program_->root().find_var("w@GRAD")->dims(), (llvm::ArrayRef<int64_t>{4, 4}));
}

TEST_F(BackwardTest, TheGradientOfATableWithoutAShapeIsSelectedRows) {
  VarSpec table = VarSpec::shapeless(VarKind::kLodTensor);
  table.is_parameter = true;
  table.lod_level = 0;
  program_->root().find_var("w")->set_spec(table);
  program_->root().declare("ids", VarSpec::tensor(DType::kInt64, {-1, 1}));
  op("lookup_table", {{"Ids", "ids"}, {"W", "w"}}, "a").set_bool("is_sparse", true);
  op("mean", {{"X", "a"}}, "loss");
  backward();
  EXPECT_EQ(program_->root().find_var("w@GRAD")->kind(), VarKind::kSelectedRows);
  EXPECT_EQ(program_->root().find_var("w@GRAD")->spec().form, TensorForm::kSelectedRows);
  EXPECT_FALSE(program_->root().find_var("w@GRAD")->spec().lod_level.has_value());
}

// A sum of only selected rows is selected rows as well; with a dense summand it is dense.
TEST_F(BackwardTest, SumsOfSparseGradientsAreSelectedRows) {
  for (const bool all : {true, false}) {
    program_ = Program::create();
    Block& block = program_->root();
    VarSpec ids = VarSpec::tensor(DType::kInt64, {-1, 1});
    ids.stop_gradient = true;
    block.declare("ids", ids);
    VarSpec w = VarSpec::tensor(DType::kFloat32, {4, 4});
    w.is_parameter = true;
    w.persistable = true;
    block.declare("w", w);
    for (const char* const name : {"a", "b", "c"})
      block.declare(name, VarSpec::tensor(DType::kFloat32, {-1, 4}));
    block.declare("loss", VarSpec::tensor(DType::kFloat32, {}));
    op("lookup_table", {{"Ids", "ids"}, {"W", "w"}}, "a").set_bool("is_sparse", true);
    op("lookup_table", {{"Ids", "ids"}, {"W", "w"}}, "b").set_bool("is_sparse", all);
    op("elementwise_add", {{"X", "a"}, {"Y", "b"}}, "c");
    op("mean", {{"X", "c"}}, "loss");
    backward();
    EXPECT_EQ(block.find_var("w@GRAD")->kind(), all ? VarKind::kSelectedRows : VarKind::kLodTensor);
  }
}

TEST_F(BackwardTest, ClipsTheGradientOfTheSecondLossUnderItsOwnName) {
  op("mul", {{"X", "x"}, {"Y", "w"}}, "a");
  op("tanh", {{"X", "a"}}, "b");
  op("mean", {{"X", "b"}}, "loss");
  program_->root().declare("other", VarSpec::tensor(DType::kFloat32, {}));
  op("mean", {{"X", "a"}}, "other");
  BackwardRequest request;
  request.after_append = clip_errors({{"a", {-1, 2}}});
  backward(request);
  const size_t first = op_types().size();
  request.loss = "other";
  request.earlier_calls = 1;
  ASSERT_TRUE(append_backward(*registry_, *program_, request).ok());
  std::vector<std::string> clipped;
  for (const Op* const made : program_->root().op_vector())
    if (made->type() == "clip") clipped.push_back(made->input("X").front().str());
  EXPECT_THAT(clipped, ElementsAre("a@GRAD", "grad/grad/a@GRAD"));
  EXPECT_GT(op_types().size(), first);
}

// An op of the first call may read a gradient that is absent because no op computes it. It stays
// absent, so the second call gives its gradient another name.
class TakenNameTest : public BackwardTest, public ::testing::WithParamInterface<bool> {};

TEST_P(TakenNameTest, IsLeftAlone) {
  op("mul", {{"X", "x"}, {"Y", "w"}}, "a");
  op("tanh", {{"X", "a"}}, "b");
  op("mean", {{"X", "b"}}, "loss");
  Block& root = program_->root();
  const bool is_declared = GetParam();
  if (is_declared)
    root.declare("b@GRAD", VarSpec::tensor(DType::kFloat32, {-1, 4}));
  else
    root.append_op("recurrent_grad").set_input("outputs@GRAD", "b@GRAD").set_int("op_role", 1);
  BackwardRequest request;
  request.loss = "loss";
  request.earlier_calls = 1;
  const auto pairs = append_backward(*registry_, *program_, request);
  ASSERT_TRUE(pairs.ok()) << pairs.status().to_string();
  EXPECT_THAT(*pairs, ElementsAre(ParamGrad{"w", "w@GRAD"})) << "this name was free";
  EXPECT_FALSE(root.has_writers("b@GRAD"));
  ASSERT_TRUE(root.has_writers("grad/grad/b@GRAD"));
  EXPECT_EQ(root.first_writer("grad/grad/b@GRAD")->type(), "mean_grad");
  EXPECT_EQ(root.readers_of("grad/grad/b@GRAD").front()->type(), "tanh_grad");
}

INSTANTIATE_TEST_SUITE_P(Kinds, TakenNameTest, ::testing::Bool(), [](const auto& kind) {
  return std::string(kind.param ? "Declared" : "Absent");
});

TEST_F(BackwardTest, RefusesALossThatIsNotOneElement) {
  op("tanh", {{"X", "x"}}, "a");
  BackwardRequest request;
  request.loss = "a";
  EXPECT_THAT(append_backward(*registry_, *program_, request).status().message(),
              HasSubstr("loss 'a': expected one element, found dims [-1, 4]"));
  program_->root().find_var("a")->set_spec(VarSpec::tensor(DType::kFloat32, {-1, -1}));
  EXPECT_THAT(append_backward(*registry_, *program_, request).status().message(),
              HasSubstr("found dims [-1, -1]"));
}

TEST_F(BackwardTest, RefusesALossThatNoOpWrites) {
  BackwardRequest request;
  request.loss = "loss";
  EXPECT_THAT(append_backward(*registry_, *program_, request).status().message(),
              HasSubstr("loss 'loss': expected a var of block 0 that an op writes"));
}

TEST_F(BackwardTest, RefusesABlockThatDoesNotExist) {
  op("mul", {{"X", "x"}, {"Y", "w"}}, "a");
  op("while", {{"X", "a"}, {"Condition", "c"}}, "b").set_attr("sub_block", AttrValue::of_block(7));
  op("mean", {{"X", "b"}}, "loss");
  BackwardRequest request;
  request.loss = "loss";
  const Status status = append_backward(*registry_, *program_, request).status();
  EXPECT_THAT(status.message(), HasSubstr("'sub_block' is 7, expected a block after 0, of 1"));
  EXPECT_EQ(status.location().op_type, "while");
}

// Programs of the original: a parameter used four times, a loop over an array, two losses.
struct Reference {
  const char* name;
  std::vector<std::string> losses;
  std::vector<std::vector<std::string>> parameters;
};

class BackwardReferenceTest : public ::testing::TestWithParam<Reference> {};

TEST_P(BackwardReferenceTest, IsMet) {
  const std::string base = std::string("tests/data/backward/") + GetParam().name;
  const auto registry = standard_registry();
  auto program = read_program(base + ".forward.pb", {});
  const auto wanted = read_program(base + ".backward.pb", {});
  ASSERT_TRUE(program.ok() && wanted.ok());
  for (size_t i = 0; i < GetParam().losses.size(); ++i) {
    BackwardRequest request;
    request.loss = GetParam().losses[i];
    request.parameters = GetParam().parameters[i];
    request.earlier_calls = static_cast<int>(i);
    const auto pairs = append_backward(*registry, **program, request);
    ASSERT_TRUE(pairs.ok()) << pairs.status().to_string();
  }
  for (const Difference& difference : diff_programs(**wanted, **program, {}))
    ADD_FAILURE() << difference.to_string();
}

INSTANTIATE_TEST_SUITE_P(
    Programs, BackwardReferenceTest,
    ::testing::Values(Reference{"reused", {"mean_0.tmp_0"}, {{"tied.w_0", "fc_0.w_0", "fc_0.b_0"}}},
                      Reference{"while",
                                {"mean_0.tmp_0"},
                                {{"boot.w_0", "boot.b_0", "cell.w_0", "cell.b_0", "fc_0.w_0",
                                  "fc_0.b_0"}}},
                      Reference{"two",
                                {"mean_0.tmp_0", "mean_1.tmp_0"},
                                {{"trunk.w_0", "trunk.b_0", "cls.w_0", "cls.b_0"},
                                 {"trunk.w_0", "reg.w_0", "reg.b_0"}}}),
    [](const auto& reference) { return std::string(reference.param.name); });

// Programs of the original with loops and branches, whose gradients equal central differences
// (tests/executor/gradients). Names in lists come from sets there.
class ControlFlowReferenceTest : public ::testing::TestWithParam<const char*> {};

// Lists of names in ops with blocks, sorted.
std::unique_ptr<Program> with_sorted_lists(std::unique_ptr<Program> program) {
  for (Block& block : program->blocks()) {
    for (Op& op : block.ops()) {
      if (op.type() != "while_grad") continue;
      auto names = op.input("Out@GRAD");
      llvm::sort(names);
      op.set_input("Out@GRAD", llvm::ArrayRef<llvm::StringRef>(names));
      op.set_strings("original_output_grad", {names.begin(), names.end()});
    }
  }
  return program;
}

TEST_P(ControlFlowReferenceTest, IsMet) {
  const std::string base = std::string("tests/data/backward/control_flow/") + GetParam();
  const auto registry = standard_registry();
  auto program = read_program(base + ".forward.pb", {});
  auto wanted = read_program(base + ".backward.pb", {});
  ASSERT_TRUE(program.ok() && wanted.ok());
  BackwardRequest request;
  request.loss = (*program)->root().back().output_names().front().str();
  const auto pairs = append_backward(*registry, **program, request);
  ASSERT_TRUE(pairs.ok()) << pairs.status().to_string();
  const Status status = check_program(*registry, **program);
  EXPECT_TRUE(status.ok()) << status.to_string();
  for (const Block& block : (*program)->blocks()) {
    for (const Op& op : block.ops()) {
      if (op.type() != "while_grad") continue;
      EXPECT_TRUE(llvm::is_sorted(op.input("Out@GRAD")));
    }
  }
  const auto made = with_sorted_lists(*std::move(program));
  const auto reference = with_sorted_lists(*std::move(wanted));
  DiffOptions options;
  // of several parameters of one op, in their order of creation in the original
  options.ignore_attrs = {"op_role_var"};
  for (const Difference& difference : diff_programs(*reference, *made, options))
    ADD_FAILURE() << difference.to_string();
}

INSTANTIATE_TEST_SUITE_P(Programs, ControlFlowReferenceTest,
                         ::testing::Values("read_twice", "nested_loops", "inner_reads_outer_memory",
                                           "cond_in_loop", "cond_reads_memory", "never_fetched",
                                           "recurrent_last_state", "recurrent_state_unused",
                                           "cond_unused_output", "nested_cond", "loop_in_cond",
                                           "loop_only_inside_written"),
                         [](const auto& net) { return std::string(net.param); });

}  // namespace
}  // namespace millrace::ops
