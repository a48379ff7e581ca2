#pragma once

#include <cstring>
#include <utility>
#include <vector>

#include "kernels/kernel.h"

namespace millrace::kernels {

/// Collects runs of rows of several tensors, and the LoD of their concatenation.
/// For the ops that divide a batch by sequences or conditions and join it again:
/// lod_tensor_to_array, array_to_lod_tensor, split_lod_tensor, merge_lod_tensor,
/// reorder_lod_tensor_by_rank. Keeps pointers to the tensors until write(); no rows are copied
/// before.
class RowPieces {
 public:
  /// \param levels  LoD levels of the result
  explicit RowPieces(size_t levels) : lod_(levels, LodLevel{0}) {}

  /// Appends an entry of a LoD level of x with everything below it; level lod().size() means rows.
  /// Errors: x has no such entry.
  /// \param level  LoD level of x that the entry is counted on
  /// \param entry  index of a sequence of that level, or of a row
  Status append(const Tensor& x, size_t level, int64_t entry) {
    const Lod& lod = x.lod();
    const int64_t entries = level < lod.size() ? lod.sequences(level)
                            : x.rank() == 0    ? 1
                                               : x.dims()[0];
    if (entry < 0 || entry >= entries) {
      return KernelContext::error("entry {} of {} is missing: there are {} on LoD level {}", entry,
                                  describe(x), entries, level);
    }
    int64_t begin = entry;
    int64_t end = entry + 1;
    // from the entry's level down to rows: each level maps the range to a range of the next one
    for (size_t j = level; j < lod.size(); ++j) {
      const auto offsets = lod.level(j);
      if (end >= static_cast<int64_t>(offsets.size())) return unfit(x);
      if (j - level < lod_.size()) {
        LodLevel& out = lod_[j - level];
        for (int64_t e = begin; e < end; ++e) {
          const auto at = static_cast<size_t>(e);
          out.push_back(out.back() + offsets[at + 1] - offsets[at]);
        }
      }
      begin = offsets[static_cast<size_t>(begin)];
      end = offsets[static_cast<size_t>(end)];
    }
    if (end > (x.rank() == 0 ? 1 : x.dims()[0])) return unfit(x);
    pieces_.push_back({&x, begin, end});
    rows_ += end - begin;
    return Ok();
  }

  /// The LoD below the appended entries.
  [[nodiscard]] std::vector<LodLevel>& lod() { return lod_; }
  /// Number of rows collected so far.
  [[nodiscard]] int64_t rows() const { return rows_; }

  /// Writes the rows one after the other. out gets the dims of `like` with another number of rows.
  /// It must not be one of the tensors that the rows are taken from. Errors: kResource.
  Status write(const Tensor& like, Tensor& out) const {
    Dims dims(like.dims().begin(), like.dims().end());
    if (dims.empty()) dims.push_back(1);
    // bytes of one row; 0 if `like` has no rows to learn it from
    const int64_t row = like.rank() == 0 || like.dims()[0] == 0 ? 0 : like.bytes() / like.dims()[0];
    dims[0] = rows_;
    MILLRACE_RETURN_IF_ERROR(out.resize(like.dtype(), dims));
    std::byte* to = out.raw();
    for (const Piece& piece : pieces_) {
      const int64_t width = piece.of->rank() == 0 || piece.of->dims()[0] == 0
                                ? 0
                                : piece.of->bytes() / piece.of->dims()[0];
      if (piece.begin == piece.end) continue;
      // tensors of a program may change between runs: shape inference cannot have compared them
      if (piece.of->dtype() != like.dtype() || (row != 0 && width != row))
        return KernelContext::error("rows of {} and {} cannot be in one tensor",
                                    describe(*piece.of), describe(like));
      const auto bytes = static_cast<size_t>((piece.end - piece.begin) * width);
      std::memcpy(to, piece.of->raw() + piece.begin * width, bytes);
      to += bytes;
    }
    return Ok();
  }

 private:
  // Ops that change the number of rows may hand on the LoD of their input.
  static Status unfit(const Tensor& x) {
    return KernelContext::error("LoD {} does not fit the rows of {}", x.lod().to_string(),
                                describe(x));
  }

  struct Piece {
    const Tensor* of;  ///< not owned; outlives the pieces
    int64_t begin;     ///< first row
    int64_t end;       ///< one past the last
  };
  /// In the order of the calls of append().
  std::vector<Piece> pieces_;
  std::vector<LodLevel> lod_;  ///< offsets of the result, by level
  int64_t rows_ = 0;           ///< rows of the result so far
};

}  // namespace millrace::kernels
