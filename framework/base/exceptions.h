#pragma once

#include <string_view>
#include <utility>

#include "framework/base/status.h"

namespace millrace {

/// The error for the exception that a catch block handles: kResource for memory and threads that
/// the system refuses, kInternal for others.
/// `what`: what was done, for the message "out of memory: <what>". Call it in `catch (...)` only.
/// Throws std::bad_alloc if there is not even memory for a short message.
Status status_of_exception(std::string_view what);

/// Runs body(), which returns a Status. An exception becomes an error as above. For bodies of
/// threads, which an exception would end together with the process.
template <typename Body>
Status without_exceptions(std::string_view what, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (...) {
    return status_of_exception(what);
  }
}

/// Makes LLVM's containers throw std::bad_alloc where they have no memory; otherwise they end the
/// process. Call it once, at the beginning of main().
void throw_where_llvm_has_no_memory();

}  // namespace millrace
