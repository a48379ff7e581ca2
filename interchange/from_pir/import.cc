#include "interchange/from_pir/import.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>

#include "framework/base/errors.h"
#include "interchange/from_pir/op_context.h"
#include "interchange/pir/rows.h"

namespace millrace::interchange {
namespace pir {
namespace {

const ImportConverters& functions() {
  static const ImportConverters& table = *[] {
    auto* const made = new ImportConverters;
    add_arithmetic_imports(*made);
    add_constant_imports(*made);
    add_recurrent_imports(*made);
    add_shape_imports(*made);
    return made;
  }();
  return table;
}

// Converts one program.
class Import {
 public:
  Import(const SourceProgram& source, const PirImportOptions& options,
         const ops::OpRegistry& registry)
      : source_(source), options_(options), program_(Program::create()) {
    state_ = {.program = program_.get(), .registry = &registry};
  }

  StatusOr<ImportedModel> run(io::ParamValues params) {
    MILLRACE_RETURN_IF_ERROR(add_params(std::move(params)));
    declare_holder(block(), "feed");
    declare_holder(block(), "fetch");
    MILLRACE_RETURN_IF_ERROR(reserve_names());
    for (size_t i = 0; i < source_.ops.size(); ++i)
      MILLRACE_RETURN_IF_ERROR(convert(source_.ops[i], i));
    for (const auto& [name, dims] : options_.input_dims)
      if (!inputs_.contains(name))
        return InvalidArgument("dims of '{}', which is no input of the program", name);
    MILLRACE_RETURN_IF_ERROR(add_outputs());
    return finish_import(*state_.registry, std::move(program_), std::move(state_.params));
  }

 private:
  [[nodiscard]] Block& block() const { return program_->root(); }

  Status reserve(const std::string& name) {
    if (is_reserved_name(name)) return Unimplemented("import of PIR: a var named '{}'", name);
    if (state_.names.insert(name).second) return Ok();
    return InvalidProgram("two inputs, outputs or parameters have the name '{}'", name);
  }

  Status add_params(io::ParamValues params) {
    for (const SourceParam& param : source_.params) {
      MILLRACE_RETURN_IF_ERROR(reserve(param.name));
      if (!param.is_stored) continue;  // without a value: refused where an op reads it
      const auto value = params.find(param.name);
      const Tensor* const tensor = value == params.end() ? nullptr : value->second.get_if<Tensor>();
      if (tensor == nullptr || !tensor->initialized())
        return NotFound("the parameter '{}' has no value, or it is no dense tensor", param.name);
      VarSpec spec = VarSpec::tensor(tensor->dtype(), tensor->dims());
      spec.persistable = true;
      block().declare(param.name, std::move(spec));
      state_.values[param.id] = param.name;
    }
    state_.params = std::move(params);
    return Ok();
  }

  // Vars that converters make must not take the name of an input or output.
  Status reserve_names() {
    for (const SourceOp& op : source_.ops) {
      if (op.name != "1.data" && op.name != "1.fetch") continue;
      const auto name = op.attrs.find("name");
      const auto* const text =
          name == op.attrs.end() ? nullptr : std::get_if<std::string>(&name->second);
      if (text == nullptr) return InvalidProgram("an input or output has no name");
      const bool is_copy = op.name == "1.fetch" && state_.names.contains(*text);
      if (!is_copy) MILLRACE_RETURN_IF_ERROR(reserve(*text));
    }
    return Ok();
  }

  // Rows of the export also exist for ops that only jobs with custom ops have.
  [[nodiscard]] const Row* known_row(const SourceOp& op) const {
    const Row* const row = op.name.starts_with("1.") ? row_of(op) : nullptr;
    return row != nullptr && state_.registry->find(row->type) != nullptr ? row : nullptr;
  }

  Status convert(const SourceOp& op, size_t index) {
    ImportContext context(op, index, state_);
    if (op.has_regions) return context.refuse("blocks of branches and loops");
    if (op.name == "1.data")
      add_input(context);
    else if (op.name == "1.fetch")
      note_output(context);
    else
      MILLRACE_RETURN_IF_ERROR(convert_op(context));
    return context.finish();
  }

  Status convert_op(ImportContext& context) const {
    const SourceOp& op = context.source();
    std::string name =
        op.name.starts_with("0.") ? "builtin." + op.name.substr(2) : op.name.substr(2);
    const auto function = functions().find(name);
    if (function != functions().end()) {
      if (op.results.empty()) return context.refuse("an op without results");
      return function->second(context);
    }
    const Row* const row = known_row(op);
    if (row == nullptr) return context.refuse("the op has no counterpart");
    return convert_back_by_row(context, *row);
  }

  void add_input(ImportContext& c) {
    c.ignore({"place"});
    const auto name = c.attr<std::string>("name");
    const auto stated = c.attr<std::vector<int64_t>>("shape");
    const auto dtype = static_cast<DType>(c.dtype_attr("dtype"));
    if (c.source().results.size() != 1 || c.source().results[0].types.size() != 1)
      return c.fail(c.refuse("an input that is no tensor"));
    Dims dims(stated.begin(), stated.end());
    if (const auto given = options_.input_dims.find(name); given != options_.input_dims.end()) {
      if (given->second.size() != dims.size())
        return c.fail(InvalidArgument("dims of the input '{}': expected {} of them, found {}", name,
                                      dims.size(), given->second.size()));
      dims = given->second;
    }
    VarSpec spec = VarSpec::tensor(dtype, dims);
    spec.need_check_feed = true;
    block().declare(name, std::move(spec));
    append_link(block(), "feed", "feed", name, static_cast<int32_t>(inputs_.size()));
    inputs_.insert(name);
    c.set(0, name);
  }

  void note_output(ImportContext& c) {
    outputs_.push_back({c.attr<std::string>("name"), c.attr<int64_t>("col"), c.in(0)});
  }

  Status add_outputs() {
    if (outputs_.empty()) return InvalidProgram("the program has no outputs: it has no op fetch");
    llvm::sort(outputs_, [](const Output& a, const Output& b) { return a.column < b.column; });
    int32_t column = 0;
    for (const Output& output : outputs_) {
      if (output.column != column)
        return InvalidProgram("the outputs have the columns {} and more, but none has {}",
                              output.column, column);
      MILLRACE_RETURN_IF_ERROR(name_output(block(), output.name, output.var, "PIR"));
      append_link(block(), "fetch", output.name, "fetch", column++);
    }
    return Ok();
  }

  struct Output {
    std::string name;
    int64_t column = 0;
    std::string var;
  };

  const SourceProgram& source_;
  const PirImportOptions& options_;
  std::unique_ptr<Program> program_;
  ImportState state_;
  std::set<std::string> inputs_;
  std::vector<Output> outputs_;
};

}  // namespace
}  // namespace pir

PirSource::PirSource(std::unique_ptr<pir::SourceProgram> program) : program_(std::move(program)) {}
PirSource::PirSource(PirSource&& other) noexcept = default;
PirSource& PirSource::operator=(PirSource&& other) noexcept = default;
PirSource::~PirSource() = default;

StatusOr<PirSource> PirSource::read(std::string_view bytes) {
  MILLRACE_ASSIGN_OR_RETURN(pir::SourceProgram program, pir::read_source(bytes));
  return PirSource(std::make_unique<pir::SourceProgram>(std::move(program)));
}

std::vector<io::ParamSpec> PirSource::parameters() const {
  std::vector<io::ParamSpec> specs;
  for (const pir::SourceParam& param : program_->params)
    if (param.is_stored)
      specs.push_back({.name = param.name, .dtype = param.type.dtype, .dims = param.type.dims});
  llvm::sort(specs, [](const auto& a, const auto& b) { return a.name < b.name; });
  return specs;
}

StatusOr<ImportedModel> import_pir(const PirSource& source, io::ParamValues params,
                                   const PirImportOptions& options) {
  const std::unique_ptr<ops::OpRegistry> registry = ops::standard_registry();
  return pir::Import(source.program(), options, *registry).run(std::move(params));
}

std::vector<std::string> imported_pir_ops() {
  const std::unique_ptr<ops::OpRegistry> registry = ops::standard_registry();
  std::set<std::string> names = {"data", "fetch"};
  for (const auto& [name, function] : pir::functions())
    names.insert(llvm::StringRef(name).starts_with("builtin.") ? name.substr(8) : name);
  for (const std::string& name : pir::names_of_rows(*registry)) names.insert(name);
  return {names.begin(), names.end()};
}

}  // namespace millrace::interchange
