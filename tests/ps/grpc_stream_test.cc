// Calls over gRPC share streams: one after another on the same stream, and no stream stays open
// forever.

#include <atomic>
#include <thread>

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "ps/transport/codec.h"
#include "ps/transport/grpc.h"

namespace millrace::ps {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kMethod = "/millrace.PsService/Call";

grpc::ByteBuffer bytes_of(const OutgoingMessage& message) {
  std::string all = message.head;
  for (const std::span<const std::byte> piece : message.payload)
    all.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  const grpc::Slice slice(all);
  return {&slice, 1};
}

std::unique_ptr<Transport> transport() {
  StatusOr<std::unique_ptr<Transport>> made = make_grpc_transport({});
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return std::move(made).value();
}

Status call(Channel& channel, Reply& reply) {
  Request request;
  request.method = Method::kWatch;
  return channel.call(request, std::chrono::steady_clock::now() + seconds(20), reply);
}

// A client with direct access to the stream, such as one in another language.
class RawStream {
 public:
  explicit RawStream(const std::string& endpoint)
      : stub_(grpc::CreateChannel(endpoint, grpc::InsecureChannelCredentials())),
        stream_(stub_.PrepareCall(&context_, kMethod, &queue_)) {
    stream_->StartCall(this);
    EXPECT_TRUE(next());
  }
  RawStream(const RawStream&) = delete;
  RawStream& operator=(const RawStream&) = delete;
  ~RawStream() {
    queue_.Shutdown();
    while (next()) {
    }
  }

  void write(bool is_last) {
    Request request;
    request.method = Method::kWatch;
    OutgoingMessage message;
    ASSERT_TRUE(encode_request(request, 1'000'000, message).ok());
    if (is_last) {
      stream_->WriteLast(bytes_of(message), {}, this);
    } else {
      stream_->Write(bytes_of(message), this);
    }
    next();
  }
  void write_nothing_more() {
    stream_->WritesDone(this);
    next();
  }
  // The number of the next reply; -1 if the stream has ended.
  int64_t read() {
    grpc::ByteBuffer part;
    stream_->Read(&part, this);
    if (!next()) return -1;
    std::vector<grpc::Slice> slices;
    EXPECT_TRUE(part.Dump(&slices).ok());
    BufferPool pool;
    Reply reply;
    ReplyReader reader(pool, reply);
    for (const grpc::Slice& slice : slices)
      EXPECT_TRUE(reader.feed(std::as_bytes(std::span(slice.begin(), slice.size()))).ok());
    EXPECT_TRUE(reader.done() && reader.status().ok());
    return reply.number;
  }
  grpc::StatusCode finish() {
    grpc::Status status;
    stream_->Finish(&status, this);
    EXPECT_TRUE(next());
    return status.error_code();
  }

 private:
  bool next() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  grpc::GenericStub stub_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
};

class Counter final : public Handler {
 public:
  Status handle(const Request&, Deadline, ReplySink& reply) override {
    reply.set_number(++calls_);
    return Ok();
  }

 private:
  std::atomic<int64_t> calls_{0};
};

TEST(GrpcStreams, ServeCallsInTurn) {
  Counter counter;
  const auto listener = std::move(transport()->listen("127.0.0.1:0", counter)).value();
  RawStream stream(listener->endpoint());
  for (int64_t i = 1; i <= 3; ++i) {
    stream.write(false);
    EXPECT_EQ(stream.read(), i);
  }
  stream.write_nothing_more();
  EXPECT_EQ(stream.read(), -1);
  EXPECT_EQ(stream.finish(), grpc::StatusCode::OK);
}

TEST(GrpcStreams, MayCarryOneCallOnly) {
  Counter counter;
  const auto listener = std::move(transport()->listen("127.0.0.1:0", counter)).value();
  RawStream stream(listener->endpoint());
  stream.write(true);
  EXPECT_EQ(stream.read(), 1);
  EXPECT_EQ(stream.read(), -1);
  EXPECT_EQ(stream.finish(), grpc::StatusCode::OK);
}

TEST(GrpcStreams, EndWhenTheyHaveRestedForLong) {
  Counter counter;
  const auto listener = std::move(transport()->listen("127.0.0.1:0", counter)).value();
  RawStream stream(listener->endpoint());
  stream.write(false);
  EXPECT_EQ(stream.read(), 1);
  EXPECT_EQ(stream.read(), -1);
  EXPECT_EQ(stream.finish(), grpc::StatusCode::CANCELLED);
}

// A server that responds to every message and counts streams.
class StreamCounter final : public grpc::CallbackGenericService {
 public:
  explicit StreamCounter(int calls_a_stream) : calls_a_stream_(calls_a_stream) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
  }
  [[nodiscard]] std::string endpoint() const { return "127.0.0.1:" + std::to_string(port_); }
  [[nodiscard]] int streams() const { return streams_; }

 private:
  class Reactor final : public grpc::ServerGenericBidiReactor {
   public:
    explicit Reactor(int calls) : calls_(calls) { StartRead(&part_); }
    void OnReadDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::OK);
      BufferPool pool;
      part_ = bytes_of(ReplyWriter(pool).finish(Ok()));
      StartWrite(&part_);
    }
    void OnWriteDone(bool) override {
      if (--calls_ == 0) return Finish(grpc::Status::OK);
      StartRead(&part_);
    }
    void OnDone() override { delete this; }

   private:
    int calls_;
    grpc::ByteBuffer part_;
  };
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    ++streams_;
    return new Reactor(calls_a_stream_);
  }

  int calls_a_stream_;
  int port_ = 0;
  std::atomic<int> streams_{0};
  std::unique_ptr<grpc::Server> server_;
};

TEST(GrpcStreams, AreUsedAgain) {
  StreamCounter server(1000);
  const auto channel = std::move(transport()->connect(server.endpoint())).value();
  Reply reply;
  for (int i = 0; i < 50; ++i) {
    const Status status = call(*channel, reply);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  EXPECT_LT(server.streams(), 50);  // one, unless a second passes between two calls: a busy machine
}

TEST(GrpcStreams, AreNotUsedAgainAfterASecond) {
  StreamCounter server(1000);
  const auto channel = std::move(transport()->connect(server.endpoint())).value();
  Reply reply;
  ASSERT_TRUE(call(*channel, reply).ok());
  std::this_thread::sleep_for(milliseconds(1100));
  ASSERT_TRUE(call(*channel, reply).ok());
  EXPECT_EQ(server.streams(), 2);
}

// The behaviour of servers before they kept streams.
TEST(GrpcStreams, ThatTheServerEndsAreReplaced) {
  StreamCounter server(1);
  const auto channel = std::move(transport()->connect(server.endpoint())).value();
  Reply reply;
  for (int i = 0; i < 3; ++i) {
    const Status status = call(*channel, reply);
    ASSERT_TRUE(status.ok()) << status.to_string();
    std::this_thread::sleep_for(milliseconds(300));
  }
  EXPECT_EQ(server.streams(), 3);
}

}  // namespace
}  // namespace millrace::ps
