#include "kernels/register_all.h"

namespace millrace::kernels {

void add_rnn_kernels(KernelRegistry& /*registry*/) {}

}  // namespace millrace::kernels
