#include "executor/gpu/open_device.h"

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/errors.h"
#include "kernels/gpu/host_device.h"
#include "kernels/gpu/module.h"

namespace millrace::executor {

StatusOr<std::shared_ptr<gpu::Context>> open_device(const std::string& name,
                                                    const ProductRounding& rounding) {
  if (name == "cpu") {
    if (rounding.tf32) return InvalidArgument("tf32 products: expected a GPU, found device 'cpu'");
    return std::shared_ptr<gpu::Context>();
  }
  const auto [kind, number] = llvm::StringRef(name).split(':');
  if (kind == "gpu" && number == "emulated") {
    if (rounding.tf32 || rounding.bf16)
      return InvalidArgument("the emulated GPU does not round factors of products");
    return std::make_shared<gpu::Context>(gpu::open_host_device());
  }
  if (kind == "gpu" && number.contains(','))
    return Unimplemented("device '{}': several GPUs are for a ParallelExecutor only", name);
  int ordinal = 0;
  const bool is_number = number.empty() || !number.getAsInteger(10, ordinal);
  if (kind != "gpu" || !is_number || ordinal < 0)
    return InvalidArgument("device: expected cpu or gpu:N, found '{}'", name);
  StatusOr<std::shared_ptr<gpu::Device>> device =
      gpu::open_gpu(ordinal, {.tf32 = rounding.tf32, .bf16 = rounding.bf16});
  if (!device.ok())
    return std::move(device).status().with_note(fmt::format("for device '{}'", name));
  return std::make_shared<gpu::Context>(*std::move(device));
}

int count_devices(const std::string& name) {
  return name.rfind("gpu:", 0) == 0 ? 1 + static_cast<int>(llvm::StringRef(name).count(',')) : 1;
}

StatusOr<std::vector<std::shared_ptr<gpu::Context>>> open_devices(const std::string& name,
                                                                  const ProductRounding& rounding) {
  std::vector<std::string> names{name};
  if (count_devices(name) > 1) {
    names.clear();
    llvm::SmallVector<llvm::StringRef, 8> numbers;
    llvm::StringRef(name).drop_front(llvm::StringRef("gpu:").size()).split(numbers, ',');
    for (const llvm::StringRef number : numbers) {
      int ordinal = 0;
      const bool is_number = !number.getAsInteger(10, ordinal);
      if (!is_number && number != "emulated")
        return InvalidArgument("device '{}': expected numbers of GPUs, found '{}'", name,
                               number.str());
      std::string one = is_number ? fmt::format("gpu:{}", ordinal) : "gpu:emulated";
      if (number != "emulated" && llvm::is_contained(names, one))
        return InvalidArgument("device '{}': {} is there twice", name, one);
      names.push_back(std::move(one));
    }
  }
  std::vector<std::shared_ptr<gpu::Context>> opened;
  for (const std::string& one : names) {
    MILLRACE_ASSIGN_OR_RETURN(std::shared_ptr<gpu::Context> context, open_device(one, rounding));
    if (context != nullptr) opened.push_back(std::move(context));
  }
  return opened;
}

}  // namespace millrace::executor
