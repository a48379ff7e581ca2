#include "ops/minimize/update.h"

#include "framework/op_attrs.h"
#include "ops/minimize/gradients.h"
#include "ops/minimize/update_rule.h"

namespace millrace::ops {
namespace {

// What is needed to append the update op of one parameter.
struct Update {
  const ParamGrad* pair = nullptr;
  UpdateRule rule;
  std::string device;              ///< op_device of the first op that reads the parameter
  std::string master;              ///< copy of the parameter in single precision; empty: none
  std::vector<std::string> state;  ///< names of the accumulators, in order of the rule
};

class Updates {
 public:
  Updates(Builder& builder, const MinimizeOptions& options, const std::string& rate)
      : builder_(builder), options_(options), rate_(rate) {}

  StatusOr<std::vector<Op*>> run(const std::vector<ParamGrad>& pairs) {
    std::vector<Update> updates;
    for (const ParamGrad& pair : pairs) updates.push_back(plan(pair));
    for (Update& update : updates) MILLRACE_RETURN_IF_ERROR(declare_state(update));
    for (const Update& update : updates) MILLRACE_RETURN_IF_ERROR(append_update(update));
    for (const Update& update : updates) MILLRACE_RETURN_IF_ERROR(append_power_update(update));
    return std::move(ops_);
  }

 private:
  Update plan(const ParamGrad& pair) const {
    std::optional<L2Decay> decay;
    if (fuses_l2(options_.method)) {
      std::optional<Regularizer> regularizer =
          options_of(options_.parameter_options, pair.param).regularizer;
      if (!regularizer) regularizer = options_.regularization;
      if (regularizer && std::holds_alternative<L2Decay>(*regularizer))
        decay = std::get<L2Decay>(*regularizer);
    }
    Update update{&pair, update_rule(options_.method, pair.param, decay), {}, {}, {}};
    const llvm::SmallVector<Op*, 4> readers = builder_.block().readers_of(pair.param);
    if (!readers.empty())
      update.device = get_attr_or<std::string>(*readers.front(), "op_device", "");
    return update;
  }

  Status declare_state(Update& update) {
    const Var& param = *builder_.block().find_var(update.pair->param);
    std::string owner = update.pair->param;
    DType dtype = param.dtype();
    if (is_half(dtype) && is_multi_precision(options_.method)) {
      MILLRACE_ASSIGN_OR_RETURN(update.master, add_master(param));
      owner = update.master;
      dtype = DType::kFloat32;
    }
    if (is_half(dtype) && update.rule.single_precision_state) dtype = DType::kFloat32;
    const Dims dims(param.dims().begin(), param.dims().end());
    const std::string prefix = options_.name.empty() ? "" : options_.name + "_";
    for (const Accumulator& accumulator : update.rule.accumulators) {
      MarkScope marks(builder_);
      marks.device(accumulator.in_host_memory ? "cpu" : update.device);
      std::string name = builder_.names().next(owner + "_" + prefix + accumulator.name.str());
      MILLRACE_RETURN_IF_ERROR(builder_.persistent_var(
          name, dtype, accumulator.is_power ? Dims{1} : dims, accumulator.value));
      update.state.push_back(std::move(name));
    }
    return Ok();
  }

  // Declares a copy of the parameter in single precision, which the startup program fills.
  StatusOr<std::string> add_master(const Var& param) {
    const std::string name = param.name().str();
    std::string master = builder_.names().next(name + "_fp32_master");
    MILLRACE_RETURN_IF_ERROR(builder_.persistent_var(master, DType::kFloat32, param.dims(), 0.0));
    NewOp cast("cast");
    cast.input("X", {name})
        .output("Out", {master})
        .attr("in_dtype", make_attr(static_cast<int32_t>(param.dtype())))
        .attr("out_dtype", make_attr(static_cast<int32_t>(DType::kFloat32)));
    MILLRACE_RETURN_IF_ERROR(builder_.append_startup(cast).status());
    return master;
  }

  Status append_update(const Update& update) {
    MarkScope marks(builder_);
    marks.role(kRoleOptimize, {update.pair->param, update.pair->grad})
        .scope("optimizer")
        .device(update.device);
    MILLRACE_ASSIGN_OR_RETURN(const std::string rate, rate_of(update.pair->param));
    NewOp op(update.rule.type);
    op.input("Param", {update.pair->param})
        .input("Grad", {update.pair->grad})
        .input("LearningRate", {rate})
        .output("ParamOut", {update.pair->param});
    for (size_t i = 0; i < update.state.size(); ++i) {
      const Accumulator& accumulator = update.rule.accumulators[i];
      op.input(accumulator.input, {update.state[i]});
      if (!accumulator.output.empty()) op.output(accumulator.output, {update.state[i]});
    }
    for (const auto& [name, value] : update.rule.attrs) op.attr(name, value);
    if (!update.master.empty()) {
      op.input("MasterParam", {update.master})
          .output("MasterParamOut", {update.master})
          .attr("multi_precision", make_attr(true));
    }
    return keep(builder_.append(op));
  }

  // The learning rate times the factor of the parameter.
  StatusOr<std::string> rate_of(const std::string& param) {
    const double factor = options_of(options_.parameter_options, param).learning_rate;
    if (factor == 1.0) return rate_;
    MarkScope marks(builder_);
    marks.role(kRoleLrSched | kRoleOptimize).scope("scale_with_param_lr");
    const Var& rate = *builder_.block().find_var(rate_);
    std::string out = builder_.numbered_var("tmp", VarSpec::tensor(rate.dtype(), {}));
    NewOp scale("scale");
    scale.input("X", {rate_})
        .output("Out", {out})
        .attr("scale", make_attr(static_cast<float>(factor)));
    MILLRACE_RETURN_IF_ERROR(keep(builder_.append(scale)));
    return out;
  }

  Status append_power_update(const Update& update) {
    if (!update.rule.power_update) return Ok();
    const PowerUpdate& power = *update.rule.power_update;
    for (size_t i = 0; i < update.state.size(); ++i) {
      if (update.rule.accumulators[i].name != power.accumulator) continue;
      MarkScope marks(builder_);
      marks.role(kRoleOptimize, {update.pair->param, update.pair->grad}).scope(power.scope.str());
      NewOp scale("scale");
      scale.input("X", {update.state[i]})
          .output("Out", {update.state[i]})
          .attr("scale", make_attr(static_cast<float>(power.factor)));
      MILLRACE_RETURN_IF_ERROR(keep(builder_.append(scale)));
    }
    return Ok();
  }

  Status keep(StatusOr<Op*> op) {
    if (!op.ok()) return std::move(op).status();
    ops_.push_back(*op);
    return Ok();
  }

  Builder& builder_;
  const MinimizeOptions& options_;
  const std::string& rate_;
  std::vector<Op*> ops_;
};

}  // namespace

StatusOr<std::vector<Op*>> append_updates(Builder& builder, const MinimizeOptions& options,
                                          const std::string& rate,
                                          const std::vector<ParamGrad>& pairs) {
  return Updates(builder, options, rate).run(pairs);
}

}  // namespace millrace::ops
