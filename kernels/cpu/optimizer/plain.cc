#include <string>
#include <vector>

#include "framework/block.h"
#include "kernels/cpu/optimizer/update.h"
#include "kernels/cpu/row_position.h"
#include "kernels/registry.h"

// sgd and momentum, for one parameter and for several at once.
namespace millrace::kernels {
namespace plain {
namespace {

using optimizer::Sparse;
using optimizer::update_slots;
using optimizer::UpdateSlots;

template <typename T>
struct Descent {
  T rate;
  void operator()(T& param, T grad) const { param -= rate * grad; }
};

// A table that is stored as selected rows, such as a pserver's slice of a table. Its gradient uses
// the row numbers of the whole table.
Status descend_table(const KernelContext& ctx, const UpdateSlots& slots, RowMerger& merger) {
  const auto* const grad = ctx.in_value(slots.grad).get_if<SelectedRows>();
  const Tensor* const rate = ctx.find_in(slots.rate);
  Value& out = ctx.out_value(slots.param_out);
  auto* const table = out.get_if<SelectedRows>();
  if (table == nullptr || &ctx.in_value(slots.param) != &out || grad == nullptr || rate == nullptr)
    return ctx.error("a table of selected rows is updated in place by selected rows, found {}",
                     describe(ctx.in_value(slots.grad)));
  if (grad->rows.empty()) return Ok();
  MILLRACE_RETURN_IF_ERROR(merger.merge(*grad));
  MILLRACE_ASSIGN_OR_RETURN(const double number, first_number(*rate, "LearningRate"));
  if (grad->value.dtype() != table->value.dtype() || merger.width() != row_width(table->value))
    return ctx.error("Grad {} does not fit Param {}", describe(grad->value),
                     describe(table->value));
  return dispatch<FloatTypes>(table->value.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    const T* from = merger.template values<T>();
    for (const int64_t row : merger.rows()) {
      const int64_t place = row_position(*table, row);
      if (place < 0) return ctx.error("Grad has row {}, which is not in the table", row);
      T* const to = table->value.template data<T>() + place * merger.width();
      for (int64_t i = 0; i < merger.width(); ++i) to[i] -= static_cast<T>(number) * from[i];
      from += merger.width();
    }
    return Ok();
  });
}

StatusOr<Kernel> sgd(const KernelSetup& op) {
  const UpdateSlots slots = update_slots(op, {});
  optimizer::accept_layouts(op, slots);
  Kernel dense = optimizer::update_kernel<0>(
      slots, Sparse::kOwnRows, [](auto rate) { return Descent<decltype(rate)>{rate}; });
  const Var* const param = op.op().block().find_var_recursive(op.op().first_input("Param"));
  if (param == nullptr || param->kind() != VarKind::kSelectedRows) return dense;
  const auto merger = std::make_shared<RowMerger>();
  return Kernel([=](const KernelContext& ctx) -> Status {
    return ctx.in_value(slots.param).holds<SelectedRows>() ? descend_table(ctx, slots, *merger)
                                                           : dense(ctx);
  });
}

StatusOr<Kernel> merged_sgd(const KernelSetup& op) {
  const auto make = [](auto rate) { return Descent<decltype(rate)>{rate}; };
  std::vector<UpdateSlots> slots;
  for (size_t k = 0; k < static_cast<size_t>(op.inputs("Param").count); ++k)
    slots.push_back(update_slots(op, {}, k));
  std::vector formulas(slots.size(), make);
  return optimizer::merged_kernel<0>(op, std::move(slots), Sparse::kOwnRows, std::move(formulas));
}

struct MomentumSettings {
  double mu = 0;
  double decay = 0;
  double rescale = 1;
};

template <typename T, bool kNesterov>
struct Momentum {
  T rate;
  T mu;
  T decay;
  T rescale;
  void operator()(T& param, T grad, T& velocity) const {
    const T g = grad * rescale + decay * param;
    velocity = mu * velocity + g;
    param -= rate * (kNesterov ? g + mu * velocity : velocity);
  }
};

template <bool kNesterov>
auto momentum_formula(const MomentumSettings& s) {
  return [s](auto rate) {
    using T = decltype(rate);
    return Momentum<T, kNesterov>{rate, static_cast<T>(s.mu), static_cast<T>(s.decay),
                                  static_cast<T>(s.rescale)};
  };
}

StatusOr<Kernel> momentum(const KernelSetup& op) {
  MomentumSettings settings{op.attr<float>("mu"), 0, op.attr<float>("rescale_grad")};
  if (op.attr<std::string>("regularization_method") == "l2_decay")
    settings.decay = op.attr<float>("regularization_coeff");
  const UpdateSlots slots = update_slots(op, {{"Velocity", "VelocityOut"}});
  optimizer::accept_layouts(op, slots);
  return op.attr<bool>("use_nesterov")
             ? optimizer::update_kernel<1>(slots, Sparse::kAllRows,
                                           momentum_formula<true>(settings))
             : optimizer::update_kernel<1>(slots, Sparse::kAllRows,
                                           momentum_formula<false>(settings));
}

template <bool kNesterov>
Kernel merged_momentum_of(const KernelSetup& op, llvm::ArrayRef<MomentumSettings> settings) {
  std::vector<UpdateSlots> slots;
  std::vector<decltype(momentum_formula<kNesterov>(settings[0]))> formulas;
  for (size_t k = 0; k < settings.size(); ++k) {
    slots.push_back(update_slots(op, {{"Velocity", "VelocityOut"}}, k));
    formulas.push_back(momentum_formula<kNesterov>(settings[k]));
  }
  return optimizer::merged_kernel<1>(op, std::move(slots), Sparse::kAllRows, std::move(formulas));
}

StatusOr<Kernel> merged_momentum(const KernelSetup& op) {
  const auto methods = op.attr<std::vector<std::string>>("regularization_method");
  const auto coefficients = op.attr<std::vector<float>>("regularization_coeff");
  const auto params = static_cast<size_t>(op.inputs("Param").count);
  if (methods.size() != coefficients.size() || (!methods.empty() && methods.size() != params)) {
    return op.error(
        "attributes 'regularization_method' and 'regularization_coeff' must have as many entries "
        "as Param, {}, or none; found {} and {}",
        params, methods.size(), coefficients.size());
  }
  std::vector<MomentumSettings> settings(params,
                                         {op.attr<float>("mu"), 0, op.attr<float>("rescale_grad")});
  for (size_t k = 0; k < methods.size(); ++k) {
    if (methods[k] == "l2_decay") {
      settings[k].decay = coefficients[k];
    } else if (!methods[k].empty()) {
      return op.error(
          "attribute 'regularization_method' names '{}' for parameter {}, expected l2_decay or "
          "nothing",
          methods[k], k);
    }
  }
  return op.attr<bool>("use_nesterov") ? merged_momentum_of<true>(op, settings)
                                       : merged_momentum_of<false>(op, settings);
}

}  // namespace
}  // namespace plain

void add_optimizer_plain(KernelRegistry& registry) {
  using namespace plain;
  registry.add("sgd", sgd);
  registry.add("momentum", momentum);
  registry.add("merged_sgd", merged_sgd);
  registry.add("merged_momentum", merged_momentum);
}

}  // namespace millrace::kernels
