#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "interchange/pir/json_form.h"

namespace millrace::interchange::pir {

/// A value of the program: the result of an op, a parameter, an argument of a block, or none.
struct Value {
  int64_t id = 0;                      ///< 0: none, for optional operands; below 0: an argument
  std::vector<TensorType> types = {};  ///< one, or those of the tensors of a list
  bool is_list = false;
  bool is_persistable = false;  ///< of a result: it stays in the scope after the run

  /// False for the value that an absent operand has.
  [[nodiscard]] bool exists() const { return id != 0; }
  /// The type of a value that is no list.
  [[nodiscard]] const TensorType& type() const { return types[0]; }
};

/// A value without id, which says the type of a result of an op.
Value result_of(TensorType type);
/// The same for a list of tensors.
Value results_of(std::vector<TensorType> types);

/// Writes the ops of a program in order as JSON. Thread-safety: as a value.
class GraphBuilder {
 public:
  /// Appends a parameter; all of them come before the first op.
  Value parameter(const std::string& name, const TensorType& type);
  /// Appends an op.
  /// \param op       dialect and name: "1.relu"; 0 is the builtin dialect, 1 that of operators, 2
  ///                 that of control flow
  /// \param results  their types: result_of(), results_of()
  /// \param regions  what end_region() returned
  /// \returns the results
  std::vector<Value> add(const std::string& op, const std::vector<Value>& inputs,
                         const std::vector<Attr>& attrs, std::vector<Value> results,
                         const std::vector<std::string>& regions = {});
  /// Starts a region with one block: ops that follow belong to it. \returns its arguments
  std::vector<Value> begin_region(const std::vector<TensorType>& arguments);
  /// Ends the innermost region. \returns its JSON form
  std::string end_region();
  /// The whole program. No region may be open.
  [[nodiscard]] std::string finish() const;

 private:
  struct Region {
    int number = 0;
    std::string arguments;
    std::vector<std::string> ops;
  };
  static std::string region_json(const Region& region);

  std::vector<Region> open_ = {Region{}};
  int next_region_ = 1;
  int64_t next_value_ = 1;
  int64_t next_argument_ = -1;
};

}  // namespace millrace::interchange::pir
