#pragma once

#include <memory>
#include <vector>

#include "kernels/gpu/cuda/dnn_engines_api.h"
#include "kernels/gpu/cuda/library.h"
#include "kernels/gpu/functors/products.h"

namespace millrace::gpu {

/// The status of a call of cuDNN. Errors: kUnimplemented for what it does not support; kExecution.
/// \param error_string  the library's function for the text of a status
Status dnn_status(int status, const char* what, const char* (*error_string)(int));

/// The library's number of a type of elements.
int dnn_type(Element element);
/// True if a convolution has the same padding on both sides of each dim, or gives the same results
/// with such.
bool pads_alike(const Convolution& c);
/// The largest power of two, from 2 to 16, that divides the addresses of all operands.
int64_t alignment_of(const Convolution& c);

/// A convolution of one shape as an engine of cuDNN computes it.
struct EnginePlan {
  std::shared_ptr<void> plan;  ///< the library's object; null: none
  size_t scratch_bytes = 0;
};

/// Convolutions by engines of cuDNN's graph interface: it has faster kernels than the algorithms of
/// the older interface, and takes padding that differs between the two sides of a dim.
/// Thread-safety: as the Device that owns it.
class DnnEngines {
 public:
  /// \param tf32  engines may round factors to 10 bits of mantissa
  DnnEngines(const dnn::EnginesApi& api, dnn::Handle handle, bool tf32)
      : api_(api), handle_(handle), tf32_(tf32) {}
  /// The functions of the library. Errors: kUnimplemented if it lacks one.
  static StatusOr<dnn::EnginesApi> load(const SharedLibrary& library);

  /// The engines that the library recommends for a convolution, best first: deterministic ones that
  /// are compiled already and keep the precision. May be empty.
  /// Errors: kExecution; kUnimplemented if the library does not support it at all.
  [[nodiscard]] StatusOr<std::vector<EnginePlan>> plans(const Convolution& convolution) const;
  /// Queues the computation. Errors: kUnimplemented, kExecution.
  Status run(const Convolution& convolution, const EnginePlan& plan, void* scratch) const;

 private:
  using Descriptor = std::shared_ptr<void>;
  Status check(int status, const char* what) const;
  StatusOr<Descriptor> create(dnn::Kind kind) const;
  /// Sets an attribute that is an array of `count` values.
  Status set(const Descriptor& of, dnn::Name name, dnn::Type type, int64_t count,
             const void* values) const;
  Status set(const Descriptor& of, dnn::Name name, const Descriptor& value) const;
  Status finish(const Descriptor& of) const;
  StatusOr<Descriptor> tensor(const Convolution& c, int64_t id, const int64_t (&dims)[4]) const;
  StatusOr<Descriptor> window(const Convolution& c) const;
  /// The graph with that one operation, and what it refers to.
  StatusOr<std::vector<Descriptor>> graph(const Convolution& c) const;
  StatusOr<std::vector<Descriptor>> configs(const Descriptor& graph) const;
  StatusOr<std::vector<int>> notes(const Descriptor& engine, dnn::Name name, dnn::Type type,
                                   int most) const;
  StatusOr<bool> is_usable(const Descriptor& config, bool may_round) const;
  StatusOr<EnginePlan> plan(const Descriptor& config, const std::vector<Descriptor>& graph) const;

  dnn::EnginesApi api_;
  dnn::Handle handle_;
  bool tf32_;
};

}  // namespace millrace::gpu
