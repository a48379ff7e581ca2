#pragma once

#include <cstdint>
#include <string>

#include "framework/base/status.h"
#include "framework/program.h"

namespace millrace::transpiler {

/// How a typed table replaces an embedding.
struct TypedTableUse {
  std::string param;     ///< the embedding's parameter
  int32_t table_id = 0;  ///< number of the table, written into the ops that use it
  /// Vars that hold how often each instance was shown and clicked. Empty: each was shown once and
  /// not clicked.
  std::string show_var;
  std::string click_var;
  bool use_cvm = false;  ///< gradients begin with show and click
};

/// The program's settings of the embedding; defaults of the table unless the job sets something
/// else.
struct TypedTableFacts {
  int64_t height = 0;  ///< rows that the program declares
  int64_t width = 0;   ///< elements of a row
  int64_t padding = -1;
  std::string optimizer;  ///< type of the op that updated it: "sgd", "adam", ...
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  std::string initializer;  ///< "uniform_random&seed&min&max", ...; empty: another op made it
};

/// Moves an embedding of a training program to a typed table: its lookups become one
/// distributed_lookup_table, its gradients go to one distributed_push_sparse, and its update ops
/// are removed. The initializer stays, so that the transpiler can replace it by fake_init.
///
/// \param startup  the startup program, which has the initializer of rows and the learning rate
/// Errors: kInvalidArgument for a parameter that no op looks up or updates; kUnimplemented if an op
/// between the lookups and the update needs the gradient (clipping), if the learning rate is
/// computed, or if other ops read the table.
/// Source: spec/fleet.md section 7.
StatusOr<TypedTableFacts> use_typed_table(Program& main, Program& startup,
                                          const TypedTableUse& use);

}  // namespace millrace::transpiler
