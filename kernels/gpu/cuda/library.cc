#include "kernels/gpu/cuda/library.h"

#include <dlfcn.h>

#include "framework/base/errors.h"

namespace millrace::gpu {

StatusOr<SharedLibrary> SharedLibrary::open(std::initializer_list<const char*> names) {
  std::string reasons;
  for (const char* const name : names) {
    if (void* const handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE))
      return SharedLibrary(handle, name);
    const char* const reason = dlerror();
    reasons += (reasons.empty() ? "" : "; ") + std::string(reason == nullptr ? name : reason);
  }
  return Unimplemented("{}", reasons);
}

StatusOr<void*> SharedLibrary::find_symbol(const char* name) const {
  void* const symbol = dlsym(handle_, name);
  if (symbol == nullptr) return Unimplemented("{} has no function {}", name_, name);
  return symbol;
}

}  // namespace millrace::gpu
