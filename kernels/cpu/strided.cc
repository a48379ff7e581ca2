#include "kernels/cpu/strided.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/cpu/transpose_tile.h"

namespace millrace::kernels {
namespace strided {
namespace {

// Minimum number of bytes for which a copy uses a second thread.
constexpr int64_t kGrainBytes = int64_t{128} * 1024;

struct Bytes16 {
  uint64_t low;
  uint64_t high;
};

// A box without dims of 1, with neighbouring dims merged where their strides allow it.
StridedBox simplify(const StridedBox& box) {
  StridedBox out;
  for (size_t i = 0; i < box.dims.size(); ++i) {
    if (box.dims[i] == 1) continue;
    if (!out.dims.empty() && out.to.back() == box.to[i] * box.dims[i] &&
        out.from.back() == box.from[i] * box.dims[i]) {
      out.dims.back() *= box.dims[i];
      out.to.back() = box.to[i];
      out.from.back() = box.from[i];
    } else {
      out.push(box.dims[i], box.to[i], box.from[i]);
    }
  }
  return out;
}

// Iterates over the outer dims of a box, the last one fastest.
class StridedWalk {
 public:
  StridedWalk(const StridedBox& box, size_t outer, int64_t start) : box_(box), at_(outer, 0) {
    for (size_t i = outer; i-- > 0;) {
      at_[i] = start % box.dims[i];
      start /= box.dims[i];
      to += at_[i] * box.to[i];
      from += at_[i] * box.from[i];
    }
  }
  void next() {
    for (size_t i = at_.size(); i-- > 0;) {
      to += box_.to[i];
      from += box_.from[i];
      if (++at_[i] < box_.dims[i]) return;
      to -= box_.dims[i] * box_.to[i];
      from -= box_.dims[i] * box_.from[i];
      at_[i] = 0;
    }
  }

  int64_t to = 0;
  int64_t from = 0;

 private:
  const StridedBox& box_;
  Dims at_;
};

int64_t product(llvm::ArrayRef<int64_t> dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

template <typename U>
void copy_row(U* to, int64_t to_stride, const U* from, int64_t from_stride, int64_t count) {
  if (to_stride == 1 && from_stride == 1) {
    if (count * static_cast<int64_t>(sizeof(U)) >= 32) {
      std::memcpy(to, from, static_cast<size_t>(count) * sizeof(U));
    } else {
      for (int64_t i = 0; i < count; ++i) to[i] = from[i];
    }
  } else if (to_stride == 1 && from_stride == 0) {
    std::fill_n(to, count, *from);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i * to_stride] = from[i * from_stride];
  }
}

// A dim of the box, other than the last, in which `from` is contiguous while `to` is contiguous in
// the last dim.
int find_plane(const StridedBox& box) {
  if (box.dims.size() < 2 || box.to.back() != 1 || box.from.back() == 1 || box.from.back() == 0)
    return -1;
  for (size_t i = 0; i + 1 < box.dims.size(); ++i) {
    if (box.from[i] == 1 && box.dims[i] >= 4) return static_cast<int>(i);
  }
  return -1;
}

// The box with dim `plane` moved before the last one: a stack of transposed matrices.
template <typename U>
void copy_planes(CpuDevice& device, StridedBox box, int plane, U* to, const U* from) {
  const auto p = static_cast<size_t>(plane);
  const int64_t rows = box.dims[p];
  const int64_t row_step = box.to[p];
  for (Dims* const list : {&box.dims, &box.to, &box.from}) list->erase(list->begin() + plane);
  const int64_t columns = box.dims.back();
  const int64_t column_step = box.from.back();
  const size_t outer = box.dims.size() - 1;
  const int64_t planes = product(llvm::ArrayRef<int64_t>(box.dims).drop_back());
  constexpr int64_t kBand = 16;  // rows per task: one cache line of the source or more
  const int64_t bands = (rows + kBand - 1) / kBand;
  const int64_t band_bytes = kBand * columns * static_cast<int64_t>(sizeof(U));
  const int64_t grain = std::max<int64_t>(1, kGrainBytes / band_bytes);
  device.parallel_for(planes * bands, grain, [&](int64_t begin, int64_t end) {
    StridedWalk walk(box, outer, begin / bands);
    int64_t band = begin % bands;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = band * kBand;
      transpose_plane<U>(to + walk.to + first * row_step, row_step, from + walk.from + first,
                         column_step, std::min(kBand, rows - first), columns);
      if (++band == bands) {
        band = 0;
        walk.next();
      }
    }
  });
}

template <typename U>
void copy_box(CpuDevice& device, const StridedBox& box, std::byte* to_bytes,
              const std::byte* from_bytes) {
  U* const to = reinterpret_cast<U*>(to_bytes);
  const U* const from = reinterpret_cast<const U*>(from_bytes);
  if (box.dims.empty()) {
    *to = *from;
    return;
  }
  if (const int plane = find_plane(box); plane >= 0) {
    copy_planes<U>(device, box, plane, to, from);
    return;
  }
  const size_t outer = box.dims.size() - 1;
  const int64_t rows = product(llvm::ArrayRef<int64_t>(box.dims).drop_back());
  const int64_t count = box.dims.back();
  const int64_t to_stride = box.to.back();
  const int64_t from_stride = box.from.back();
  const int64_t row_bytes = count * static_cast<int64_t>(sizeof(U));
  const int64_t grain = std::max<int64_t>(1, kGrainBytes / row_bytes);
  device.parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
    StridedWalk walk(box, outer, begin);
    for (int64_t i = begin; i < end; ++i, walk.next())
      copy_row<U>(to + walk.to, to_stride, from + walk.from, from_stride, count);
  });
}

template <typename C, typename T>
void add_row(C* to, int64_t to_stride, const T* from, int64_t from_stride, int64_t count) {
  if (to_stride == 1 && from_stride == 1) {
    for (int64_t i = 0; i < count; ++i) to[i] += static_cast<C>(from[i]);
  } else if (to_stride == 0) {
    C sum{};
    for (int64_t i = 0; i < count; ++i) sum += static_cast<C>(from[i * from_stride]);
    *to += sum;
  } else {
    for (int64_t i = 0; i < count; ++i) to[i * to_stride] += static_cast<C>(from[i * from_stride]);
  }
}

// Threads split the outermost dim only if the output advances along it, so that no two threads
// write the same element.
template <typename C, typename T>
void add_box(CpuDevice& device, const StridedBox& box, C* to, const T* from) {
  if (box.dims.empty()) {
    *to += static_cast<C>(*from);
    return;
  }
  const size_t outer = box.dims.size() - 1;
  const int64_t rows = product(llvm::ArrayRef<int64_t>(box.dims).drop_back());
  const auto add_rows = [&](int64_t begin, int64_t end) {
    StridedWalk walk(box, outer, begin);
    for (int64_t i = begin; i < end; ++i, walk.next())
      add_row(to + walk.to, box.to.back(), from + walk.from, box.from.back(), box.dims.back());
  };
  if (outer == 0 || box.to[0] == 0) {
    add_rows(0, rows);
    return;
  }
  const int64_t inner_rows = rows / box.dims[0];
  const int64_t slab = inner_rows * box.dims.back();
  device.parallel_for(
      box.dims[0], std::max<int64_t>(1, 32768 / slab),
      [&](int64_t begin, int64_t end) { add_rows(begin * inner_rows, end * inner_rows); });
}

template <typename T>
Status sum_box(CpuDevice& device, const StridedBox& box, Tensor& to, const T* from) {
  if constexpr (sizeof(T) == 2 && !std::is_integral_v<T>) {
    const auto count = static_cast<size_t>(to.numel());
    MILLRACE_ASSIGN_OR_RETURN(std::byte* const bytes, device.scratch(count * sizeof(float)));
    auto* const sums = reinterpret_cast<float*>(bytes);
    std::fill_n(sums, count, 0.0F);
    if (from != nullptr) add_box(device, box, sums, from);
    T* const out = to.data<T>();
    for (size_t i = 0; i < count; ++i) out[i] = T(sums[i]);
  } else {
    fill_zero(device, to);
    if (from != nullptr) add_box(device, box, to.data<T>(), from);
  }
  return Ok();
}

template <typename... Ts>
Status sum_as(CpuDevice& device, const StridedBox& box, Tensor& to, const Tensor& from,
              bool nothing) {
  Status status;
  const bool found =
      ((to.dtype() == kDTypeOf<Ts> &&
        (status = sum_box<Ts>(device, box, to, nothing ? nullptr : from.data<Ts>()), true)) ||
       ...);
  if (!found) {
    return {StatusCode::kUnimplemented,
            std::string("no sums of elements of type ") + std::string(dtype_name(to.dtype()))};
  }
  return status;
}

}  // namespace
}  // namespace strided

Dims row_major(llvm::ArrayRef<int64_t> dims) {
  Dims strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

void copy_strided(CpuDevice& device, int64_t element_bytes, const StridedBox& box, std::byte* to,
                  const std::byte* from) {
  using namespace strided;
  if (product(box.dims) == 0) return;
  const StridedBox simple = simplify(box);
  if (simple.dims.empty() ||
      (simple.dims.size() == 1 && simple.to[0] == 1 && simple.from[0] == 1)) {
    const int64_t count = simple.dims.empty() ? 1 : simple.dims[0];
    copy_bytes(device, to, from, count * element_bytes);
    return;
  }
  switch (element_bytes) {
    case 1:
      copy_box<uint8_t>(device, simple, to, from);
      break;
    case 2:
      copy_box<uint16_t>(device, simple, to, from);
      break;
    case 4:
      copy_box<uint32_t>(device, simple, to, from);
      break;
    case 8:
      copy_box<uint64_t>(device, simple, to, from);
      break;
    default:
      copy_box<Bytes16>(device, simple, to, from);
  }
}

Status sum_strided(CpuDevice& device, const StridedBox& box, Tensor& to, const Tensor& from) {
  using namespace strided;
  const bool nothing = product(box.dims) == 0;
  return sum_as<float, double, Float16, Bfloat16, int32_t, int64_t>(device, simplify(box), to, from,
                                                                    nothing);
}

void copy_bytes(CpuDevice& device, std::byte* to, const std::byte* from, int64_t bytes) {
  if (to == from || bytes == 0) return;
  device.parallel_for(bytes, 2 * strided::kGrainBytes, [&](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  });
}

StatusOr<const std::byte*> bytes_apart(CpuDevice& device, const Tensor& from, const Tensor& to) {
  if (!from.shares_memory_with(to) || from.bytes() == 0) return from.raw();
  MILLRACE_ASSIGN_OR_RETURN(std::byte* const copy,
                            device.scratch(static_cast<size_t>(from.bytes()), 3));
  copy_bytes(device, copy, from.raw(), from.bytes());
  return static_cast<const std::byte*>(copy);
}

void fill_zero(CpuDevice& device, Tensor& tensor) {
  std::byte* const to = tensor.raw();
  device.parallel_for(tensor.bytes(), 2 * strided::kGrainBytes, [&](int64_t begin, int64_t end) {
    std::memset(to + begin, 0, static_cast<size_t>(end - begin));
  });
}

}  // namespace millrace::kernels
