#include <algorithm>

#include <xxhash.h>

#include "kernels/cpu/needed.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// Features of ranking networks: show and click counts, hashed ids.
namespace millrace::kernels {
namespace {

// Number of columns with counts of shows and clicks.
constexpr int64_t kCounts = 2;

Status check_columns(const KernelContext& ctx, const Tensor& x, bool use_cvm, const Tensor& y) {
  const int64_t width = x.rank() != 2 ? -1 : use_cvm ? x.dim(1) : x.dim(1) - kCounts;
  if (width >= 0 && y.numel() == x.dim(0) * width && y.dtype() == x.dtype()) return Ok();
  return ctx.error("found {} for X {}, expected {} columns", describe(y), describe(x), width);
}

StatusOr<Kernel> cvm(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex y = op.output("Y");
  const bool use_cvm = op.attr<bool>("use_cvm");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    Tensor& to = ctx.out(y);
    if (from.rank() != 2 || from.dim(1) < kCounts)
      return ctx.error("X must have 2 columns at least, found {}", describe(from));
    MILLRACE_RETURN_IF_ERROR(check_columns(ctx, from, use_cvm, to));
    const int64_t width = from.dim(1);
    return dispatch<FloatTypes>(from.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      for (int64_t r = 0; r < from.dim(0); ++r) {
        const T* const row = from.data<T>() + r * width;
        if (!use_cvm) {
          std::copy(row + kCounts, row + width, to.data<T>() + r * (width - kCounts));
          continue;
        }
        T* const out = to.data<T>() + r * width;
        const T shows = vmath::log(row[0] + 1);
        const T clicks = vmath::log(row[1] + 1);
        std::copy(row + kCounts, row + width, out + kCounts);
        out[0] = shows;
        out[1] = clicks - shows;
      }
      return Ok();
    });
  });
}

// The gradient of the two columns is replaced by the counts of their sequence, as the original's
// trainers expect.
StatusOr<Kernel> cvm_grad(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex counts = op.input("CVM");
  const ArgIndex dy = op.input("Y@GRAD");
  const ArgIndex dx = op.output("X@GRAD");
  const bool use_cvm = op.attr<bool>("use_cvm");
  return Kernel([=](const KernelContext& ctx) -> Status {
    if (!dx) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const given, needed(ctx, counts, "CVM"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed(ctx, dy, "Y@GRAD"));
    MILLRACE_RETURN_IF_ERROR(check_columns(ctx, *from, use_cvm, *d));
    const Lod& lod = from->lod();
    const int64_t rows = from->dim(0);
    const int64_t entries = lod.empty() ? rows : lod.sequences(0);
    if (given->numel() < entries * kCounts || given->dtype() != from->dtype() ||
        (!lod.empty() && lod.level(0).back() != rows))
      return ctx.error("CVM must have a row for each of the {} sequences of X, found {}", entries,
                       describe(*given));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, result_like(ctx, dx, *from));
    return dispatch<FloatTypes>(from->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      const int64_t width = from->dim(1);
      const int64_t d_width = use_cvm ? width : width - kCounts;
      int64_t entry = 0;
      for (int64_t r = 0; r < rows; ++r) {
        if (lod.empty()) entry = r;
        while (!lod.empty() && lod.level(0)[static_cast<size_t>(entry) + 1] <= r) ++entry;
        T* const out = to->data<T>() + r * width;
        const T* const row = d->data<T>() + (r + 1) * d_width;
        std::copy_n(given->data<T>() + entry * kCounts, kCounts, out);
        std::copy(row - (width - kCounts), row, out + kCounts);
      }
      return Ok();
    });
  });
}

StatusOr<Kernel> hash(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  const int64_t hashes = op.attr<int32_t>("num_hash");
  const auto modulus = static_cast<uint64_t>(op.attr<int64_t>("mod_by"));
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    const int64_t rows = from.dim(0);
    const auto bytes = static_cast<size_t>(rows == 0 ? 0 : from.bytes() / rows);
    return dispatch<IntTypes>(from.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      T* to = ctx.out(out).data<T>();
      for (int64_t r = 0; r < rows; ++r) {
        const std::byte* const row = from.raw() + static_cast<size_t>(r) * bytes;
        for (int64_t seed = 0; seed < hashes; ++seed)
          *to++ = static_cast<T>(XXH64(row, bytes, static_cast<XXH64_hash_t>(seed)) % modulus);
      }
      return Ok();
    });
  });
}

}  // namespace

void add_feature_ranking(KernelRegistry& registry) {
  registry.add("cvm", cvm);
  registry.add("cvm_grad", cvm_grad);
  registry.add("hash", hash);
}

}  // namespace millrace::kernels
