#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/cpu/optimizer/update.h"
#include "kernels/cpu/scalar.h"
#include "kernels/registry.h"

// Updates that shrink parameters towards zero by l1 and l2.
namespace millrace::kernels {
namespace {

using optimizer::Sparse;
using optimizer::update_kernel;
using optimizer::update_slots;

// A negative l1 has no effect, as in the original.
template <typename T>
T shrunk(T value, T rate, T l1, T l2) {
  const T size = std::max(std::abs(value) - rate * std::max(l1, T(0)), T(0));
  return std::copysign(size, value) / (1 + rate * l2);
}

template <typename T>
struct ProximalDescent {
  T rate;
  T l1;
  T l2;
  void operator()(T& param, T grad) const { param = shrunk(param - rate * grad, rate, l1, l2); }
};

template <typename T>
struct ProximalAdagrad {
  T rate;
  T l1;
  T l2;
  void operator()(T& param, T grad, T& moment) const {
    moment += grad * grad;
    param = shrunk(param - rate * grad / std::sqrt(moment), rate, l1, l2);
  }
};

StatusOr<Kernel> proximal_gd(const KernelSetup& op) {
  const double l1 = op.attr<float>("l1");
  const double l2 = op.attr<float>("l2");
  return update_kernel<0>(update_slots(op, {}), Sparse::kAllRows, [=](auto rate) {
    using T = decltype(rate);
    return ProximalDescent<T>{rate, static_cast<T>(l1), static_cast<T>(l2)};
  });
}

StatusOr<Kernel> proximal_adagrad(const KernelSetup& op) {
  const double l1 = op.attr<float>("l1");
  const double l2 = op.attr<float>("l2");
  return update_kernel<1>(update_slots(op, {{"Moment", "MomentOut"}}), Sparse::kAllRows,
                          [=](auto rate) {
                            using T = decltype(rate);
                            return ProximalAdagrad<T>{rate, static_cast<T>(l1), static_cast<T>(l2)};
                          });
}

// The negated power of the accumulator that the rate of ftrl uses. The square root is by far the
// most common and handled separately.
template <typename T>
struct Root {
  T operator()(T x) const { return std::sqrt(x); }
};
template <typename T>
struct ProximalPower {
  T exponent;
  T operator()(T x) const { return std::pow(x, exponent); }
};

template <typename T, template <typename> class PowerOf>
struct Ftrl {
  T rate;
  T l1;
  T l2;
  PowerOf<T> power;
  void operator()(T& param, T grad, T& square, T& linear) const {
    const T sum = square + grad * grad;
    const T new_power = power(sum);
    linear += grad - (new_power - power(square)) / rate * param;
    const T target = l1 * std::copysign(T(1), linear) - linear;  // l1 may be negative
    param = std::abs(linear) > l1 ? target / (new_power / rate + 2 * l2) : T(0);
    square = sum;
  }
};

// A tiny l1 and l2 keep the divisor from being zero if the accumulators are zero.
constexpr double kFloor = 1e-10;

// Ftrl divides by the rate: 0 would make NaN of all elements.
Kernel with_rate(const KernelSetup& op, Kernel update) {
  return [rate = op.input("LearningRate"), grad = op.input("Grad"),
          param = optimizer::parameter_names(op),
          update = std::move(update)](const KernelContext& ctx) -> Status {
    const Tensor* const tensor = ctx.find_in(rate);
    if (tensor == nullptr || !tensor->initialized()) return update(ctx);
    MILLRACE_ASSIGN_OR_RETURN(const double number, first_number(*tensor, "LearningRate"));
    if (number != 0) return update(ctx);
    const auto* const rows = ctx.in_value(grad).get_if<SelectedRows>();
    if (rows != nullptr && rows->rows.empty()) return update(ctx);
    return optimizer::in_parameter(ctx.error("LearningRate is 0, by which ftrl divides"), param, 0);
  };
}

StatusOr<Kernel> ftrl(const KernelSetup& op) {
  const double l1 = op.attr<float>("l1") + kFloor;
  const double l2 = op.attr<float>("l2") + kFloor;
  const double power = op.attr<float>("lr_power");
  auto slots = update_slots(
      op, {{"SquaredAccumulator", "SquaredAccumOut"}, {"LinearAccumulator", "LinearAccumOut"}});
  if (power == -0.5) {
    return with_rate(op, update_kernel<2>(std::move(slots), Sparse::kOwnRows, [=](auto rate) {
                       using T = decltype(rate);
                       return Ftrl<T, Root>{rate, static_cast<T>(l1), static_cast<T>(l2), {}};
                     }));
  }
  return with_rate(op, update_kernel<2>(std::move(slots), Sparse::kOwnRows, [=](auto rate) {
                     using T = decltype(rate);
                     return Ftrl<T, ProximalPower>{
                         rate, static_cast<T>(l1), static_cast<T>(l2), {static_cast<T>(-power)}};
                   }));
}

}  // namespace

void add_optimizer_proximal(KernelRegistry& registry) {
  registry.add("proximal_gd", proximal_gd);
  registry.add("proximal_adagrad", proximal_adagrad);
  registry.add("ftrl", ftrl);
}

}  // namespace millrace::kernels
