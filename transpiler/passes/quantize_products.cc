#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/StringMap.h>

#include "framework/op_attrs.h"
#include "transpiler/pass_registry.h"
#include "transpiler/program_edit.h"

namespace millrace::transpiler {
namespace quantize_products {
namespace {

constexpr const char* kTypes[] = {"conv2d", "depthwise_conv2d", "mul", "matmul", "matmul_v2"};

// The slots of an op that multiplies an activation with parameters.
struct Slots {
  const char* input;
  const char* weights;
  int32_t channel_dim;  // of the weights
};

Slots slots_of(const Op& op) {
  const bool is_conv = op.type() == "conv2d" || op.type() == "depthwise_conv2d";
  return is_conv ? Slots{"Input", "Filter", 0} : Slots{"X", "Y", 1};
}

const Var* only_var(const Op& op, const char* slot) {
  const Slot* const found = op.find_input(slot);
  if (found == nullptr || found->args.size() != 1) return nullptr;
  const Var* const var = op.block().find_var(op.first_input(slot));
  const bool is_float =
      var != nullptr && var->spec().has_tensor() && var->dtype() == DType::kFloat32;
  return is_float ? var : nullptr;
}

class QuantizeProducts final : public Pass {
 public:
  explicit QuantizeProducts(const PassOptions& options)
      : types_(options.strings("types")), skip_(options.strings("skip")) {
    if (types_.empty()) types_.assign(std::begin(kTypes), std::end(kTypes));
  }

  llvm::StringRef name() const override { return "quantize-products"; }

  StatusOr<bool> run(Program& program, PassContext& context) override {
    for (const std::string& type : types_) {
      if (!llvm::is_contained(kTypes, type))
        return Status(StatusCode::kUsage,
                      fmt::format("option 'types' of quantize-products has '{}', expected {}", type,
                                  fmt::join(kTypes, ", ")));
    }
    for (const std::string& name : skip_) {
      if (!is_known_var(program, name)) return no_such_var(program, name, "skip");
    }
    llvm::StringMap<std::string> activations;
    llvm::StringMap<std::string> parameters;
    bool changed = false;
    for (Op* const op : program.root().op_vector()) {
      if (!is_wanted(*op)) continue;
      const Slots slots = slots_of(*op);
      const std::string input = op->first_input(slots.input).str();
      const std::string weights = op->first_input(slots.weights).str();
      std::string& rounded = activations[input];
      // another op may have changed the var since it was rounded
      if (rounded.empty() || program.root().writers_of(input).size() > 1) {
        MILLRACE_ASSIGN_OR_RETURN(rounded, round_activation(*op, input));
      }
      std::string& rounded_weights = parameters[weights];
      if (rounded_weights.empty()) {
        MILLRACE_ASSIGN_OR_RETURN(rounded_weights, round_weights(*op, weights, slots.channel_dim));
      }
      op->set_input(slots.input, rounded);
      op->set_input(slots.weights, rounded_weights);
      changed = true;
    }
    (void)context;
    return changed;
  }

 private:
  [[nodiscard]] bool is_wanted(const Op& op) const {
    if (!llvm::is_contained(types_, op.type())) return false;
    const Slots slots = slots_of(op);
    const Var* const input = only_var(op, slots.input);
    const Var* const weights = only_var(op, slots.weights);
    if (input == nullptr || weights == nullptr || input->persistable() || !weights->persistable() ||
        op.block().has_writers(weights->name()))
      return false;
    // only matrices have their output channels in one dim
    if (slots.channel_dim == 1 && weights->dims().size() != 2) return false;
    const auto skipped = [&](llvm::StringRef name) { return llvm::is_contained(skip_, name); };
    return !skipped(input->name()) && !skipped(weights->name()) &&
           llvm::none_of(op.output_names(), skipped);
  }

  // Declares the vars of a rounded tensor and its scale under the names of the original.
  static StatusOr<std::pair<std::string, std::string>> declare(Block& block,
                                                               const std::string& name,
                                                               int64_t scales) {
    std::string rounded = name + ".quantized.dequantized";
    for (int n = 1; is_known_var(block.program(), rounded); ++n)
      rounded = fmt::format("{}.quantized.dequantized_{}", name, n);
    const std::string scale = rounded + ".scale";
    if (is_known_var(block.program(), scale))
      return Status(StatusCode::kInvalidProgram,
                    fmt::format("the program has a var '{}' already", scale));
    VarSpec spec = block.find_var(name)->spec();
    spec.persistable = false;
    spec.is_parameter.reset();
    block.declare(rounded, spec);
    VarSpec held = VarSpec::tensor(DType::kFloat32, {scales});
    held.persistable = true;
    block.declare(scale, held);
    return std::pair(rounded, scale);
  }

  static StatusOr<std::string> round_activation(Op& product, const std::string& name) {
    MILLRACE_ASSIGN_OR_RETURN(const auto made, declare(product.block(), name, 1));
    product.block()
        .insert_before(&product, "fake_quantize_dequantize_moving_average_abs_max")
        .set_input("X", name)
        .set_input("InScale", made.second)
        .set_output("Out", made.first)
        .set_output("OutScale", made.second)
        .set_int("bit_length", 8)
        .set_float("moving_rate", 0.9F)
        .set_bool("is_test", true);
    return made.first;
  }

  static StatusOr<std::string> round_weights(Op& product, const std::string& name,
                                             int32_t channel_dim) {
    const Var& weights = *product.block().find_var(name);
    const int64_t channels = weights.dims()[static_cast<size_t>(channel_dim)];
    MILLRACE_ASSIGN_OR_RETURN(const auto made, declare(product.block(), name, channels));
    product.block()
        .insert_before(&product, "fake_channel_wise_quantize_dequantize_abs_max")
        .set_input("X", name)
        .set_output("Out", made.first)
        .set_output("OutScale", made.second)
        .set_int("bit_length", 8)
        .set_int("quant_axis", channel_dim);
    return made.first;
  }

  std::vector<std::string> types_;
  std::vector<std::string> skip_;
};

}  // namespace
}  // namespace quantize_products

void add_passes_quantize_products(PassRegistry& registry) {
  registry.add(PassInfo("quantize-products",
                        "round the operands of products and convolutions with parameters to 8 "
                        "bits, with a scale of each activation that must be given, and one of each "
                        "output channel of the parameters; the tool quantize-program finds scales")
                   .strings("types",
                            "op types; empty: conv2d, depthwise_conv2d, mul, matmul and "
                            "matmul_v2")
                   .strings("skip", "vars whose products stay: operands or results")
                   .makes<quantize_products::QuantizeProducts>());
}

}  // namespace millrace::transpiler
