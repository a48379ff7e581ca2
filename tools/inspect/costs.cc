#include "tools/inspect/costs.h"

#include <fmt/format.h>

#include "framework/base/json_writer.h"
#include "framework/base/text.h"
#include "ops/cost.h"
#include "transpiler/distribute/units.h"

namespace millrace::tools {
namespace {

namespace tp = millrace::transpiler;

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

std::string names_text(const llvm::SmallVector<llvm::StringRef, 8>& names) {
  std::string out;
  for (const llvm::StringRef name : names) out += (out.empty() ? "" : " ") + name.str();
  return out;
}

std::string dims_of(const Op& op) {
  std::string out;
  for (const llvm::StringRef name : op.output_names()) {
    const Var* const var = op.block().find_var_recursive(name);
    std::string dims;
    if (var != nullptr && var->spec().has_tensor()) {
      for (const int64_t dim : var->dims()) dims += (dims.empty() ? "" : "x") + std::to_string(dim);
    }
    out += (out.empty() ? "" : " ") + (dims.empty() ? std::string("?") : dims);
  }
  return out;
}

}  // namespace

std::string costs_text(const jobs::ProgramCosts& costs, bool flops, bool memory, int64_t unknown) {
  std::string out = fmt::format(
      "one run; unknown dims count as {}, bodies of loops and branches count once\n", unknown);
  if (flops) {
    out += fmt::format("\n{:>6}  {:>12}  {:>5}  {:>11}  {}\n", "ops", "work", "share", "written",
                       "type");
    for (const jobs::TypeCost& type : costs.types) {
      out += fmt::format("{:>6}  {:>12}  {:>4.1f}%  {:>11}  {}\n", type.count,
                         tp::flops_text(type.flops),
                         costs.flops > 0 ? 100 * type.flops / costs.flops : 0.0,
                         tp::bytes_text(type.bytes_out), printable(type.type));
    }
    out += fmt::format("{:>6}  {:>12}\n", "", tp::flops_text(costs.flops));
  }
  if (memory) {
    out += fmt::format("\nstored       {:>11}\ntemporaries  {:>11}, without sharing of memory\n",
                       tp::bytes_text(costs.stored_bytes), tp::bytes_text(costs.temporary_bytes));
    out += fmt::format("at once      {:>11}, at op {} of block 0\n",
                       tp::bytes_text(costs.peak_bytes), costs.peak_op);
    for (const auto& [name, bytes] : costs.largest)
      out += fmt::format("  {:>11}  {}\n", tp::bytes_text(bytes), printable(name));
  }
  return out;
}

std::string costs_json(const jobs::ProgramCosts& costs, const std::string& file, int64_t unknown) {
  JsonWriter out;
  out.begin_object();
  out.key("schema").begin_object().member("name", "millrace.costs").member("version", 1);
  out.end_object().member("file", file).member("unknown_dims", unknown);
  out.member("flops", costs.flops).member("stored_bytes", costs.stored_bytes);
  out.member("temporary_bytes", costs.temporary_bytes).member("peak_bytes", costs.peak_bytes);
  out.member("peak_op", costs.peak_op).key("largest").begin_array();
  for (const auto& [name, bytes] : costs.largest) {
    out.begin_object().member("var", name).member("bytes", bytes).end_object();
  }
  out.end_array().key("types").begin_array();
  for (const jobs::TypeCost& type : costs.types) {
    out.begin_object().member("type", type.type).member("ops", type.count);
    out.member("flops", type.flops).member("bytes_written", type.bytes_out).end_object();
  }
  return out.end_array().end_object().take();
}

std::string ops_csv(const Program& program, const ops::OpRegistry& registry) {
  std::string out = "block,op,type,inputs,outputs,dims,flops,bytes_written\n";
  for (const Block& block : program.blocks()) {
    int64_t index = 0;
    for (const Op& op : block.ops()) {
      out += fmt::format("{},{},{},{},{},{},{:.0f},{:.0f}\n", block.index(), index++,
                         csv_field(op.type().str()), csv_field(names_text(op.input_names())),
                         csv_field(names_text(op.output_names())), csv_field(dims_of(op)),
                         ops::estimate_flops(registry, op), jobs::output_bytes(op));
    }
  }
  return out;
}

}  // namespace millrace::tools
