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

/// Which blocks of the data files a load needs, and where their bytes go.
namespace millrace::io {

/// Takes the bytes of some StoredBytes, block by block. Offsets count from their begin.
/// Thread-safety: blocks may come from several threads, each once.
class BlockSink {
 public:
  BlockSink() = default;
  BlockSink(const BlockSink&) = delete;
  BlockSink& operator=(const BlockSink&) = delete;
  virtual ~BlockSink();

  /// False if nothing of these bytes is wanted.
  [[nodiscard]] virtual bool wants(uint64_t begin, uint64_t end) const = 0;
  /// Memory that the bytes go to in one piece, as long as they are; empty if there is none, and
  /// take() must be called.
  [[nodiscard]] virtual std::span<std::byte> place(uint64_t begin, uint64_t end) const = 0;
  /// Copies what is wanted of them.
  virtual void take(uint64_t begin, std::span<const std::byte> bytes) const = 0;
};

/// Stored bytes that somebody wants some of.
struct WantedBytes {
  const StoredBytes* stored = nullptr;
  const std::string* owner = nullptr;  ///< tensor or record, for messages
  std::unique_ptr<BlockSink> sink;
};

/// All of them, in order. \param to  exactly as long
WantedBytes want_all(const StoredBytes& stored, const std::string& owner, std::span<std::byte> to);

/// A part of a dense tensor or of the values of a table, row-major. \param box  inside the tensor
/// \param to   exactly as long as the box  \param wanted  gets what has elements of the box
void want_box(const StoredTensor& tensor, const Box& box, std::span<std::byte> to,
              std::vector<WantedBytes>& wanted);

/// Rows of the values of a table.
/// \param places  for each stored row its place in `to`, or a negative number
void want_rows(const StoredTensor& table, std::shared_ptr<const std::vector<int64_t>> places,
               std::span<std::byte> to, std::vector<WantedBytes>& wanted);

/// The row numbers of a table. \param to  as many as dims[0]
void want_row_numbers(const StoredTensor& table, std::span<int64_t> to,
                      std::vector<WantedBytes>& wanted);
/// Errors: kInvalidData with the var for a number out of the table.
Status check_row_numbers(const StoredTensor& table, std::span<const int64_t> numbers);

/// The rows of a table for which `chosen` says so, in the order in which they are stored; an empty
/// `chosen` takes all. \param numbers  of all rows \param result  gets numbers, height and memory,
/// which `wanted` fills. Errors: kResource.
Status want_chosen_rows(const StoredTensor& table, std::span<const int64_t> numbers,
                        const std::function<bool(int64_t)>& chosen, SelectedRows& result,
                        std::vector<WantedBytes>& wanted);

/// Compares the checksum of a block with that of the manifest.
/// Errors: kInvalidData with tensor, expected and found.
Status compare_block(const StoredBytes& stored, size_t block, const Checksum& found,
                     uint64_t block_bytes, const std::string& owner);

/// kNotFound with the name, and with the one that is nearest to it as a hint.
Status no_such_tensor(const Manifest& manifest, std::string_view name);

/// A block that is to be read.
struct BlockRead {
  const WantedBytes* wanted = nullptr;
  size_t index = 0;    ///< in StoredBytes::blocks
  uint64_t begin = 0;  ///< within the stored bytes
  uint64_t end = 0;

  [[nodiscard]] uint64_t size() const { return end - begin; }
  /// First byte, from the start of the file.
  [[nodiscard]] uint64_t at() const { return wanted->stored->begin + begin; }
};

/// The blocks that are needed, as they follow each other in the files, which is the order in which
/// disks give them fastest. A block is listed once for each of `wanted` that needs it.
/// \param wanted  must outlive the result
std::vector<BlockRead> blocks_of(const std::vector<WantedBytes>& wanted, uint64_t block_bytes);

}  // namespace millrace::io
