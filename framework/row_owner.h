#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

/// Which server holds a row of a distributed table: rows are distributed by their id modulo the
/// number of servers, and a server holds its rows in ascending order. All numbers are counts or
/// indices of rows and servers; there is at least one server. Thread-safety: pure.
namespace millrace {

/// The server of a row. A negative row number counts as the unsigned number of the same bits, as
/// keys of tables do.
inline int64_t server_of_row(int64_t row, int64_t servers) {
  return static_cast<int64_t>(static_cast<uint64_t>(row) % static_cast<uint64_t>(servers));
}

/// Position of a row among those of its server. \param row  at least 0
inline int64_t position_on_server(int64_t row, int64_t servers) {
  return row / servers;
}

/// The row at a position on a server.
inline int64_t row_on_server(int64_t position, int64_t server, int64_t servers) {
  return server + position * servers;
}

/// Number of rows of a table of `height` rows that a server holds. The first server holds most.
inline int64_t rows_of_server(int64_t height, int64_t server, int64_t servers) {
  return height > server ? (height - server - 1) / servers + 1 : 0;
}

/// The first `count` rows of a server, ascending.
inline std::vector<int64_t> first_rows_of_server(int64_t count, int64_t server, int64_t servers) {
  std::vector<int64_t> rows(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    rows[static_cast<size_t>(i)] = row_on_server(i, server, servers);
  return rows;
}

}  // namespace millrace
