// The key of a job: a server with a key answers no peer that has not proved to have it, and says
// why; so does a caller.
#include "io/job_key.h"

#include <atomic>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>

#include "ps/transport/key_exchange.h"
#include "ps/transport/wire.h"
#include "tests/ps/raw_socket.h"

namespace millrace::ps {
namespace {

namespace fs = std::filesystem;
using io::JobKey;
using ::testing::HasSubstr;
using Key = std::shared_ptr<const JobKey>;

class CountingHandler final : public Handler {
 public:
  Status handle(const Request& /*request*/, Deadline /*deadline*/, ReplySink& /*reply*/) override {
    ++calls;
    return Ok();
  }
  std::atomic<int> calls = 0;
};

Key key_of(const std::string& secret) {
  return std::make_shared<const JobKey>(secret);
}

std::unique_ptr<Transport> transport_with(const Key& key, WireKind kind = WireKind::kAuto) {
  GrpcOptions options;
  options.job_key = key;
  StatusOr<std::unique_ptr<Transport>> made = make_wire_transport(kind, options);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return made.ok() ? *std::move(made) : nullptr;
}

Status watch_with(Transport& transport, const std::string& endpoint) {
  const auto channel = transport.connect(endpoint);
  if (!channel.ok()) return channel.status();
  Request request;
  request.method = Method::kWatch;
  Reply reply;
  return (*channel)->call(request, std::chrono::steady_clock::now() + std::chrono::seconds(20),
                          reply);
}

TEST(JobKey, OnlyItsHoldersTalkToEachOther) {
  const Key key = key_of("0123456789abcdef");
  const auto own = transport_with(key);
  const auto keyless = transport_with(nullptr, WireKind::kTcp);
  const auto grpc = transport_with(nullptr, WireKind::kGrpc);
  const auto other = transport_with(key_of("0123456789abcdeX"));
  CountingHandler handler;
  const auto listener = own->listen("127.0.0.1:0", handler);
  ASSERT_TRUE(listener.ok()) << listener.status().to_string();
  const std::string endpoint = (*listener)->endpoint();
  for (Transport* const stranger : {keyless.get(), grpc.get()}) {
    const Status status = watch_with(*stranger, endpoint);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("requires the key of the job"));
  }
  EXPECT_THAT(watch_with(*other, endpoint).message(), HasSubstr("the key of another job"));
  EXPECT_EQ(handler.calls, 0);
  EXPECT_TRUE(watch_with(*own, endpoint).ok());
  EXPECT_TRUE(watch_with(*own, endpoint).ok());
  EXPECT_EQ(handler.calls, 2);
}

TEST(JobKey, ACallerTrustsNoServerWithoutIt) {
  const auto keyless = transport_with(nullptr);
  CountingHandler handler;
  const auto listener = keyless->listen("127.0.0.1:0", handler);
  ASSERT_TRUE(listener.ok());
  const auto own = transport_with(key_of("0123456789abcdef"));
  const Status status = watch_with(*own, (*listener)->endpoint());
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("the server at 127.0.0.1:"));
  EXPECT_THAT(status.message(), HasSubstr("has none"));
  EXPECT_EQ(handler.calls, 0);
}

// Bytes that a former connection sent prove nothing to the next one.
TEST(JobKey, AProofIsForOneConnection) {
  const Key key = key_of("0123456789abcdef");
  const std::string a(JobKey::kBytes, 'a');
  const std::string b(JobKey::kBytes, 'b');
  const std::string proof = key->proof(JobKey::Side::kCaller, a, b);
  EXPECT_TRUE(key->is_proof(proof, JobKey::Side::kCaller, a, b));
  EXPECT_FALSE(key->is_proof(proof, JobKey::Side::kServer, a, b));
  EXPECT_FALSE(key->is_proof(proof, JobKey::Side::kCaller, a, a));
  EXPECT_FALSE(key->is_proof(proof, JobKey::Side::kCaller, b, b));
  EXPECT_FALSE(key->is_proof("", JobKey::Side::kCaller, a, b));
  EXPECT_FALSE(key_of("0123456789abcdeX")->is_proof(proof, JobKey::Side::kCaller, a, b));
  EXPECT_NE(*JobKey::nonce(), *JobKey::nonce());

  const auto own = transport_with(key);
  CountingHandler handler;
  const auto listener = own->listen("127.0.0.1:0", handler);
  ASSERT_TRUE(listener.ok());
  const test::RawSocket raw((*listener)->endpoint());
  ASSERT_TRUE(raw.connected());
  raw.send(std::string(kKeyMark) + a + proof + std::string(100, 'x'));
  EXPECT_TRUE(raw.closed_within(10'000));
  EXPECT_EQ(handler.calls, 0);
}

TEST(JobKey, TravelsByTcpOnly) {
  GrpcOptions options;
  options.job_key = key_of("0123456789abcdef");
  EXPECT_THAT(make_wire_transport(WireKind::kGrpc, options).status().message(),
              HasSubstr("carry no proof of the job's key"));
}

TEST(JobKey, IsAFileOfItsOwner) {
  const std::string path = ::testing::TempDir() + "/job_key_" + std::to_string(::getpid());
  fs::remove(path);
  ASSERT_TRUE(JobKey::make(path).ok());
  const auto made = JobKey::read(path);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const std::string a(JobKey::kBytes, 'a');
  const std::string proof = (*made)->proof(JobKey::Side::kCaller, a, a);
  EXPECT_EQ(fs::status(path).permissions() & fs::perms::mask,
            fs::perms::owner_read | fs::perms::owner_write);
  ASSERT_TRUE(JobKey::make(path).ok());  // keeps the key that exists
  EXPECT_TRUE((*JobKey::read(path))->is_proof(proof, JobKey::Side::kCaller, a, a));
  fs::permissions(path, fs::perms::others_read, fs::perm_options::add);
  EXPECT_THAT(JobKey::read(path).status().message(), HasSubstr("any user may read"));
  fs::permissions(path, fs::perms::others_read, fs::perm_options::remove);
  std::ofstream(path) << "short\n";
  EXPECT_THAT(JobKey::read(path).status().message(), HasSubstr("16 to 4096 bytes, found 5"));
  fs::remove(path);
  EXPECT_EQ(JobKey::read(path).status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(JobKey::make("/proc/none/key").ok());
}

}  // namespace
}  // namespace millrace::ps
