#pragma once

#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "kernels/cpu/onednn.h"
#include "kernels/cpu/onednn_layout.h"
#include "kernels/cpu/tile_product.h"

namespace millrace::kernels::dnn {

/// Scratch slot of the device for conversions; no kernel may use it during run().
inline constexpr int kScratchSlot = 3;

/// Engine and stream of a device, created at first use; see CpuDevice::library().
struct Library {
  dnnl::engine engine;  ///< the processor
  dnnl::stream stream;
};
/// Errors: kInternal with the library's message.
StatusOr<Library*> library_of(CpuDevice& device);

/// Calls make() and turns a dnnl::error into a status: kUnimplemented or kInternal.
template <typename T, typename Make>
StatusOr<T> guarded(const char* what, Make&& make) {
  try {
    return make();
  } catch (const dnnl::error& error) {
    const bool missing = error.status == dnnl_unimplemented;
    return Status(missing ? StatusCode::kUnimplemented : StatusCode::kInternal,
                  fmt::format("oneDNN cannot make a {}: {}", what, error.what()));
  }
}

/// The status for a failed call.
Status failed(dnnl_status_t status);
/// Sets the data pointer of a memory. Skips the call if it is unchanged, which is common.
dnnl_status_t point(dnnl::memory& memory, const void* data, dnnl_stream_t stream);
/// Runs a conversion between memories that match its descriptors.
dnnl_status_t run_reorder(const dnnl::primitive& reorder, const dnnl::memory& from,
                          const dnnl::memory& to, dnnl_stream_t stream);

/// Describes the argument as the caller stores it.
dnnl::memory::desc native(const Desc& desc);
/// The same tensor in the layout that the library prefers.
dnnl::memory::desc any_layout(const Desc& desc);

/// Attributes of a primitive whose scratch memory run() supplies from the device. Scratch memory
/// that the library allocates belongs to the thread that made the primitive, and no other thread
/// may run it.
dnnl::primitive_attr own_scratch();

/// A product that is computed without the library.
Primitive tile_primitive(const tiles::Shape& shape);

/// Collects the arguments of a primitive; then call build().
class PrimitiveBuilder {
 public:
  explicit PrimitiveBuilder(Library& library) : library_(library) {}

  /// \param chosen  layout that the primitive was made with; converted if the caller's layout
  ///                differs
  /// \param is_read  an output whose old content the primitive adds to
  void add(Arg arg, const Desc& desc, const dnnl::memory::desc& chosen, bool is_read = false);
  /// \param scratch  memory that the primitive needs while it runs; it was made with own_scratch()
  /// May throw dnnl::error.
  Primitive build(const dnnl::primitive& primitive, const dnnl::memory::desc& scratch);

 private:
  struct Pending {
    Arg arg;                    ///< which operand
    dnnl::memory::desc user;    ///< order in which the kernel has it
    dnnl::memory::desc chosen;  ///< order that the primitive chose
    bool is_read;               ///< converted before the run; otherwise, after it
  };
  Library& library_;
  std::vector<Pending> pending_;  ///< operands in the order of add()
};

}  // namespace millrace::kernels::dnn
