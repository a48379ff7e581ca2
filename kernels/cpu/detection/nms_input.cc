#include "kernels/cpu/detection/nms_input.h"

#include <algorithm>
#include <array>

#include <llvm/ADT/STLExtras.h>

#include "kernels/cpu/detection/boxes.h"

namespace millrace::kernels {

NmsAttrs::NmsAttrs(const KernelSetup& op)
    : background(op.attr<int64_t>("background_label")),
      score_threshold(op.attr<float>("score_threshold")),
      nms_top_k(op.attr<int64_t>("nms_top_k")),
      keep_top_k(op.attr<int64_t>("keep_top_k")),
      nms_threshold(op.attr<float>("nms_threshold")),
      eta(op.attr<float>("nms_eta")),
      normalized(op.attr<bool>("normalized")) {}

StatusOr<NmsInput> read_nms_input(const Tensor& boxes, const Tensor& scores, const Tensor* counts,
                                  bool takes_polygons) {
  NmsInput input;
  const bool alike = boxes.rank() == 3 && boxes.dtype() == scores.dtype();
  if (alike && scores.rank() == 3 && scores.dim(0) == boxes.dim(0) &&
      scores.dim(2) == boxes.dim(1)) {
    input.images = boxes.dim(0);
    input.classes = scores.dim(1);
    for (int64_t n = 0; n <= input.images; ++n) input.offsets.push_back(n * boxes.dim(1));
  } else if (alike && scores.rank() == 2 && scores.dim(0) == boxes.dim(0) &&
             scores.dim(1) == boxes.dim(1)) {
    input.by_image = false;
    input.classes = scores.dim(1);
    MILLRACE_ASSIGN_OR_RETURN(input.offsets, part_offsets(boxes, counts, "BBoxes"));
    input.images = static_cast<int64_t>(input.offsets.size()) - 1;
  } else {
    return KernelContext::error("BBoxes {} and Scores {} do not match", describe(boxes),
                                describe(scores));
  }
  input.width = boxes.dim(2);
  constexpr std::array<int64_t, 4> kPolygons = {8, 16, 24, 32};
  const bool polygons = takes_polygons && input.by_image;
  if (input.width == 4 || (polygons && llvm::is_contained(kPolygons, input.width))) return input;
  return KernelContext::error("boxes must have 4{} numbers, found {}",
                              polygons ? ", 8, 16, 24 or 32" : "", input.width);
}

template <typename T>
Status put_detections(const KernelContext& ctx, const NmsOutputs& to, const NmsInput& input,
                      const Tensor& boxes, const std::vector<Detection<T>>& kept) {
  Tensor& out = ctx.out(to.out);
  const auto count = static_cast<int64_t>(kept.size());
  const int64_t width = input.width + 2;
  LodLevel offsets(static_cast<size_t>(input.images) + 1, 0);
  std::vector<int64_t> index;
  for (const Detection<T>& d : kept) {
    ++offsets[static_cast<size_t>(d.image) + 1];
    index.push_back(d.box);
  }
  const std::vector<int64_t> counts(offsets.begin() + 1, offsets.end());
  for (size_t n = 1; n < offsets.size(); ++n) offsets[n] += offsets[n - 1];
  MILLRACE_RETURN_IF_ERROR(put_int32(ctx.find_out(to.index), index, /*column=*/true));
  MILLRACE_RETURN_IF_ERROR(put_int32(ctx.find_out(to.counts), counts));
  if (count == 0 && to.minus_one_if_empty) {
    MILLRACE_RETURN_IF_ERROR(out.resize(boxes.dtype(), {1, 1}));
    *out.data<T>() = T{-1};
    offsets = {0, 1};
  } else {
    MILLRACE_RETURN_IF_ERROR(out.resize(boxes.dtype(), {count, width}));
    T* row = out.data<T>();
    for (const Detection<T>& d : kept) {
      *row++ = static_cast<T>(d.klass);
      *row++ = d.score;
      row = std::copy_n(boxes.data<T>() + d.box * input.width, input.width, row);
    }
  }
  if (!to.with_lod) return Ok();
  out.set_lod(Lod({offsets}));
  if (Tensor* const places = ctx.find_out(to.index)) places->set_lod(Lod({offsets}));
  return Ok();
}

template Status put_detections(const KernelContext&, const NmsOutputs&, const NmsInput&,
                               const Tensor&, const std::vector<Detection<float>>&);
template Status put_detections(const KernelContext&, const NmsOutputs&, const NmsInput&,
                               const Tensor&, const std::vector<Detection<double>>&);

}  // namespace millrace::kernels
