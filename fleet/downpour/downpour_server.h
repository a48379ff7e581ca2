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

/// A var and the number of its elements, for descriptions.
struct DenseVar {
  std::string name;
  int64_t elements = 0;
};

/// Default settings of the first versions of DownpourSGD: other statistics of sparse rows, and the
/// user's rate for all tables. Source: spec/fleet.md section 8.
ConfigDict early_sparse_configs(double learning_rate);
ConfigDict early_dense_configs(double learning_rate);

/// Builds the description for the servers of a DownpourSGD job. Tables that are already in the
/// user's file are kept, but for dense tables the number of elements is set.
class DownpourServer {
 public:
  /// \param start  the user's description; null: none
  explicit DownpourServer(const pslib_desc::ServerParameter* start = nullptr);
  DownpourServer(DownpourServer&&) noexcept;
  ~DownpourServer();

  /// Adds a sparse table. Settings have the keys sparse_*, embed_sparse_* and embedx_sparse_* of
  /// the original.
  /// Errors: kInvalidArgument for an unknown key, table class, accessor or rule, or if the id
  /// belongs to a table of another type.
  Status add_sparse_table(int table_id, const ConfigDict& configs);
  /// Adds a dense table. Settings: dense_*. Elements of embeddings are not counted. Errors: as
  /// above.
  Status add_dense_table(int table_id, const std::vector<DenseVar>& params,
                         const std::vector<std::string>& embeddings, const ConfigDict& configs);
  /// Adds a data_norm table. Settings: datanorm_*. Errors: as above.
  Status add_data_norm_table(int table_id, const std::vector<DenseVar>& params,
                             const std::vector<std::string>& embeddings, const ConfigDict& configs);
  /// The description built so far.
  [[nodiscard]] const pslib_desc::ServerParameter& desc() const { return *desc_; }
  /// Settings that had no effect on the tables, one line each.
  [[nodiscard]] const std::vector<std::string>& remarks() const { return remarks_; }

 private:
  std::vector<std::string> remarks_;
  std::unique_ptr<pslib_desc::ServerParameter> desc_;
};

}  // namespace millrace::fleet
