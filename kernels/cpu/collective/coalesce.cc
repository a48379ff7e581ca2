#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/dispatch.h"
#include "kernels/registry.h"

// coalesce_tensor: places tensors in one buffer, so that one reduction handles all of them.
namespace millrace::kernels {
namespace coalesce {
namespace {

// Default alignment of the parts in the buffer: a page.
constexpr int64_t kPageBytes = 4096;

struct Coalesce {
  ArgRange inputs;
  ArgRange outputs;
  ArgIndex buffer;
  DType dtype = DType::kFloat32;
  bool copies = false;
  bool fills = false;
  double constant = 0;
  int64_t align = 1;          ///< alignment in bytes
  int64_t element_bytes = 4;  ///< element size that the layout of the parts assumes

  /// Number of buffer elements reserved for a part of numel elements.
  [[nodiscard]] int64_t room(int64_t numel) const {
    const int64_t bytes = (numel * element_bytes + align - 1) / align * align;
    return bytes / element_bytes;
  }
};

StatusOr<Coalesce> settings(const KernelSetup& op) {
  Coalesce c;
  c.inputs = op.inputs("Input");
  c.outputs = op.outputs("Output");
  c.buffer = op.output("FusedOutput");
  if (c.inputs.count != c.outputs.count || !c.buffer) {
    return op.error("found {} inputs and {} outputs, expected equal numbers and a FusedOutput",
                    c.inputs.count, c.outputs.count);
  }
  c.dtype = op.dtype_attr("dtype");
  c.copies = op.attr<bool>("copy_data");
  c.fills = !c.copies && op.attr<bool>("set_constant");  // copying goes first
  c.constant = op.attr<float>("constant");
  const auto given = op.attr<int64_t>("align_size");
  const auto bytes = op.attr<int64_t>("user_defined_size_of_dtype");
  if (bytes != -1 && bytes <= 0)
    return op.error("attribute 'user_defined_size_of_dtype' is {}, expected -1 or above 0", bytes);
  c.element_bytes = bytes == -1 ? dtype_size(c.dtype) : bytes;
  if (op.attr<bool>("use_align")) c.align = given > 0 ? given : kPageBytes;
  return c;
}

// Offset of the first element of each part, then the length of the buffer.
StatusOr<std::vector<int64_t>> places(const KernelContext& ctx, const Coalesce& c) {
  std::vector<int64_t> begins{0};
  for (int32_t k = 0; k < c.inputs.count; ++k) {
    const Tensor& part = ctx.in(c.inputs, k);
    if (part.dtype() != c.dtype) {
      return ctx.error("Input[{}] is {}, expected elements of {}", k, describe(part),
                       dtype_name(c.dtype));
    }
    begins.push_back(begins.back() + c.room(part.numel()));
  }
  return begins;
}

// Inputs may also be outputs, so each run makes a new buffer and replaces the outputs last.
Status run(const KernelContext& ctx, const Coalesce& c) {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> begins, places(ctx, c));
  MILLRACE_ASSIGN_OR_RETURN(Tensor buffer, Tensor::create(c.dtype, {begins.back()}));
  const int64_t size = dtype_size(c.dtype);
  if (buffer.bytes() > 0) std::memset(buffer.raw(), 0, static_cast<size_t>(buffer.bytes()));
  if (c.fills) {
    MILLRACE_RETURN_IF_ERROR(dispatch<AllFloatTypes>(c.dtype, [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      std::fill_n(buffer.data<T>(), buffer.numel(), static_cast<T>(static_cast<float>(c.constant)));
      return Ok();
    }));
  }
  std::vector<Tensor> parts;
  for (int32_t k = 0; k < c.inputs.count; ++k) {
    const Tensor& from = ctx.in(c.inputs, k);
    const int64_t begin = begins[static_cast<size_t>(k)];
    if (c.copies && from.bytes() > 0) {
      std::memcpy(buffer.raw() + begin * size, from.raw(), static_cast<size_t>(from.bytes()));
    }
    parts.push_back(buffer.share_rows(begin, begin + from.numel()));
    parts.back().set_dims(from.dims());
  }
  for (int32_t k = 0; k < c.outputs.count; ++k) {
    if (ctx.has_out(c.outputs, k)) ctx.out(c.outputs, k) = std::move(parts[static_cast<size_t>(k)]);
  }
  ctx.out(c.buffer) = std::move(buffer);
  return Ok();
}

StatusOr<Kernel> coalesce_tensor(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(const Coalesce c, settings(op));
  return Kernel([c](const KernelContext& ctx) { return run(ctx, c); });
}

}  // namespace
}  // namespace coalesce

void add_collective_coalesce(KernelRegistry& registry) {
  registry.add("coalesce_tensor", coalesce::coalesce_tensor);
}

}  // namespace millrace::kernels
