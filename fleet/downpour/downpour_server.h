#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fleet/strategy/config_dict.h"
#include "framework/base/status.h"

namespace millrace::pslib_desc {
class PSParameter;
class ServerParameter;
}  // namespace millrace::pslib_desc

namespace millrace::fleet {

/// A var as descriptions need it.
struct DenseVar {
  std::string name;
  int64_t elements = 0;
};

/// Settings that the first versions of DownpourSGD had instead of those of later ones: other
/// statistics of sparse rows, and the user's rate everywhere. Source: spec/fleet.md section 8.
ConfigDict early_sparse_configs(double learning_rate);
ConfigDict early_dense_configs(double learning_rate);

/// Puts together what servers of a DownpourSGD job are told. Tables that are there already, from a
/// file of the user, stay as they are, but dense ones get the number of their elements.
class DownpourServer {
 public:
  /// \param start  what the user's file says; null: nothing
  explicit DownpourServer(const pslib_desc::ServerParameter* start = nullptr);
  DownpourServer(DownpourServer&&) noexcept;
  ~DownpourServer();

  /// Settings have the keys sparse_*, embed_sparse_* and embedx_sparse_* of the original.
  /// Errors: kInvalidArgument for an unknown key, table class, accessor or rule, or if the id
  /// belongs to a table of another kind.
  Status add_sparse_table(int table_id, const ConfigDict& configs);
  /// Settings: dense_*. Embeddings are not counted. Errors: as above.
  Status add_dense_table(int table_id, const std::vector<DenseVar>& params,
                         const std::vector<std::string>& embeddings, const ConfigDict& configs);
  /// Settings: datanorm_*. Errors: as above.
  Status add_data_norm_table(int table_id, const std::vector<DenseVar>& params,
                             const std::vector<std::string>& embeddings, const ConfigDict& configs);
  /// What was put together.
  [[nodiscard]] const pslib_desc::ServerParameter& desc() const { return *desc_; }
  /// Settings that had no effect on the tables, a line each.
  [[nodiscard]] const std::vector<std::string>& remarks() const { return remarks_; }

 private:
  std::vector<std::string> remarks_;
  std::unique_ptr<pslib_desc::ServerParameter> desc_;
};

}  // namespace millrace::fleet
