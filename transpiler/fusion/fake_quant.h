#pragma once

#include <string>
#include <utility>
#include <vector>

#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>

#include "framework/program.h"
#include "ops/registry.h"
#include "transpiler/fusion/inner_vars.h"

// How programs express quantization: ops that round floats to integers, and often back, in front
// of a product (docs/quantization.md).
namespace millrace::transpiler {

/// True for an op of quantization whose persistable outputs have the same value after every run, if
/// no other op writes persistable vars: scales that are given, or found in parameters.
bool writes_fixed_scales(const Op& op);

/// True for a persistable f32 var with the same value for all ops of a run: only such ops write it.
bool is_fixed_scale(const Block& block, llvm::StringRef name);

/// An operand of a product that is rounded to 8-bit integers.
struct FakeQuant {
  llvm::StringRef source;      ///< the floats, or integers if are_integers
  llvm::StringRef scale;       ///< var with the given scale; empty: the largest magnitude of source
  llvm::StringRef zero_point;  ///< var with the integer that means 0; empty: it is 0
  llvm::StringRef out_scale;   ///< var that gets a scale that is not given
  int32_t round_type = 1;
  bool channel_wise = false;  ///< one scale for each index of `axis`
  int32_t axis = 0;
  bool are_integers = false;  ///< source is not to be rounded
  /// True if the product reads integers; an op after it must convert them back.
  bool stays_integers = false;
  llvm::SmallVector<Op*, 2> ops;  ///< in order of the program; may have other readers
};

/// What an input of a product is made of; nullopt if it is no quantized value of this kind, or if
/// its source may change before the product.
/// \param name  the input: for activations, an inner var; for weights, an inner var made of a
///              parameter
std::optional<FakeQuant> quantised_activation(const InnerVars& inner,
                                              const ops::OpRegistry& registry, const Op& product,
                                              llvm::StringRef name);
std::optional<FakeQuant> quantised_weights(const InnerVars& inner, const ops::OpRegistry& registry,
                                           const Op& product, llvm::StringRef name);

/// Attributes of a convolution that an op into which it is fused has as well.
inline constexpr const char* kConvAttrs[] = {"strides",   "paddings", "padding_algorithm",
                                             "dilations", "groups",   "data_format"};

/// Slots and attributes of int8_conv2d and int8_fc that describe the quantization, without those of
/// the product.
struct Int8Parts {
  std::vector<std::pair<std::string, std::string>> inputs;  ///< slot, name
  std::string out_scale;                                    ///< OutWeightScale; empty: none
  std::vector<std::pair<std::string, AttrValue>> attrs;
};
/// Those of an op; all empty if it is of another type.
Int8Parts int8_parts_of(const Op& op);
void add_int8_parts(Op& op, const Int8Parts& parts);

}  // namespace millrace::transpiler
