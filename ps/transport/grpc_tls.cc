#include <string>
#include <utility>

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "framework/base/text.h"
#include "ps/transport/grpc_parts.h"

namespace millrace::ps {
namespace {

constexpr int64_t kMaxPemBytes = 1 << 20U;

StatusOr<std::string> read_pem(const std::string& path, std::string_view what) {
  if (path.empty()) return InvalidArgument("mutual TLS requires the file of the {}", what);
  MILLRACE_ASSIGN_OR_RETURN(std::string text, read_file(path, kMaxPemBytes));
  if (text.find("-----BEGIN ") == std::string::npos)
    return InvalidData("expected a {} in PEM form", what).in_file(path);
  return text;
}

bool has_role(const grpc::AuthContext& peer, std::string_view role) {
  for (const grpc::string_ref& uri : peer.FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME)) {
    if (std::string_view(uri.data(), uri.size()) == fmt::format("millrace://role/{}", role))
      return true;
  }
  return false;
}

// A certificate that names trainers is only for calls of these; Watch and Stop are of no trainer.
Status check_trainer(const grpc::AuthContext& peer, const Request& request) {
  constexpr std::string_view kTrainer = "millrace://trainer/";
  if (request.method == Method::kWatch || request.method == Method::kStop) return Ok();
  std::string named;
  for (const grpc::string_ref& uri : peer.FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME)) {
    const std::string_view text(uri.data(), uri.size());
    if (!text.starts_with(kTrainer)) continue;
    if (text.substr(kTrainer.size()) == std::to_string(request.caller.trainer)) return Ok();
    named += fmt::format("{}{}", named.empty() ? "" : ", ", printable(text));
  }
  if (named.empty()) return Ok();
  return InvalidArgument("'{}' of trainer {}, but the caller's certificate is for {}",
                         method_name(request.method), request.caller.trainer, named);
}

bool is_for_operators(Method method) {
  return method == Method::kStop || method == Method::kCheckpoint;
}

}  // namespace

StatusOr<GrpcCredentials> make_credentials(const std::optional<TlsFiles>& tls) {
  if (!tls)
    return GrpcCredentials{grpc::InsecureChannelCredentials(), grpc::InsecureServerCredentials()};
  MILLRACE_ASSIGN_OR_RETURN(const std::string authority, read_pem(tls->authority, "authority"));
  MILLRACE_ASSIGN_OR_RETURN(const std::string own, read_pem(tls->certificate, "certificate"));
  MILLRACE_ASSIGN_OR_RETURN(const std::string key, read_pem(tls->key, "key"));
  grpc::SslServerCredentialsOptions server(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  server.pem_root_certs = authority;
  server.pem_key_cert_pairs.push_back({key, own});
  return GrpcCredentials{grpc::SslCredentials({authority, key, own}),
                         grpc::SslServerCredentials(server)};
}

Status check_caller(const grpc::AuthContext& peer, const Request& request) {
  const Method method = request.method;
  MILLRACE_RETURN_IF_ERROR(check_trainer(peer, request));
  const bool fine =
      has_role(peer, "operator") ||
      (!is_for_operators(method) && (has_role(peer, "trainer") || has_role(peer, "pserver")));
  if (fine) return Ok();
  return InvalidArgument("the caller's certificate does not allow '{}'", method_name(method))
      .with_hint(fmt::format("it requires the subject alternative name URI:millrace://role/{}",
                             is_for_operators(method) ? "operator" : "trainer"));
}

Status check_server(const grpc::AuthContext& peer) {
  if (has_role(peer, "pserver")) return Ok();
  return Status(StatusCode::kDistributed, "the peer's certificate is not that of a pserver")
      .with_hint("it requires the subject alternative name URI:millrace://role/pserver");
}

}  // namespace millrace::ps
