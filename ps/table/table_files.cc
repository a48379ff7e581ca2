#include "ps/table/table_files.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "io/multi_slot/line_stream.h"
#include "ps/table/routing.h"
#include "ps/table/table_bytes.h"

namespace millrace::ps {
namespace {

constexpr std::string_view kRowsMark = "millrace rows 1\n";
constexpr std::string_view kDenseMark = "millrace dense 1\n";
/// Files of tables that ops of a program update also have the names of their states: rows of two
/// ops may have the same length.
constexpr std::string_view kNamedRowsMark = "millrace rows 2\n";
constexpr std::string_view kNamedDenseMark = "millrace dense 2\n";
constexpr uint32_t kMaxNameBytes = 4096;
/// Marks the end of the rows of a file; no row has this length.
constexpr uint32_t kEnd = UINT32_MAX;
constexpr int64_t kMaxTextBytes = int64_t{4} << 30U;

using TextColumns = std::vector<std::vector<float>>;

// The content of a file, decompressed.
StatusOr<std::string> read_text(const std::string& path) {
  MILLRACE_ASSIGN_OR_RETURN(const auto bytes, io::open_input_bytes(path));
  constexpr size_t kStep = size_t{1} << 20U;
  std::string text;
  for (;;) {
    const size_t size = text.size();
    if (size > static_cast<size_t>(kMaxTextBytes))
      return InvalidData("expected a text of at most {} bytes", kMaxTextBytes).in_file(path);
    text.resize(size + kStep);
    MILLRACE_ASSIGN_OR_RETURN(const size_t count, bytes->read(text.data() + size, kStep));
    text.resize(size + count);
    if (count == 0) return text;
  }
}

Status write_name(TableWriter& file, std::string_view name) {
  MILLRACE_RETURN_IF_ERROR(file.write_value(static_cast<uint32_t>(name.size())));
  return file.write(name.data(), name.size());
}

Status check_name(TableReader& file, std::string_view expected, const std::string& path) {
  uint32_t size = 0;
  MILLRACE_RETURN_IF_ERROR(file.read_value(size));
  std::string name(std::min(size, kMaxNameBytes), '\0');
  MILLRACE_RETURN_IF_ERROR(file.read(name.data(), name.size()));
  if (size <= kMaxNameBytes && name == expected) return Ok();
  return InvalidData("found the state '{}', expected '{}'", name, expected).in_file(path);
}

std::string_view mark_of(const DenseTable& table) {
  return table.options().updates.empty() ? kDenseMark : kNamedDenseMark;
}

// Reads all columns of a dense table file. \param expected  the columns that the table has
StatusOr<TextColumns> read_columns(const DenseTable& table, const std::string& path,
                                   std::span<const DenseTable::Column> expected) {
  MILLRACE_ASSIGN_OR_RETURN(const auto file, TableReader::open(path, mark_of(table)));
  uint32_t count = 0;
  MILLRACE_RETURN_IF_ERROR(file->read_value(count));
  if (count != expected.size())
    return InvalidData("found {} columns, expected {}", count, expected.size()).in_file(path);
  TextColumns values;
  for (const DenseTable::Column& column : expected) {
    if (!table.options().updates.empty())
      MILLRACE_RETURN_IF_ERROR(check_name(*file, column.name, path));
    uint64_t size = 0;
    MILLRACE_RETURN_IF_ERROR(file->read_value(size));
    if (size > file->left() / sizeof(float))
      return InvalidData("column {} has {} elements, but {} bytes are left", column.name, size,
                         file->left())
          .in_file(path);
    values.emplace_back(size);
    MILLRACE_RETURN_IF_ERROR(file->read(values.back().data(), size * sizeof(float)));
  }
  if (file->left() > 0)
    return InvalidData("found {} extra bytes at its end", file->left()).in_file(path);
  return values;
}

}  // namespace

std::string table_file(const std::string& folder, int table_id, int64_t server) {
  return fmt::format("{}/{:03}/part-{:03}.rows", folder, table_id, server);
}

std::string table_text_file(const std::string& folder, int table_id, int64_t server,
                            int64_t shard) {
  if (shard < 0) return fmt::format("{}/{:03}/part-{:03}", folder, table_id, server);
  return fmt::format("{}/{:03}/part-{:03}-{:05}", folder, table_id, server, shard);
}

StatusOr<int64_t> save_rows(SparseTable& table, const std::string& path, int mode) {
  const Accessor& accessor = table.accessor();
  const std::string states = accessor.op_states();
  MILLRACE_ASSIGN_OR_RETURN(const auto file,
                            TableWriter::create(path, states.empty() ? kRowsMark : kNamedRowsMark));
  if (!states.empty()) MILLRACE_RETURN_IF_ERROR(write_name(*file, states));
  MILLRACE_RETURN_IF_ERROR(file->write_value(static_cast<uint32_t>(accessor.row_floats())));
  int64_t count = 0;
  const Status visited = table.visit([&](uint64_t key, float* row) -> Status {
    const bool saved = accessor.is_saved(row, mode);
    if (saved) {
      const auto used = static_cast<uint32_t>(accessor.used_floats(row));
      MILLRACE_RETURN_IF_ERROR(file->write_value(used));
      MILLRACE_RETURN_IF_ERROR(file->write_value(key));
      MILLRACE_RETURN_IF_ERROR(file->write(row, used * sizeof(float)));
      ++count;
    }
    accessor.after_save(row, mode);
    return Ok();
  });
  MILLRACE_RETURN_IF_ERROR(visited);
  MILLRACE_RETURN_IF_ERROR(file->write_value(kEnd));
  MILLRACE_RETURN_IF_ERROR(file->commit());
  return count;
}

StatusOr<int64_t> load_rows(SparseTable& table, const std::string& path,
                            const std::function<bool(uint64_t)>& owns) {
  const std::string states = table.accessor().op_states();
  MILLRACE_ASSIGN_OR_RETURN(const auto file,
                            TableReader::open(path, states.empty() ? kRowsMark : kNamedRowsMark));
  if (!states.empty()) MILLRACE_RETURN_IF_ERROR(check_name(*file, states, path));
  const auto expected = static_cast<uint32_t>(table.accessor().row_floats());
  uint32_t floats = 0;
  MILLRACE_RETURN_IF_ERROR(file->read_value(floats));
  if (floats != expected)
    return InvalidData("found rows of {} floats, but table {} has rows of {}", floats,
                       table.options().table_id, expected)
        .in_file(path);
  int64_t count = 0;
  std::vector<float> row(expected);
  for (;;) {
    uint32_t used = 0;
    uint64_t key = 0;
    MILLRACE_RETURN_IF_ERROR(file->read_value(used));
    if (used == kEnd) break;
    if (used > expected)
      return InvalidData("row {} has {} floats, expected at most {}", count, used, expected)
          .in_file(path);
    MILLRACE_RETURN_IF_ERROR(file->read_value(key));
    MILLRACE_RETURN_IF_ERROR(file->read(row.data(), used * sizeof(float)));
    if (owns && !owns(key)) continue;
    MILLRACE_RETURN_IF_ERROR(table.restore(key, {row.data(), used}));
    ++count;
  }
  if (file->left() > 0)
    return InvalidData("found {} extra bytes after its rows", file->left()).in_file(path);
  return count;
}

StatusOr<int64_t> save_rows_as_text(SparseTable& table, const std::string& folder, int64_t server,
                                    int64_t shard_num, int64_t shards, int mode) {
  if (shard_num < 1 || shards < 1)
    return InvalidArgument(
        "table {}: found {} shards, {} of them on this server, expected at least 1",
        table.options().table_id, shard_num, shards);
  std::vector<std::string> texts(static_cast<size_t>(shards));
  const Accessor& accessor = table.accessor();
  int64_t count = 0;
  const Status visited = table.visit([&](uint64_t key, float* row) -> Status {
    if (accessor.is_saved(row, mode)) {
      const int64_t shard = server_of_row(static_cast<int64_t>(key), shard_num) % shards;
      std::string& text = texts[static_cast<size_t>(shard)];
      fmt::format_to(std::back_inserter(text), "{}", key);
      const int used = accessor.used_floats(row);
      for (int i = 0; i < used; ++i) fmt::format_to(std::back_inserter(text), " {:.9g}", row[i]);
      text += '\n';
      ++count;
    }
    accessor.after_save(row, mode);
    return Ok();
  });
  MILLRACE_RETURN_IF_ERROR(visited);
  for (int64_t shard = 0; shard < shards; ++shard) {
    const std::string path = table_text_file(folder, table.options().table_id, server, shard);
    MILLRACE_RETURN_IF_ERROR(
        write_file_atomically(path, texts[static_cast<size_t>(shard)], Replace::kYes));
  }
  return count;
}

StatusOr<int64_t> load_rows_from_text(SparseTable& table, const std::string& path,
                                      const std::function<bool(uint64_t)>& owns) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, read_text(path));
  return parse_rows(table, text, path, owns);
}

StatusOr<int64_t> parse_rows(SparseTable& table, std::string_view text, const std::string& name,
                             const std::function<bool(uint64_t)>& owns) {
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto most = static_cast<size_t>(table.accessor().row_floats());
  std::vector<float> row;
  int64_t count = 0;
  for (int64_t line = 1; at < end; ++line) {
    uint64_t key = 0;
    auto [next, error] = std::from_chars(at, end, key);
    row.clear();
    while (error == std::errc() && next < end && *next == ' ' && row.size() <= most) {
      float value = 0;
      const auto parsed = std::from_chars(next + 1, end, value);
      next = parsed.ptr;
      error = parsed.ec;
      row.push_back(value);
    }
    if (error != std::errc() || (next < end && *next != '\n'))
      return InvalidData("line {}: expected a key with at most {} values", line, most)
          .in_file(name);
    at = next + 1;
    if (owns && !owns(key)) continue;
    Status status = table.restore(key, row);
    if (!status.ok()) return InvalidData("line {}: {}", line, status.message()).in_file(name);
    ++count;
  }
  return count;
}

Status save_dense(DenseTable& table, const std::string& path) {
  MILLRACE_ASSIGN_OR_RETURN(const auto file, TableWriter::create(path, mark_of(table)));
  const Status written =
      table.with_columns([&](std::span<const DenseTable::Column> columns) -> Status {
        MILLRACE_RETURN_IF_ERROR(file->write_value(static_cast<uint32_t>(columns.size())));
        for (const DenseTable::Column& column : columns) {
          if (!table.options().updates.empty())
            MILLRACE_RETURN_IF_ERROR(write_name(*file, column.name));
          MILLRACE_RETURN_IF_ERROR(file->write_value(static_cast<uint64_t>(column.values.size())));
          MILLRACE_RETURN_IF_ERROR(
              file->write(column.values.data(), column.values.size() * sizeof(float)));
        }
        return Ok();
      });
  MILLRACE_RETURN_IF_ERROR(written);
  return file->commit();
}

Status load_dense(DenseTable& table, const std::string& path) {
  return table.with_columns([&](std::span<const DenseTable::Column> columns) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const TextColumns values, read_columns(table, path, columns));
    for (size_t i = 0; i < columns.size(); ++i) {
      if (values[i].size() != columns[i].values.size())
        return InvalidData("column {} has {} elements, expected {}", columns[i].name,
                           values[i].size(), columns[i].values.size())
            .in_file(path);
    }
    for (size_t i = 0; i < columns.size(); ++i)
      std::copy(values[i].begin(), values[i].end(), columns[i].values.begin());
    return Ok();
  });
}

Status load_dense_parts(DenseTable& table, const std::vector<std::string>& paths, int64_t server,
                        int64_t servers) {
  return table.with_columns([&](std::span<const DenseTable::Column> columns) -> Status {
    TextColumns whole(columns.size());
    for (const std::string& path : paths) {
      MILLRACE_ASSIGN_OR_RETURN(const TextColumns part, read_columns(table, path, columns));
      for (size_t i = 0; i < columns.size(); ++i) {
        // a server without elements gets no pushes, so its scalars count no steps
        if (columns[i].is_scalar && part.front().empty()) continue;
        if (columns[i].is_scalar && !whole[i].empty()) {
          if (part[i] == whole[i]) continue;
          return InvalidData(
                     "column {} of table {} differs from that of {}, expected equal numbers from "
                     "all servers; the same number of servers can load them",
                     columns[i].name, table.options().table_id, paths.front())
              .in_file(path);
        }
        whole[i].insert(whole[i].end(), part[i].begin(), part[i].end());
      }
    }
    const auto elements = static_cast<int64_t>(whole.front().size());
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<DenseRange> ranges,
                              dense_ranges(elements, servers));
    const DenseRange own = ranges[static_cast<size_t>(server)];
    for (size_t i = 0; i < columns.size(); ++i) {
      const bool is_whole = columns[i].is_scalar
                                ? whole[i].size() == columns[i].values.size()
                                : static_cast<int64_t>(whole[i].size()) == elements &&
                                      own.count == static_cast<int64_t>(columns[i].values.size());
      if (!is_whole)
        return InvalidData(
                   "column {} of table {} has {} elements in {} files, which are not those "
                   "of this job: server {} of {} expects {}",
                   columns[i].name, table.options().table_id, whole[i].size(), paths.size(), server,
                   servers, columns[i].values.size())
            .in_file(paths.front());
    }
    for (size_t i = 0; i < columns.size(); ++i) {
      const auto from = whole[i].begin() + (columns[i].is_scalar ? 0 : own.begin);
      std::copy_n(from, columns[i].values.size(), columns[i].values.begin());
    }
    return Ok();
  });
}

}  // namespace millrace::ps
