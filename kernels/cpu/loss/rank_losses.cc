#include "kernels/cpu/loss/pointwise.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/registry.h"

// Losses of two scores and a label that says which score should be larger.
namespace millrace::kernels {
namespace {

StatusOr<Kernel> rank_loss(const KernelSetup& op) {
  return map_kernel<3>(op, {"Label", "Left", "Right"}, "Out",
                       [](auto label, auto left, auto right) {
                         const auto difference = left - right;
                         return vmath::softplus(difference) - label * difference;
                       });
}
StatusOr<Kernel> rank_loss_grad(const KernelSetup& op) {
  const auto slope = [](auto left, auto right, auto label) {
    return vmath::sigmoid(left - right) - label;
  };
  return in_order(map_kernel<4>(op, {"Left", "Right", "Label", "Out@GRAD"}, "Left@GRAD",
                                [slope](auto left, auto right, auto label, auto dout) {
                                  return slope(left, right, label) * dout;
                                }),
                  map_kernel<4>(op, {"Right", "Left", "Label", "Out@GRAD"}, "Right@GRAD",
                                [slope](auto right, auto left, auto label, auto dout) {
                                  return -slope(left, right, label) * dout;
                                }));
}

StatusOr<Kernel> margin_rank_loss(const KernelSetup& op) {
  const float margin = op.attr<float>("margin");
  const auto loss = [margin](auto x1, auto x2, auto label) {
    return static_cast<decltype(x1)>(margin) - label * (x1 - x2);
  };
  return in_order(
      map_kernel<3>(op, {"X1", "X2", "Label"}, "Activated",
                    [loss](auto x1, auto x2, auto label) {
                      using T = decltype(x1);
                      return loss(x1, x2, label) > 0 ? T(1) : T(0);
                    }),
      map_kernel<3>(op, {"X1", "X2", "Label"}, "Out", [loss](auto x1, auto x2, auto label) {
        const auto value = loss(x1, x2, label);
        return value > 0 ? value : value * 0;
      }));
}
StatusOr<Kernel> margin_rank_loss_grad(const KernelSetup& op) {
  return in_order(
      map_kernel<3>(op, {"Label", "Activated", "Out@GRAD"}, "X1@GRAD",
                    [](auto label, auto active, auto dout) { return -label * active * dout; }),
      map_kernel<3>(op, {"Label", "Activated", "Out@GRAD"}, "X2@GRAD",
                    [](auto label, auto active, auto dout) { return label * active * dout; }));
}

}  // namespace

void add_loss_rank_losses(KernelRegistry& registry) {
  registry.add("rank_loss", rank_loss);
  registry.add("rank_loss_grad", rank_loss_grad);
  registry.add("margin_rank_loss", margin_rank_loss);
  registry.add("margin_rank_loss_grad", margin_rank_loss_grad);
}

}  // namespace millrace::kernels
