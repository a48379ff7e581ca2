#include "executor/add_custom_ops.h"

#include <memory>
#include <utility>

#include <fmt/format.h>

#include "executor/standard_runtime.h"

namespace millrace::executor {
namespace {

using kernels::ArgIndex;
using kernels::KernelContext;
using kernels::KernelSetup;

// The names of an op's slots, so that a call finds its arguments without access to the op.
struct Slots {
  struct Entry {
    std::string name;
    std::vector<ArgIndex> args;
  };
  std::vector<Entry> inputs;
  std::vector<Entry> outputs;

  static const std::vector<ArgIndex>* find(const std::vector<Entry>& entries,
                                           const std::string& name) {
    for (const Entry& entry : entries) {
      if (entry.name == name) return &entry.args;
    }
    return nullptr;
  }
};

Slots slots_of(const KernelSetup& setup) {
  Slots slots;
  const auto add = [&](llvm::ArrayRef<Slot> from, std::vector<Slots::Entry>& to, bool is_input) {
    for (const Slot& slot : from) {
      const llvm::StringRef name = setup.op().name_of(slot.name);
      Slots::Entry& entry = to.emplace_back();
      entry.name = name.str();
      for (size_t k = 0; k < slot.args.size(); ++k)
        entry.args.push_back(is_input ? setup.input(name, k) : setup.output(name, k));
    }
  };
  add(setup.op().inputs(), slots.inputs, true);
  add(setup.op().outputs(), slots.outputs, false);
  return slots;
}

std::optional<double> number_of(const AttrValue& value) {
  switch (value.kind()) {
    case AttrKind::kInt:
    case AttrKind::kLong:
    case AttrKind::kBool:
      return static_cast<double>(value.integer());
    case AttrKind::kFloat:
      return value.float32();
    case AttrKind::kFloat64:
      return value.float64();
    default:
      return std::nullopt;
  }
}

std::optional<std::vector<double>> numbers_of(const AttrValue& value) {
  const auto copy = [](const auto& list) { return std::vector<double>(list.begin(), list.end()); };
  switch (value.kind()) {
    case AttrKind::kInts:
      return copy(value.ints());
    case AttrKind::kLongs:
      return copy(value.longs());
    case AttrKind::kFloats:
      return copy(value.floats());
    case AttrKind::kFloat64s:
      return copy(value.float64s());
    case AttrKind::kBools:
      return copy(value.bools());
    default:
      return std::nullopt;
  }
}

class Call final : public OpCall {
 public:
  Call(const Slots& slots, const Op& op, const KernelContext& ctx)
      : slots_(slots), op_(op), ctx_(ctx) {}

  [[nodiscard]] size_t input_count(const std::string& slot) const override {
    const auto* const args = Slots::find(slots_.inputs, slot);
    return args == nullptr ? 0 : args->size();
  }
  [[nodiscard]] size_t output_count(const std::string& slot) const override {
    const auto* const args = Slots::find(slots_.outputs, slot);
    return args == nullptr ? 0 : args->size();
  }

  [[nodiscard]] StatusOr<ArrayView> input(const std::string& slot, size_t k) const override {
    const auto* const args = Slots::find(slots_.inputs, slot);
    if (args == nullptr || k >= args->size() || !(*args)[k])
      return KernelContext::error("the op has no input {}[{}]", slot, k);
    const auto* const tensor = ctx_.in_value((*args)[k]).get_if<Tensor>();
    if (tensor == nullptr || !tensor->initialized()) {
      return KernelContext::error("input {}[{}]: expected a dense array, found {}", slot, k,
                                  describe(ctx_.in_value((*args)[k])));
    }
    ArrayView view;
    view.dtype = tensor->dtype();
    view.dims = {tensor->dims().data(), tensor->dims().size()};
    view.bytes = {tensor->raw(), static_cast<size_t>(tensor->bytes())};
    if (!tensor->lod().empty()) view.lod = tensor->lod().levels();
    return view;
  }

  StatusOr<std::span<std::byte>> output(const std::string& slot, DType dtype,
                                        const std::vector<int64_t>& dims, size_t k) override {
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const tensor, output_tensor(slot, k));
    MILLRACE_RETURN_IF_ERROR(tensor->resize(dtype, dims));
    return std::span<std::byte>(tensor->raw(), static_cast<size_t>(tensor->bytes()));
  }

  Status set_lod(const std::string& slot, std::vector<std::vector<int64_t>> lod,
                 size_t k) override {
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const tensor, output_tensor(slot, k));
    tensor->set_lod(Lod(std::move(lod)));
    return Ok();
  }

  [[nodiscard]] std::optional<double> number(const std::string& name) const override {
    const AttrValue* const value = op_.find_attr(name);
    return value == nullptr ? std::nullopt : number_of(*value);
  }
  [[nodiscard]] std::optional<std::vector<double>> numbers(const std::string& name) const override {
    const AttrValue* const value = op_.find_attr(name);
    return value == nullptr ? std::nullopt : numbers_of(*value);
  }
  [[nodiscard]] std::optional<std::string> text(const std::string& name) const override {
    const AttrValue* const value = op_.find_attr(name);
    if (value == nullptr || value->kind() != AttrKind::kString) return std::nullopt;
    return value->string().str();
  }

 private:
  StatusOr<Tensor*> output_tensor(const std::string& slot, size_t k) {
    const auto* const args = Slots::find(slots_.outputs, slot);
    if (args == nullptr || k >= args->size() || !(*args)[k])
      return KernelContext::error("the op has no output {}[{}]", slot, k);
    return &ctx_.out((*args)[k]);
  }

  const Slots& slots_;
  const Op& op_;
  const KernelContext& ctx_;
};

KernelFactory factory_of(const CustomOp& custom) {
  return [run = custom.run](const KernelSetup& setup) -> StatusOr<kernels::Kernel> {
    return kernels::Kernel(
        [run, slots = slots_of(setup), op = &setup.op()](const KernelContext& ctx) -> Status {
          Call call(slots, *op, ctx);
          return run(call);
        });
  };
}

}  // namespace

StatusOr<std::shared_ptr<const Runtime>> runtime_with(const std::vector<CustomOp>& custom_ops,
                                                      const std::string& files_root,
                                                      std::shared_ptr<Rings> rings) {
  if (custom_ops.empty()) return standard_runtime(files_root, std::move(rings));
  auto runtime = std::make_shared<Runtime>();
  runtime->files_root = files_root;
  runtime->rings = std::move(rings);
  std::unique_ptr<ops::OpRegistry> schemas = ops::standard_registry();
  for (const CustomOp& custom : custom_ops) {
    if (custom.type.empty() || custom.run == nullptr)
      return Status(StatusCode::kInvalidArgument, "a custom op needs a type and a function");
    if (schemas->find(custom.type) != nullptr) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("an op '{}' already exists", custom.type));
    }
    schemas->add(ops::OpDef(custom.type).doc("an op of the user's own").open_slots());
    runtime->custom_kernels[custom.type] = factory_of(custom);
  }
  runtime->ops = std::move(schemas);
  runtime->kernels = executor_kernels();
  add_standard_controls(runtime->controls);
  return std::shared_ptr<const Runtime>(std::move(runtime));
}

}  // namespace millrace::executor
