#pragma once

#include <cstdint>
#include <string>

#include "framework/base/status.h"
#include "framework/program.h"

namespace millrace::transpiler {

/// How a typed table takes the place of an embedding.
struct TypedTableUse {
  std::string param;     ///< the embedding's parameter
  int32_t table_id = 0;  ///< number of the table, told by the ops that use it
  /// Vars with the number of times that each instance was shown and clicked; empty: each was shown
  /// once and not clicked.
  std::string show_var;
  std::string click_var;
  bool use_cvm = false;  ///< gradients begin with show and click
};

/// What the program said of the embedding; the table's settings where nobody says otherwise.
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

/// Takes an embedding out of a training program: its lookups become one distributed_lookup_table,
/// its gradients go to one distributed_push_sparse, and what updated it is gone. The initialiser
/// stays, for the transpiler to put fake_init in its place.
///
/// \param startup  the startup program, which says how rows begin and what the learning rate is
/// Errors: kInvalidArgument for a parameter that no op looks up or updates; kUnimplemented where
/// something between the lookups and the update needs the gradient (clipping), where the learning
/// rate is computed, or other ops read the table.
/// Source: spec/fleet.md section 7.
StatusOr<TypedTableFacts> use_typed_table(Program& main, Program& startup,
                                          const TypedTableUse& use);

}  // namespace millrace::transpiler
