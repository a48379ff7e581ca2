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

/// Ops with sub-blocks may use any var.
bool has_block(const Op& op);

/// How gradients go into buckets.
struct ExchangeSettings {
  int64_t bucket_bytes = 0;     ///< a bucket that has as many is complete; 0: one for each gradient
  bool wait_for_all = true;     ///< all exchanges end before the first optimizer op
  bool fuse_broadcasts = true;  ///< one broadcast an owner; else one a var
  int rings = 1;                ///< communicators between processes; buckets are dealt in turn
};

/// Puts the exchanges of gradients into block 0: dense ones in buckets, in the order in which the
/// program makes them, one element type and one owner a bucket; sparse ones alone. An exchange
/// begins behind the op that completes its last gradient, and ends before the first op that reads
/// or writes one of them.
class ExchangeInserter {
 public:
  ExchangeInserter(Block& block, const ExchangeSettings& settings)
      : block_(block), settings_(settings) {}

  void insert(const std::vector<ParallelGrad>& grads);
  /// The vars that one device has updated become those of all, where that is needed.
  void broadcast(llvm::ArrayRef<SentVar> sent);
  /// Exchanges made so far.
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
  std::map<Key, Bucket> open_;    ///< still filling
  std::map<int, Bucket> begun_;   ///< by number
  llvm::StringMap<bool> flying_;  ///< names in open_ and begun_
};

}  // namespace millrace::transpiler
