#pragma once

#include <algorithm>
#include <array>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <llvm/ADT/SmallVector.h>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/layouts.h"
#include "kernels/cpu/merge_rows.h"
#include "kernels/cpu/scalar.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/update_group.h"

/// Shared code of the ops that update a parameter from its gradient: finding and checking tensors,
/// sparse gradients, 16-bit parameters, threads. An op adds a formula:
///
///   template <typename T> struct Descent {
///     T rate;
///     void operator()(T& param, T grad) const { param -= rate * grad; }
///   };
///
/// with one more `T&` for each state. A formula that treats the rows missing from a sparse gradient
/// differently has a function for_absent_rows() that returns their formula. A formula should avoid
/// branches on data, so that its loop vectorizes.
namespace millrace::kernels::optimizer {

/// What a sparse gradient does to the rows that it does not contain.
enum class Sparse {
  kAllRows,  ///< updated with a gradient of zero: their states decay (but a gradient without any
             ///< row changes nothing)
  kOwnRows,  ///< not changed
};

/// Arguments of an update op for one of its parameters.
struct UpdateSlots {
  ArgIndex param;       ///< any float type
  ArgIndex grad;        ///< dense, or selected rows
  ArgIndex rate;        ///< one element; may be absent if default_rate is set
  ArgIndex param_out;   ///< usually the same var as param
  ArgIndex master;      ///< float copy of a 16-bit parameter; absent unless multi_precision is set
  ArgIndex master_out;  ///< usually the same var as master
  bool wants_master = false;                                   ///< attribute multi_precision
  llvm::SmallVector<std::pair<ArgIndex, ArgIndex>, 3> states;  ///< input and output slots
  int shared = -1;  ///< number of an update that all devices make together; else -1
  std::optional<double> default_rate;  ///< used if the op lacks LearningRate
};

/// \param states  names of input and output slots
/// \param k       index of the parameter, for ops that update several
/// The slots Param, Grad, LearningRate, ParamOut, MasterParam and those of the states.
UpdateSlots update_slots(const KernelSetup& op,
                         std::initializer_list<std::pair<const char*, const char*>> states,
                         size_t k = 0);

/// Declares that parameter, gradient and states are accepted in any layout; update_tensors()
/// converts them to the layout of the parameter. For ops that access the elements through their
/// formula only.
void accept_layouts(const KernelSetup& op, const UpdateSlots& slots);

/// The checked tensors of one update. All have as many elements as param and the same element type,
/// except for 16-bit parameters and gradients, whose states and master are float.
struct UpdateTensors {
  Tensor* param = nullptr;               ///< output, which holds the old values
  Tensor* master = nullptr;              ///< float values of a 16-bit parameter, or null
  const Tensor* grad = nullptr;          ///< null if it is sparse
  const SelectedRows* rows = nullptr;    ///< null if the gradient is dense
  llvm::SmallVector<Tensor*, 3> states;  ///< in the order of the slots
  double rate = 0;                       ///< learning rate of this run
  UpdateGroup* group = nullptr;  ///< for an update that all devices make together; else null
  SharedUpdate own;              ///< what this device contributes to it

  /// True for a sparse gradient without rows, which changes nothing.
  [[nodiscard]] bool nothing_to_do() const { return rows != nullptr && rows->rows.empty(); }
};
/// If an output is not the same tensor as its input, the input is copied to it first. Errors:
/// kExecution with the slot, its shape and the expected shape.
StatusOr<UpdateTensors> update_tensors(const KernelContext& ctx, const UpdateSlots& slots);

/// Minimum number of elements that justifies a second thread.
inline constexpr int64_t kUpdateGrain = 16384;

namespace detail {

/// Number of rows that a sparse update prefetches.
inline constexpr int64_t kRowsAhead = 12;

/// Calls the formula for each element. __restrict: param, grad and states never overlap, which lets
/// the loop vectorize.
template <typename T, typename Formula, typename... States>
void apply(const Formula& formula, int64_t count, T* __restrict param, const T* __restrict grad,
           States* __restrict... states) {
  const Formula f = formula;  // a local copy, which no store below can change
  for (int64_t i = 0; i < count; ++i) f(param[i], grad[i], states[i]...);
}
/// The same with a gradient of 0.
template <typename T, typename Formula, typename... States>
void apply_zero(const Formula& formula, int64_t count, T* __restrict param,
                States* __restrict... states) {
  const Formula f = formula;
  for (int64_t i = 0; i < count; ++i) f(param[i], T(0), states[i]...);
}

/// Pointers of one type to the parameter and its states.
template <typename T, size_t... I>
struct Pointers {
  T* param;  ///< element 0, in memory order
  std::array<T*, sizeof...(I)> states;

  /// Updates elements [begin, begin + count) from their gradients, which start at grad[0].
  template <typename Formula>
  void dense(const Formula& f, const T* grad, int64_t begin, int64_t count) const {
    apply(f, count, param + begin, grad, (states[I] + begin)...);
  }
  /// Prefetches the cache line of element begin of the parameter and of each state.
  void fetch(int64_t begin) const {
    __builtin_prefetch(param + begin, 1);
    (__builtin_prefetch(states[I] + begin, 1), ...);
  }
  /// Updates elements [begin, begin + count) with a gradient of 0.
  template <typename Formula>
  void zero(const Formula& f, int64_t begin, int64_t count) const {
    apply_zero<T>(f, count, param + begin, (states[I] + begin)...);
  }
};
/// Elements in memory order, in the layout of the parameter.
template <typename T, size_t... I>
Pointers<T, I...> pointers_of(const UpdateTensors& t, std::index_sequence<I...>) {
  return {stored<T>(*t.param), {stored<T>(*t.states[I])...}};
}

/// Updates from selected rows. Rows that occur several times are added up first, since updating
/// twice with parts is not the same as once with the sum.
template <typename T, typename Formula, typename Pointers>
Status update_rows(const KernelContext& ctx, const UpdateTensors& t, const Formula& f,
                   const Pointers& to, Sparse sparse, RowMerger& merger) {
  if (t.nothing_to_do()) return Ok();
  MILLRACE_RETURN_IF_ERROR(merger.merge(*t.rows));
  const int64_t width = row_width(*t.param);
  const T* const values = merger.values<T>();
  const llvm::ArrayRef<int64_t> rows = merger.rows();
  // rows per thread, so that each has at least kUpdateGrain elements
  const int64_t row_grain = std::max<int64_t>(1, kUpdateGrain / std::max<int64_t>(width, 1));
  if (sparse != Sparse::kAllRows) {
    ctx.device().parallel_for(
        static_cast<int64_t>(rows.size()), row_grain, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            // rows of a large table are far apart in memory: the next ones are prefetched
            if (i + kRowsAhead < end) to.fetch(rows[static_cast<size_t>(i + kRowsAhead)] * width);
            to.dense(f, values + i * width, rows[static_cast<size_t>(i)] * width, width);
          }
        });
    return Ok();
  }
  const int64_t height = t.param->rank() == 0 ? 1 : t.param->dim(0);
  const llvm::ArrayRef<int32_t> positions = merger.positions(height);
  // formula for the rows that the gradient lacks
  const auto absent = [&] {
    if constexpr (requires { f.for_absent_rows(); }) {
      return f.for_absent_rows();
    } else {
      return f;
    }
  }();
  ctx.device().parallel_for(height, row_grain, [&](int64_t begin, int64_t end) {
    int64_t done = begin;  // rows before it are updated
    for (int64_t row = begin; row < end; ++row) {
      const int32_t position = positions[static_cast<size_t>(row)];
      if (position < 0) continue;
      to.zero(absent, done * width, (row - done) * width);
      to.dense(f, values + position * width, row * width, width);
      done = row + 1;
    }
    to.zero(absent, done * width, (end - done) * width);
  });
  return Ok();
}

/// Converts floats of 16 or 32 bits to and from a block of floats.
inline void load(const Tensor& from, int64_t begin, int64_t count, float* to) {
  (void)convert(from.dtype(), from.raw() + begin * dtype_size(from.dtype()), DType::kFloat32,
                reinterpret_cast<std::byte*>(to), count);
}
inline void store(const float* from, int64_t begin, int64_t count, Tensor& to) {
  (void)convert(DType::kFloat32, reinterpret_cast<const std::byte*>(from), to.dtype(),
                to.raw() + begin * dtype_size(to.dtype()), count);
}

/// 16-bit elements are converted block by block.
/// Arithmetic is done in float. With a master, the parameter is its rounded copy.
template <typename Formula, size_t... I>
Status update_blocks(const KernelContext& ctx, const UpdateTensors& t, const Formula& f,
                     std::index_sequence<I...> /*states*/) {
  if (t.grad == nullptr)
    return {StatusCode::kUnimplemented, "sparse gradients of 16-bit parameters"};
  // the values that the formula reads
  Tensor& wide = t.master != nullptr ? *t.master : *t.param;
  ctx.device().parallel_for(t.param->numel(), kUpdateGrain, [&](int64_t begin, int64_t end) {
    constexpr int64_t kBlock = 512;
    alignas(64) float param[kBlock];
    alignas(64) float grad[kBlock];
    alignas(64) float states[sizeof...(I) + 1][kBlock];
    for (int64_t at = begin; at < end; at += kBlock) {
      const int64_t count = std::min(kBlock, end - at);
      load(wide, at, count, param);
      load(*t.grad, at, count, grad);
      (load(*t.states[I], at, count, states[I]), ...);
      apply(f, count, param, grad, states[I]...);
      // the states of 16-bit parameters are float and are copied through the block as well
      (store(states[I], at, count, *t.states[I]), ...);
      if (t.master != nullptr) store(param, at, count, *t.master);
      store(param, at, count, *t.param);
    }
  });
  return Ok();
}

/// The gradient is summed over the devices.
/// Every device calls this for the same update; see UpdateGroup.
template <typename T, typename Formula, size_t... I>
Status update_together(const KernelContext& ctx, const UpdateTensors& t, const Formula& f,
                       std::index_sequence<I...> indices) {
  SharedUpdate own = t.own;
  own.states = t.states;
  MILLRACE_RETURN_IF_ERROR(t.group->meet(ctx.device(), own));
  const auto to = pointers_of<T>(t, indices);
  return t.group->apply(ctx.device(), own.number,
                        [&](int64_t begin, int64_t count, const std::byte* grad) {
                          to.dense(f, reinterpret_cast<const T*>(grad), begin, count);
                        });
}

}  // namespace detail

/// Updates one parameter. make(rate) must return the formula for the type of rate, which is float
/// or double. Errors: those of update_tensors(); a row of a sparse gradient out of range.
template <size_t kStates, typename Make>
Status update(const KernelContext& ctx, const UpdateTensors& t, Sparse sparse, RowMerger& merger,
              Make&& make) {
  constexpr auto kIndices = std::make_index_sequence<kStates>{};
  const DType dtype = t.param->dtype();
  if (dtype == DType::kFloat16 || dtype == DType::kBfloat16)
    return detail::update_blocks(ctx, t, make(static_cast<float>(t.rate)), kIndices);
  return dispatch<FloatTypes>(dtype, [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    const auto formula = make(static_cast<T>(t.rate));
    if (t.group != nullptr) return detail::update_together<T>(ctx, t, formula, kIndices);
    const auto to = detail::pointers_of<T>(t, kIndices);
    if (t.rows != nullptr) return detail::update_rows<T>(ctx, t, formula, to, sparse, merger);
    const T* const grad = stored<T>(*t.grad);
    ctx.device().parallel_for(t.param->numel(), kUpdateGrain, [&](int64_t begin, int64_t end) {
      to.dense(formula, grad + begin, begin, end - begin);
    });
    return Ok();
  });
}

/// Up to this number of elements, finding and checking the tensors takes longer than the update.
inline constexpr int64_t kFewElements = 1024;

namespace detail {

/// The input if it is also the output; null if they differ or it is not such a tensor.
inline Tensor* few_in_place(const KernelContext& ctx, ArgIndex in, ArgIndex out, int64_t count) {
  const Tensor* const from = ctx.find_in(in);
  if (from == nullptr || !from->initialized() || from->dtype() != DType::kFloat32 ||
      from->layout() != nullptr || from->numel() != count)
    return nullptr;
  Tensor* const to = ctx.find_out(out);
  return to == from ? to : nullptr;
}

/// Checks only what is needed to know that the fast case applies.
template <typename Make, size_t... I>
bool update_few(const KernelContext& ctx, const UpdateSlots& slots, const Make& make,
                std::index_sequence<I...> /*states*/) {
  if (slots.shared >= 0 || slots.master) return false;
  const Tensor* const grad = ctx.find_in(slots.grad);
  const Tensor* const rate = ctx.find_in(slots.rate);
  if (grad == nullptr || rate == nullptr || grad->numel() > kFewElements ||
      grad->dtype() != DType::kFloat32 || grad->layout() != nullptr ||
      rate->dtype() != DType::kFloat32 || rate->numel() != 1)
    return false;
  const int64_t count = grad->numel();
  Tensor* const param = few_in_place(ctx, slots.param, slots.param_out, count);
  [[maybe_unused]] const std::array<Tensor*, sizeof...(I)> states{
      few_in_place(ctx, slots.states[I].first, slots.states[I].second, count)...};
  if (param == nullptr || ((states[I] == nullptr) || ...)) return false;
  const Pointers<float, I...> to{param->data<float>(), {states[I]->template data<float>()...}};
  to.dense(make(*rate->data<float>()), grad->data<float>(), 0, count);
  return true;
}

}  // namespace detail

/// Updates a small f32 parameter with a dense gradient and all states in place. Returns false if
/// this is not such a case, or if anything is wrong; the caller then uses update(). make as above.
template <size_t kStates, typename Make>
bool update_few(const KernelContext& ctx, const UpdateSlots& slots, const Make& make) {
  return detail::update_few(ctx, slots, make, std::make_index_sequence<kStates>{});
}

/// The kernel of an op that updates one parameter by a formula that needs only attributes and the
/// rate; make as above.
template <size_t kStates, typename Make>
Kernel update_kernel(UpdateSlots slots, Sparse sparse, Make make) {
  auto merger = std::make_shared<RowMerger>();
  return [slots = std::move(slots), sparse, merger, make](const KernelContext& ctx) -> Status {
    if (update_few<kStates>(ctx, slots, make)) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const UpdateTensors tensors, update_tensors(ctx, slots));
    return update<kStates>(ctx, tensors, sparse, *merger, make);
  };
}

/// Adds the name of the parameter to an error of an op that updates several parameters.
/// \param k  index of the parameter
///
/// \param params  names of all parameters
Status in_parameter(Status status, llvm::ArrayRef<std::string> params, size_t k);
/// Names of the parameters of an op.
std::vector<std::string> parameter_names(const KernelSetup& op);

/// The same for an op that updates several parameters, one after another.
///
/// \param slots  slots of each parameter
/// \param make   a formula for each parameter
template <size_t kStates, typename Make>
Kernel merged_kernel(const KernelSetup& op, std::vector<UpdateSlots> slots, Sparse sparse,
                     std::vector<Make> make) {
  for (const UpdateSlots& each : slots) accept_layouts(op, each);
  const auto merger = std::make_shared<RowMerger>();
  const auto update_one = [sparse, merger](const KernelContext& ctx, const UpdateSlots& slots_of,
                                           const Make& formula) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const UpdateTensors tensors, update_tensors(ctx, slots_of));
    return update<kStates>(ctx, tensors, sparse, *merger, formula);
  };
  return [slots = std::move(slots), make = std::move(make), update_one,
          params = parameter_names(op)](const KernelContext& ctx) -> Status {
    for (size_t k = 0; k < slots.size(); ++k) {
      if (update_few<kStates>(ctx, slots[k], make[k])) continue;
      if (Status status = update_one(ctx, slots[k], make[k]); !status.ok())
        return in_parameter(std::move(status), params, k);
    }
    return Ok();
  };
}

}  // namespace millrace::kernels::optimizer
