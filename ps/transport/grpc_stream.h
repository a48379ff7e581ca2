#pragma once

#include <chrono>
#include <memory>

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include "ps/transport/transport.h"

namespace millrace::ps {

/// A stream to a server. Calls use it one after the other, because creating a stream costs gRPC
/// several times as much as a message. The calling thread does all waiting; every wait is bounded.
/// Thread-safety: one thread at a time; cancel() from any thread.
class CallStream {
 public:
  explicit CallStream(const std::shared_ptr<grpc::ChannelInterface>& channel);
  CallStream(const CallStream&) = delete;
  CallStream& operator=(const CallStream&) = delete;
  /// As finish().
  ~CallStream();

  /// Sends a part after the previous one has been sent. False if the stream has ended, or was ended
  /// at `until`; finish() then returns the reason. A failure to send the last part is detected by
  /// read().
  bool write(const grpc::ByteBuffer& part, Deadline until);
  /// Reads a part. False as for write().
  bool read(grpc::ByteBuffer& part, Deadline until);
  /// Ends the stream if it has not ended, and returns the reason why it did. gRPC then releases the
  /// memory of written parts at once or soon. No other call may follow.
  grpc::Status finish();
  void cancel() { context_.TryCancel(); }

  /// True before the first write.
  [[nodiscard]] bool is_new() const { return !begun_; }
  /// Marks a call as finished. From now on the stream detects when the server ends it.
  void rest();
  /// True if the stream was idle for at most `rested` and can be used again.
  bool is_ready(std::chrono::milliseconds rested);
  [[nodiscard]] const grpc::ClientContext& context() const { return context_; }

 private:
  /// An operation of gRPC; its address is its tag.
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
  bool has_incoming_ = false;  ///< a read was started, and its result was not taken yet
  bool late_ = false;
  bool finished_ = false;
  std::chrono::steady_clock::time_point rests_since_;
};

/// Converts to gRPC's monotonic clock, which changes of the system time do not affect.
gpr_timespec to_gpr(Deadline deadline);

}  // namespace millrace::ps
