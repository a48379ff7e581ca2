#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "framework/base/status.h"
#include "io/checkpoint/box_stream.h"
#include "jobs/checkpoint/servers.h"
#include "ps/slices/row_places.h"

namespace millrace::jobs {

/// Selected rows of a table that is spread over several servers, as one stream of bytes.
class RowsStream {
 public:
  /// \param places     of the rows, in the order of the stream; their shards are the slices of the
  ///                   variable
  /// \param max_bytes  held at a time
  RowsStream(const std::vector<io::Checkpoint>& servers, const JoinedVar& var,
             std::vector<ps::RowPlace> places, uint64_t max_bytes)
      : places_(std::move(places)) {
    io::Box row = io::Box::whole(var.dims);
    row.shape[0] = 1;
    row_bytes_ = static_cast<uint64_t>(row.numel() * dtype_size(var.dtype));
    for (const JoinedVar::Slice& slice : var.slices) {
      streams_.emplace_back(servers[slice.server], *slice.stored,
                            io::Box::whole(slice.stored->dims), max_bytes / var.slices.size());
    }
  }

  /// Errors: those of the checkpoints.
  Status read(uint64_t offset, std::span<std::byte> to) {
    while (!to.empty()) {
      const ps::RowPlace& place = places_[offset / row_bytes_];
      const uint64_t within = offset % row_bytes_;
      const size_t bytes = std::min<uint64_t>(to.size(), row_bytes_ - within);
      MILLRACE_RETURN_IF_ERROR(
          streams_[place.shard].read(place.position * row_bytes_ + within, to.first(bytes)));
      to = to.subspan(bytes);
      offset += bytes;
    }
    return Ok();
  }

 private:
  std::vector<ps::RowPlace> places_;
  std::deque<io::BoxStream> streams_;
  uint64_t row_bytes_ = 0;
};

}  // namespace millrace::jobs
