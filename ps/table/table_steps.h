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

/// Typed sparse tables of a synchronous server: what trainers send in a step is put aside, and when
/// all have sent, every key gets one push with the mean of its gradients over the trainers that
/// came, and the sum of its shows and clicks.
///
/// Of a table of add() keys and rows come as items of a step (keep()), and then the accesses of the
/// step count for the entry policy, so keys are admitted from the next step on. To a table of
/// add_pushed() they come as pushes (put_aside()); its accesses have counted when rows were pulled.
///
/// Sums are made in the order of trainers, so results do not depend on who came first.
/// Thread-safety: keep() and put_aside() from any threads; the rest while nobody sends.
class TableSteps {
 public:
  explicit TableSteps(int trainers) : trainers_(trainers) {}

  /// \param shrink_every  steps that make a day (TypedTable); 0: none
  /// The table must outlive this object.
  void add(SparseTable& table, int64_t shrink_every);
  /// A table to which trainers push. The table must outlive this object.
  void add_pushed(SparseTable& table);
  /// True for the id of such a table.
  [[nodiscard]] bool takes_pushes(int64_t id) const;
  /// Puts a push of a trainer to such a table aside: its keys and their rows. Errors:
  /// kInvalidArgument for values that do not fit the table.
  Status put_aside(int64_t id, const TableCall& call);
  /// True for the name of an item that is for a table.
  static bool is_item(std::string_view name);
  /// Puts an item of a trainer aside. Errors: kNotFound for a table that is not here;
  /// kInvalidArgument for a value that does not fit the table.
  Status keep(int trainer, const RequestItem& item);
  /// Forgets what a trainer has sent.
  void drop(int trainer);
  /// Pushes what the trainers with an arrival have sent, and ends the day where one ends.
  /// \param step  number of steps that this one makes
  Status apply(llvm::ArrayRef<char> arrivals, int64_t step);

 private:
  struct Part {
    Value keys;
    Value rows;
    bool came = false;  ///< both items have
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
