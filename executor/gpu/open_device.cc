#include "executor/gpu/open_device.h"

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
    return Unimplemented("device '{}': programs run on one GPU only", name);
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

}  // namespace millrace::executor
