#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "framework/base/status.h"

namespace millrace::ps {

/// Determines which keys get a row. A key that is not admitted reads as zeros, and its gradients
/// are dropped.
///
/// An access is an occurrence of the key in a pull for training. Source: spec/ps_runtime.md
/// section 7.
struct EntryPolicy {
  enum class Kind : uint8_t {
    kNone,         ///< every key, immediately
    kCountFilter,  ///< from the count-th access
    kProbability,  ///< each access admits the key with a probability
    kShowClick,    ///< every key; also names the vars of shows and clicks
  };
  Kind kind = Kind::kNone;
  int64_t count = 0;       ///< >= 0
  double probability = 1;  ///< in (0, 1)
  std::string show_var;    ///< for kShowClick
  std::string click_var;
};

/// "none" or "", "count_filter_entry:n", "probability_entry:p", "show_click_entry:show:click"; also
/// the older "count_filter&n" and "probability&p". Errors: kInvalidArgument with the text.
StatusOr<EntryPolicy> parse_entry(std::string_view text);
/// The text form, which parse_entry() reads.
std::string entry_text(const EntryPolicy& policy);

}  // namespace millrace::ps
