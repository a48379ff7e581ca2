#include "ops/minimize/schedule.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

#include "framework/base/errors.h"
#include "framework/names.h"
#include "ops/minimize/branch.h"
#include "ops/minimize/rate_math.h"

namespace millrace::ops {
namespace schedule_ops {
namespace {

using rate::Name;

Status check_positive(const char* schedule, const char* field, double value) {
  if (value > 0) return Ok();
  return InvalidArgument("{} schedule: '{}' must be positive, found {}", schedule, field, value);
}

// The number of the current step as a float. The first schedule of a program declares the counter,
// sets its first value, and inserts the op that increments it at the start of the program.
Name step_number(Builder& builder, int first = 0) {
  const std::string counter = names::kLrCounter;
  Block& root = builder.main().root();
  if (root.find_var(counter) == nullptr) {
    MILLRACE_RETURN_IF_ERROR(
        builder.persistent_var(counter, DType::kInt64, {1}, first - 1, /*force_cpu=*/true));
    NewOp increment("increment");
    increment.input("X", {counter}).output("Out", {counter}).attr("step", make_attr(1.0F));
    MILLRACE_RETURN_IF_ERROR(builder.prepend(increment).status());
    Builder::stop_gradient(root, counter);
  }
  return rate::cast(builder, counter, DType::kInt64, DType::kFloat32);
}

// Completed steps divided by decay_steps, rounded down if `staircase`.
Name decays_done(Builder& builder, double decay_steps, bool staircase) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string step, step_number(builder));
  MILLRACE_ASSIGN_OR_RETURN(std::string done, rate::scale(builder, step, 1.0 / decay_steps));
  return staircase ? rate::unary(builder, "floor", done) : Name(std::move(done));
}

// Declares a persistable var of shape [1] that ops of the program set in every step.
Status declare_rate(Builder& builder, const std::string& name) {
  MILLRACE_RETURN_IF_ERROR(builder.persistent_var(name, DType::kFloat32, {1}, 0.0));
  Builder::stop_gradient(builder.main().root(), name);
  return Ok();
}

struct AddDecay {
  Builder& builder;

  Name operator()(const NoamDecay& d) const {
    MILLRACE_RETURN_IF_ERROR(check_positive("noam", "d_model", d.d_model));
    MILLRACE_RETURN_IF_ERROR(check_positive("noam", "warmup_steps", d.warmup_steps));
    MILLRACE_ASSIGN_OR_RETURN(const std::string step, step_number(builder, 1));
    MILLRACE_ASSIGN_OR_RETURN(const std::string falling, rate::power(builder, step, -0.5));
    MILLRACE_ASSIGN_OR_RETURN(const std::string rising,
                              rate::scale(builder, step, std::pow(d.warmup_steps, -1.5)));
    MILLRACE_ASSIGN_OR_RETURN(const std::string lower, rate::minimum(builder, falling, rising));
    return rate::scale(builder, lower, d.learning_rate * std::pow(d.d_model, -0.5));
  }

  Name operator()(const ExponentialDecay& d) const {
    MILLRACE_RETURN_IF_ERROR(check_positive("exponential", "decay_steps", d.decay_steps));
    MILLRACE_ASSIGN_OR_RETURN(const std::string done,
                              decays_done(builder, d.decay_steps, d.staircase));
    MILLRACE_ASSIGN_OR_RETURN(const std::string factor,
                              rate::exponential(builder, d.decay_rate, done));
    return rate::scale(builder, factor, d.learning_rate);
  }

  Name operator()(const NaturalExpDecay& d) const {
    MILLRACE_RETURN_IF_ERROR(check_positive("natural_exp", "decay_steps", d.decay_steps));
    MILLRACE_ASSIGN_OR_RETURN(const std::string done,
                              decays_done(builder, d.decay_steps, d.staircase));
    MILLRACE_ASSIGN_OR_RETURN(const std::string exponent,
                              rate::scale(builder, done, -d.decay_rate));
    MILLRACE_ASSIGN_OR_RETURN(const std::string factor, rate::unary(builder, "exp", exponent));
    return rate::scale(builder, factor, d.learning_rate);
  }

  Name operator()(const InverseTimeDecay& d) const {
    MILLRACE_RETURN_IF_ERROR(check_positive("inverse_time", "decay_steps", d.decay_steps));
    MILLRACE_ASSIGN_OR_RETURN(const std::string done,
                              decays_done(builder, d.decay_steps, d.staircase));
    MILLRACE_ASSIGN_OR_RETURN(const std::string grown, rate::scale(builder, done, d.decay_rate));
    MILLRACE_ASSIGN_OR_RETURN(const std::string divisor, rate::scale(builder, grown, 1.0, 1.0));
    return rate::quotient(builder, d.learning_rate, divisor);
  }

  Name operator()(const PolynomialDecay& d) const {
    MILLRACE_RETURN_IF_ERROR(check_positive("polynomial", "decay_steps", d.decay_steps));
    MILLRACE_ASSIGN_OR_RETURN(const std::string step, step_number(builder));
    MILLRACE_ASSIGN_OR_RETURN(const std::string done,
                              d.cycle ? cycled(step, d.decay_steps) : capped(step, d.decay_steps));
    MILLRACE_ASSIGN_OR_RETURN(const std::string left, rate::scale(builder, done, -1.0, 1.0));
    MILLRACE_ASSIGN_OR_RETURN(const std::string powered, rate::power(builder, left, d.power));
    MILLRACE_ASSIGN_OR_RETURN(const std::string above_end,
                              rate::scale(builder, powered, d.learning_rate - d.end_learning_rate));
    return rate::scale(builder, above_end, 1.0, d.end_learning_rate);
  }

  Name operator()(const PiecewiseDecay& d) const {
    if (d.values.size() != d.boundaries.size() + 1) {
      return InvalidArgument(
          "piecewise schedule: expected one more value than boundaries, found {} and {}",
          d.values.size(), d.boundaries.size());
    }
    if (!std::ranges::is_sorted(d.boundaries, std::less_equal<>()))
      return InvalidArgument("piecewise schedule: expected boundaries that increase");
    MILLRACE_ASSIGN_OR_RETURN(const std::string step, step_number(builder));
    const std::string out = "learning_rate";
    MILLRACE_RETURN_IF_ERROR(declare_rate(builder, out));
    std::string no_case_yet;  // var that is true if no case so far applies
    for (size_t i = 0; i < d.boundaries.size(); ++i) {
      MILLRACE_ASSIGN_OR_RETURN(const std::string boundary,
                                rate::constant(builder, d.boundaries[i], /*force_cpu=*/true));
      MILLRACE_ASSIGN_OR_RETURN(const std::string before,
                                rate::compare(builder, "less_than", step, boundary));
      MILLRACE_ASSIGN_OR_RETURN(const std::string met, next_case(before, no_case_yet));
      MILLRACE_RETURN_IF_ERROR(fill_if(met, out, d.values[i]));
    }
    if (no_case_yet.empty()) {
      MILLRACE_RETURN_IF_ERROR(rate::fill(builder, out, d.values.back()));
    } else {
      MILLRACE_RETURN_IF_ERROR(fill_if(no_case_yet, out, d.values.back()));
    }
    return out;
  }

  Name operator()(const CosineDecay& d) const {
    MILLRACE_RETURN_IF_ERROR(check_positive("cosine", "step_each_epoch", d.step_each_epoch));
    MILLRACE_RETURN_IF_ERROR(check_positive("cosine", "epochs", d.epochs));
    MILLRACE_ASSIGN_OR_RETURN(const std::string epoch,
                              decays_done(builder, d.step_each_epoch, /*staircase=*/true));
    MILLRACE_ASSIGN_OR_RETURN(const std::string turned,
                              rate::scale(builder, epoch, std::numbers::pi));
    MILLRACE_ASSIGN_OR_RETURN(const std::string angle,
                              rate::scale(builder, turned, 1.0 / d.epochs));
    MILLRACE_ASSIGN_OR_RETURN(const std::string wave, rate::unary(builder, "cos", angle));
    MILLRACE_ASSIGN_OR_RETURN(const std::string raised, rate::scale(builder, wave, 1.0, 1.0));
    return rate::scale(builder, raised, d.learning_rate * 0.5);
  }

 private:
  // min(step, steps) / steps
  [[nodiscard]] Name capped(const std::string& step, double steps) const {
    MILLRACE_ASSIGN_OR_RETURN(const std::string last, rate::constant(builder, steps));
    MILLRACE_ASSIGN_OR_RETURN(const std::string at_most, rate::minimum(builder, step, last));
    return rate::scale(builder, at_most, 1.0 / steps);
  }

  // step / (steps * cycles begun); the first cycle has begun at step 0
  [[nodiscard]] Name cycled(const std::string& step, double steps) const {
    MILLRACE_ASSIGN_OR_RETURN(const std::string done, rate::scale(builder, step, 1.0 / steps));
    MILLRACE_ASSIGN_OR_RETURN(const std::string cycles, rate::unary(builder, "ceil", done));
    MILLRACE_ASSIGN_OR_RETURN(const std::string zero, rate::constant(builder, 0.0));
    MILLRACE_ASSIGN_OR_RETURN(const std::string one, rate::constant(builder, 1.0));
    MILLRACE_ASSIGN_OR_RETURN(const std::string at_start,
                              rate::compare(builder, "equal", step, zero));
    MILLRACE_ASSIGN_OR_RETURN(
        const std::string begun,
        add_choice(
            builder, at_start, [&] { return Name(one); }, [&] { return Name(cycles); }));
    MILLRACE_RETURN_IF_ERROR(rate::assign(builder, begun, cycles));
    MILLRACE_ASSIGN_OR_RETURN(const std::string length, rate::scale(builder, cycles, steps));
    return rate::quotient(builder, step, length);
  }

  // A var that is true if this case applies and no earlier one does.
  Name next_case(const std::string& condition, std::string& no_case_yet) const {
    MILLRACE_ASSIGN_OR_RETURN(const std::string not_met,
                              rate::unary(builder, "logical_not", condition, DType::kBool));
    if (no_case_yet.empty()) {
      no_case_yet = not_met;
      return condition;
    }
    MILLRACE_ASSIGN_OR_RETURN(std::string none, both(no_case_yet, not_met));
    MILLRACE_ASSIGN_OR_RETURN(std::string met, both(no_case_yet, condition));
    no_case_yet = std::move(none);
    return met;
  }

  [[nodiscard]] Name both(const std::string& x, const std::string& y) const {
    std::string out = builder.layer_var("logical_and", DType::kBool);
    NewOp op("logical_and");
    op.input("X", {x}).input("Y", {y}).output("Out", {out});
    MILLRACE_RETURN_IF_ERROR(builder.append(op).status());
    return out;
  }

  [[nodiscard]] Status fill_if(const std::string& condition, const std::string& out,
                               double value) const {
    return add_conditional_block(builder, condition, {out},
                                 [&] { return rate::fill(builder, out, value); });
  }
};

}  // namespace
}  // namespace schedule_ops

StatusOr<std::string> add_schedule(Builder& builder, const Decay& decay) {
  MarkScope marks(builder);
  marks.role(kRoleLrSched);
  return std::visit(schedule_ops::AddDecay{builder}, decay);
}

StatusOr<std::string> add_schedule(Builder& builder, const LinearWarmup& warmup) {
  using namespace schedule_ops;
  MILLRACE_RETURN_IF_ERROR(check_positive("warmup", "warmup_steps", warmup.warmup_steps));
  std::string after;
  if (const Decay* const decay = std::get_if<Decay>(&warmup.after)) {
    MILLRACE_ASSIGN_OR_RETURN(after, add_schedule(builder, *decay));
  }
  MarkScope marks(builder);
  marks.role(kRoleLrSched);
  const std::string out = "learning_rate_warmup";
  MILLRACE_RETURN_IF_ERROR(declare_rate(builder, out));
  MILLRACE_ASSIGN_OR_RETURN(const std::string step, step_number(builder));
  if (after.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(after, rate::constant(builder, std::get<double>(warmup.after)));
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::string last, rate::scalar(builder, warmup.warmup_steps));
  MILLRACE_ASSIGN_OR_RETURN(const std::string is_warming,
                            rate::compare(builder, "less_than", step, last));
  const auto line = [&]() -> Name {
    MILLRACE_ASSIGN_OR_RETURN(const std::string part,
                              rate::scale(builder, step, 1.0 / warmup.warmup_steps));
    MILLRACE_ASSIGN_OR_RETURN(const std::string way,
                              rate::scale(builder, part, warmup.end_lr - warmup.start_lr));
    return rate::scale(builder, way, 1.0, warmup.start_lr);
  };
  MILLRACE_ASSIGN_OR_RETURN(const std::string chosen,
                            add_choice(builder, is_warming, line, [&] { return Name(after); }));
  MILLRACE_RETURN_IF_ERROR(rate::assign(builder, chosen, out));
  return out;
}

StatusOr<std::string> add_constant_rate(Builder& builder, double rate, DType dtype) {
  if (!std::isfinite(static_cast<float>(rate)))  // the attribute that initializes it is a float32
    return InvalidArgument("learning_rate: expected a number that float32 can hold, found {}",
                           rate);
  const std::string name = builder.names().next("learning_rate");
  MILLRACE_RETURN_IF_ERROR(builder.persistent_var(name, dtype, {}, rate));
  Builder::stop_gradient(builder.main().root(), name);
  return name;
}

}  // namespace millrace::ops
