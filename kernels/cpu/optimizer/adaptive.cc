#include <algorithm>
#include <cmath>

#include "kernels/cpu/optimizer/update.h"
#include "kernels/registry.h"

// Updates that scale the rate by the size of past gradients, element by element.
namespace millrace::kernels {
namespace {

using optimizer::Sparse;
using optimizer::update_kernel;
using optimizer::update_slots;

template <typename T>
struct Adagrad {
  T rate;
  T old_share;  // decay of the sum of squares
  T new_share;
  T epsilon;
  void operator()(T& param, T grad, T& moment) const {
    moment = old_share * moment + new_share * grad * grad;
    param -= rate * grad / (std::sqrt(moment) + epsilon);
  }
};

Kernel adagrad_kernel(const KernelSetup& op, double old_share, double new_share, Sparse sparse) {
  const double epsilon = op.attr<float>("epsilon");
  return update_kernel<1>(update_slots(op, {{"Moment", "MomentOut"}}), sparse, [=](auto rate) {
    using T = decltype(rate);
    return Adagrad<T>{rate, static_cast<T>(old_share), static_cast<T>(new_share),
                      static_cast<T>(epsilon)};
  });
}

StatusOr<Kernel> adagrad(const KernelSetup& op) {
  return adagrad_kernel(op, 1, 1, Sparse::kOwnRows);
}

StatusOr<Kernel> decayed_adagrad(const KernelSetup& op) {
  const double decay = op.attr<float>("decay");
  return adagrad_kernel(op, decay, 1 - decay, Sparse::kAllRows);
}

template <typename T>
struct Adadelta {
  T rate;
  T rho;
  T epsilon;
  void operator()(T& param, T grad, T& grads, T& updates) const {
    grads = rho * grads + (1 - rho) * grad * grad;
    const T update = -std::sqrt((updates + epsilon) / (grads + epsilon)) * grad;
    updates = rho * updates + (1 - rho) * update * update;
    param += rate * update;
  }
};

StatusOr<Kernel> adadelta(const KernelSetup& op) {
  const double rho = op.attr<float>("rho");
  const double epsilon = op.attr<float>("epsilon");
  auto slots = update_slots(
      op, {{"AvgSquaredGrad", "AvgSquaredGradOut"}, {"AvgSquaredUpdate", "AvgSquaredUpdateOut"}});
  slots.default_rate = 1.0;
  return update_kernel<2>(std::move(slots), Sparse::kAllRows, [=](auto rate) {
    using T = decltype(rate);
    return Adadelta<T>{rate, static_cast<T>(rho), static_cast<T>(epsilon)};
  });
}

template <typename T>
struct Rmsprop {
  T rate;
  T decay;
  T epsilon;
  T momentum;
  void operator()(T& param, T grad, T& square, T& moment) const {
    square = decay * square + (1 - decay) * grad * grad;
    moment = momentum * moment + rate * grad / std::sqrt(square + epsilon);
    param -= moment;
  }
};

template <typename T>
struct CenteredRmsprop {
  T rate;
  T decay;
  T epsilon;
  T momentum;
  void operator()(T& param, T grad, T& square, T& moment, T& mean) const {
    mean = decay * mean + (1 - decay) * grad;
    square = decay * square + (1 - decay) * grad * grad;
    moment = momentum * moment + rate * grad / std::sqrt(square - mean * mean + epsilon);
    param -= moment;
  }
};

StatusOr<Kernel> rmsprop(const KernelSetup& op) {
  const double decay = op.attr<float>("decay");
  const double epsilon = op.attr<float>("epsilon");
  const double momentum = op.attr<float>("momentum");
  const auto make = [=]<template <typename> class Formula>(auto rate) {
    using T = decltype(rate);
    return Formula<T>{rate, static_cast<T>(decay), static_cast<T>(epsilon),
                      static_cast<T>(momentum)};
  };
  if (!op.attr<bool>("centered")) {
    return update_kernel<2>(
        update_slots(op, {{"MeanSquare", "MeanSquareOut"}, {"Moment", "MomentOut"}}),
        Sparse::kAllRows, [make](auto rate) { return make.template operator()<Rmsprop>(rate); });
  }
  if (!op.input("MeanGrad") || !op.output("MeanGradOut"))
    return op.error("attribute 'centered' is true, but MeanGrad or MeanGradOut is missing");
  return update_kernel<3>(
      update_slots(
          op,
          {{"MeanSquare", "MeanSquareOut"}, {"Moment", "MomentOut"}, {"MeanGrad", "MeanGradOut"}}),
      Sparse::kAllRows,
      [make](auto rate) { return make.template operator()<CenteredRmsprop>(rate); });
}

}  // namespace

void add_optimizer_adaptive(KernelRegistry& registry) {
  registry.add("adagrad", adagrad);
  registry.add("decayed_adagrad", decayed_adagrad);
  registry.add("adadelta", adadelta);
  registry.add("rmsprop", rmsprop);
}

}  // namespace millrace::kernels
