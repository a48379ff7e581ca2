#include <string>
#include <vector>

#include "kernels/gpu/ops/args.h"
#include "kernels/registry.h"

// Ops on boxes: iou_similarity, box_coder, polygon_box_transform and yolo_box.
namespace millrace::gpu {
namespace boxes {
namespace {

bool is_list(const Tensor& tensor) {
  return tensor.rank() == 2 && tensor.dim(1) == 4 && tensor.dtype() == DType::kFloat32;
}

StatusOr<Kernel> iou_similarity(const KernelSetup& op) {
  return Kernel(
      [args = FloatArgs(op), y = op.input("Y"),
       extra = op.attr<bool>("box_normalized") ? 0.0F : 1.0F](const KernelContext& ctx) -> Status {
        MILLRACE_ASSIGN_OR_RETURN(const FloatOperands o, args.find(ctx));
        MILLRACE_ASSIGN_OR_RETURN(const Tensor* const other, needed_here(ctx, y, "Y"));
        if (!is_list(*o.x) || !is_list(*other) || o.out->numel() != o.x->dim(0) * other->dim(0))
          return refuse("X {} and Y {}", describe(*o.x), describe(*other));
        return each(args.device,
                    OverlapOfBoxes{floats(o.x), floats(other), floats(o.out), other->dim(0), extra},
                    o.out->numel());
      });
}

struct CoderArgs {
  explicit CoderArgs(const KernelSetup& op)
      : device(device_of(op)),
        prior(op.input("PriorBox")),
        variance(op.input("PriorBoxVar")),
        target(op.input("TargetBox")),
        out(op.output("OutputBox")),
        fixed(op.attr<std::vector<float>>("variance")) {
    code.encode = op.attr<std::string>("code_type") == "encode_center_size";
    code.by_row = !code.encode && op.attr<int64_t>("axis") != 0;
    code.extra = op.attr<bool>("box_normalized") ? 0.0F : 1.0F;
    for (size_t i = 0; i < 4; ++i) code.fixed[i] = fixed.size() == 4 ? fixed[i] : 1.0F;
  }
  Device& device;
  ArgIndex prior, variance, target, out;
  std::vector<float> fixed;
  CodeBox code{};  // without pointers
};

StatusOr<Kernel> box_coder(const KernelSetup& op) {
  return Kernel([args = CoderArgs(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const prior, needed_here(ctx, args.prior, "PriorBox"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const target,
                              needed_here(ctx, args.target, "TargetBox"));
    const Tensor* const variance = ctx.find_in(args.variance);
    Tensor& out = ctx.out(args.out);
    MILLRACE_RETURN_IF_ERROR(all_floats({prior, target, variance, &out}));
    CodeBox code = args.code;
    const bool fits = code.encode ? is_list(*target)
                                  : target->rank() == 3 && target->dim(2) == 4 &&
                                        target->dim(code.by_row ? 0 : 1) == prior->dim(0);
    if (!is_list(*prior) || !fits || (variance != nullptr && variance->dims() != prior->dims()) ||
        (!args.fixed.empty() && args.fixed.size() != 4))
      return refuse("PriorBox {} and TargetBox {}", describe(*prior), describe(*target));
    code.columns = code.encode ? prior->dim(0) : target->dim(1);
    const int64_t count = target->dim(0) * code.columns;
    if (out.numel() != 4 * count) return refuse("OutputBox {}", describe(out));
    code.prior = floats(prior);
    code.variance = floats(variance);
    code.target = floats(target);
    code.out = floats(out);
    return each(args.device, code, count);
  });
}

StatusOr<Kernel> polygon_box_transform(const KernelSetup& op) {
  return Kernel([&device = device_of(op), input = op.input("Input"),
                 output = op.output("Output")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed_here(ctx, input, "Input"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, output, *x));
    MILLRACE_RETURN_IF_ERROR(all_floats({x}));
    if (x->rank() != 4) return refuse("Input {}", describe(*x));
    return each(device, PlaceCorners{floats(x), floats(to), x->dim(1), x->dim(2), x->dim(3)},
                x->numel());
  });
}

// The functor of yolo_box without pointers and shapes.
StatusOr<PredictBox> read_predictor(const KernelSetup& op) {
  const auto anchors = op.attr<std::vector<int64_t>>("anchors");
  if (anchors.size() % 2 != 0 || anchors.size() > 2 * size_t{PredictBox::kMost})
    return refuse("{} sizes of anchors", anchors.size());
  PredictBox predict{};
  predict.anchors = static_cast<int64_t>(anchors.size()) / 2;
  for (size_t i = 0; i < anchors.size(); ++i) predict.anchor[i] = static_cast<float>(anchors[i]);
  predict.classes = op.attr<int64_t>("class_num");
  predict.downsample = op.attr<int64_t>("downsample_ratio");
  predict.threshold = op.attr<float>("conf_thresh");
  predict.scale = op.attr<float>("scale_x_y");
  predict.clip = op.attr<bool>("clip_bbox");
  predict.iou_factor = op.attr<bool>("iou_aware") ? op.attr<float>("iou_aware_factor") : -1.0F;
  if (op.attr<bool>("iou_aware") && predict.iou_factor < 0) return refuse("iou_aware_factor");
  return predict;
}

StatusOr<Kernel> yolo_box(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(const PredictBox settings, read_predictor(op));
  return Kernel([settings, &device = device_of(op), x_arg = op.input("X"),
                 size_arg = op.input("ImgSize"), boxes_arg = op.output("Boxes"),
                 scores_arg = op.output("Scores")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed_here(ctx, x_arg, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const sizes, needed_here(ctx, size_arg, "ImgSize"));
    Tensor& to = ctx.out(boxes_arg);
    Tensor& scores = ctx.out(scores_arg);
    MILLRACE_RETURN_IF_ERROR(all_floats({x, &to, &scores}));
    PredictBox predict = settings;
    const int64_t channels = predict.anchors * (predict.classes + (predict.iou_factor < 0 ? 5 : 6));
    if (x->rank() != 4 || x->dim(1) != channels || sizes->dtype() != DType::kInt32 ||
        sizes->rank() != 2 || sizes->dim(0) != x->dim(0) || sizes->dim(1) != 2)
      return refuse("X {} and ImgSize {}", describe(*x), describe(*sizes));
    predict.height = x->dim(2);
    predict.width = x->dim(3);
    const int64_t count = x->dim(0) * predict.anchors * predict.height * predict.width;
    if (to.numel() != 4 * count || scores.numel() != predict.classes * count)
      return refuse("Boxes {} and Scores {}", describe(to), describe(scores));
    predict.x = floats(x);
    predict.sizes = reinterpret_cast<const int32_t*>(sizes->raw());
    predict.boxes = floats(to);
    predict.scores = floats(scores);
    return each(device, predict, count);
  });
}

}  // namespace
}  // namespace boxes

void add_boxes(KernelRegistry& registry) {
  registry.add("iou_similarity", boxes::iou_similarity);
  registry.add("box_coder", boxes::box_coder);
  registry.add("polygon_box_transform", boxes::polygon_box_transform);
  registry.add("yolo_box", boxes::yolo_box);
}

}  // namespace millrace::gpu
