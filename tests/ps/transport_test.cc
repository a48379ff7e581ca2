// The guarantees of every transport, tested for each of them.

#include "ps/transport/transport.h"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ps/transport/grpc.h"
#include "ps/transport/inproc.h"
#include "ps/transport/tcp.h"
#include "ps/transport/wire.h"
#include "tests/ps/wire_values.h"

namespace millrace::ps {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::all_kinds;
using test::expect_same;
using test::floats;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Deadline in_transport(milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

// Returns a configured response.
class TestHandler final : public Handler {
 public:
  using Answer = std::function<Status(const Request&, Deadline, ReplySink&)>;
  explicit TestHandler(Answer answer) : answer_(std::move(answer)) {}
  Status handle(const Request& request, Deadline deadline, ReplySink& reply) override {
    return answer_(request, deadline, reply);
  }

 private:
  Answer answer_;
};

// Sends all arguments back.
Status echo(const Request& request, Deadline, ReplySink& reply) {
  reply.set_epoch(request.epoch + 1);
  reply.set_number(request.number);
  reply.set_text(request.text);
  for (const RequestItem& item : request.items) {
    const Value nothing;
    MILLRACE_RETURN_IF_ERROR(reply.put(item.name, item.value == nullptr ? nothing : *item.value));
  }
  return Ok();
}

// A barrier at which calls wait, identified by its text.
class Gate {
 public:
  Status wait(size_t arrivals, Deadline deadline) {
    std::unique_lock<std::mutex> lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    if (changed_.wait_until(lock, deadline, [&] { return arrived_ >= arrivals; })) return Ok();
    return {StatusCode::kDistributed, "trainer 7 has not arrived"};
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t arrived_ = 0;
};

StatusOr<std::unique_ptr<Transport>> make_inproc() {
  return std::unique_ptr<Transport>(std::make_unique<InprocTransport>());
}

struct TransportTestKind {
  const char* name;
  StatusOr<std::unique_ptr<Transport>> (*make)();
  const char* endpoint;
};

class TransportTest : public ::testing::TestWithParam<TransportTestKind> {
 protected:
  void SetUp() override {
    StatusOr<std::unique_ptr<Transport>> made = GetParam().make();
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    transport_ = std::move(made).value();
  }
  std::unique_ptr<Listener> listen(Handler& handler) {
    StatusOr<std::unique_ptr<Listener>> listener = transport_->listen(GetParam().endpoint, handler);
    EXPECT_TRUE(listener.ok()) << listener.status().to_string();
    return std::move(listener).value();
  }
  std::shared_ptr<Channel> connect(const std::string& endpoint) {
    return std::move(transport_->connect(endpoint)).value();
  }
  std::unique_ptr<Transport> transport_;
};

TEST_P(TransportTest, ValuesGoThereAndBack) {
  TestHandler handler(echo);
  const auto listener = listen(handler);
  const auto channel = connect(listener->endpoint());
  EXPECT_EQ(channel->endpoint(), listener->endpoint());
  const auto values = all_kinds();
  Request request;
  request.epoch = 4;
  request.number = 5;
  request.text = "text";
  for (const auto& [name, value] : values) request.items.push_back({name, &value, nullptr});
  Reply reply;
  for (int round = 0; round < 2; ++round) {  // the second round reuses the memory of the first
    const Status status = channel->call(request, in_transport(seconds(20)), reply);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(reply.epoch, 5U);
    EXPECT_EQ(reply.number, 5);
    EXPECT_EQ(reply.text, "text");
    ASSERT_EQ(reply.values.size(), values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      SCOPED_TRACE(values[i].first);
      EXPECT_EQ(reply.names[i], values[i].first);
      expect_same(reply.values[i], values[i].second);
    }
  }
}

TEST_P(TransportTest, LargeValuesLandInTheCallersMemory) {
  TestHandler handler(echo);
  const auto listener = listen(handler);
  const auto channel = connect(listener->endpoint());
  const Value value = test::tensor_value(test::make_tensor(DType::kInt8, {(20 << 20) + 7}));
  Request request;
  request.items.push_back({"big", &value, nullptr});
  Reply reply;
  reply.values.push_back(test::tensor_value(test::make_tensor(DType::kInt8, {(20 << 20) + 7}, 9)));
  const std::byte* const memory = reply.values[0].get_if<Tensor>()->raw();
  const Status status = channel->call(request, in_transport(seconds(20)), reply);
  ASSERT_TRUE(status.ok()) << status.to_string();
  expect_same(reply.values[0], value);
  EXPECT_EQ(reply.values[0].get_if<Tensor>()->raw(), memory);
}

TEST_P(TransportTest, ErrorsComeBackWhole) {
  TestHandler handler([](const Request& request, Deadline, ReplySink&) {
    Location place;
    place.var = request.items[0].name;
    return Status(StatusCode::kNotFound, "there is no such var")
        .at(place)
        .with_hint("look elsewhere")
        .with_note("in the test");
  });
  const auto listener = listen(handler);
  const auto channel = connect(listener->endpoint());
  Request request;
  request.method = Method::kGet;
  request.items.push_back({"w", nullptr, nullptr});
  Reply reply;
  const Status status = channel->call(request, in_transport(seconds(20)), reply);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "there is no such var");
  EXPECT_EQ(status.location().var, "w");
  EXPECT_EQ(status.hint(), "look elsewhere");
  ASSERT_GE(status.notes().size(), 2U);
  EXPECT_EQ(status.notes()[0], "in the test");
  EXPECT_THAT(status.notes().back(), HasSubstr(listener->endpoint()));
}

TEST_P(TransportTest, DeadlinePassesWithTheServersWord) {
  Gate gate;
  TestHandler handler(
      [&](const Request&, Deadline deadline, ReplySink&) { return gate.wait(1000, deadline); });
  const auto listener = listen(handler);
  const auto channel = connect(listener->endpoint());
  Reply reply;
  const auto begin = std::chrono::steady_clock::now();
  const Status status = channel->call(Request(), in_transport(milliseconds(300)), reply);
  EXPECT_EQ(status.code(), StatusCode::kDistributed);
  EXPECT_THAT(status.message(), HasSubstr("trainer 7 has not arrived"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(5));
}

TEST_P(TransportTest, ManyCallsMayWaitForEachOther) {
  constexpr size_t kCallers = 100;
  Gate gate;
  TestHandler handler(
      [&](const Request&, Deadline deadline, ReplySink&) { return gate.wait(kCallers, deadline); });
  const auto listener = listen(handler);
  const auto channel = connect(listener->endpoint());
  std::atomic<size_t> done = 0;
  std::vector<std::thread> callers;
  for (size_t i = 0; i < kCallers; ++i) {
    callers.emplace_back([&] {
      Reply reply;
      const Status status = channel->call(Request(), in_transport(seconds(60)), reply);
      EXPECT_TRUE(status.ok()) << status.to_string();
      ++done;
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(done, kCallers);
}

TEST_P(TransportTest, CallsAtOnceKeepApart) {
  TestHandler handler(echo);
  const auto listener = listen(handler);
  std::vector<std::thread> callers;
  const auto shared = connect(listener->endpoint());
  for (int t = 0; t < 8; ++t) {
    callers.emplace_back([&, t] {
      const auto channel = t % 2 == 0 ? shared : connect(listener->endpoint());
      Reply reply;
      for (int i = 0; i < 25; ++i) {
        const Value value = test::tensor_value(
            test::make_tensor(DType::kInt8, {1 + i * 20000 * (t % 3)}, static_cast<uint8_t>(t)));
        Request request;
        request.number = t * 1000 + i;
        request.items.push_back({"x", &value, nullptr});
        const Status status = channel->call(request, in_transport(seconds(60)), reply);
        ASSERT_TRUE(status.ok()) << status.to_string();
        ASSERT_EQ(reply.number, t * 1000 + i);
        expect_same(reply.values[0], value);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST_P(TransportTest, ReceiversMayTakeValuesAway) {
  Value taken;
  TestHandler handler([&](const Request& request, Deadline, ReplySink&) {
    if (request.items[0].movable != nullptr) {
      taken = std::move(*request.items[0].movable);
      return Ok();
    }
    StatusOr<Value> copy = clone(*request.items[0].value);
    if (copy.ok()) taken = std::move(copy).value();
    return copy.status();
  });
  const auto listener = listen(handler);
  const auto channel = connect(listener->endpoint());
  const Value value = test::tensor_value(test::make_tensor(DType::kFloat32, {100000}));
  Request request;
  request.items.push_back({"x", &value, nullptr});
  Reply reply;
  ASSERT_TRUE(channel->call(request, in_transport(seconds(20)), reply).ok());
  expect_same(taken, value);
}

TEST_P(TransportTest, CallsWaitForTheServerToCome) {
  // A port that was free a moment ago.
  std::string endpoint;
  {
    TestHandler handler(echo);
    endpoint = listen(handler)->endpoint();
  }
  const auto channel = connect(endpoint);
  Status status;
  std::thread caller([&] {
    Reply reply;
    status = channel->call(Request(), in_transport(seconds(30)), reply);
  });
  std::this_thread::sleep_for(milliseconds(200));
  TestHandler handler(echo);
  const auto listener = transport_->listen(endpoint, handler);
  ASSERT_TRUE(listener.ok()) << listener.status().to_string();
  caller.join();
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST_P(TransportTest, NobodyThereIsAnErrorAtTheDeadline) {
  std::string endpoint;
  {
    TestHandler handler(echo);
    endpoint = listen(handler)->endpoint();
  }
  const auto channel = connect(endpoint);
  Reply reply;
  const auto begin = std::chrono::steady_clock::now();
  const Status status = channel->call(Request(), in_transport(milliseconds(400)), reply);
  EXPECT_EQ(status.code(), StatusCode::kDistributed);
  EXPECT_THAT(status.to_string(), HasSubstr(endpoint));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(5));
}

TEST_P(TransportTest, AnEndingListenerEndsItsCalls) {
  Gate gate;
  std::atomic<bool> inside = false;
  TestHandler handler([&](const Request&, Deadline deadline, ReplySink&) {
    inside = true;
    return gate.wait(1000, std::min(deadline, in_transport(milliseconds(3000))));
  });
  auto listener = listen(handler);
  const auto channel = connect(listener->endpoint());
  Status status;
  std::chrono::steady_clock::time_point end;
  std::thread caller([&] {
    Reply reply;
    status = channel->call(Request(), in_transport(seconds(60)), reply);
    end = std::chrono::steady_clock::now();
  });
  while (!inside) std::this_thread::yield();
  const auto begin = std::chrono::steady_clock::now();
  listener.reset();
  caller.join();
  EXPECT_EQ(status.code(), StatusCode::kDistributed) << status.to_string();
  EXPECT_THAT(status.to_string(), HasSubstr(channel->endpoint()));
  EXPECT_LT(end - begin, seconds(5));
}

// The server was replaced by another one while it does not run. Calls in one process do not wait
// for such a server.
TEST_P(TransportTest, ACallerMayEndItsCalls) {
  if (GetParam().make == make_inproc) GTEST_SKIP();
  Gate gate;
  std::atomic<int> inside = 0;
  TestHandler handler([&](const Request& request, Deadline deadline, ReplySink& reply) {
    if (request.number == 1) return echo(request, deadline, reply);
    ++inside;
    return gate.wait(3, std::min(deadline, in_transport(milliseconds(20000))));
  });
  const auto listener = listen(handler);
  const auto channel = connect(listener->endpoint());
  std::vector<std::thread> callers;
  for (int i = 0; i < 2; ++i) {
    callers.emplace_back([&] {
      Reply reply;
      const Status status = channel->call(Request(), in_transport(seconds(60)), reply);
      EXPECT_EQ(status.code(), StatusCode::kDistributed) << status.to_string();
    });
  }
  while (inside < 2) std::this_thread::yield();
  const auto begin = std::chrono::steady_clock::now();
  channel->interrupt();
  for (std::thread& caller : callers) caller.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(5));
  Request request;
  request.number = 1;
  Reply reply;
  const Status status = channel->call(request, in_transport(seconds(20)), reply);
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(gate.wait(3, in_transport(seconds(20))).ok());
}

TEST_P(TransportTest, AReplyUnderWayStillGoesOut) {
  for (int round = 0; round < 5; ++round) {
    std::mutex mutex;
    std::condition_variable changed;
    bool called = false;
    TestHandler handler([&](const Request&, Deadline, ReplySink& reply) {
      reply.set_number(42);
      const std::lock_guard<std::mutex> lock(mutex);
      called = true;
      changed.notify_all();
      return Ok();
    });
    auto listener = listen(handler);
    const auto channel = connect(listener->endpoint());
    Reply reply;
    Status status;
    std::thread caller(
        [&] { status = channel->call(Request(), in_transport(seconds(20)), reply); });
    {
      std::unique_lock<std::mutex> lock(mutex);
      changed.wait(lock, [&] { return called; });
    }
    listener.reset();
    caller.join();
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(reply.number, 42);
  }
}

TEST_P(TransportTest, OneListenerAPlace) {
  TestHandler handler(echo);
  const auto listener = listen(handler);
  const auto second = transport_->listen(listener->endpoint(), handler);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kDistributed);
  EXPECT_THAT(second.status().message(),
              ::testing::AnyOf(HasSubstr("in use"), HasSubstr("already")));
}

// A server for both transports, called over gRPC.
class Mixed final : public Transport {
 public:
  Mixed()
      : server_(std::move(make_wire_transport(WireKind::kAuto, GrpcOptions())).value()),
        client_(std::move(make_grpc_transport(GrpcOptions())).value()) {}
  StatusOr<std::shared_ptr<Channel>> connect(const std::string& endpoint) override {
    return client_->connect(endpoint);
  }
  StatusOr<std::unique_ptr<Listener>> listen(const std::string& endpoint,
                                             Handler& handler) override {
    return server_->listen(endpoint, handler);
  }

 private:
  std::unique_ptr<Transport> server_;
  std::unique_ptr<Transport> client_;
};

StatusOr<std::unique_ptr<Transport>> make_mixed() {
  return std::unique_ptr<Transport>(std::make_unique<Mixed>());
}

INSTANTIATE_TEST_SUITE_P(
    Transports, TransportTest,
    ::testing::Values(
        TransportTestKind{"grpc", [] { return make_grpc_transport(GrpcOptions()); }, "127.0.0.1:0"},
        TransportTestKind{"inproc", make_inproc, "server"},
        TransportTestKind{"mixed", make_mixed, "127.0.0.1:0"},
        TransportTestKind{"tcp", [] { return make_tcp_transport(GrpcOptions()); }, "127.0.0.1:0"}),
    [](const auto& kind) { return std::string(kind.param.name); });

}  // namespace
}  // namespace millrace::ps
