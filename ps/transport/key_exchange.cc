#include "ps/transport/key_exchange.h"

#include <span>

#include "framework/base/errors.h"

namespace millrace::ps {
namespace {

Status send_text(Socket& socket, std::string text) {
  OutgoingMessage message;
  message.head = std::move(text);
  return socket.send(message);
}

// Exactly that many bytes. Errors: kDistributed if the connection ends before.
StatusOr<std::string> receive_text(Socket& socket, size_t count) {
  std::string text(count, '\0');
  for (size_t done = 0; done < count;) {
    MILLRACE_ASSIGN_OR_RETURN(
        const size_t now, socket.receive(std::as_writable_bytes(std::span(text)).subspan(done)));
    if (now == 0)
      return Status(StatusCode::kDistributed, "the connection ended while keys were compared");
    done += now;
  }
  return text;
}

}  // namespace

Status lacks_key() {
  return InvalidArgument("this server requires the key of the job, and the caller has none")
      .with_hint("--job-key FILE names the file of the key");
}

Status exchange_as_caller(Socket& socket, const io::JobKey& key, const std::string& endpoint) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string own, io::JobKey::nonce());
  MILLRACE_RETURN_IF_ERROR(send_text(socket, std::string(kKeyMark) + own));
  MILLRACE_ASSIGN_OR_RETURN(const std::string mark, receive_text(socket, kKeyMark.size()));
  if (mark != kKeyMark)
    return InvalidArgument("this process has the key of a job, and the server at {} has none",
                           endpoint)
        .with_hint("start the server with the same --job-key");
  MILLRACE_ASSIGN_OR_RETURN(const std::string theirs, receive_text(socket, io::JobKey::kBytes));
  MILLRACE_ASSIGN_OR_RETURN(const std::string proof, receive_text(socket, io::JobKey::kBytes));
  if (!key.is_proof(proof, io::JobKey::Side::kServer, own, theirs))
    return InvalidArgument("the server at {} has the key of another job", endpoint);
  return send_text(socket, key.proof(io::JobKey::Side::kCaller, own, theirs));
}

Status exchange_as_server(Socket& socket, const io::JobKey& key) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string mark, receive_text(socket, kKeyMark.size()));
  if (mark != kKeyMark) return lacks_key();
  MILLRACE_ASSIGN_OR_RETURN(const std::string theirs, receive_text(socket, io::JobKey::kBytes));
  MILLRACE_ASSIGN_OR_RETURN(const std::string own, io::JobKey::nonce());
  MILLRACE_RETURN_IF_ERROR(send_text(
      socket, std::string(kKeyMark) + own + key.proof(io::JobKey::Side::kServer, theirs, own)));
  MILLRACE_ASSIGN_OR_RETURN(const std::string proof, receive_text(socket, io::JobKey::kBytes));
  if (key.is_proof(proof, io::JobKey::Side::kCaller, theirs, own)) return Ok();
  return InvalidArgument("the caller has the key of another job");
}

}  // namespace millrace::ps
