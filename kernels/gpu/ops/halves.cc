#include "kernels/gpu/ops/halves.h"

#include <memory>
#include <utility>
#include <vector>

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/StringRef.h>

#include "kernels/gpu/resident.h"
#include "kernels/gpu/shared_scratch.h"

namespace millrace::gpu {
namespace halves {
namespace {

constexpr int64_t kAlignment = 256;
constexpr const char* kHolder = "f32 copies of 16-bit floats";

// Whether an argument may be f32 beside 16-bit ones.
enum class WidthRule : uint8_t { kSame, kMayBeWide, kMustBeWide };

WidthRule rule_for(llvm::StringRef type, llvm::StringRef slot) {
  constexpr const char* kKept[] = {"Mean", "Variance", "MeanOut", "VarianceOut"};
  constexpr const char* kStatistics[] = {"Scale",         "Bias",       "Shift",    "SavedMean",
                                         "SavedVariance", "Scale@GRAD", "Bias@GRAD"};
  if (!type.contains("norm") && type != "fused_conv2d") return WidthRule::kSame;
  const auto is_slot = [&](const char* name) { return slot == name; };
  if (llvm::any_of(kKept, is_slot))
    return type.contains("batch_norm") ? WidthRule::kMustBeWide : WidthRule::kMayBeWide;
  return llvm::any_of(kStatistics, is_slot) ? WidthRule::kMayBeWide : WidthRule::kSame;
}

// An argument of the op.
struct Argument {
  WidthRule rule = WidthRule::kSame;
  bool replaced = false;  ///< by the copy, in the present call
  Value wide;             ///< the f32 copy
};

ArgIndex argument(size_t k) {
  return {static_cast<int32_t>(k)};
}
ArgRange only_argument(size_t k) {
  return {static_cast<int32_t>(k), 1};
}
bool has_input(const KernelContext& ctx, size_t k) {
  return ctx.has_in(only_argument(k), 0);
}
bool has_output(const KernelContext& ctx, size_t k) {
  return ctx.has_out(only_argument(k), 0);
}

std::vector<Argument> arguments_of(const Op& op, llvm::ArrayRef<Slot> slots, bool is_update) {
  std::vector<Argument> all;
  for (const Slot& slot : slots) {
    for (size_t k = 0; k < slot.args.size(); ++k) {
      all.emplace_back();
      all.back().rule =
          is_update ? WidthRule::kMayBeWide : rule_for(op.type(), op.name_of(slot.name));
    }
  }
  return all;
}

// The floats that a call has been found to have.
struct Found {
  bool f16 = false;
  bool bf16 = false;
  bool rows = false;  ///< selected rows, of any type
  Status misfit;      ///< why 16-bit floats cannot be computed, if there are some

  void look(const Value& value, WidthRule rule) {
    rows |= value.holds<SelectedRows>();
    const auto* const selected = value.get_if<SelectedRows>();
    const Tensor* const tensor = selected == nullptr ? value.get_if<Tensor>() : &selected->value;
    if (tensor == nullptr || !tensor->initialized() || !is_floating(tensor->dtype())) return;
    f16 |= tensor->dtype() == DType::kFloat16;
    bf16 |= tensor->dtype() == DType::kBfloat16;
    const bool is_wide = tensor->dtype() == DType::kFloat32 && rule != WidthRule::kSame;
    const bool is_narrow = is_half(tensor->dtype()) && rule != WidthRule::kMustBeWide;
    if (!is_wide && !is_narrow) misfit = refuse("{} beside 16-bit floats", describe(*tensor));
  }
};

// to = from in another type.
template <typename From, typename To>
Status convert_floats(Device& device, const Tensor& from, Tensor& to) {
  if (from.numel() != to.numel()) return {StatusCode::kInternal, "a copy of another size"};
  return each(device,
              gpu::Convert<From, To>{reinterpret_cast<const From*>(from.raw()),
                                     reinterpret_cast<To*>(to.raw())},
              from.numel());
}
Status widen(Device& device, const Tensor& from, Tensor& to) {
  return from.dtype() == DType::kFloat16 ? convert_floats<Half, float>(device, from, to)
                                         : convert_floats<Brain, float>(device, from, to);
}
Status narrow(Device& device, const Tensor& from, Tensor& to) {
  return to.dtype() == DType::kFloat16 ? convert_floats<float, Half>(device, from, to)
                                       : convert_floats<float, Brain>(device, from, to);
}

class WidenedOp {
 public:
  WidenedOp(const KernelSetup& op, Kernel kernel)
      : memory_(memory_of(op)),
        scratch_(context_of(op.device())->scratch()),
        kernel_(std::move(kernel)),
        is_update_(op.input("Param") && op.output("ParamOut")),
        inputs_(arguments_of(op.op(), op.op().inputs(), is_update_)),
        outputs_(arguments_of(op.op(), op.op().outputs(), is_update_)) {
    if (!is_update_) return;
    param_ = op.input("Param");
    param_out_ = op.output("ParamOut");
    is_single_ = op.inputs("Param").count == 1;
    wants_master_ =
        op.def().find_attr("multi_precision") != nullptr && op.attr<bool>("multi_precision");
    master_ = op.input("MasterParam");
    master_out_ = op.output("MasterParamOut");
  }

  Status run(const KernelContext& ctx) {
    const Found found = look(ctx);
    if (!found.f16 && !found.bf16) return kernel_(ctx);
    if (!always_copies_) {
      Status status = kernel_(ctx);
      if (status.code() != StatusCode::kUnimplemented) return status;
      always_copies_ = true;
    }
    MILLRACE_RETURN_IF_ERROR(check(ctx, found));
    MILLRACE_RETURN_IF_ERROR(make_copies(ctx));
    MILLRACE_RETURN_IF_ERROR(call(ctx));
    Device& device = memory_.device();
    for (size_t k = 0; k < outputs_.size(); ++k) {
      if (!outputs_[k].replaced) continue;
      Tensor& own = ctx.out(argument(k));
      const auto& wide = outputs_[k].wide.as<Tensor>();
      own.set_lod(wide.lod());
      MILLRACE_RETURN_IF_ERROR(narrow(device, wide, own));
    }
    return has_master(ctx) ? narrow(device, ctx.out(master_out_), ctx.out(param_out_)) : Ok();
  }

 private:
  [[nodiscard]] Found look(const KernelContext& ctx) const {
    Found found;
    for (size_t k = 0; k < inputs_.size(); ++k) {
      if (has_input(ctx, k)) found.look(ctx.in_value(argument(k)), inputs_[k].rule);
    }
    for (size_t k = 0; k < outputs_.size(); ++k) {
      if (has_output(ctx, k)) found.look(ctx.out_value(argument(k)), outputs_[k].rule);
    }
    return found;
  }

  // True if the op updates master weights in place of a 16-bit parameter.
  [[nodiscard]] bool has_master(const KernelContext& ctx) const {
    const Tensor* const param = is_update_ ? ctx.find_in(param_) : nullptr;
    return wants_master_ && param != nullptr && is_half(param->dtype());
  }

  // Errors: rejects calls that the processor's kernel reports, or computes in another way.
  [[nodiscard]] Status check(const KernelContext& ctx, const Found& found) const {
    if (found.f16 && found.bf16) return refuse("f16 beside bf16");
    if (found.rows) return refuse("rows beside 16-bit floats");
    MILLRACE_RETURN_IF_ERROR(found.misfit);
    if (is_update_ && !is_single_) return refuse("several 16-bit parameters");
    if (!has_master(ctx)) return Ok();
    if (!master_ || !master_out_) return refuse("MasterParam is missing");
    const Tensor& param = ctx.in(param_);
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const master, needed_here(ctx, master_, "MasterParam"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const out, output_like(ctx, master_out_, *master));
    if (master->dtype() != DType::kFloat32 || out == nullptr || master->dims() != param.dims() ||
        ctx.out(param_out_).numel() != param.numel())
      return refuse("MasterParam is {} for Param {}", describe(*master), describe(param));
    return Ok();
  }

  [[nodiscard]] bool is_replaced(const KernelContext& ctx, const Value& value,
                                 bool is_param) const {
    const Tensor* const tensor = value.get_if<Tensor>();
    return tensor != nullptr && tensor->initialized() && is_half(tensor->dtype()) &&
           !(is_param && has_master(ctx));
  }

  Status make_copies(const KernelContext& ctx) {
    int64_t bytes = 0;
    const auto note = [&](Argument& arg, const Value& value, bool is_param) {
      arg.replaced = is_replaced(ctx, value, is_param);
      if (arg.replaced) bytes += copy_bytes(*value.get_if<Tensor>());
    };
    for (size_t k = 0; k < inputs_.size(); ++k) {
      inputs_[k].replaced = false;
      if (has_input(ctx, k))
        note(inputs_[k], ctx.in_value(argument(k)), argument(k).index == param_.index);
    }
    for (size_t k = 0; k < outputs_.size(); ++k) {
      outputs_[k].replaced = false;
      if (has_output(ctx, k))
        note(outputs_[k], ctx.out_value(argument(k)), argument(k).index == param_out_.index);
    }
    // kept, because the work may be recorded
    MILLRACE_ASSIGN_OR_RETURN(block_, scratch_.get(memory_, bytes, kHolder));
    int64_t offset = 0;
    for (size_t k = 0; k < inputs_.size(); ++k) {
      if (!inputs_[k].replaced) continue;
      const Tensor& from = ctx.in(argument(k));
      MILLRACE_RETURN_IF_ERROR(place(inputs_[k], from, offset));
      MILLRACE_RETURN_IF_ERROR(widen(memory_.device(), from, inputs_[k].wide.as<Tensor>()));
    }
    for (size_t k = 0; k < outputs_.size(); ++k) {
      if (outputs_[k].replaced)
        MILLRACE_RETURN_IF_ERROR(place(outputs_[k], ctx.out(argument(k)), offset));
    }
    return Ok();
  }

  static int64_t copy_bytes(const Tensor& like) {
    const auto bytes = like.numel() * static_cast<int64_t>(sizeof(float));
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  // Gives the copy its dims and memory.
  Status place(Argument& arg, const Tensor& like, int64_t& offset) {
    arg.wide.clear();
    auto& wide = arg.wide.as<Tensor>();
    const int64_t bytes = copy_bytes(like);
    MILLRACE_RETURN_IF_ERROR(reserve_resident(wide, block_, offset, bytes));
    MILLRACE_RETURN_IF_ERROR(resize_resident(wide, DType::kFloat32, like.dims(), memory_, kHolder));
    wide.set_lod(like.lod());
    offset += bytes;
    return Ok();
  }

  // Runs the kernel with the copies, and with the master weights in place of the parameter.
  Status call(const KernelContext& ctx) {
    const bool master = has_master(ctx);
    std::vector<Value*> table;
    std::vector<int32_t> in;
    std::vector<int32_t> out;
    const auto enter = [&](Value* value, std::vector<int32_t>& places) {
      places.push_back(value == nullptr ? -1 : static_cast<int32_t>(table.size()));
      if (value != nullptr) table.push_back(value);
    };
    for (size_t k = 0; k < inputs_.size(); ++k) {
      const bool is_param = master && argument(k).index == param_.index;
      const ArgIndex from = is_param ? master_ : argument(k);
      // kernels do not change what they read
      enter(!has_input(ctx, k)    ? nullptr
            : inputs_[k].replaced ? &inputs_[k].wide
                                  : const_cast<Value*>(&ctx.in_value(from)),
            in);
    }
    for (size_t k = 0; k < outputs_.size(); ++k) {
      const bool is_param = master && argument(k).index == param_out_.index;
      const ArgIndex to = is_param ? master_out_ : argument(k);
      enter(!has_output(ctx, k)    ? nullptr
            : outputs_[k].replaced ? &outputs_[k].wide
                                   : &ctx.out_value(to),
            out);
    }
    return kernel_(KernelContext(table.data(), in, out, ctx.device()));
  }

  Memory& memory_;
  SharedScratch& scratch_;
  Kernel kernel_;
  bool is_update_;  ///< of a parameter
  std::vector<Argument> inputs_;
  std::vector<Argument> outputs_;
  bool always_copies_ = false;  ///< the kernel has rejected 16-bit floats
  bool is_single_ = false;      ///< one parameter
  bool wants_master_ = false;   ///< attribute multi_precision
  ArgIndex param_, param_out_, master_, master_out_;
  std::shared_ptr<Block> block_;  ///< memory of the copies in the latest call
};

}  // namespace
}  // namespace halves

Kernel also_for_halves(const KernelSetup& op, Kernel kernel) {
  const auto widened = std::make_shared<halves::WidenedOp>(op, std::move(kernel));
  return [widened](const KernelContext& ctx) { return widened->run(ctx); };
}

}  // namespace millrace::gpu
