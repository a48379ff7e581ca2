#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/ranges.h>

#include "kernels/cpu/int_list.h"
#include "kernels/cpu/lane_sum.h"
#include "kernels/cpu/merge_rows.h"
#include "kernels/cpu/random/shape_arg.h"
#include "kernels/cpu/strided.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"
#include "ops/infer_context.h"

// Ops that support transpiled programs: splitting tensors into slices of rows, selecting a
// trainer's copy, placeholders.
namespace millrace::kernels {
namespace {

using Longs = std::vector<int64_t>;

StatusOr<Kernel> split_byref(const KernelSetup& op) {
  const ArgIndex x_arg = op.input("X");
  const ArgRange out = op.outputs("Out");
  const auto sections = op.attr<Longs>("sections");
  if (!sections.empty() && sections.size() != static_cast<size_t>(out.count))
    return op.error("attribute 'sections' has {} entries for {} vars of Out", sections.size(),
                    out.count);
  if (out.count == 0) return op.error("Out has no vars");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(x_arg);
    if (x.rank() == 0) return ctx.error("X must have at least one dim");
    const int64_t rows = x.dims()[0];
    if (sections.empty() && rows % out.count != 0)
      return ctx.error("{} equal slices do not divide the rows of X {}", out.count, describe(x));
    const int64_t row_bytes = rows == 0 ? 0 : x.bytes() / rows;
    int64_t begin = 0;
    for (int32_t k = 0; k < out.count; ++k) {
      const int64_t count = sections.empty() ? rows / out.count : sections[static_cast<size_t>(k)];
      if (count < 0 || count > rows - begin)
        return ctx.error("the slices have more rows than X {}", describe(x));
      if (ctx.has_out(out, k)) {
        Tensor& to = ctx.out(out, k);
        Dims dims(x.dims().begin(), x.dims().end());
        dims[0] = count;
        MILLRACE_RETURN_IF_ERROR(size_output(to, x.dtype(), dims));
        copy_bytes(ctx.device(), to.raw(), x.raw() + begin * row_bytes, to.bytes());
      }
      begin += count;
    }
    return Ok();
  });
}

// Row numbers are converted to be relative to their slice.
StatusOr<Kernel> split_selected_rows(const KernelSetup& op) {
  const ArgIndex x_arg = op.input("X");
  const ArgRange out = op.outputs("Out");
  const auto sections = op.attr<Longs>("height_sections");
  if (sections.size() != static_cast<size_t>(out.count))
    return op.error("attribute 'height_sections' has {} entries for {} vars of Out",
                    sections.size(), out.count);
  return Kernel([=](const KernelContext& ctx) -> Status {
    const auto* const x = ctx.in_value(x_arg).get_if<SelectedRows>();
    if (x == nullptr)
      return ctx.error("X must be selected rows, found {}", describe(ctx.in_value(x_arg)));
    const auto bytes = static_cast<size_t>(row_width(x->value) * dtype_size(x->value.dtype()));
    size_t taken = 0;
    int64_t begin = 0;
    for (int32_t k = 0; k < out.count; ++k) {
      const int64_t end = begin + sections[static_cast<size_t>(k)];
      const auto inside = [&](int64_t row) { return row >= begin && row < end; };
      const int64_t count = std::count_if(x->rows.begin(), x->rows.end(), inside);
      taken += static_cast<size_t>(count);
      if (ctx.has_out(out, k)) {
        auto& to = ctx.out_value(out, k).as<SelectedRows>();
        to.height = end - begin;
        to.rows.clear();
        Dims dims(x->value.dims().begin(), x->value.dims().end());
        dims[0] = count;
        MILLRACE_RETURN_IF_ERROR(size_output(to.value, x->value.dtype(), dims));
        for (size_t i = 0; i < x->rows.size(); ++i) {
          if (!inside(x->rows[i])) continue;
          std::memcpy(to.value.raw() + to.rows.size() * bytes, x->value.raw() + i * bytes, bytes);
          to.rows.push_back(x->rows[i] - begin);
        }
      }
      begin = end;
    }
    if (taken == x->rows.size()) return Ok();
    return ctx.error("X has rows outside of [0, {}), which the sections cover", begin);
  });
}

StatusOr<Kernel> ref_by_trainer_id(const KernelSetup& op) {
  const ArgRange x = op.inputs("X");
  const ArgIndex id_arg = op.input("TrainerId");
  const ArgIndex out = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const int64_t id, one_int(ctx.in(id_arg), "TrainerId"));
    if (id < 0 || id >= x.count)
      return ctx.error("TrainerId is {}, expected one of [0, {})", id, x.count);
    return ctx.out(out).copy_from(ctx.in(x, static_cast<int32_t>(id)));
  });
}

// Only servers hold the table. A trainer needs no memory for it, and reading it must be an error:
// no op has set its elements. A value that was loaded stays.
StatusOr<Kernel> fake_init(const KernelSetup& op) {
  const ArgIndex out = op.output("Out");
  const auto shape = op.attr<Longs>("shape");
  const bool rows = makes_rows(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    Value& value = ctx.out_value(out);
    const Tensor& loaded = rows ? value.as<SelectedRows>().value : value.as<Tensor>();
    if (!loaded.initialized()) {
      if (rows && !shape.empty()) value.as<SelectedRows>().height = shape[0];
      return Ok();
    }
    if (rows || loaded.dims() == llvm::ArrayRef<int64_t>(shape)) return Ok();
    return ctx.error("Out has a value of {}, but attribute 'shape' declares [{}]", describe(loaded),
                     fmt::join(shape, ", "));
  });
}

// Clips by norm from the step on that compresses gradients; before that, X is copied.
StatusOr<Kernel> dgc_clip_by_norm(const KernelSetup& op) {
  const ArgIndex x_arg = op.input("X");
  const ArgIndex step_arg = op.input("current_step");
  const ArgIndex out_arg = op.output("Out");
  const auto max_norm = op.attr<float>("max_norm");
  const auto begin = op.attr<float>("rampup_begin_step");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(x_arg);
    const Tensor& step = ctx.in(step_arg);
    Tensor& out = ctx.out(out_arg);
    if (step.dtype() != DType::kFloat32 || step.numel() != 1)
      return ctx.error("current_step must be one f32, found {}", describe(step));
    if (begin < 0 || *step.data<float>() < begin) {
      copy_bytes(ctx.device(), out.raw(), x.raw(), x.bytes());
      return Ok();
    }
    return dispatch<FloatTypes>(x.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      const T* const from = x.data<T>();
      const T norm =
          std::sqrt(lane_sum<T>(x.numel(), [&](int64_t i) { return from[i] * from[i]; }));
      const T limit = static_cast<T>(max_norm);
      const T factor = norm > limit ? limit / norm : T(1);
      for (int64_t i = 0; i < x.numel(); ++i) out.data<T>()[i] = from[i] * factor;
      return Ok();
    });
  });
}

}  // namespace

void add_distributed_slices(KernelRegistry& registry) {
  registry.add("split_byref", split_byref);
  registry.add("split_selected_rows", split_selected_rows);
  registry.add("ref_by_trainer_id", ref_by_trainer_id);
  registry.add("fake_init", fake_init);
  registry.add("dgc_clip_by_norm", dgc_clip_by_norm);
}

}  // namespace millrace::kernels
