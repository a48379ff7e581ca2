#include <cstring>
#include <random>
#include <vector>

#include "kernels/cpu/int_list.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/random/bits.h"
#include "kernels/cpu/random/shape_arg.h"
#include "kernels/cpu/strided.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

// empty, bernoulli, seed and shuffle_batch.
namespace millrace::kernels {
namespace {

// Zeros, so that a program that reads them by mistake behaves the same in every run.
StatusOr<Kernel> empty_tensor(const KernelSetup& op) {
  const ArgIndex out = op.output("Out");
  const ShapeArg shape(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, shape.create(ctx, out));
    fill_zero(ctx.device(), *to);
    return Ok();
  });
}

StatusOr<Kernel> bernoulli(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, result_like(ctx, out, from));
    const uint64_t key = ctx.device().next_seed();
    return dispatch<FloatTypes>(from.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; i < from.numel(); ++i) {
        const T p = from.data<T>()[i];
        if (!(p >= 0 && p <= 1))
          return ctx.error("X has {} at {}, expected a probability", static_cast<double>(p), i);
        const double unit = unit_double(random_bits(key, static_cast<uint64_t>(i)));
        to->data<T>()[i] = unit < static_cast<double>(p) ? T(1) : T(0);
      }
      return Ok();
    });
  });
}

StatusOr<Kernel> seed_kernel(const KernelSetup& op) {
  const ArgIndex out = op.output("Out");
  const auto given = op.attr<int32_t>("seed");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_RETURN_IF_ERROR(size_output(ctx.out(out), DType::kInt32, {1}));
    // readers would interpret 0 as no seed
    const auto drawn = static_cast<int32_t>(ctx.device().next_seed() >> 33U) | 1;
    *ctx.out(out).data<int32_t>() = given != 0 ? given : drawn;
    return Ok();
  });
}

// A random cyclic permutation, which moves every element; all of them are equally likely.
void shuffle_all(uint64_t key, int64_t* places, int64_t count) {
  for (int64_t i = 0; i < count; ++i) places[i] = i;
  for (int64_t i = count - 1; i > 0; --i) {
    const uint64_t bits = random_bits(key, static_cast<uint64_t>(i));
    std::swap(places[i], places[bits % static_cast<uint64_t>(i)]);
  }
}

int64_t rows_but_last(const Tensor& x) {
  return x.rank() == 0 || x.dim(-1) == 0 ? 0 : x.numel() / x.dim(-1);
}

StatusOr<Kernel> shuffle_batch(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex seed = op.input("Seed");
  const ArgIndex out = op.output("Out");
  const ArgIndex places = op.output("ShuffleIdx");
  const ArgIndex seed_out = op.output("SeedOut");
  const auto startup = op.attr<int64_t>("startup_seed");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    int64_t start = startup;
    const Tensor* const given = ctx.find_in(seed);
    if (given != nullptr && given->initialized()) {
      MILLRACE_ASSIGN_OR_RETURN(start, one_int(*given, "Seed"));
    }
    const int64_t rows = rows_but_last(from);
    const Tensor copy = from.share();  // Out may be the same tensor as X
    MILLRACE_RETURN_IF_ERROR(ctx.out(places).resize(DType::kInt64, {rows}));
    int64_t* const to_row = ctx.out(places).data<int64_t>();
    shuffle_all(random_bits(0x2545f4914f6cdd1dULL, static_cast<uint64_t>(start)), to_row, rows);
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, result_like(ctx, out, copy));
    MILLRACE_ASSIGN_OR_RETURN(const std::byte* const source, bytes_apart(ctx.device(), copy, *to));
    const int64_t bytes = rows == 0 ? 0 : copy.bytes() / rows;
    for (int64_t i = 0; i < rows; ++i)
      std::memcpy(to->raw() + to_row[i] * bytes, source + i * bytes, static_cast<size_t>(bytes));
    MILLRACE_RETURN_IF_ERROR(size_output(ctx.out(seed_out), DType::kInt64, {1}));
    // the next seed is computed as in the original
    std::minstd_rand0 engine(static_cast<std::minstd_rand0::result_type>(start));
    *ctx.out(seed_out).data<int64_t>() = static_cast<int64_t>(engine());
    return Ok();
  });
}

StatusOr<Kernel> shuffle_batch_grad(const KernelSetup& op) {
  const ArgIndex places = op.input("ShuffleIdx");
  const ArgIndex dout = op.input("Out@GRAD");
  const ArgIndex dx = op.output("X@GRAD");
  return Kernel([=](const KernelContext& ctx) -> Status {
    if (!dx) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const index, needed(ctx, places, "ShuffleIdx"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const grad, needed(ctx, dout, "Out@GRAD"));
    const int64_t rows = rows_but_last(*grad);
    if (index->dtype() != DType::kInt64 || index->numel() != rows)
      return ctx.error("ShuffleIdx must have a row for each of Out@GRAD {}, found {}",
                       describe(*grad), describe(*index));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, result_like(ctx, dx, *grad));
    MILLRACE_ASSIGN_OR_RETURN(const std::byte* const source, bytes_apart(ctx.device(), *grad, *to));
    const int64_t bytes = rows == 0 ? 0 : grad->bytes() / rows;
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t from = index->data<int64_t>()[i];
      if (from < 0 || from >= rows)
        return ctx.error("ShuffleIdx has {} at {}, expected one in [0, {})", from, i, rows);
      std::memcpy(to->raw() + i * bytes, source + from * bytes, static_cast<size_t>(bytes));
    }
    return Ok();
  });
}

}  // namespace

void add_random_samples(KernelRegistry& registry) {
  registry.add("empty", empty_tensor);
  registry.add("bernoulli", bernoulli);
  registry.add("seed", seed_kernel);
  registry.add("shuffle_batch", shuffle_batch);
  registry.add("shuffle_batch_grad", shuffle_batch_grad);
}

}  // namespace millrace::kernels
