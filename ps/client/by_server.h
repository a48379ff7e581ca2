#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "framework/tensor/value.h"
#include "ps/transport/message.h"

namespace millrace::ps {

/// Vars to send to one server.
struct SentVars {
  std::string endpoint;
  std::vector<RequestItem> vars;
};

/// Vars to fetch from one server.
struct WantedVars {
  std::string endpoint;
  std::vector<std::string> names;
  std::vector<Value> memory;  ///< of the values, by name; filled in place where it fits
};

/// One entry for each server, in the order in which servers are first named.
template <typename Entry>
class ByServer {
 public:
  /// The position of a server's entry; adds an entry if there is none.
  size_t index_of(const std::string& endpoint) {
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& entry) { return entry.endpoint == endpoint; });
    if (found != entries_.end()) return static_cast<size_t>(found - entries_.begin());
    entries_.emplace_back().endpoint = endpoint;
    return entries_.size() - 1;
  }
  /// The entry of a server. Valid until the next call.
  Entry& at(const std::string& endpoint) { return entries_[index_of(endpoint)]; }
  [[nodiscard]] std::vector<Entry>& entries() { return entries_; }

 private:
  std::vector<Entry> entries_;
};

}  // namespace millrace::ps
