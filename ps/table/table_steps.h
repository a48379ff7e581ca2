#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string_view>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "ps/table/dense_table.h"
#include "ps/table/rate_table.h"
#include "ps/table/sparse_table.h"
#include "ps/table/table.h"
#include "ps/transport/message.h"

namespace millrace::ps {

/// Typed tables of a synchronous server. Values that trainers send in a step are held until all
/// have sent. Then every key of a sparse table gets one push with the mean of its gradients over
/// the trainers that arrived, and the sum of its shows and clicks; a dense table gets the mean of
/// their gradients. Accesses are counted when the step is applied, so keys are admitted from the
/// next step on.
///
/// Sums are formed in the order of trainers, so results do not depend on the order of arrival.
/// Thread-safety: keep() from any threads; the other functions while no trainer sends.
class TableSteps {
 public:
  explicit TableSteps(int trainers) : trainers_(trainers) {}

  /// Adds a table, which must outlive this object.
  /// \param shrink_every  steps per day (TypedTable); 0: days never end
  void add(SparseTable& table, int64_t shrink_every);
  /// The same for a dense table with DenseTableOptions::sync.
  void add(DenseTable& table);
  /// The same for the learning rate, which trainers may send in every step. All trainers send the
  /// same one, and none before the step before is applied, so it is set when it arrives.
  void add(int id, RateTable& table);
  /// True for the name of an item that belongs to a table.
  static bool is_item(std::string_view name);
  /// Holds an item of a trainer until the step is applied. Errors: kNotFound for a table that this
  /// server does not have; kInvalidArgument for a value of the wrong type or dims.
  Status keep(int trainer, const RequestItem& item);
  /// Drops what a trainer has sent.
  void drop(int trainer);
  /// Number of steps that servers of another number applied before this job; days count them.
  void set_steps_before(int64_t steps) { steps_before_ = steps; }
  /// Pushes what the trainers marked in `arrivals` have sent, and ends the day if the step does.
  /// \param step  number of this step
  Status apply(llvm::ArrayRef<char> arrivals, int64_t step);

 private:
  struct Part {
    Value keys;
    Value rows;            ///< of a dense table: the gradients
    bool arrived = false;  ///< all items have arrived
  };
  /// One of the tables is not null.
  struct Held {
    SparseTable* table = nullptr;
    DenseTable* dense = nullptr;
    RateTable* rate = nullptr;
    int64_t shrink_every = 0;
    std::vector<Part> parts;  ///< by trainer
  };
  Status keep_rows(Held& held, int trainer, const RequestItem& item, bool is_keys);
  Status keep_gradients(Held& held, int trainer, const RequestItem& item);
  static Status push(Held& held, llvm::ArrayRef<char> arrivals);
  static Status push_dense(Held& held, llvm::ArrayRef<char> arrivals);

  const int trainers_;
  int64_t steps_before_ = 0;
  std::mutex mutex_;
  std::map<int, Held> held_;  ///< by table
};

}  // namespace millrace::ps
