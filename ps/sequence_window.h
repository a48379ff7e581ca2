#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "framework/base/status.h"

namespace millrace::ps {

/// Records which calls of one trainer a server has carried out, so that repeats are not carried out
/// again. Sequence numbers begin at 1; concurrent calls may finish in any order. Not thread-safe.
class SequenceWindow {
 public:
  enum class Seen {
    kNew,      ///< must be carried out, followed by finish()
    kRunning,  ///< another call with this number is in progress
    kDone,     ///< already carried out
    kTooMany,  ///< not recorded: kMostDone numbers above a missing one were carried out
  };
  /// Numbers that are kept while an earlier one is missing: 48 MiB.
  static constexpr size_t kMostDone = size_t{1} << 20U;
  /// The error for kTooMany.
  static Status too_many(uint64_t sequence) {
    return {StatusCode::kResource,
            fmt::format("call {} comes after {} others, while an earlier one is missing", sequence,
                        kMostDone)};
  }

  /// Looks up a number. A new one is marked as in progress.
  Seen begin(uint64_t sequence) {
    if (sequence <= low_ || done_.contains(sequence)) return Seen::kDone;
    if (done_.size() >= kMostDone && sequence != low_ + 1) return Seen::kTooMany;
    return running_.insert(sequence).second ? Seen::kNew : Seen::kRunning;
  }
  /// \param applied  false: the call had no effect, so a repeat must be carried out
  void finish(uint64_t sequence, bool applied) {
    running_.erase(sequence);
    if (!applied) return;
    done_.insert(sequence);
    advance();
  }
  /// All numbers up to this one are carried out.
  [[nodiscard]] uint64_t low() const { return low_; }
  /// Numbers above low() that are carried out.
  [[nodiscard]] const std::set<uint64_t>& done() const { return done_; }
  /// The highest number that is carried out, or was settled.
  [[nodiscard]] uint64_t highest() const { return done_.empty() ? low_ : *done_.rbegin(); }
  /// Forgets numbers up to `low`, which the trainer will not send again: each was answered or given
  /// up.
  void settle(uint64_t low) {
    if (low <= low_) return;
    low_ = low;
    done_.erase(done_.begin(), done_.upper_bound(low));
    advance();
  }
  /// Restores the state of a snapshot.
  void restore(uint64_t low, std::set<uint64_t> done) {
    low_ = low;
    done_ = std::move(done);
    running_.clear();
  }

 private:
  void advance() {
    while (!done_.empty() && *done_.begin() == low_ + 1) {
      ++low_;
      done_.erase(done_.begin());
    }
  }

  uint64_t low_ = 0;
  std::set<uint64_t> done_;
  std::set<uint64_t> running_;
};

}  // namespace millrace::ps
