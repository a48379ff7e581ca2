#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"

namespace millrace::ps {

/// Name of the record in snapshots of servers.
inline constexpr const char* kCallsRecord = "calls";

/// What a snapshot of a server knows of the calls that it has carried out.
struct CallsRecord {
  /// Of one trainer.
  struct Trainer {
    uint64_t incarnation = 0;
    int64_t sent = 0;         ///< send barriers
    int64_t fetched = 0;      ///< fetch barriers
    uint64_t low = 0;         ///< all calls up to this one are done
    std::set<uint64_t> done;  ///< and these
  };
  int64_t applied = 0;            ///< steps
  std::vector<Trainer> trainers;  ///< none in snapshots that were cut anew: values only
};

/// The text of the record: a line with form, version, steps and the number of trainers, then a line
/// a trainer.
std::string calls_text(const CallsRecord& record);
/// Reads it. Errors: kInvalidData.
StatusOr<CallsRecord> parse_calls(std::string_view text);

}  // namespace millrace::ps
