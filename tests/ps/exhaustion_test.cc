// Servers whose threads, descriptors or memory run out, and peers that would have them run out: the
// server refuses the newest and goes on.

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>

#include "framework/base/errors.h"
#include "ps/transport/admission.h"
#include "ps/transport/grpc.h"
#include "ps/transport/tcp.h"
#include "tests/ps/raw_socket.h"
#include "tests/ps/wire_values.h"

namespace millrace::ps {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::RawSocket;
using ::testing::HasSubstr;

// Knows trainer 1, and trainer 2 after its hello.
class Members final : public Handler {
 public:
  Status handle(const Request& request, Deadline, ReplySink& reply) override {
    if (request.method == Method::kHello && request.caller.trainer == 2) greeted_ = true;
    reply.set_number(1);
    return Ok();
  }
  StatusOr<bool> knows(const Request& envelope) const override {
    const int trainer = envelope.caller.trainer;
    if (trainer == 3) return InvalidArgument("trainer 3 is refused");
    return trainer == 1 || (trainer == 2 && greeted_);
  }

 private:
  std::atomic<bool> greeted_ = false;
};

Deadline in_exhaustion(milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

Request request_of(int trainer, size_t text, Method method = Method::kSend) {
  Request request;
  request.method = method;
  request.caller.trainer = trainer;
  request.text = std::string(text, 'x');
  return request;
}

// The first bytes of a call; the text is not sent.
std::string head_of(const Request& request) {
  OutgoingMessage message;
  EXPECT_TRUE(encode_request(request, 1000000, message).ok());
  return message.head;
}

// A server by TCP, and calls to it.
class Exhaustion : public ::testing::Test {
 protected:
  void listen(const GrpcOptions& options) {
    transport_ = std::move(make_tcp_transport(options)).value();
    listener_ = std::move(transport_->listen("127.0.0.1:0", members_)).value();
  }
  Status call(const Request& request) {
    const auto channel = std::move(transport_->connect(listener_->endpoint())).value();
    Reply reply;
    return channel->call(request, in_exhaustion(seconds(30)), reply);
  }
  [[nodiscard]] const std::string& endpoint() const { return listener_->endpoint(); }
  // Sends a byte now and then. True if the server ends that in time.
  [[nodiscard]] static bool ends_drip(const RawSocket& peer) {
    for (int i = 0; i < 600; ++i) {
      peer.send("x");
      if (peer.closed_within(50)) return true;
    }
    return false;
  }

  Members members_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Listener> listener_;
};

TEST_F(Exhaustion, SilentPeersDoNotKeepOthersOut) {
  GrpcOptions options;
  options.max_unknown_connections = 4;
  options.handshake_timeout = seconds(60);
  listen(options);
  std::vector<std::unique_ptr<RawSocket>> silent;
  for (int i = 0; i < 16; ++i) silent.push_back(std::make_unique<RawSocket>(endpoint()));
  for (int i = 0; i < 3; ++i) {
    const Status status = call(request_of(1, 100000));
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  EXPECT_TRUE(silent.front()->closed_within(10000));
}

TEST_F(Exhaustion, KnownConnectionsStay) {
  GrpcOptions options;
  options.max_unknown_connections = 2;
  listen(options);
  const auto channel = std::move(transport_->connect(endpoint())).value();
  Reply reply;
  const Request hello = request_of(2, 0, Method::kHello);
  ASSERT_TRUE(channel->call(hello, in_exhaustion(seconds(30)), reply).ok());
  std::vector<std::unique_ptr<RawSocket>> silent;
  for (int i = 0; i < 8; ++i) silent.push_back(std::make_unique<RawSocket>(endpoint()));
  EXPECT_TRUE(silent.front()->closed_within(10000));
  // on the connection of the hello, and larger than an unknown caller's call may be
  const Request large = request_of(2, size_t{20} << 20U);
  const Status status = channel->call(large, in_exhaustion(seconds(30)), reply);
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST_F(Exhaustion, UnknownCallersShareASmallBudget) {
  GrpcOptions options;
  options.max_unknown_bytes = uint64_t{1} << 20U;
  options.handshake_timeout = seconds(60);
  listen(options);
  const Status refused = call(request_of(0, size_t{2} << 20U));
  EXPECT_EQ(refused.code(), StatusCode::kResource) << refused.to_string();
  EXPECT_THAT(refused.message(), HasSubstr("callers that have not said hello would hold more"));
  // what is announced takes nothing from the budget
  std::vector<std::unique_ptr<RawSocket>> waiting;
  for (int i = 0; i < 8; ++i) {
    waiting.push_back(std::make_unique<RawSocket>(endpoint()));
    waiting.back()->send(head_of(request_of(0, 1000000)));
  }
  const Status hello = call(request_of(0, 100000, Method::kHello));
  EXPECT_TRUE(hello.ok()) << hello.to_string();
  EXPECT_TRUE(call(request_of(1, size_t{8} << 20U)).ok());
}

TEST_F(Exhaustion, HeadsOfUnknownCallersAreShort) {
  listen({});
  Request request = request_of(0, 0);
  for (int i = 0; i < 1000; ++i) request.items.push_back({"gradient", nullptr, nullptr});
  const Status refused = call(request);
  EXPECT_EQ(refused.code(), StatusCode::kResource) << refused.to_string();
  EXPECT_THAT(refused.message(), HasSubstr("a caller that has not said hello sends a head"));
  request.caller.trainer = 1;
  EXPECT_TRUE(call(request).ok());
  request.caller.trainer = 3;
  EXPECT_THAT(call(request).message(), HasSubstr("trainer 3 is refused"));
}

TEST_F(Exhaustion, OneTrainerHasALimit) {
  GrpcOptions options;
  options.max_bytes_per_peer = 1000;
  listen(options);
  const Status refused = call(request_of(1, 2000));
  EXPECT_EQ(refused.code(), StatusCode::kResource) << refused.to_string();
  EXPECT_THAT(refused.message(), HasSubstr("the calls of trainer 1 would hold more than 1000"));
  EXPECT_TRUE(call(request_of(1, 900)).ok());
}

TEST_F(Exhaustion, PeersThatDripAreDropped) {
  GrpcOptions options;
  options.handshake_timeout = milliseconds(300);
  options.stall_timeout = milliseconds(300);
  listen(options);
  const RawSocket unknown(endpoint());
  unknown.send(std::string("MLR1\xe8\x03\0\0", 8));
  EXPECT_TRUE(ends_drip(unknown)) << "within a head";
  const RawSocket known(endpoint());
  known.send(head_of(request_of(1, 1000000)));
  EXPECT_TRUE(ends_drip(known)) << "within a payload";
  EXPECT_TRUE(call(request_of(1, 1000)).ok());
}

TEST_F(Exhaustion, WithoutThreadsOnlyNewConnectionsFail) {
  listen({});
  const auto channel = std::move(transport_->connect(endpoint())).value();
  Reply reply;
  ASSERT_TRUE(channel->call(request_of(1, 10), in_exhaustion(seconds(30)), reply).ok());
  pthread_attr_t usual{};
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  pthread_attr_t huge{};
  ASSERT_EQ(pthread_attr_init(&huge), 0);
  // no address space has room for such a stack
  ASSERT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 60U), 0);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  const RawSocket refused(endpoint());
  EXPECT_TRUE(refused.closed_within(10000));
  EXPECT_FALSE(transport_->listen("127.0.0.1:0", members_).ok());
  EXPECT_TRUE(channel->call(request_of(1, 10), in_exhaustion(seconds(30)), reply).ok());
  ASSERT_EQ(pthread_setattr_default_np(&usual), 0);
  EXPECT_TRUE(call(request_of(1, 10)).ok());
  pthread_attr_destroy(&huge);
  pthread_attr_destroy(&usual);
}

TEST_F(Exhaustion, WithoutDescriptorsTheServerWaits) {
  listen({});
  const auto channel = std::move(transport_->connect(endpoint())).value();
  Reply reply;
  ASSERT_TRUE(channel->call(request_of(1, 10), in_exhaustion(seconds(30)), reply).ok());
  rlimit usual{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &usual), 0);
  // the acceptor already has the descriptor of the first
  const auto taken = std::make_unique<RawSocket>(endpoint());
  rlimit none = usual;
  none.rlim_cur = 3;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_TRUE(channel->call(request_of(1, 10), in_exhaustion(seconds(30)), reply).ok());
  EXPECT_FALSE(transport_->listen("127.0.0.1:0", members_).ok());
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &usual), 0);
  EXPECT_TRUE(call(request_of(1, 10)).ok());
}

TEST(Admission, BudgetsGiveBackWhatCallsHeld) {
  Members members;
  GrpcOptions options;
  options.max_bytes_per_peer = 100;
  Admission admission(options, members);
  for (int i = 0; i < 3; ++i) {
    MessageGrant grant = std::move(admission.admit(request_of(1, 0))).value();
    EXPECT_FALSE(grant.is_unknown);
    Reservation held(grant.peer);
    EXPECT_TRUE(held.add(60).ok());
    EXPECT_FALSE(held.add(60).ok());
    Reservation moved = std::move(held);
    EXPECT_TRUE(moved.add(40).ok());
  }
  EXPECT_TRUE(std::move(admission.admit(request_of(0, 0))).value().is_unknown);
}

}  // namespace
}  // namespace millrace::ps
