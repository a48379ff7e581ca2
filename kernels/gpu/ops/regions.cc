#include <memory>
#include <vector>

#include "kernels/gpu/ops/args.h"
#include "kernels/gpu/resident.h"
#include "kernels/registry.h"

// roi_align, roi_pool and psroi_pool.
namespace millrace::gpu {
namespace regions {
namespace {

// The number of regions of each image, if they are in process memory. Errors: rejects others.
StatusOr<std::vector<int64_t>> counts_here(const Tensor& counts) {
  const ResidentLayout* const there = resident(counts);
  const Tensor* const here = there == nullptr ? &counts : there->host();
  if (here == nullptr) return refuse("the number of regions was computed on the GPU");
  std::vector<int64_t> values;
  for (int64_t i = 0; i < here->numel(); ++i) {
    if (here->dtype() == DType::kInt32)
      values.push_back(reinterpret_cast<const int32_t*>(here->raw())[i]);
    else if (here->dtype() == DType::kInt64)
      values.push_back(reinterpret_cast<const int64_t*>(here->raw())[i]);
    else
      return refuse("RoisNum {}", describe(counts));
  }
  return values;
}

// Finds images and regions, and keeps the offsets of the regions in device memory.
class Regions {
 public:
  explicit Regions(const KernelSetup& op)
      : memory_(memory_of(op)),
        x_(op.input("X")),
        rois_(op.input("ROIs")),
        counts_(op.input("RoisNum")) {
    of_.pooled[0] = op.attr<int64_t>("pooled_height");
    of_.pooled[1] = op.attr<int64_t>("pooled_width");
    of_.scale = op.attr<float>("spatial_scale");
  }

  // \param pooled        Out or its gradient
  // \param out_channels  its channels, each of which takes one channel of X for each cell; 0: it
  //                      has those of X
  // Errors: rejects what the CPU kernel reports.
  StatusOr<RegionsOfImages> find(const KernelContext& ctx, const Tensor& pooled,
                                 int64_t out_channels) {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed_here(ctx, x_, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const rois, needed_here(ctx, rois_, "ROIs"));
    MILLRACE_RETURN_IF_ERROR(all_floats({x, rois}));
    if (x->rank() != 4 || x->numel() == 0 || rois->rank() != 2 || rois->dim(1) != 4 ||
        of_.pooled[0] < 1 || of_.pooled[1] < 1 || !(of_.scale > 0))
      return refuse("X {} and ROIs {}", describe(*x), describe(*rois));
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<int32_t> offsets, read_offsets(ctx, *rois));
    if (static_cast<int64_t>(offsets.size()) != x->dim(0) + 1 || offsets.back() != rois->dim(0))
      return refuse("{} images and ROIs {}", x->dim(0), describe(*rois));
    const int64_t cells = of_.pooled[0] * of_.pooled[1];
    const int64_t results = rois->dim(0) * (out_channels > 0 ? out_channels : x->dim(1)) * cells;
    if (pooled.dtype() != DType::kFloat32 || pooled.numel() != results ||
        (out_channels > 0 && out_channels * cells != x->dim(1)))
      return refuse("X {} and a result {}", describe(*x), describe(pooled));
    MILLRACE_RETURN_IF_ERROR(upload(offsets));
    of_.batch = x->dim(0);
    of_.channels = x->dim(1);
    of_.height = x->dim(2);
    of_.width = x->dim(3);
    of_.rois = floats(rois);
    return of_;
  }
  [[nodiscard]] Device& device() const { return memory_.device(); }
  [[nodiscard]] ArgIndex x() const { return x_; }

 private:
  [[nodiscard]] StatusOr<std::vector<int32_t>> read_offsets(const KernelContext& ctx,
                                                            const Tensor& rois) const {
    std::vector<int32_t> offsets{0};
    if (const Tensor* const given = ctx.find_in(counts_)) {
      MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> counts, counts_here(*given));
      memory_.device().note_unrepeatable();  // other counts may come in the next run
      for (const int64_t count : counts) {
        if (count < 0 || count > rois.dim(0)) return refuse("{} regions of an image", count);
        offsets.push_back(offsets.back() + static_cast<int32_t>(count));
      }
      return offsets;
    }
    if (rois.lod().empty()) return refuse("ROIs have no LoD");
    offsets.clear();
    for (const int64_t offset : rois.lod().last()) offsets.push_back(static_cast<int32_t>(offset));
    return offsets;
  }

  Status upload(const std::vector<int32_t>& offsets) {
    if (block_ != nullptr && offsets == offsets_) return Ok();
    const auto bytes = static_cast<int64_t>(offsets.size() * sizeof(int32_t));
    if (block_ == nullptr || block_->bytes() < bytes) {
      block_.reset();
      MILLRACE_ASSIGN_OR_RETURN(block_, memory_.allocate(bytes, "offsets of regions"));
    }
    offsets_ = offsets;
    of_.offsets = reinterpret_cast<const int32_t*>(block_->data());
    return memory_.copy_in(reinterpret_cast<const std::byte*>(offsets.data()), block_->data(),
                           bytes);
  }

  Memory& memory_;
  ArgIndex x_, rois_, counts_;
  RegionsOfImages of_{};
  std::vector<int32_t> offsets_;  // in device memory
  std::shared_ptr<Block> block_;  // null: nothing was copied so far
};

// Runs body(device, images with regions, out), a forward op.
template <typename Body>
Kernel forward(const KernelSetup& op, int64_t out_channels, Body body) {
  return Kernel([regions = std::make_shared<Regions>(op), out = op.output("Out"), out_channels,
                 body = std::move(body)](const KernelContext& ctx) -> Status {
    Tensor& to = ctx.out(out);
    MILLRACE_ASSIGN_OR_RETURN(const RegionsOfImages of, regions->find(ctx, to, out_channels));
    return body(regions->device(), ctx, of, to);
  });
}

// Runs body(device, images with regions, dout, dx), a gradient.
template <typename Body>
Kernel backward(const KernelSetup& op, int64_t out_channels, Body body) {
  return Kernel([regions = std::make_shared<Regions>(op), dout = op.input("Out@GRAD"),
                 dx = op.output("X@GRAD"), out_channels,
                 body = std::move(body)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const FloatGradient g,
                              float_gradient(ctx, regions->x(), "X", dout, dx));
    if (g.dx == nullptr) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const RegionsOfImages of, regions->find(ctx, *g.dy, out_channels));
    return body(regions->device(), ctx, of, g);
  });
}

StatusOr<Kernel> align(const KernelSetup& op) {
  return forward(op, 0,
                 [x = op.input("X"), sampling = op.attr<int64_t>("sampling_ratio"),
                  aligned = op.attr<bool>("aligned")](Device& device, const KernelContext& ctx,
                                                      const RegionsOfImages& of, Tensor& to) {
                   return each(device,
                               AlignRegions{of, floats(ctx.in(x)), floats(to), sampling, aligned},
                               to.numel());
                 });
}

StatusOr<Kernel> align_grad(const KernelSetup& op) {
  return backward(
      op, 0,
      [sampling = op.attr<int64_t>("sampling_ratio"), aligned = op.attr<bool>("aligned")](
          Device& device, const KernelContext&, const RegionsOfImages& of, const FloatGradient& g) {
        return each(device, AlignRegionsBack{of, floats(g.dy), floats(g.dx), sampling, aligned},
                    of.batch * of.channels);
      });
}

StatusOr<Kernel> pool(const KernelSetup& op) {
  return forward(
      op, 0,
      [x = op.input("X"), argmax = op.output("Argmax")](Device& device, const KernelContext& ctx,
                                                        const RegionsOfImages& of,
                                                        Tensor& to) -> Status {
        Tensor* const places = ctx.find_out(argmax);
        if (places != nullptr &&
            (places->dtype() != DType::kInt64 || places->numel() != to.numel()))
          return refuse("Argmax {}", describe(*places));
        auto* const at = places == nullptr ? nullptr : reinterpret_cast<int64_t*>(places->raw());
        return each(device, LargestOfRegions{of, floats(ctx.in(x)), floats(to), at}, to.numel());
      });
}

StatusOr<Kernel> pool_grad(const KernelSetup& op) {
  return backward(
      op, 0,
      [argmax = op.input("Argmax")](Device& device, const KernelContext& ctx,
                                    const RegionsOfImages& of, const FloatGradient& g) -> Status {
        MILLRACE_ASSIGN_OR_RETURN(const Tensor* const places, needed_here(ctx, argmax, "Argmax"));
        if (places->dtype() != DType::kInt64 || places->numel() != g.dy->numel())
          return refuse("Argmax {}", describe(*places));
        return each(device,
                    LargestOfRegionsBack{of, reinterpret_cast<const int64_t*>(places->raw()),
                                         floats(g.dy), floats(g.dx)},
                    of.batch * of.channels);
      });
}

StatusOr<Kernel> by_position(const KernelSetup& op) {
  const auto channels = op.attr<int64_t>("output_channels");
  if (channels < 1) return refuse("{} output channels", channels);
  return forward(op, channels,
                 [x = op.input("X"), channels](Device& device, const KernelContext& ctx,
                                               const RegionsOfImages& of, Tensor& to) {
                   return each(device,
                               AverageOfPositions{of, channels, floats(ctx.in(x)), floats(to)},
                               to.numel());
                 });
}

StatusOr<Kernel> by_position_grad(const KernelSetup& op) {
  const auto channels = op.attr<int64_t>("output_channels");
  if (channels < 1) return refuse("{} output channels", channels);
  return backward(
      op, channels,
      [](Device& device, const KernelContext&, const RegionsOfImages& of, const FloatGradient& g) {
        return each(device, AverageOfPositionsBack{of, floats(g.dy), floats(g.dx)},
                    of.batch * of.channels);
      });
}

}  // namespace
}  // namespace regions

void add_regions(KernelRegistry& registry) {
  using namespace regions;
  registry.add("roi_align", align);
  registry.add("roi_align_grad", align_grad);
  registry.add("roi_pool", pool);
  registry.add("roi_pool_grad", pool_grad);
  registry.add("psroi_pool", by_position);
  registry.add("psroi_pool_grad", by_position_grad);
}

}  // namespace millrace::gpu
