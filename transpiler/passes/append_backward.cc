#include "transpiler/pass_registry.h"
#include "transpiler/passes/training.h"

namespace millrace::transpiler {
namespace {

StatusOr<std::unique_ptr<Pass>> make_append_backward(const PassOptions& options) {
  return append_backward_pass({loss_of(options)},
                              static_cast<int>(options.integer("earlier-calls")));
}

}  // namespace

void add_passes_append_backward(PassRegistry& registry) {
  constexpr double kMostCalls = 1000;
  registry.add(
      with_loss_options(
          PassInfo("append-backward", "append the ops that compute the gradients of a loss"))
          .integer("earlier-calls", 0, "losses whose gradients the program already computes")
          .range(0, kMostCalls)
          .factory(make_append_backward));
}

}  // namespace millrace::transpiler
