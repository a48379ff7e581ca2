#include "framework/views/summary.h"

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>

#include "framework/base/text.h"

namespace millrace {
namespace {

uint64_t saturating_add(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

}  // namespace

bool is_stored(const Var& var) {
  return var.persistable() && var.spec().has_tensor() && var.kind() != VarKind::kFeedMinibatch &&
         var.kind() != VarKind::kFetchList && var.kind() != VarKind::kReader &&
         var.kind() != VarKind::kRaw;
}

std::string version_text(int64_t version) {
  if (version == 0) return "0 (development build)";
  return fmt::format("{}.{}.{}", version / 1000000, version / 1000 % 1000, version % 1000);
}

std::string bytes_text(uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

ProgramSummary summarize(const Program& program) {
  ProgramSummary out;
  std::map<llvm::StringRef, size_t> types;
  for (const Block& block : program.blocks()) {
    ++out.blocks;
    out.ops += block.op_count();
    out.vars += block.var_count();
    for (const Op& op : block.ops()) ++types[op.type()];
    for (const Var& var : block.vars()) {
      if (!is_stored(var)) continue;
      ++out.parameters;
      if (llvm::any_of(var.dims(), [](int64_t dim) { return dim < 0; })) continue;
      // More than 2^63 elements: the sums below saturate.
      const std::optional<int64_t> counted = element_count(var.dims());
      const uint64_t elements = counted ? static_cast<uint64_t>(*counted) : UINT64_MAX;
      uint64_t bytes = 0;
      const auto size = static_cast<uint64_t>(dtype_size(var.dtype()));
      if (__builtin_mul_overflow(elements, size, &bytes)) bytes = UINT64_MAX;
      out.parameter_elements = saturating_add(out.parameter_elements, elements);
      out.parameter_bytes = saturating_add(out.parameter_bytes, bytes);
    }
  }
  if (program.version()) out.version = version_text(*program.version());
  for (const auto& [type, count] : types) out.op_types.emplace_back(type.str(), count);
  std::stable_sort(out.op_types.begin(), out.op_types.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return out;
}

std::string summary_text(const Program& program, const std::string& file) {
  const ProgramSummary sizes = summarize(program);
  std::string out = fmt::format(
      "{}\n  version     {}\n  blocks      {}\n  ops         {}\n  vars        {}\n"
      "  parameters  {} ({} elements, {})\n",
      printable(file), sizes.version.empty() ? "not stated" : sizes.version, sizes.blocks,
      sizes.ops, sizes.vars, sizes.parameters, sizes.parameter_elements,
      bytes_text(sizes.parameter_bytes));
  for (const auto& [type, count] : sizes.op_types)
    out += fmt::format("{:>8}  {}\n", count, printable(type));
  return out;
}

}  // namespace millrace
