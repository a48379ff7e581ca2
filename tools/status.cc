// status: what the servers of a job are doing.

#include "ps/transport/wire.h"
#include "tools/common/tool.h"
#include "tools/ps/server_status.h"

namespace millrace::tools {
namespace {

struct StatusFlags {
  std::vector<std::string> pservers;
  int64_t timeout_ms = 2000;
  std::string tls_ca;
  std::string tls_cert;
  std::string tls_key;
  std::string tls_name;
};

void add_flags(Tool& tool, StatusFlags& flags) {
  CLI::App& app = tool.app();
  app.option_defaults()->group("Servers");
  app.add_option("--pservers", flags.pservers, "the servers, host:port, separated by commas")
      ->delimiter(',')
      ->required()
      ->type_name("LIST");
  app.add_option("--timeout-ms", flags.timeout_ms, "how long to wait for answers")
      ->check(CLI::Range(1, 600000).description(""))
      ->type_name("N");
  app.option_defaults()->group("Mutual TLS");
  app.add_option("--tls-ca", flags.tls_ca, "certificates that servers are signed by, PEM")
      ->type_name("FILE");
  app.add_option("--tls-cert", flags.tls_cert, "own certificate, PEM")->type_name("FILE");
  app.add_option("--tls-key", flags.tls_key, "key of it, PEM")->type_name("FILE");
  app.add_option("--tls-name", flags.tls_name, "name in the servers' certificates, if not the host")
      ->type_name("NAME");
  app.option_defaults()->group("Options");
}

StatusOr<int> show(Tool& tool, const StatusFlags& flags) {
  ps::GrpcOptions options;
  if (!flags.tls_ca.empty() || !flags.tls_cert.empty() || !flags.tls_key.empty())
    options.tls = ps::TlsFiles{flags.tls_ca, flags.tls_cert, flags.tls_key, flags.tls_name};
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<ps::Transport> transport,
                            ps::make_wire_transport(ps::WireKind::kGrpc, options));
  const std::vector<ServerAnswer> answers =
      ask_servers(*transport, flags.pservers, std::chrono::milliseconds(flags.timeout_ms));
  MILLRACE_RETURN_IF_ERROR(
      tool.write_output(tool.common().json ? status_json(answers) : status_table(answers)));
  const Status answered = all_answered(answers);
  if (answered.ok()) return kDone;
  // With --json the document has said it already.
  if (!tool.common().json) return answered;
  tool.report(answered);
  return exit_code(answered.code());
}

}  // namespace
}  // namespace millrace::tools

int main(int argc, char** argv) {
  using namespace millrace::tools;  // NOLINT(google-build-using-namespace): one short main
  Tool tool({.name = "status",
             .purpose = "ask the servers of a job what they are doing",
             .examples = {"status --pservers 127.0.0.1:6174,127.0.0.1:6175"},
             .exit_codes = {{0, "all have answered"}, {5, "some have not; they are named"}},
             .notes = {}});
  StatusFlags flags;
  add_flags(tool, flags);
  return tool.run(argc, argv, [&] { return show(tool, flags); });
}
