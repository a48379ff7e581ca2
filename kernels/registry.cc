#include "kernels/registry.h"

#include <algorithm>

#include "framework/base/registered_twice.h"

namespace millrace::kernels {

void KernelRegistry::add(llvm::StringRef type, KernelMaker maker) {
  if (!makers_.try_emplace(type, maker).second) abort_registered_twice("the kernel of op", type);
}

std::vector<llvm::StringRef> KernelRegistry::types() const {
  std::vector<llvm::StringRef> types;
  for (const auto& entry : makers_) types.push_back(entry.getKey());
  std::sort(types.begin(), types.end());
  return types;
}

}  // namespace millrace::kernels
