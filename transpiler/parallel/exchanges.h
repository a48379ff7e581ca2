#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/StringMap.h>

#include "transpiler/parallel/gradients.h"
#include "transpiler/parallel/owners.h"

namespace millrace::transpiler {

/// True if the op has sub-blocks: such ops may use any var.
bool has_block(const Op& op);

/// How gradients are grouped into buckets.
struct ExchangeSettings {
  int64_t bucket_bytes = 0;     ///< size at which a bucket is complete; 0: one bucket per gradient
  bool wait_for_all = true;     ///< all exchanges end before the first optimizer op
  bool fuse_broadcasts = true;  ///< one broadcast per owner; else one per var
  int rings = 1;  ///< communicators between processes; buckets are assigned round-robin
};

/// Inserts the exchanges of gradients into block 0. Dense gradients are put into buckets in the
/// order in which the program computes them; a bucket has one element type and one owner. Each
/// sparse gradient is exchanged alone. An exchange begins after the op that completes its last
/// gradient, and ends before the first op that reads or writes one of them.
class ExchangeInserter {
 public:
  ExchangeInserter(Block& block, const ExchangeSettings& settings)
      : block_(block), settings_(settings) {}

  void insert(const std::vector<ParallelGrad>& grads);
  /// Inserts broadcasts of the vars that one device has updated to the devices that need them.
  void broadcast(llvm::ArrayRef<SentVar> sent);
  /// Number of exchanges inserted so far.
  [[nodiscard]] int count() const { return count_; }

 private:
  struct Bucket {
    std::vector<std::string> vars;
    llvm::StringRef kind;  ///< as in the op
    int64_t bytes = 0;
    int root = -1;
    int role = 0;
    int number = -1;  ///< set when it begins
  };
  using Key = std::pair<int, DType>;

  void add(const ParallelGrad& grad, Op* where);
  void begin(Bucket bucket, Op* where);
  void end(Bucket& bucket, Op* where);
  void settle(const Op& op);
  void settle_all(Op* where);
  void broadcast_before(Op* where, llvm::ArrayRef<SentVar> sent);
  Op& emit(llvm::StringRef type, Op* where, const Bucket& bucket);

  Block& block_;
  ExchangeSettings settings_;
  int count_ = 0;
  std::map<Key, Bucket> open_;        ///< still filling
  std::map<int, Bucket> begun_;       ///< by number
  llvm::StringMap<bool> unfinished_;  ///< names in open_ and begun_
};

}  // namespace millrace::transpiler
