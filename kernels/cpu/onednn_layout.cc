#include "kernels/cpu/onednn_layout.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kernels/cpu/onednn_state.h"

namespace millrace::kernels {
namespace dnn {
namespace {

// All code that reads a descriptor is here; the fields of descriptors are private in oneDNN 3.
struct OnednnLayoutStrides {
  explicit OnednnLayoutStrides(const dnnl::memory::desc& desc)
      : rank(desc.data.ndims),
        dims(desc.data.dims, desc.data.dims + rank),
        padded(desc.data.padded_dims, desc.data.padded_dims + rank),
        strides(desc.data.format_desc.blocking.strides,
                desc.data.format_desc.blocking.strides + rank) {
    const dnnl_blocking_desc_t& blocking = desc.data.format_desc.blocking;
    for (int i = 0; i < blocking.inner_nblks; ++i)
      inner.emplace_back(blocking.inner_idxs[i], blocking.inner_blks[i]);
  }
  // Number of elements per image and channel.
  [[nodiscard]] int64_t places() const {
    int64_t count = 1;
    for (int i = 2; i < rank; ++i) count *= dims[static_cast<size_t>(i)];
    return count;
  }

  int rank;
  std::vector<int64_t> dims;
  std::vector<int64_t> padded;
  std::vector<int64_t> strides;                    // strides between blocks
  std::vector<std::pair<int64_t, int64_t>> inner;  // dim and size, outermost first
};

// True if these are the strides of dense pixels with that many lanes.
bool has_dense_pixels(const OnednnLayoutStrides& s, int64_t lanes, int64_t blocks) {
  int64_t expected = lanes;
  for (int i = s.rank - 1; i >= 2; --i) {
    const auto at = static_cast<size_t>(i);
    if (s.dims[at] != 1 && s.strides[at] != expected) return false;
    expected *= s.dims[at];
  }
  if (blocks != 1 && s.strides[1] != expected) return false;
  return s.dims[0] == 1 || s.strides[0] == expected * blocks;
}

std::optional<ChannelBlocks> find_blocks(const dnnl::memory::desc& desc,
                                         const dnnl::memory::desc& plain) {
  if (desc.data.format_kind != dnnl_blocked || desc.data.ndims < 3 || desc.data.ndims > 5)
    return std::nullopt;
  const OnednnLayoutStrides s(desc);
  ChannelBlocks result;
  result.outer = s.dims[0];
  result.channels = s.dims[1];
  result.inner = s.places();
  if (s.inner.size() == 1 && s.inner[0].first == 1) {
    result.lanes = s.inner[0].second;
    result.blocks = s.padded[1] / result.lanes;
  } else if (s.inner.empty() && s.strides[1] == 1) {
    result.lanes = s.dims[1];
    result.blocks = 1;
  }
  if (result.lanes == 0 || result.lanes % 8 != 0) return std::nullopt;
  if (!has_dense_pixels(s, result.lanes, result.blocks)) return std::nullopt;
  // the tensor itself must have its channels in dim 1
  const OnednnLayoutStrides p(plain);
  if (p.dims[1] != 1 && p.strides[1] != p.places()) return std::nullopt;
  return result;
}

}  // namespace

bool same_bytes(const dnnl::memory::desc& desc, const dnnl::memory::desc& plain) {
  const std::optional<ChannelBlocks> blocks = find_blocks(desc, plain);
  return desc.data.data_type == plain.data.data_type && blocks && blocks->inner == 1 &&
         blocks->padded() == blocks->channels;
}

NativeLayout::NativeLayout(dnnl::engine engine, const dnnl::memory::desc& desc,
                           const dnnl::memory::desc& plain)
    : engine_(std::move(engine)), desc_(desc), plain_(plain), blocks_(find_blocks(desc, plain)) {}

bool NativeLayout::same_as(const Layout& other) const {
  const auto* const native = dynamic_cast<const NativeLayout*>(&other);
  return native != nullptr && native->desc_ == desc_ && native->plain_ == plain_;
}

Status NativeLayout::convert(Conversion& conversion, const dnnl::memory::desc& from_desc,
                             const std::byte* from, const dnnl::memory::desc& to_desc,
                             std::byte* to) const {
  const std::lock_guard lock(conversion.mutex);
  if (!conversion.reorder) {
    MILLRACE_ASSIGN_OR_RETURN(const bool made, guarded<bool>("reorder", [&] {
                                conversion.stream = dnnl::stream(engine_);
                                conversion.from =
                                    dnnl::memory(from_desc, engine_, DNNL_MEMORY_NONE);
                                conversion.to = dnnl::memory(to_desc, engine_, DNNL_MEMORY_NONE);
                                conversion.reorder = dnnl::reorder(conversion.from, conversion.to);
                                return true;
                              }));
    (void)made;
  }
  const dnnl_stream_t stream = conversion.stream.get();
  dnnl_status_t status = point(conversion.from, from, stream);
  if (status == dnnl_success) status = point(conversion.to, to, stream);
  if (status == dnnl_success)
    status = run_reorder(conversion.reorder, conversion.from, conversion.to, stream);
  return status == dnnl_success ? Ok() : failed(status);
}

Status NativeLayout::to_plain(const std::byte* from, std::byte* to) const {
  return convert(to_plain_, desc_, from, plain_, to);
}
Status NativeLayout::from_plain(const std::byte* from, std::byte* to) const {
  return convert(from_plain_, plain_, from, desc_, to);
}

// As in oneDNN: one letter per dim, from the largest stride to the smallest, upper-case if the dim
// is split into blocks; then the blocks.
std::string NativeLayout::name() const {
  if (desc_.data.format_kind != dnnl_blocked) return "packed";
  const OnednnLayoutStrides s(desc_);
  std::vector<size_t> order(s.dims.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return s.strides[a] > s.strides[b]; });
  const auto is_cut = [&](size_t dim) {
    return std::any_of(s.inner.begin(), s.inner.end(), [dim](const auto& block) {
      return block.first == static_cast<int64_t>(dim);
    });
  };
  std::string text;
  for (const size_t dim : order)
    text += static_cast<char>((is_cut(dim) ? 'A' : 'a') + static_cast<char>(dim));
  for (const auto& [dim, size] : s.inner)
    text += fmt::format("{}{}", size, static_cast<char>('a' + static_cast<char>(dim)));
  return text;
}

StatusOr<const NativeLayout*> native_layout(const LayoutPtr& layout) {
  const auto* const native = dynamic_cast<const NativeLayout*>(layout.get());
  if (native == nullptr && layout != nullptr) {
    return Status(StatusCode::kInternal,
                  fmt::format("oneDNN cannot read the layout {}", layout->name()));
  }
  return native;
}

}  // namespace dnn

namespace {

// Converts between two layouts of the library.
Status convert(const dnn::NativeLayout& source, const std::byte* from,
               const dnn::NativeLayout& target, std::byte* to) {
  if (source.plain() != target.plain())
    return {StatusCode::kInternal, fmt::format("a tensor in layout {} cannot be converted to {}",
                                               source.name(), target.name())};
  const auto status = dnn::guarded<dnnl_status_t>("reorder", [&] {
    dnnl::stream stream(source.engine());
    // The library reads through a pointer to non-const.
    dnnl::memory old_memory(source.desc(), source.engine(), const_cast<std::byte*>(from));
    dnnl::memory new_memory(target.desc(), source.engine(), to);
    const dnnl::reorder reorder(old_memory, new_memory);
    return dnn::run_reorder(reorder, old_memory, new_memory, stream.get());
  });
  if (!status.ok()) return status.status();
  return *status == dnnl_success ? Ok() : dnn::failed(*status);
}

Status convert(const LayoutPtr& from_layout, const std::byte* from, const LayoutPtr& to_layout,
               std::byte* to) {
  if (to_layout == nullptr) return from_layout->to_plain(from, to);
  MILLRACE_ASSIGN_OR_RETURN(const dnn::NativeLayout* const target, dnn::native_layout(to_layout));
  if (from_layout == nullptr) return target->from_plain(from, to);
  MILLRACE_ASSIGN_OR_RETURN(const dnn::NativeLayout* const source, dnn::native_layout(from_layout));
  return convert(*source, from, *target, to);
}

}  // namespace

bool keeps_private_layouts(llvm::StringRef op_type) {
  return op_type == "fused_conv2d" || op_type == "int8_conv2d" || op_type == "int8_fc";
}

bool same_order(const LayoutPtr& a, const LayoutPtr& b) {
  return a == b || (a != nullptr && b != nullptr && a->same_as(*b));
}

Status bring_to(CpuDevice& device, Tensor& tensor, const LayoutPtr& layout) {
  if (!tensor.initialized() || same_order(tensor.layout(), layout)) return Ok();
  const LayoutPtr before = tensor.layout();
  // Only the library that a layout belongs to may be able to read its elements.
  if (before != nullptr && dynamic_cast<const dnn::NativeLayout*>(before.get()) == nullptr) {
    MILLRACE_RETURN_IF_ERROR(make_plain(tensor));
    return bring_to(device, tensor, layout);
  }
  const auto bytes = static_cast<size_t>(tensor.storage_bytes());
  MILLRACE_ASSIGN_OR_RETURN(std::byte* const copy, device.scratch(bytes, dnn::kScratchSlot));
  if (bytes > 0) std::memcpy(copy, tensor.raw(), bytes);
  const Dims dims(tensor.dims().begin(), tensor.dims().end());
  MILLRACE_RETURN_IF_ERROR(tensor.resize(tensor.dtype(), dims, layout));
  if (tensor.numel() == 0) return Ok();
  return convert(before, copy, layout, tensor.raw());
}

Status bring_to(const KernelContext& ctx, ArgIndex arg, const LayoutPtr& layout) {
  if (ctx.find_in(arg) == nullptr) return Ok();
  return bring_to(ctx.device(), ctx.stored_in(arg), layout);
}

Status bring_to_plain(const KernelContext& ctx, std::initializer_list<ArgIndex> args) {
  for (const ArgIndex arg : args) MILLRACE_RETURN_IF_ERROR(bring_to(ctx, arg, nullptr));
  return Ok();
}

std::optional<ChannelBlocks> channel_blocks(const Tensor& tensor) {
  const auto* const native = dynamic_cast<const dnn::NativeLayout*>(tensor.layout().get());
  return native == nullptr ? std::nullopt : native->blocks();
}

StatusOr<LayoutPtr> blocks_like(const LayoutPtr& like, DType dtype, llvm::ArrayRef<int64_t> dims) {
  using Tag = dnnl::memory::format_tag;
  MILLRACE_ASSIGN_OR_RETURN(const dnn::NativeLayout* const native, dnn::native_layout(like));
  if (native == nullptr || !native->blocks() || dims.size() < 3 || dims.size() > 5) {
    return Status(StatusCode::kInternal, "the layout to follow is not in blocks of channels");
  }
  const int64_t lanes = native->blocks()->lanes;
  constexpr std::array<std::array<Tag, 3>, 3> kTags = {{{Tag::nCw8c, Tag::nChw8c, Tag::nCdhw8c},
                                                        {Tag::nCw16c, Tag::nChw16c, Tag::nCdhw16c},
                                                        {Tag::nwc, Tag::nhwc, Tag::ndhwc}}};
  const bool last = native->blocks()->blocks == 1 && lanes == native->blocks()->channels &&
                    native->desc().data.format_desc.blocking.inner_nblks == 0;
  if (!last && lanes != 8 && lanes != 16) {
    return Status(StatusCode::kInternal, fmt::format("no layout has blocks of {} channels", lanes));
  }
  const Tag tag = kTags[last ? 2 : (lanes == 8 ? 0 : 1)][dims.size() - 3];
  const dnnl::memory::desc plain = dnn::native(dnn::dense(dtype, dims));
  return dnn::guarded<LayoutPtr>("layout", [&]() -> LayoutPtr {
    const dnnl::memory::desc desc(plain.dims(), plain.data_type(), tag);
    if (desc == plain || dnn::same_bytes(desc, plain)) return nullptr;
    return std::make_shared<const dnn::NativeLayout>(native->engine(), desc, plain);
  });
}

}  // namespace millrace::kernels
