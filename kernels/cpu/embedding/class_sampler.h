#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cpu/needed.h"
#include "kernels/cpu/random/bits.h"
#include "kernels/kernel.h"

namespace millrace::kernels {

/// Draws negative classes and returns their probabilities.
/// Used by nce and its gradient. The distributions are those of the original
/// (operators/math/sampler.cc). Does not own the lists of a custom distribution.
class ClassSampler {
 public:
  /// Uniform; P(c) proportional to log((c + 2) / (c + 1)), which suits classes sorted by falling
  /// frequency; or a list of probabilities.
  enum class Law { kUniform, kLogUniform, kListed };

  /// \param classes  number of classes; draws are in [0, classes)
  ClassSampler(Law law, int64_t classes) : law_(law), classes_(classes) {}
  /// A custom distribution: probabilities, and the alias table used to draw from them.
  ClassSampler(int64_t classes, const float* probabilities, const int32_t* alias,
               const float* alias_probabilities)
      : law_(Law::kListed),
        classes_(classes),
        probabilities_(probabilities),
        alias_(alias),
        alias_probabilities_(alias_probabilities) {}

  /// A class computed from random bits.
  [[nodiscard]] int64_t draw(uint64_t bits) const {
    const double unit = unit_double(bits);
    switch (law_) {
      case Law::kUniform:
        return static_cast<int64_t>(unit * static_cast<double>(classes_));
      case Law::kLogUniform: {
        const auto value =
            static_cast<int64_t>(std::exp(unit * std::log(static_cast<double>(classes_)))) - 1;
        return value % classes_;
      }
      case Law::kListed: {
        // The alias method: the integer part selects a column, the rest decides between its two
        // classes.
        const double scaled = unit * static_cast<double>(classes_);
        const auto at = static_cast<int64_t>(scaled);
        const double rest = scaled - static_cast<double>(at);
        return rest < static_cast<double>(alias_probabilities_[at]) ? at : alias_[at];
      }
    }
    return 0;
  }

  /// Probability that draw() returns the class; value must be in [0, classes).
  [[nodiscard]] double probability(int64_t value) const {
    switch (law_) {
      case Law::kUniform:
        return 1.0 / static_cast<double>(classes_);
      case Law::kLogUniform: {
        const auto v = static_cast<double>(value);
        return std::log((v + 2) / (v + 1)) / std::log(static_cast<double>(classes_));
      }
      case Law::kListed:
        return static_cast<double>(probabilities_[value]);
    }
    return 0;
  }

 private:
  Law law_;                                     ///< the distribution
  int64_t classes_;                             ///< drawn classes are below it
  const float* probabilities_ = nullptr;        ///< of each class
  const int32_t* alias_ = nullptr;              ///< second class of each column
  const float* alias_probabilities_ = nullptr;  ///< share of the first class of each column
};

/// Reads the sampler of an nce op.
struct SamplerArgs {
  /// Reads attributes and resolves the inputs of a custom distribution.
  explicit SamplerArgs(const KernelSetup& op)
      : kind(op.attr<int64_t>("sampler")),
        classes(op.attr<int64_t>("num_total_classes")),
        probabilities(op.input("CustomDistProbs")),
        alias(op.input("CustomDistAlias")),
        alias_probabilities(op.input("CustomDistAliasProbs")) {}

  /// Errors: a custom distribution whose lists do not have one entry per class.
  StatusOr<ClassSampler> read(const KernelContext& ctx) const {
    if (kind == 0) return ClassSampler(ClassSampler::Law::kUniform, classes);
    if (kind == 1) return ClassSampler(ClassSampler::Law::kLogUniform, classes);
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const p, needed(ctx, probabilities, "CustomDistProbs"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const a, needed(ctx, alias, "CustomDistAlias"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const q,
                              needed(ctx, alias_probabilities, "CustomDistAliasProbs"));
    if (p->dtype() != DType::kFloat32 || a->dtype() != DType::kInt32 ||
        q->dtype() != DType::kFloat32 || p->numel() != classes || a->numel() != classes ||
        q->numel() != classes) {
      return ctx.error(
          "CustomDistProbs, CustomDistAlias and CustomDistAliasProbs must be f32, i32 "
          "and f32 [{}], found {}, {} and {}",
          classes, describe(*p), describe(*a), describe(*q));
    }
    for (const int32_t other : a->values<int32_t>()) {
      if (other >= classes)
        return ctx.error("CustomDistAlias has {}, expected less than {}", other, classes);
    }
    return ClassSampler(classes, p->data<float>(), a->data<int32_t>(), q->data<float>());
  }

  int64_t kind;     ///< attribute sampler: 0 uniform, 1 log-uniform, else custom
  int64_t classes;  ///< attribute num_total_classes
  ArgIndex probabilities, alias, alias_probabilities;
};

}  // namespace millrace::kernels
