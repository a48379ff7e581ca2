#include "jobs/ps/fill_tables.h"

#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "io/params.h"
#include "io/params_manifest.h"
#include "ps/table/routing.h"

namespace millrace::jobs {
namespace {

Status fill_table(const Value& value, const ps::TypedTable& typed, size_t server,
                  ps::TableHandler& handler) {
  MILLRACE_ASSIGN_OR_RETURN(const ps::SparseLayout layout, ps::layout_of(typed));
  const auto* const rows = value.get_if<Tensor>();
  if (rows == nullptr || rows->dtype() != DType::kFloat32 || rows->rank() != 2 ||
      (typed.height > 0 && rows->dim(0) != typed.height) || rows->dim(1) != layout.pull_width)
    return InvalidData("'{}' must be f32({}, {}), found {}", typed.param, typed.height,
                       layout.pull_width, describe(value));
  MILLRACE_ASSIGN_OR_RETURN(
      const ps::SparseRouting routing,
      ps::SparseRouting::create(typed.shard_num, static_cast<int64_t>(typed.endpoints.size())));
  std::vector<int64_t> keys;
  std::vector<float> values;
  for (int64_t row = 0; row < rows->dim(0); ++row) {
    if (routing.server_of(row) != static_cast<int64_t>(server)) continue;
    keys.push_back(row);
    const float* const from = rows->data<float>() + row * layout.pull_width;
    values.insert(values.end(), from, from + layout.pull_width);
  }
  return handler.sparse().at(layout.table_id)->set(keys, values.data());
}

}  // namespace

Status fill_tables(const executor::NamedValues& whole, llvm::ArrayRef<ps::TypedTable> tables,
                   size_t server, ps::TableHandler& handler, const LogSink& log) {
  for (const ps::TypedTable& typed : tables) {
    const auto found = whole.find(typed.param);
    if (found == whole.end()) {
      log(LogLevel::kWarning,
          fmt::format("the parameters lack the embedding '{}', whose rows begin with new values",
                      typed.param));
      continue;
    }
    MILLRACE_RETURN_IF_ERROR(fill_table(found->second, typed, server, handler));
  }
  return Ok();
}

Status fill_tables_from_folder(const std::string& folder, llvm::ArrayRef<ps::TypedTable> tables,
                               bool all, size_t server, ps::TableHandler& handler,
                               const LogSink& log) {
  std::vector<io::ParamSpec> specs;
  for (const ps::TypedTable& typed : tables) {
    std::error_code ignored;
    if (all || std::filesystem::exists(std::filesystem::path(folder) / typed.param, ignored))
      specs.push_back({typed.param, VarKind::kLodTensor, DType::kFloat32, std::nullopt});
  }
  executor::NamedValues whole;
  if (!specs.empty()) {
    MILLRACE_RETURN_IF_ERROR(io::check_folder(folder, io::names_of(specs), io::CheckFiles::kBytes));
    MILLRACE_ASSIGN_OR_RETURN(whole, io::load_separate(folder, specs));
  }
  return fill_tables(whole, tables, server, handler, log).in_file(folder);
}

}  // namespace millrace::jobs
