#include "tests/framework/modules/same_build.h"

#include "framework/base/module.h"

namespace {

int twice(int number) {
  return 2 * number;
}
constexpr millrace::SameBuild kFunctions{&twice};

}  // namespace

extern "C" const char* millrace_module(const void** functions) {
  *functions = &kFunctions;
  return millrace::build_stamp();
}
