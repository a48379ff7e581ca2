#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "framework/base/status.h"
#include "framework/tensor/scope.h"
#include "framework/tensor/value.h"
#include "kernels/gpu/context.h"

namespace millrace::executor {

/// Remembers where values are in device memory, while code that does not know the device gives them
/// new elements in process memory, such as a server's response. Afterwards the elements are copied
/// to where the old ones were, so that recorded work (executor/gpu/replays.h) stays valid.
///
/// Thread-safety: as gpu::Context. Until settle(), other threads may drop what the value held:
/// device memory that is remembered is not freed.
class KeptPlaces {
 public:
  explicit KeptPlaces(std::shared_ptr<gpu::Context> context) : context_(std::move(context)) {}
  KeptPlaces(const KeptPlaces&) = delete;
  KeptPlaces& operator=(const KeptPlaces&) = delete;

  /// Remembers where a value is. If it is not in device memory, an earlier place is kept.
  /// \param value  must stay at its address until settle()
  /// \param name   of the var, for messages
  void note(Value& value, const std::string& name);
  /// Copies noted values that are dense tensors in process memory now to their places; a tensor
  /// that has become larger stays where it is. Values remain noted. Errors: kResource, kExecution.
  Status settle();
  /// The same for one value.
  Status settle(Value& value);

 private:
  /// Part of an allocation of device memory.
  struct Place {
    std::shared_ptr<gpu::Block> block;
    int64_t offset = 0;
    int64_t capacity = 0;
    std::string name;
  };
  Status settle(Value& value, const Place& place);

  std::shared_ptr<gpu::Context> context_;
  std::map<Value*, Place> places_;  ///< order is not visible
};

/// Copies all values of a scope that are in device memory to process memory, where code that does
/// not know the device can read and replace them. Errors: kResource, kExecution.
Status bring_home(Scope& scope);

}  // namespace millrace::executor
