#include "kernels/registry.h"

#include <algorithm>

namespace millrace::kernels {

std::vector<llvm::StringRef> KernelRegistry::types() const {
  std::vector<llvm::StringRef> types;
  for (const auto& entry : makers_) types.push_back(entry.getKey());
  std::sort(types.begin(), types.end());
  return types;
}

}  // namespace millrace::kernels
