#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <llvm/ADT/STLExtras.h>

#include "framework/op_attrs.h"
#include "ops/lod_source.h"
#include "ops/read_attr.h"
#include "transpiler/fusion/fake_quant.h"
#include "transpiler/fusion/inner_vars.h"
#include "transpiler/fusion/weight_product.h"
#include "transpiler/pass_registry.h"

namespace millrace::transpiler {
namespace int8_products {
namespace {

// A product or convolution of two quantized operands.
struct Candidate {
  Op* op = nullptr;
  bool is_conv = false;
  int64_t row_dims = 1;      // of a product
  llvm::StringRef out = {};  // what the op writes
  FakeQuant x = {};
  FakeQuant weights = {};
  Op* back = nullptr;                 // converts integers of the result to floats
  llvm::StringRef weight_scale = {};  // read by `back`
  float fixed_scale = 0;              // attribute of `back`
};

// How an op is fused: the names of its operands.
struct Operands {
  bool is_conv = false;
  llvm::StringRef x, weights, out;
  int64_t row_dims = 1;
};

std::optional<Operands> operands_of(Op& op, const PassContext& context) {
  if (op.type() == "conv2d" || op.type() == "depthwise_conv2d") {
    if (get_attr_or<bool>(op, "fuse_relu_before_depthwise_conv", false) ||
        !single_input(op, "ResidualData").empty())
      return std::nullopt;
    return Operands{true, single_input(op, "Input"), single_input(op, "Filter"),
                    single_output(op, "Output")};
  }
  if (op.type() == "int8_fc") return std::nullopt;
  const std::optional<WeightProduct> product = weight_product_of(op, context.registry);
  if (!product) return std::nullopt;
  return Operands{false, product->x, product->weights, product->out, product->row_dims};
}

// Finds the op that converts the integers that the product writes, and the scale of the weights.
bool find_back(Candidate& found, const InnerVars& inner, const PassContext& context) {
  Op* const back = inner.only_reader(found.out);
  const ops::OpDef* const def = back == nullptr ? nullptr : context.registry.find(back->type());
  if (def == nullptr || !single_input(*found.op, "Bias").empty()) return false;
  found.back = back;
  if (back->type() == "fake_dequantize_max_abs") {
    const auto range = ops::read_attr<float>(*def, *back, "max_range");
    found.fixed_scale = 127.0F * 127.0F / range;
    return single_input(*back, "Scale") == found.x.scale && std::isfinite(found.fixed_scale) &&
           found.fixed_scale > 0;
  }
  if (back->type() != "fake_channel_wise_dequantize_max_abs") return false;
  const Slot* const scales = back->find_input("Scales");
  if (scales == nullptr || scales->args.size() != 2 ||
      back->name_of(scales->args[1].name) != found.x.scale)
    return false;
  found.weight_scale = back->name_of(scales->args[0].name);
  const Var* const scale = back->block().find_var(found.weight_scale);
  const int64_t channel_dim = found.is_conv ? 1 : found.row_dims;
  return is_f32(scale) && scale->persistable() && !back->block().has_writers(scale->name()) &&
         !is_written_elsewhere(back->block(), scale->name()) &&
         ops::read_attr<std::vector<int32_t>>(*def, *back, "quant_bits") ==
             std::vector<int32_t>{8, 8} &&
         ops::read_attr<int32_t>(*def, *back, "x_num_col_dims") == channel_dim;
}

std::optional<Candidate> candidate_of(Op& op, const InnerVars& inner, const PassContext& context) {
  const std::optional<Operands> operands = operands_of(op, context);
  if (!operands || operands->out.empty() || operands->x == operands->weights) return std::nullopt;
  const auto x = quantised_activation(inner, context.registry, op, operands->x);
  const auto weights = quantised_weights(inner, context.registry, op, operands->weights);
  if (!x || !weights || x->stays_integers != weights->stays_integers) return std::nullopt;
  if (!is_f32(op.block().find_var(x->source)) || !is_f32(op.block().find_var(operands->out)))
    return std::nullopt;
  if (weights->channel_wise && weights->axis != (operands->is_conv ? 0 : 1)) return std::nullopt;
  Candidate found{.op = &op,
                  .is_conv = operands->is_conv,
                  .row_dims = operands->row_dims,
                  .out = operands->out,
                  .x = *x,
                  .weights = *weights};
  if (x->stays_integers && !find_back(found, inner, context)) return std::nullopt;
  return found;
}

class Int8Products final : public Pass {
 public:
  explicit Int8Products(const PassOptions& options) : keep_(options.strings("keep")) {}

  llvm::StringRef name() const override { return "int8-products"; }

  StatusOr<bool> run(Program& program, PassContext& context) override {
    const InnerVars inner(program, keep_);
    bool changed = false;
    for (Op* const op : program.root().op_vector()) {
      if (!may_be_product(*op)) continue;
      const std::optional<Candidate> found = candidate_of(*op, inner, context);
      if (!found) continue;
      const std::optional<llvm::StringRef> lod = ops::lod_source(context.registry, *op, found->out);
      if (!found->is_conv && (!lod || (!lod->empty() && *lod != operand_name(*op)))) continue;
      changed = rewrite(*found, !found->is_conv && lod->empty(), inner) || changed;
    }
    return changed;
  }

 private:
  static bool may_be_product(const Op& op) {
    return op.type() == "conv2d" || op.type() == "depthwise_conv2d" || op.type() == "mul" ||
           op.type() == "matmul" || op.type() == "matmul_v2";
  }
  static llvm::StringRef operand_name(const Op& op) { return single_input(op, "X"); }

  // True if an op besides those of the pattern reads the scale of the weights.
  static bool is_read_elsewhere(const FakeQuant& weights) {
    if (weights.out_scale.empty()) return false;
    return llvm::any_of(weights.ops.front()->block().readers_of(weights.out_scale),
                        [&](const Op* reader) { return !llvm::is_contained(weights.ops, reader); });
  }

  // The op becomes the int8 op, or the one that converts its result back does, so that it is at
  // the position where the result is written.
  static bool rewrite(const Candidate& found, bool drops_lod, const InnerVars& inner) {
    if (is_read_elsewhere(found.weights)) return false;
    const Int8Parts parts = parts_of(found, inner);
    const std::string x = found.x.source.str();
    const std::string weights = found.weights.source.str();
    const std::string bias = found.is_conv ? single_input(*found.op, "Bias").str() : "";
    Op& last = found.back == nullptr ? *found.op : *found.back;
    const std::string out = (found.back == nullptr ? found.out : single_output(last, "Out")).str();
    std::vector<std::pair<std::string, AttrValue>> attrs;
    for (const char* const attr : kConvAttrs) {
      const AttrValue* const value = found.op->find_attr(attr);
      if (found.is_conv && value != nullptr) attrs.emplace_back(attr, *value);
    }
    turn_into(last, found.is_conv ? "int8_conv2d" : "int8_fc");
    last.set_input("Input", x);
    last.set_input(found.is_conv ? "Filter" : "W", weights);
    if (!bias.empty()) last.set_input("Bias", bias);
    last.set_output(found.is_conv ? "Output" : "Out", out);
    for (auto& [name, value] : attrs) last.set_attr(name, std::move(value));
    if (!found.is_conv) last.set_int("in_num_col_dims", static_cast<int32_t>(found.row_dims));
    if (drops_lod) last.set_bool("drops_lod", true);
    add_int8_parts(last, parts);
    if (&last != found.op) inner.erase(*found.op);
    for (const FakeQuant* const operand : {&found.x, &found.weights}) erase(*operand, inner);
    return true;
  }

  // Erases ops whose result no op reads any more, last first.
  static void erase(const FakeQuant& operand, const InnerVars& inner) {
    for (Op* const op : llvm::reverse(operand.ops)) {
      if (inner.block().has_readers(single_output(*op, "Out"))) return;
      inner.erase(*op);
    }
  }

  static Int8Parts parts_of(const Candidate& found, const InnerVars& inner) {
    Int8Parts parts;
    parts.inputs.emplace_back("InScale", found.x.scale.str());
    const llvm::StringRef scale = found.back == nullptr ? found.weights.scale : found.weight_scale;
    if (!scale.empty()) parts.inputs.emplace_back("WeightScale", scale.str());
    if (!found.weights.zero_point.empty())
      parts.inputs.emplace_back("WeightZeroPoint", found.weights.zero_point.str());
    const auto set = [&](const char* name, AttrValue value) {
      parts.attrs.emplace_back(name, std::move(value));
    };
    set("input_round_type", AttrValue::of_int(found.x.round_type));
    if (found.weights.are_integers) {
      set("integer_weights", AttrValue::of_bool(true));
      if (found.fixed_scale != 0) set("weight_scale", AttrValue::of_float(found.fixed_scale));
      return parts;
    }
    set("weight_round_type", AttrValue::of_int(found.weights.round_type));
    if (scale.empty()) set("channel_wise", AttrValue::of_bool(found.weights.channel_wise));
    if (writes_scale(found.weights, inner)) parts.out_scale = found.weights.out_scale.str();
    return parts;
  }

  // True if the op that writes a needed scale will be erased.
  static bool writes_scale(const FakeQuant& weights, const InnerVars& inner) {
    if (!inner.is_needed_after(weights.out_scale)) return false;
    return llvm::all_of(weights.ops, [&](const Op* op) {
      return inner.only_reader(single_output(*op, "Out")) != nullptr;
    });
  }

  std::vector<std::string> keep_;
};

}  // namespace
}  // namespace int8_products

void add_fusion_int8_products(PassRegistry& registry) {
  registry.add(PassInfo("int8-products",
                        "multiply products and convolutions of operands that fake_quantize ops "
                        "round to 8 bits as integers, in programs for inference")
                   .strings("keep", "vars whose value is needed after a run")
                   .makes<int8_products::Int8Products>());
}

}  // namespace millrace::transpiler
