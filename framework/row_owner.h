#pragma once

#include <cstdint>

/// Which server holds a row of a distributed table: rows are distributed by their id modulo the
/// number of servers. All numbers are counts or indices of rows and servers. Thread-safety: pure.
namespace millrace {

/// The server of a row. \param row  at least 0  \param servers  at least 1
inline int64_t server_of_row(int64_t row, int64_t servers) {
  return row % servers;
}

/// Number of rows of a table of `height` rows that a server holds.
inline int64_t rows_of_server(int64_t height, int64_t server, int64_t servers) {
  return height > server ? (height - server - 1) / servers + 1 : 0;
}

}  // namespace millrace
