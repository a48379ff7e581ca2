#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace millrace::transpiler {

/// What the overview records about one variable (the original's VarStruct).
struct VarFacts {
  std::string name;
  std::vector<int64_t> shape;
  int32_t dtype = 5;  ///< VarType number of the element type
  int32_t type = 7;   ///< VarType number of the kind
  int32_t lod_level = 0;
  bool persistable = false;
  bool operator==(const VarFacts&) const = default;
};

/// One variable, or a slice of one, that a server holds.
struct DistributedVar {
  VarFacts origin;  ///< the whole variable
  VarFacts slice;   ///< what the server holds
  bool is_slice = false;
  int64_t block_id = 0;  ///< number of the slice
  int64_t offset = 0;    ///< elements of the origin before the slice
  std::string vtype;     ///< "Param", "Optimizer" or "RemotePrefetch"
  std::string endpoint;
  /// Of state that is listed as whole while its parameter is split: the parameter, if the server
  /// holds only the slice that belongs to its slice of it; empty: the state is whole. None: not
  /// known, or not such state.
  std::optional<std::string> param = std::nullopt;
};

/// Overview of all variables on servers, in the order in which they were added.
/// Source: spec/transpiler.md section 12; the lookup functions are those that seeds 000 and 001
/// use.
class VarsDistributed {
 public:
  /// Appends an entry and returns it. References stay valid until the next call.
  DistributedVar& add_distributed_var(DistributedVar var);

  /// Entry whose slice has the name; null if there is none.
  [[nodiscard]] DistributedVar* get_distributed_var_by_slice(const std::string& name);
  [[nodiscard]] const DistributedVar* get_distributed_var_by_slice(const std::string& name) const;
  /// First entry of the origin at the endpoint; null if there is none.
  [[nodiscard]] const DistributedVar* get_distributed_var_by_origin_and_ep(
      const std::string& origin, const std::string& endpoint) const;
  /// Entries of the given types, grouped by origin name; groups and entries in insertion order.
  [[nodiscard]] std::vector<std::pair<std::string, std::vector<const DistributedVar*>>>
  get_distributed_vars_by_vtypes(const std::vector<std::string>& vtypes) const;
  /// Entries of an endpoint; of one type, or of all if vtype is empty.
  [[nodiscard]] std::vector<const DistributedVar*> get_distributed_vars_by_ep(
      const std::string& endpoint, const std::string& vtype = "") const;
  /// True if name, type and shape are equal.
  [[nodiscard]] static bool equal(const VarFacts& a, const VarFacts& b);
  /// Human-readable text, one line per entry.
  [[nodiscard]] std::string overview() const;

  [[nodiscard]] const std::vector<DistributedVar>& vars() const { return vars_; }

 private:
  std::vector<DistributedVar> vars_;
  std::map<std::string, size_t> by_slice_;  // first entry of each slice name
};

}  // namespace millrace::transpiler
