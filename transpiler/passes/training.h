#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ops/minimize/options.h"
#include "transpiler/pass_registry.h"

/// Passes that turn a forward program into a training program, made with options that have no text
/// form. In pipelines: "append-backward" and "minimize", for one loss.
namespace millrace::transpiler {

/// A loss of a program and how it is minimized.
struct TrainedLoss {
  std::string name;
  MinimizeOptions options;
};

/// What "minimize" leaves in the context if the caller has put one there.
struct TrainingFacts final : Facts {
  std::vector<std::string> learning_rates;  ///< var with the rate of each loss
};

/// Adds the options that both passes take in pipelines: "loss", "parameters" and "no-grad".
PassInfo with_loss_options(PassInfo info);
/// The loss that these options describe.
TrainedLoss loss_of(const PassOptions& options);

/// Appends the ops that compute the gradients of the losses, one loss after another
/// (ops::append_backward()). Reads the parameters, no_grad and error_clips of the options. The
/// remarks of the context get warnings about gradients that may be wrong.
/// \param earlier_calls  see ops::BackwardRequest
std::unique_ptr<Pass> append_backward_pass(std::vector<TrainedLoss> losses, int earlier_calls = 0);

/// Appends gradients and updates for the losses, one loss after another (ops::minimize()). The
/// startup program initializes the state of the optimizers. The remarks of the context get the
/// warnings.
/// \param name_scopes  numbers of name scopes that exist already, by prefix
std::unique_ptr<Pass> minimize_pass(std::vector<TrainedLoss> losses,
                                    std::map<std::string, int64_t> name_scopes = {});

}  // namespace millrace::transpiler
