#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "kernels/cpu/int_list.h"
#include "kernels/cpu/strided.h"
#include "kernels/cpu/tensor/axis_view.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace unique_kernels {
namespace {

// The distinct items in order, and the mapping of all items to them.
struct Found {
  std::vector<int64_t> first;    // position of the first occurrence of each distinct item
  std::vector<int64_t> inverse;  // for each item, its index among the distinct ones
  std::vector<int64_t> counts;   // number of occurrences of each distinct item
};

// Distinct items in order of their first occurrence.
template <typename T>
Found find_in_order(const T* x, int64_t count) {
  Found found;
  std::unordered_map<T, int64_t> places;
  for (int64_t i = 0; i < count; ++i) {
    const auto [place, is_new] = places.try_emplace(x[i], static_cast<int64_t>(found.first.size()));
    if (is_new) {
      found.first.push_back(i);
      found.counts.push_back(0);
    }
    found.inverse.push_back(place->second);
    ++found.counts[static_cast<size_t>(place->second)];
  }
  return found;
}

// Distinct items in ascending order. less(a, b) compares items by their index.
template <typename Less>
Found find_sorted(int64_t count, Less less) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), less);
  Found found;
  found.inverse.resize(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || less(order[i - 1], order[i])) {
      found.first.push_back(order[i]);
      found.counts.push_back(0);
    }
    ++found.counts.back();
    found.inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(found.first.size()) - 1;
  }
  return found;
}

Status write_list(const KernelContext& ctx, ArgIndex arg, const std::vector<int64_t>& list,
                  DType dtype) {
  Tensor* const out = ctx.find_out(arg);
  if (out == nullptr) return Ok();
  MILLRACE_RETURN_IF_ERROR(size_output(*out, dtype, {static_cast<int64_t>(list.size())}));
  if (dtype == DType::kInt32) {
    std::transform(list.begin(), list.end(), out->data<int32_t>(),
                   [](int64_t value) { return static_cast<int32_t>(value); });
  } else {
    std::copy(list.begin(), list.end(), out->data<int64_t>());
  }
  return Ok();
}

struct UniqueArgs {
  ArgIndex x;
  ArgIndex out;
  ArgIndex indices;
  ArgIndex index;
  ArgIndex counts;
  DType dtype = DType::kInt64;
  std::vector<int64_t> axis;
  bool sorted = false;
};

// True if slice a of the view is ordered before slice b, element by element.
template <typename T>
bool slice_less(const AxisView& view, const T* x, int64_t a, int64_t b) {
  for (int64_t o = 0; o < view.outer; ++o) {
    const T* const left = x + (o * view.size + a) * view.inner;
    const T* const right = x + (o * view.size + b) * view.inner;
    for (int64_t i = 0; i < view.inner; ++i) {
      if (left[i] != right[i]) return left[i] < right[i];
    }
  }
  return false;
}

Status write_lists(const KernelContext& ctx, const UniqueArgs& args, const Found& found) {
  MILLRACE_RETURN_IF_ERROR(write_list(ctx, args.indices, found.first, args.dtype));
  MILLRACE_RETURN_IF_ERROR(write_list(ctx, args.index, found.inverse, args.dtype));
  return write_list(ctx, args.counts, found.counts, args.dtype);
}

template <typename T>
Status unique_elements(const KernelContext& ctx, const UniqueArgs& args, const Tensor& x) {
  const T* const from = x.data<T>();
  const Found found =
      args.sorted ? find_sorted(x.numel(), [&](int64_t a, int64_t b) { return from[a] < from[b]; })
                  : find_in_order(from, x.numel());
  Tensor out;  // the output may be the same tensor as the input
  MILLRACE_RETURN_IF_ERROR(out.resize(x.dtype(), {static_cast<int64_t>(found.first.size())}));
  for (size_t i = 0; i < found.first.size(); ++i) out.data<T>()[i] = from[found.first[i]];
  MILLRACE_RETURN_IF_ERROR(write_lists(ctx, args, found));
  ctx.out(args.out) = std::move(out);
  return Ok();
}

template <typename T>
Status unique_slices(const KernelContext& ctx, const UniqueArgs& args, const Tensor& x) {
  MILLRACE_ASSIGN_OR_RETURN(const int64_t axis, axis_of(args.axis[0], x.rank()));
  const AxisView view(x.dims(), static_cast<size_t>(axis));
  const T* const from = x.data<T>();
  const Found found =
      find_sorted(view.size, [&](int64_t a, int64_t b) { return slice_less(view, from, a, b); });
  Dims dims(x.dims().begin(), x.dims().end());
  const auto kept = static_cast<int64_t>(found.first.size());
  if (!dims.empty()) dims[static_cast<size_t>(axis)] = kept;
  Tensor out;
  MILLRACE_RETURN_IF_ERROR(out.resize(x.dtype(), dims));
  for (int64_t o = 0; o < view.outer; ++o) {
    for (int64_t j = 0; j < kept; ++j) {
      const T* const slice =
          from + (o * view.size + found.first[static_cast<size_t>(j)]) * view.inner;
      std::copy(slice, slice + view.inner, out.data<T>() + (o * kept + j) * view.inner);
    }
  }
  MILLRACE_RETURN_IF_ERROR(write_lists(ctx, args, found));
  ctx.out(args.out) = std::move(out);
  return Ok();
}

StatusOr<Kernel> make(const UniqueArgs& args) {
  return Kernel([args](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(args.x);
    return dispatch<NumberTypes>(x.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      return args.axis.empty() ? unique_elements<T>(ctx, args, x) : unique_slices<T>(ctx, args, x);
    });
  });
}

StatusOr<Kernel> unique(const KernelSetup& op) {
  UniqueArgs args;
  args.x = op.input("X");
  args.out = op.output("Out");
  args.indices = op.output("Indices");
  args.index = op.output("Index");
  args.counts = op.output("Counts");
  args.dtype = op.dtype_attr("dtype");
  args.axis = op.attr<std::vector<int64_t>>("axis");
  args.sorted = op.attr<bool>("is_sorted");
  if (!args.sorted) args.axis.clear();
  return make(args);
}

StatusOr<Kernel> unique_with_counts(const KernelSetup& op) {
  UniqueArgs args;
  args.x = op.input("X");
  args.out = op.output("Out");
  args.index = op.output("Index");
  args.counts = op.output("Count");
  args.dtype = op.dtype_attr("dtype");
  return make(args);
}

}  // namespace
}  // namespace unique_kernels

void add_tensor_unique(KernelRegistry& registry) {
  using namespace unique_kernels;
  registry.add("unique", unique);
  registry.add("unique_with_counts", unique_with_counts);
}

}  // namespace millrace::kernels
