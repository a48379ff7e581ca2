#pragma once

#include "kernels/gpu/functors/loss.h"
#include "kernels/gpu/ops/args.h"
#include "kernels/gpu/resident.h"

namespace millrace::gpu {

/// Leaves labels that are no class to the CPU kernel, which reports them. Checked only where they
/// are in process memory; other labels give NaN.
inline Status check_known_labels(Device& device, const Tensor& label, const Labels& labels) {
  const ResidentLayout* const there = resident(label);
  if (there == nullptr || there->host() == nullptr) return Ok();
  device.note_unrepeatable();
  const auto* const from = reinterpret_cast<const int64_t*>(there->host()->raw());
  const Labels here{from, labels.classes, labels.ignored};
  for (int64_t row = 0; row < label.numel(); ++row) {
    if (!here.is_ignored(row) && !here.is_good(row))
      return refuse("label {} is {}, no class", row, from[row]);
  }
  return Ok();
}

/// Labels of `count` rows. Errors: rejects other numbers and types of labels.
inline StatusOr<Labels> class_labels_here(const Tensor& label, int64_t count, int64_t classes,
                                          int64_t ignored) {
  if (label.dtype() != DType::kInt64 || label.numel() != count)
    return refuse("labels {} for {} rows", describe(label), count);
  return Labels{reinterpret_cast<const int64_t*>(label.raw()), classes, ignored};
}

/// softmax_with_cross_entropy with soft labels, or with classes in any dim (row_losses.cc).
Kernel softmax_loss_along(const KernelSetup& op);
Kernel softmax_loss_along_grad(const KernelSetup& op);
/// cross_entropy with soft labels.
Kernel soft_label_loss(const KernelSetup& op);
Kernel soft_label_loss_grad(const KernelSetup& op);
/// sigmoid_cross_entropy_with_logits with weights or normalized (point_losses.cc).
Kernel weighted_logistic_loss(const KernelSetup& op);
Kernel weighted_logistic_loss_grad(const KernelSetup& op);

}  // namespace millrace::gpu
