#include <algorithm>
#include <type_traits>
#include <vector>

#include "kernels/cpu/index.h"
#include "kernels/cpu/random/bits.h"
#include "kernels/registry.h"

// Trees of items: tdm_child and tdm_sampler.
namespace millrace::kernels {
namespace {

// Columns of TreeInfo.
constexpr int64_t kItem = 0;
constexpr int64_t kFirstChild = 3;

Status write_number(Tensor& out, int64_t at, int64_t value) {
  if (out.dtype() == DType::kInt64) {
    out.data<int64_t>()[at] = value;
    return Ok();
  }
  if (value != static_cast<int32_t>(value))
    return KernelContext::error("node {} is too large for results of type i32", value);
  out.data<int32_t>()[at] = static_cast<int32_t>(value);
  return Ok();
}

template <typename I>
Status find_children(const Tensor& tree, const I* nodes, int64_t children, int64_t count,
                     const int64_t* ids, Tensor& child, Tensor& leaf) {
  const int64_t columns = kFirstChild + children;
  for (int64_t i = 0; i < count; ++i) {
    const I* const node = nodes + ids[i] * columns;
    // Node 0 means no node; a node without a first child has no children.
    const bool none = ids[i] == 0 || node[kFirstChild] == 0;
    for (int64_t c = 0; c < children; ++c) {
      const int64_t found = none ? 0 : static_cast<int64_t>(node[kFirstChild + c]);
      if (found < 0 || found >= tree.dim(0))
        return KernelContext::error("TreeInfo has child {} for node {}, expected one in [0, {})",
                                    found, ids[i], tree.dim(0));
      MILLRACE_RETURN_IF_ERROR(write_number(child, i * children + c, found));
      const bool is_leaf = found != 0 && nodes[found * columns + kItem] != 0;
      MILLRACE_RETURN_IF_ERROR(write_number(leaf, i * children + c, is_leaf ? 1 : 0));
    }
  }
  return Ok();
}

// The elements of an integer tensor, each in [0, size).
StatusOr<std::vector<int64_t>> checked_numbers(const Tensor& tensor, int64_t size,
                                               const char* slot) {
  std::vector<int64_t> numbers(static_cast<size_t>(tensor.numel()));
  Status read = with_index(tensor, slot, [&](const auto* values) -> Status {
    MILLRACE_RETURN_IF_ERROR(check_range(values, tensor.numel(), size, slot));
    std::copy_n(values, tensor.numel(), numbers.begin());
    return Ok();
  });
  if (!read.ok()) return read;
  return numbers;
}

StatusOr<Kernel> tdm_child(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex info = op.input("TreeInfo");
  const ArgIndex child = op.output("Child");
  const ArgIndex leaf = op.output("LeafMask");
  const int64_t children = op.attr<int32_t>("child_nums");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& tree = ctx.in(info);
    if (tree.rank() != 2 || tree.dim(1) != kFirstChild + children)
      return ctx.error("TreeInfo must have {} columns, found {}", kFirstChild + children,
                       describe(tree));
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> ids,
                              checked_numbers(ctx.in(x), tree.dim(0), "X"));
    return with_index(tree, "TreeInfo", [&](const auto* nodes) {
      return find_children(tree, nodes, children, static_cast<int64_t>(ids.size()), ids.data(),
                           ctx.out(child), ctx.out(leaf));
    });
  });
}

struct LayerSampler {
  std::vector<int64_t> drawn;    ///< number of nodes to draw in each layer
  std::vector<int64_t> offsets;  ///< first node of each layer, then the end
  bool positive = true;
  int64_t seed = 0;

  [[nodiscard]] int64_t width() const {
    int64_t sum = 0;
    for (const int64_t count : drawn) sum += count + (positive ? 1 : 0);
    return sum;
  }
};

struct SampledTensors {
  Tensor* out;
  Tensor* labels;  ///< optional
  Tensor* mask;
};

Status write_sample(const SampledTensors& to, int64_t at, int64_t node, bool right, bool there) {
  MILLRACE_RETURN_IF_ERROR(write_number(*to.out, at, node));
  if (to.labels != nullptr) MILLRACE_RETURN_IF_ERROR(write_number(*to.labels, at, right ? 1 : 0));
  return write_number(*to.mask, at, there ? 1 : 0);
}

// Draws distinct positions in a layer of `nodes` nodes, none of them `right`. Each draw n selects
// the n-th position that is still available.
void draw_places(uint64_t key, uint64_t& draws, int64_t nodes, int64_t right, int64_t count,
                 std::vector<int64_t>& taken) {
  taken.assign(1, right);
  for (int64_t k = 0; k < count; ++k) {
    const int64_t left = nodes - static_cast<int64_t>(taken.size());
    int64_t place =
        static_cast<int64_t>(unit_double(random_bits(key, draws++)) * static_cast<double>(left));
    std::vector<int64_t> sorted = taken;
    std::sort(sorted.begin(), sorted.end());
    for (const int64_t other : sorted) place += other <= place ? 1 : 0;
    taken.push_back(place);
  }
}

// Samples the layers of one leaf; written from position `at` on.
template <typename I>
Status sample_leaf(const LayerSampler& s, const I* path, const I* nodes, uint64_t key,
                   uint64_t& draws, int64_t at, const SampledTensors& to,
                   std::vector<int64_t>& taken) {
  for (size_t layer = 0; layer < s.drawn.size(); ++layer) {
    const int64_t begin = s.offsets[layer];
    const int64_t count = s.offsets[layer + 1] - begin;
    const I right = path[layer];
    const bool there = right != 0;
    const auto found =
        static_cast<int64_t>(std::find(nodes + begin, nodes + begin + count, right) - nodes);
    if (there && found == begin + count)
      return KernelContext::error("Travel has node {} in layer {}, which Layer does not have there",
                                  static_cast<int64_t>(right), layer);
    if (s.positive) {
      MILLRACE_RETURN_IF_ERROR(write_sample(to, at++, static_cast<int64_t>(right), there, there));
    }
    if (there) draw_places(key, draws, count, found - begin, s.drawn[layer], taken);
    for (int64_t k = 0; k < s.drawn[layer]; ++k) {
      const int64_t node =
          there ? static_cast<int64_t>(nodes[begin + taken[static_cast<size_t>(k) + 1]]) : 0;
      MILLRACE_RETURN_IF_ERROR(write_sample(to, at++, node, /*right=*/false, there));
    }
  }
  return Ok();
}

Status check_sampled(const KernelContext& ctx, const LayerSampler& s, const Tensor& travel,
                     const Tensor& layer) {
  if (travel.rank() != 2 || travel.dim(1) != static_cast<int64_t>(s.drawn.size()) ||
      layer.numel() != s.offsets.back() || layer.dtype() != travel.dtype())
    return ctx.error("Travel must have {} columns and Layer {} nodes of its type, found {} and {}",
                     s.drawn.size(), s.offsets.back(), describe(travel), describe(layer));
  return Ok();
}

StatusOr<Kernel> tdm_sampler(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex travel = op.input("Travel");
  const ArgIndex layer = op.input("Layer");
  const ArgIndex out = op.output("Out");
  const ArgIndex labels = op.output("Labels");
  const ArgIndex mask = op.output("Mask");
  LayerSampler sampler;
  sampler.drawn = op.attr<std::vector<int64_t>>("neg_samples_num_list");
  sampler.offsets = op.attr<std::vector<int64_t>>("layer_offset_lod");
  sampler.positive = op.attr<bool>("output_positive");
  sampler.seed = op.attr<int64_t>("seed");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& paths = ctx.in(travel);
    const Tensor& nodes = ctx.in(layer);
    MILLRACE_RETURN_IF_ERROR(check_sampled(ctx, sampler, paths, nodes));
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> leaves,
                              checked_numbers(ctx.in(x), paths.dim(0), "X"));
    const uint64_t key = stream_key(ctx.device(), sampler.seed);
    const SampledTensors to{&ctx.out(out), ctx.find_out(labels), &ctx.out(mask)};
    return with_index(paths, "Travel", [&](const auto* path) -> Status {
      using I = std::decay_t<decltype(*path)>;
      const I* const all = nodes.data<I>();
      uint64_t draws = 0;
      std::vector<int64_t> taken;
      for (size_t i = 0; i < leaves.size(); ++i)
        MILLRACE_RETURN_IF_ERROR(sample_leaf(sampler, path + leaves[i] * paths.dim(1), all, key,
                                             draws, static_cast<int64_t>(i) * sampler.width(), to,
                                             taken));
      return Ok();
    });
  });
}

}  // namespace

void add_feature_trees(KernelRegistry& registry) {
  registry.add("tdm_child", tdm_child);
  registry.add("tdm_sampler", tdm_sampler);
}

}  // namespace millrace::kernels
