#include <algorithm>
#include <cmath>

#include "kernels/cpu/loss/pointwise.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/registry.h"

// Losses of one prediction and one label, each with a formula and its derivative.
namespace millrace::kernels {
namespace {

template <typename T>
T positive(T x) {
  return x < T(0) ? T(0) : x;
}
// log(1 + exp(-|x|))
template <typename T>
T log_tail(T x) {
  return vmath::log1p_unit(vmath::exp(x > T(0) ? -x : x));
}

// The formula limits logarithms, so that it has a plausible result for any number.
Status check_probabilities(const Tensor& x) {
  return dispatch<FloatTypes>(x.dtype(), [&](auto tag) -> Status {
    const auto values = x.values<typename decltype(tag)::type>();
    for (size_t i = 0; i < values.size(); ++i)
      if (!(values[i] >= 0 && values[i] <= 1))
        return KernelContext::error("X has {} at {}, expected a probability from 0 to 1", values[i],
                                    i);
    return Ok();
  });
}

StatusOr<Kernel> bce_loss(const KernelSetup& op) {
  Kernel loss = map_kernel<2>(op, {"X", "Label"}, "Out", [](auto x, auto label) {
    using T = decltype(x);
    constexpr T kLeast = -100;  // least logarithm
    return (label - 1) * std::max(vmath::log(1 - x), kLeast) -
           label * std::max(vmath::log(x), kLeast);
  });
  return in_order(
      [x = op.input("X")](const KernelContext& ctx) { return check_probabilities(ctx.in(x)); },
      std::move(loss));
}
StatusOr<Kernel> bce_loss_grad(const KernelSetup& op) {
  return map_kernel<3>(op, {"X", "Label", "Out@GRAD"}, "X@GRAD", [](auto x, auto label, auto dout) {
    using T = decltype(x);
    return dout * (x - label) / std::max((1 - x) * x, T(1e-12));
  });
}

StatusOr<Kernel> log_loss(const KernelSetup& op) {
  const float epsilon = op.attr<float>("epsilon");
  return map_kernel<2>(op, {"Predicted", "Labels"}, "Loss", [epsilon](auto x, auto label) {
    using T = decltype(x);
    return -(label * vmath::log(x + T(epsilon))) - (1 - label) * vmath::log(1 - x + T(epsilon));
  });
}
StatusOr<Kernel> log_loss_grad(const KernelSetup& op) {
  const float epsilon = op.attr<float>("epsilon");
  return map_kernel<3>(op, {"Predicted", "Labels", "Loss@GRAD"}, "Predicted@GRAD",
                       [epsilon](auto x, auto label, auto dout) {
                         using T = decltype(x);
                         return dout *
                                ((1 - label) / (1 - x + T(epsilon)) - label / (x + T(epsilon)));
                       });
}

StatusOr<Kernel> hinge_loss(const KernelSetup& op) {
  return map_kernel<2>(op, {"Logits", "Labels"}, "Loss",
                       [](auto x, auto label) { return positive(1 - x * (2 * label - 1)); });
}
StatusOr<Kernel> hinge_loss_grad(const KernelSetup& op) {
  return map_kernel<3>(op, {"Logits", "Labels", "Loss@GRAD"}, "Logits@GRAD",
                       [](auto x, auto label, auto dout) {
                         using T = decltype(x);
                         const T sign = 2 * label - 1;
                         return x * sign < 1 ? -dout * sign : T(0);
                       });
}

// The label encodes a click and, from 0 on, the score of a teacher: below -1 no click, in [-1, 0) a
// click, in [0, 1) no click and score `label`, from 1 on a click and score `label - 1`.
StatusOr<Kernel> teacher_student(const KernelSetup& op) {
  return map_kernel<2>(op, {"X", "Label"}, "Y", [](auto x, auto label) {
    using T = decltype(x);
    const T click = positive(x) + log_tail(x);
    const T score = label < 1 ? label : label - 1;
    const T teacher = label < 0 ? T(0) : click - x * score;
    const T clicked = label < -1 ? click : (label < 0 || label >= 1 ? click - x : click);
    return clicked + teacher;
  });
}
StatusOr<Kernel> teacher_student_grad(const KernelSetup& op) {
  const float most = op.attr<float>("soft_max_up_bound");
  const float least = op.attr<float>("soft_max_lower_bound");
  return map_kernel<3>(op, {"X", "Label", "Y@GRAD"}, "X@GRAD",
                       [most, least](auto x, auto label, auto dout) {
                         using T = decltype(x);
                         const T y = vmath::sigmoid(x);
                         const T slope = label < -1 ? y : (label < 0 ? y - 1 : 2 * y - label);
                         return x < T(most) && x > T(least) ? slope * dout : T(0);
                       });
}

// Old programs name the difference Residual and compute it even without a gradient op.
StatusOr<Kernel> huber_loss(const KernelSetup& op) {
  const float delta = op.attr<float>("delta");
  return in_order(map_kernel<2>(op, {"X", "Y"}, "Residual", [](auto x, auto y) { return y - x; }),
                  map_kernel<2>(op, {"X", "Y"}, "Out", [delta](auto x, auto y) {
                    using T = decltype(x);
                    const T r = std::abs(y - x);
                    return r <= T(delta) ? T(0.5) * r * r : T(delta) * (r - T(0.5) * T(delta));
                  }));
}
StatusOr<Kernel> huber_loss_grad(const KernelSetup& op) {
  const float delta = op.attr<float>("delta");
  const auto slope = [delta](auto r) {
    using T = decltype(r);
    return std::min(std::max(r, -T(delta)), T(delta));
  };
  return in_order(map_kernel<2>(op, {"Residual", "Out@GRAD"}, "X@GRAD",
                                [slope](auto r, auto dout) { return -slope(r) * dout; }),
                  map_kernel<2>(op, {"Residual", "Out@GRAD"}, "Y@GRAD",
                                [slope](auto r, auto dout) { return slope(r) * dout; }));
}

StatusOr<Kernel> modified_huber(const KernelSetup& op) {
  return in_order(map_kernel<2>(op, {"X", "Y"}, "IntermediateVal",
                                [](auto x, auto y) { return x * (2 * y - 1); }),
                  map_kernel<2>(op, {"X", "Y"}, "Out", [](auto x, auto y) {
                    using T = decltype(x);
                    const T v = x * (2 * y - 1);
                    const T inner = v < 1 ? (1 - v) * (1 - v) : T(0);
                    return v < -1 ? -4 * v : inner;
                  }));
}
StatusOr<Kernel> modified_huber_grad(const KernelSetup& op) {
  return map_kernel<3>(op, {"IntermediateVal", "Y", "Out@GRAD"}, "X@GRAD",
                       [](auto v, auto y, auto dout) {
                         using T = decltype(v);
                         const T inner = v < 1 ? -2 * (1 - v) : T(0);
                         return (v < -1 ? T(-4) : inner) * (2 * y - 1) * dout;
                       });
}

}  // namespace

void add_loss_elementwise_losses(KernelRegistry& registry) {
  registry.add("bce_loss", bce_loss);
  registry.add("bce_loss_grad", bce_loss_grad);
  registry.add("log_loss", log_loss);
  registry.add("log_loss_grad", log_loss_grad);
  registry.add("hinge_loss", hinge_loss);
  registry.add("hinge_loss_grad", hinge_loss_grad);
  registry.add("teacher_student_sigmoid_loss", teacher_student);
  registry.add("teacher_student_sigmoid_loss_grad", teacher_student_grad);
  registry.add("huber_loss", huber_loss);
  registry.add("huber_loss_grad", huber_loss_grad);
  registry.add("modified_huber_loss", modified_huber);
  registry.add("modified_huber_loss_grad", modified_huber_grad);
}

}  // namespace millrace::kernels
