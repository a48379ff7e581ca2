// Any bytes as a PIR program are refused with a message, or become a program that the verifier
// accepts.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "interchange/from_pir/import.h"
#include "ops/registry.h"
#include "ops/verify.h"
#include "tests/fuzz/require.h"

namespace {

// Zeros for parameters that are not large.
millrace::io::ParamValues zeros_for(const millrace::interchange::PirSource& source) {
  millrace::io::ParamValues params;
  for (const millrace::io::ParamSpec& spec : source.parameters()) {
    int64_t count = 1;
    for (const int64_t dim : *spec.dims)
      count = dim < 0 || dim > 4096 || count > 4096 ? int64_t{1} << 40 : count * dim;
    if (count > 1 << 16) continue;
    auto& tensor = params[spec.name].as<millrace::Tensor>();
    if (!tensor.resize(*spec.dtype, *spec.dims).ok()) params.erase(spec.name);
  }
  return params;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using millrace::testing::require;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto source = millrace::interchange::PirSource::read(bytes);
  if (!source.ok()) {
    require(!source.status().message().empty(), "an error has a message");
    return 0;
  }
  const auto made = millrace::interchange::import_pir(*source, zeros_for(*source));
  if (!made.ok()) {
    require(!made.status().message().empty(), "an error has a message");
    return 0;
  }
  const auto registry = millrace::ops::standard_registry();
  require(millrace::ops::check_program(*registry, *made->program).ok(), "the program is valid");
  return 0;
}
