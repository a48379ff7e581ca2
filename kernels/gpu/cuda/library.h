#pragma once

#include <initializer_list>
#include <string>

#include "framework/base/status.h"

namespace millrace::gpu {

/// A shared library that is loaded on demand: from the loader's search path, or from the folder of
/// the module. Once loaded it stays loaded until the process ends.
class SharedLibrary {
 public:
  /// Loads the first of the names that can be loaded. Errors: kUnimplemented with the loader's
  /// message.
  static StatusOr<SharedLibrary> open(std::initializer_list<const char*> names);

  /// Sets a pointer to a function of the library. Errors: kUnimplemented; the message has its name.
  template <typename Function>
  Status find(const char* name, Function*& to) const {
    MILLRACE_ASSIGN_OR_RETURN(void* const symbol, find_symbol(name));
    to = reinterpret_cast<Function*>(symbol);
    return Ok();
  }
  /// The name that could be loaded.
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  SharedLibrary(void* handle, std::string name) : handle_(handle), name_(std::move(name)) {}
  StatusOr<void*> find_symbol(const char* name) const;

  void* handle_;      ///< of dlopen()
  std::string name_;  ///< for messages
};

}  // namespace millrace::gpu
