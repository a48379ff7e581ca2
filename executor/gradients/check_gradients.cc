#include "executor/gradients/check_gradients.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/Support/xxhash.h>

#include "executor/feed_values.h"
#include "executor/gradients/evaluation.h"
#include "executor/gradients/float64.h"
#include "executor/gradients/sample_elements.h"
#include "executor/gradients/training_parts.h"
#include "framework/base/errors.h"
#include "framework/names.h"
#include "ops/absent_gradients.h"
#include "ops/backward/append_backward.h"
#include "ops/verify.h"

namespace millrace::executor {
namespace {

template <typename... Args>
Status not_comparable(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kExecution, fmt::format(format, std::forward<Args>(args)...)};
}

constexpr const char* kHeld = "@HELD";  // suffix of the name of a var held constant

// A gradient of a parameter.
struct Item {
  std::string param;
  std::string grad;              // empty: the program computes none
  std::set<std::string> losses;  // losses of which it is the gradient
  std::vector<double> analytical;
};

// The state of one check.
class GradientCheck {
 public:
  GradientCheck(std::shared_ptr<const Runtime> runtime, const GradientCheckOptions& options)
      : runtime_(std::move(runtime)), options_(options) {
    epsilon_ = options.epsilon > 0 ? options.epsilon : (options.in_float64 ? 1e-5 : 1e-2);
    tolerance_ = options.tolerance > 0 ? options.tolerance : (options.in_float64 ? 1e-5 : 5e-2);
  }

  StatusOr<GradientReport> run(const Program& program, const Scope& values,
                               const NamedValues& feeds) {
    MILLRACE_RETURN_IF_ERROR(make_program(program));
    MILLRACE_RETURN_IF_ERROR(choose_params());
    MILLRACE_RETURN_IF_ERROR(take_values(values, feeds));
    MILLRACE_RETURN_IF_ERROR(compute_gradients());
    MILLRACE_RETURN_IF_ERROR(hold_constants());
    MILLRACE_RETURN_IF_ERROR(prepare_forward());
    for (const Item& item : items_) {
      MILLRACE_ASSIGN_OR_RETURN(ParamCheck check, check_item(item));
      report_.params.push_back(std::move(check));
    }
    return std::move(report_);
  }

 private:
  // ---- the program

  Status make_program(const Program& given) {
    program_ = given.clone();
    MILLRACE_ASSIGN_OR_RETURN(std::vector<std::string> notes, remove_updates(*program_));
    llvm::append_range(report_.notes, notes);
    MILLRACE_ASSIGN_OR_RETURN(losses_, seeded_losses(*program_));
    if (losses_.empty()) {
      MILLRACE_RETURN_IF_ERROR(append_gradients());
    } else if (!options_.loss.empty()) {
      const auto found = losses_.find(options_.loss);
      if (found == losses_.end()) {
        std::vector<std::string> names;
        for (const auto& [name, seed] : losses_) names.push_back(name);
        return {StatusCode::kUsage, fmt::format("loss '{}': the program has gradients of {} only",
                                                options_.loss, fmt::join(names, ", "))};
      }
      losses_ = {*found};
    }
    for (const auto& [name, seed] : losses_) report_.losses.push_back(name);
    for (const Status& lost : ops::lost_state_gradients(*program_))
      report_.notes.push_back(lost.to_string());
    if (options_.in_float64) declare_in_float64(*runtime_->ops, *program_);
    grads_ = gradients_of_params(*program_);
    return Ok();
  }

  Status append_gradients() {
    if (options_.loss.empty()) {
      return {StatusCode::kUsage, "the program has no gradients; name the loss with --loss"};
    }
    ops::BackwardRequest request;
    request.loss = options_.loss;
    request.no_grad = options_.no_grad;
    std::vector<Status> warnings;
    request.warnings = &warnings;
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<ops::ParamGrad> pairs,
                              ops::append_backward(*runtime_->ops, *program_, request));
    for (const Status& warning : warnings) report_.notes.push_back(warning.to_string());
    losses_ = {{options_.loss, 1.0}};
    return Ok();
  }

  // Chooses parameters that a loss depends on and that training may change.
  Status choose_params() {
    std::set<std::string> names;
    for (const auto& [name, seed] : losses_) names.insert(name);
    const std::set<std::string> sources = sources_of(*program_, names);
    const auto is_checkable = [&](const std::string& name) {
      const Var* const var = program_->root().find_var(name);
      return var != nullptr && var->persistable() && sources.contains(name);
    };
    for (const std::string& name : options_.params) {
      if (is_checkable(name)) continue;
      return {
          StatusCode::kUsage,
          fmt::format("--check-gradients: '{}' is not a parameter that the loss depends on", name)};
    }
    params_ = options_.params;
    for (const Var& var : program_->root().vars()) {
      const std::string name = var.name().str();
      const bool trains = grads_.contains(name) || (var.is_parameter() && !var.stop_gradient() &&
                                                    !options_.no_grad.contains(name));
      if (options_.params.empty() && is_checkable(name) && trains) params_.push_back(name);
    }
    if (options_.params.empty()) llvm::sort(params_);
    for (const std::string& param : params_) add_items(param, names);
    if (!items_.empty()) return Ok();
    return {StatusCode::kUsage, "there is nothing to check: the loss depends on no parameter"};
  }

  // Adds each gradient var that belongs to one of the losses; an item without a gradient if there
  // is none.
  void add_items(const std::string& param, const std::set<std::string>& losses) {
    const size_t before = items_.size();
    const auto found = grads_.find(param);
    for (const std::string& grad :
         found == grads_.end() ? std::set<std::string>() : found->second) {
      Item item{param, grad, {}, {}};
      const std::set<std::string> sources = sources_of(*program_, {grad});
      for (const std::string& loss : losses)
        if (sources.contains(names::grad(loss))) item.losses.insert(loss);
      if (!item.losses.empty()) items_.push_back(std::move(item));
    }
    if (items_.size() == before) items_.push_back({param, "", losses, {}});
  }

  // ---- values

  Status take_values(const Scope& values, const NamedValues& feeds) {
    const auto take = [&](const Value& from, Value& to) -> Status {
      if (!options_.in_float64) return copy_value(from, to);
      MILLRACE_ASSIGN_OR_RETURN(to, in_float64(from));
      return Ok();
    };
    for (const Var& var : program_->root().vars()) {
      if (!var.persistable()) continue;
      const Value* const value = values.find_local(var.name());
      if (value == nullptr || !value->initialized() || value->holds<Strings>()) continue;
      MILLRACE_RETURN_IF_ERROR(take(*value, scope_.local(var.name())));
    }
    for (const auto& [name, value] : feeds) {
      const Var* const var = program_->root().find_var(name);
      const bool converts = var != nullptr && var->dtype() == DType::kFloat64;
      MILLRACE_RETURN_IF_ERROR(converts ? take(value, feeds_[name])
                                        : copy_value(value, feeds_[name]));
    }
    for (const std::string& param : params_) {
      const Value* const value = scope_.find_local(param);
      const auto* const tensor = value == nullptr ? nullptr : value->get_if<Tensor>();
      const bool has_type = tensor != nullptr && (tensor->dtype() == DType::kFloat64 ||
                                                  tensor->dtype() == DType::kFloat32);
      if (!has_type || !tensor->initialized()) {
        return InvalidArgument("parameter '{}': expected an f32 or f64 tensor, found {}", param,
                               value == nullptr ? "no value" : describe(*value));
      }
    }
    return Ok();
  }

  ExecutorOptions run_options(bool optimize) const {
    return {.threads = options_.threads, .seed = options_.seed, .optimize = optimize};
  }

  // ---- gradients

  Status compute_gradients() {
    const std::unique_ptr<Program> program = program_->clone();
    std::set<std::string> wanted;
    std::vector<std::string> fetches;
    for (const auto& [loss, seed] : losses_) fetches.push_back(loss);
    for (const Item& item : items_)
      if (!item.grad.empty()) fetches.push_back(item.grad);
    wanted.insert(fetches.begin(), fetches.end());
    MILLRACE_ASSIGN_OR_RETURN(held_, constants(wanted));
    fetches.insert(fetches.end(), held_.begin(), held_.end());
    keep_only_sources(*program, wanted);
    MILLRACE_ASSIGN_OR_RETURN(
        const std::unique_ptr<Evaluation> evaluation,
        Evaluation::open(runtime_, *program, scope_, run_options(options_.optimize)));
    MILLRACE_ASSIGN_OR_RETURN(std::vector<Value> results, evaluation->run(feeds_, fetches));
    size_t at = 0;
    for (const auto& [name, seed] : losses_) {
      MILLRACE_ASSIGN_OR_RETURN(const double value, number_in(results[at++], name));
      report_.loss += seed * value;
    }
    for (Item& item : items_) {
      const int64_t elements = scope_.find_local(item.param)->get_if<Tensor>()->numel();
      item.analytical.resize(static_cast<size_t>(elements));
      if (item.grad.empty()) continue;
      MILLRACE_ASSIGN_OR_RETURN(item.analytical, dense_numbers(results[at++], elements, item.grad));
    }
    for (const std::string& name : held_) held_values_[name + kHeld] = std::move(results[at++]);
    return Ok();
  }

  // ---- vars that are constants for gradients, although they depend on parameters

  StatusOr<std::vector<std::string>> constants(const std::set<std::string>& wanted) {
    std::set<std::string> losses;
    for (const auto& [loss, seed] : losses_) losses.insert(loss);
    const std::set<std::string> sources = sources_of(*program_, losses);
    const std::set<std::string> moved =
        results_of(*program_, std::set<std::string>(params_.begin(), params_.end()));
    std::vector<std::string> held;
    for (const Var& var : program_->root().vars()) {
      const std::string name = var.name().str();
      const bool is_constant = var.stop_gradient() || options_.no_grad.contains(name);
      const bool is_number = var.spec().has_tensor() && var.kind() == VarKind::kLodTensor &&
                             (var.dtype() == DType::kFloat32 || var.dtype() == DType::kFloat64);
      if (!is_constant || !is_number || var.persistable() || wanted.contains(name)) continue;
      if (sources.contains(name) && moved.contains(name) && has_forward_reader(name))
        held.push_back(name);
    }
    return held;
  }

  bool has_forward_reader(const std::string& name) const {
    return llvm::any_of(program_->root().readers_of(name),
                        [](const Op* op) { return !is_gradient_op(*op); });
  }

  // Builds the program of only the losses, in which such vars are fed.
  Status hold_constants() {
    forward_ = program_->clone();
    std::set<std::string> losses;
    for (const auto& [loss, seed] : losses_) losses.insert(loss);
    Block& root = forward_->root();
    for (Op* const op : root.op_vector())
      if (is_gradient_op(*op)) root.erase(*op);
    for (const std::string& name : held_) MILLRACE_RETURN_IF_ERROR(hold(root, name));
    keep_only_sources(*forward_, losses);
    return Ok();
  }

  Status hold(Block& root, const std::string& name) {
    const bool inside = llvm::any_of(forward_->blocks(), [&](const Block& block) {
      return block.index() > 0 && block.has_writers(name);
    });
    if (inside || root.writers_of(name).size() != 1) {
      return Unimplemented(
          "var '{}' has stop_gradient and is written more than once or in a "
          "sub-block; it cannot be held constant while parameters change",
          name);
    }
    root.declare(name + kHeld, root.find_var(name)->spec());
    for (Block& block : forward_->blocks()) {
      if (block.index() > 0 && block.find_var(name) != nullptr) continue;
      for (Op* const reader : block.readers_of(name)) {
        if (reader->type() == "recurrent") {
          return Unimplemented(
              "var '{}' has stop_gradient and is a sequence of a recurrence; it "
              "cannot be held constant while parameters change",
              name);
        }
        reader->replace_input(name, name + kHeld);
      }
    }
    report_.notes.push_back(
        fmt::format("'{}' is held constant: no gradient flows through it", name));
    return Ok();
  }

  // ---- central differences

  Status prepare_forward() {
    MILLRACE_ASSIGN_OR_RETURN(evaluation_, Evaluation::open(runtime_, *forward_, scope_,
                                                            run_options(/*optimize=*/false)));
    forward_feeds_ = std::move(feeds_);
    for (auto& [name, value] : held_values_) forward_feeds_[name] = std::move(value);
    std::set<std::string> all;
    for (const auto& [name, seed] : losses_) all.insert(name);
    MILLRACE_ASSIGN_OR_RETURN(const double once, loss(all));
    MILLRACE_ASSIGN_OR_RETURN(const double again, loss(all));
    if (!std::isfinite(once))
      return not_comparable("the loss is {}: there is nothing to compare", once);
    const double rounding = options_.in_float64 ? 1e-10 : 1e-4;
    const double far = std::max(std::abs(once - again), std::abs(once - report_.loss));
    if (once == again && far <= rounding * std::max(1.0, std::abs(once))) return Ok();
    return not_comparable(
        "the loss is not the same in every run ({}, {}, {}); ops with random "
        "numbers: {}",
        report_.loss, once, again, random_ops());
  }

  std::string random_ops() const {
    std::set<std::string> types;
    for (const Block& block : forward_->blocks()) {
      for (const Op& op : block.ops())
        if (op.has_attr("seed")) types.insert(op.type().str());
    }
    return types.empty() ? "none" : fmt::format("{}", fmt::join(types, ", "));
  }

  StatusOr<double> loss(const std::set<std::string>& names) {
    const std::vector<std::string> fetches(names.begin(), names.end());
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<Value> results,
                              evaluation_->run(forward_feeds_, fetches));
    double sum = 0;
    for (size_t i = 0; i < fetches.size(); ++i) {
      MILLRACE_ASSIGN_OR_RETURN(const double value, number_in(results[i], fetches[i]));
      sum += losses_.at(fetches[i]) * value;
    }
    return sum;
  }

  // Changes elements by step times their direction.
  static void move(Tensor& tensor, const std::vector<double>& start,
                   llvm::ArrayRef<std::pair<int64_t, double>> directions, double step) {
    for (const auto& [at, direction] : directions) {
      const double value = start[static_cast<size_t>(at)] + step * direction;
      if (tensor.dtype() == DType::kFloat64) {
        tensor.data<double>()[at] = value;
      } else {
        tensor.data<float>()[at] = static_cast<float>(value);
      }
    }
  }

  // The slope of the losses that a gradient belongs to, along the directions of its parameter.
  StatusOr<double> slope(const Item& item, const std::vector<double>& start,
                         llvm::ArrayRef<std::pair<int64_t, double>> directions, double step) {
    Tensor& tensor = *scope_.find_local(item.param)->get_if<Tensor>();
    move(tensor, start, directions, step);
    MILLRACE_ASSIGN_OR_RETURN(const double above, loss(item.losses));
    move(tensor, start, directions, -step);
    MILLRACE_ASSIGN_OR_RETURN(const double below, loss(item.losses));
    move(tensor, start, directions, 0);
    return (above - below) / (2 * step);
  }

  // \param scale  gradients much smaller than this may be wrong by a fraction of it
  StatusOr<GradientSample> compare(const Item& item, const std::vector<double>& start,
                                   llvm::ArrayRef<std::pair<int64_t, double>> directions,
                                   double analytical, double scale) {
    GradientSample best;
    best.error = std::numeric_limits<double>::infinity();
    best.analytical = analytical;
    const double digits = options_.in_float64 ? std::numeric_limits<double>::epsilon()
                                              : std::numeric_limits<float>::epsilon();
    for (double step = epsilon_; step > epsilon_ / 200; step /= 10) {
      MILLRACE_ASSIGN_OR_RETURN(const double numerical, slope(item, start, directions, step));
      // the gradient that rounding of the loss alone produces instead of zero
      const double noise = 64 * digits * std::max(1e-3, std::abs(report_.loss)) / step;
      const double size = std::max({std::abs(analytical), std::abs(numerical), scale});
      const double beyond = std::abs(analytical - numerical) - noise;
      const double error = beyond <= 0 ? 0 : beyond / size;
      if (!(error < best.error)) continue;
      best.numerical = numerical;
      best.error = error;
      if (error <= tolerance_) break;
    }
    return best;
  }

  StatusOr<ParamCheck> check_item(const Item& item) {
    ParamCheck check;
    check.param = item.param;
    check.grad = item.grad;
    const Value& value = *scope_.find_local(item.param);
    const Dims dims(value.get_if<Tensor>()->dims());
    const std::vector<double>& gradient = item.analytical;
    check.elements = static_cast<int64_t>(gradient.size());
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<double> start,
                              dense_numbers(value, check.elements, item.param));
    const uint64_t seed = options_.seed ^ llvm::xxHash64(item.param);
    const auto consider = [&](GradientSample sample) {
      if (!(sample.error <= tolerance_)) check.ok = false;
      const bool is_first =
          check.checked == 0 && check.worst.at.empty() && !check.worst.is_direction;
      if (is_first || !(sample.error <= check.worst.error)) check.worst = std::move(sample);
    };
    double largest = 0;
    for (const double g : gradient) largest = std::max(largest, std::abs(g));
    for (const int64_t at : sample_elements(gradient, options_.samples, seed)) {
      MILLRACE_ASSIGN_OR_RETURN(
          GradientSample sample,
          compare(item, start, {{at, 1.0}}, gradient[static_cast<size_t>(at)], 1e-3 * largest));
      sample.at = indices_of(at, dims);
      consider(std::move(sample));
      ++check.checked;
    }
    MILLRACE_ASSIGN_OR_RETURN(GradientSample along, check_direction(item, start, seed));
    consider(std::move(along));
    return check;
  }

  // All elements at once, each up or down: detects errors that samples miss.
  StatusOr<GradientSample> check_direction(const Item& item, const std::vector<double>& start,
                                           uint64_t seed) {
    const std::vector<double>& gradient = item.analytical;
    const std::vector<double> signs = random_signs(start.size(), seed);
    std::vector<std::pair<int64_t, double>> directions;
    double analytical = 0;
    double squares = 0;
    for (size_t i = 0; i < start.size(); ++i) {
      directions.emplace_back(static_cast<int64_t>(i), signs[i]);
      analytical += gradient[i] * signs[i];
      squares += gradient[i] * gradient[i];
    }
    MILLRACE_ASSIGN_OR_RETURN(GradientSample sample,
                              compare(item, start, directions, analytical, std::sqrt(squares)));
    sample.is_direction = true;
    return sample;
  }

  const std::shared_ptr<const Runtime> runtime_;
  const GradientCheckOptions& options_;
  double epsilon_ = 0;
  double tolerance_ = 0;
  std::unique_ptr<Program> program_;  // with gradients, without updates
  std::unique_ptr<Program> forward_;  // only the losses
  std::map<std::string, double> losses_;
  std::map<std::string, std::set<std::string>> grads_;
  std::vector<std::string> params_;
  std::vector<Item> items_;
  std::vector<std::string> held_;
  Scope scope_;
  NamedValues feeds_;
  NamedValues held_values_;
  NamedValues forward_feeds_;
  std::unique_ptr<Evaluation> evaluation_;
  GradientReport report_;
};

}  // namespace

bool GradientReport::ok() const {
  return llvm::all_of(params, [](const ParamCheck& check) { return check.ok; });
}

StatusOr<GradientReport> check_gradients(const std::shared_ptr<const Runtime>& runtime,
                                         const Program& program, const Scope& values,
                                         const NamedValues& feeds,
                                         const GradientCheckOptions& options) {
  return GradientCheck(runtime, options).run(program, values, feeds);
}

}  // namespace millrace::executor
