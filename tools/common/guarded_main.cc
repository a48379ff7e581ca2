#include "tools/common/guarded_main.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>

#include <unistd.h>

#include "framework/base/exceptions.h"
#include "tools/common/exit_code.h"

namespace millrace::tools {
namespace {

// Functions of libraries that must not throw (CLI11's lookup of an option is one) have no memory:
// an error instead of a crash.
[[noreturn]] void end_without_memory() {
  try {
    if (std::current_exception() != nullptr) throw;
  } catch (const std::bad_alloc&) {
    constexpr std::string_view kText = "error: out of memory where no error can be returned\n";
    // nothing can be done about a failure to write
    if (::write(STDERR_FILENO, kText.data(), kText.size()) < 0) std::abort();
    ::_exit(exit_code(StatusCode::kResource));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "terminate called after an exception: %s\n", error.what());
  } catch (...) {
    std::fputs("terminate called after an unknown exception\n", stderr);
  }
  std::abort();
}

}  // namespace

int guarded_main(int (*tool)(int argc, char** argv), int argc, char** argv) {
  throw_where_llvm_has_no_memory();
  std::set_terminate(end_without_memory);
  try {
    return tool(argc, argv);
  } catch (const std::bad_alloc&) {
    // without fmt, which may allocate
    std::fputs("error: out of memory at the start\n", stderr);
    return exit_code(StatusCode::kResource);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: unexpected exception at the start: %s\n", error.what());
    return exit_code(StatusCode::kInternal);
  }
}

}  // namespace millrace::tools
