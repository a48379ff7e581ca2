#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <llvm/ADT/SmallVector.h>

#include "framework/op_attrs.h"
#include "ops/read_attr.h"
#include "transpiler/fusion/fake_quant.h"
#include "transpiler/fusion/inner_vars.h"
#include "transpiler/pass_registry.h"

namespace millrace::transpiler {
namespace {

// A convolution of images with a constant filter, and the ops that follow it: at most one op of
// each kind, in this order.
struct FuseConvChain {
  std::vector<Op*> ops;  // in order of the program
  llvm::StringRef bias;
  const Op* norm = nullptr;
  llvm::StringRef residual;
  bool residual_first = false;  // the residual is the first operand of the sum
  const Op* activation = nullptr;

  [[nodiscard]] Op& last() const { return *ops.back(); }
};

constexpr const char* kNormSlots[] = {"Scale", "Bias", "Mean", "Variance"};
constexpr const char* kSavedSlots[] = {"SavedMean", "SavedVariance", "ReserveSpace"};
constexpr const char* kFusedSlots[] = {"Scale", "Shift", "Mean", "Variance"};

bool is_constant(const Block& block, llvm::StringRef name) {
  const Var* const var = block.find_var(name);
  return is_f32(var) && var->persistable();
}

class FuseConv final : public Pass {
 public:
  explicit FuseConv(const PassOptions& options)
      : keep_(options.strings("keep")), release_(options.flag("release")) {}

  llvm::StringRef name() const override { return "fuse-conv"; }

  StatusOr<bool> run(Program& program, PassContext& context) override {
    const InnerVars inner(program, keep_);
    bool changed = false;
    llvm::SmallVector<Op*, 0> convolutions;  // none is part of the chain of another
    for (Op& op : program.root().ops()) {
      if (is_convolution(op)) convolutions.push_back(&op);
    }
    for (Op* const op : convolutions) {
      FuseConvChain chain;
      chain.ops.push_back(op);
      chain.bias = single_input(*op, "Bias");
      follow(chain, inner, context);
      if (chain.ops.size() == 1 && op->type() == "int8_conv2d") continue;
      fuse(chain, inner, context);
      changed = true;
    }
    return changed;
  }

 private:
  static bool is_convolution(const Op& op) {
    if (op.type() == "int8_conv2d") return is_plain_int8(op);
    if (op.type() != "conv2d" && op.type() != "depthwise_conv2d") return false;
    if (get_attr_or<bool>(op, "fuse_relu_before_depthwise_conv", false)) return false;
    const llvm::StringRef bias = single_input(op, "Bias");
    return is_constant(op.block(), single_input(op, "Filter")) &&
           !single_output(op, "Output").empty() && !single_input(op, "Input").empty() &&
           single_input(op, "ResidualData").empty() &&
           (bias.empty() || is_constant(op.block(), bias));
  }

  // True for an op into which nothing has been fused.
  static bool is_plain_int8(const Op& op) {
    const llvm::StringRef bias = single_input(op, "Bias");
    return single_input(op, "Mean").empty() && single_input(op, "ResidualData").empty() &&
           op.find_attr("activation") == nullptr && (bias.empty() || is_constant(op.block(), bias));
  }

  // Extends the chain by ops that are the only readers of its result.
  static void follow(FuseConvChain& chain, const InnerVars& inner, const PassContext& context) {
    for (llvm::StringRef result = single_output(chain.last(), "Output"); !result.empty();) {
      Op* const next = inner.only_reader(result);
      if (next == nullptr) return;
      if (!inputs_stay(chain, *next) || !take(chain, *next, result, inner, context)) return;
      chain.ops.push_back(next);
      result = single_output(*next, next->type() == "batch_norm" ? "Y" : "Out");
    }
  }

  // Like inputs_unchanged() for all ops of the chain. A batch_norm with given statistics lists them
  // as outputs but does not change them.
  static bool inputs_stay(const FuseConvChain& chain, const Op& next) {
    for (const Op* const op : chain.ops) {
      for (const llvm::StringRef name : op->input_names()) {
        if (is_written_elsewhere(op->block(), name)) return false;
        for (const Op* const writer : op->block().writers_of(name)) {
          const bool between = !writer->comes_before(*op) && writer->comes_before(next);
          if (between && writer != chain.norm) return false;
        }
      }
    }
    return true;
  }

  static bool take(FuseConvChain& chain, const Op& op, llvm::StringRef result,
                   const InnerVars& inner, const PassContext& context) {
    if (chain.activation != nullptr) return false;
    const ops::OpDef* const def = context.registry.find(op.type());
    if (def == nullptr) return false;
    if (op.type() == "relu" || op.type() == "relu6" || op.type() == "leaky_relu") {
      chain.activation = &op;
      return true;
    }
    if (!chain.residual.empty()) return false;
    if (op.type() == "batch_norm") return take_norm(chain, op, *def, inner);
    if (op.type() == "elementwise_add") return take_sum(chain, op, *def, result);
    return false;
  }

  // The statistics must be given, and no op may read those that the op outputs.
  static bool take_norm(FuseConvChain& chain, const Op& op, const ops::OpDef& def,
                        const InnerVars& inner) {
    const bool global = ops::read_attr<bool>(def, op, "use_global_stats") ||
                        (ops::read_attr<bool>(def, op, "is_test") &&
                         !ops::read_attr<bool>(def, op, "trainable_statistics"));
    if (chain.norm != nullptr || !global || ops::read_attr<bool>(def, op, "fuse_with_relu") ||
        is_channels_last(op, def, "data_layout") != conv_is_channels_last(chain))
      return false;
    for (const char* const slot : kNormSlots) {
      if (!is_constant(op.block(), single_input(op, slot))) return false;
    }
    for (const auto& [slot, var] : {std::pair{"MeanOut", "Mean"}, {"VarianceOut", "Variance"}}) {
      if (op.find_output(slot) != nullptr && single_output(op, slot) != single_input(op, var))
        return false;
    }
    for (const char* const slot : kSavedSlots) {
      const llvm::StringRef name = single_output(op, slot);
      if (!name.empty() && (!inner.contains(name) || op.block().has_readers(name))) return false;
    }
    chain.norm = &op;
    return true;
  }

  static bool is_channels_last(const Op& op, const ops::OpDef& def, llvm::StringRef attr) {
    const auto format = ops::read_attr<std::string>(def, op, attr);
    return format.size() > 1 && format[0] == 'N' && format.back() == 'C';
  }
  static bool conv_is_channels_last(const FuseConvChain& chain) {
    const AttrValue* const format = chain.ops.front()->find_attr("data_format");
    return format != nullptr && format->kind() == AttrKind::kString && format->string() == "NHWC";
  }

  // Accepts a bias for each channel, or another image.
  static bool take_sum(FuseConvChain& chain, const Op& op, const ops::OpDef& def,
                       llvm::StringRef result) {
    const llvm::StringRef x = single_input(op, "X");
    const llvm::StringRef y = single_input(op, "Y");
    const Var* const image = op.block().find_var(result);
    const llvm::StringRef other = x == result ? y : x;
    const Var* const operand = op.block().find_var(other);
    if (x == y || !is_f32(operand) || image == nullptr || conv_is_channels_last(chain))
      return false;
    if (operand->persistable()) {
      const bool by_channel = x == result && operand->dims().size() == 1 &&
                              image->dims().size() == 4 && image->dims()[1] == operand->dims()[0] &&
                              ops::read_attr<int32_t>(def, op, "axis") == 1;
      if (!by_channel || !chain.bias.empty() || chain.norm != nullptr) return false;
      chain.bias = other;
      return true;
    }
    if (operand->dims() != image->dims() || image->dims().size() != 4) return false;
    chain.residual = other;
    chain.residual_first = x == other;
    return true;
  }

  // The last op of the chain becomes the fused op, so that it is at the position where the result
  // is written.
  void fuse(const FuseConvChain& chain, const InnerVars& inner, const PassContext& context) const {
    Op& conv = *chain.ops.front();
    Op& last = chain.last();
    const std::string out = (chain.ops.size() == 1         ? single_output(last, "Output")
                             : last.type() == "batch_norm" ? single_output(last, "Y")
                                                           : single_output(last, "Out"))
                                .str();
    const std::string input = single_input(conv, "Input").str();
    const std::string filter = single_input(conv, "Filter").str();
    std::vector<std::pair<std::string, AttrValue>> attrs;
    for (const char* const attr : kConvAttrs) {
      if (const AttrValue* const value = conv.find_attr(attr)) attrs.emplace_back(attr, *value);
    }
    const std::vector<std::pair<std::string, std::string>> norm = norm_inputs(chain);
    const bool release = release_ && chain.norm != nullptr && conv.type() != "int8_conv2d" &&
                         is_read_once(inner, filter);
    const float epsilon = attr_of(chain.norm, context, "epsilon", 1e-5F);
    const std::string activation =
        chain.activation == nullptr ? "" : chain.activation->type().str();
    const float alpha = activation == "relu6" ? attr_of(chain.activation, context, "threshold", 6)
                        : activation == "leaky_relu"
                            ? attr_of(chain.activation, context, "alpha", 0)
                            : 0.0F;
    llvm::SmallVector<Var*, 3> unused;
    for (const char* const slot : kSavedSlots) {
      if (Var* const var = inner.block().find_var(single_output(last, slot))) unused.push_back(var);
    }
    const Int8Parts int8 = int8_parts_of(conv);
    turn_into(last, conv.type() == "int8_conv2d" ? "int8_conv2d" : "fused_conv2d");
    add_int8_parts(last, int8);
    for (Var* const var : unused) inner.block().erase(*var);
    last.set_input("Input", input).set_input("Filter", filter);
    if (!chain.bias.empty()) last.set_input("Bias", chain.bias);
    for (const auto& [slot, name] : norm) last.set_input(slot, name);
    if (!chain.residual.empty()) last.set_input("ResidualData", chain.residual);
    last.set_output("Output", out);
    for (auto& [name, value] : attrs) last.set_attr(name, std::move(value));
    if (chain.norm != nullptr) last.set_float("epsilon", epsilon);
    if (chain.residual_first) last.set_bool("residual_first", true);
    if (release) last.set_bool("release_filter", true);
    if (!activation.empty()) last.set_string("activation", activation).set_float("alpha", alpha);
    for (size_t i = 0; i + 1 < chain.ops.size(); ++i) inner.erase(*chain.ops[i]);
  }

  // True if one op of the program reads the var, none writes it, and it is not needed afterwards.
  [[nodiscard]] bool is_read_once(const InnerVars& inner, const std::string& name) const {
    size_t users = 0;
    for (const Block& block : inner.block().program().blocks())
      users += block.readers_of(name).size() + 2 * block.writers_of(name).size();
    return users == 1 && llvm::find(keep_, name) == keep_.end();
  }

  static std::vector<std::pair<std::string, std::string>> norm_inputs(const FuseConvChain& chain) {
    std::vector<std::pair<std::string, std::string>> inputs;
    for (size_t i = 0; chain.norm != nullptr && i < std::size(kNormSlots); ++i)
      inputs.emplace_back(kFusedSlots[i], single_input(*chain.norm, kNormSlots[i]).str());
    return inputs;
  }

  static float attr_of(const Op* op, const PassContext& context, llvm::StringRef name,
                       float fallback) {
    const ops::OpDef* const def = op == nullptr ? nullptr : context.registry.find(op->type());
    return def == nullptr ? fallback : ops::read_attr<float>(*def, *op, name);
  }

  std::vector<std::string> keep_;
  bool release_;
};

}  // namespace

void add_fusion_fuse_conv(PassRegistry& registry) {
  registry.add(PassInfo("fuse-conv",
                        "fuse a convolution and the following bias, batch_norm with given "
                        "statistics, sum with another image, and rectifier into one op")
                   .strings("keep", "vars whose value is needed after a run")
                   .flag("release", false, "free the memory of folded filters in the first run")
                   .makes<FuseConv>());
}

}  // namespace millrace::transpiler
