#include <utility>
#include <vector>

#include "transpiler/pass_registry.h"
#include "transpiler/passes/training.h"

namespace millrace::transpiler {
namespace {

// The methods under the names of their ops, with the defaults of their hyper-parameters.
std::vector<std::pair<llvm::StringRef, UpdateMethod>> update_methods() {
  return {{"sgd", Sgd{}},
          {"momentum", Momentum{}},
          {"lars_momentum", LarsMomentum{}},
          {"adagrad", Adagrad{}},
          {"decayed_adagrad", DecayedAdagrad{}},
          {"adadelta", Adadelta{}},
          {"rmsprop", RmsProp{}},
          {"adam", Adam{}},
          {"adamw", AdamW{}},
          {"adamax", Adamax{}},
          {"lamb", Lamb{}},
          {"ftrl", Ftrl{}},
          {"dpsgd", Dpsgd{}}};
}

StatusOr<std::unique_ptr<Pass>> make_minimize(const PassOptions& options) {
  TrainedLoss loss = loss_of(options);
  for (const auto& [name, method] : update_methods()) {
    if (name == options.string("method")) loss.options.method = method;
  }
  loss.options.learning_rate = options.real("learning-rate");
  loss.options.name = options.string("name");
  return minimize_pass({std::move(loss)});
}

}  // namespace

void add_passes_minimize(PassRegistry& registry) {
  registry.add(
      with_loss_options(PassInfo("minimize", "append gradients of a loss and updates"))
          .string("method", "sgd", "the optimizer, with the defaults of its constants")
          .one_of({"sgd", "momentum", "lars_momentum", "adagrad", "decayed_adagrad", "adadelta",
                   "rmsprop", "adam", "adamw", "adamax", "lamb", "ftrl", "dpsgd"})
          .real("learning-rate", 0.001, "the rate, constant")
          .string("name", "", "part of the names of the optimizer's vars")
          .factory(make_minimize));
}

}  // namespace millrace::transpiler
