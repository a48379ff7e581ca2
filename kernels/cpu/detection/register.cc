#include "kernels/register_all.h"

namespace millrace::kernels {

void add_detection_kernels(KernelRegistry& /*registry*/) {}

}  // namespace millrace::kernels
