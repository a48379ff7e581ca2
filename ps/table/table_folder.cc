#include "ps/table/table_folder.h"

#include <filesystem>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/errors.h"
#include "io/paths.h"
#include "ps/table/routing.h"
#include "ps/table/table_files.h"

namespace millrace::ps {
namespace {

constexpr int64_t kMaxLayoutBytes = 4096;
constexpr const char* kLayout = "layout";

std::string layout_file(const std::string& folder, int table_id) {
  return fmt::format("{}/{:03}/{}", folder, table_id, kLayout);
}

struct Layout {
  TableShare share;
  std::string name;  // of the table; empty: not known
};

std::string layout_text(const TableShare& share, const std::string& name) {
  return fmt::format("servers={} shards={} table={}\n", share.servers, share.shard_num, name);
}

StatusOr<Layout> read_layout(const std::string& folder, int table_id) {
  const std::string path = layout_file(folder, table_id);
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxLayoutBytes));
  const auto [servers, rest] = llvm::StringRef(text).trim().split(' ');
  const auto [shards, name] = rest.split(" table=");
  llvm::StringRef count = servers;
  llvm::StringRef number = shards;
  Layout layout;
  TableShare& share = layout.share;
  if (!count.consume_front("servers=") || count.getAsInteger(10, share.servers) ||
      !number.consume_front("shards=") || number.getAsInteger(10, share.shard_num) ||
      share.servers < 1 || share.shard_num < 1)
    return InvalidData("expected 'servers=N shards=M', found '{}'", text).in_file(path);
  layout.name = name.str();
  return layout;
}

// Jobs number their tables in order, so another job may have another table of that number.
Status check_table_name(const std::string& folder, const int table_id, const std::string& name) {
  MILLRACE_ASSIGN_OR_RETURN(const Layout saved, read_layout(folder, table_id));
  if (saved.name == name || saved.name.empty() || name.empty()) return Ok();
  return InvalidData("table {} is '{}', found the rows of '{}'", table_id, name, saved.name)
      .in_file(layout_file(folder, table_id))
      .with_hint("the folder belongs to a job with other tables");
}

Status check_replace(const std::string& path, Replace replace) {
  if (replace == Replace::kYes || !io::may_exist(path)) return Ok();
  return Status(StatusCode::kUsage, "the file already exists and may not be replaced")
      .in_file(path);
}

// All servers write the same contents; servers in one process or on one disk do so concurrently.
Status write_layout(const std::string& folder, int table_id, const TableShare& share,
                    const std::string& name) {
  const std::string path = layout_file(folder, table_id);
  const std::string own = fmt::format("{}.{}", path, share.server);
  MILLRACE_RETURN_IF_ERROR(write_file_atomically(own, layout_text(share, name), Replace::kYes));
  std::error_code failed;
  std::filesystem::rename(own, path, failed);
  if (!failed) return Ok();
  return IoError("cannot rename '{}': {}", own, failed.message()).in_file(path);
}

}  // namespace

Status save_table(SparseTable& table, const std::string& folder, const TableShare& share, int mode,
                  Replace replace) {
  const int id = table.options().table_id;
  const std::string path = table_file(folder, id, share.server);
  MILLRACE_RETURN_IF_ERROR(check_replace(path, replace));
  MILLRACE_RETURN_IF_ERROR(save_rows(table, path, mode).status());
  return write_layout(folder, id, share, table.options().name);
}

Status save_table(DenseTable& table, const std::string& folder, const TableShare& share,
                  Replace replace) {
  const int id = table.options().table_id;
  const std::string path = table_file(folder, id, share.server);
  MILLRACE_RETURN_IF_ERROR(check_replace(path, replace));
  MILLRACE_RETURN_IF_ERROR(save_dense(table, path));
  return write_layout(folder, id, {share.server, share.servers, 1}, table.options().name);
}

bool has_tables(const std::string& folder) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (std::filesystem::exists(entry.path() / kLayout, ignored)) return true;
  }
  return false;
}

StatusOr<std::vector<std::string>> table_parts(const std::string& folder, int table_id,
                                               const TableShare& share) {
  MILLRACE_ASSIGN_OR_RETURN(const Layout layout, read_layout(folder, table_id));
  const TableShare& saved = layout.share;
  if (saved.servers == share.servers && saved.shard_num == share.shard_num)
    return std::vector<std::string>{table_file(folder, table_id, share.server)};
  std::vector<std::string> all;
  for (int64_t server = 0; server < saved.servers; ++server)
    all.push_back(table_file(folder, table_id, server));
  return all;
}

Status load_table(SparseTable& table, const std::string& folder, const TableShare& share) {
  const int id = table.options().table_id;
  MILLRACE_RETURN_IF_ERROR(check_table_name(folder, id, table.options().name));
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<std::string> parts, table_parts(folder, id, share));
  MILLRACE_ASSIGN_OR_RETURN(const SparseRouting routing,
                            SparseRouting::create(share.shard_num, share.servers));
  const auto owns = [&](uint64_t key) {
    return routing.server_of(static_cast<int64_t>(key)) == share.server;
  };
  MILLRACE_RETURN_IF_ERROR(table.clear());
  for (const std::string& path : parts) {
    Status status = load_rows(table, path, owns).status();
    if (status.ok()) continue;
    MILLRACE_RETURN_IF_ERROR(table.clear());
    return status;
  }
  return Ok();
}

Status load_table(DenseTable& table, const std::string& folder, const TableShare& share) {
  const int id = table.options().table_id;
  MILLRACE_RETURN_IF_ERROR(check_table_name(folder, id, table.options().name));
  MILLRACE_ASSIGN_OR_RETURN(const Layout saved, read_layout(folder, id));
  // the number of shards does not matter for dense tables; their layout says 1
  const TableShare own{share.server, share.servers, 1};
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<std::string> parts, table_parts(folder, id, own));
  if (saved.share.servers == own.servers) return load_dense(table, parts.front());
  return load_dense_parts(table, parts, own.server, own.servers);
}

}  // namespace millrace::ps
