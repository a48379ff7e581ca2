#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string_view>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "ps/table/sparse_table.h"
#include "ps/table/table.h"
#include "ps/transport/message.h"

namespace millrace::ps {

/// Typed sparse tables of a synchronous server. Values that trainers send in a step are held until
/// all have sent. Then every key gets one push with the mean of its gradients over the trainers
/// that arrived, and the sum of its shows and clicks.
///
/// For tables of add(), keys and rows are items of a step (keep()), and accesses are counted when
/// the step is applied, so keys are admitted from the next step on. For tables of add_pushed(),
/// they are pushes (hold_push()), and accesses are counted by the pulls.
///
/// Sums are formed in the order of trainers, so results do not depend on the order of arrival.
/// Thread-safety: keep() and hold_push() from any threads; the other functions while no trainer
/// sends.
class TableSteps {
 public:
  explicit TableSteps(int trainers) : trainers_(trainers) {}

  /// Adds a table, which must outlive this object.
  /// \param shrink_every  steps per day (TypedTable); 0: days never end
  void add(SparseTable& table, int64_t shrink_every);
  /// Adds a table to which trainers push, which must outlive this object.
  void add_pushed(SparseTable& table);
  /// True for the id of a table of add_pushed().
  [[nodiscard]] bool takes_pushes(int64_t id) const;
  /// Holds a trainer's push to such a table until the step is applied. Errors: kInvalidArgument for
  /// values of the wrong size.
  Status hold_push(int64_t id, const TableCall& call);
  /// True for the name of an item that belongs to a table.
  static bool is_item(std::string_view name);
  /// Holds an item of a trainer until the step is applied. Errors: kNotFound for a table that this
  /// server does not have; kInvalidArgument for a value of the wrong type or dims.
  Status keep(int trainer, const RequestItem& item);
  /// Drops what a trainer has sent.
  void drop(int trainer);
  /// Pushes what the trainers marked in `arrivals` have sent, and ends the day if the step does.
  /// \param step  number of this step
  Status apply(llvm::ArrayRef<char> arrivals, int64_t step);

 private:
  struct Part {
    Value keys;
    Value rows;
    bool arrived = false;  ///< both items have arrived
  };
  struct Pushed {
    uint64_t sequence = 0;
    std::vector<int64_t> keys;
    std::vector<float> rows;
  };
  struct Held {
    SparseTable* table = nullptr;
    int64_t shrink_every = 0;
    std::vector<Part> parts;                  ///< by trainer
    bool by_pushes = false;                   ///< add_pushed()
    std::vector<std::vector<Pushed>> pushed;  ///< by trainer
  };
  static Status push(Held& held, llvm::ArrayRef<char> arrivals);

  const int trainers_;
  std::mutex mutex_;
  std::map<int, Held> held_;  ///< by table
};

}  // namespace millrace::ps
