#include "kernels/gpu/ops/channels_first.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/gpu/ops/walk.h"
#include "kernels/gpu/resident.h"

namespace millrace::gpu {
namespace channels_first {
namespace {

// [batch, channels, spatial...] of [batch, spatial..., channels].
Dims first_dims(llvm::ArrayRef<int64_t> last) {
  Dims dims(last.begin(), last.end());
  std::rotate(dims.begin() + 1, dims.end() - 1, dims.end());
  return dims;
}

// Copies between the two orders; `last` and `first` hold the same elements.
Status copy_order(Device& device, Tensor& last, Tensor& first, bool to_first) {
  const auto of_last = row_major_strides(last.dims());
  const auto of_first = row_major_strides(first.dims());
  Tensor& to = to_first ? first : last;
  Tensor& from = to_first ? last : first;
  Box<2> box;
  for (size_t i = 0; i < last.rank(); ++i) {
    // dim i of the target in the other tensor
    const size_t rank = last.rank();
    const size_t k = i == 0     ? 0
                     : to_first ? (i == 1 ? rank - 1 : i - 1)
                                : (i + 1 == rank ? 1 : i + 1);
    box.push(to.dims()[i],
             {to_first ? of_first[i] : of_last[i], to_first ? of_last[k] : of_first[k]});
  }
  return move_elements(device, box, to, 0, from, 0);
}

// One argument of the op; null while the op lacks it.
struct Argument {
  bool is_image = false;
  std::shared_ptr<Value> copy = std::make_shared<Value>();  // of an image, channels first
};

std::vector<Argument> arguments_of(const KernelSetup& op, llvm::ArrayRef<Slot> slots,
                                   std::initializer_list<const char*> images) {
  std::vector<Argument> arguments;
  for (const Slot& slot : slots) {
    const llvm::StringRef name = op.op().name_of(slot.name);
    const bool is_image =
        std::any_of(images.begin(), images.end(), [&](const char* image) { return name == image; });
    for (size_t k = 0; k < slot.args.size(); ++k) arguments.emplace_back().is_image = is_image;
  }
  return arguments;
}

// The arguments of an op and the kernel for channels in dim 1.
class ChannelsFirstCall {
 public:
  ChannelsFirstCall(const KernelSetup& op, std::initializer_list<const char*> images, Kernel kernel)
      : memory_(memory_of(op)),
        kernel_(std::move(kernel)),
        inputs_(arguments_of(op, op.op().inputs(), images)),
        outputs_(arguments_of(op, op.op().outputs(), images)) {}

  Status run(const KernelContext& ctx) {
    std::vector<Value*> table;
    std::vector<int32_t> in;
    std::vector<int32_t> out;
    for (size_t k = 0; k < inputs_.size(); ++k) {
      const ArgRange arg{static_cast<int32_t>(k), 1};
      Value* value = ctx.has_in(arg, 0) ? const_cast<Value*>(&ctx.in_value(arg, 0)) : nullptr;
      MILLRACE_RETURN_IF_ERROR(substitute(inputs_[k], /*copies=*/true, value));
      enter(value, table, in);
    }
    for (size_t k = 0; k < outputs_.size(); ++k) {
      const ArgRange arg{static_cast<int32_t>(k), 1};
      Value* value = ctx.has_out(arg, 0) ? &ctx.out_value(arg, 0) : nullptr;
      MILLRACE_RETURN_IF_ERROR(substitute(outputs_[k], /*copies=*/false, value));
      enter(value, table, out);
    }
    MILLRACE_RETURN_IF_ERROR(kernel_(KernelContext(table.data(), in, out, ctx.device())));
    for (size_t k = 0; k < outputs_.size(); ++k) {
      const ArgRange arg{static_cast<int32_t>(k), 1};
      if (!outputs_[k].is_image || !ctx.has_out(arg, 0)) continue;
      auto* const to = ctx.out_value(arg, 0).get_if<Tensor>();
      auto* const from = outputs_[k].copy->get_if<Tensor>();
      if (to == nullptr || from == nullptr || to->rank() < 3 || to->numel() == 0) continue;
      MILLRACE_RETURN_IF_ERROR(copy_order(memory_.device(), *to, *from, /*to_first=*/false));
    }
    return Ok();
  }

 private:
  static void enter(Value* value, std::vector<Value*>& table, std::vector<int32_t>& places) {
    places.push_back(value == nullptr ? -1 : static_cast<int32_t>(table.size()));
    if (value != nullptr) table.push_back(value);
  }

  // Replaces an image by a tensor in the other order.
  Status substitute(Argument& argument, bool copies, Value*& value) {
    if (!argument.is_image || value == nullptr) return Ok();
    auto* const tensor = value->get_if<Tensor>();
    if (tensor == nullptr || !tensor->initialized() || tensor->rank() < 3) return Ok();
    auto& first = argument.copy->as<Tensor>();
    MILLRACE_RETURN_IF_ERROR(resize_resident(first, tensor->dtype(), first_dims(tensor->dims()),
                                             memory_, "image with the channels first"));
    value = argument.copy.get();
    if (!copies || tensor->numel() == 0) return Ok();
    return copy_order(memory_.device(), *tensor, first, /*to_first=*/true);
  }

  Memory& memory_;
  Kernel kernel_;
  std::vector<Argument> inputs_;
  std::vector<Argument> outputs_;
};

}  // namespace
}  // namespace channels_first

Kernel in_channels_first(const KernelSetup& op, bool last,
                         std::initializer_list<const char*> images, Kernel kernel) {
  if (!last) return kernel;
  return [call = std::make_shared<channels_first::ChannelsFirstCall>(
              op, images, std::move(kernel))](const KernelContext& ctx) { return call->run(ctx); };
}

}  // namespace millrace::gpu
