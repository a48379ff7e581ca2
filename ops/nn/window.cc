#include "ops/nn/window.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"

namespace millrace::ops {
namespace {

std::string_view view_window(llvm::StringRef text) {
  return {text.data(), text.size()};
}

Dims list_attr(const InferContext& ctx, llvm::StringRef name) {
  if (ctx.def().find_attr(name) == nullptr) return {};
  const auto list = ctx.attr<std::vector<int64_t>>(name);
  return {list.begin(), list.end()};
}

}  // namespace

void pad_same(Window& window, llvm::ArrayRef<int64_t> input) {
  for (size_t i = 0; i < input.size(); ++i) {
    window.dilations[i] = 1;
    window.before[i] = window.after[i] = 0;
    const int64_t stride = window.strides[i];
    if (!window_is_sane(window, i, input[i]) || stride < 1) continue;
    const int64_t places = (input[i] + stride - 1) / stride;
    const int64_t sum = std::max<int64_t>((places - 1) * stride + window.kernel[i] - input[i], 0);
    window.before[i] = sum / 2;
    window.after[i] = sum - sum / 2;
  }
}

bool channels_last(const InferContext& ctx, llvm::StringRef attr) {
  const auto format = ctx.attr<std::string>(attr);
  return format.size() > 1 && format[0] == 'N' && format.back() == 'C';
}

size_t channel_dim(const VarMeta& image, bool last) {
  return last ? image.rank() - 1 : 1;
}

size_t first_spatial(bool channels_last) {
  return channels_last ? 1 : 2;
}

llvm::ArrayRef<int64_t> spatial_dims(const VarMeta& image, bool channels_last) {
  const llvm::ArrayRef<int64_t> dims = image.dims;
  return dims.slice(first_spatial(channels_last), dims.size() - 2);
}

Status check_length(const InferContext& ctx, llvm::StringRef attr, size_t found, size_t count,
                    bool or_twice) {
  if (found == count || (or_twice && found == 2 * count)) return Ok();
  if (or_twice) {
    return ctx.error("attribute '{}' must have {} or {} entries, found {}", view_window(attr),
                     count, 2 * count, found);
  }
  return ctx.error("attribute '{}' must have {} entries, found {}", view_window(attr), count,
                   found);
}

Status check_positive(const InferContext& ctx, llvm::StringRef attr, int64_t value) {
  if (value >= 1) return Ok();
  return ctx.error("attribute '{}' must be at least 1, found {}", view_window(attr), value);
}

StatusOr<bool> conv_shapes_known(const InferContext& ctx) {
  const VarMeta& input = ctx.input("Input");
  const VarMeta& filter = ctx.input("Filter");
  if (!input.has_shape || !filter.has_shape) return false;
  if (input.rank() >= 3 && input.rank() == filter.rank()) return true;
  return ctx.error("Input {} and Filter {} must have the same rank, at least 3",
                   dims_text(input.dims), dims_text(filter.dims));
}

StatusOr<Window> read_window(const InferContext& ctx, llvm::ArrayRef<int64_t> kernel,
                             llvm::ArrayRef<int64_t> input) {
  const size_t n = input.size();
  Window window;
  window.kernel.assign(kernel.begin(), kernel.end());
  window.strides = list_attr(ctx, "strides");
  window.dilations = list_attr(ctx, "dilations");
  // Pooling has no dilations. For other ops an empty list is an error: the attribute is missing.
  if (ctx.def().find_attr("dilations") == nullptr) window.dilations.assign(n, 1);
  const Dims paddings = list_attr(ctx, "paddings");
  MILLRACE_RETURN_IF_ERROR(check_length(ctx, "strides", window.strides.size(), n));
  MILLRACE_RETURN_IF_ERROR(check_length(ctx, "dilations", window.dilations.size(), n));
  MILLRACE_RETURN_IF_ERROR(check_length(ctx, "paddings", paddings.size(), n, /*or_twice=*/true));
  const bool pairs = paddings.size() == 2 * n;
  for (size_t i = 0; i < n; ++i) {
    window.before.push_back(pairs ? paddings[2 * i] : paddings[i]);
    window.after.push_back(pairs ? paddings[2 * i + 1] : paddings[i]);
  }
  if (ctx.def().find_attr("padding_algorithm") == nullptr) return window;
  const auto algorithm = ctx.attr<std::string>("padding_algorithm");
  if (algorithm == "SAME") pad_same(window, input);
  if (algorithm == "VALID") {
    window.before.assign(n, 0);
    window.after.assign(n, 0);
  }
  return window;
}

bool window_is_sane(const Window& window, size_t i, int64_t size) {
  constexpr int64_t kLimit = int64_t{1} << 31;
  for (const int64_t number : {size, window.kernel[i], window.strides[i], window.dilations[i]}) {
    if (number < 0 || number >= kLimit) return false;
  }
  return std::abs(window.before[i]) < kLimit && std::abs(window.after[i]) < kLimit;
}

int64_t window_places(const Window& window, size_t i, int64_t size, bool round_up) {
  const int64_t stride = window.strides[i];
  if (!window_is_sane(window, i, size) || stride < 1) return -1;
  const int64_t extent = window.dilations[i] * (window.kernel[i] - 1) + 1;
  const int64_t room = size + window.before[i] + window.after[i] - extent;
  if (room < 0) return 0;
  return (room + (round_up ? stride - 1 : 0)) / stride + 1;
}

StatusOr<Dims> conv_spatial(const InferContext& ctx, llvm::ArrayRef<int64_t> input,
                            const Window& window) {
  Dims out;
  for (size_t i = 0; i < input.size(); ++i) {
    const int64_t places = window_places(window, i, input[i]);
    if (places == 0) {
      return ctx.error(
          "Filter of size {} (dilated by {}) does not fit in spatial dim {} of Input of size {} "
          "padded by {} and {}",
          window.kernel[i], window.dilations[i], i, input[i], window.before[i], window.after[i]);
    }
    out.push_back(places);
  }
  return out;
}

void set_conv_output(InferContext& ctx, const std::optional<Dims>& dims) {
  const VarMeta input = ctx.input("Input");
  ctx.set_output("Output",
                 dims ? without_offsets(with_dims(input, *dims)) : shapeless_meta(input.dtype));
}

double filter_operations(const VarMeta& filter) {
  return 2 * element_count(filter) / static_cast<double>(std::max<int64_t>(filter.dims[0], 1));
}

double conv_operations(const InferContext& ctx, const StatusOr<std::optional<Dims>>& dims) {
  const VarMeta& filter = ctx.input("Filter");
  if (!dims.ok() || !dims.value() || filter.dims.empty()) return 0;
  return filter_operations(filter) * element_count(tensor_meta(DType::kFloat32, *dims.value()));
}

OpDef& add_conv_attrs(OpDef& def, size_t spatial) {
  const std::vector<int32_t> ones(spatial, 1);
  return def.attr("strides", ones, "stride of the window in each spatial dim")
      .range(1)
      .attr("paddings", std::vector<int32_t>(spatial, 0), "one entry or (before, after) a dim")
      .attr("padding_algorithm", "EXPLICIT", "SAME and VALID replace paddings")
      .one_of({"EXPLICIT", "SAME", "VALID"})
      .attr("dilations", ones, "distance of the kernel's elements")
      .range(1)
      .attr("groups", 1, "channels are split into that many groups")
      .range(1)
      .attr("data_format", spatial == 2 ? "NCHW" : "NCDHW", "order of the image dims")
      .one_of({"NCHW", "NHWC", "NCDHW", "NDHWC", "AnyLayout"});
}

}  // namespace millrace::ops
