#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "executor/executor.h"
#include "framework/base/status.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"

// Scales of the activations of a program that pass quantize-products has rewritten, from the values
// that the activations have in runs with examples (docs/quantization.md).
namespace millrace::jobs {

/// How the scale of an activation follows from its magnitudes.
enum class ScaleMethod : uint8_t {
  kAbsMax,      ///< the largest
  kPercentile,  ///< one that a given share of them does not exceed
  kEntropy,     ///< the one whose rounding loses least information (Kullback-Leibler divergence)
};

struct CalibrationOptions {
  ScaleMethod method = ScaleMethod::kAbsMax;
  double percentile = 99.99;  ///< of kPercentile, up to 100
  int threads = 1;
};

/// Magnitudes of a var in 2048 classes of equal width.
class Magnitudes {
 public:
  /// \param largest  upper limit of the last class; larger ones count as this
  explicit Magnitudes(float largest);
  void add(const float* values, int64_t count);
  /// A scale that `percent` of the magnitudes do not exceed; 0 if all are 0.
  [[nodiscard]] float percentile(double percent) const;
  /// The scale that keeps most information. Magnitudes above it count as equal to it.
  [[nodiscard]] float least_divergence() const;

 private:
  float largest_;
  std::vector<int64_t> counts_;
};

/// Runs the float program once (kAbsMax) or twice with each of the feeds and stores the scales that
/// the quantized one reads.
/// \param given      the program before it was rewritten
/// \param quantized  its activations are found by the ops that round them
/// \param scope      has the parameters; gets the scales, including those of the parameters
/// Errors: those of the runs; kInvalidData for an activation with a value that is not finite, or
/// without values.
Status calibrate(const Program& given, const Program& quantized, Scope& scope,
                 const std::vector<executor::NamedValues>& feeds,
                 const CalibrationOptions& options);

/// Difference of a result of two programs, over all feeds.
struct ResultDifference {
  std::string name;
  double relative = 0;  ///< root of the sum of squared differences, over that of squares
  double largest = 0;   ///< absolute difference
};
/// Runs both programs, each in its own scope, and compares what their fetch ops read.
/// Errors: those of the runs; kInvalidProgram without fetch ops.
StatusOr<std::vector<ResultDifference>> compare_results(
    const Program& given, const Program& quantized, Scope& scope,
    const std::vector<executor::NamedValues>& feeds, int threads);

}  // namespace millrace::jobs
