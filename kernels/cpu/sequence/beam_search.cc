#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/int_list.h"
#include "kernels/cpu/needed.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"
#include "ops/infer_context.h"

namespace millrace::kernels {
namespace beam_search_kernels {
namespace {

// A continuation of one beam.
template <typename T>
struct BeamCandidate {
  int64_t beam;
  int64_t id;
  T score;
  // If scores are equal, the later beam wins.
  bool operator<(const BeamCandidate& other) const {
    return score < other.score || (score == other.score && beam < other.beam);
  }
};

// Keeps the best `most` candidates, best first. A candidate equal to the last one replaces it.
template <typename T>
void keep_best(std::vector<BeamCandidate<T>>& best, const BeamCandidate<T>& candidate,
               size_t most) {
  if (best.size() >= most) {
    if (candidate < best.back()) return;
    best.pop_back();
  }
  auto at = best.end();
  while (at != best.begin() && *(at - 1) < candidate) --at;
  best.insert(at, candidate);
}

struct BeamInputs {
  const int64_t* pre_ids = nullptr;
  const Tensor* pre_scores = nullptr;
  const int64_t* ids = nullptr;  // null: use column numbers
  const Tensor* scores = nullptr;
  int64_t width = 0;
  std::vector<int64_t> sources;  // first beam of each source, then the end
};

struct BeamSettings {
  size_t level = 0;
  size_t beams = 1;
  int64_t end = 0;
  bool accumulated = true;
};

// Offsets of a LoD level converted to rows.
StatusOr<std::vector<int64_t>> rows_of_level(const KernelContext& ctx, const Tensor& tensor,
                                             size_t level) {
  const Lod& lod = tensor.lod();
  if (level >= lod.size())
    return ctx.error("scores has {} LoD levels, expected one more than attribute 'level' {}",
                     lod.size(), level);
  std::vector<int64_t> rows = lod.level(level).vec();
  for (size_t below = level + 1; below < lod.size(); ++below) {
    const auto offsets = lod.level(below);
    for (int64_t& row : rows) {
      if (row < 0 || row >= static_cast<int64_t>(offsets.size()))
        return ctx.error("LoD {} of scores is not nested", lod.to_string());
      row = offsets[static_cast<size_t>(row)];
    }
  }
  return rows;
}

template <typename T>
std::vector<BeamCandidate<T>> best_of_source(const BeamInputs& in, const BeamSettings& s,
                                             int64_t begin, int64_t end) {
  std::vector<BeamCandidate<T>> best;
  bool all_over = true;  // true if all beams had already ended
  for (int64_t beam = begin; beam < end; ++beam) {
    const T before = in.pre_scores->data<T>()[beam];
    if (in.pre_ids[beam] == s.end) {
      keep_best(best, {beam, s.end, before}, s.beams);
      continue;
    }
    for (int64_t k = beam * in.width; k < (beam + 1) * in.width; ++k) {
      const T score = in.scores->data<T>()[k];
      keep_best(best,
                {beam, in.ids == nullptr ? k - beam * in.width : in.ids[k],
                 s.accumulated ? score : before + std::log(score)},
                s.beams);
    }
  }
  for (const auto& one : best)
    all_over = all_over && one.id == s.end && in.pre_ids[one.beam] == s.end;
  if (all_over) best.clear();
  return best;
}

struct BeamOutputs {
  Tensor* ids;
  Tensor* scores;
  Tensor* parents;  // optional
};

template <typename T>
Status run(const BeamInputs& in, const BeamSettings& s, const BeamOutputs& out) {
  std::vector<BeamCandidate<T>> kept;
  for (size_t i = 0; i + 1 < in.sources.size(); ++i) {
    const auto best = best_of_source<T>(in, s, in.sources[i], in.sources[i + 1]);
    kept.insert(kept.end(), best.begin(), best.end());
  }
  std::stable_sort(kept.begin(), kept.end(),
                   [](const auto& a, const auto& b) { return a.beam < b.beam; });
  const auto count = static_cast<int64_t>(kept.size());
  MILLRACE_RETURN_IF_ERROR(out.ids->resize(DType::kInt64, {count, 1}));
  MILLRACE_RETURN_IF_ERROR(out.scores->resize(kDTypeOf<T>, {count, 1}));
  if (out.parents != nullptr) MILLRACE_RETURN_IF_ERROR(out.parents->resize(DType::kInt32, {count}));
  LodLevel level(static_cast<size_t>(in.sources.back()) + 1, 0);
  for (size_t i = 0; i < kept.size(); ++i) {
    out.ids->data<int64_t>()[i] = kept[i].id;
    out.scores->data<T>()[i] = kept[i].score;
    if (out.parents != nullptr)
      out.parents->data<int32_t>()[i] = static_cast<int32_t>(kept[i].beam);
    ++level[static_cast<size_t>(kept[i].beam) + 1];
  }
  for (size_t i = 1; i < level.size(); ++i) level[i] += level[i - 1];
  const Lod lod({in.sources, std::move(level)});
  out.ids->set_lod(lod);
  out.scores->set_lod(lod);
  return Ok();
}

Status check_beam_inputs(const KernelContext& ctx, const BeamInputs& in, const Tensor& pre_ids,
                         const Tensor* ids) {
  if (in.sources.empty() || in.sources.front() != 0)
    return ctx.error("LoD {} of scores does not start at 0", in.scores->lod().to_string());
  const int64_t beams = in.sources.back();
  if (in.scores->rank() != 2 || in.scores->dim(0) != beams || pre_ids.numel() != beams ||
      pre_ids.dtype() != DType::kInt64 || in.pre_scores->numel() != beams ||
      in.pre_scores->dtype() != in.scores->dtype()) {
    return ctx.error(
        "pre_ids {}, pre_scores {} and scores {} must have a row for each of the {} beams",
        describe(pre_ids), describe(*in.pre_scores), describe(*in.scores), beams);
  }
  if (ids != nullptr && (ids->dtype() != DType::kInt64 || ids->numel() != in.scores->numel()))
    return ctx.error("ids must be int64 with the shape of scores {}, found {}",
                     describe(*in.scores), describe(*ids));
  return Ok();
}

StatusOr<Kernel> beam_search(const KernelSetup& op) {
  const ArgIndex pre_ids = op.input("pre_ids");
  const ArgIndex pre_scores = op.input("pre_scores");
  const ArgIndex ids = op.input("ids");
  const ArgIndex scores = op.input("scores");
  const ArgIndex out_ids = op.output("selected_ids");
  const ArgIndex out_scores = op.output("selected_scores");
  const ArgIndex parents = op.output("parent_idx");
  const BeamSettings settings{static_cast<size_t>(op.attr<int32_t>("level")),
                              static_cast<size_t>(op.attr<int32_t>("beam_size")),
                              op.attr<int32_t>("end_id"), op.attr<bool>("is_accumulated")};
  return Kernel([=](const KernelContext& ctx) -> Status {
    BeamInputs in;
    MILLRACE_ASSIGN_OR_RETURN(in.scores, needed(ctx, scores, "scores"));
    MILLRACE_ASSIGN_OR_RETURN(in.pre_scores, needed(ctx, pre_scores, "pre_scores"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const before, needed(ctx, pre_ids, "pre_ids"));
    MILLRACE_ASSIGN_OR_RETURN(in.sources, rows_of_level(ctx, *in.scores, settings.level));
    const Tensor* const candidates = ctx.find_in(ids);
    MILLRACE_RETURN_IF_ERROR(check_beam_inputs(ctx, in, *before, candidates));
    in.pre_ids = before->data<int64_t>();
    in.ids = candidates == nullptr ? nullptr : candidates->data<int64_t>();
    in.width = in.scores->dim(1);
    const BeamOutputs out{&ctx.out(out_ids), &ctx.out(out_scores), ctx.find_out(parents)};
    return dispatch<FloatTypes>(in.scores->dtype(), [&](auto tag) {
      return run<typename decltype(tag)::type>(in, settings, out);
    });
  });
}

// A hypothesis during backtracking: its tokens, last first, and the position of the next one.
template <typename T>
struct BeamPath {
  std::vector<int64_t> ids;
  std::vector<T> scores;
  int64_t place = 0;
};

// One time step of the search, checked.
template <typename T>
struct BeamStep {
  llvm::ArrayRef<int64_t> sources;  // first beam of each source
  llvm::ArrayRef<int64_t> beams;    // first candidate of each beam
  const int64_t* ids;
  const T* scores;

  // The beam that a candidate continues.
  [[nodiscard]] int64_t beam_of(int64_t candidate) const {
    return std::upper_bound(beams.begin(), beams.end(), candidate) - beams.begin() - 1;
  }
};

template <typename T>
StatusOr<BeamStep<T>> beam_step(const KernelContext& ctx, const TensorArray& ids,
                                const TensorArray& scores, size_t k) {
  const Tensor& id = ids[k];
  const Tensor& score = scores[k];
  if (!id.initialized() || !score.initialized() || id.dtype() != DType::kInt64 ||
      score.dtype() != kDTypeOf<T> || id.numel() != score.numel() || id.lod().size() != 2) {
    return ctx.error(
        "element {} of Ids {} and Scores {} must be ids with two LoD levels and "
        "scores of one type",
        k, describe(id), describe(score));
  }
  MILLRACE_RETURN_IF_ERROR(id.lod().check(id.numel()));
  return BeamStep<T>{id.lod().level(0), id.lod().level(1), id.data<int64_t>(), score.data<T>()};
}

// Starts the paths of a source at this time step, or extends them back by one time step.
template <typename T>
Status follow_back(const KernelContext& ctx, const BeamStep<T>& step, size_t source, int64_t end,
                   size_t most, std::vector<BeamPath<T>>& paths) {
  if (source + 1 >= step.sources.size())
    return ctx.error("a time step has {} sources, fewer than the first one",
                     step.sources.size() - 1);
  const int64_t first = step.beams[static_cast<size_t>(step.sources[source])];
  const int64_t last = step.beams[static_cast<size_t>(step.sources[source + 1])];
  if (paths.empty()) {
    if (last - first > static_cast<int64_t>(most))
      return ctx.error("source {} has {} hypotheses, more than attribute 'beam_size' {}", source,
                       last - first, most);
    for (int64_t at = first; at < last; ++at)
      paths.push_back({{step.ids[at]}, {step.scores[at]}, step.beam_of(at)});
    return Ok();
  }
  for (BeamPath<T>& path : paths) {
    if (path.place < first || path.place >= last)
      return ctx.error("a beam of source {} continues candidate {}, which is outside of [{}, {})",
                       source, path.place, first, last);
    const int64_t id = step.ids[path.place];
    if (id != end) {  // repeated end tokens are left out
      path.ids.push_back(id);
      path.scores.push_back(step.scores[path.place]);
    }
    path.place = step.beam_of(path.place);
  }
  return Ok();
}

template <typename T>
Status store_paths(std::vector<std::vector<BeamPath<T>>>& sources, Tensor& ids, Tensor& scores) {
  LodLevel outer{0};
  LodLevel inner{0};
  for (auto& paths : sources) {
    std::stable_sort(paths.begin(), paths.end(), [](const auto& a, const auto& b) {
      return a.scores.front() > b.scores.front();
    });
    for (const auto& path : paths)
      inner.push_back(inner.back() + static_cast<int64_t>(path.ids.size()));
    outer.push_back(static_cast<int64_t>(inner.size()) - 1);
  }
  MILLRACE_RETURN_IF_ERROR(ids.resize(DType::kInt64, {inner.back()}));
  MILLRACE_RETURN_IF_ERROR(scores.resize(kDTypeOf<T>, {inner.back()}));
  int64_t* id = ids.data<int64_t>();
  T* score = scores.data<T>();
  for (const auto& paths : sources) {
    for (const auto& path : paths) {
      id = std::copy(path.ids.rbegin(), path.ids.rend(), id);
      score = std::copy(path.scores.rbegin(), path.scores.rend(), score);
    }
  }
  const Lod lod({std::move(outer), std::move(inner)});
  ids.set_lod(lod);
  scores.set_lod(lod);
  return Ok();
}

StatusOr<Kernel> beam_search_decode(const KernelSetup& op) {
  const ArgIndex ids = op.input("Ids");
  const ArgIndex scores = op.input("Scores");
  const ArgIndex out_ids = op.output("SentenceIds");
  const ArgIndex out_scores = op.output("SentenceScores");
  const auto most = static_cast<size_t>(op.attr<int32_t>("beam_size"));
  const int64_t end = op.attr<int32_t>("end_id");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const auto* const id_steps = ctx.in_value(ids).get_if<TensorArray>();
    const auto* const score_steps = ctx.in_value(scores).get_if<TensorArray>();
    if (id_steps == nullptr || score_steps == nullptr || id_steps->empty() ||
        id_steps->size() != score_steps->size())
      return ctx.error("Ids and Scores must be arrays of the same length, found {} and {}",
                       describe(ctx.in_value(ids)), describe(ctx.in_value(scores)));
    return dispatch<FloatTypes>(score_steps->front().dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      MILLRACE_ASSIGN_OR_RETURN(const BeamStep<T> first,
                                beam_step<T>(ctx, *id_steps, *score_steps, 0));
      std::vector<std::vector<BeamPath<T>>> paths(first.sources.size() - 1);
      for (size_t k = id_steps->size(); k-- > 0;) {
        MILLRACE_ASSIGN_OR_RETURN(const BeamStep<T> step,
                                  beam_step<T>(ctx, *id_steps, *score_steps, k));
        for (size_t i = 0; i < paths.size(); ++i)
          MILLRACE_RETURN_IF_ERROR(follow_back(ctx, step, i, end, most, paths[i]));
      }
      return store_paths(paths, ctx.out(out_ids), ctx.out(out_scores));
    });
  });
}

}  // namespace
}  // namespace beam_search_kernels

/// beam_search and beam_search_decode.
void add_sequence_beam_search(KernelRegistry& registry) {
  using namespace beam_search_kernels;
  registry.add("beam_search", beam_search);
  registry.add("beam_search_decode", beam_search_decode);
}

}  // namespace millrace::kernels
