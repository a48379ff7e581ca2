#include <algorithm>
#include <memory>
#include <optional>

#include "kernels/gpu/ops/row_groups.h"
#include "kernels/gpu/ops/row_picks.h"
#include "kernels/gpu/ops/words.h"
#include "kernels/gpu/resident.h"
#include "kernels/registry.h"

// Ops over sequences with one element per row.
namespace millrace::gpu {
namespace sequence_columns {
namespace {

bool is_column(const Tensor& tensor) {
  return tensor.rank() > 0 && tensor.numel() == tensor.dim(0);
}

StatusOr<Kernel> gpu_sequence_softmax(const KernelSetup& op) {
  return Kernel([&memory = memory_of(op), x = op.input("X"), out = op.output("Out"),
                 held = std::make_shared<DeviceNumbers>()](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> offsets, innermost_here(*from));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, out, *from));
    MILLRACE_RETURN_IF_ERROR(all_floats({from}));
    if (to == nullptr || !is_column(*from)) return refuse("X {}", describe(*from));
    MILLRACE_ASSIGN_OR_RETURN(const int64_t* const there, held->get(memory, offsets));
    return rows(memory.device(), SequenceSoftmax{floats(from), there, floats(to)},
                static_cast<int64_t>(offsets.size()) - 1);
  });
}

StatusOr<Kernel> gpu_sequence_softmax_grad(const KernelSetup& op) {
  return Kernel([&memory = memory_of(op), x = op.input("X"), out = op.input("Out"),
                 dout = op.input("Out@GRAD"), dx = op.output("X@GRAD"),
                 held = std::make_shared<DeviceNumbers>()](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const y, needed_here(ctx, out, "Out"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed_here(ctx, dout, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> offsets, innermost_here(*from));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, dx, *from));
    if (to == nullptr) return Ok();
    MILLRACE_RETURN_IF_ERROR(all_floats({y, d, from}));
    if (!is_column(*from) || y->numel() != from->numel() || d->numel() != from->numel())
      return refuse("Out {} and Out@GRAD {}", describe(*y), describe(*d));
    to->set_lod(from->lod());
    MILLRACE_ASSIGN_OR_RETURN(const int64_t* const there, held->get(memory, offsets));
    return rows(memory.device(), SequenceSoftmaxGradient{floats(y), floats(d), there, floats(to)},
                static_cast<int64_t>(offsets.size()) - 1);
  });
}

// The bytes of the number 1; none for types that the op does not have.
std::optional<uint64_t> bits_of_one(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return 0x3F800000U;
    case DType::kFloat64:
      return 0x3FF0000000000000U;
    case DType::kFloat16:
      return 0x3C00U;
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUint8:
    case DType::kBool:
      return 1U;
    default:
      return std::nullopt;
  }
}

Status mask(Device& device, const Tensor& lengths, int64_t most, uint64_t one, Tensor& to) {
  const bool is_wide = lengths.dtype() == DType::kInt64;
  return with_word(dtype_size(to.dtype()), [&](auto tag) -> Status {
    using Word = decltype(tag);
    if constexpr (std::is_integral_v<Word>) {
      return each(
          device,
          MaskSteps<Word>{is_wide ? reinterpret_cast<const int64_t*>(lengths.raw()) : nullptr,
                          is_wide ? nullptr : reinterpret_cast<const int32_t*>(lengths.raw()),
                          reinterpret_cast<Word*>(to.raw()), Divider(most), static_cast<Word>(one)},
          to.numel());
    } else {
      return {StatusCode::kInternal, "no element has 16 bytes"};
    }
  });
}

StatusOr<Kernel> gpu_sequence_mask(const KernelSetup& op) {
  const DType dtype = op.dtype_attr("out_dtype");
  const std::optional<uint64_t> one = bits_of_one(dtype);
  if (!one) return refuse("a mask of {}", dtype_name(dtype));
  return Kernel([&memory = memory_of(op), x = op.input("X"), given = op.input("MaxLenTensor"),
                 y = op.output("Y"), maxlen = int64_t{op.attr<int32_t>("maxlen")}, dtype,
                 one = *one](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const lengths, needed_here(ctx, x, "X"));
    if (lengths->dtype() != DType::kInt64 && lengths->dtype() != DType::kInt32)
      return refuse("lengths are {}", describe(*lengths));
    int64_t most = maxlen;
    std::vector<int64_t> numbers;
    if (const Tensor* const tensor = ctx.find_in(given)) {
      MILLRACE_RETURN_IF_ERROR(read_ids(memory, *tensor, numbers));
      if (numbers.size() != 1 || numbers[0] <= 0) return refuse("MaxLenTensor");
      most = numbers[0];
    } else if (most <= 0) {
      MILLRACE_RETURN_IF_ERROR(read_ids(memory, *lengths, numbers));
      most = 0;
      for (const int64_t number : numbers) most = std::max(most, number);
    }
    if (most == 0 || lengths->numel() * most >= int64_t{1} << 31)
      return refuse("{} rows of {}", lengths->numel(), most);
    Dims dims(lengths->dims().begin(), lengths->dims().end());
    dims.push_back(most);
    Tensor& to = ctx.out(y);
    if (is_same_memory(to, *lengths)) return refuse("Y shares memory with X");
    MILLRACE_RETURN_IF_ERROR(resize_resident(to, dtype, dims, memory, "a mask of sequences"));
    return mask(memory.device(), *lengths, most, one, to);
  });
}

StatusOr<Kernel> gpu_sequence_enumerate(const KernelSetup& op) {
  return Kernel([x = op.input("X"), out = op.output("Out"),
                 window = int64_t{op.attr<int32_t>("win_size")},
                 pad = int64_t{op.attr<int32_t>("pad_value")},
                 picks = std::make_shared<RowPicks>(memory_of(op)),
                 held = std::make_shared<DeviceNumbers>()](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> offsets, outermost_here(*from));
    Tensor& to = ctx.out(out);
    if ((from->dtype() != DType::kInt64 && from->dtype() != DType::kInt32) || !is_column(*from) ||
        to.dtype() != from->dtype() || to.numel() != from->numel() * window ||
        is_same_memory(to, *from))
      return refuse("{} becomes {}", describe(*from), describe(to));
    std::vector<int64_t> tokens;
    for (size_t i = 0; i + 1 < offsets.size(); ++i) {
      for (int64_t r = offsets[i]; r < offsets[i + 1]; ++r) {
        for (int64_t k = 0; k < window; ++k) tokens.push_back(r + k < offsets[i + 1] ? r + k : -1);
      }
    }
    // the first bytes of a number of 64 bits are that of 32 bits
    MILLRACE_ASSIGN_OR_RETURN(const int64_t* const fill, held->get(picks->memory(), {pad}));
    const int64_t element = dtype_size(from->dtype());
    return picks->run(tokens, from->raw(), element, to.raw(),
                      {reinterpret_cast<const std::byte*>(fill), element});
  });
}

}  // namespace
}  // namespace sequence_columns

void add_sequence_columns(KernelRegistry& registry) {
  using namespace sequence_columns;
  registry.add("sequence_softmax", gpu_sequence_softmax);
  registry.add("sequence_softmax_grad", gpu_sequence_softmax_grad);
  registry.add("sequence_mask", gpu_sequence_mask);
  registry.add("sequence_enumerate", gpu_sequence_enumerate);
}

}  // namespace millrace::gpu
