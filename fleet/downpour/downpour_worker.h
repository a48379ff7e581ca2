#pragma once

#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"

namespace millrace::pslib_desc {
class DownpourTrainerParameter;
}

namespace millrace::fleet {

/// One use of an embedding: the var with ids and the var that gets rows.
struct SlotVars {
  std::string key;
  std::string value;
  bool has_gradient = true;
};

/// Puts together what a worker of a DownpourSGD job pulls and pushes. Source: spec/fleet.md
/// section 8.
class DownpourWorker {
 public:
  /// \param window  steps between two exchanges
  /// \param start   what the user's file says; null: nothing
  explicit DownpourWorker(int window, const pslib_desc::DownpourTrainerParameter* start = nullptr);
  DownpourWorker(DownpourWorker&&) noexcept;
  ~DownpourWorker();

  /// Slots without a gradient come last. A table that is there already is replaced.
  /// Errors: kInvalidArgument if that has no slot of one of the keys.
  Status add_sparse_table(int table_id, const std::vector<SlotVars>& slots);
  /// Names are sorted; embeddings and their gradients are left out. Also for data_norm. A table
  /// that is there already is replaced.
  void add_dense_table(int table_id, const std::vector<std::string>& params,
                       const std::vector<std::string>& grads,
                       const std::vector<std::string>& embeddings);
  /// Names the op types that the worker does not run, unless the user's file has.
  void skip_ops(const std::vector<std::string>& types);
  /// What was put together.
  [[nodiscard]] const pslib_desc::DownpourTrainerParameter& desc() const { return *desc_; }

 private:
  std::unique_ptr<pslib_desc::DownpourTrainerParameter> desc_;
};

}  // namespace millrace::fleet
