#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"
#include "framework/tensor/value.h"
#include "ps/transport/buffer_pool.h"
#include "ps/transport/memory_budget.h"
#include "ps/transport/message.h"

/// Encoding and decoding of messages; the layout is described in proto/ps_service.proto. Used by
/// both transports between processes. Independent of sockets and never blocks.
namespace millrace::ps {

/// Maximum length of the head of a message, which has the names, dims and counts of all its values.
inline constexpr uint64_t kMaxHeadBytes = uint64_t{1} << 20U;
/// Maximum length of the head of a call from a caller that the server does not know yet. Such a
/// call says hello or asks for the status.
inline constexpr uint64_t kMaxUnknownHeadBytes = uint64_t{4} << 10U;
/// Default limit for the bytes after the head.
inline constexpr uint64_t kDefaultMaxPayloadBytes = uint64_t{4} << 30U;

/// An encoded message, ready to be sent.
struct OutgoingMessage {
  std::string head;  ///< first bytes: magic string, length of the head, and the head
  /// The remaining bytes, in order; in memory of the values or of the members below.
  std::vector<std::span<const std::byte>> payload;
  uint64_t payload_bytes = 0;
  /// Memory of parts of the payload.
  std::deque<Tensor> plain;
  std::vector<std::shared_ptr<void>> blocks;

  [[nodiscard]] uint64_t bytes() const { return head.size() + payload_bytes; }
};

/// Encodes a request. Elements are not copied: the message refers to the request's values. Only
/// tensors with a layout private to a library are copied to plain layout.
/// \param timeout_us  how long the caller waits
/// Errors: kInvalidArgument with the name of a value that cannot be sent; kResource if the head is
/// too long or memory is insufficient.
Status encode_request(const Request& request, uint64_t timeout_us, OutgoingMessage& message);

/// Collects the values of a reply in a message that owns its memory.
class ReplyWriter final : public ReplySink {
 public:
  /// \param pool  source of the memory; must outlive the writer, but not the message
  explicit ReplyWriter(BufferPool& pool);
  ~ReplyWriter() override;

  Status put(std::string_view name, const Value& value) override;
  StatusOr<std::byte*> put_room(std::string_view name, DType dtype,
                                llvm::ArrayRef<int64_t> dims) override;
  void set_epoch(uint64_t epoch) override;
  void set_number(int64_t number) override;
  void set_text(std::string text) override;

  /// Returns the message; call it once. If the status is OK, it has the values, else the error.
  OutgoingMessage finish(const Status& status);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Decodes a message as its bytes arrive, in chunks of any size, directly into the memory of its
/// values.
///
/// Every number is checked before memory is allocated for it, and allocated memory is at most four
/// times the bytes received plus 1 MiB. Thread-safety: one thread.
class MessageReader {
 public:
  MessageReader(const MessageReader&) = delete;
  MessageReader& operator=(const MessageReader&) = delete;
  virtual ~MessageReader();

  /// Where to write the next bytes; not empty before done().
  [[nodiscard]] std::span<std::byte> space() const;
  /// Reports that the first `bytes` bytes of space() were written. Errors: kInvalidData for
  /// malformed bytes, kResource above a limit; the reader is unusable afterwards.
  Status filled(size_t bytes);
  /// Copies bytes to their destinations. Errors: as filled(); kInvalidData for bytes after the end.
  Status feed(std::span<const std::byte> bytes);
  [[nodiscard]] bool done() const;
  /// Number of bytes received so far.
  [[nodiscard]] uint64_t received_bytes() const;

 protected:
  MessageReader(BufferPool& pool, uint64_t max_payload_bytes);

  /// Decodes the head and plans, with Impl, how to read the payload.
  virtual Status take_head(std::string_view head) = 0;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// What a message may reserve memory in.
struct MessageGrant {
  /// Of all such messages together. Must outlive the reader. Null: no limit.
  MemoryBudget* total = nullptr;
  /// Of this caller's messages. Null: no limit.
  std::shared_ptr<MemoryBudget> peer;
  /// The announced bytes are not believed: memory is reserved as bytes arrive, and the head is
  /// refused above kMaxUnknownHeadBytes. Else the whole message is reserved at once.
  bool is_unknown = false;
};
/// Decides about a call by its envelope: a request without text and items.
using Admit = std::function<StatusOr<MessageGrant>(const Request& envelope)>;

/// Reads a call on a server. Its values own their memory or use memory of the pool, and may be
/// moved.
class CallReader final : public MessageReader {
 public:
  explicit CallReader(BufferPool& pool, uint64_t max_payload_bytes = kDefaultMaxPayloadBytes);
  ~CallReader() override;

  /// Valid only when done(). Its items refer to the reader.
  [[nodiscard]] const Request& request() const { return request_; }
  [[nodiscard]] uint64_t timeout_us() const { return timeout_us_; }
  /// True once the head has been read; request() then has everything except the values.
  [[nodiscard]] bool has_head() const { return has_head_; }
  /// Sets what decides about the call as soon as its head has arrived, before memory is allocated
  /// for the names and values that the head announces. An error refuses the call. The budgets of
  /// the grant hold reservations until the reader is destroyed. Call it before the first byte.
  void set_admission(Admit admit) { admit_ = std::move(admit); }
  /// Sets the budget in which the head is reserved as its bytes arrive, for callers that are not
  /// known yet. Call it before the first byte; the budget must outlive the reader.
  void reserve_head_in(MemoryBudget& budget);

 private:
  Status take_head(std::string_view head) override;

  Admit admit_;

  Request request_;
  std::vector<Value> values_;
  uint64_t timeout_us_ = 0;
  bool has_head_ = false;
};

/// Reads a response into a Reply; values that have suitable memory are filled in place.
class ReplyReader final : public MessageReader {
 public:
  ReplyReader(BufferPool& pool, Reply& reply, uint64_t max_payload_bytes = kDefaultMaxPayloadBytes);
  ~ReplyReader() override;

  /// Valid only when done(): the status that the server returned.
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  Status take_head(std::string_view head) override;

  Reply& reply_;
  Status status_;
};

}  // namespace millrace::ps
