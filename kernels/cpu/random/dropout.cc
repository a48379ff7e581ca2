#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/gradient.h"
#include "kernels/cpu/int_list.h"
#include "kernels/cpu/random/bits.h"
#include "kernels/cpu/random/dropout_args.h"
#include "kernels/cpu/strided.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

template <typename T>
void scale_all(CpuDevice& device, const T* x, T* out, int64_t count, float factor) {
  using C = Compute<T>;
  const auto f = static_cast<C>(factor);
  device.parallel_for(count, 32768, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = static_cast<T>(static_cast<C>(x[i]) * f);
  });
}

constexpr int64_t kDropoutBlock = 256;

// An element is dropped if its 32-bit random number is below the threshold. A threshold of 2^32
// (probability 1) does not fit and is represented by `all`.
struct Threshold {
  uint32_t below;
  bool all;
  explicit Threshold(float probability)
      : below(static_cast<uint32_t>(
            std::min(static_cast<double>(probability) * 0x1p32, 4294967295.0))),
        all(probability >= 1) {}
};

// Sets 1 for each kept element of a block, else 0.
void draw_block(uint64_t key, int64_t first, int64_t count, Threshold t, uint8_t* kept) {
  if (t.all) {
    std::memset(kept, 0, static_cast<size_t>(count));
    return;
  }
  uint32_t words[kDropoutBlock];
  const auto base = static_cast<uint64_t>(first) / 2;
  for (uint64_t i = 0; i < kDropoutBlock / 2; ++i) {
    const uint64_t bits = random_bits(key, base + i);
    words[i] = static_cast<uint32_t>(bits);
    words[kDropoutBlock / 2 + i] = static_cast<uint32_t>(bits >> 32U);
  }
  for (int64_t i = 0; i < count; ++i) kept[i] = words[i] >= t.below ? 1 : 0;
}

template <typename T>
void drop(CpuDevice& device, uint64_t key, const DropoutArgs& args, const T* x, T* out,
          uint8_t* mask, int64_t count) {
  using C = Compute<T>;
  const Threshold threshold(args.probability);
  const auto scale = static_cast<C>(args.kept_scale());
  const int64_t blocks = (count + kDropoutBlock - 1) / kDropoutBlock;
  device.parallel_for(blocks, 64, [&](int64_t begin, int64_t end) {
    uint8_t room[kDropoutBlock];
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b * kDropoutBlock;
      const int64_t n = std::min(kDropoutBlock, count - first);
      uint8_t* const kept = mask == nullptr ? room : mask + first;
      draw_block(key, first, n, threshold, kept);
      const T* const from = x + first;
      T* const to = out + first;
      for (int64_t i = 0; i < n; ++i)
        to[i] = kept[i] != 0 ? static_cast<T>(static_cast<C>(from[i]) * scale) : T(C(0));
    }
  });
}

StatusOr<Kernel> dropout(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex seed_arg = op.input("Seed");
  const ArgIndex out = op.output("Out");
  const ArgIndex mask_arg = op.output("Mask");
  const DropoutArgs args(op);
  const bool fixed = op.attr<bool>("fix_seed");
  const auto seed = op.attr<int64_t>("seed");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    Tensor& to = ctx.out(out);
    uint64_t key = 0;
    if (!args.is_test) {
      if (const Tensor* const given = ctx.find_in(seed_arg)) {
        MILLRACE_ASSIGN_OR_RETURN(const int64_t value, one_int(*given, "Seed"));
        key = stream_key(ctx.device(), value);
      } else {
        key = fixed ? random_bits(1, static_cast<uint64_t>(seed)) : ctx.device().next_seed();
      }
    }
    Tensor* const mask = ctx.find_out(mask_arg);
    return dispatch<AllFloatTypes>(from.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      if (args.is_test) {
        scale_all(ctx.device(), from.data<T>(), to.data<T>(), from.numel(), args.test_scale());
      } else {
        drop(ctx.device(), key, args, from.data<T>(), to.data<T>(),
             mask == nullptr ? nullptr : mask->data<uint8_t>(), from.numel());
      }
      return Ok();
    });
  });
}

StatusOr<Kernel> dropout_grad(const KernelSetup& op) {
  const ArgIndex mask_arg = op.input("Mask");
  const GradientArgs gradient(op);
  const DropoutArgs args(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    const GradientTensors g = gradient.find(ctx, StartsAs::kUnset);
    if (!g) return Ok();
    if (args.is_test) {
      return dispatch<AllFloatTypes>(g.from->dtype(), [&](auto tag) -> Status {
        using T = typename decltype(tag)::type;
        scale_all(ctx.device(), g.from->data<T>(), g.to->data<T>(), g.from->numel(),
                  args.test_scale());
        return Ok();
      });
    }
    const Tensor* const mask = ctx.find_in(mask_arg);
    if (mask == nullptr || mask->dtype() != DType::kUint8 || mask->numel() != g.from->numel())
      return ctx.error("Mask must be u8 and have the {} elements of Out@GRAD", g.from->numel());
    return dispatch<AllFloatTypes>(g.from->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      using C = Compute<T>;
      const auto scale = static_cast<C>(args.kept_scale());
      const T* const dy = g.from->data<T>();
      const uint8_t* const kept = mask->data<uint8_t>();
      T* const dx = g.to->data<T>();
      ctx.device().parallel_for(g.from->numel(), 32768, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          dx[i] = kept[i] != 0 ? static_cast<T>(static_cast<C>(dy[i]) * scale) : T(C(0));
      });
      return Ok();
    });
  });
}

}  // namespace

void add_random_dropout(KernelRegistry& registry) {
  registry.add("dropout", dropout);
  registry.add("dropout_grad", dropout_grad);
}

}  // namespace millrace::kernels
