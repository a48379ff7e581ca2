#include "transpiler/passes/training.h"

#include <utility>

#include "framework/base/errors.h"
#include "ops/backward/append_backward.h"
#include "ops/construct/builder.h"
#include "ops/minimize/error_clip.h"
#include "ops/minimize/minimize.h"
#include "transpiler/pass_registry.h"

namespace millrace::transpiler {
namespace {

void add_warnings(const std::vector<Status>& warnings, PassContext& context) {
  for (const Status& warning : warnings) {
    const std::string text = warning.to_string();
    llvm::StringRef words = text;
    words.consume_front("error: ");
    context.remarks.push_back(words.str());
  }
}

class AppendBackward final : public Pass {
 public:
  AppendBackward(std::vector<TrainedLoss> losses, int earlier_calls)
      : losses_(std::move(losses)), earlier_calls_(earlier_calls) {}

  [[nodiscard]] llvm::StringRef name() const override { return "append-backward"; }

  StatusOr<bool> run(Program& program, PassContext& context) override {
    const uint64_t before = count_edits(program, context);
    int earlier_calls = earlier_calls_;
    for (const TrainedLoss& loss : losses_) {
      MILLRACE_RETURN_IF_ERROR(ops::check_error_clips(loss.options.error_clips));
      ops::BackwardRequest request;
      request.loss = loss.name;
      request.parameters = loss.options.parameters;
      request.no_grad = loss.options.no_grad;
      request.earlier_calls = earlier_calls++;
      request.after_append = ops::clip_errors(loss.options.error_clips);
      std::vector<Status> warnings;
      request.warnings = &warnings;
      MILLRACE_RETURN_IF_ERROR(ops::append_backward(context.registry, program, request).status());
      add_warnings(warnings, context);
    }
    return count_edits(program, context) != before;
  }

 private:
  std::vector<TrainedLoss> losses_;
  int earlier_calls_;
};

class Minimize final : public Pass {
 public:
  Minimize(std::vector<TrainedLoss> losses, std::map<std::string, int64_t> name_scopes)
      : losses_(std::move(losses)), name_scopes_(std::move(name_scopes)) {}

  [[nodiscard]] llvm::StringRef name() const override { return "minimize"; }

  StatusOr<bool> run(Program& program, PassContext& context) override {
    if (context.startup == nullptr) {
      return InvalidArgument(
          "there is no startup program, which initializes the state of the optimizer");
    }
    const uint64_t before = count_edits(program, context);
    auto* const facts = dynamic_cast<TrainingFacts*>(context.job);
    ops::Builder builder(context.registry, program, *context.startup);
    for (const auto& [prefix, openings] : name_scopes_)
      builder.scopes().continue_after(prefix, openings);
    for (const TrainedLoss& loss : losses_) {
      MILLRACE_ASSIGN_OR_RETURN(ops::MinimizeResult made,
                                ops::minimize(builder, loss.name, loss.options));
      add_warnings(made.warnings, context);
      if (facts != nullptr) facts->learning_rates.push_back(std::move(made.learning_rate));
    }
    return count_edits(program, context) != before;
  }

 private:
  std::vector<TrainedLoss> losses_;
  std::map<std::string, int64_t> name_scopes_;
};

}  // namespace

TrainedLoss loss_of(const PassOptions& options) {
  TrainedLoss loss;
  loss.name = options.string("loss");
  loss.options.parameters = options.strings("parameters");
  const std::vector<std::string>& no_grad = options.strings("no-grad");
  loss.options.no_grad.insert(no_grad.begin(), no_grad.end());
  return loss;
}

PassInfo with_loss_options(PassInfo info) {
  info.string("loss", "", "var of block 0 to be minimized").required();
  info.strings("parameters", "parameters to be trained, in order of creation; empty: all");
  info.strings("no-grad", "vars through which no gradient flows");
  return info;
}

std::unique_ptr<Pass> append_backward_pass(std::vector<TrainedLoss> losses, int earlier_calls) {
  return std::make_unique<AppendBackward>(std::move(losses), earlier_calls);
}

std::unique_ptr<Pass> minimize_pass(std::vector<TrainedLoss> losses,
                                    std::map<std::string, int64_t> name_scopes) {
  return std::make_unique<Minimize>(std::move(losses), std::move(name_scopes));
}

}  // namespace millrace::transpiler
