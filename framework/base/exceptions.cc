#include "framework/base/exceptions.h"

#include <exception>
#include <new>
#include <system_error>

#include <fmt/format.h>
#include <llvm/Support/ErrorHandling.h>

namespace millrace {
namespace {

Status described(std::string_view what) {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return {StatusCode::kResource, fmt::format("out of memory: {}", what)};
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again)  // a thread cannot be started
      return {StatusCode::kResource, fmt::format("no more threads: {}: {}", what, error.what())};
    return {StatusCode::kInternal, fmt::format("unexpected exception: {}: {}", what, error.what())};
  } catch (const std::exception& error) {
    return {StatusCode::kInternal, fmt::format("unexpected exception: {}: {}", what, error.what())};
  } catch (...) {
    return {StatusCode::kInternal, fmt::format("unknown exception: {}", what)};
  }
}

}  // namespace

Status status_of_exception(std::string_view what) {
  try {
    return described(what);
  } catch (const std::bad_alloc&) {
    return {StatusCode::kResource, "out of memory"};
  }
}

void throw_where_llvm_has_no_memory() {
  llvm::install_bad_alloc_error_handler(
      [](void* /*data*/, const char* /*reason*/, bool /*crash*/) { throw std::bad_alloc(); });
}

}  // namespace millrace
