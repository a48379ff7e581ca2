#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/cpu/detection/boxes.h"
#include "kernels/cpu/needed.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// collect_fpn_proposals and distribute_fpn_proposals: collect the boxes of all levels of a feature
// pyramid in one tensor, and distribute them to the levels again.
namespace millrace::kernels {
namespace {

struct Levels {
  int64_t first, last, refer_level, refer_scale;
  bool pixels;
};

template <typename T>
int64_t level_of(const Levels& levels, const T* box) {
  const T size = std::sqrt(box_area(box, !levels.pixels));
  const T level =
      std::floor(std::log2(size / static_cast<T>(levels.refer_scale) + static_cast<T>(1e-6)) +
                 static_cast<T>(levels.refer_level));
  if (!(level > static_cast<T>(levels.first))) return 0;
  return level > static_cast<T>(levels.last) ? levels.last - levels.first
                                             : static_cast<int64_t>(level) - levels.first;
}

struct DistributeArgs {
  ArgIndex rois, counts;
  ArgRange level_rois, level_counts;
  ArgIndex restore;
};

template <typename T>
Status distribute(const KernelContext& ctx, const DistributeArgs& args, const Levels& levels,
                  const Tensor& rois, const std::vector<int64_t>& offsets) {
  const auto count = static_cast<size_t>(levels.last - levels.first + 1);
  std::vector<std::vector<int64_t>> rows(count);     // boxes of each level
  std::vector<LodLevel> bounds(count, LodLevel{0});  // by image
  for (size_t n = 0; n + 1 < offsets.size(); ++n) {
    for (int64_t i = offsets[n]; i < offsets[n + 1]; ++i)
      rows[static_cast<size_t>(level_of(levels, rois.data<T>() + 4 * i))].push_back(i);
    for (size_t l = 0; l < count; ++l) bounds[l].push_back(static_cast<int64_t>(rows[l].size()));
  }
  std::vector<int64_t> restore(static_cast<size_t>(rois.dim(0)));
  int64_t place = 0;
  for (size_t l = 0; l < count; ++l) {
    const auto k = static_cast<int32_t>(l);
    for (const int64_t row : rows[l]) restore[static_cast<size_t>(row)] = place++;
    if (!ctx.has_out(args.level_rois, k)) continue;
    Tensor& out = ctx.out(args.level_rois, k);
    MILLRACE_RETURN_IF_ERROR(out.resize(rois.dtype(), {static_cast<int64_t>(rows[l].size()), 4}));
    T* to = out.data<T>();
    for (const int64_t row : rows[l]) to = std::copy_n(rois.data<T>() + 4 * row, 4, to);
    out.set_lod(Lod({bounds[l]}));
    if (k >= args.level_counts.count || !ctx.has_out(args.level_counts, k)) continue;
    std::vector<int64_t> counts;
    for (size_t n = 0; n + 1 < bounds[l].size(); ++n)
      counts.push_back(bounds[l][n + 1] - bounds[l][n]);
    MILLRACE_RETURN_IF_ERROR(put_int32(&ctx.out(args.level_counts, k), counts));
  }
  return put_int32(ctx.find_out(args.restore), restore, /*column=*/true);
}

StatusOr<Kernel> distribute_fpn_proposals(const KernelSetup& op) {
  const DistributeArgs args{op.input("FpnRois"), op.input("RoisNum"), op.outputs("MultiFpnRois"),
                            op.outputs("MultiLevelRoIsNum"), op.output("RestoreIndex")};
  const Levels levels{op.attr<int64_t>("min_level"), op.attr<int64_t>("max_level"),
                      op.attr<int64_t>("refer_level"), op.attr<int64_t>("refer_scale"),
                      op.attr<bool>("pixel_offset")};
  if (levels.last < levels.first || levels.last - levels.first + 1 != args.level_rois.count)
    return op.error("MultiFpnRois must have a var for each level from {} to {}, found {}",
                    levels.first, levels.last, args.level_rois.count);
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const rois, needed(ctx, args.rois, "FpnRois"));
    if (rois->rank() != 2 || rois->dim(1) != 4)
      return ctx.error("FpnRois must be [boxes, 4], found {}", describe(*rois));
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> offsets,
                              part_offsets(*rois, ctx.find_in(args.counts), "FpnRois"));
    return dispatch<FloatTypes>(rois->dtype(), [&](auto tag) {
      return distribute<typename decltype(tag)::type>(ctx, args, levels, *rois, offsets);
    });
  });
}

// A box of one of the levels.
template <typename T>
struct Scored {
  const T* box;
  T score;
  int64_t image;
};

struct CollectArgs {
  ArgRange rois, scores, counts;
  ArgIndex out, out_counts;
};

template <typename T>
Status read_level(const KernelContext& ctx, const CollectArgs& args, int32_t k,
                  std::vector<Scored<T>>& all, int64_t& images) {
  const auto* const rois = ctx.in_value(args.rois, k).get_if<Tensor>();
  const auto* const scores = ctx.in_value(args.scores, k).get_if<Tensor>();
  const Tensor* const counts =
      k < args.counts.count ? ctx.in_value(args.counts, k).get_if<Tensor>() : nullptr;
  if (rois == nullptr || scores == nullptr || rois->rank() != 2 || rois->dim(1) != 4 ||
      rois->dtype() != kDTypeOf<T> || scores->dtype() != kDTypeOf<T> ||
      scores->numel() != rois->dim(0))
    return ctx.error("boxes and scores of level {} do not match", k);
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> offsets,
                            part_offsets(*rois, counts, "MultiLevelRois"));
  const auto found = static_cast<int64_t>(offsets.size()) - 1;
  if (k > 0 && found != images)
    return ctx.error("level {} has {} images, expected {}", k, found, images);
  images = found;
  for (int64_t n = 0; n < images; ++n) {
    for (int64_t i = offsets[static_cast<size_t>(n)]; i < offsets[static_cast<size_t>(n) + 1]; ++i)
      all.push_back({rois->data<T>() + 4 * i, scores->data<T>()[i], n});
  }
  return Ok();
}

template <typename T>
Status collect(const KernelContext& ctx, const CollectArgs& args, int64_t top) {
  std::vector<Scored<T>> all;
  int64_t images = 0;
  for (int32_t k = 0; k < args.rois.count; ++k)
    MILLRACE_RETURN_IF_ERROR(read_level(ctx, args, k, all, images));
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.score > b.score; });
  if (static_cast<int64_t>(all.size()) > top) all.resize(static_cast<size_t>(top));
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.image < b.image; });
  Tensor& out = ctx.out(args.out);
  MILLRACE_RETURN_IF_ERROR(out.resize(kDTypeOf<T>, {static_cast<int64_t>(all.size()), 4}));
  std::vector<int64_t> counts(static_cast<size_t>(images), 0);
  T* to = out.data<T>();
  for (const Scored<T>& box : all) {
    to = std::copy_n(box.box, 4, to);
    ++counts[static_cast<size_t>(box.image)];
  }
  LodLevel offsets(counts.size() + 1, 0);
  std::partial_sum(counts.begin(), counts.end(), offsets.begin() + 1);
  out.set_lod(Lod({offsets}));
  return put_int32(ctx.find_out(args.out_counts), counts);
}

StatusOr<Kernel> collect_fpn_proposals(const KernelSetup& op) {
  const CollectArgs args{op.inputs("MultiLevelRois"), op.inputs("MultiLevelScores"),
                         op.inputs("MultiLevelRoIsNum"), op.output("FpnRois"),
                         op.output("RoisNum")};
  const auto top = op.attr<int64_t>("post_nms_topN");
  if (args.rois.count < 1 || args.scores.count != args.rois.count || top < 0)
    return op.error(
        "MultiLevelRois and MultiLevelScores must have one var for each level, found {} "
        "and {}",
        args.rois.count, args.scores.count);
  return Kernel([=](const KernelContext& ctx) -> Status {
    const auto* const first = ctx.in_value(args.rois, 0).get_if<Tensor>();
    if (first == nullptr) return ctx.error("input MultiLevelRois holds no tensor");
    return dispatch<FloatTypes>(first->dtype(), [&](auto tag) {
      return collect<typename decltype(tag)::type>(ctx, args, top);
    });
  });
}

}  // namespace

void add_detection_fpn_proposals(KernelRegistry& registry) {
  registry.add("collect_fpn_proposals", collect_fpn_proposals);
  registry.add("distribute_fpn_proposals", distribute_fpn_proposals);
}

}  // namespace millrace::kernels
