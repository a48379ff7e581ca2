// Any bytes, in chunks of any size, are refused with a message, or are a call or a reply that is
// written and read again without change; the values are never larger than the received bytes. The
// first byte sets the size of chunks and, by its highest bit, whether a reply is expected.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "framework/tensor/value.h"
#include "ps/transport/codec.h"
#include "tests/fuzz/require.h"

using millrace::testing::require;

namespace {

using millrace::ps::BufferPool;
using millrace::ps::CallReader;
using millrace::ps::MessageGrant;
using millrace::ps::OutgoingMessage;
using millrace::ps::Reply;
using millrace::ps::ReplyReader;
using millrace::ps::Request;

millrace::Status feed(millrace::ps::MessageReader& reader, std::string_view bytes, size_t step) {
  for (size_t at = 0; at < bytes.size(); at += step) {
    const std::string_view piece = bytes.substr(at, step);
    MILLRACE_RETURN_IF_ERROR(reader.feed(std::as_bytes(std::span(piece.data(), piece.size()))));
  }
  return millrace::Ok();
}

std::string flat(const OutgoingMessage& message) {
  std::string bytes = message.head;
  for (const std::span<const std::byte> piece : message.payload)
    bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  return bytes;
}

// Reading, writing and reading again must not change a call.
void check_call(BufferPool& pool, std::string_view bytes, size_t step) {
  CallReader reader(pool, 1 << 24);
  Request envelope;
  reader.set_admission([&](const Request& found) -> millrace::StatusOr<MessageGrant> {
    envelope = found;
    return MessageGrant{};
  });
  const millrace::Status status = feed(reader, bytes, step);
  require(status.ok() || !status.message().empty(), "an error has a message");
  if (!status.ok() || !reader.done()) return;
  const Request& request = reader.request();
  require(envelope.method == request.method && envelope.caller.job == request.caller.job &&
              envelope.caller.trainer == request.caller.trainer &&
              envelope.caller.incarnation == request.caller.incarnation &&
              envelope.epoch == request.epoch,
          "a call is admitted as what it is");
  OutgoingMessage message;
  const auto written = encode_request(reader.request(), reader.timeout_us(), message);
  require(written.ok(), "what was read is written");
  require(message.payload_bytes <= bytes.size(), "values are no larger than what arrived");
  CallReader again(pool, 1 << 24);
  require(feed(again, flat(message), 1000).ok() && again.done(), "what is written is read");
  OutgoingMessage second;
  require(encode_request(again.request(), again.timeout_us(), second).ok(), "and written again");
  require(flat(message) == flat(second), "the same bytes");
}

void check_reply(BufferPool& pool, std::string_view bytes, size_t step) {
  Reply reply;
  ReplyReader reader(pool, reply, 1 << 24);
  const millrace::Status status = feed(reader, bytes, step);
  require(status.ok() || !status.message().empty(), "an error has a message");
  if (!status.ok() || !reader.done()) return;
  require(!reader.status().ok() || reply.names.size() == reply.values.size(), "a name a value");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t step = static_cast<size_t>(data[0] & 0x7fU) * 5 + 1;
  BufferPool pool;
  if ((data[0] & 0x80U) != 0) {
    check_reply(pool, bytes, step);
  } else {
    check_call(pool, bytes, step);
  }
  return 0;
}
