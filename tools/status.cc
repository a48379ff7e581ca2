// status: shows what the servers of a job are doing.

#include "jobs/ps/connection.h"
#include "ps/transport/wire.h"
#include "tools/common/numbers.h"
#include "tools/common/tool.h"
#include "tools/ps/etcd.h"
#include "tools/ps/job_key.h"
#include "tools/ps/server_status.h"
#include "tools/verbs.h"

namespace millrace::tools {
namespace status_parts {
namespace {

struct StatusFlags {
  std::vector<std::string> pservers;
  std::vector<std::string> etcd;
  std::string job;
  int64_t timeout_ms = 2000;
  std::string tls_ca;
  std::string tls_cert;
  std::string tls_key;
  std::string tls_name;
  std::string job_key;
};

void add_flags(Tool& tool, StatusFlags& flags) {
  CLI::App& app = tool.app();
  app.option_defaults()->group("Servers");
  app.add_option("--pservers", flags.pservers, "the servers, host:port, separated by commas")
      ->delimiter(',')
      ->type_name("LIST");
  app.add_option(
         "--etcd", flags.etcd,
         "members of the etcd cluster where the servers are registered, instead of --pservers")
      ->delimiter(',')
      ->type_name("LIST");
  app.add_option("--job", flags.job, "with --etcd: name of the job")->type_name("NAME");
  app.add_option("--timeout-ms", flags.timeout_ms, "how long to wait for responses")
      ->check(whole_number(1, 600000))
      ->type_name("N");
  add_job_key_flag(app, flags.job_key);
  app.option_defaults()->group("Mutual TLS");
  app.add_option("--tls-ca", flags.tls_ca, "CA certificates that verify the servers, PEM")
      ->type_name("FILE");
  app.add_option("--tls-cert", flags.tls_cert, "client certificate, PEM")->type_name("FILE");
  app.add_option("--tls-key", flags.tls_key, "key of the client certificate, PEM")
      ->type_name("FILE");
  app.add_option("--tls-name", flags.tls_name,
                 "name in the servers' certificates, if it is not the host name")
      ->type_name("NAME");
  app.option_defaults()->group("Options");
}

// The servers of --pservers, or those registered in etcd.
StatusOr<std::vector<std::string>> find_servers(const Tool& tool, const StatusFlags& flags,
                                                const std::optional<ps::TlsFiles>& tls) {
  if (flags.pservers.empty() == flags.etcd.empty())
    return Status(StatusCode::kUsage, "expected either --pservers or --etcd");
  if (flags.etcd.empty()) return flags.pservers;
  constexpr std::chrono::seconds kUnusedLease{5};
  return jobs::registered_servers({flags.etcd, kUnusedLease, tls, flags.job},
                                  std::chrono::milliseconds(flags.timeout_ms), tool.log_sink());
}

StatusOr<int> show(Tool& tool, const StatusFlags& flags) {
  ps::GrpcOptions options;
  if (!flags.tls_ca.empty() || !flags.tls_cert.empty() || !flags.tls_key.empty())
    options.tls = ps::TlsFiles{flags.tls_ca, flags.tls_cert, flags.tls_key, flags.tls_name};
  MILLRACE_ASSIGN_OR_RETURN(options.job_key, read_job_key(flags.job_key));
  // servers accept gRPC at any port, but only TCP has the proof of a key
  const ps::WireKind kind = options.job_key != nullptr ? ps::WireKind::kAuto : ps::WireKind::kGrpc;
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<ps::Transport> transport,
                            ps::make_wire_transport(kind, options));
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<std::string> servers,
                            find_servers(tool, flags, options.tls));
  const std::vector<jobs::ServerAnswer> answers =
      jobs::ask_servers(*transport, servers, std::chrono::milliseconds(flags.timeout_ms));
  MILLRACE_RETURN_IF_ERROR(
      tool.write_output(tool.common().json ? status_json(answers) : status_table(answers)));
  const Status answered = jobs::all_answered(answers);
  if (answered.ok()) return kDone;
  // With --json the document already contains it.
  if (!tool.common().json) return answered;
  tool.report(answered);
  return exit_code(answered.code());
}

}  // namespace
}  // namespace status_parts
}  // namespace millrace::tools

int millrace::tools::status(int argc, char** argv) {
  using namespace status_parts;
  Tool tool(
      {.name = "status",
       .purpose = std::string(kStatusPurpose),
       .examples = {"status --pservers 127.0.0.1:6174,127.0.0.1:6175"},
       .exit_codes = {{0, "all servers responded"}, {5, "some did not respond; they are listed"}},
       .notes = {},
       .unread = {"--threads", "--seed", "--max-model-bytes", "--max-tensor-bytes"}});
  StatusFlags flags;
  add_flags(tool, flags);
  return tool.run(argc, argv, [&] { return show(tool, flags); });
}
