#pragma once

#include <cstdint>
#include <span>

#include <llvm/ADT/ArrayRef.h>

#include "executor/collective/collective_group.h"
#include "framework/base/status.h"
#include "io/multi_slot/line.h"
#include "io/multi_slot/slots.h"

namespace millrace::jobs {

/// A shuffle of the examples of all ranks.
struct RowsExchange {
  std::span<const io::Slot> slots;  ///< of the rows; all ranks must have the same
  uint64_t seed = 0;                ///< the same on all ranks
  int64_t number = 1;               ///< of the exchange, from 1; the same on all ranks
};

/// Gives every example to a rank that seed, number and the position of the example determine. Each
/// of them is then on exactly one rank, and the numbers of two ranks differ by at most one. Rows
/// arrive in the order of ranks. Messages have about 4 MiB; until the end a rank has its old rows
/// and its new ones in memory.
///
/// All ranks must call it. \param order  rows of `rows` in the order that positions count
/// Errors: kInvalidArgument, on all ranks, for ranks whose slots, seeds or numbers differ;
/// kDistributed naming the rank that is lost, kInternal if not all examples have arrived. `rows`
/// then keeps its values, and the group is broken or must not be used any more for such exchanges.
Status exchange_rows(const RowsExchange& how, llvm::ArrayRef<int64_t> order,
                     executor::CollectiveGroup& ranks, io::SlotRows& rows);

}  // namespace millrace::jobs
