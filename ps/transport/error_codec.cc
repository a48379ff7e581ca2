#include "ps/transport/error_codec.h"

#include <array>
#include <string>
#include <utility>

#include "framework/base/text.h"
#include "proto/ps_service.pb.h"

namespace millrace::ps {
namespace {

constexpr size_t kMaxText = 4096;
constexpr int kMaxNotes = 32;

struct CodeNumber {
  StatusCode code;
  uint32_t number;
};

// Numbers of the wire format; they must not change when the enum does.
constexpr std::array<CodeNumber, 11> kCodes{{{StatusCode::kUsage, 1},
                                             {StatusCode::kInvalidArgument, 2},
                                             {StatusCode::kInvalidProgram, 3},
                                             {StatusCode::kInvalidData, 4},
                                             {StatusCode::kNotFound, 5},
                                             {StatusCode::kIo, 6},
                                             {StatusCode::kExecution, 7},
                                             {StatusCode::kDistributed, 8},
                                             {StatusCode::kResource, 9},
                                             {StatusCode::kUnimplemented, 10},
                                             {StatusCode::kInternal, 11}}};

uint32_t code_number(StatusCode code) {
  for (const CodeNumber& row : kCodes)
    if (row.code == code) return row.number;
  return 0;
}

StatusCode code_of(uint32_t number) {
  for (const CodeNumber& row : kCodes)
    if (row.number == number) return row.code;
  return StatusCode::kInternal;
}

// Valid UTF-8, as protobuf requires for strings, and of limited length.
std::string text(const std::string& from) {
  return printable(from.size() <= kMaxText ? from : from.substr(0, kMaxText) + " ...");
}

void encode_location(const Location& from, PsLocation& to) {
  if (!from.file.empty()) to.set_file(text(from.file));
  if (from.block >= 0) to.set_block(from.block);
  if (from.op >= 0) to.set_op(from.op);
  if (!from.op_type.empty()) to.set_op_type(text(from.op_type));
  if (!from.slot.empty()) to.set_slot(text(from.slot));
  if (from.slot_index >= 0) to.set_slot_index(from.slot_index);
  if (!from.attr.empty()) to.set_attr(text(from.attr));
  if (!from.var.empty()) to.set_var(text(from.var));
  if (!from.source.empty()) to.set_source(text(from.source));
}

Location decode_location(const PsLocation& from) {
  Location to;
  to.file = text(from.file());
  if (from.has_block()) to.block = from.block();
  if (from.has_op()) to.op = from.op();
  to.op_type = text(from.op_type());
  to.slot = text(from.slot());
  if (from.has_slot_index()) to.slot_index = from.slot_index();
  to.attr = text(from.attr());
  to.var = text(from.var());
  to.source = text(from.source());
  return to;
}

}  // namespace

void encode_status(const Status& status, PsError& error) {
  error.set_code(code_number(status.code()));
  error.set_message(text(status.message()));
  if (!status.hint().empty()) error.set_hint(text(status.hint()));
  for (const std::string& note : status.notes()) {
    if (error.notes_size() == kMaxNotes) break;
    error.add_notes(text(note));
  }
  PsLocation location;
  encode_location(status.location(), location);
  if (location.ByteSizeLong() > 0) *error.mutable_location() = std::move(location);
}

Status decode_status(const PsError& error) {
  Status status(code_of(error.code()),
                error.message().empty() ? "an error without a message" : text(error.message()));
  if (error.has_location()) status = std::move(status).at(decode_location(error.location()));
  if (!error.hint().empty()) status = std::move(status).with_hint(text(error.hint()));
  for (int i = 0; i < error.notes_size() && i < kMaxNotes; ++i)
    status = std::move(status).with_note(text(error.notes(i)));
  return status;
}

}  // namespace millrace::ps
