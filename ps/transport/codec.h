#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"
#include "framework/tensor/value.h"
#include "ps/transport/buffer_pool.h"
#include "ps/transport/message.h"

/// Messages as bytes and back; the layout is described in proto/ps_service.proto. Both transports
/// that leave the process use it. Nothing here waits or knows of sockets.
namespace millrace::ps {

/// Longest head of a message; names, dims and counts of all its values have to fit.
inline constexpr uint64_t kMaxHeadBytes = uint64_t{1} << 20U;
/// Most bytes behind the head unless an option says otherwise.
inline constexpr uint64_t kDefaultMaxPayloadBytes = uint64_t{4} << 30U;

/// A message that is ready to go out.
struct OutgoingMessage {
  std::string head;  ///< what comes first, the mark and the length of the head included
  /// The rest, in order; lies in memory of the values, or in what is kept below.
  std::vector<std::span<const std::byte>> payload;
  uint64_t payload_bytes = 0;
  /// Memory that parts of the payload lie in.
  std::deque<Tensor> plain;
  std::vector<std::shared_ptr<void>> blocks;

  [[nodiscard]] uint64_t bytes() const { return head.size() + payload_bytes; }
};

/// Puts a request into form. Elements are not copied: the message points into the request's values,
/// but for tensors whose layout is private to a library, of which it makes plain copies.
/// \param timeout_us  how long the caller waits
/// Errors: kInvalidArgument for a value that cannot travel, with its name; kResource if the head
/// gets too long or memory is short.
Status encode_request(const Request& request, uint64_t timeout_us, OutgoingMessage& message);

/// Collects a server's answer as a message of its own memory.
class ReplyWriter final : public ReplySink {
 public:
  /// \param pool  where the memory comes from; outlives the writer, not the message
  explicit ReplyWriter(BufferPool& pool);
  ~ReplyWriter() override;

  Status put(std::string_view name, const Value& value) override;
  StatusOr<std::byte*> put_room(std::string_view name, DType dtype,
                                llvm::ArrayRef<int64_t> dims) override;
  void set_epoch(uint64_t epoch) override;
  void set_number(int64_t number) override;
  void set_text(std::string text) override;

  /// The message, once: what was put where the status is ok, else the status.
  OutgoingMessage finish(const Status& status);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Bounds what the messages that are being received and handled may hold together. Thread-safety:
/// all members.
class MemoryBudget {
 public:
  explicit MemoryBudget(uint64_t bytes) : limit_(bytes) {}
  [[nodiscard]] uint64_t limit() const { return limit_; }
  /// False if so many more are too many.
  bool take(uint64_t bytes);
  void give_back(uint64_t bytes) { used_ -= bytes; }

 private:
  uint64_t limit_;
  std::atomic<uint64_t> used_{0};
};

/// Takes a message apart as its bytes arrive, in pieces of any size, straight into the memory of
/// its values.
///
/// Every number is checked before memory is taken for it, and memory is never more than four times
/// what has arrived and 64 MiB. Thread-safety: one thread.
class MessageReader {
 public:
  MessageReader(const MessageReader&) = delete;
  MessageReader& operator=(const MessageReader&) = delete;
  virtual ~MessageReader();

  /// Where the next bytes belong; not empty before done().
  [[nodiscard]] std::span<std::byte> space() const;
  /// So many bytes of space() were filled. Errors: kInvalidData for bytes that are no message,
  /// kResource above a limit; the reader is of no use afterwards.
  Status filled(size_t bytes);
  /// Copies bytes to where they belong. Errors: as filled(); kInvalidData for bytes behind the end.
  Status feed(std::span<const std::byte> bytes);
  [[nodiscard]] bool done() const;
  /// Bytes so far.
  [[nodiscard]] uint64_t received_bytes() const;
  /// Counts the values there from the moment that the head is read to the reader's end; a message
  /// that does not fit is refused with kResource. Before the first byte; it outlives the reader.
  void set_budget(MemoryBudget& budget);

 protected:
  MessageReader(BufferPool& pool, uint64_t max_payload_bytes);

  /// Takes the head apart and plans, with Impl, what is behind it.
  virtual Status take_head(std::string_view head) = 0;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A call on its way into a server. The values lie in memory of the pool or of their own, and may
/// be moved away.
class CallReader final : public MessageReader {
 public:
  explicit CallReader(BufferPool& pool, uint64_t max_payload_bytes = kDefaultMaxPayloadBytes);
  ~CallReader() override;

  /// Only when done(). Its items point into the reader.
  [[nodiscard]] const Request& request() const { return request_; }
  [[nodiscard]] uint64_t timeout_us() const { return timeout_us_; }
  /// True once the head has been read; then request() has all but the values.
  [[nodiscard]] bool has_head() const { return has_head_; }

 private:
  Status take_head(std::string_view head) override;

  Request request_;
  std::vector<Value> values_;
  uint64_t timeout_us_ = 0;
  bool has_head_ = false;
};

/// An answer on its way into a Reply, whose values are filled in place where they have the memory.
class ReplyReader final : public MessageReader {
 public:
  ReplyReader(BufferPool& pool, Reply& reply, uint64_t max_payload_bytes = kDefaultMaxPayloadBytes);
  ~ReplyReader() override;

  /// Only when done(): what the server says.
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  Status take_head(std::string_view head) override;

  Reply& reply_;
  Status status_;
};

}  // namespace millrace::ps
