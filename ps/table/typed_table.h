#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "ps/table/sparse_table.h"
#include "ps/table/table_client.h"

namespace millrace::ps {

/// A sparse table that replaces an embedding of a program: what servers need to create it and
/// trainers need to use it. tables.json has a list of them.
struct TypedTable {
  std::string param;           ///< the embedding's name in the program
  int64_t height = 0;          ///< rows that the program declares; larger keys are allowed
  int64_t shard_num = 1000;    ///< determines the server of a key (ps/table/routing.h)
  int64_t shrink_every = 0;    ///< steps per day; at the end of a day statistics decay; 0: never
  SparseTableOptions options;  ///< id, accessor, rules, entry policy, ...
  std::vector<std::string> endpoints;  ///< servers in their order
};

/// The layout for clients. Errors: those of Accessor::create().
StatusOr<SparseLayout> layout_of(const TypedTable& table);

/// Sets the gradient inputs of push ops in a program read from a file: files name the gradients
/// only in the slot Outputs.
void name_pushed_gradients(Program& program);

/// Name of a tensor of a table's state in snapshots.
std::string table_item(int table_id, const std::string& part);

/// Names of the two items in which a synchronous trainer sends the gradients of a step: the
/// distinct keys, and a row for each key: a push value, followed by the key's accesses in the step.
std::string table_keys_item(int table_id);
std::string table_rows_item(int table_id);
/// Names of what a trainer sends for other tables in a step: the gradients of all elements of a
/// dense table on a server, and the learning rate of the step.
std::string table_grads_item(int table_id);
std::string table_rate_item(int table_id);

}  // namespace millrace::ps
