#pragma once

#include "kernels/cpu/optimizer/update.h"

namespace millrace::kernels::optimizer {

/// Additional arguments of adam, adamw, adamax and lamb.
/// Tensors named *_tensor replace the attribute of the same name; absent ones are not read.
struct MomentSlots {
  ArgIndex beta1_pow;  ///< one element, beta1 ^ step
  ArgIndex beta1_pow_out;
  ArgIndex beta2_pow;  ///< absent in adamax
  ArgIndex beta2_pow_out;
  ArgIndex skip;          ///< one bool: true skips the update, as after an overflow
  ArgIndex beta1_tensor;  ///< one element, may be absent
  ArgIndex beta2_tensor;
  ArgIndex epsilon_tensor;   ///< one element, may be absent
  double beta1 = 0;          ///< attribute
  double beta2 = 0;          ///< attribute
  double epsilon = 0;        ///< attribute
  bool keep_powers = false;  ///< another op updates them
};
/// \param k  index of the parameter, for ops that update several
MomentSlots moment_slots(const KernelSetup& op, size_t k = 0);

/// Values of one run.
struct MomentSettings {
  double beta1 = 0;  ///< of the tensor, else the attribute; also the next two
  double beta2 = 0;
  double epsilon = 0;
  double beta1_pow = 0;  ///< before this update
  double beta2_pow = 0;  ///< 0 for adamax, which does not have it
  bool skip = false;     ///< skip the update
};
/// Reads the tensors of this run. Errors: kExecution for a tensor without elements.
StatusOr<MomentSettings> moment_settings(const KernelContext& ctx, const MomentSlots& slots);

/// Multiplies the powers by their betas, unless the update is skipped or another op does it.
Status update_powers(const KernelContext& ctx, const MomentSlots& slots, const MomentSettings& s,
                     const UpdateTensors& t);

}  // namespace millrace::kernels::optimizer
