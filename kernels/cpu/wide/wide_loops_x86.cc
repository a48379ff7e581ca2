#include "kernels/cpu/activation/gelu.h"
#include "kernels/cpu/attention_rows.h"
#include "kernels/cpu/cpu_isa.h"
#include "kernels/cpu/nn/few_places_loops.h"
#include "kernels/cpu/nn/norm_columns.h"
#include "kernels/cpu/wide_loops.h"

// Everything called here is inlined (flatten), so that only these functions need such a processor.
namespace millrace::kernels {
namespace {

[[gnu::flatten, gnu::target("avx512f,avx512vl,avx512bw,avx512dq,prefer-vector-width=512")]] void
gelu_wide(const void* formula, const float* v, const float* dout, float* out, int64_t count) {
  detail::value_loop<Gelu, float>(formula, v, dout, out, count);
}

[[gnu::flatten, gnu::target("avx512f,avx512vl,avx512bw,avx512dq,prefer-vector-width=512")]] void
gelu_grad_wide(const void* formula, const float* v, const float* dout, float* out, int64_t count) {
  detail::grad_loop<Gelu, float>(formula, v, dout, out, count);
}

[[gnu::flatten, gnu::target("avx512f,avx512vl,avx512bw,avx512dq,prefer-vector-width=512")]] void
softmax_wide(float* x, const float* mask, bool mask_advances, int64_t count) {
  masked_softmax(x, mask, mask_advances, count);
}

[[gnu::flatten, gnu::target("avx512f,avx512vl,avx512bw,avx512dq,prefer-vector-width=512")]] void
softmax_grad(const float* p, float* dp, int64_t count) {
  softmax_gradient(p, dp, count);
}

[[gnu::flatten, gnu::target("avx512f,avx512vl,avx512bw,avx512dq,prefer-vector-width=512")]] void
norm_forward(const NormForward& f, int64_t begin, int64_t end) {
  detail::norm_forward(f, begin, end);
}

[[gnu::flatten, gnu::target("avx512f,avx512vl,avx512bw,avx512dq,prefer-vector-width=512")]] void
norm_backward(const NormBackward& g, int64_t begin, int64_t end) {
  detail::norm_backward(g, begin, end);
}

[[gnu::flatten, gnu::target("avx512f,avx512vl,avx512bw,avx512dq,prefer-vector-width=512")]] void
few_places_forward(const PlaceSizes& sizes, const float* images, const float* weights,
                   float* sums) {
  detail::few_places_forward<detail::WidePlaces>(sizes, images, weights, sums);
}

[[gnu::flatten, gnu::target("avx512f,avx512vl,avx512bw,avx512dq,prefer-vector-width=512")]] void
few_places_data(const PlaceSizes& sizes, const float* images, const float* weights, float* sums) {
  detail::few_places_data<detail::WidePlaces>(sizes, images, weights, sums);
}

[[gnu::flatten, gnu::target("avx512f,avx512vl,avx512bw,avx512dq,prefer-vector-width=512")]] void
few_places_weights(const size_t* taps, int64_t tap_count, const PlacePair* pairs, const float* x,
                   const float* y, float* weights) {
  detail::few_places_weights<detail::WidePlaces>(taps, tap_count, pairs, x, y, weights);
}

[[gnu::flatten,
  gnu::target("avx512f,avx512vl,avx512bw,avx512dq,prefer-vector-width=512")]] Int8Facts
round_to_int8(const Int8Grid& grid, const float* x, int8_t* out, int64_t count) {
  return detail::round_to_int8(grid, x, out, count);
}

constexpr WideLoops kLoops = {
    .gelu = gelu_wide,
    .gelu_grad = gelu_grad_wide,
    .masked_softmax = softmax_wide,
    .softmax_gradient = softmax_grad,
    .norm_forward = norm_forward,
    .norm_backward = norm_backward,
    .few_places_forward = few_places_forward,
    .few_places_data = few_places_data,
    .few_places_weights = few_places_weights,
    .round_to_int8 = round_to_int8,
};

}  // namespace

const WideLoops* wide_loops() {
  static const bool supported = cpu_isa_allows("avx512");
  return supported ? &kLoops : nullptr;
}

}  // namespace millrace::kernels
