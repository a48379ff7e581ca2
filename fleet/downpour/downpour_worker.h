#pragma once

#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"

namespace millrace::pslib_desc {
class DownpourTrainerParameter;
}

namespace millrace::fleet {

/// One use of an embedding: the var with the ids and the var that receives the rows.
struct SlotVars {
  std::string key;
  std::string value;
  bool has_gradient = true;
};

/// Builds the description of what a worker of a DownpourSGD job pulls and pushes. Source:
/// spec/fleet.md section 8.
class DownpourWorker {
 public:
  /// \param window  steps between exchanges with the servers
  /// \param start   the user's description; null: none
  explicit DownpourWorker(int window, const pslib_desc::DownpourTrainerParameter* start = nullptr);
  DownpourWorker(DownpourWorker&&) noexcept;
  ~DownpourWorker();

  /// Adds a sparse table, or replaces the one of that id. Slots without a gradient are last.
  /// Errors: kInvalidArgument if the replaced table lacks a slot for one of the keys.
  Status add_sparse_table(int table_id, const std::vector<SlotVars>& slots);
  /// Adds a dense or data_norm table, or replaces the one of that id. Names are sorted; embeddings
  /// and their gradients are left out.
  void add_dense_table(int table_id, const std::vector<std::string>& params,
                       const std::vector<std::string>& grads,
                       const std::vector<std::string>& embeddings);
  /// Sets the op types that the worker does not run, unless the user's file sets them.
  void skip_ops(const std::vector<std::string>& types);
  /// The description built so far.
  [[nodiscard]] const pslib_desc::DownpourTrainerParameter& desc() const { return *desc_; }

 private:
  std::unique_ptr<pslib_desc::DownpourTrainerParameter> desc_;
};

}  // namespace millrace::fleet
