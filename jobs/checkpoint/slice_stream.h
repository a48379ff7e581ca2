#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/status.h"
#include "io/checkpoint/box_stream.h"
#include "jobs/checkpoint/servers.h"

namespace millrace::jobs {

/// A range of elements of a sliced variable, read from the slices that contain it, as one stream of
/// bytes.
class SliceStream {
 public:
  /// \param servers    the snapshots in which the slices of the variable are; they must outlive the
  ///                   stream
  /// \param first, count  the range, in elements of the whole variable
  /// \param max_bytes  held at a time
  SliceStream(const std::vector<io::Checkpoint>& servers, const JoinedVar& var, int64_t first,
              int64_t count, uint64_t max_bytes) {
    const int64_t size = dtype_size(var.dtype);
    uint64_t at = 0;
    for (const JoinedVar::Slice& slice : var.slices) {
      io::Box box = io::Box::whole(slice.stored->dims);
      const int64_t elements = box.numel();
      const int64_t begin = std::max(first, slice.offset) - slice.offset;
      const int64_t end = std::min(first + count, slice.offset + elements) - slice.offset;
      if (begin >= end) continue;
      // The range, extended to whole rows; slices begin and end at rows.
      const int64_t row = box.shape.empty() ? 1 : elements / box.shape[0];
      if (!box.shape.empty()) {
        box.offset[0] = begin / row;
        box.shape[0] = (end - 1) / row + 1 - box.offset[0];
      }
      const int64_t skipped = box.shape.empty() ? 0 : begin - box.offset[0] * row;
      parts_.push_back({io::BoxStream(servers[slice.server], *slice.stored, box, max_bytes), at,
                        at + static_cast<uint64_t>((end - begin) * size),
                        static_cast<uint64_t>(skipped * size)});
      at = parts_.back().end;
    }
  }

  /// Errors: those of the checkpoints; kInternal for a range that the slices do not cover.
  Status read(uint64_t offset, std::span<std::byte> to) {
    for (Part& part : parts_) {
      if (to.empty()) break;
      if (offset >= part.end) continue;
      const size_t bytes = std::min<uint64_t>(to.size(), part.end - offset);
      MILLRACE_RETURN_IF_ERROR(
          part.stream.read(offset - part.begin + part.skipped, to.first(bytes)));
      to = to.subspan(bytes);
      offset += bytes;
    }
    return to.empty() ? Ok() : Internal("{} bytes are missing at byte {}", to.size(), offset);
  }

 private:
  struct Part {
    io::BoxStream stream;
    uint64_t begin;
    uint64_t end;
    uint64_t skipped;  // bytes of the box before the range
  };
  std::deque<Part> parts_;
};

}  // namespace millrace::jobs
