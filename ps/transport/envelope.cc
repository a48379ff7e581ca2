#include "ps/transport/envelope.h"

#include <limits>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include "proto/ps_service.pb.h"

namespace millrace::ps {
namespace {

using google::protobuf::internal::WireFormatLite;

constexpr uint32_t kMostJobBytes = uint32_t{4} << 10U;

// A field that is a number.
void set_number(int field, uint64_t value, Request& envelope, uint32_t& version) {
  switch (field) {
    case PsCall::kVersionFieldNumber:
      version = static_cast<uint32_t>(value);
      break;
    case PsCall::kMethodFieldNumber:
      // 0 is no method; larger numbers must not become one by the cast
      value = static_cast<uint32_t>(value);
      envelope.method =
          static_cast<Method>(value > std::numeric_limits<uint8_t>::max() ? 0 : value);
      break;
    case PsCall::kTrainerFieldNumber:
      envelope.caller.trainer = static_cast<int>(value);
      break;
    case PsCall::kIncarnationFieldNumber:
      envelope.caller.incarnation = value;
      break;
    case PsCall::kEpochFieldNumber:
      envelope.epoch = value;
      break;
    case PsCall::kStepFieldNumber:
      envelope.step = static_cast<int64_t>(value);
      break;
    case PsCall::kSequenceFieldNumber:
      envelope.sequence = value;
      break;
    case PsCall::kNumberFieldNumber:
      envelope.number = static_cast<int64_t>(value);
      break;
    default:
      break;
  }
}

}  // namespace

bool read_envelope(std::string_view head, Request& envelope, uint32_t& version) {
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(head.data()),
                                            static_cast<int>(head.size()));
  envelope.method = Method{};
  envelope.step = 0;  // as in the message: absent fields are 0
  while (const uint32_t tag = in.ReadTag()) {
    const int field = WireFormatLite::GetTagFieldNumber(tag);
    const WireFormatLite::WireType type = WireFormatLite::GetTagWireType(tag);
    if (type == WireFormatLite::WIRETYPE_VARINT) {
      uint64_t value = 0;
      if (!in.ReadVarint64(&value)) return false;
      set_number(field, value, envelope, version);
    } else if (type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED &&
               field == PsCall::kJobFieldNumber) {
      uint32_t length = 0;
      if (!in.ReadVarint32(&length) || length > kMostJobBytes ||
          !in.ReadString(&envelope.caller.job, static_cast<int>(length)))
        return false;
    } else if (!WireFormatLite::SkipField(&in, tag)) {
      return false;
    }
  }
  return in.ConsumedEntireMessage();
}

}  // namespace millrace::ps
