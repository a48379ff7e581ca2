#pragma once

#include <mutex>
#include <set>

#include "tests/cuda_standin/runtime.h"

namespace millrace::standin {

/// The live objects of one kind that a library has handed out. Unknown handles are found out
/// instead of being dereferenced. Thread-safety: concurrent calls.
template <typename T, typename Handle>
class Registry {
 public:
  /// Creates an object.
  Handle add(T object) {
    const std::lock_guard held(lock_);
    auto* const made = new T(std::move(object));
    objects_.insert(made);
    count_handle(1);
    return reinterpret_cast<Handle>(made);
  }
  /// Null if the handle is unknown.
  T* find(Handle handle) {
    const std::lock_guard held(lock_);
    auto* const found = reinterpret_cast<T*>(handle);
    return objects_.count(found) == 0 ? nullptr : found;
  }
  /// False if the handle is unknown.
  bool remove(Handle handle) {
    const std::lock_guard held(lock_);
    auto* const found = reinterpret_cast<T*>(handle);
    if (objects_.erase(found) == 0) return false;
    delete found;
    count_handle(-1);
    return true;
  }

 private:
  std::mutex lock_;
  std::set<T*> objects_;
};

}  // namespace millrace::standin
