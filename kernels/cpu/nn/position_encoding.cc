#include <cmath>

#include "kernels/cpu/needed.h"
#include "kernels/cpu/nn/window.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace position_encoding {
namespace {

// Adds the encoding of positions 0, 1, ... to `steps` rows: sines in the first half of the
// features, cosines in the second, of position / 10000^(feature / (half - 1)).
template <typename T>
void encode(const T* x, int64_t steps, int64_t width, T alpha, T beta, T* out) {
  const int64_t half = width / 2;
  for (int64_t t = 0; t < steps; ++t, x += width, out += width) {
    for (int64_t k = 0; k < half; ++k) {
      const double slowness =
          half > 1 ? std::pow(10000.0, static_cast<double>(k) / static_cast<double>(half - 1))
                   : 10000.0;
      const double angle = static_cast<double>(t) / slowness;
      out[k] = x[k] * alpha + static_cast<T>(std::sin(angle)) * beta;
      out[half + k] = x[half + k] * alpha + static_cast<T>(std::cos(angle)) * beta;
    }
  }
}

StatusOr<Kernel> add_position_encoding(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  const double alpha = op.attr<float>("alpha");
  const double beta = op.attr<float>("beta");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const in, needed(ctx, x, "X"));
    const bool sequences = !in->lod().empty();
    if (in->rank() != (sequences ? 2U : 3U) || in->dims().back() % 2 != 0) {
      return ctx.error(
          "X must be [batch, steps, features] or rows with LoD, with an even number "
          "of features, found {}",
          describe(*in));
    }
    llvm::ArrayRef<int64_t> offsets;
    if (sequences) {
      offsets = in->lod().last();
      if (offsets.back() != in->dim(0))
        return ctx.error("LoD {} must end with the {} rows of X", in->lod().to_string(),
                         in->dim(0));
    }
    return dispatch<FloatTypes>(in->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const int64_t width = in->dims().back();
      const auto run = [&](int64_t row, int64_t steps) {
        encode(in->data<T>() + row * width, steps, width, static_cast<T>(alpha),
               static_cast<T>(beta), ctx.out(out).data<T>() + row * width);
      };
      if (sequences) {
        for (size_t i = 0; i + 1 < offsets.size(); ++i)
          run(offsets[i], offsets[i + 1] - offsets[i]);
      } else {
        for (int64_t i = 0; i < in->dim(0); ++i) run(i * in->dim(1), in->dim(1));
      }
      return Ok();
    });
  });
}

StatusOr<Kernel> add_position_encoding_grad(const KernelSetup& op) {
  const ArgIndex out_grad = op.input("Out@GRAD");
  const ArgIndex x_grad = op.output("X@GRAD");
  const double alpha = op.attr<float>("alpha");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const dout, needed(ctx, out_grad, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const dx, result_like(ctx, x_grad, *dout));
    if (dx == nullptr) return Ok();
    return dispatch<FloatTypes>(dout->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* const from = dout->data<T>();
      T* const to = dx->data<T>();
      for (int64_t i = 0; i < dout->numel(); ++i) to[i] = from[i] * static_cast<T>(alpha);
      return Ok();
    });
  });
}

}  // namespace
}  // namespace position_encoding

void add_nn_position_encoding(KernelRegistry& registry) {
  using namespace position_encoding;
  registry.add("add_position_encoding", add_position_encoding);
  registry.add("add_position_encoding_grad", add_position_encoding_grad);
}

}  // namespace millrace::kernels
