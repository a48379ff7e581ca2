#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/cpu/detection/boxes.h"
#include "kernels/cpu/needed.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

// Entries below count as 0.
constexpr double kNothing = 1e-6;

// Matches rows and columns of one image by falling entries; ties by column, then by row.
template <typename T>
void match_greedily(const T* dist, int64_t rows, int64_t columns, int32_t* match, T* match_dist) {
  std::vector<int64_t> order(static_cast<size_t>(rows * columns));
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&](int64_t k) { return dist[k % rows * columns + k / rows]; };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return at(a) > at(b); });
  std::vector<bool> taken(static_cast<size_t>(rows), false);
  for (const int64_t k : order) {
    const int64_t row = k % rows;
    const int64_t column = k / rows;
    if (!(at(k) >= static_cast<T>(kNothing))) break;
    if (taken[static_cast<size_t>(row)] || match[column] >= 0) continue;
    taken[static_cast<size_t>(row)] = true;
    match[column] = static_cast<int32_t>(row);
    match_dist[column] = at(k);
  }
}

// Columns without a match get their best row if its entry reaches the threshold.
template <typename T>
void match_rest(const T* dist, int64_t rows, int64_t columns, T threshold, int32_t* match,
                T* match_dist) {
  for (int64_t c = 0; c < columns; ++c) {
    if (match[c] >= 0) continue;
    T best = -1;
    for (int64_t r = 0; r < rows; ++r) {
      const T value = dist[r * columns + c];
      if (value < static_cast<T>(kNothing) || value < threshold || !(value > best)) continue;
      best = value;
      match[c] = static_cast<int32_t>(r);
      match_dist[c] = value;
    }
  }
}

StatusOr<Kernel> bipartite_match(const KernelSetup& op) {
  const ArgIndex dist_mat = op.input("DistMat");
  const ArgIndex indices = op.output("ColToRowMatchIndices");
  const ArgIndex distances = op.output("ColToRowMatchDist");
  const bool rest = op.attr<std::string>("match_type") == "per_prediction";
  const auto threshold = op.attr<float>("dist_threshold");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const dist, needed(ctx, dist_mat, "DistMat"));
    if (dist->rank() != 2) return ctx.error("DistMat must be a matrix, found {}", describe(*dist));
    std::vector<int64_t> offsets = {0, dist->dim(0)};
    if (!dist->lod().empty()) {
      MILLRACE_ASSIGN_OR_RETURN(offsets, part_offsets(*dist, nullptr, "DistMat"));
    }
    const int64_t columns = dist->dim(1);
    const Dims dims = {static_cast<int64_t>(offsets.size()) - 1, columns};
    Tensor& match = ctx.out(indices);
    Tensor& match_dist = ctx.out(distances);
    MILLRACE_RETURN_IF_ERROR(match.resize(DType::kInt32, dims));
    MILLRACE_RETURN_IF_ERROR(match_dist.resize(dist->dtype(), dims));
    return dispatch<FloatTypes>(dist->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      std::fill_n(match.data<int32_t>(), match.numel(), -1);
      std::fill_n(match_dist.data<T>(), match_dist.numel(), T{0});
      for (size_t n = 0; n + 1 < offsets.size(); ++n) {
        const T* const image = dist->data<T>() + offsets[n] * columns;
        const int64_t rows = offsets[n + 1] - offsets[n];
        int32_t* const to = match.data<int32_t>() + static_cast<int64_t>(n) * columns;
        T* const to_dist = match_dist.data<T>() + static_cast<int64_t>(n) * columns;
        match_greedily(image, rows, columns, to, to_dist);
        if (rest) match_rest(image, rows, columns, static_cast<T>(threshold), to, to_dist);
      }
      return Ok();
    });
  });
}

// Copies the target of each matched prediction. The others get mismatch_value and weight 0; those
// in NegIndices get weight 1.
template <typename T>
Status assign_targets(const KernelContext& ctx, const Tensor& x, const Tensor& match,
                      const std::vector<int64_t>& rows, int64_t mismatch, T* out, float* weight) {
  const int64_t columns = match.dim(1);
  const int64_t width = x.dim(2);
  for (int64_t n = 0; n < match.dim(0); ++n) {
    const int64_t first = rows[static_cast<size_t>(n)];
    const int64_t count = rows[static_cast<size_t>(n) + 1] - first;
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t at = n * columns + c;
      const int32_t row = match.data<int32_t>()[at];
      weight[at] = row > -1 ? 1.0F : 0.0F;
      if (row <= -1) {
        std::fill_n(out + at * width, width, static_cast<T>(mismatch));
        continue;
      }
      if (row >= count)
        return ctx.error("MatchIndices has target {} of image {}, which has {} targets", row, n,
                         count);
      const T* const from = x.data<T>() + ((first + row) * x.dim(1) + c % x.dim(1)) * width;
      std::copy_n(from, width, out + at * width);
    }
  }
  return Ok();
}

Status mark_negatives(const KernelContext& ctx, const Tensor& negatives, int64_t images,
                      int64_t columns, float* weight) {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> offsets,
                            part_offsets(negatives, nullptr, "NegIndices"));
  if (static_cast<int64_t>(offsets.size()) != images + 1 || negatives.dtype() != DType::kInt32) {
    return ctx.error("NegIndices must be i32 with a sequence for each of {} images, found {}",
                     images, describe(negatives));
  }
  for (int64_t n = 0; n < images; ++n) {
    for (int64_t i = offsets[static_cast<size_t>(n)]; i < offsets[static_cast<size_t>(n) + 1];
         ++i) {
      const int32_t column = negatives.data<int32_t>()[i];
      if (column < 0 || column >= columns)
        return ctx.error("NegIndices has {}, but there are {} predictions", column, columns);
      weight[n * columns + column] = 1.0F;
    }
  }
  return Ok();
}

StatusOr<Kernel> target_assign(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex match_indices = op.input("MatchIndices");
  const ArgIndex neg_indices = op.input("NegIndices");
  const ArgIndex out = op.output("Out");
  const ArgIndex out_weight = op.output("OutWeight");
  const auto mismatch = op.attr<int64_t>("mismatch_value");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const in, needed(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const match,
                              needed(ctx, match_indices, "MatchIndices"));
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> rows, part_offsets(*in, nullptr, "X"));
    if (in->rank() != 3 || in->dim(1) < 1 || match->rank() != 2 ||
        match->dtype() != DType::kInt32 || static_cast<int64_t>(rows.size()) != match->dim(0) + 1) {
      return ctx.error("X {} and MatchIndices {} do not match", describe(*in), describe(*match));
    }
    float* const weight = ctx.out(out_weight).data<float>();
    MILLRACE_RETURN_IF_ERROR(
        (dispatch<Types<float, double, int32_t, int64_t>>(in->dtype(), [&](auto tag) {
          using T = typename decltype(tag)::type;
          return assign_targets<T>(ctx, *in, *match, rows, mismatch, ctx.out(out).data<T>(),
                                   weight);
        })));
    const Tensor* const negatives = ctx.find_in(neg_indices);
    if (negatives == nullptr) return Ok();
    return mark_negatives(ctx, *negatives, match->dim(0), match->dim(1), weight);
  });
}

struct MiningAttrs {
  float ratio;
  float threshold;
  int64_t sample_size;
  bool hard_example;
};

// Predictions of one image with the largest losses, ordered by index.
template <typename T>
std::vector<int64_t> mine(const MiningAttrs& attrs, const T* cls, const T* loc,
                          const int32_t* match, const T* dist, int64_t count) {
  std::vector<int64_t> candidates;
  int64_t matched = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (match[i] != -1) ++matched;
    if (attrs.hard_example || (match[i] == -1 && dist[i] < static_cast<T>(attrs.threshold)))
      candidates.push_back(i);
  }
  const auto loss = [&](int64_t i) {
    return cls[i] + (attrs.hard_example && loc != nullptr ? loc[i] : T(0));
  };
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](int64_t a, int64_t b) { return loss(a) > loss(b); });
  const auto wanted = attrs.hard_example
                          ? attrs.sample_size
                          : static_cast<int64_t>(static_cast<float>(matched) * attrs.ratio);
  candidates.resize(std::min(candidates.size(), static_cast<size_t>(std::max<int64_t>(wanted, 0))));
  std::sort(candidates.begin(), candidates.end());
  return candidates;
}

StatusOr<Kernel> mine_hard_examples(const KernelSetup& op) {
  const ArgIndex cls_loss = op.input("ClsLoss");
  const ArgIndex loc_loss = op.input("LocLoss");
  const ArgIndex match_indices = op.input("MatchIndices");
  const ArgIndex match_dist = op.input("MatchDist");
  const ArgIndex neg_indices = op.output("NegIndices");
  const ArgIndex updated = op.output("UpdatedMatchIndices");
  const MiningAttrs attrs{op.attr<float>("neg_pos_ratio"), op.attr<float>("neg_dist_threshold"),
                          op.attr<int64_t>("sample_size"),
                          op.attr<std::string>("mining_type") == "hard_example"};
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const cls, needed(ctx, cls_loss, "ClsLoss"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const match,
                              needed(ctx, match_indices, "MatchIndices"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const dist, needed(ctx, match_dist, "MatchDist"));
    const Tensor* const loc = ctx.find_in(loc_loss);
    for (const Tensor* const tensor : {cls, dist, loc}) {
      if (tensor == nullptr ||
          (tensor->dtype() == cls->dtype() && tensor->numel() == match->numel()))
        continue;
      return ctx.error(
          "losses and distances must be of one type and of the shape of MatchIndices {}, found {}",
          describe(*match), describe(*tensor));
    }
    if (match->rank() != 2 || match->dtype() != DType::kInt32)
      return ctx.error("MatchIndices must be an i32 matrix, found {}", describe(*match));
    Tensor& result = ctx.out(updated);
    MILLRACE_RETURN_IF_ERROR(result.copy_from(*match));
    const int64_t count = match->dim(1);
    std::vector<int64_t> negatives;
    LodLevel offsets = {0};
    for (int64_t n = 0; n < match->dim(0); ++n) {
      const int64_t at = n * count;
      const int32_t* const row = match->data<int32_t>() + at;
      std::vector<int64_t> picked;
      MILLRACE_RETURN_IF_ERROR(dispatch<FloatTypes>(cls->dtype(), [&](auto tag) -> Status {
        using T = typename decltype(tag)::type;
        picked = mine<T>(attrs, cls->data<T>() + at, loc == nullptr ? nullptr : loc->data<T>() + at,
                         row, dist->data<T>() + at, count);
        return Ok();
      }));
      for (const int64_t i : picked) {
        if (row[i] == -1) negatives.push_back(i);
      }
      for (int64_t i = 0; attrs.hard_example && i < count; ++i) {
        if (row[i] > -1 && !std::binary_search(picked.begin(), picked.end(), i))
          result.data<int32_t>()[at + i] = -1;
      }
      offsets.push_back(static_cast<int64_t>(negatives.size()));
    }
    Tensor& out = ctx.out(neg_indices);
    MILLRACE_RETURN_IF_ERROR(put_int32(&out, negatives, /*column=*/true));
    out.set_lod(Lod({offsets}));
    return Ok();
  });
}

}  // namespace

void add_detection_matching(KernelRegistry& registry) {
  registry.add("bipartite_match", bipartite_match);
  registry.add("target_assign", target_assign);
  registry.add("mine_hard_examples", mine_hard_examples);
}

}  // namespace millrace::kernels
