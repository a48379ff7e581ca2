#include "jobs/run/calibrate.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include <llvm/ADT/STLExtras.h>

#include "executor/standard_runtime.h"
#include "framework/base/errors.h"
#include "framework/op_attrs.h"

namespace millrace::jobs {
namespace calibrate_programs {
namespace {

using executor::NamedValues;

constexpr size_t kClasses = 2048;
constexpr size_t kLevels = 128;      // magnitudes that 8 bits distinguish
constexpr double kLeastKept = 99.9;  // percent of the magnitudes that kEntropy does not clip

// An activation and the var of its scale.
struct Activation {
  std::string name;
  std::string scale;
  float largest = 0;
};

std::vector<Activation> activations_of(const Program& program) {
  std::vector<Activation> found;
  for (const Op& op : program.root().ops()) {
    if (op.type() == "fake_quantize_dequantize_moving_average_abs_max")
      found.push_back({op.first_input("X").str(), op.first_input("InScale").str()});
  }
  return found;
}

using Visit = std::function<Status(size_t, const Tensor&)>;

// Calls visit(i, value of names[i]) after each run.
Status for_values(executor::PreparedProgram& program, const std::vector<NamedValues>& feeds,
                  const std::vector<std::string>& names, const Visit& visit) {
  std::vector<Value> results;
  for (const NamedValues& values : feeds) {
    MILLRACE_RETURN_IF_ERROR(program.run(values, names, results));
    for (size_t i = 0; i < names.size(); ++i) {
      const auto* const tensor = results[i].get_if<Tensor>();
      if (tensor == nullptr || tensor->dtype() != DType::kFloat32)
        return InvalidData("var '{}': expected an f32 tensor", names[i]);
      MILLRACE_RETURN_IF_ERROR(visit(i, *tensor));
    }
  }
  return Ok();
}

Status store(Scope& scope, const std::string& name, std::vector<float> values) {
  auto& tensor = scope.local(name).as<Tensor>();
  MILLRACE_RETURN_IF_ERROR(tensor.resize(DType::kFloat32, {static_cast<int64_t>(values.size())}));
  llvm::copy(values, tensor.data<float>());
  return Ok();
}

// The divergence of magnitudes that are cut off after `kept` classes from the same in kLevels
// levels.
double divergence(const std::vector<int64_t>& counts, size_t kept) {
  std::vector<double> real(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(kept));
  for (size_t i = kept; i < counts.size(); ++i) real.back() += static_cast<double>(counts[i]);
  double total = 0;
  for (const double count : real) total += count;
  if (total == 0) return std::numeric_limits<double>::infinity();
  double sum_rounded = 0;
  std::vector<double> rounded(kept, 0);
  for (size_t level = 0; level < kLevels; ++level) {
    const size_t begin = level * kept / kLevels;
    const size_t end = std::max((level + 1) * kept / kLevels, begin + 1);
    double sum = 0;
    size_t used = 0;
    for (size_t i = begin; i < end; ++i) {
      sum += static_cast<double>(counts[i]);
      used += counts[i] > 0 ? 1 : 0;
    }
    for (size_t i = begin; i < end; ++i) {
      if (counts[i] > 0) rounded[i] = sum / static_cast<double>(used);
    }
    sum_rounded += sum;
  }
  constexpr double kAbsent = 1e-4;  // in place of a probability of 0
  double result = 0;
  for (size_t i = 0; i < kept; ++i) {
    const double p = real[i] / total;
    if (p > 0) result += p * std::log(p / std::max(rounded[i] / sum_rounded, kAbsent / total));
  }
  return result;
}

}  // namespace
}  // namespace calibrate_programs

using namespace calibrate_programs;

Magnitudes::Magnitudes(float largest) : largest_(largest), counts_(kClasses, 0) {}

void Magnitudes::add(const float* values, int64_t count) {
  if (largest_ == 0) return;
  const float factor = static_cast<float>(kClasses) / largest_;
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(std::fabs(values[i]) * factor);
    ++counts_[std::min(at, kClasses - 1)];
  }
}

float Magnitudes::percentile(double percent) const {
  int64_t total = 0;
  for (const int64_t count : counts_) total += count;
  const double wanted = percent / 100 * static_cast<double>(total);
  int64_t seen = 0;
  for (size_t i = 0; i < kClasses; ++i) {
    seen += counts_[i];
    if (static_cast<double>(seen) >= wanted)
      return largest_ * static_cast<float>(i + 1) / static_cast<float>(kClasses);
  }
  return largest_;
}

float Magnitudes::least_divergence() const {
  if (largest_ == 0) return 0;
  // zeros are exact at any scale; counting them would hide all other magnitudes
  std::vector<int64_t> counts = counts_;
  counts[0] = 0;
  size_t best = kClasses;
  double least = std::numeric_limits<double>::infinity();
  // few examples leave gaps between the magnitudes, which would make any scale look good
  const auto fewest = static_cast<size_t>(percentile(kLeastKept) / largest_ * kClasses);
  for (size_t kept = std::max(kLevels, fewest); kept <= kClasses; kept += 8) {
    const double found = divergence(counts, kept);
    if (found < least) {
      least = found;
      best = kept;
    }
  }
  return largest_ * static_cast<float>(best) / static_cast<float>(kClasses);
}

namespace calibrate_programs {
namespace {

Status find_largest(executor::PreparedProgram& program, const std::vector<NamedValues>& feeds,
                    const std::vector<std::string>& names, std::vector<Activation>& found) {
  std::vector<int64_t> counts(names.size(), 0);
  MILLRACE_RETURN_IF_ERROR(
      for_values(program, feeds, names, [&](size_t i, const Tensor& tensor) -> Status {
        counts[i] += tensor.numel();
        for (const float value : tensor.values<float>()) {
          if (!std::isfinite(value))
            return InvalidData("var '{}' has a value that is not finite: {}", names[i], value);
          found[i].largest = std::max(found[i].largest, std::fabs(value));
        }
        return Ok();
      }));
  for (size_t i = 0; i < names.size(); ++i) {
    if (counts[i] == 0) return InvalidData("var '{}' has no values with these feeds", names[i]);
  }
  return Ok();
}

float scale_of(const Magnitudes& magnitudes, const CalibrationOptions& options) {
  return options.method == ScaleMethod::kEntropy ? magnitudes.least_divergence()
                                                 : magnitudes.percentile(options.percentile);
}

// Runs the ops that find the scales of parameters, which store them.
Status find_parameter_scales(const Program& quantized, Scope& scope) {
  const std::unique_ptr<Program> rest = quantized.clone();
  for (Op* const op : rest->root().op_vector()) {
    if (op->type() != "fake_channel_wise_quantize_dequantize_abs_max") rest->root().erase(*op);
  }
  MILLRACE_ASSIGN_OR_RETURN(
      const auto prepared,
      executor::Executor(executor::standard_runtime(), {.optimize = false}).prepare(*rest, scope));
  std::vector<Value> results;
  return prepared->run({}, {}, results);
}

}  // namespace
}  // namespace calibrate_programs

Status calibrate(const Program& given, const Program& quantized, Scope& scope,
                 const std::vector<NamedValues>& feeds, const CalibrationOptions& options) {
  std::vector<Activation> found = activations_of(quantized);
  std::vector<std::string> names;
  names.reserve(found.size());
  for (const Activation& each : found) names.push_back(each.name);
  MILLRACE_ASSIGN_OR_RETURN(const auto prepared, executor::Executor(executor::standard_runtime(),
                                                                    {.threads = options.threads})
                                                     .prepare(given, scope));
  MILLRACE_RETURN_IF_ERROR(find_largest(*prepared, feeds, names, found));
  if (options.method != ScaleMethod::kAbsMax) {
    std::vector<Magnitudes> magnitudes;
    magnitudes.reserve(found.size());
    for (const Activation& each : found) magnitudes.emplace_back(each.largest);
    MILLRACE_RETURN_IF_ERROR(
        for_values(*prepared, feeds, names, [&](size_t i, const Tensor& tensor) {
          magnitudes[i].add(tensor.data<float>(), tensor.numel());
          return Ok();
        }));
    for (size_t i = 0; i < found.size(); ++i) found[i].largest = scale_of(magnitudes[i], options);
  }
  for (const Activation& each : found)
    MILLRACE_RETURN_IF_ERROR(store(scope, each.scale, {each.largest}));
  return find_parameter_scales(quantized, scope);
}

StatusOr<std::vector<ResultDifference>> compare_results(const Program& given,
                                                        const Program& quantized, Scope& scope,
                                                        const std::vector<NamedValues>& feeds,
                                                        int threads) {
  const executor::Executor runner(executor::standard_runtime(), {.threads = threads});
  MILLRACE_ASSIGN_OR_RETURN(const auto first, runner.prepare(given, scope));
  MILLRACE_ASSIGN_OR_RETURN(const auto second, runner.prepare(quantized, scope));
  const std::vector<std::string>& names = first->fetch_targets();
  if (names.empty())
    return Status(StatusCode::kInvalidProgram, "the program has no fetch ops to compare");
  std::vector<ResultDifference> differences;
  differences.reserve(names.size());
  for (const std::string& name : names) differences.push_back({name});
  std::vector<double> squares(names.size(), 0);
  std::vector<Value> truth;
  std::vector<Value> results;
  for (const NamedValues& values : feeds) {
    MILLRACE_RETURN_IF_ERROR(first->run(values, names, truth));
    MILLRACE_RETURN_IF_ERROR(second->run(values, names, results));
    for (size_t i = 0; i < names.size(); ++i) {
      const auto* const a = truth[i].get_if<Tensor>();
      const auto* const b = results[i].get_if<Tensor>();
      if (a == nullptr || b == nullptr || a->dtype() != DType::kFloat32) continue;
      if (a->dims() != b->dims())
        return InvalidData("result '{}' has other dims in the quantized program", names[i]);
      for (int64_t k = 0; k < a->numel(); ++k) {
        const double value = a->data<float>()[k];
        const double difference = b->data<float>()[k] - value;
        squares[i] += value * value;
        differences[i].relative += difference * difference;
        differences[i].largest = std::max(differences[i].largest, std::fabs(difference));
      }
    }
  }
  for (size_t i = 0; i < names.size(); ++i)
    differences[i].relative = std::sqrt(differences[i].relative / std::max(squares[i], 1e-30));
  return differences;
}

}  // namespace millrace::jobs
