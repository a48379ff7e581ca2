#include "ps/table/update_op.h"

#include <algorithm>

#include <fmt/format.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>

#include "executor/executor.h"
#include "executor/standard_runtime.h"
#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"
#include "ops/verify.h"
#include "ps/table/number_text.h"

namespace millrace::ps {
namespace {

constexpr UpdateSlot kVelocity[] = {{"Velocity", "VelocityOut"}};
constexpr UpdateSlot kMoment[] = {{"Moment", "MomentOut"}};
constexpr UpdateSlot kAverages[] = {{"AvgSquaredGrad", "AvgSquaredGradOut"},
                                    {"AvgSquaredUpdate", "AvgSquaredUpdateOut"}};
constexpr UpdateSlot kRmsStates[] = {
    {"MeanSquare", "MeanSquareOut"}, {"Moment", "MomentOut"}, {"MeanGrad", "MeanGradOut"}};
constexpr UpdateSlot kAdamStates[] = {{"Moment1", "Moment1Out"},
                                      {"Moment2", "Moment2Out"},
                                      {"Beta1Pow", "Beta1PowOut", true},
                                      {"Beta2Pow", "Beta2PowOut", true}};
constexpr UpdateSlot kAdamaxStates[] = {
    {"Moment", "MomentOut"}, {"InfNorm", "InfNormOut"}, {"Beta1Pow", "", true}};
constexpr UpdateSlot kFtrlStates[] = {{"SquaredAccumulator", "SquaredAccumOut"},
                                      {"LinearAccumulator", "LinearAccumOut"}};

constexpr UpdateOpKind kUpdateOps[] = {
    {"sgd", {}, false, false},
    {"momentum", kVelocity},
    {"adagrad", kMoment, false, false},
    {"decayed_adagrad", kMoment},
    {"adadelta", kAverages},
    {"rmsprop", kRmsStates},
    {"adam", kAdamStates},
    {"adamw", kAdamStates},
    {"adamax", kAdamaxStates},
    {"ftrl", kFtrlStates, false, false},
    {"lamb", kAdamStates, true},
};

constexpr const char* kParamVar = "param";
constexpr const char* kGradVar = "grad";
constexpr const char* kRateName = "rate";

std::string state_name(const UpdateSlot& slot) {
  return std::string("state_").append(slot.input);
}

// The text of an attribute; nullopt for kinds that update ops of tables do not have.
std::optional<std::string> attr_text(const AttrValue& value) {
  switch (value.kind()) {
    case AttrKind::kFloat:
      return fmt::format("{}", value.float32());
    case AttrKind::kBool:
      return value.boolean() ? "1" : "0";
    case AttrKind::kInt:
    case AttrKind::kLong:
      return fmt::format("{}", value.integer());
    case AttrKind::kString: {
      const llvm::StringRef text = value.string();
      if (text.contains('&') || text.contains('#')) return std::nullopt;
      return text.str();
    }
    default:
      return std::nullopt;
  }
}

std::optional<AttrValue> attr_of_text(AttrKind kind, std::string_view text) {
  float number = 0;
  int64_t integer = 0;
  if (kind == AttrKind::kString) return AttrValue::of_string(std::string(text));
  if (kind == AttrKind::kFloat)
    return read_number(text, number) ? std::optional(AttrValue::of_float(number)) : std::nullopt;
  if (!read_number(text, integer)) return std::nullopt;
  if (kind == AttrKind::kBool) return AttrValue::of_bool(integer != 0);
  if (kind == AttrKind::kLong) return AttrValue::of_long(integer);
  if (kind == AttrKind::kInt) return AttrValue::of_int(static_cast<int32_t>(integer));
  return std::nullopt;
}

Status set_attrs(const ops::OpDef& def, const std::string& attrs, Op& op) {
  llvm::SmallVector<llvm::StringRef, 8> items;
  llvm::StringRef(attrs).split(items, '#', -1, false);
  for (const llvm::StringRef item : items) {
    const auto [name, text] = item.split('&');
    const ops::AttrDef* const known = def.find_attr(name);
    const auto value =
        known == nullptr ? std::nullopt : attr_of_text(known->kind, {text.data(), text.size()});
    if (!value)
      return InvalidArgument("tables: '{}' is not an attribute of the op {}", item.str(),
                             op.type().str());
    op.set_attr(name, *value);
  }
  return Ok();
}

// A program that updates one parameter.
StatusOr<std::unique_ptr<Program>> update_program(const ops::OpRegistry& registry,
                                                  const UpdateOpOptions& options,
                                                  std::span<const UpdateSlot> states,
                                                  int64_t count) {
  auto program = Program::create();
  Block& block = program->root();
  const auto declare = [&](const std::string& name, int64_t elements) {
    VarSpec spec;
    spec.form = TensorForm::kLodTensor;
    spec.dtype = DType::kFloat32;
    spec.dims = {elements};
    spec.persistable = true;
    block.declare(name, std::move(spec));
  };
  declare(kParamVar, count);
  declare(kGradVar, count);
  declare(kRateName, 1);
  Op& op = block.append_op(options.type);
  op.set_input("Param", kParamVar).set_input("Grad", kGradVar).set_input("LearningRate", kRateName);
  op.set_output("ParamOut", kParamVar);
  for (const UpdateSlot& state : states) {
    declare(state_name(state), state.is_scalar ? 1 : count);
    op.set_input({state.input.data(), state.input.size()}, state_name(state));
    if (!state.output.empty())
      op.set_output({state.output.data(), state.output.size()}, state_name(state));
  }
  MILLRACE_RETURN_IF_ERROR(set_attrs(*registry.find(options.type), options.attrs, op));
  for (const UpdateSlot& state : states) {
    if (!state.output.empty()) continue;
    // only the power of adamax, which its optimizer scales after the update
    Op& power = block.append_op("scale");
    power.set_input("X", state_name(state)).set_output("Out", state_name(state));
    power.set_float("scale", get_attr_or(op, "beta1", 0.9F));
  }
  return program;
}

}  // namespace

const UpdateOpKind* find_update_op(std::string_view type) {
  const auto* const found = std::ranges::find(kUpdateOps, type, &UpdateOpKind::type);
  return found == std::end(kUpdateOps) ? nullptr : found;
}

std::string update_op_types() {
  std::string text;
  for (const UpdateOpKind& kind : kUpdateOps)
    text.append(text.empty() ? "" : ", ").append(kind.type);
  return text;
}

StatusOr<std::string> update_op_attrs(const Op& op) {
  const auto registry = ops::standard_registry();
  const ops::OpDef* const def = registry->find(op.type());
  std::string out;
  for (const ops::AttrDef& attr : def->attrs()) {
    const AttrValue* const value = op.find_attr(attr.name);
    if (value == nullptr) continue;  // the default
    const std::optional<std::string> text =
        value->kind() == attr.kind ? attr_text(*value) : std::nullopt;
    if (!text)
      return Unimplemented("tables on servers do not support the attribute '{}' of {}",
                           attr.name.str(), op.type().str())
          .at(op.location());
    out += fmt::format("{}{}&{}", out.empty() ? "" : "#", attr.name.str(), *text);
  }
  return out;
}

// The op with its own vars.
struct UpdateOp::Runner {
  Scope scope;
  std::unique_ptr<executor::PreparedProgram> program;
  Tensor* param = nullptr;
  Tensor* grad = nullptr;
  Tensor* rate = nullptr;
  std::vector<Tensor*> states;
};

UpdateOp::UpdateOp(UpdateOpOptions options, const UpdateOpKind& kind)
    : options_(std::move(options)), kind_(&kind), runtime_(executor::standard_runtime()) {}

UpdateOp::~UpdateOp() = default;

StatusOr<std::shared_ptr<const UpdateOp>> UpdateOp::create(UpdateOpOptions options) {
  const UpdateOpKind* const kind = find_update_op(options.type);
  if (kind == nullptr)
    return InvalidArgument("tables do not support the update op '{}'", options.type);
  if (options.initial.size() > kind->states.size())
    return InvalidArgument("the op {} has {} states, found {} initial values", options.type,
                           kind->states.size(), options.initial.size());
  std::shared_ptr<UpdateOp> op(new UpdateOp(std::move(options), *kind));
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Program> program,
                            update_program(*op->runtime_->ops, op->options_, op->states(), 1));
  MILLRACE_RETURN_IF_ERROR(ops::check_program(*op->runtime_->ops, *program));
  // and errors of the kernel
  std::vector<float> values = op->options_.initial;
  std::vector<float*> states;
  for (float& value : values) states.push_back(&value);
  float weight = 0;
  const float grad = 0;
  MILLRACE_RETURN_IF_ERROR(op->update(1, &weight, states, &grad, 1));
  return std::shared_ptr<const UpdateOp>(std::move(op));
}

StatusOr<std::unique_ptr<UpdateOp::Runner>> UpdateOp::runner(int64_t count) const {
  {
    const std::lock_guard lock(mutex_);
    auto& idle = idle_[count];
    if (!idle.empty()) {
      std::unique_ptr<Runner> last = std::move(idle.back());
      idle.pop_back();
      return last;
    }
  }
  auto made = std::make_unique<Runner>();
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<Program> program,
                            update_program(*runtime_->ops, options_, states(), count));
  const auto place = [&](const std::string& name, int64_t elements) -> StatusOr<Tensor*> {
    auto& tensor = made->scope.local(name).as<Tensor>();
    MILLRACE_RETURN_IF_ERROR(tensor.resize(DType::kFloat32, {elements}));
    return &tensor;
  };
  MILLRACE_ASSIGN_OR_RETURN(made->param, place(kParamVar, count));
  MILLRACE_ASSIGN_OR_RETURN(made->grad, place(kGradVar, count));
  MILLRACE_ASSIGN_OR_RETURN(made->rate, place(kRateName, 1));
  for (const UpdateSlot& state : states()) {
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const values,
                              place(state_name(state), state.is_scalar ? 1 : count));
    made->states.push_back(values);
  }
  // one op: nothing to optimize
  const executor::Executor executor(runtime_, {.optimize = false});
  MILLRACE_ASSIGN_OR_RETURN(made->program, executor.prepare(std::move(program), made->scope));
  return made;
}

Status UpdateOp::update(int64_t count, float* weights, std::span<float* const> states,
                        const float* grad, float rate) const {
  if (count == 0) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<Runner> own, runner(count));
  std::copy_n(weights, count, own->param->data<float>());
  std::copy_n(grad, count, own->grad->data<float>());
  *own->rate->data<float>() = rate;
  const std::span<const UpdateSlot> slots = this->states();
  const auto elements = [&](size_t i) { return slots[i].is_scalar ? 1 : count; };
  for (size_t i = 0; i < slots.size(); ++i)
    std::copy_n(states[i], elements(i), own->states[i]->data<float>());
  std::vector<Value> none;
  // without the location, which is none of the job's programs
  if (const Status status = own->program->run({}, {}, none); !status.ok())
    return {status.code(), fmt::format("{}: {}", options_.type, status.message())};
  std::copy_n(own->param->data<float>(), count, weights);
  for (size_t i = 0; i < slots.size(); ++i)
    std::copy_n(own->states[i]->data<float>(), elements(i), states[i]);
  const std::lock_guard lock(mutex_);
  idle_[count].push_back(std::move(own));
  return Ok();
}

int UpdateOp::state_floats(int weights) const {
  int floats = 0;
  for (const UpdateSlot& state : states()) floats += state.is_scalar ? 1 : weights;
  return floats;
}

void UpdateOp::init_state(float* state, int weights) const {
  for (size_t i = 0; i < states().size(); ++i)
    state = std::fill_n(state, states()[i].is_scalar ? 1 : weights, options_.initial[i]);
}

Status UpdateOp::update_row(int count, float* weights, float* state, const float* grad,
                            float rate) const {
  llvm::SmallVector<float*, 4> each;
  for (const UpdateSlot& slot : states()) {
    each.push_back(state);
    state += slot.is_scalar ? 1 : count;
  }
  return update(count, weights, {each.data(), each.size()}, grad, rate);
}

}  // namespace millrace::ps
