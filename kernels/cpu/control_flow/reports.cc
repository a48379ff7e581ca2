#include <cstdio>
#include <memory>

#include <fmt/format.h>

#include "kernels/cpu/strided.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"
#include "ops/infer_context.h"

// print and assert: ops that report to the user.
namespace millrace::kernels {
namespace {

// "[1, 2.5, ...]"; limit < 0: all of them.
std::string elements_text(const Tensor& tensor, int64_t limit) {
  std::string text = "[";
  const int64_t shown = limit < 0 ? tensor.numel() : std::min(limit, tensor.numel());
  const Status status = dispatch<AllTypes>(tensor.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < shown; ++i) {
      const auto value = static_cast<Compute<T>>(tensor.data<T>()[i]);
      if (i > 0) text += ", ";
      if constexpr (std::is_integral_v<T> && sizeof(T) == 1 && !std::is_same_v<T, bool>) {
        text += fmt::format("{}", static_cast<int>(value));
      } else {
        text += fmt::format("{}", value);
      }
    }
    return Ok();
  });
  if (!status.ok()) return "[?]";
  if (shown < tensor.numel()) text += ", ...";
  return text + "]";
}

struct PrintArgs {
  explicit PrintArgs(const KernelSetup& op)
      : message(op.attr<std::string>("message")),
        summarize(op.attr<int64_t>("summarize")),
        first_n(op.attr<int64_t>("first_n")),
        type(op.attr<bool>("print_tensor_type")),
        shape(op.attr<bool>("print_tensor_shape")),
        lod(op.attr<bool>("print_tensor_lod")) {
    if (op.attr<bool>("print_tensor_name")) name = op.op().first_input("In").str();
    const auto wanted = op.attr<std::string>("print_phase");
    const bool forward = op.attr<bool>("is_forward");
    active = llvm::StringRef(wanted).equals_insensitive("both") ||
             llvm::StringRef(wanted).equals_insensitive(forward ? "forward" : "backward");
  }
  std::string message;
  std::string name;
  int64_t summarize;
  int64_t first_n;
  bool type;
  bool shape;
  bool lod;
  bool active = false;
};

std::string tensor_line(const PrintArgs& args, const Tensor& tensor) {
  std::string line = args.message;
  const auto add = [&](const std::string& word) {
    if (!line.empty()) line += ' ';
    line += word;
  };
  if (!args.name.empty()) add(args.name);
  if (args.type) add(std::string(dtype_name(tensor.dtype())));
  if (args.shape) add(ops::dims_text(tensor.dims()));
  if (args.lod && !tensor.lod().empty()) add("lod " + tensor.lod().to_string());
  add(elements_text(tensor, args.summarize));
  return line;
}

StatusOr<Kernel> print(const KernelSetup& op) {
  const ArgIndex in = op.input("In");
  const ArgIndex out = op.output("Out");
  const PrintArgs args(op);
  return Kernel([=, printed = int64_t{0}](const KernelContext& ctx) mutable -> Status {
    const Value& from = ctx.in_value(in);
    if (args.active && (args.first_n < 0 || printed < args.first_n)) {
      ++printed;
      if (const auto* const tensor = from.get_if<Tensor>()) {
        fmt::print(stderr, "{}\n", tensor_line(args, *tensor));
      } else {
        fmt::print(stderr, "{} {} {}\n", args.message, args.name, describe(from));
      }
    }
    if (!out) return Ok();
    Value& to = ctx.out_value(out);
    if (&from == &to) return Ok();
    if (const auto* const tensor = from.get_if<Tensor>()) {
      Tensor& copy = to.as<Tensor>();
      if (!copy.initialized() || copy.bytes() != tensor->bytes()) return copy.copy_from(*tensor);
      copy_bytes(ctx.device(), copy.raw(), tensor->raw(), tensor->bytes());
      return Ok();
    }
    MILLRACE_ASSIGN_OR_RETURN(to, clone(from));
    return Ok();
  });
}

StatusOr<Kernel> assert_true(const KernelSetup& op) {
  const ArgIndex condition = op.input("Cond");
  const ArgRange data = op.inputs("Data");
  const auto summarize = op.attr<int64_t>("summarize");
  const auto names = op.op().input("Data");
  const std::vector<std::string> data_names = [&] {
    std::vector<std::string> list;
    for (const llvm::StringRef name : names) list.push_back(name.str());
    return list;
  }();
  const std::string condition_name = op.op().first_input("Cond").str();
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& holds = ctx.in(condition);
    if (holds.dtype() != DType::kBool || holds.numel() != 1)
      return ctx.error("Cond must be one bool, found {}", describe(holds));
    if (*holds.data<bool>()) return Ok();
    std::string text;
    for (int32_t k = 0; k < data.count; ++k) {
      if (!ctx.has_in(data, k)) continue;
      const Value& value = ctx.in_value(data, k);
      const auto* const tensor = value.get_if<Tensor>();
      text += fmt::format("; {} is {}", data_names[static_cast<size_t>(k)], describe(value));
      if (tensor != nullptr && tensor->initialized())
        text += " " + elements_text(*tensor, summarize);
    }
    return ctx.error("the condition '{}' does not hold{}", condition_name, text);
  });
}

}  // namespace

void add_control_flow_reports(KernelRegistry& registry) {
  registry.add("print", print);
  registry.add("assert", assert_true);
}

}  // namespace millrace::kernels
