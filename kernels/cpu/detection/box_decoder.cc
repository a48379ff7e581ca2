#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/detection/targets.h"
#include "kernels/cpu/needed.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// box_decoder_and_assign: the boxes of all classes, and the box of the best class.
namespace millrace::kernels {
namespace {

struct DecoderSlots {
  ArgIndex priors, variance, offsets, scores, decoded, assigned;
};

struct DecoderOperands {
  const Tensor* priors;
  const Tensor* variance;  // null: ones
  const Tensor* offsets;
  const Tensor* scores;
};

StatusOr<DecoderOperands> read_decoder_operands(const KernelContext& ctx,
                                                const DecoderSlots& slots) {
  DecoderOperands o{};
  MILLRACE_ASSIGN_OR_RETURN(o.priors, needed(ctx, slots.priors, "PriorBox"));
  MILLRACE_ASSIGN_OR_RETURN(o.offsets, needed(ctx, slots.offsets, "TargetBox"));
  MILLRACE_ASSIGN_OR_RETURN(o.scores, needed(ctx, slots.scores, "BoxScore"));
  o.variance = ctx.find_in(slots.variance);
  MILLRACE_RETURN_IF_ERROR(check_rows(*o.priors, 4, *o.priors, "PriorBox"));
  if (o.scores->rank() != 2)
    return ctx.error("BoxScore must be [rows, classes], found {}", describe(*o.scores));
  const int64_t classes = o.scores->dim(1);
  MILLRACE_RETURN_IF_ERROR(check_rows(*o.scores, classes, *o.priors, "BoxScore"));
  MILLRACE_RETURN_IF_ERROR(check_rows(*o.offsets, 4 * classes, *o.priors, "TargetBox"));
  const int64_t rows = o.priors->dim(0);
  if (o.offsets->dim(0) != rows || o.scores->dim(0) != rows) {
    return ctx.error("TargetBox {} and BoxScore {} must have the {} rows of PriorBox",
                     describe(*o.offsets), describe(*o.scores), rows);
  }
  if (o.variance != nullptr &&
      (o.variance->numel() != 4 || o.variance->dtype() != o.priors->dtype()))
    return ctx.error("PriorBoxVar must have 4 elements of the type of PriorBox, found {}",
                     describe(*o.variance));
  return o;
}

template <typename T>
void decode_row(const T* prior, const std::array<T, 4>& variance, T clip, const T* offsets,
                int64_t classes, T* to) {
  const T width = prior[2] - prior[0] + 1;
  const T height = prior[3] - prior[1] + 1;
  for (int64_t k = 0; k < classes; ++k, offsets += 4, to += 4) {
    const T x = variance[0] * offsets[0] * width + prior[0] + width / 2;
    const T y = variance[1] * offsets[1] * height + prior[1] + height / 2;
    const T half_width = std::exp(std::min(variance[2] * offsets[2], clip)) * width / 2;
    const T half_height = std::exp(std::min(variance[3] * offsets[3], clip)) * height / 2;
    to[0] = x - half_width;
    to[1] = y - half_height;
    to[2] = x + half_width - 1;
    to[3] = y + half_height - 1;
  }
}

template <typename T>
void decode_and_assign(const DecoderOperands& o, T clip, T* decoded, T* assigned) {
  const int64_t classes = o.scores->dim(1);
  std::array<T, 4> variance = {1, 1, 1, 1};
  if (o.variance != nullptr) std::copy_n(o.variance->data<T>(), 4, variance.begin());
  for (int64_t i = 0; i < o.priors->dim(0); ++i) {
    const T* const prior = o.priors->data<T>() + 4 * i;
    T* const boxes = decoded + i * classes * 4;
    decode_row(prior, variance, clip, o.offsets->data<T>() + i * classes * 4, classes, boxes);
    // class 0 is the background; a score of -1 or less is ignored
    const T* const scores = o.scores->data<T>() + i * classes;
    const T* best = prior;
    T most = -1;
    for (int64_t k = 1; k < classes; ++k) {
      if (!(scores[k] > most)) continue;
      most = scores[k];
      best = boxes + 4 * k;
    }
    std::copy_n(best, 4, assigned + 4 * i);
  }
}

StatusOr<Kernel> box_decoder_and_assign(const KernelSetup& op) {
  const DecoderSlots slots{op.input("PriorBox"),   op.input("PriorBoxVar"),
                           op.input("TargetBox"),  op.input("BoxScore"),
                           op.output("DecodeBox"), op.output("OutputAssignBox")};
  const auto clip = op.attr<float>("box_clip");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const DecoderOperands o, read_decoder_operands(ctx, slots));
    Tensor& decoded = ctx.out(slots.decoded);
    Tensor& assigned = ctx.out(slots.assigned);
    return dispatch<FloatTypes>(o.priors->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      MILLRACE_RETURN_IF_ERROR(decoded.resize(kDTypeOf<T>, o.offsets->dims()));
      MILLRACE_RETURN_IF_ERROR(assigned.resize(kDTypeOf<T>, o.priors->dims()));
      decode_and_assign(o, static_cast<T>(clip), decoded.data<T>(), assigned.data<T>());
      return Ok();
    });
  });
}

}  // namespace

void add_detection_box_decoder(KernelRegistry& registry) {
  registry.add("box_decoder_and_assign", box_decoder_and_assign);
}

}  // namespace millrace::kernels
