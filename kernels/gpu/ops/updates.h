#pragma once

#include <array>
#include <memory>

#include "kernels/gpu/functors/moves.h"
#include "kernels/gpu/functors/optimizer.h"
#include "kernels/gpu/ops/row_groups.h"

namespace millrace::gpu {

/// What a sparse gradient does to rows that it lacks.
enum class MissingRows : uint8_t {
  kUpdated,  ///< they are updated with a gradient of 0; but a gradient without rows does nothing
  kKept,     ///< they do not change
};

/// The arguments of an op that updates one parameter.
struct UpdateArgs {
  /// A state and its output.
  struct State {
    ArgIndex in, out;  ///< usually the same var
    const char* slot;  ///< of the input, for messages
  };
  /// \param states  input and output slots
  UpdateArgs(const KernelSetup& op,
             std::initializer_list<std::pair<const char*, const char*>> states, size_t k = 0);
  Memory* memory;                         ///< of the device that updates
  ArgIndex param, grad, rate, param_out;  ///< the rate may be absent
  std::array<State, 3> states{};          ///< in the order of the rule
  size_t state_count = 0;                 ///< of them in use
  /// The rows of sparse gradients; copies of the kernel share its memory.
  std::shared_ptr<GroupedRows> grouped = std::make_shared<GroupedRows>();
};

/// The tensors of one update, all f32 and in device memory.
struct UpdateOperands {
  const Tensor* param;                   ///< before the update
  const Tensor* grad;                    ///< null: sparse
  const SelectedRows* rows;              ///< null: dense
  const float* rate;                     ///< null: the op has none
  float* out;                            ///< the parameter after the update
  std::array<const float*, 3> states{};  ///< before the update; null: unused
  std::array<float*, 3> states_out{};    ///< after it
};
/// Errors: rejects other types and shapes.
StatusOr<UpdateOperands> find_operands(const KernelContext& ctx, const UpdateArgs& args);

/// A state of one element, and its output. Errors: rejects other shapes.
struct PowerPointers {
  const float* in;  ///< before the update
  float* out;       ///< null: the op lacks the output
};
StatusOr<PowerPointers> find_power(const KernelContext& ctx, ArgIndex in, ArgIndex out);

/// Rejects ops with inputs in these slots.
Status refuse_extras(const KernelSetup& op, std::initializer_list<const char*> slots);

/// The functor of a dense update.
template <typename Rule>
Update<Rule> dense_update(const UpdateOperands& on, const Rule& rule, StepNumbers numbers) {
  if (numbers.rate == nullptr) numbers.rate = on.rate;
  Update<Rule> update{rule, numbers, floats(on.param), floats(on.grad), on.out, {}, {}};
  for (size_t k = 0; k < 3; ++k) {
    update.states[k] = on.states[k];
    update.states_out[k] = on.states_out[k];
  }
  return update;
}

/// Updates the parameter from a dense or sparse gradient. Errors: kResource, kExecution.
template <typename Rule>
Status run_update(const UpdateArgs& args, const UpdateOperands& on, const Rule& rule,
                  const StepNumbers& numbers, MissingRows missing) {
  Device& device = args.memory->device();
  const Update<Rule> update = dense_update(on, rule, numbers);
  if (on.rows == nullptr) return each(device, update, on.param->numel());
  if (on.rows->rows.empty()) return Ok();
  const int64_t height = on.param->dim(0);
  const int64_t width = on.param->numel() / height;
  MILLRACE_RETURN_IF_ERROR(args.grouped->make(*args.memory, on.rows->rows, -1));
  const int64_t count = args.grouped->count();
  const RowGroups groups = args.grouped->groups(floats(on.rows->value), width);
  if (missing == MissingRows::kKept)
    return each(device, UpdateOwnRows<Rule>{update, groups}, count * width);
  MILLRACE_ASSIGN_OR_RETURN(
      const std::shared_ptr<Block> positions,
      args.memory->allocate(height * static_cast<int64_t>(sizeof(int32_t)), "row positions"));
  auto* const at = reinterpret_cast<int32_t*>(positions->data());
  MILLRACE_RETURN_IF_ERROR(
      each(device, Set<uint32_t>{reinterpret_cast<uint32_t*>(at), ~uint32_t{0}}, height));
  MILLRACE_RETURN_IF_ERROR(each(device, PlaceRows{groups.rows, at}, count));
  return each(device, UpdateAllRows<Rule>{update, groups, at}, height * width);
}

}  // namespace millrace::gpu
