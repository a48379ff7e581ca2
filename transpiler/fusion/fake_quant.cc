#include "transpiler/fusion/fake_quant.h"

#include <cmath>
#include <optional>

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/StringSwitch.h>

#include "framework/op_attrs.h"
#include "ops/read_attr.h"

namespace millrace::transpiler {
namespace fake_quant {
namespace {

constexpr float kBins = 127;

// Whose values an op rounds, and whether it converts them back.
enum class Kind {
  kOther,
  kActivation,
  kActivationBack,
  kWeights,
  kWeightsBack,
  kLinear,  // quantize_linear: either
  kObserver,
};

Kind kind_of(const Op& op) {
  return llvm::StringSwitch<Kind>(op.type())
      .Cases("fake_quantize_moving_average_abs_max", "fake_quantize_range_abs_max",
             Kind::kActivation)
      .Case("fake_quantize_dequantize_moving_average_abs_max", Kind::kActivationBack)
      .Cases("fake_quantize_abs_max", "fake_channel_wise_quantize_abs_max", Kind::kWeights)
      .Cases("fake_quantize_dequantize_abs_max", "fake_channel_wise_quantize_dequantize_abs_max",
             Kind::kWeightsBack)
      .Case("quantize_linear", Kind::kLinear)
      .Case("moving_average_abs_max_scale", Kind::kObserver)
      .Default(Kind::kOther);
}

template <typename T>
T value_of(const ops::OpRegistry& registry, const Op& op, llvm::StringRef name) {
  return ops::read_attr<T>(*registry.find(op.type()), op, name);
}

bool is_parameter(const Block& block, llvm::StringRef name) {
  const Var* const var = block.find_var(name);
  return is_f32(var) && var->persistable() && !is_written_elsewhere(block, name);
}

// A parameter that no op writes.
bool is_unwritten(const Block& block, llvm::StringRef name) {
  return is_parameter(block, name) && !block.has_writers(name);
}

bool keeps_scale(const Op& op) {
  const llvm::StringRef out = single_output(op, "OutScale");
  return op.find_output("OutScale") == nullptr || out == single_input(op, "InScale");
}

// True if no op writes the var from `first` (exclusive) to `last` (exclusive).
bool stays(const Op& first, const Op& last, llvm::StringRef name) {
  return !is_written_elsewhere(first.block(), name) &&
         llvm::none_of(first.block().writers_of(name), [&](const Op* writer) {
           return first.comes_before(*writer) && writer->comes_before(last);
         });
}

// The op as rounding to 8 bits with a given scale that no run changes.
std::optional<FakeQuant> given_scale(const ops::OpRegistry& registry, Op& op) {
  const bool linear = kind_of(op) == Kind::kLinear;
  FakeQuant result;
  result.source = single_input(op, "X");
  result.scale = single_input(op, linear ? "Scale" : "InScale");
  if (linear) result.axis = value_of<int32_t>(registry, op, "quant_axis");
  result.channel_wise = linear && result.axis >= 0;
  if (!is_fixed_scale(op.block(), result.scale) || !writes_fixed_scales(op) ||
      value_of<int32_t>(registry, op, "bit_length") != 8)
    return std::nullopt;
  result.round_type = value_of<int32_t>(registry, op, "round_type");
  return result;
}

// True for a dequantize_linear or quantize_linear with 8 bits and a given scale.
bool is_plain_linear(const ops::OpRegistry& registry, const Op& op) {
  return value_of<int32_t>(registry, op, "bit_length") == 8 &&
         value_of<bool>(registry, op, "is_test") && !value_of<bool>(registry, op, "only_observer");
}

// The zero point of both ops is the same, so that it has no effect.
bool undoes_linear(const ops::OpRegistry& registry, const Op& back, const Op& quant) {
  return back.type() == "dequantize_linear" && is_plain_linear(registry, back) &&
         is_plain_linear(registry, quant) &&
         single_input(back, "Scale") == single_input(quant, "Scale") &&
         single_input(back, "ZeroPoint") == single_input(quant, "ZeroPoint") &&
         stays(quant, back, single_input(quant, "ZeroPoint")) &&
         value_of<int32_t>(registry, back, "quant_axis") ==
             value_of<int32_t>(registry, quant, "quant_axis");
}

// True for an op that multiplies the integers of `quant` by its scale.
bool undoes(const ops::OpRegistry& registry, const Op& back, const Op& quant) {
  if (quant.type() == "quantize_linear") return undoes_linear(registry, back, quant);
  const llvm::StringRef scale = single_output(quant, "OutScale");
  const bool steady =
      !scale.empty() && llvm::all_of(back.block().writers_of(scale),
                                     [](const Op* writer) { return writes_fixed_scales(*writer); });
  if (!steady) return false;
  if (back.type() == "fake_dequantize_max_abs")
    return single_input(back, "Scale") == scale &&
           value_of<float>(registry, back, "max_range") == kBins;
  return back.type() == "fake_channel_wise_dequantize_max_abs" &&
         quant.type() == "fake_channel_wise_quantize_abs_max" &&
         single_input(back, "Scales") == scale &&
         value_of<std::vector<int32_t>>(registry, back, "quant_bits") == std::vector<int32_t>{8} &&
         value_of<int32_t>(registry, back, "quant_axis") ==
             value_of<int32_t>(registry, quant, "quant_axis");
}

// The ops that write a rounded value: one, or two of which the second converts back; empty if the
// value has another source.
llvm::SmallVector<Op*, 2> rounding_of(const InnerVars& inner, const ops::OpRegistry& registry,
                                      llvm::StringRef name) {
  Op* const last = inner.writer(name);
  if (last == nullptr) return {};
  if (kind_of(*last) != Kind::kOther) return {last};
  Op* const quant = inner.writer(single_input(*last, "X"));
  if (quant == nullptr || !undoes(registry, *last, *quant)) return {};
  return {quant, last};
}

// A parameter that holds integers, which dequantize_linear converts.
std::optional<FakeQuant> linear_integers(const InnerVars& inner, const ops::OpRegistry& registry,
                                         llvm::StringRef name) {
  Op* const back = inner.writer(name);
  if (back == nullptr || back->type() != "dequantize_linear" || !is_plain_linear(registry, *back))
    return std::nullopt;
  FakeQuant result;
  result.source = single_input(*back, "X");
  result.scale = single_input(*back, "Scale");
  result.zero_point = single_input(*back, "ZeroPoint");
  result.axis = value_of<int32_t>(registry, *back, "quant_axis");
  result.channel_wise = result.axis >= 0;
  result.are_integers = true;
  result.ops.push_back(back);
  const Block& block = back->block();
  if (!is_unwritten(block, result.source) || !is_fixed_scale(block, result.scale) ||
      (!result.zero_point.empty() && !is_unwritten(block, result.zero_point)))
    return std::nullopt;
  return result;
}

}  // namespace
}  // namespace fake_quant

using namespace fake_quant;

bool is_fixed_scale(const Block& block, llvm::StringRef name) {
  return is_parameter(block, name) && llvm::all_of(block.writers_of(name), [](const Op* writer) {
           return writes_fixed_scales(*writer);
         });
}

bool writes_fixed_scales(const Op& op) {
  for (const char* const slot : {"Out", "Y", "Output"}) {
    const Var* const var = op.block().find_var(single_output(op, slot));
    if (var != nullptr && var->persistable()) return false;
  }
  switch (kind_of(op)) {
    case Kind::kActivation:
    case Kind::kActivationBack:
      return get_attr_or(op, "is_test", false) && keeps_scale(op);
    case Kind::kLinear:
      return get_attr_or(op, "is_test", true);
    case Kind::kObserver:
      return get_attr_or(op, "is_test", false) &&
             (op.find_input("InScale") == nullptr || keeps_scale(op));
    case Kind::kWeights:
    case Kind::kWeightsBack:
      return is_unwritten(op.block(), single_input(op, "X"));
    case Kind::kOther:
      break;
  }
  return op.type() == "int8_conv2d" || op.type() == "int8_fc";
}

std::optional<FakeQuant> quantised_activation(const InnerVars& inner,
                                              const ops::OpRegistry& registry, const Op& product,
                                              llvm::StringRef name) {
  const llvm::SmallVector<Op*, 2> ops = rounding_of(inner, registry, name);
  if (ops.empty()) return std::nullopt;
  Op* const quant = ops.front();
  const Kind kind = kind_of(*quant);
  const bool linear = kind == Kind::kLinear && ops.size() == 2;
  if (kind != Kind::kActivation && kind != Kind::kActivationBack && !linear) return std::nullopt;
  std::optional<FakeQuant> result = given_scale(registry, *quant);
  if (!result || result->channel_wise || !stays(*quant, product, result->source))
    return std::nullopt;
  result->stays_integers = kind == Kind::kActivation && ops.size() == 1;
  result->ops = ops;
  return result;
}

std::optional<FakeQuant> quantised_weights(const InnerVars& inner, const ops::OpRegistry& registry,
                                           const Op& product, llvm::StringRef name) {
  if (is_unwritten(product.block(), name)) {
    FakeQuant result;
    result.source = name;
    result.are_integers = result.stays_integers = true;
    return result;
  }
  if (auto integers = linear_integers(inner, registry, name)) return integers;
  const llvm::SmallVector<Op*, 2> ops = rounding_of(inner, registry, name);
  if (ops.empty()) return std::nullopt;
  Op* const quant = ops.front();
  const Kind kind = kind_of(*quant);
  const bool back = kind == Kind::kWeightsBack || ops.size() == 2;
  if (!back || !writes_fixed_scales(*quant) ||
      !is_unwritten(product.block(), single_input(*quant, "X")))
    return std::nullopt;
  if (kind == Kind::kLinear) {
    std::optional<FakeQuant> given = given_scale(registry, *quant);
    if (given) given->ops = ops;
    return given;
  }
  if ((kind != Kind::kWeights && kind != Kind::kWeightsBack) ||
      get_attr_or(*quant, "is_test", false) ||
      value_of<int32_t>(registry, *quant, "bit_length") != 8)
    return std::nullopt;
  FakeQuant result;
  result.source = single_input(*quant, "X");
  result.out_scale = single_output(*quant, "OutScale");
  result.round_type = value_of<int32_t>(registry, *quant, "round_type");
  result.channel_wise = llvm::StringRef(quant->type()).contains("channel_wise");
  if (result.channel_wise) result.axis = value_of<int32_t>(registry, *quant, "quant_axis");
  result.ops = ops;
  return result;
}

namespace fake_quant {
namespace {

constexpr const char* kInt8Inputs[] = {"InScale", "WeightScale", "WeightZeroPoint"};
constexpr const char* kInt8Attrs[] = {"input_round_type", "weight_round_type", "channel_wise",
                                      "integer_weights", "weight_scale"};

}  // namespace
}  // namespace fake_quant

Int8Parts int8_parts_of(const Op& op) {
  Int8Parts parts;
  if (op.type() != "int8_conv2d" && op.type() != "int8_fc") return parts;
  for (const char* const slot : kInt8Inputs) {
    if (const llvm::StringRef name = single_input(op, slot); !name.empty())
      parts.inputs.emplace_back(slot, name.str());
  }
  parts.out_scale = single_output(op, "OutWeightScale").str();
  for (const char* const attr : kInt8Attrs) {
    if (const AttrValue* const value = op.find_attr(attr)) parts.attrs.emplace_back(attr, *value);
  }
  return parts;
}

void add_int8_parts(Op& op, const Int8Parts& parts) {
  for (const auto& [slot, name] : parts.inputs) op.set_input(slot, name);
  if (!parts.out_scale.empty()) op.set_output("OutWeightScale", parts.out_scale);
  for (const auto& [name, value] : parts.attrs) op.set_attr(name, value);
}

}  // namespace millrace::transpiler
