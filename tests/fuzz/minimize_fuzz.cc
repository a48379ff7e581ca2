// Any text is refused with a message, or read into a configuration; a program is minimized with it
// into one that verifies, or refused with a message.

#include <cstddef>
#include <cstdint>

#include "jobs/config/minimize_config.h"
#include "ops/minimize/minimize.h"
#include "ops/verify.h"
#include "tests/fuzz/require.h"

using millrace::testing::require;

namespace {

using namespace millrace;  // NOLINT(google-build-using-namespace)

VarSpec parameter(std::initializer_list<int64_t> dims) {
  VarSpec spec = VarSpec::tensor(DType::kFloat32, dims);
  spec.persistable = true;
  spec.is_parameter = true;
  return spec;
}

// The program of tests/passes/inputs/one_layer.prog.
std::unique_ptr<Program> one_layer() {
  auto program = Program::create();
  Block& block = program->root();
  VarSpec x = VarSpec::tensor(DType::kFloat32, {-1, 4});
  x.stop_gradient = true;
  block.declare("x", x);
  block.declare("w", parameter({4, 1}));
  block.declare("b", parameter({1}));
  for (const char* const name : {"xw", "y"})
    block.declare(name, VarSpec::tensor(DType::kFloat32, {-1, 1}));
  block.declare("loss", VarSpec::tensor(DType::kFloat32, {}));
  block.append_op("mul").set_input("X", "x").set_input("Y", "w").set_output("Out", "xw");
  block.append_op("elementwise_add")
      .set_input("X", "xw")
      .set_input("Y", "b")
      .set_output("Out", "y")
      .set_int("axis", 1);
  block.append_op("mean").set_input("X", "y").set_output("Out", "loss");
  return program;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto* const registry = ops::standard_registry().release();
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto config = jobs::parse_minimize_config(text);
  if (!config.ok()) {
    require(!config.status().message().empty(), "an error has a message");
    return 0;
  }
  const auto main_program = one_layer();
  const auto startup = Program::create();
  startup->root().declare("w", parameter({4, 1}));
  startup->root().declare("b", parameter({1}));
  ops::Builder builder(*registry, *main_program, *startup);
  for (const auto& loss : config->losses) {
    const auto made = ops::minimize(builder, loss.name, loss.options);
    if (made.ok()) continue;
    require(!made.status().message().empty(), "an error has a message");
    return 0;
  }
  require(ops::check_program(*registry, *main_program).ok(), "the main program verifies");
  require(ops::check_program(*registry, *startup).ok(), "the startup program verifies");
  return 0;
}
