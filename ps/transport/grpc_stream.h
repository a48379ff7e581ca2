#pragma once

#include <chrono>
#include <memory>

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include "ps/transport/transport.h"

namespace millrace::ps {

/// A stream to a server. Calls travel on it one after the other: making a stream costs gRPC several
/// times as much as a message. Waiting is done by the thread that calls; every wait has an end.
/// Thread-safety: one thread at a time; cancel() from any.
class CallStream {
 public:
  explicit CallStream(const std::shared_ptr<grpc::ChannelInterface>& channel);
  CallStream(const CallStream&) = delete;
  CallStream& operator=(const CallStream&) = delete;
  /// As finish().
  ~CallStream();

  /// Sends a part once the one before it has left. False if the stream has ended, or did at
  /// `until`; then finish() says why. That the last part does not leave is for read() to notice.
  bool write(const grpc::ByteBuffer& part, Deadline until);
  /// False likewise.
  bool read(grpc::ByteBuffer& part, Deadline until);
  /// Ends it, where it has not ended, and says why it did. gRPC holds nothing of what was written
  /// any more, or soon will not. Nothing may follow.
  grpc::Status finish();
  void cancel() { context_.TryCancel(); }

  /// Before the first write.
  [[nodiscard]] bool is_new() const { return !begun_; }
  /// A call is over. From here on the end of the stream, which the server may decide, is noticed.
  void rest();
  /// True if it has rested so long at most and may be used again.
  bool is_ready(std::chrono::milliseconds rested);
  [[nodiscard]] const grpc::ClientContext& context() const { return context_; }

 private:
  /// An operation of gRPC, whose address is its tag.
  struct Operation {
    bool under_way = false;
    bool succeeded = false;
  };
  void start_read();
  void wait(const Operation& operation, Deadline until);
  bool take_event(Deadline until);

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  grpc::ByteBuffer incoming_;
  Operation write_;
  Operation read_;
  Operation finish_;
  bool begun_ = false;
  bool has_incoming_ = false;  ///< a read was started, and nobody has taken what it gave
  bool late_ = false;
  bool finished_ = false;
  std::chrono::steady_clock::time_point rests_since_;
};

/// On gRPC's monotonic clock, which steps of the system's time do not touch.
gpr_timespec to_gpr(Deadline deadline);

}  // namespace millrace::ps
