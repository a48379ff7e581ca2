#include "ps/server/changed_rows.h"

namespace millrace::ps {

ChangedRows::ChangedRows(int trainers, int64_t height) : trainers_(static_cast<size_t>(trainers)) {
  for (Rows& rows : trainers_) {
    rows.changed.resize(static_cast<unsigned>(height));
    rows.taken.resize(static_cast<unsigned>(height));
  }
}

void ChangedRows::add(llvm::ArrayRef<int64_t> rows) {
  const std::lock_guard lock(mutex_);
  for (Rows& trainer : trainers_) {
    for (const int64_t row : rows) trainer.changed.set(static_cast<unsigned>(row));
  }
}

void ChangedRows::add_all() {
  const std::lock_guard lock(mutex_);
  for (Rows& trainer : trainers_) trainer.changed.set();
}

std::vector<int64_t> ChangedRows::take(int trainer, bool repeat) {
  const std::lock_guard lock(mutex_);
  Rows& rows = trainers_[static_cast<size_t>(trainer)];
  if (repeat) rows.changed |= rows.taken;
  std::vector<int64_t> list;
  for (const unsigned row : rows.changed.set_bits()) list.push_back(row);
  std::swap(rows.taken, rows.changed);
  rows.changed.reset();
  return list;
}

void ChangedRows::forget(int trainer) {
  const std::lock_guard lock(mutex_);
  trainers_[static_cast<size_t>(trainer)].changed.reset();
  trainers_[static_cast<size_t>(trainer)].taken.reset();
}

}  // namespace millrace::ps
