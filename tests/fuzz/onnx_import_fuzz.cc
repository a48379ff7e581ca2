// Any bytes as an ONNX model are refused with a message, or become a program that the verifier
// accepts and whose parameters have the declared dims.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "interchange/from_onnx/import.h"
#include "ops/registry.h"
#include "ops/verify.h"
#include "tests/fuzz/require.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using millrace::testing::require;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto made = millrace::interchange::import_onnx(bytes);
  if (!made.ok()) {
    require(!made.status().message().empty(), "an error has a message");
    return 0;
  }
  const auto registry = millrace::ops::standard_registry();
  require(millrace::ops::check_program(*registry, *made->program).ok(), "the program is valid");
  for (const auto& [name, value] : made->params) {
    const millrace::Var* const var = made->program->root().find_var(name);
    const auto* const tensor = value.get_if<millrace::Tensor>();
    require(var != nullptr && var->persistable() && tensor != nullptr, "a parameter has a var");
    require(var->dims() == tensor->dims() && var->dtype() == tensor->dtype(), "it fits its var");
  }
  return 0;
}
