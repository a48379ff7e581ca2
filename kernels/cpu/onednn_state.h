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

/// Of the device: for conversions, which no kernel may use it during.
inline constexpr int kScratchSlot = 3;

/// Engine and stream of a device, made at first use; see CpuDevice::library().
struct Library {
  dnnl::engine engine;
  dnnl::stream stream;
};
/// Errors: kInternal with what the library said.
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

/// What a failed call means.
Status failed(dnnl_status_t status);
/// Points a memory at other bytes; most calls pass the same ones again.
dnnl_status_t point(dnnl::memory& memory, const void* data, dnnl_stream_t stream);
/// Runs a conversion between memories of its descriptions.
dnnl_status_t run_reorder(const dnnl::primitive& reorder, const dnnl::memory& from,
                          const dnnl::memory& to, dnnl_stream_t stream);

/// Describes what the caller holds.
dnnl::memory::desc native(const Desc& desc);
/// The same tensor in the layout that the library likes best.
dnnl::memory::desc any_layout(const Desc& desc);

/// Attributes of a primitive to which run() gives scratch memory of the device. What the library
/// takes itself belongs to the thread that made the primitive, and others must not run it.
dnnl::primitive_attr own_scratch();

/// A product that the library has no part in.
Primitive tile_primitive(const tiles::Shape& shape);

/// Collects the arguments of a primitive; then build().
class PrimitiveBuilder {
 public:
  explicit PrimitiveBuilder(Library& library) : library_(library) {}

  /// \param chosen  layout that the primitive was made with; converted if it is not the caller's
  /// \param is_read  an output that the primitive adds to
  void add(Arg arg, const Desc& desc, const dnnl::memory::desc& chosen, bool is_read = false);
  /// \param scratch  memory that the primitive needs while it runs; it was made with
  ///                 own_scratch()
  /// May throw dnnl::error.
  Primitive build(const dnnl::primitive& primitive, const dnnl::memory::desc& scratch);

 private:
  struct Pending {
    Arg arg;
    dnnl::memory::desc user;
    dnnl::memory::desc chosen;
    bool is_read;
  };
  Library& library_;
  std::vector<Pending> pending_;
};

}  // namespace millrace::kernels::dnn
