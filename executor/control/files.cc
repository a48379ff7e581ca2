#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "executor/block_runner.h"
#include "executor/compiled_ops/control.h"
#include "framework/names.h"
#include "io/params.h"
#include "io/paths.h"
#include "kernels/cpu/convert.h"

// save, save_combine, load, load_combine: write and read vars in the file formats of the original.
// Every path must be below the folder that the caller allows (Runtime::files_root).
namespace millrace::executor {
namespace {

using kernels::ArgIndex;
using kernels::KernelSetup;

// A file below the allowed folder.
struct FileName {
  std::string root;
  std::string name;
};

// The file of an op; if the path begins with the allowed folder, that prefix is removed.
StatusOr<FileName> allowed_file(const KernelSetup& setup, const BlockRunner& runner) {
  const std::string& root = runner.runtime().files_root;
  const auto given = setup.attr<std::string>("file_path");
  if (root.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("the op uses the file '{}', but no folder was allowed", given))
        .with_hint("run-program --allow-dir DIR lets it use files below a folder");
  }
  std::string_view name = given;
  const std::string prefix = root.back() == '/' ? root : root + '/';
  if (name.substr(0, prefix.size()) == prefix) name.remove_prefix(prefix.size());
  while (name.substr(0, 2) == "./") name.remove_prefix(2);
  MILLRACE_RETURN_IF_ERROR(io::path_below(root, name).status());
  return FileName{root, std::string(name)};
}

StatusOr<io::ByteSource> open_files(const FileName& file) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string path, io::path_below(file.root, file.name));
  return io::ByteSource::open(path);
}

// The location of an error in a running program is the op, so the file name becomes a note.
Status in_note(Status status) {
  const std::string path = status.location().file;
  return std::move(status).with_note(fmt::format("in the file '{}'", path));
}

struct Argument {
  std::string name;
  ArgIndex arg;
};

std::vector<Argument> arguments(const Op& op, llvm::ArrayRef<Slot> slots, llvm::StringRef slot,
                                bool outputs, const KernelSetup& setup) {
  std::vector<Argument> found;
  for (const Slot& each : slots) {
    if (op.name_of(each.name) != slot) continue;
    for (size_t k = 0; k < each.args.size(); ++k) {
      const llvm::StringRef name = op.name_of(each.args[k].name);
      if (name == names::kEmpty) continue;
      found.push_back({name.str(), outputs ? setup.output(slot, k) : setup.input(slot, k)});
    }
  }
  return found;
}

// A copy of a tensor, or of the values of selected rows, as float16.
StatusOr<Value> as_float16(const Value& value) {
  MILLRACE_ASSIGN_OR_RETURN(Value copy, clone(value));
  auto* const rows = copy.get_if<SelectedRows>();
  Tensor* const tensor = rows == nullptr ? copy.get_if<Tensor>() : &rows->value;
  if (tensor == nullptr) return copy;  // rejected by the writer
  if (tensor->dtype() != DType::kFloat32 && tensor->dtype() != DType::kFloat64) return copy;
  MILLRACE_ASSIGN_OR_RETURN(Tensor half, Tensor::create(DType::kFloat16, tensor->dims()));
  MILLRACE_RETURN_IF_ERROR(kernels::convert(tensor->dtype(), tensor->raw(), DType::kFloat16,
                                            half.raw(), tensor->numel()));
  half.set_lod(tensor->lod());
  *tensor = std::move(half);
  return copy;
}

// Writes to memory if there is such an output, else to the file.
Status write_values(ControlContext& ctx, const std::vector<Argument>& inputs, bool half,
                    const FileName& file, const io::SaveOptions& options, Value* memory) {
  std::vector<Value> halves(inputs.size());
  std::vector<io::NamedValue> values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value* value = &ctx.args.in_value(inputs[i].arg);
    if (half) {
      MILLRACE_ASSIGN_OR_RETURN(halves[i], as_float16(*value));
      value = &halves[i];
    }
    values.push_back({inputs[i].name, value});
  }
  if (memory == nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(const std::string path, io::make_path_below(file.root, file.name));
    return io::save_combined(path, values, options);
  }
  MILLRACE_ASSIGN_OR_RETURN(std::string bytes, io::combined_bytes(values));
  memory->as<Strings>() = {std::move(bytes)};
  return Ok();
}

StatusOr<Control> make_save(const KernelSetup& setup, BlockRunner& runner, bool to_memory,
                            ArgIndex memory) {
  FileName file;
  if (!to_memory) {
    MILLRACE_ASSIGN_OR_RETURN(file, allowed_file(setup, runner));
  }
  if (to_memory && !memory)
    return setup.error("attribute 'save_to_memory' is true, but output 'Y' has no var");
  const auto inputs = arguments(setup.op(), setup.op().inputs(), "X", /*outputs=*/false, setup);
  const bool half = setup.attr<bool>("save_as_fp16");
  const io::SaveOptions options{setup.attr<bool>("overwrite") ? Replace::kYes : Replace::kNo};
  return Control([=](ControlContext& ctx) {
    return write_values(ctx, inputs, half, file, options,
                        to_memory ? &ctx.args.out_value(memory) : nullptr);
  });
}

StatusOr<Control> save(const KernelSetup& setup, BlockRunner& runner) {
  if (setup.output("kLookupTablePath")) {
    return Status(StatusCode::kUnimplemented,
                  "output 'kLookupTablePath' is set by a checkpoint request to a server");
  }
  return make_save(setup, runner, /*to_memory=*/false, {});
}

StatusOr<Control> save_combine(const KernelSetup& setup, BlockRunner& runner) {
  return make_save(setup, runner, setup.attr<bool>("save_to_memory"), setup.output("Y"));
}

// What the program declares about a var that a file must match; dims only if the file has the whole
// var.
io::ParamSpec spec_of(const Op& op, const Argument& output, bool half) {
  io::ParamSpec spec;
  spec.name = output.name;
  const Var* const var = op.block().find_var_recursive(output.name);
  if (var == nullptr || !var->spec().has_tensor()) return spec;
  spec.kind = var->kind();
  if (!half) spec.dtype = var->dtype();
  spec.dims = Dims(var->dims().begin(), var->dims().end());
  if (spec.dims->empty()) spec.dims.reset();  // start-up programs leave them out
  return spec;
}

bool fits(const std::vector<int64_t>& shape, const Dims& declared) {
  return std::equal(shape.begin(), shape.end(), declared.begin(), declared.end(),
                    [](int64_t found, int64_t wanted) { return wanted < 0 || found == wanted; });
}

// The only var of output slot Out.
StatusOr<Argument> only_output(const KernelSetup& setup) {
  std::vector<Argument> outputs =
      arguments(setup.op(), setup.op().outputs(), "Out", /*outputs=*/true, setup);
  if (outputs.size() != 1) return setup.error("output 'Out' must have one var");
  return std::move(outputs.front());
}

StatusOr<Control> load(const KernelSetup& setup, BlockRunner& runner) {
  MILLRACE_ASSIGN_OR_RETURN(const FileName file, allowed_file(setup, runner));
  MILLRACE_ASSIGN_OR_RETURN(const Argument output, only_output(setup));
  io::LoadOptions options;
  options.as_float16 = setup.attr<bool>("load_as_fp16");
  io::ParamSpec spec = spec_of(setup.op(), output, options.as_float16);
  const auto seek = setup.attr<int64_t>("seek");
  const auto shape = setup.attr<std::vector<int64_t>>("shape");
  if (seek >= 0) {
    if (spec.dims && !fits(shape, *spec.dims)) {
      return setup.error("attribute 'shape' is [{}], but '{}' is declared as [{}]",
                         fmt::join(shape, ", "), spec.name, fmt::join(*spec.dims, ", "));
    }
    spec.dims.reset();  // those of the whole tensor are not known here
  }
  return Control([=, out = output.arg](ControlContext& ctx) -> Status {
    const StatusOr<io::ByteSource> source = open_files(file);
    if (!source.ok()) return in_note(source.status());
    StatusOr<Value> value = seek < 0 ? io::load_param(*source, spec, options)
                                     : io::load_param_slice(*source, spec, seek, shape, options);
    if (!value.ok()) return in_note(std::move(value).status());
    ctx.args.out_value(out) = *std::move(value);
    return Ok();
  });
}

StatusOr<Control> load_combine(const KernelSetup& setup, BlockRunner& runner) {
  const bool from_memory = setup.attr<bool>("model_from_memory");
  FileName file;
  if (!from_memory) {
    MILLRACE_ASSIGN_OR_RETURN(file, allowed_file(setup, runner));
  }
  io::LoadOptions options;
  options.as_float16 = setup.attr<bool>("load_as_fp16");
  const std::vector<Argument> outputs =
      arguments(setup.op(), setup.op().outputs(), "Out", /*outputs=*/true, setup);
  std::vector<io::ParamSpec> specs;
  for (const Argument& output : outputs)
    specs.push_back(spec_of(setup.op(), output, options.as_float16));
  const std::string bytes = from_memory ? setup.attr<std::string>("file_path") : "";
  return Control([=](ControlContext& ctx) -> Status {
    std::optional<io::ByteSource> source;
    if (from_memory) {
      source.emplace(io::ByteSource::of_memory(bytes, "the attribute 'file_path'"));
    } else {
      StatusOr<io::ByteSource> opened = open_files(file);
      if (!opened.ok()) return in_note(std::move(opened).status());
      source.emplace(*std::move(opened));
    }
    StatusOr<io::ParamValues> values = io::load_combined(*source, specs, options);
    if (!values.ok()) return in_note(std::move(values).status());
    for (const Argument& output : outputs)
      ctx.args.out_value(output.arg) = std::move((*values)[output.name]);
    return Ok();
  });
}

// The rows of a table that a server holds: every node_num-th one from node_index on.
Status pick_rows(const Tensor& table, int64_t first, int64_t step, Tensor& out) {
  Dims dims(table.dims().begin(), table.dims().end());
  dims[0] = first >= dims[0] ? 0 : (dims[0] - first + step - 1) / step;
  MILLRACE_RETURN_IF_ERROR(out.resize(table.dtype(), dims));
  const int64_t bytes = table.dim(0) == 0 ? 0 : table.bytes() / table.dim(0);
  for (int64_t r = 0; bytes > 0 && r < dims[0]; ++r) {
    std::memcpy(out.raw() + r * bytes, table.raw() + (first + r * step) * bytes,
                static_cast<size_t>(bytes));
  }
  return Ok();
}

StatusOr<Control> sparse_tensor_load(const KernelSetup& setup, BlockRunner& runner) {
  MILLRACE_ASSIGN_OR_RETURN(const FileName file, allowed_file(setup, runner));
  MILLRACE_ASSIGN_OR_RETURN(const Argument output, only_output(setup));
  const auto index = setup.attr<int64_t>("node_index");
  const auto nodes = setup.attr<int64_t>("node_num");
  if (index >= nodes) {
    return setup.error("attribute 'node_index' is {}, expected less than 'node_num' {}", index,
                       nodes);
  }
  const auto shape = setup.attr<std::vector<int64_t>>("shape");
  io::ParamSpec spec = spec_of(setup.op(), output, /*half=*/false);
  spec.kind = VarKind::kLodTensor;
  spec.dims.reset();  // those of the whole table are not known here
  return Control([=, out = output.arg](ControlContext& ctx) -> Status {
    const StatusOr<io::ByteSource> source = open_files(file);
    if (!source.ok()) return in_note(source.status());
    const StatusOr<Value> value = io::load_param(*source, spec, {});
    if (!value.ok()) return in_note(value.status());
    const Tensor& table = *value->get_if<Tensor>();
    if (table.rank() == 0)
      return ctx.args.error("a table must have rows, found {}", describe(table));
    auto& rows = ctx.args.out_value(out).as<Tensor>();
    MILLRACE_RETURN_IF_ERROR(pick_rows(table, index, nodes, rows));
    if (!shape.empty() && rows.dims() != llvm::ArrayRef<int64_t>(shape)) {
      return ctx.args.error("attribute 'shape' is [{}], but the file has {} for this server",
                            fmt::join(shape, ", "), describe(rows));
    }
    return Ok();
  });
}

}  // namespace

void add_files(ControlRegistry& registry) {
  registry.add("save", save);
  registry.add("save_combine", save_combine);
  registry.add("load", load);
  registry.add("load_combine", load_combine);
  registry.add("sparse_tensor_load", sparse_tensor_load);
}

}  // namespace millrace::executor
