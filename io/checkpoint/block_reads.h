#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "io/checkpoint/box.h"
#include "io/checkpoint/manifest.h"

/// Computes which blocks of the data files a load needs, and where their bytes go.
namespace millrace::io {

/// Receives the bytes of a StoredBytes, block by block. Offsets are relative to the start of the
/// StoredBytes. Thread-safety: different threads may deliver blocks; each block is delivered once.
class BlockSink {
 public:
  BlockSink() = default;
  BlockSink(const BlockSink&) = delete;
  BlockSink& operator=(const BlockSink&) = delete;
  virtual ~BlockSink();

  /// False if none of these bytes are wanted.
  [[nodiscard]] virtual bool wants(uint64_t begin, uint64_t end) const = 0;
  /// Destination memory of exactly these bytes, if all are wanted and contiguous in the result.
  /// Empty otherwise; the caller must then call take().
  [[nodiscard]] virtual std::span<std::byte> place(uint64_t begin, uint64_t end) const = 0;
  /// Copies the wanted bytes among these.
  virtual void take(uint64_t begin, std::span<const std::byte> bytes) const = 0;
};

/// A StoredBytes of which some bytes are wanted.
struct WantedBytes {
  const StoredBytes* stored = nullptr;
  const std::string* owner = nullptr;  ///< tensor or record, for messages
  std::unique_ptr<BlockSink> sink;
};

/// Requests all bytes of `stored`. \param to  destination of exactly the same size
WantedBytes want_all(const StoredBytes& stored, const std::string& owner, std::span<std::byte> to);

/// Requests a box of a dense tensor, or of the values of a table, in row-major order.
/// \param box  must be inside the tensor
/// \param to  destination, exactly the size of the box
/// \param wanted  receives the stored bytes that contain elements of the box
void want_box(const StoredTensor& tensor, const Box& box, std::span<std::byte> to,
              std::vector<WantedBytes>& wanted);

/// Requests rows of the values of a table.
/// \param places  for each stored row its row index in `to`, or a negative number if it is not
///                wanted
void want_rows(const StoredTensor& table, std::shared_ptr<const std::vector<int64_t>> places,
               std::span<std::byte> to, std::vector<WantedBytes>& wanted);

/// Requests the row numbers of a table. \param to  must have dims[0] elements
void want_row_numbers(const StoredTensor& table, std::span<int64_t> to,
                      std::vector<WantedBytes>& wanted);
/// Checks that row numbers are below the height of the table. Errors: kInvalidData with the var.
Status check_row_numbers(const StoredTensor& table, std::span<const int64_t> numbers);

/// Requests the rows of a table for which `chosen` returns true, in the order in which they are
/// stored; an empty `chosen` selects all rows.
/// \param numbers  the row numbers of all stored rows
/// \param result  receives numbers, height and memory; the reads in `wanted` fill the memory
/// Errors: kResource.
Status want_chosen_rows(const StoredTensor& table, std::span<const int64_t> numbers,
                        const std::function<bool(int64_t)>& chosen, SelectedRows& result,
                        std::vector<WantedBytes>& wanted);

/// Compares the checksum of a block with that in the manifest.
/// Errors: kInvalidData with tensor, expected and found.
Status compare_block(const StoredBytes& stored, size_t block, const Checksum& found,
                     uint64_t block_bytes, const std::string& owner);

/// kNotFound with the name, and with the most similar name as a hint.
Status no_such_tensor(const Manifest& manifest, std::string_view name);

/// A block to read.
struct BlockRead {
  const WantedBytes* wanted = nullptr;
  size_t index = 0;    ///< index in StoredBytes::blocks
  uint64_t begin = 0;  ///< within the stored bytes
  uint64_t end = 0;

  [[nodiscard]] uint64_t size() const { return end - begin; }
  /// Offset of the first byte in the file.
  [[nodiscard]] uint64_t at() const { return wanted->stored->begin + begin; }
};

/// The blocks that are needed, in file order, which is the fastest order to read them. A block is
/// listed once for each entry of `wanted` that needs it.
/// \param wanted  must outlive the result
std::vector<BlockRead> blocks_of(const std::vector<WantedBytes>& wanted, uint64_t block_bytes);

}  // namespace millrace::io
