#include "kernels/cpu/detection/boxes.h"
#include "kernels/cpu/detection/polygon_mask.h"
#include "kernels/cpu/detection/targets.h"
#include "kernels/cpu/needed.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// generate_mask_labels: determines which pixels of a region belong to its object.
namespace millrace::kernels {
namespace {

struct MaskSlots {
  ArgIndex image, classes, crowd, polygons, rois, labels;
  ArgIndex out_rois, places, masks;
};

struct MaskOperands {
  const Tensor* image;
  const Tensor* polygons;
  const Tensor* rois;
  std::vector<int64_t> object_offsets;  // per image
  std::vector<int64_t> roi_offsets;
  std::vector<int64_t> classes, crowd;  // per object
  std::vector<int64_t> labels;          // per region
};

StatusOr<MaskOperands> read_mask_operands(const KernelContext& ctx, const MaskSlots& slots) {
  MaskOperands o{};
  MILLRACE_ASSIGN_OR_RETURN(o.image, needed(ctx, slots.image, "ImInfo"));
  MILLRACE_ASSIGN_OR_RETURN(o.polygons, needed(ctx, slots.polygons, "GtSegms"));
  MILLRACE_ASSIGN_OR_RETURN(o.rois, needed(ctx, slots.rois, "Rois"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const classes, needed(ctx, slots.classes, "GtClasses"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const crowd, needed(ctx, slots.crowd, "IsCrowd"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const labels, needed(ctx, slots.labels, "LabelsInt32"));
  MILLRACE_RETURN_IF_ERROR(check_rows(*o.rois, 4, *o.rois, "Rois"));
  MILLRACE_RETURN_IF_ERROR(check_rows(*o.image, 3, *o.rois, "ImInfo"));
  MILLRACE_RETURN_IF_ERROR(check_rows(*o.polygons, 2, *o.rois, "GtSegms"));
  const int64_t images = o.image->dim(0);
  MILLRACE_ASSIGN_OR_RETURN(o.object_offsets, image_offsets(*classes, images, "GtClasses"));
  MILLRACE_ASSIGN_OR_RETURN(o.roi_offsets, image_offsets(*o.rois, images, "Rois"));
  MILLRACE_ASSIGN_OR_RETURN(o.classes, integers_of(*classes, classes->numel(), "GtClasses"));
  MILLRACE_ASSIGN_OR_RETURN(o.crowd, integers_of(*crowd, classes->numel(), "IsCrowd"));
  MILLRACE_ASSIGN_OR_RETURN(o.labels, integers_of(*labels, o.rois->dim(0), "LabelsInt32"));
  const Lod& lod = o.polygons->lod();
  MILLRACE_RETURN_IF_ERROR(lod.check(o.polygons->dim(0)));
  if (lod.size() == 3 && lod.level(0) == llvm::ArrayRef<int64_t>(o.object_offsets)) return o;
  return ctx.error(
      "GtSegms must have a LoD of images, objects and polygons with the {} objects of GtClasses, "
      "found {}",
      classes->numel(), lod.to_string());
}

// An object: its polygons and their bounding box.
template <typename T>
struct OutlinedObject {
  std::vector<llvm::ArrayRef<T>> polygons;
  std::array<T, 4> box;
};

template <typename T>
StatusOr<std::vector<OutlinedObject<T>>> objects_of_image(const MaskOperands& o, int64_t n) {
  std::vector<OutlinedObject<T>> objects;
  const auto polygons = o.polygons->lod().level(1);
  const auto points = o.polygons->lod().level(2);
  const auto image = static_cast<size_t>(n);
  for (int64_t i = o.object_offsets[image]; i < o.object_offsets[image + 1]; ++i) {
    const auto at = static_cast<size_t>(i);
    if (o.classes[at] <= 0 || o.crowd[at] != 0) continue;
    const T far = std::numeric_limits<T>::max();
    // as in the original, the box extends to 0
    OutlinedObject<T> object{{}, {far, far, T{0}, T{0}}};
    for (int64_t k = polygons[at]; k < polygons[at + 1]; ++k) {
      const auto p = static_cast<size_t>(k);
      if (points[p] == points[p + 1])
        return KernelContext::error("polygon {} of GtSegms has no points", k);
      object.polygons.emplace_back(o.polygons->data<T>() + 2 * points[p],
                                   static_cast<size_t>(2 * (points[p + 1] - points[p])));
      for (size_t c = 0; c < object.polygons.back().size(); ++c) {
        const T value = object.polygons.back()[c];
        object.box[c % 2] = std::min(object.box[c % 2], value);
        object.box[c % 2 + 2] = std::max(object.box[c % 2 + 2], value);
      }
    }
    objects.push_back(std::move(object));
  }
  return objects;
}

template <typename T>
struct MaskResults {
  std::vector<T> rois;
  std::vector<int64_t> places;
  std::vector<int32_t> masks;
  LodLevel offsets = {0};
};

struct MaskSettings {
  int64_t classes;
  int64_t side;
  [[nodiscard]] int64_t pixels() const { return side * side; }
};

// Adds a region. Its mask, if any, is stored at the position of its class; all other elements are
// -1.
template <typename T>
int32_t* add_region(const MaskSettings& s, const T* roi, T scale, int64_t place,
                    MaskResults<T>& to) {
  for (size_t k = 0; k < 4; ++k) to.rois.push_back(roi[k] / scale * scale);
  to.places.push_back(place);
  const size_t begin = to.masks.size();
  to.masks.resize(begin + static_cast<size_t>(s.classes * s.pixels()), -1);
  return to.masks.data() + begin;
}

template <typename T>
Status mask_image(const MaskOperands& o, const MaskSettings& s, int64_t n, MaskResults<T>& to) {
  MILLRACE_ASSIGN_OR_RETURN(const auto objects, objects_of_image<T>(o, n));
  const T scale = o.image->data<T>()[3 * n + 2];
  const int64_t first = o.roi_offsets[static_cast<size_t>(n)];
  const int64_t end = o.roi_offsets[static_cast<size_t>(n) + 1];
  const size_t before = to.places.size();
  for (int64_t i = first; i < end; ++i) {
    const int64_t label = o.labels[static_cast<size_t>(i)];
    if (label <= 0) continue;
    if (label >= s.classes)
      return KernelContext::error("LabelsInt32 has class {}, expected less than 'num_classes' {}",
                                  label, s.classes);
    if (objects.empty())
      return KernelContext::error(
          "image {} has a region of class {}, but no object with an outline", n, label);
    const T* const roi = o.rois->data<T>() + 4 * i;
    const std::array<T, 4> box = {roi[0] / scale, roi[1] / scale, roi[2] / scale, roi[3] / scale};
    size_t best = 0;
    T most = 0;
    for (size_t k = 0; k < objects.size(); ++k) {
      const T overlap = pixel_overlap(box.data(), objects[k].box.data());
      if (!(overlap > most)) continue;
      most = overlap;
      best = k;
    }
    int32_t* const mask = add_region(s, roi, scale, i - first, to) + label * s.pixels();
    MILLRACE_RETURN_IF_ERROR(draw_polygons<T>(objects[best].polygons, box.data(), s.side, mask));
  }
  // A network needs at least one region: a background region without a target.
  for (int64_t i = first; to.places.size() == before && i < end; ++i) {
    if (o.labels[static_cast<size_t>(i)] == 0)
      add_region(s, o.rois->data<T>() + 4 * i, scale, i - first, to);
  }
  if (first < end && to.places.size() == before)
    return KernelContext::error("image {} has no region of class 0 or above", n);
  to.offsets.push_back(static_cast<int64_t>(to.places.size()));
  return Ok();
}

StatusOr<Kernel> generate_mask_labels(const KernelSetup& op) {
  const MaskSlots slots{op.input("ImInfo"),    op.input("GtClasses"),
                        op.input("IsCrowd"),   op.input("GtSegms"),
                        op.input("Rois"),      op.input("LabelsInt32"),
                        op.output("MaskRois"), op.output("RoiHasMaskInt32"),
                        op.output("MaskInt32")};
  const MaskSettings settings{op.attr<int64_t>("num_classes"), op.attr<int64_t>("resolution")};
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const MaskOperands o, read_mask_operands(ctx, slots));
    return dispatch<FloatTypes>(o.rois->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      MaskResults<T> found;
      for (int64_t n = 0; n < o.image->dim(0); ++n)
        MILLRACE_RETURN_IF_ERROR(mask_image(o, settings, n, found));
      MILLRACE_RETURN_IF_ERROR(
          put_rows(ctx.find_out(slots.out_rois), found.rois, 4, found.offsets));
      MILLRACE_RETURN_IF_ERROR(
          put_numbers(ctx.find_out(slots.places), found.places, /*column=*/true, found.offsets));
      return put_rows(ctx.find_out(slots.masks), found.masks, settings.classes * settings.pixels(),
                      found.offsets);
    });
  });
}

}  // namespace

void add_detection_mask_labels(KernelRegistry& registry) {
  registry.add("generate_mask_labels", generate_mask_labels);
}

}  // namespace millrace::kernels
