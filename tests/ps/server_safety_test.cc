// Access rights at a server, and peers that use another protocol, which must have no effect.

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ps/metrics/metrics.h"
#include "ps/transport/endpoint.h"
#include "ps/transport/grpc.h"
#include "ps/transport/tcp.h"
#include "ps/transport/wire.h"
#include "tests/ps/raw_socket.h"
#include "tests/ps/wire_values.h"

namespace millrace::ps {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::RawSocket;
using ::testing::HasSubstr;

Deadline in_server_safety(milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

class Yes final : public Handler {
 public:
  Status handle(const Request&, Deadline, ReplySink& reply) override {
    reply.set_number(1);
    return Ok();
  }
};

std::unique_ptr<Transport> transport_server_safety(const GrpcOptions& options) {
  StatusOr<std::unique_ptr<Transport>> made = make_grpc_transport(options);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return std::move(made).value();
}

using Maker = StatusOr<std::unique_ptr<Transport>> (*)(const GrpcOptions&);
class ServerTest : public ::testing::TestWithParam<Maker> {
 protected:
  static std::unique_ptr<Transport> transport_server_safety(const GrpcOptions& options) {
    StatusOr<std::unique_ptr<Transport>> made = GetParam()(options);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return std::move(made).value();
  }
};

Status call(Transport& through, const std::string& endpoint, Method method,
            milliseconds time = seconds(10)) {
  Request request;
  request.method = method;
  Reply reply;
  const auto channel = through.connect(endpoint);
  if (!channel.ok()) return channel.status();
  return channel.value()->call(request, in_server_safety(time), reply);
}

// Certificates of a job, made by openssl in a separate folder.
class MutualTls : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::filesystem::temp_directory_path() / ("millrace_tls_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    have_ = make_authority("job") && make_authority("other") &&
            make("pserver", "job", "URI:millrace://role/pserver,IP:127.0.0.1") &&
            make("trainer", "job", "URI:millrace://role/trainer,DNS:t0") &&
            make("trainer1", "job", "URI:millrace://role/trainer,URI:millrace://trainer/1") &&
            make("operator", "job", "URI:millrace://role/operator") &&
            make("nobody", "job", "DNS:nobody,IP:127.0.0.1") &&
            make("stranger", "other", "URI:millrace://role/operator,IP:127.0.0.1");
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(folder_); }
  void SetUp() override {
    if (!have_) GTEST_SKIP() << "openssl cannot make certificates here";
  }

  static std::string path(const std::string& name) { return folder_ / name; }
  static bool run(const std::string& command) {
    return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
  }
  static bool make_authority(const std::string& name) {
    return run(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
        " -subj /CN=" +
        name + " -keyout " + path(name + ".key") + " -out " + path(name + ".crt"));
  }
  static bool make(const std::string& name, const std::string& authority,
                   const std::string& names) {
    std::ofstream(path(name + ".ext")) << "subjectAltName=" << names << "\n";
    return run("openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=" +
               name + " -keyout " + path(name + ".key") + " -out " + path(name + ".csr")) &&
           run("openssl x509 -req -days 2 -in " + path(name + ".csr") + " -CA " +
               path(authority + ".crt") + " -CAkey " + path(authority + ".key") +
               " -CAcreateserial -extfile " + path(name + ".ext") + " -out " + path(name + ".crt"));
  }
  static GrpcOptions as(const std::string& name, const std::string& authority = "job") {
    GrpcOptions options;
    options.tls = TlsFiles{path(authority + ".crt"), path(name + ".crt"), path(name + ".key"), ""};
    return options;
  }

  static std::filesystem::path folder_;  // NOLINT: a suite's resources are static in GoogleTest
  static bool have_;
};
std::filesystem::path MutualTls::folder_;
bool MutualTls::have_ = false;

TEST_F(MutualTls, RolesComeFromCertificates) {
  Yes handler;
  const auto server = transport_server_safety(as("pserver"));
  const auto listener = std::move(server->listen("127.0.0.1:0", handler)).value();
  const auto trainer = transport_server_safety(as("trainer"));
  const auto chief = transport_server_safety(as("operator"));
  EXPECT_TRUE(call(*trainer, listener->endpoint(), Method::kSend).ok());
  EXPECT_TRUE(call(*trainer, listener->endpoint(), Method::kComplete).ok());
  EXPECT_TRUE(call(*chief, listener->endpoint(), Method::kStop).ok());
  EXPECT_TRUE(call(*chief, listener->endpoint(), Method::kCheckpoint).ok());
  EXPECT_TRUE(call(*chief, listener->endpoint(), Method::kWatch).ok());
  for (const Method method : {Method::kStop, Method::kCheckpoint}) {
    const Status status = call(*trainer, listener->endpoint(), method);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("certificate does not allow"));
    EXPECT_THAT(status.hint(), HasSubstr("millrace://role/operator"));
  }
  const auto nobody = transport_server_safety(as("nobody"));
  EXPECT_EQ(call(*nobody, listener->endpoint(), Method::kWatch).code(),
            StatusCode::kInvalidArgument);
}

TEST_F(MutualTls, ACertificateMayNameItsTrainer) {
  Yes handler;
  const auto server = transport_server_safety(as("pserver"));
  const auto listener = std::move(server->listen("127.0.0.1:0", handler)).value();
  const auto one = transport_server_safety(as("trainer1"));
  const auto channel = std::move(one->connect(listener->endpoint())).value();
  Reply reply;
  Request request;
  request.method = Method::kGoTo;
  request.caller.trainer = 1;
  EXPECT_TRUE(channel->call(request, in_server_safety(seconds(10)), reply).ok());
  request.caller.trainer = 0;
  const Status status = channel->call(request, in_server_safety(seconds(10)), reply);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("of trainer 0, but the caller's certificate is for "
                                          "millrace://trainer/1"));
  EXPECT_TRUE(call(*one, listener->endpoint(), Method::kWatch).ok());
}

TEST_F(MutualTls, StrangersGetNoReply) {
  Yes handler;
  const auto server = transport_server_safety(as("pserver"));
  const auto listener = std::move(server->listen("127.0.0.1:0", handler)).value();
  const auto plain = transport_server_safety(GrpcOptions());
  const auto other = transport_server_safety(as("stranger", "other"));
  const auto signed_elsewhere = transport_server_safety(as("stranger", "job"));
  for (Transport* const through : {plain.get(), other.get(), signed_elsewhere.get()}) {
    const Status status = call(*through, listener->endpoint(), Method::kWatch, milliseconds(700));
    EXPECT_EQ(status.code(), StatusCode::kDistributed) << status.to_string();
  }
  const auto trainer = transport_server_safety(as("trainer"));
  EXPECT_TRUE(call(*trainer, listener->endpoint(), Method::kSend).ok());
}

TEST_F(MutualTls, ServersNeedTheirRole) {
  Yes handler;
  const auto server = transport_server_safety(as("nobody"));
  const auto listener = std::move(server->listen("127.0.0.1:0", handler)).value();
  const auto trainer = transport_server_safety(as("trainer"));
  const Status status = call(*trainer, listener->endpoint(), Method::kSend);
  EXPECT_EQ(status.code(), StatusCode::kDistributed);
  EXPECT_THAT(status.message(), HasSubstr("not that of a pserver"));
}

TEST_F(MutualTls, TheNameOfTheServerCounts) {
  Yes handler;
  const auto server = transport_server_safety(as("trainer"));  // for t0, not for 127.0.0.1
  const auto listener = std::move(server->listen("127.0.0.1:0", handler)).value();
  GrpcOptions options = as("operator");
  const auto strict = transport_server_safety(options);
  EXPECT_EQ(call(*strict, listener->endpoint(), Method::kSend, milliseconds(700)).code(),
            StatusCode::kDistributed);
  options.tls->server_name = "t0";
  const auto named = transport_server_safety(options);
  EXPECT_THAT(call(*named, listener->endpoint(), Method::kSend).message(),
              HasSubstr("not that of a pserver"));
}

TEST_F(MutualTls, FilesAreChecked) {
  GrpcOptions options = as("pserver");
  options.tls->key = path("absent.key");
  EXPECT_EQ(make_grpc_transport(options).status().code(), StatusCode::kNotFound);
  options.tls->key = "";
  EXPECT_THAT(make_grpc_transport(options).status().message(), HasSubstr("file of the key"));
  options.tls->key = path("pserver.ext");
  EXPECT_THAT(make_grpc_transport(options).status().message(), HasSubstr("in PEM form"));
}

TEST_P(ServerTest, OnlyLoopbackWithoutTls) {
  Yes handler;
  const auto plain = transport_server_safety(GrpcOptions());
  for (const char* endpoint : {"0.0.0.0:0", "[::]:0"}) {
    const Status status = plain->listen(endpoint, handler).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << endpoint;
    EXPECT_THAT(status.hint(), HasSubstr("--insecure-listen"));
  }
  GrpcOptions options;
  options.insecure_listen = true;
  const auto open = transport_server_safety(options);
  const auto listener = open->listen("0.0.0.0:0", handler);
  EXPECT_TRUE(listener.ok()) << listener.status().to_string();
}

TEST_P(ServerTest, BadEndpoints) {
  Yes handler;
  const auto plain = transport_server_safety(GrpcOptions());
  for (const char* endpoint : {"", "127.0.0.1", ":80", "127.0.0.1:", "127.0.0.1:65536", "::1:80",
                               "127.0.0.1:-1", "a b:1", "127.0.0.1:80x", "unix:/tmp/x"}) {
    EXPECT_EQ(plain->connect(endpoint).status().code(), StatusCode::kInvalidArgument) << endpoint;
    EXPECT_FALSE(plain->listen(endpoint, handler).ok()) << endpoint;
  }
  EXPECT_THAT(plain->connect("127.0.0.1:0").status().message(), HasSubstr("port 0"));
  const Status status = plain->listen("no.such.host.invalid:0", handler).status();
  EXPECT_EQ(status.code(), StatusCode::kDistributed);
  EXPECT_THAT(status.message(), HasSubstr("cannot resolve"));
}

TEST_P(ServerTest, AUsedPortIsNamed) {
  Yes handler;
  const auto plain = transport_server_safety(GrpcOptions());
  const auto listener = std::move(plain->listen("127.0.0.1:0", handler)).value();
  const Status status = plain->listen(listener->endpoint(), handler).status();
  const int port = parse_endpoint(listener->endpoint())->port;
  EXPECT_THAT(status.message(), HasSubstr("port " + std::to_string(port)));
}

TEST_P(ServerTest, OtherProtocolsLeaveTheServerServing) {
  Yes handler;
  GrpcOptions options;
  options.handshake_timeout = milliseconds(500);
  options.stall_timeout = milliseconds(500);
  const auto through = transport_server_safety(options);
  const auto listener = std::move(through->listen("127.0.0.1:0", handler)).value();
  const std::string endpoint = listener->endpoint();
  std::mt19937 random(1);
  std::string noise(65536, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  const std::string settings = std::string("\0\0\0\4\0\0\0\0\0", 9);
  std::vector<std::unique_ptr<RawSocket>> open;
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + noise.substr(0, 500),
        noise, std::string("P"), preface, preface + std::string("\xff\xff\xff\0\0\0\0\0\1", 9),
        preface + settings + std::string("\0\0\4\3\0\0\0\0\1\0\0\0\0", 13), std::string()}) {
    for (int i = 0; i < 4; ++i) {
      open.push_back(std::make_unique<RawSocket>(endpoint));
      ASSERT_TRUE(open.back()->connected());
      open.back()->send(bytes);
    }
    EXPECT_TRUE(call(*through, endpoint, Method::kWatch).ok());
  }
  EXPECT_TRUE(open[0]->closed_within(3000)) << "HTTP/1";
  EXPECT_TRUE(open[8]->closed_within(3000)) << "noise";
  EXPECT_TRUE(open[12]->closed_within(3000)) << "one byte and silence";
  EXPECT_TRUE(open[28]->closed_within(3000)) << "silence";
  EXPECT_TRUE(call(*through, endpoint, Method::kWatch).ok());
}

TEST_P(ServerTest, MessagesAreBoundedOnBothSides) {
  class Large final : public Handler {
   public:
    Status handle(const Request& request, Deadline, ReplySink& reply) override {
      const Value value = test::tensor_value(test::make_tensor(DType::kInt8, {request.number}));
      return reply.put("x", value);
    }
  } handler;
  GrpcOptions small;
  small.max_message_bytes = 1 << 20;
  const auto server = transport_server_safety(small);
  const auto listener = std::move(server->listen("127.0.0.1:0", handler)).value();
  const auto client = transport_server_safety(GrpcOptions());
  const auto channel = std::move(client->connect(listener->endpoint())).value();
  const Value value = test::tensor_value(test::make_tensor(DType::kInt8, {40 << 20}));
  Request request;
  request.items.push_back({"x", &value, nullptr});
  Reply reply;
  const Status refused = channel->call(request, in_server_safety(seconds(20)), reply);
  EXPECT_EQ(refused.code(), StatusCode::kResource) << refused.to_string();
  EXPECT_THAT(refused.message(), HasSubstr("announces more than 1048576 bytes"));
  request.items.clear();
  request.number = 10;
  EXPECT_TRUE(channel->call(request, in_server_safety(seconds(20)), reply).ok());

  const auto own = std::move(server->connect(listener->endpoint())).value();
  request.items.push_back({"x", &value, nullptr});
  EXPECT_THAT(own->call(request, in_server_safety(seconds(20)), reply).message(),
              HasSubstr("would send"));
  request.items.clear();
  request.number = 2 << 20;
  const Status too_much = own->call(request, in_server_safety(seconds(20)), reply);
  EXPECT_EQ(too_much.code(), StatusCode::kResource) << too_much.to_string();
  request.number = 10;
  EXPECT_TRUE(own->call(request, in_server_safety(seconds(20)), reply).ok());
}

TEST_P(ServerTest, CallsUnderWayAreBoundedTogether) {
  class Waits final : public Handler {
   public:
    Status handle(const Request& request, Deadline deadline, ReplySink&) override {
      if (request.number == 0) return Ok();
      inside = true;
      while (!go && std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(milliseconds(1));
      return Ok();
    }
    std::atomic<bool> inside = false;
    std::atomic<bool> go = false;
  } handler;
  GrpcOptions options;
  options.max_bytes_in_flight = 1000;
  const auto through = transport_server_safety(options);
  const auto listener = std::move(through->listen("127.0.0.1:0", handler)).value();
  const auto channel = std::move(through->connect(listener->endpoint())).value();
  const Value value = test::tensor_value(test::make_tensor(DType::kInt8, {600}));
  const auto send = [&](int64_t number) {
    Request request;
    request.number = number;
    request.items.push_back({"x", &value, nullptr});
    Reply reply;
    return channel->call(request, in_server_safety(seconds(20)), reply);
  };
  std::thread first([&] { EXPECT_TRUE(send(1).ok()); });
  while (!handler.inside) std::this_thread::yield();
  const Status refused = send(0);
  EXPECT_EQ(refused.code(), StatusCode::kResource) << refused.to_string();
  EXPECT_THAT(refused.message(), HasSubstr("would hold more than 1000"));
  handler.go = true;
  first.join();
  EXPECT_TRUE(send(0).ok());
}

TEST_P(ServerTest, CallsAreCounted) {
  Metrics metrics;
  GrpcOptions options;
  options.metrics = &metrics;
  {
    Yes handler;
    const auto through = transport_server_safety(options);
    const auto listener = std::move(through->listen("127.0.0.1:0", handler)).value();
    for (int i = 0; i < 3; ++i)
      EXPECT_TRUE(call(*through, listener->endpoint(), Method::kSend).ok());
  }
  EXPECT_THAT(metrics.text(), HasSubstr("# TYPE millrace_ps_calls_total counter\n"
                                        "millrace_ps_calls_total{method=\"send\"} 3\n"));
}

TEST(MetricsDeathTest, ANameHasOneKind) {
  Metrics metrics;
  metrics.counter("millrace_things_total", "things");
  EXPECT_DEATH(metrics.gauge("millrace_things_total", "things"),
               "internal error: metric 'millrace_things_total' is registered twice");
}

TEST(Tcp, HasNoEncryption) {
  GrpcOptions options;
  options.tls = TlsFiles();
  EXPECT_THAT(make_tcp_transport(options).status().hint(), HasSubstr("gRPC"));
}

TEST(Tcp, ConnectionsAreBounded) {
  Yes handler;
  GrpcOptions options;
  options.max_handler_threads = 1;
  const auto through = std::move(make_tcp_transport(options)).value();
  const auto listener = std::move(through->listen("127.0.0.1:0", handler)).value();
  const auto first = std::move(through->connect(listener->endpoint())).value();
  Reply reply;
  ASSERT_TRUE(first->call(Request(), in_server_safety(seconds(10)), reply).ok());
  const Status status = call(*through, listener->endpoint(), Method::kWatch);
  EXPECT_EQ(status.code(), StatusCode::kResource) << status.to_string();
  EXPECT_TRUE(first->call(Request(), in_server_safety(seconds(10)), reply).ok());
}

StatusOr<std::unique_ptr<Transport>> make_plain_tcp(const GrpcOptions& options) {
  return make_tcp_transport(options);
}

StatusOr<std::unique_ptr<Transport>> make_auto(const GrpcOptions& options) {
  return make_wire_transport(WireKind::kAuto, options);
}

INSTANTIATE_TEST_SUITE_P(
    Transports, ServerTest, ::testing::Values(&make_grpc_transport, &make_plain_tcp, &make_auto),
    [](const auto& maker) {
      return std::string(maker.index == 0 ? "grpc" : maker.index == 1 ? "tcp" : "auto");
    });

}  // namespace
}  // namespace millrace::ps
