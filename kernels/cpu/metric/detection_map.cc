#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <vector>

#include "kernels/cpu/detection/boxes.h"
#include "kernels/cpu/detection/targets.h"
#include "kernels/cpu/needed.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

struct MapRules {
  int64_t classes = 0;
  int64_t background = 0;
  float overlap = 0;
  bool difficult = true;
  bool eleven = false;
};

struct MapSlots {
  ArgIndex detected, label, has_state, counts, hits, misses;
  ArgIndex out_counts, out_hits, out_misses, out_map;
};

// A detected box, and whether it matches an object.
template <typename T>
struct ScoredHit {
  T score;
  int32_t hit;
  int32_t miss;
};

// Objects and detected boxes of each class, in the order of the classes.
template <typename T>
struct MapCounts {
  std::map<int64_t, int64_t> objects;
  std::map<int64_t, std::vector<ScoredHit<T>>> found;
};

template <typename T>
struct LabelledBox {
  std::array<T, 4> box;
  T score;         // per detected box
  bool difficult;  // per object
};
template <typename T>
using BoxesByClass = std::map<int64_t, std::vector<LabelledBox<T>>>;

// Area of the intersection / area of the union; corners are points.
template <typename T>
T overlap_of_map(const T* a, const T* b) {
  if (b[0] > a[2] || b[2] < a[0] || b[1] > a[3] || b[3] < a[1]) return T{0};
  const T width = std::min(a[2], b[2]) - std::max(a[0], b[0]);
  const T height = std::min(a[3], b[3]) - std::max(a[1], b[1]);
  const T common = width * height;
  const auto area = [](const T* box) { return (box[2] - box[0]) * (box[3] - box[1]); };
  return common / (area(a) + area(b) - common);
}

StatusOr<int64_t> class_in(double value, const char* slot) {
  if (std::abs(value) < 1e9) return static_cast<int64_t>(value);
  return KernelContext::error("{} has class {}, expected a whole number", slot, value);
}

template <typename T>
StatusOr<BoxesByClass<T>> objects_of_map(const Tensor& label, int64_t begin, int64_t end) {
  BoxesByClass<T> boxes;
  const int64_t width = label.dim(1);
  for (int64_t i = begin; i < end; ++i) {
    const T* const row = label.data<T>() + i * width;
    MILLRACE_ASSIGN_OR_RETURN(const int64_t klass, class_in(static_cast<double>(row[0]), "Label"));
    const bool difficult = width == 6 && !(std::abs(row[1]) < static_cast<T>(1e-6));
    const T* const box = row + width - 4;
    boxes[klass].push_back({{box[0], box[1], box[2], box[3]}, T{0}, difficult});
  }
  return boxes;
}

// Detected boxes are clipped to the image.
template <typename T>
StatusOr<BoxesByClass<T>> detections_of_map(const Tensor& detected, int64_t begin, int64_t end) {
  BoxesByClass<T> boxes;
  for (int64_t i = begin; i < end; ++i) {
    const T* const row = detected.data<T>() + i * 6;
    MILLRACE_ASSIGN_OR_RETURN(const int64_t klass,
                              class_in(static_cast<double>(row[0]), "DetectRes"));
    LabelledBox<T> box{{}, row[1], false};
    for (size_t k = 0; k < 4; ++k) box.box[k] = std::max(std::min(row[2 + k], T{1}), T{0});
    boxes[klass].push_back(box);
  }
  return boxes;
}

// Matches the detected boxes of a class and image by falling score (in input order if the image has
// no such object). Each box is assigned to the object that it overlaps most; an object is matched
// once.
template <typename T>
void match_boxes(const std::vector<LabelledBox<T>>& objects, std::vector<LabelledBox<T>> found,
                 const MapRules& rules, std::vector<ScoredHit<T>>& to) {
  const auto better = [](const LabelledBox<T>& a, const LabelledBox<T>& b) {
    return a.score > b.score;
  };
  if (!objects.empty()) std::stable_sort(found.begin(), found.end(), better);
  std::vector<bool> taken(objects.size(), false);
  for (const LabelledBox<T>& box : found) {
    T most = -1;
    size_t best = 0;
    for (size_t k = 0; k < objects.size(); ++k) {
      const T overlap = overlap_of_map(box.box.data(), objects[k].box.data());
      if (!(overlap > most)) continue;
      most = overlap;
      best = k;
    }
    const bool near = most > static_cast<T>(rules.overlap);
    if (near && !rules.difficult && objects[best].difficult) continue;
    const bool hit = near && !taken[best];
    if (hit) taken[best] = true;
    to.push_back({box.score, hit ? 1 : 0, hit ? 0 : 1});
  }
}

template <typename T>
Status count_batch(const Tensor& detected, const Tensor& label, const MapRules& rules,
                   MapCounts<T>& counts) {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> rows, image_offsets(label, -1, "Label"));
  const auto images = static_cast<int64_t>(rows.size()) - 1;
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> found,
                            image_offsets(detected, images, "DetectRes"));
  for (size_t n = 0; n + 1 < rows.size(); ++n) {
    MILLRACE_ASSIGN_OR_RETURN(const auto objects, objects_of_map<T>(label, rows[n], rows[n + 1]));
    MILLRACE_ASSIGN_OR_RETURN(const auto boxes,
                              detections_of_map<T>(detected, found[n], found[n + 1]));
    for (const auto& [klass, of_class] : objects) {
      const auto count = std::count_if(
          of_class.begin(), of_class.end(),
          [&](const LabelledBox<T>& box) { return rules.difficult || !box.difficult; });
      if (count > 0) counts.objects[klass] += count;
    }
    for (const auto& [klass, of_class] : boxes) {
      const auto at = objects.find(klass);
      match_boxes(at == objects.end() ? std::vector<LabelledBox<T>>{} : at->second, of_class, rules,
                  counts.found[klass]);
    }
  }
  return Ok();
}

// The counts of earlier batches.
template <typename T>
Status read_counts(const KernelContext& ctx, const MapSlots& slots, const MapRules& rules,
                   MapCounts<T>& counts) {
  const Tensor* const state = ctx.find_in(slots.has_state);
  const Tensor* const before = ctx.find_in(slots.counts);
  if (state == nullptr || before == nullptr) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> flag, integers_of(*state, 1, "HasState"));
  if (flag[0] == 0) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> objects,
                            integers_of(*before, rules.classes, "PosCount"));
  for (size_t k = 0; k < objects.size(); ++k) counts.objects[static_cast<int64_t>(k)] = objects[k];
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const hits, needed(ctx, slots.hits, "TruePos"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const misses, needed(ctx, slots.misses, "FalsePos"));
  const Tensor& detected = ctx.in(slots.detected);
  MILLRACE_RETURN_IF_ERROR(check_rows(*hits, 2, detected, "TruePos"));
  MILLRACE_RETURN_IF_ERROR(check_rows(*misses, 2, detected, "FalsePos"));
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> of_class,
                            image_offsets(*hits, -1, "TruePos"));
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> others,
                            image_offsets(*misses, -1, "FalsePos"));
  if (of_class != others)
    return ctx.error("TruePos and FalsePos must have the same LoD, one part per class");
  for (size_t k = 0; k + 1 < of_class.size(); ++k) {
    for (int64_t i = of_class[k]; i < of_class[k + 1]; ++i) {
      const T* const hit = hits->data<T>() + 2 * i;
      const T* const miss = misses->data<T>() + 2 * i;
      counts.found[static_cast<int64_t>(k)].push_back(
          {hit[0], static_cast<int32_t>(hit[1]), static_cast<int32_t>(miss[1])});
    }
  }
  return Ok();
}

// Precision and recall of the best 1, 2, 3, ... boxes.
template <typename T>
struct PrecisionCurve {
  std::vector<T> precision, recall;

  PrecisionCurve(std::vector<ScoredHit<T>> found, int64_t objects) {
    std::stable_sort(found.begin(), found.end(), [](const ScoredHit<T>& a, const ScoredHit<T>& b) {
      return a.score > b.score;
    });
    int64_t hits = 0;
    int64_t misses = 0;
    for (const ScoredHit<T>& box : found) {
      hits += box.hit;
      misses += box.miss;
      precision.push_back(static_cast<T>(hits) / static_cast<T>(hits + misses));
      recall.push_back(static_cast<T>(hits) / static_cast<T>(objects));
    }
  }

  [[nodiscard]] T area() const {
    T sum = 0;
    T before = 0;
    for (size_t i = 0; i < recall.size(); ++i) {
      const T step = std::abs(recall[i] - before);
      if (step > static_cast<T>(1e-6)) sum += precision[i] * step;
      before = recall[i];
    }
    return sum;
  }

  // Mean of the highest precisions at recalls of at least 0, 0.1, ..., 1.
  [[nodiscard]] T eleven_points() const {
    T sum = 0;
    for (int k = 0; k <= 10; ++k) {
      T best = 0;
      for (size_t i = 0; i < recall.size(); ++i) {
        if (!(static_cast<double>(recall[i]) < k / 10.0)) best = std::max(best, precision[i]);
      }
      sum += best / 11;
    }
    return sum;
  }
};

template <typename T>
T mean_precision(const MapCounts<T>& counts, const MapRules& rules) {
  T sum = 0;
  int64_t classes = 0;
  for (const auto& [klass, objects] : counts.objects) {
    // the original compares the number of objects, not the class
    if (objects == rules.background) continue;
    ++classes;
    const auto found = counts.found.find(klass);
    if (found == counts.found.end()) continue;
    const PrecisionCurve<T> curve(found->second, objects);
    sum += rules.eleven ? curve.eleven_points() : curve.area();
  }
  return classes == 0 ? T{0} : sum / static_cast<T>(classes);
}

template <typename T>
Status put_counts(const KernelContext& ctx, const MapSlots& slots, const MapRules& rules,
                  const MapCounts<T>& counts) {
  std::vector<int64_t> objects;
  std::vector<T> hits;
  std::vector<T> misses;
  LodLevel offsets = {0};
  for (int64_t k = 0; k < rules.classes; ++k) {
    const auto count = counts.objects.find(k);
    objects.push_back(count == counts.objects.end() ? 0 : count->second);
    const auto found = counts.found.find(k);
    if (found != counts.found.end()) {
      for (const ScoredHit<T>& box : found->second) {
        hits.insert(hits.end(), {box.score, static_cast<T>(box.hit)});
        misses.insert(misses.end(), {box.score, static_cast<T>(box.miss)});
      }
    }
    offsets.push_back(static_cast<int64_t>(hits.size()) / 2);
  }
  MILLRACE_RETURN_IF_ERROR(put_int32(ctx.find_out(slots.out_counts), objects, /*column=*/true));
  MILLRACE_RETURN_IF_ERROR(put_rows(ctx.find_out(slots.out_hits), hits, 2, offsets));
  return put_rows(ctx.find_out(slots.out_misses), misses, 2, offsets);
}

StatusOr<Kernel> detection_map(const KernelSetup& op) {
  const MapSlots slots{op.input("DetectRes"),      op.input("Label"),
                       op.input("HasState"),       op.input("PosCount"),
                       op.input("TruePos"),        op.input("FalsePos"),
                       op.output("AccumPosCount"), op.output("AccumTruePos"),
                       op.output("AccumFalsePos"), op.output("MAP")};
  const MapRules rules{op.attr<int64_t>("class_num"), op.attr<int64_t>("background_label"),
                       op.attr<float>("overlap_threshold"), op.attr<bool>("evaluate_difficult"),
                       op.attr<std::string>("ap_type") == "11point"};
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const detected,
                              needed(ctx, slots.detected, "DetectRes"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const label, needed(ctx, slots.label, "Label"));
    MILLRACE_RETURN_IF_ERROR(check_rows(*detected, 6, *detected, "DetectRes"));
    const bool five = label->rank() == 2 && label->dim(1) == 5;
    MILLRACE_RETURN_IF_ERROR(check_rows(*label, five ? 5 : 6, *detected, "Label"));
    return dispatch<FloatTypes>(detected->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      MapCounts<T> counts;
      MILLRACE_RETURN_IF_ERROR(read_counts(ctx, slots, rules, counts));
      MILLRACE_RETURN_IF_ERROR(count_batch(*detected, *label, rules, counts));
      MILLRACE_RETURN_IF_ERROR(put_counts(ctx, slots, rules, counts));
      Tensor* const map = ctx.find_out(slots.out_map);
      if (map == nullptr) return Ok();
      MILLRACE_RETURN_IF_ERROR(map->resize(kDTypeOf<T>, {1}));
      *map->data<T>() = mean_precision(counts, rules);
      return Ok();
    });
  });
}

}  // namespace

void add_metric_detection_map(KernelRegistry& registry) {
  registry.add("detection_map", detection_map);
}

}  // namespace millrace::kernels
