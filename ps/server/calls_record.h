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

/// The part of a server's snapshot that records which calls it has carried out.
struct CallsRecord {
  /// Record of one trainer.
  struct Trainer {
    uint64_t incarnation = 0;
    int64_t sent = 0;         ///< send barriers
    int64_t fetched = 0;      ///< fetch barriers
    uint64_t low = 0;         ///< all calls up to this number are carried out
    std::set<uint64_t> done;  ///< later calls that are carried out
  };
  int64_t applied = 0;            ///< steps applied
  std::vector<Trainer> trainers;  ///< empty in resharded snapshots, which have only values
};

/// Formats the record: a line with format name, version, steps and the number of trainers, then one
/// line per trainer.
std::string calls_text(const CallsRecord& record);
/// Parses the record. Errors: kInvalidData.
StatusOr<CallsRecord> parse_calls(std::string_view text);

}  // namespace millrace::ps
