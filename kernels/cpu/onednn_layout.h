#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <oneapi/dnnl/dnnl.hpp>

#include "framework/tensor/layout.h"
#include "kernels/cpu/layouts.h"

namespace millrace::kernels::dnn {

/// An order of elements that oneDNN supports. Thread-safety: concurrent readers.
class NativeLayout final : public Layout {
 public:
  /// \param desc   the order
  /// \param plain  the same tensor in row-major order; its dims may be those of the tensor in
  ///               another order or split into groups
  NativeLayout(dnnl::engine engine, const dnnl::memory::desc& desc,
               const dnnl::memory::desc& plain);

  [[nodiscard]] int64_t bytes() const override { return static_cast<int64_t>(desc_.get_size()); }
  [[nodiscard]] bool same_as(const Layout& other) const override;
  Status to_plain(const std::byte* from, std::byte* to) const override;
  /// The inverse conversion.
  Status from_plain(const std::byte* from, std::byte* to) const;
  [[nodiscard]] std::string name() const override;

  /// The engine, the order itself, row-major order, and the order as blocks of channels if it is
  /// one.
  [[nodiscard]] const dnnl::engine& engine() const { return engine_; }
  [[nodiscard]] const dnnl::memory::desc& desc() const { return desc_; }
  [[nodiscard]] const dnnl::memory::desc& plain() const { return plain_; }
  [[nodiscard]] const std::optional<ChannelBlocks>& blocks() const { return blocks_; }

 private:
  // Created at first use.
  struct Conversion {
    std::mutex mutex;       ///< guards the members below
    dnnl::stream stream;    ///< of the engine below
    dnnl::memory from;      ///< set to the caller's memory before each run
    dnnl::memory to;        ///< the same
    dnnl::reorder reorder;  ///< made at the first conversion
  };
  Status convert(Conversion& conversion, const dnnl::memory::desc& from_desc, const std::byte* from,
                 const dnnl::memory::desc& to_desc, std::byte* to) const;

  dnnl::engine engine_;                  ///< of the processor
  dnnl::memory::desc desc_;              ///< order of the elements
  dnnl::memory::desc plain_;             ///< the same dims in row-major order
  std::optional<ChannelBlocks> blocks_;  ///< set if the layout is blocks of channels
  mutable Conversion to_plain_;
  mutable Conversion from_plain_;
};

/// The layout as a oneDNN layout; null if it is row-major order. Errors: kInternal for a layout of
/// another library.
StatusOr<const NativeLayout*> native_layout(const LayoutPtr& layout);

/// True if images have the same bytes in both orders although the descriptors differ: blocks of
/// channels without padding, with one element per image and channel.
bool same_bytes(const dnnl::memory::desc& desc, const dnnl::memory::desc& plain);

}  // namespace millrace::kernels::dnn
