// Clips, decays, states and branches of ops/minimize, on a net with two parameters.

#include <map>
#include <memory>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/op_attrs.h"
#include "ops/minimize/branch.h"
#include "ops/minimize/minimize.h"
#include "ops/minimize/schedule.h"

namespace millrace::ops {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class MinimizePartsTest : public ::testing::Test {
 protected:
  void declare(const char* name, DType dtype, std::vector<int64_t> dims, bool parameter) {
    VarSpec spec = VarSpec::tensor(dtype, dims);
    if (parameter) {
      spec.is_parameter = true;
      spec.persistable = true;
      startup_->root().declare(name, spec);
    }
    main_->root().declare(name, spec);
  }

  Op& op(const char* type, const char* x, const char* y, const char* out) {
    Op& made = main_->root().append_op(type);
    made.set_input("X", x).set_output("Out", out);
    if (y != nullptr) made.set_input("Y", y);
    return made;
  }

  // loss = mean(x * v + x * w)
  void two_parameters(DType v, DType w) {
    declare("x", DType::kFloat32, {-1, 4}, false);
    declare("v", v, {4, 1}, true);
    declare("w", w, {4, 1}, true);
    for (const char* const name : {"xv", "xw", "y"}) declare(name, DType::kFloat32, {-1, 1}, false);
    declare("loss", DType::kFloat32, {}, false);
    op("mul", "x", "v", "xv");
    op("mul", "x", "w", "xw");
    op("elementwise_add", "xv", "xw", "y");
    op("mean", "y", nullptr, "loss");
  }

  // loss = mean(rows of w)
  void sparse_parameter() {
    declare("ids", DType::kInt64, {-1, 1}, false);
    declare("w", DType::kFloat32, {8, 4}, true);
    declare("y", DType::kFloat32, {-1, 4}, false);
    declare("loss", DType::kFloat32, {}, false);
    main_->root()
        .append_op("lookup_table")
        .set_input("Ids", "ids")
        .set_input("W", "w")
        .set_output("Out", "y")
        .set_bool("is_sparse", true);
    op("mean", "y", nullptr, "loss");
  }

  Status run(const MinimizeOptions& options) {
    Builder builder(*registry_, *main_, *startup_);
    return minimize(builder, "loss", options).status();
  }

  // Types of the ops below a scope: sums with their number of inputs, casts with their types.
  std::vector<std::string> types_in(llvm::StringRef scope) const {
    std::vector<std::string> found;
    for (const Op& o : main_->root().ops()) {
      if (!llvm::StringRef(get_attr_or<std::string>(o, "op_namescope", "")).contains(scope))
        continue;
      found.push_back(o.type().str());
      if (o.type() == "sum") found.back() += fmt::format(" {}", o.input("X").size());
      if (o.type() == "cast") {
        found.back() += fmt::format(" {} {}", get_attr_or<int32_t>(o, "in_dtype", 0),
                                    get_attr_or<int32_t>(o, "out_dtype", 0));
      }
    }
    return found;
  }

  const Op* find(llvm::StringRef type) const {
    for (const Op& o : main_->root().ops())
      if (o.type() == type) return &o;
    return nullptr;
  }

  const Var& var(llvm::StringRef name) const { return *main_->root().find_var(name); }

  std::unique_ptr<OpRegistry> registry_ = standard_registry();
  std::unique_ptr<Program> main_ = Program::create();
  std::unique_ptr<Program> startup_ = Program::create();
};

// ---- clips

TEST_F(MinimizePartsTest, TheGlobalNormIsDoubleAsSoonAsOneGradientIs) {
  two_parameters(DType::kFloat64, DType::kFloat32);
  ASSERT_TRUE(run({.clip = ClipByGlobalNorm{1.0}}).ok());
  EXPECT_THAT(types_in("gradient_clip"),
              ElementsAre("squared_l2_norm", "squared_l2_norm", "sum 1", "cast 5 6", "sum 1",
                          "sum 2", "sqrt", "fill_constant", "elementwise_max", "elementwise_div",
                          "elementwise_mul", "elementwise_mul"));
  EXPECT_EQ(var(find("sqrt")->first_output("Out")).dtype(), DType::kFloat64);
}

TEST_F(MinimizePartsTest, TheGlobalNormKnowsBothHalfTypes) {
  two_parameters(DType::kBfloat16, DType::kFloat32);
  ASSERT_TRUE(run({.clip = ClipByGlobalNorm{1.0}}).ok());
  EXPECT_THAT(types_in("gradient_clip"),
              ElementsAre("squared_l2_norm", "squared_l2_norm", "sum 1", "cast 22 5", "sum 1",
                          "sum 2", "sqrt", "fill_constant", "elementwise_max", "elementwise_div",
                          "cast 5 22", "elementwise_mul", "elementwise_mul"));
}

TEST_F(MinimizePartsTest, TheGlobalNormRefusesTwoHalfTypes) {
  two_parameters(DType::kBfloat16, DType::kFloat16);
  EXPECT_THAT(run({.clip = ClipByGlobalNorm{1.0}}).message(),
              HasSubstr("clip by global norm: gradient 'w@GRAD' of type f16 mixed with "
                        "type bf16"));
}

TEST_F(MinimizePartsTest, TheGlobalNormOfNothingIsNotComputed) {
  two_parameters(DType::kFloat32, DType::kFloat32);
  MinimizeOptions options{.clip = ClipByGlobalNorm{1.0}};
  for (const char* const name : {"v", "w"}) options.parameter_options[name].need_clip = false;
  ASSERT_TRUE(run(options).ok());
  EXPECT_THAT(types_in("gradient_clip"), IsEmpty());
}

// The original's loop variable over the pairs is still defined after the loop.
TEST_F(MinimizePartsTest, SharedOpsOfTheGlobalNormNameTheLastPairEvenIfItIsNotClipped) {
  two_parameters(DType::kFloat32, DType::kFloat32);
  MinimizeOptions options{.clip = ClipByGlobalNorm{1.0}};
  options.parameter_options["w"].need_clip = false;
  ASSERT_TRUE(run(options).ok());
  EXPECT_THAT(types_in("gradient_clip"),
              ElementsAre("squared_l2_norm", "sum 1", "sqrt", "fill_constant", "elementwise_max",
                          "elementwise_div", "elementwise_mul"));
  EXPECT_EQ(find("sqrt")->find_attr("op_role_var")->strings(),
            (llvm::ArrayRef<std::string>{"w", "w@GRAD"}));
}

TEST_F(MinimizePartsTest, AGroupOfOwnClipsHasOneNorm) {
  two_parameters(DType::kFloat32, DType::kFloat32);
  MinimizeOptions options;
  for (const char* const name : {"v", "w"})
    options.parameter_options[name].clip = ClipByGlobalNorm{1.0, "group"};
  ASSERT_TRUE(run(options).ok());
  EXPECT_THAT(
      types_in("gradient_clip"),
      ElementsAre("squared_l2_norm", "squared_l2_norm", "sum 2", "sqrt", "fill_constant",
                  "elementwise_max", "elementwise_div", "elementwise_mul", "elementwise_mul"));
}

TEST_F(MinimizePartsTest, AnOwnClipLeavesTheOtherParameterAlone) {
  two_parameters(DType::kFloat32, DType::kFloat32);
  MinimizeOptions options;
  options.parameter_options["w"].clip = ClipByValue{1.0};
  ASSERT_TRUE(run(options).ok());
  EXPECT_THAT(types_in("gradient_clip"), ElementsAre("clip"));
  EXPECT_EQ(find("clip")->first_input("X"), "w@GRAD");
}

// Ops of an earlier call name the gradient of the last one, whether clips are common or separate.
TEST_F(MinimizePartsTest, ClipsOfAnEarlierCallNameTheGradientInUse) {
  for (const bool own : {false, true}) {
    main_ = Program::create();
    startup_ = Program::create();
    two_parameters(DType::kFloat32, DType::kFloat32);
    MinimizeOptions options;
    if (own) {
      options.parameter_options["v"].clip = ClipByGlobalNorm{1.0, "v"};
      options.parameter_options["w"].clip = ClipByGlobalNorm{1.0, "w"};
    } else {
      options.clip = ClipByGlobalNorm{1.0};
    }
    ASSERT_TRUE(run(options).ok());
    ASSERT_TRUE(run(options).ok());
    std::vector<std::string> grads;
    for (const Op& o : main_->root().ops()) {
      if (o.type() != "squared_l2_norm") continue;
      const auto vars = get_attr_or<std::vector<std::string>>(o, "op_role_var", {});
      ASSERT_EQ(vars.size(), 2U);
      grads.push_back(vars[1]);
    }
    EXPECT_THAT(grads, ElementsAre("grad/grad/v@GRAD", "grad/grad/w@GRAD", "grad/grad/v@GRAD",
                                   "grad/grad/w@GRAD"));
  }
}

TEST_F(MinimizePartsTest, ClippedRowsAreDeclaredDenseByValueOnly) {
  sparse_parameter();
  ASSERT_TRUE(run({.clip = ClipByValue{1.0}}).ok());
  EXPECT_EQ(var("w@GRAD").kind(), VarKind::kSelectedRows);
  EXPECT_EQ(var(find("clip")->first_output("Out")).kind(), VarKind::kLodTensor);
  EXPECT_EQ(var(find("clip")->first_output("Out")).spec().form, TensorForm::kLodTensor);

  main_ = Program::create();
  startup_ = Program::create();
  sparse_parameter();
  ASSERT_TRUE(run({.clip = ClipByNorm{1.0}}).ok());
  EXPECT_EQ(var(find("clip_by_norm")->first_output("Out")).kind(), VarKind::kSelectedRows);
}

TEST_F(MinimizePartsTest, TheGlobalNormMergesRows) {
  sparse_parameter();
  ASSERT_TRUE(run({.clip = ClipByGlobalNorm{1.0}}).ok());
  EXPECT_THAT(types_in("gradient_clip"),
              ElementsAre("merge_selected_rows", "get_tensor_from_selected_rows", "squared_l2_norm",
                          "sum 1", "sqrt", "fill_constant", "elementwise_max", "elementwise_div",
                          "elementwise_mul"));
  const Var& merged = var(find("merge_selected_rows")->first_output("Out"));
  EXPECT_EQ(merged.kind(), VarKind::kSelectedRows);
  EXPECT_EQ(merged.spec().form, TensorForm::kSelectedRows);
  EXPECT_EQ(find("squared_l2_norm")->first_input("X"),
            find("get_tensor_from_selected_rows")->first_output("Out"));
}

// ---- decay

TEST_F(MinimizePartsTest, DecayOfRowsIsDense) {
  sparse_parameter();
  ASSERT_TRUE(run({.regularization = L2Decay{0.5}}).ok());
  const Op& sum = *find("sum");
  EXPECT_EQ(sum.input("X").front(), "w@GRAD");
  EXPECT_NE(sum.first_output("Out"), "w@GRAD");
  EXPECT_EQ(var(sum.first_output("Out")).kind(), VarKind::kLodTensor);
  EXPECT_EQ(main_->root().back().first_input("Grad"), sum.first_output("Out"));
}

TEST_F(MinimizePartsTest, TheDecayHasTheLevelsOfItsParameter) {
  two_parameters(DType::kFloat32, DType::kFloat32);
  VarSpec spec = var("w").spec();
  spec.lod_level = 1;
  main_->root().find_var("w")->set_spec(spec);
  MinimizeOptions options;
  options.parameter_options["w"].regularizer = L1Decay{0.5};
  ASSERT_TRUE(run(options).ok());
  EXPECT_EQ(var(find("sign")->first_output("Out")).lod_level(), 1);
}

// ---- updates

TEST_F(MinimizePartsTest, AnUpdateRunsWhereItsParameterIsRead) {
  two_parameters(DType::kFloat32, DType::kFloat32);
  for (Op* const o : main_->root().op_vector()) {
    if (o->type() == "mul" && o->first_input("Y") == "w") o->set_string("op_device", "gpu:1");
  }
  ASSERT_TRUE(run({}).ok());
  std::map<std::string, std::string> devices;
  for (const Op& o : main_->root().ops()) {
    if (o.type() == "sgd")
      devices[o.first_input("Param").str()] = get_attr_or<std::string>(o, "op_device", "none");
  }
  EXPECT_EQ(devices, (std::map<std::string, std::string>{{"v", ""}, {"w", "gpu:1"}}));
}

TEST_F(MinimizePartsTest, TheCopyInSinglePrecisionIsCastAtTheStart) {
  two_parameters(DType::kFloat32, DType::kFloat16);
  ASSERT_TRUE(run({.method = Momentum{.multi_precision = true}}).ok());
  const Op* cast = nullptr;
  for (const Op& o : startup_->root().ops())
    if (o.type() == "cast") cast = &o;
  ASSERT_NE(cast, nullptr);
  EXPECT_EQ(cast->first_input("X"), "w");
  EXPECT_EQ(cast->first_output("Out"), "w_fp32_master_0");
  EXPECT_EQ(get_attr_or<int32_t>(*cast, "in_dtype", 0), 4);
  EXPECT_EQ(get_attr_or<int32_t>(*cast, "out_dtype", 0), 5);
  EXPECT_EQ(var(main_->root().back().first_input("Velocity")).dtype(), DType::kFloat32);
}

// These methods have no copy in single precision.
TEST_F(MinimizePartsTest, OtherMethodsUpdateHalfParametersThemselves) {
  for (const UpdateMethod& method :
       {UpdateMethod(Sgd{}), UpdateMethod(Adagrad{}), UpdateMethod(Adamax{}),
        UpdateMethod(RmsProp{}), UpdateMethod(Ftrl{})}) {
    main_ = Program::create();
    startup_ = Program::create();
    two_parameters(DType::kFloat16, DType::kFloat16);
    ASSERT_TRUE(run({.method = method}).ok());
    EXPECT_EQ(startup_->root().find_var("w_fp32_master_0"), nullptr);
    int updates = 0;
    for (const Op& o : main_->root().ops()) {
      updates += !o.input("Param").empty();
      EXPECT_TRUE(o.input("MasterParam").empty()) << o.type().str();
    }
    EXPECT_EQ(updates, 2);
  }
}

TEST_F(MinimizePartsTest, MomentsOfAdamAreSingleForHalfParameters) {
  const std::pair<UpdateMethod, DType> methods[] = {{Adam{}, DType::kFloat32},
                                                    {AdamW{}, DType::kFloat32},
                                                    {Adamax{}, DType::kFloat32},
                                                    {Lamb{}, DType::kFloat32},
                                                    {Momentum{}, DType::kFloat16}};
  for (const auto& [method, wanted] : methods) {
    main_ = Program::create();
    startup_ = Program::create();
    two_parameters(DType::kFloat16, DType::kFloat16);
    ASSERT_TRUE(run({.method = method}).ok());
    int states = 0;
    for (const Op& o : main_->root().ops()) {
      for (const char* const slot : {"Moment1", "Moment", "Velocity"}) {
        if (o.input(slot).empty()) continue;
        ++states;
        EXPECT_EQ(var(o.first_input(slot)).dtype(), wanted) << o.type().str();
      }
    }
    EXPECT_EQ(states, 2);
  }
}

// ---- schedules and branches

TEST_F(MinimizePartsTest, SchedulesRefuseWhatIsNotPositive) {
  const std::pair<Decay, const char*> wrong[] = {
      {NoamDecay{.d_model = 0, .warmup_steps = 1}, "noam schedule: 'd_model'"},
      {NoamDecay{.d_model = 1, .warmup_steps = 0}, "noam schedule: 'warmup_steps'"},
      {ExponentialDecay{.decay_steps = 0}, "exponential schedule: 'decay_steps'"},
      {NaturalExpDecay{.decay_steps = 0}, "natural_exp schedule: 'decay_steps'"},
      {InverseTimeDecay{.decay_steps = 0}, "inverse_time schedule: 'decay_steps'"},
      {PolynomialDecay{.decay_steps = 0}, "polynomial schedule: 'decay_steps'"},
      {CosineDecay{.step_each_epoch = 0, .epochs = 1}, "cosine schedule: 'step_each_epoch'"},
      {CosineDecay{.step_each_epoch = 1, .epochs = 0}, "cosine schedule: 'epochs'"},
  };
  for (const auto& [decay, message] : wrong) {
    Builder builder(*registry_, *main_, *startup_);
    EXPECT_THAT(add_schedule(builder, decay).status().message(),
                HasSubstr(std::string(message) + " must be positive, found 0"));
  }
  Builder builder(*registry_, *main_, *startup_);
  EXPECT_THAT(add_schedule(builder, LinearWarmup{.after = 0.1}).status().message(),
              HasSubstr("warmup schedule: 'warmup_steps' must be positive, found 0"));
}

TEST_F(MinimizePartsTest, ABranchNamesWhatItReadsOfOutsideOnce) {
  for (const char* const name : {"a", "b", "out"}) declare(name, DType::kFloat32, {1}, false);
  declare("flag", DType::kBool, {1}, false);
  Builder builder(*registry_, *main_, *startup_);
  const auto add = [&](const char* x, const char* y) {
    NewOp sum("elementwise_add");
    sum.input("X", {x}).input("Y", {y}).output("Out", {"out"});
    return builder.append(sum).status();
  };
  const Status status = add_conditional_block(builder, "flag", {"out"}, [&] {
    const Status first = add("b", "a");
    return first.ok() ? add("b", "b") : first;
  });
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_THAT(main_->root().back().input("Input"), ElementsAre("a", "b"));
}

TEST_F(MinimizePartsTest, ABranchHandsOnWhatFailsInIt) {
  declare("flag", DType::kBool, {1}, false);
  Builder builder(*registry_, *main_, *startup_);
  const Status status = add_conditional_block(
      builder, "flag", {}, [] { return Status(StatusCode::kInvalidArgument, "the branch fails"); });
  EXPECT_EQ(status.message(), "the branch fails");
  EXPECT_TRUE(main_->root().op_vector().empty());
}

}  // namespace
}  // namespace millrace::ops
