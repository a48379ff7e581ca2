#include "tools/ps/flags.h"

#include <chrono>

#include "fleet/launch/job_environment.h"
#include "ps/kill_points.h"
#include "tools/common/numbers.h"
#include "tools/ps/etcd.h"
#include "tools/ps/job_key.h"

namespace millrace::tools {
namespace {

constexpr int64_t kLongest = int64_t{1} << 40;

void add_transport_flags(Tool& tool, PsFlags& flags) {
  CLI::App& app = tool.app();
  app.option_defaults()->group("Parameter servers");
  app.add_option("--tls-dir", flags.tls_dir,
                 "folder with ca.pem, cert.pem and key.pem, the defaults of --tls-ca, --tls-cert, "
                 "--tls-key")
      ->type_name("DIR");
  app.add_option("--tls-ca", flags.tls_ca, "CA certificates that verify the peers, PEM")
      ->type_name("FILE");
  app.add_option("--tls-cert", flags.tls_cert, "certificate of this process, PEM")
      ->type_name("FILE");
  app.add_option("--tls-key", flags.tls_key, "key of the certificate, PEM")->type_name("FILE");
  add_job_key_flag(app, flags.job_key);
  app.add_option("--transport", flags.transport,
                 "grpc, tcp, or auto: grpc with TLS, else tcp; servers with auto accept both")
      ->check(CLI::IsMember({"auto", "grpc", "tcp"}).description(""))
      ->type_name("KIND");
  app.add_flag("--insecure-listen", flags.insecure_listen, "listen beyond loopback without TLS");
  add_etcd_flags(tool, flags.etcd, flags.etcd_lease_s);
  app.add_option("--reconnect-timeout-ms", flags.reconnect_timeout_ms,
                 "how long to retry a broken connection")
      ->check(whole_number(int64_t{0}, kLongest));
  tool.rare(app.add_option("--max-message-bytes", flags.max_message_bytes,
                           "refuse to send or receive messages with more bytes of values")
                ->type_name("N")
                ->check(whole_number(int64_t{1}, kLongest)));
}

}  // namespace

void add_trainer_flags(Tool& tool, PsFlags& flags) {
  CLI::App& app = tool.app();
  app.option_defaults()->group("Parameter servers");
  app.add_option("--role", flags.role,
                 "trainer, pserver or heter (worker) of a transpiled job; auto: from "
                 "TRAINING_ROLE in the environment")
      ->check(CLI::IsMember({"trainer", "pserver", "heter", "auto"}).description(""))
      ->type_name("ROLE");
  app.add_option("--trainer-id", flags.trainer_id, "number of this trainer")
      ->check(whole_number(0, 1 << 20))
      ->type_name("N");
  app.add_option("--heter-id", flags.heter_id, "number of this heter worker")
      ->check(whole_number(0, 1 << 20))
      ->type_name("N");
  app.add_option("--cluster", flags.cluster,
                 "inproc: all trainers, servers and heter workers in this process")
      ->check(CLI::IsMember({"inproc"}).description(""))
      ->type_name("KIND");
  app.add_option("--stats", flags.stats,
                 "write statistics of this trainer and its time by activity (json)")
      ->type_name("FILE");
  app.add_option("--report", flags.report,
                 "write a page about the job: loss, rates, times, bytes of each server")
      ->type_name("FILE.html");
  app.add_option("--transpiled", flags.transpiled,
                 "folder written by transpile-program: of the cluster, or of the job that this "
                 "trainer or --role auto belongs to")
      ->type_name("DIR");
}

void add_job_flags(Tool& tool, PsFlags& flags) {
  CLI::App& app = tool.app();
  app.option_defaults()->group("Parameter servers");
  app.add_option("--slices", flags.slices,
                 "slices.json of the job; default: in the folder above the program's")
      ->type_name("FILE");
  app.add_option("--job", flags.job, "name of the job; calls from other jobs are refused")
      ->type_name("NAME");
  app.add_option("--deadline-ms", flags.deadline_ms, "maximum time of one call")
      ->check(whole_number(int64_t{1}, kLongest));
  tool.rare(app.add_option("--kill-point", flags.kill_point,
                           "for tests: the process kills itself when it reaches this point for "
                           "the COUNT-th time")
                ->type_name("NAME[:COUNT]"));
  add_transport_flags(tool, flags);
}

void add_server_flags(Tool& tool, PsFlags& flags) {
  CLI::App& app = tool.app();
  app.option_defaults()->group("Parameter servers");
  app.add_option("--endpoint", flags.endpoint,
                 "endpoint to listen at, instead of the one in the program")
      ->type_name("HOST:PORT");
  app.add_option("--advertise", flags.advertise,
                 "with --etcd: address to register, if it differs from the endpoint")
      ->type_name("HOST[:PORT]");
  app.add_option("--silence-timeout-ms", flags.silence_timeout_ms,
                 "a trainer that is silent for this time is lost; 0: never")
      ->check(whole_number(int64_t{0}, kLongest));
  app.add_option("--start-timeout-ms", flags.start_timeout_ms,
                 "how long to wait until all trainers have connected; 0: forever")
      ->check(whole_number(int64_t{0}, kLongest));
  app.add_option("--metrics,--metrics-port", flags.metrics,
                 "port of 127.0.0.1 with /metrics for Prometheus and /healthz; 0: none")
      ->type_name("[127.0.0.1:]PORT");
  app.add_flag("--elastic", flags.elastic, "continue without a trainer that is lost");
  app.add_option("--snapshot-dir", flags.snapshot_dir,
                 "folder for snapshots; the newest one is loaded at the start")
      ->type_name("DIR");
  app.add_option("--snapshot-every", flags.snapshot_every,
                 "steps between snapshots (synchronous jobs)")
      ->check(whole_number(int64_t{0}, kLongest));
  app.add_option("--snapshot-interval-ms", flags.snapshot_interval_ms, "time between snapshots")
      ->check(whole_number(int64_t{0}, kLongest));
  app.add_flag("--snapshot-durable", flags.snapshot_durable,
               "trainers wait until the snapshot of their step is on disk");
  app.add_option(
         "--grace", flags.grace_s,
         "after SIGTERM or SIGINT: how many seconds the step and the last snapshot may take")
      ->type_name("SECONDS")
      ->check(real_number(0.0, 1e6));
  app.add_option("--dc-lambda", flags.dc_lambda, "strength of delay compensation (DC-ASGD)")
      ->check(real_number(0));
}

StatusOr<jobs::ConnectionOptions> connection_options(const PsFlags& flags) {
  const auto tls_file = [&](const std::string& named, const char* usual) {
    return named.empty() && !flags.tls_dir.empty() ? flags.tls_dir + "/" + usual : named;
  };
  const ps::TlsFiles tls{tls_file(flags.tls_ca, "ca.pem"), tls_file(flags.tls_cert, "cert.pem"),
                         tls_file(flags.tls_key, "key.pem"), ""};
  const bool any = !tls.authority.empty() || !tls.certificate.empty() || !tls.key.empty();
  const bool all = !tls.authority.empty() && !tls.certificate.empty() && !tls.key.empty();
  if (any && !all)
    return Status(StatusCode::kUsage,
                  "TLS: expected all of --tls-ca, --tls-cert and --tls-key, or --tls-dir");
  if (flags.etcd.empty() && !flags.advertise.empty())
    return Status(StatusCode::kUsage, "--advertise: expected --etcd as well");
  jobs::ConnectionOptions options;
  options.job = flags.job;
  options.kind = flags.transport == "grpc"  ? ps::WireKind::kGrpc
                 : flags.transport == "tcp" ? ps::WireKind::kTcp
                                            : ps::WireKind::kAuto;
  if (all) options.tls = tls;
  MILLRACE_ASSIGN_OR_RETURN(options.job_key, read_job_key(flags.job_key));
  options.insecure_listen = flags.insecure_listen;
  options.reconnect_timeout = std::chrono::milliseconds(flags.reconnect_timeout_ms);
  options.max_message_bytes = static_cast<uint64_t>(flags.max_message_bytes);
  options.etcd = flags.etcd;
  options.etcd_lease = std::chrono::seconds(flags.etcd_lease_s);
  options.endpoint = flags.endpoint;
  options.advertise = flags.advertise;
  return options;
}

StatusOr<ps::ClientOptions> client_options(const PsFlags& flags) {
  ps::ClientOptions options;
  options.job = flags.job;
  options.deadline = std::chrono::milliseconds(flags.deadline_ms);
  options.reconnect_timeout = std::chrono::milliseconds(flags.reconnect_timeout_ms);
  options.heartbeat = std::chrono::milliseconds(flags.silence_timeout_ms / 4);
  if (!flags.kill_point.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(options.kill_point, ps::KillPoint::parse(flags.kill_point));
  }
  return options;
}

StatusOr<jobs::Trainer::Settings> trainer_settings(const Tool& tool, const PsFlags& flags) {
  jobs::Trainer::Settings settings;
  settings.trainer = flags.trainer_id;
  settings.threads = tool.common().threads;
  settings.seed = tool.common().seed;
  MILLRACE_ASSIGN_OR_RETURN(settings.client, client_options(flags));
  settings.reading.max_bytes = tool.common().max_model_bytes;
  settings.log = tool.log_sink();
  MILLRACE_RETURN_IF_ERROR(jobs::read_communicator_settings(fleet::process_variables(), settings));
  return settings;
}

StatusOr<jobs::Server::Settings> server_settings(const Tool& tool, const PsFlags& flags,
                                                 const std::string& files_root) {
  jobs::Server::Settings settings;
  ps::ServerOptions& service = settings.service;
  service.job = flags.job;
  service.threads = tool.common().threads;
  service.seed = tool.common().seed;
  service.start_timeout = std::chrono::milliseconds(flags.start_timeout_ms);
  service.silence_timeout = std::chrono::milliseconds(flags.silence_timeout_ms);
  service.dc_lambda = flags.dc_lambda;
  service.elastic = flags.elastic;
  service.files_root = files_root;
  service.snapshot_root = flags.snapshot_dir;
  service.snapshot_every = flags.snapshot_every;
  service.snapshot_interval = std::chrono::milliseconds(flags.snapshot_interval_ms);
  service.snapshot_durable = flags.snapshot_durable;
  service.log = log_at(tool.log_sink(), LogLevel::kInfo);
  settings.log = tool.log_sink();
  if (!flags.kill_point.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(service.kill_point, ps::KillPoint::parse(flags.kill_point));
  }
  // With a directory, the transport knows where to listen, and needs the endpoint in the program
  // as the name.
  if (flags.etcd.empty()) settings.endpoint = flags.endpoint;
  settings.loading_threads = tool.common().threads;
  settings.reading.max_bytes = tool.common().max_model_bytes;
  return settings;
}

}  // namespace millrace::tools
