#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "ps/table/sparse_table.h"
#include "ps/table/table_client.h"

namespace millrace::ps {

/// A sparse table that the embedding of a program has become: what servers need to make it, and
/// trainers to use it. Jobs keep a list of them in tables.json.
struct TypedTable {
  std::string param;           ///< the embedding's name in the program
  int64_t height = 0;          ///< rows that the program declares; keys beyond it are allowed
  int64_t shard_num = 1000;    ///< decides which server has a key (ps/table/routing.h)
  int64_t shrink_every = 0;    ///< steps that make a day, at whose end rows fade; 0: never
  SparseTableOptions options;  ///< id, accessor, rules, entry policy, ...
  std::vector<std::string> endpoints;  ///< servers in their order
};

/// What a client knows of it. Errors: those of Accessor::create().
StatusOr<SparseLayout> layout_of(const TypedTable& table);

/// Lets pushes of a program that was read from a file name the gradients as what they read: files
/// have them in the slot Outputs.
void name_pushed_gradients(Program& program);

/// Name in snapshots of a part of a table's state.
std::string table_item(int table_id, const std::string& part);

/// Names of the two items by which a synchronous trainer sends the gradients of a step: the keys,
/// each once, and a row for each: a push value, then the key's accesses in the step.
std::string table_keys_item(int table_id);
std::string table_rows_item(int table_id);

}  // namespace millrace::ps
