#include "ops/quant/defs.h"
#include "ops/register_all.h"

namespace millrace::ops {

void register_quant(OpRegistry& registry) {
  add_fake_quant_ops(registry);
  add_linear_quant_ops(registry);
  add_dictionary_ops(registry);
}

}  // namespace millrace::ops
