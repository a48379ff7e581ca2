#include <algorithm>
#include <cstring>

#include "kernels/cpu/gradient.h"
#include "kernels/cpu/labels.h"
#include "kernels/cpu/merge_rows.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/scalar.h"
#include "kernels/cpu/sequence/sequence.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// Conversion between sequences with LoD and rows of fixed length.
namespace millrace::kernels {
namespace {

// Copies whole time steps between packed rows and padded rows.
struct PadLayout {
  llvm::ArrayRef<int64_t> offsets;
  int64_t length = 0;      ///< time steps per padded row
  int64_t step_bytes = 0;  ///< bytes per time step

  template <typename Body>
  void each(Body&& body) const {
    for (size_t i = 0; i + 1 < offsets.size(); ++i) {
      body(static_cast<int64_t>(i) * length * step_bytes, offsets[i] * step_bytes,
           static_cast<size_t>((offsets[i + 1] - offsets[i]) * step_bytes));
    }
  }
};

void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

int64_t longest(llvm::ArrayRef<int64_t> offsets) {
  int64_t most = 0;
  for (size_t i = 0; i + 1 < offsets.size(); ++i)
    most = std::max(most, offsets[i + 1] - offsets[i]);
  return most;
}

// Fills the time steps after the end of each sequence with the padding.
void fill_padding(const PadLayout& layout, const Tensor& pad, std::byte* out) {
  const auto pad_bytes = static_cast<size_t>(pad.bytes());
  const auto row_bytes = static_cast<size_t>(layout.length * layout.step_bytes);
  layout.each([&](int64_t padded, int64_t /*packed*/, size_t bytes) {
    for (size_t at = bytes; at < row_bytes; at += pad_bytes)
      copy_bytes(out + padded + at, pad.raw(), pad_bytes);
  });
}

StatusOr<Kernel> sequence_pad(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex pad = op.input("PadValue");
  const ArgIndex out = op.output("Out");
  const ArgIndex length = op.output("Length");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> offsets, outer_sequences_of(from, "X"));
    const int64_t width = row_width(from);
    const Tensor& value = ctx.in(pad);
    if (value.dtype() != from.dtype() || (value.numel() != 1 && value.numel() != width))
      return ctx.error("PadValue must be one element or one step of X {}, found {}", describe(from),
                       describe(value));
    Tensor& to = ctx.out(out);
    const PadLayout layout{offsets, to.dim(1), width * dtype_size(from.dtype())};
    if (longest(offsets) > layout.length)
      return ctx.error("attribute 'padded_length' is {}, but the longest sequence has {} steps",
                       layout.length, longest(offsets));
    if (layout.step_bytes > 0) fill_padding(layout, value, to.raw());
    layout.each([&](int64_t padded, int64_t packed, size_t bytes) {
      copy_bytes(to.raw() + padded, from.raw() + packed, bytes);
    });
    if (Tensor* const lengths = ctx.find_out(length)) {
      for (size_t i = 0; i + 1 < offsets.size(); ++i)
        lengths->data<int64_t>()[i] = offsets[i + 1] - offsets[i];
    }
    return Ok();
  });
}

// Copies the padded rows back to packed sequences.
StatusOr<Kernel> sequence_pad_grad(const KernelSetup& op) {
  return required_gradient(op, [=](const KernelContext& ctx, const GradientTensors& g) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> offsets, outer_sequences_of(*g.x, "X"));
    const int64_t step = row_width(*g.x);
    const auto sequences = static_cast<int64_t>(offsets.size()) - 1;
    if (g.from->rank() < 2 || g.from->dim(0) != sequences ||
        g.from->numel() != sequences * g.from->dim(1) * step || g.from->dtype() != g.x->dtype() ||
        longest(offsets) > g.from->dim(1))
      return ctx.error("Out@GRAD must have a padded row for each of the {} sequences, found {}",
                       sequences, describe(*g.from));
    PadLayout{offsets, g.from->dim(1), step * dtype_size(g.x->dtype())}.each(
        [&](int64_t padded, int64_t packed, size_t bytes) {
          copy_bytes(g.to->raw() + packed, g.from->raw() + padded, bytes);
        });
    return Ok();
  });
}

StatusOr<Kernel> sequence_unpad(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex length = op.input("Length");
  const ArgIndex out = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    const Tensor& given = ctx.in(length);
    if (given.numel() != from.dim(0))
      return ctx.error("Length must have one number per row of X {}, found {}", describe(from),
                       describe(given));
    MILLRACE_ASSIGN_OR_RETURN(const int64_t* const lengths, integers_of(ctx, given, 0));
    LodLevel level{0};
    for (int64_t i = 0; i < from.dim(0); ++i) {
      if (lengths[i] < 0 || lengths[i] > from.dim(1))
        return ctx.error("length {} is {}, expected one in [0, {}]", i, lengths[i], from.dim(1));
      level.push_back(level.back() + lengths[i]);
    }
    Dims dims{level.back()};
    if (from.rank() == 2) dims.push_back(1);
    dims.append(from.dims().begin() + 2, from.dims().end());
    Tensor& to = ctx.out(out);
    MILLRACE_RETURN_IF_ERROR(to.resize(from.dtype(), dims));
    const int64_t step = row_width(to) * dtype_size(from.dtype());
    PadLayout{level, from.dim(1), step}.each([&](int64_t padded, int64_t packed, size_t bytes) {
      copy_bytes(to.raw() + packed, from.raw() + padded, bytes);
    });
    to.set_lod(Lod({std::move(level)}));
    return Ok();
  });
}

StatusOr<Kernel> sequence_unpad_grad(const KernelSetup& op) {
  return required_gradient(op, [=](const KernelContext& ctx, const GradientTensors& g) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> offsets,
                              sequences_of(*g.from, "Out@GRAD"));
    const int64_t step = row_width(*g.from) * dtype_size(g.from->dtype());
    if (g.from->dtype() != g.x->dtype() ||
        g.x->dim(0) != static_cast<int64_t>(offsets.size()) - 1 ||
        g.x->numel() != g.x->dim(0) * g.x->dim(1) * row_width(*g.from) ||
        longest(offsets) > g.x->dim(1))
      return ctx.error("Out@GRAD must have the sequences of X {}, found {}", describe(*g.x),
                       describe(*g.from));
    if (g.to->bytes() > 0) std::memset(g.to->raw(), 0, static_cast<size_t>(g.to->bytes()));
    PadLayout{offsets, g.x->dim(1), step}.each([&](int64_t padded, int64_t packed, size_t bytes) {
      copy_bytes(g.to->raw() + padded, g.from->raw() + packed, bytes);
    });
    return Ok();
  });
}

StatusOr<Kernel> sequence_mask(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex given = op.input("MaxLenTensor");
  const ArgIndex y = op.output("Y");
  const int64_t attribute = op.attr<int32_t>("maxlen");
  const DType dtype = op.dtype_attr("out_dtype");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& lengths = ctx.in(x);
    MILLRACE_ASSIGN_OR_RETURN(const int64_t* const length, integers_of(ctx, lengths, 0));
    int64_t most = attribute;
    if (const Tensor* const tensor = ctx.find_in(given)) {
      MILLRACE_ASSIGN_OR_RETURN(const double value, first_number(*tensor, "MaxLenTensor"));
      most = static_cast<int64_t>(value);
      if (most <= 0) return ctx.error("MaxLenTensor is {}, expected a positive length", most);
    }
    if (most <= 0) {
      most = 0;
      for (int64_t i = 0; i < lengths.numel(); ++i) most = std::max(most, length[i]);
    }
    Dims dims(lengths.dims().begin(), lengths.dims().end());
    dims.push_back(most);
    MILLRACE_RETURN_IF_ERROR(ctx.out(y).resize(dtype, dims));
    return dispatch<AllTypes>(dtype, [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      T* to = ctx.out(y).data<T>();
      for (int64_t i = 0; i < lengths.numel(); ++i) {
        const int64_t ones = std::clamp<int64_t>(length[i], 0, most);
        to = std::fill_n(to, ones, T(1));
        to = std::fill_n(to, most - ones, T(0));
      }
      return Ok();
    });
  });
}

}  // namespace

void add_sequence_pad(KernelRegistry& registry) {
  registry.add("sequence_pad", sequence_pad);
  registry.add("sequence_pad_grad", sequence_pad_grad);
  registry.add("sequence_unpad", sequence_unpad);
  registry.add("sequence_unpad_grad", sequence_unpad_grad);
  registry.add("sequence_mask", sequence_mask);
}

}  // namespace millrace::kernels
