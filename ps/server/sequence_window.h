#pragma once

#include <cstdint>
#include <set>

namespace millrace::ps {

/// Which calls of one trainer a server has carried out, so that a repeat is not carried out again.
/// Sequence numbers begin at 1; calls under way at the same time may finish in any order. Not
/// thread-safe.
class SequenceWindow {
 public:
  enum class Seen {
    kNew,      ///< to be carried out; then finish()
    kRunning,  ///< another call with the number is under way
    kDone,     ///< carried out already
  };

  /// What is known of a number; a new one is under way from now on.
  Seen begin(uint64_t sequence) {
    if (sequence <= low_ || done_.contains(sequence)) return Seen::kDone;
    return running_.insert(sequence).second ? Seen::kNew : Seen::kRunning;
  }
  /// \param applied  false: nothing happened, a repeat has to be carried out
  void finish(uint64_t sequence, bool applied) {
    running_.erase(sequence);
    if (!applied) return;
    done_.insert(sequence);
    advance();
  }
  /// All numbers up to this one are carried out.
  [[nodiscard]] uint64_t low() const { return low_; }
  /// Those beyond low() that are carried out.
  [[nodiscard]] const std::set<uint64_t>& done() const { return done_; }
  /// No number up to this one is asked for any more: each has been answered, or nobody waits for
  /// it.
  void settle(uint64_t low) {
    if (low <= low_) return;
    low_ = low;
    done_.erase(done_.begin(), done_.upper_bound(low));
    advance();
  }
  /// Takes up where a snapshot left off.
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
