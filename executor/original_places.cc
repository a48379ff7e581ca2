#include "executor/original_places.h"

#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace millrace::executor {

void OriginalPlaces::before(const Program& program) {
  index_.clear();
  for (const Block& block : program.blocks()) {
    int64_t index = 0;
    for (const Op& op : block.ops()) index_[&op] = index++;
  }
}

void OriginalPlaces::after(const Program& program) {
  was_.clear();
  for (const Block& block : program.blocks()) {
    std::vector<int64_t>& ops = was_.emplace_back();
    ops.reserve(block.op_count());
    const Op* before = nullptr;
    for (const Op& op : block.ops()) {
      const auto found = index_.find(&op);
      ops.push_back(found == index_.end() ? -1 : found->second);
      // a new op directly before one of its type counts as part of that one
      if (before != nullptr && ops[ops.size() - 2] < 0 && before->type() == op.type())
        ops[ops.size() - 2] = ops.back();
      before = &op;
    }
  }
  llvm::DenseMap<const Op*, int64_t>().swap(index_);
}

Status OriginalPlaces::translate(Status status, const Program& original) const {
  const Location found = status.location();
  if (status.ok() || found.block < 0 || found.op < 0) return status;
  const auto block = static_cast<size_t>(found.block);
  if (block >= was_.size() || static_cast<size_t>(found.op) >= was_[block].size()) return status;
  const int64_t index = was_[block][static_cast<size_t>(found.op)];
  if (index < 0 || static_cast<size_t>(index) >= original.block(block).op_count()) return status;
  const Op& op = *std::next(original.block(block).ops().begin(), index);
  Location place = op.location();
  place.file = found.file;
  place.var = found.var;
  if (place.op_type == found.op_type) {
    place.slot = found.slot;
    place.slot_index = found.slot_index;
    place.attr = found.attr;
    return std::move(status).at(std::move(place));
  }
  // slots would refer to the other op
  return std::move(status)
      .at(std::move(place))
      .with_note(fmt::format("it runs as part of a {}; --optimize=false runs every op on its own",
                             found.op_type));
}

}  // namespace millrace::executor
