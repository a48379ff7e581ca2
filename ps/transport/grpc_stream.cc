#include "ps/transport/grpc_stream.h"

#include <grpc/support/time.h>
#include <grpcpp/channel.h>

#include "ps/transport/grpc_parts.h"

namespace millrace::ps {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

gpr_timespec to_gpr(Deadline deadline) {
  if (deadline == Deadline::max()) return gpr_inf_future(GPR_CLOCK_MONOTONIC);
  const auto left = std::chrono::duration_cast<std::chrono::microseconds>(deadline - Clock::now());
  // gRPC would round up to a whole millisecond and wait.
  if (left.count() <= 0) return gpr_inf_past(GPR_CLOCK_MONOTONIC);
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_micros(left.count(), GPR_TIMESPAN));
}

CallStream::CallStream(const std::shared_ptr<grpc::ChannelInterface>& channel) {
  // Sends the initial metadata together with the first part.
  context_.set_initial_metadata_corked(true);
  grpc::GenericStub stub(channel);
  stream_ = stub.PrepareCall(&context_, kCallMethod, &queue_);
  stream_->StartCall(nullptr);
}

CallStream::~CallStream() {
  finish();
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

// Processes one finished operation. False if none finished until then.
bool CallStream::take_event(Deadline until) {
  void* tag = nullptr;
  bool ok = false;
  if (queue_.AsyncNext(&tag, &ok, to_gpr(until)) != grpc::CompletionQueue::GOT_EVENT) return false;
  auto& operation = *static_cast<Operation*>(tag);
  operation.under_way = false;
  operation.succeeded = ok;
  return true;
}

// After the deadline, cancels the stream, so that the operation finishes soon.
void CallStream::wait(const Operation& operation, Deadline until) {
  while (operation.under_way) {
    if (take_event(until)) continue;
    late_ = true;
    cancel();
    until = Deadline::max();
  }
}

void CallStream::start_read() {
  read_.under_way = true;
  has_incoming_ = true;
  stream_->Read(&incoming_, &read_);
}

bool CallStream::write(const grpc::ByteBuffer& part, Deadline until) {
  wait(write_, until);
  if (begun_ && !write_.succeeded) return false;
  begun_ = true;
  write_.under_way = true;
  stream_->Write(part, &write_);
  return true;
}

bool CallStream::read(grpc::ByteBuffer& part, Deadline until) {
  if (!has_incoming_) start_read();
  wait(read_, until);
  if (!read_.succeeded) return false;
  part.Swap(&incoming_);
  has_incoming_ = false;
  return true;
}

grpc::Status CallStream::finish() {
  grpc::Status status;
  if (!begun_ || finished_) return status;
  finished_ = true;
  const bool has_ended = has_incoming_ && !read_.under_way && !read_.succeeded;
  if (!has_ended) cancel();
  wait(write_, Deadline::max());
  wait(read_, Deadline::max());
  finish_.under_way = true;
  stream_->Finish(&status, &finish_);
  wait(finish_, Deadline::max());
  if (late_) return {grpc::StatusCode::DEADLINE_EXCEEDED, "the deadline has passed"};
  return status;
}

void CallStream::rest() {
  rests_since_ = Clock::now();
  start_read();
}

bool CallStream::is_ready(std::chrono::milliseconds rested) {
  if (Clock::now() - rests_since_ > rested) return false;
  while (take_event(Clock::now())) {
  }
  return read_.under_way && !write_.under_way;
}

}  // namespace millrace::ps
