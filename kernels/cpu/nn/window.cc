#include "kernels/cpu/nn/window.h"

#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "kernels/cpu/nn/channels.h"

namespace millrace::kernels {
namespace {

Dims list_attr(const KernelSetup& op, llvm::StringRef name) {
  if (op.def().find_attr(name) == nullptr) return {};
  const auto list = op.attr<std::vector<int64_t>>(name);
  return {list.begin(), list.end()};
}

Status bad_list(const char* name, llvm::ArrayRef<int64_t> found, size_t count) {
  return {StatusCode::kExecution,
          fmt::format("attribute '{}' must have {} entries of at least 1, found {}", name, count,
                      ops::dims_text(found))};
}

bool all_positive(llvm::ArrayRef<int64_t> list) {
  for (const int64_t value : list) {
    if (value < 1) return false;
  }
  return true;
}

}  // namespace

WindowAttrs read_window_attrs(const KernelSetup& op) {
  WindowAttrs attrs;
  attrs.strides = list_attr(op, "strides");
  attrs.dilations = list_attr(op, "dilations");
  attrs.paddings = list_attr(op, "paddings");
  if (op.def().find_attr("padding_algorithm") != nullptr) {
    const auto algorithm = op.attr<std::string>("padding_algorithm");
    attrs.same = algorithm == "SAME";
    attrs.valid = algorithm == "VALID";
  }
  return attrs;
}

StatusOr<ops::Window> window_over(const WindowAttrs& attrs, llvm::ArrayRef<int64_t> kernel,
                                  llvm::ArrayRef<int64_t> input) {
  const size_t n = input.size();
  ops::Window window;
  window.kernel.assign(kernel.begin(), kernel.end());
  window.strides = attrs.strides;
  window.dilations = attrs.dilations;
  if (window.dilations.empty()) window.dilations.assign(n, 1);
  if (kernel.size() != n || !all_positive(kernel)) return bad_list("ksize", kernel, n);
  if (window.strides.size() != n || !all_positive(window.strides))
    return bad_list("strides", window.strides, n);
  if (window.dilations.size() != n || !all_positive(window.dilations))
    return bad_list("dilations", window.dilations, n);
  const bool pairs = attrs.paddings.size() == 2 * n;
  if (!pairs && attrs.paddings.size() != n) return bad_list("paddings", attrs.paddings, n);
  for (size_t i = 0; i < n; ++i) {
    window.before.push_back(attrs.valid ? 0 : attrs.paddings[pairs ? 2 * i : i]);
    window.after.push_back(attrs.valid ? 0 : attrs.paddings[pairs ? 2 * i + 1 : i]);
  }
  if (attrs.same) ops::pad_same(window, input);
  return window;
}

bool channels_last(const KernelSetup& op, llvm::StringRef attr) {
  const auto format = op.attr<std::string>(attr);
  return format.size() > 1 && format[0] == 'N' && format.back() == 'C';
}

Status check_alike(const Tensor& a, const char* slot_a, const Tensor& b, const char* slot_b) {
  if (a.dtype() == b.dtype() && a.dims() == b.dims()) return Ok();
  return KernelContext::error("{} and {} must match, found {} and {}", slot_a, slot_b, describe(a),
                              describe(b));
}

void fill_zero(Tensor& tensor) {
  if (tensor.numel() > 0) std::memset(tensor.raw(), 0, static_cast<size_t>(tensor.bytes()));
}

}  // namespace millrace::kernels
