#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"
#include "kernels/gpu/device.h"

namespace millrace::gpu {

/// Number of copies and bytes between the processor and a device.
struct Traffic {
  int64_t copies_in = 0;   ///< to the device
  int64_t bytes_in = 0;    ///< sum of their sizes
  int64_t copies_out = 0;  ///< to the processor; each waits for the device
  int64_t bytes_out = 0;
};

class Memory;

/// An allocation of device memory, freed when the last tensor that uses it is released.
class Block {
 public:
  Block(std::shared_ptr<Memory> memory, std::byte* data, int64_t bytes)
      : memory_(std::move(memory)), data_(data), bytes_(bytes) {}
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] int64_t bytes() const { return bytes_; }
  [[nodiscard]] Memory& memory() const { return *memory_; }

 private:
  std::shared_ptr<Memory> memory_;  ///< returns the block to it
  std::byte* data_;
  int64_t bytes_;  ///< that were requested
};

/// Tracks which var holds how much device memory, and what was copied. Thread-safety: as Device.
class Memory : public std::enable_shared_from_this<Memory> {
 public:
  explicit Memory(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// \param holder  name of the var, for messages
  /// Errors: kResource; the message has the bytes requested, those in use, and the largest holders.
  StatusOr<std::shared_ptr<Block>> allocate(int64_t bytes, std::string_view holder);

  /// Copies and counts; see Device::copy_in() and copy_out().
  Status copy_in(const std::byte* from, std::byte* to, int64_t bytes);
  Status copy_out(const std::byte* from, std::byte* to, int64_t bytes);

  [[nodiscard]] Device& device() const { return *device_; }
  [[nodiscard]] const Traffic& traffic() const { return traffic_; }
  /// Number of calls of allocate() so far.
  [[nodiscard]] int64_t allocations() const { return allocations_; }
  /// Bytes allocated and not yet released.
  [[nodiscard]] int64_t bytes_in_use() const { return in_use_; }
  /// The largest number of bytes in use at any time so far.
  [[nodiscard]] int64_t peak_bytes() const { return peak_; }

 private:
  friend class Block;
  struct Held {
    int64_t bytes = 0;  ///< of the allocation
    std::string holder;
  };
  void release(std::byte* data);
  /// The vars that hold most memory, for the message of kResource.
  [[nodiscard]] std::string holders_text() const;

  std::shared_ptr<Device> device_;         ///< allocates
  std::map<const std::byte*, Held> held_;  ///< blocks in use, by address
  Traffic traffic_;
  int64_t allocations_ = 0;
  int64_t in_use_ = 0;  ///< bytes
  int64_t peak_ = 0;    ///< largest in_use_ so far
};

}  // namespace millrace::gpu
