#include <memory>

#include "kernels/cpu/merge_rows.h"
#include "kernels/cpu/sequence/row_windows.h"
#include "kernels/gpu/ops/kept_memory.h"
#include "kernels/gpu/ops/row_picks.h"
#include "kernels/registry.h"

// Windows of rows times a matrix: the windows are copied into a matrix, then one product follows.
namespace millrace::gpu {
namespace window_products {
namespace {

using kernels::RowWindow;

struct GpuWindows {
  explicit GpuWindows(const KernelSetup& op)
      : x(op.input("X")),
        padding(op.input("PaddingData")),
        filter(op.input("Filter")),
        window{op.attr<int32_t>("contextLength"), op.attr<int32_t>("contextStart"),
               op.attr<bool>("paddingTrainable")},
        picks(memory_of(op)),
        rows_of_x(memory_of(op)),
        rows_of_padding(memory_of(op)),
        kept(memory_of(op), "windows of sequences") {}
  ArgIndex x, padding, filter;
  RowWindow window;
  RowPicks picks;            // rows of windows
  RowPicks rows_of_x;        // sums of their gradients
  RowPicks rows_of_padding;  // the same
  KeptMemory<float> kept;    // the windows

  struct Found {
    const Tensor* x;
    const Tensor* padding;  // null: zeros
    const Tensor* filter;
    llvm::ArrayRef<int64_t> offsets;
    int64_t inner;  // columns of the windows
  };
  // Errors: rejects what does not fit.
  [[nodiscard]] StatusOr<Found> find(const KernelContext& ctx) const {
    Found on{};
    MILLRACE_ASSIGN_OR_RETURN(on.x, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(on.filter, needed_here(ctx, filter, "Filter"));
    on.padding = window.padded ? ctx.find_in(padding) : nullptr;
    MILLRACE_RETURN_IF_ERROR(all_floats({on.x, on.filter, on.padding}));
    MILLRACE_ASSIGN_OR_RETURN(on.offsets, innermost_here(*on.x));
    if (on.x->rank() != 2 || on.filter->rank() != 2 || on.x->numel() == 0 ||
        on.filter->dim(0) != window.length * on.x->dim(1) || on.filter->dim(1) == 0)
      return refuse("X {} and Filter {}", describe(*on.x), describe(*on.filter));
    if (window.padded &&
        (on.padding == nullptr || on.padding->numel() != window.padding_rows() * on.x->dim(1)))
      return refuse("PaddingData does not fit");
    on.inner = on.filter->dim(0);
    if (on.x->dim(0) * on.inner >= int64_t{1} << 31) return refuse("X {}", describe(*on.x));
    return on;
  }
  // The row of X in each position of each window; -1 - n for row n of the padding.
  [[nodiscard]] std::vector<int64_t> places(const Found& on) const {
    std::vector<int64_t> rows;
    kernels::each_place(on.offsets, window,
                        [&](int64_t /*row*/, int64_t /*place*/, int64_t source, int64_t pad) {
                          rows.push_back(source >= 0 ? source : -1 - pad);
                        });
    return rows;
  }
  Status write(const Found& on, float* windows) {
    return picks.run(places(on), on.x->raw(), row_bytes_of(*on.x),
                     reinterpret_cast<std::byte*>(windows),
                     {on.padding == nullptr ? nullptr : on.padding->raw(), 0});
  }
};

StatusOr<Kernel> gpu_windows(const KernelSetup& setup) {
  return Kernel([op = std::make_shared<GpuWindows>(setup),
                 out = setup.output("Out")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const GpuWindows::Found on, op->find(ctx));
    Tensor& to = ctx.out(out);
    MILLRACE_RETURN_IF_ERROR(all_floats({&to}));
    const int64_t rows = on.x->dim(0);
    if (to.numel() != rows * on.filter->dim(1)) return refuse("Out {}", describe(to));
    MILLRACE_ASSIGN_OR_RETURN(float* const windows, op->kept.get(rows * on.inner));
    MILLRACE_RETURN_IF_ERROR(op->write(on, windows));
    return op->picks.memory().device().multiply({.a = windows,
                                                 .b = floats(on.filter),
                                                 .c = floats(to),
                                                 .rows = rows,
                                                 .inner = on.inner,
                                                 .columns = on.filter->dim(1)});
  });
}

struct WindowGradients {
  const Tensor* dout;
  Tensor* x;
  Tensor* padding;
  Tensor* filter;
};

Status run_back(GpuWindows& op, const GpuWindows::Found& on, const WindowGradients& g) {
  Device& device = op.picks.memory().device();
  const int64_t rows = on.x->dim(0);
  const int64_t columns = on.filter->dim(1);
  MILLRACE_ASSIGN_OR_RETURN(float* const windows, op.kept.get(rows * on.inner));
  if (g.filter != nullptr) {
    MILLRACE_RETURN_IF_ERROR(op.write(on, windows));
    MILLRACE_RETURN_IF_ERROR(device.multiply({.a = windows,
                                              .b = floats(g.dout),
                                              .c = floats(g.filter),
                                              .rows = on.inner,
                                              .inner = rows,
                                              .columns = columns,
                                              .transpose_a = true}));
  }
  if (g.x == nullptr && g.padding == nullptr) return Ok();
  MILLRACE_RETURN_IF_ERROR(device.multiply({.a = floats(g.dout),
                                            .b = floats(on.filter),
                                            .c = windows,
                                            .rows = rows,
                                            .inner = columns,
                                            .columns = on.inner,
                                            .transpose_b = true}));
  std::vector<int64_t> places = op.places(on);
  const int64_t width = on.x->dim(1);
  if (g.x != nullptr)
    MILLRACE_RETURN_IF_ERROR(op.rows_of_x.add(places, windows, rows, width, floats(*g.x)));
  if (g.padding == nullptr) return Ok();
  for (int64_t& place : places) place = -1 - place;
  return op.rows_of_padding.add(places, windows, op.window.padding_rows(), width,
                                floats(*g.padding));
}

StatusOr<Kernel> gpu_sequence_conv_grad(const KernelSetup& setup) {
  return Kernel([op = std::make_shared<GpuWindows>(setup), dout = setup.input("Out@GRAD"),
                 dx = setup.output("X@GRAD"), dpadding = setup.output("PaddingData@GRAD"),
                 dfilter = setup.output("Filter@GRAD")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const GpuWindows::Found on, op->find(ctx));
    WindowGradients g{};
    MILLRACE_ASSIGN_OR_RETURN(g.dout, needed_here(ctx, dout, "Out@GRAD"));
    MILLRACE_RETURN_IF_ERROR(all_floats({g.dout}));
    MILLRACE_ASSIGN_OR_RETURN(g.x, output_like(ctx, dx, *on.x));
    MILLRACE_ASSIGN_OR_RETURN(g.filter, output_like(ctx, dfilter, *on.filter));
    if (on.padding != nullptr) {
      MILLRACE_ASSIGN_OR_RETURN(g.padding, output_like(ctx, dpadding, *on.padding));
    }
    if (g.dout->numel() != on.x->dim(0) * on.filter->dim(1) ||
        (g.x != nullptr && is_same_memory(*g.x, *g.dout)))
      return refuse("Out@GRAD {}", describe(*g.dout));
    return run_back(*op, on, g);
  });
}

}  // namespace
}  // namespace window_products

void add_sequence_conv(KernelRegistry& registry) {
  using namespace window_products;
  registry.add("sequence_conv", gpu_windows);
  registry.add("sequence_conv_grad", gpu_sequence_conv_grad);
}

}  // namespace millrace::gpu
