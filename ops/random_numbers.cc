#include "ops/random_numbers.h"

#include <llvm/ADT/STLExtras.h>

namespace millrace::ops {

bool draws_random_numbers(const OpDef& def) {
  if (def.forward() != nullptr) return false;
  return def.type() == "bernoulli" ||
         llvm::any_of(def.attrs(), [](const AttrDef& attr) { return attr.name.contains("seed"); });
}

}  // namespace millrace::ops
