// The status tool: responses of servers as a table and as JSON, and servers that do not respond.

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/job_key.h"
#include "ps/metrics/exposer.h"
#include "ps/transport/endpoint.h"
#include "ps/transport/wire.h"
#include "tests/ps/raw_socket.h"
#include "tests/support/run_tool.h"

namespace millrace::tools {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Says final : public ps::Handler {
 public:
  explicit Says(std::string text) : text_(std::move(text)) {}
  Status handle(const ps::Request& request, ps::Deadline, ps::ReplySink& reply) override {
    EXPECT_EQ(request.method, ps::Method::kWatch);
    reply.set_text(text_);
    return Ok();
  }

 private:
  std::string text_;
};

ToolEnd run(const std::string& arguments) {
  return run_tool("status " + arguments);
}

class StatusTool : public ::testing::Test {
 protected:
  std::string serve(const std::string& text) {
    handlers_.push_back(std::make_unique<Says>(text));
    listeners_.push_back(std::move(transport_->listen("127.0.0.1:0", *handlers_.back())).value());
    return listeners_.back()->endpoint();
  }

  std::unique_ptr<ps::Transport> transport_ =
      std::move(ps::make_wire_transport(ps::WireKind::kAuto, ps::GrpcOptions())).value();
  std::vector<std::unique_ptr<Says>> handlers_;
  std::vector<std::unique_ptr<ps::Listener>> listeners_;
};

constexpr const char* kStatusServer =
    R"({"endpoint":"x","job":"clicks","epoch":3,"mode":"sync","step":17,"vars":9,"trainers":[)"
    R"({"trainer":0,"state":"live","step":18,"sent":true,"fetched":false,"silent_s":2,)"
    R"("last":"send-barrier"}]})";

TEST_F(StatusTool, ShowsServersAndTrainers) {
  const std::string endpoint = serve(kStatusServer);
  const ToolEnd result = run("--pservers " + endpoint);
  EXPECT_EQ(result.code, 0) << result.out;
  EXPECT_THAT(result.out, AllOf(HasSubstr("SERVER"), HasSubstr("clicks"), HasSubstr("sync"),
                                HasSubstr("17"), HasSubstr("live"), HasSubstr("send-barrier")));
  const ToolEnd json = run("--json --pservers " + endpoint);
  EXPECT_EQ(json.code, 0);
  EXPECT_THAT(json.out, AllOf(HasSubstr("\"answered\": true"), HasSubstr("\"step\": 17")));
}

TEST_F(StatusTool, NamesWhoDoesNotAnswer) {
  const std::string there = serve(kStatusServer);
  const std::string gone = serve(kStatusServer);
  listeners_.pop_back();
  const ToolEnd result = run("--timeout-ms 300 --pservers " + there + "," + gone);
  EXPECT_EQ(result.code, 5);
  EXPECT_THAT(result.out, HasSubstr("1 of 2 servers did not answer: " + gone));
  EXPECT_THAT(result.out, HasSubstr("Connection refused"));
  EXPECT_THAT(result.out, HasSubstr("clicks"));
  const ToolEnd json = run("-q --json --timeout-ms 300 --pservers " + gone);
  EXPECT_EQ(json.code, 5);
  EXPECT_THAT(json.out, HasSubstr("\"answered\": false"));
}

TEST_F(StatusTool, OddAnswersDoNoHarm) {
  for (const std::string& text :
       {std::string(), std::string("[["), std::string(100000, '['),
        std::string(R"({"job":"\u001b[31m","trainers":[1,{"state":[]}],"step":{}})")}) {
    const ToolEnd result = run("--pservers " + serve(text));
    EXPECT_EQ(result.code, 0) << result.out;
    EXPECT_EQ(result.out.find('\x1b'), std::string::npos);
  }
}

TEST_F(StatusTool, AsksServersWithTheKeyOfTheirJob) {
  const std::string path = ::testing::TempDir() + "/status_key_" + std::to_string(::getpid());
  const std::string other = path + "_other";
  ASSERT_TRUE(io::JobKey::make(path).ok() && io::JobKey::make(other).ok());
  ps::GrpcOptions options;
  options.job_key = *io::JobKey::read(path);
  const auto transport = std::move(ps::make_wire_transport(ps::WireKind::kAuto, options)).value();
  Says handler(kStatusServer);
  const auto listener = std::move(transport->listen("127.0.0.1:0", handler)).value();
  const std::string ask = "--pservers " + listener->endpoint();
  EXPECT_THAT(run(ask).out, HasSubstr("requires the key of the job"));
  EXPECT_THAT(run(ask + " --job-key " + other).out, HasSubstr("the key of another job"));
  EXPECT_THAT(run(ask + " --job-key " + path + "_absent").out, HasSubstr("_absent"));
  const ToolEnd result = run(ask + " --job-key " + path);
  EXPECT_EQ(result.code, 0) << result.out;
  EXPECT_THAT(result.out, HasSubstr("clicks"));
  for (const std::string& file : {path, other}) ::unlink(file.c_str());
}

TEST_F(StatusTool, UsageIsChecked) {
  EXPECT_EQ(run("").code, 2);
  EXPECT_EQ(run("--pservers nowhere").code, 5);
  EXPECT_THAT(run("--pservers 127.0.0.1:1 --tls-ca absent.pem").out, HasSubstr("absent.pem"));
}

// Not part of the tool: the metrics page is the other way to watch a server.
TEST(MetricsExposer, AnswersPrometheusAtLoopback) {
  ps::Metrics metrics;
  ps::count_call(metrics, "send", {10, 20, true, 0.5});
  int port = 0;
  {
    Says handler("");
    const auto transport =
        std::move(ps::make_wire_transport(ps::WireKind::kTcp, ps::GrpcOptions())).value();
    const auto listener = std::move(transport->listen("127.0.0.1:0", handler)).value();
    port = ps::parse_endpoint(listener->endpoint())->port;
    EXPECT_THAT(ps::MetricsExposer::start(port, metrics).status().message(), HasSubstr("in use"));
  }
  const auto exposer = ps::MetricsExposer::start(port, metrics);
  ASSERT_TRUE(exposer.ok()) << exposer.status().to_string();
  const auto ask = [&](const std::string& request) {
    const std::string command = "exec 3<>/dev/tcp/127.0.0.1/" + std::to_string(port) +
                                "; printf \"" + request + "\\r\\n\\r\\n\" >&3; cat <&3";
    std::FILE* const pipe = ::popen(("bash -c '" + command + "'").c_str(), "r");
    std::string out;
    std::array<char, 4096> buffer{};
    for (size_t got = 0; (got = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
      out.append(buffer.data(), got);
    ::pclose(pipe);
    return out;
  };
  const std::string numbers = ask("GET /metrics HTTP/1.1\\r\\nHost: x");
  EXPECT_THAT(numbers, HasSubstr("millrace_ps_calls_total{method=\"send\"} 1"));
  EXPECT_THAT(numbers, HasSubstr("# TYPE millrace_ps_request_seconds histogram"));
  EXPECT_THAT(numbers,
              HasSubstr("millrace_ps_request_seconds_bucket{method=\"send\",le=\"0.2\"} 0"));
  EXPECT_THAT(numbers,
              HasSubstr("millrace_ps_request_seconds_bucket{method=\"send\",le=\"0.5\"} 1"));
  EXPECT_THAT(numbers, HasSubstr("millrace_ps_request_bytes_sum{method=\"send\"} 10"));
  EXPECT_THAT(ask("GET /healthz HTTP/1.1"), HasSubstr("503"));
  EXPECT_THAT(ask("GET /healthz/live HTTP/1.1"), HasSubstr("200 OK"));
  metrics.health().ready = true;
  EXPECT_THAT(ask("GET /healthz HTTP/1.0"), HasSubstr("{\"live\": true, \"ready\": true}"));
  metrics.health().live = false;
  EXPECT_THAT(ask("GET /healthz HTTP/1.1"), HasSubstr("503"));
  EXPECT_THAT(ask("GET /other HTTP/1.1"), HasSubstr("404"));
  EXPECT_THAT(ask("POST /metrics HTTP/1.1"), HasSubstr("405"));
  EXPECT_THAT(ask("noise"), HasSubstr("400"));
  // readers that say nothing, or only half of a request, do not block the page
  std::vector<std::unique_ptr<ps::test::RawSocket>> slow;
  for (int i = 0; i < 40; ++i) {
    slow.push_back(std::make_unique<ps::test::RawSocket>("127.0.0.1:" + std::to_string(port)));
    if (i % 2 == 0) slow.back()->send("GET /metrics HTTP/1.1\r\nHost:");
  }
  metrics.health().live = true;
  EXPECT_THAT(ask("GET /healthz HTTP/1.1"), HasSubstr("200 OK"));
}

}  // namespace
}  // namespace millrace::tools
