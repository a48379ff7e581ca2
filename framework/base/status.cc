#include "framework/base/status.h"

#include <cassert>
#include <cstdio>
#include <cstdlib>

#include "framework/base/text.h"

namespace millrace {

std::string_view status_code_name(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kUsage:
      return "usage";
    case StatusCode::kInvalidArgument:
      return "invalid-argument";
    case StatusCode::kInvalidProgram:
      return "invalid-program";
    case StatusCode::kInvalidData:
      return "invalid-data";
    case StatusCode::kNotFound:
      return "not-found";
    case StatusCode::kIo:
      return "io";
    case StatusCode::kExecution:
      return "execution";
    case StatusCode::kDistributed:
      return "distributed";
    case StatusCode::kResource:
      return "resource";
    case StatusCode::kUnimplemented:
      return "unimplemented";
    case StatusCode::kInternal:
      return "internal";
  }
  return "unknown";
}

std::string Location::to_string() const {
  std::string out = printable(file);
  auto add = [&out](const char* separator, const std::string& part) {
    if (!out.empty()) out += separator;
    out += part;
  };
  if (block >= 0) add(": ", "block " + std::to_string(block));
  if (op >= 0) add(", ", "op " + std::to_string(op));
  if (!op_type.empty()) add(op >= 0 ? " " : ", ", "(" + printable(op_type) + ")");
  if (!slot.empty()) {
    add(", ", printable(slot));
    if (slot_index >= 0) out += "[" + std::to_string(slot_index) + "]";
  }
  if (!attr.empty()) add(", ", "attr " + printable(attr));
  if (!var.empty()) add(slot.empty() ? ", " : " ", "'" + printable(var) + "'");
  return out;
}

Status::Status(StatusCode code, std::string message) : rep_(std::make_shared<Rep>()) {
  assert(code != StatusCode::kOk);
  rep_->code = code;
  rep_->message = std::move(message);
}

namespace {
// Function-local constants avoid static objects with constructors at namespace scope.
const std::string& empty_string() {
  static const std::string kEmpty;
  return kEmpty;
}
}  // namespace

const std::string& Status::message() const {
  return rep_ ? rep_->message : empty_string();
}

const Location& Status::location() const {
  static const Location kNowhere;
  return rep_ ? rep_->location : kNowhere;
}

const std::string& Status::hint() const {
  return rep_ ? rep_->hint : empty_string();
}

const std::vector<std::string>& Status::notes() const {
  static const std::vector<std::string> kNone;
  return rep_ ? rep_->notes : kNone;
}

// Always a copy: use_count() == 1 does not order the change after what another thread, which has
// released its copy of the status meanwhile, has read.
Status::Rep& Status::own() {
  rep_ = std::make_shared<Rep>(*rep_);
  return *rep_;
}

Status Status::at(Location location) && {
  if (rep_) own().location = std::move(location);
  return std::move(*this);
}

Status Status::in_file(std::string file) && {
  if (rep_ && rep_->location.file.empty()) own().location.file = std::move(file);
  return std::move(*this);
}

Status Status::with_hint(std::string hint) && {
  if (rep_) own().hint = std::move(hint);
  return std::move(*this);
}

Status Status::with_note(std::string note) && {
  if (rep_) own().notes.push_back(std::move(note));
  return std::move(*this);
}

std::string Status::to_string() const {
  if (ok()) return "ok";
  std::string out = "error: ";
  const std::string place = rep_->location.to_string();
  if (!place.empty()) out += place + ": ";
  out += printable(rep_->message);
  if (!rep_->location.source.empty())
    out += "\n  note: created at " + printable(rep_->location.source);
  if (!rep_->hint.empty()) out += "\n  hint: " + printable(rep_->hint);
  for (const std::string& note : rep_->notes) out += "\n  note: " + printable(note);
  return out;
}

void abort_without_value(const Status& status) {
  const std::string why = status.to_string();
  std::fprintf(stderr, "a StatusOr was used that has no value: %s\n", why.c_str());
  std::abort();
}

void abort_moved_from(const char* function) {
  // "... [with T = millrace::api::Executor::Parts; ...]"
  constexpr std::string_view kMarker = "T = ";
  std::string_view name = function;
  if (const size_t at = name.find(kMarker); at != name.npos) {
    name = name.substr(at + kMarker.size());
    name = name.substr(0, name.find_first_of(",;]"));
  }
  const std::string parts(name);
  std::fprintf(stderr, "an object was used after it was moved from: it has no %s\n", parts.c_str());
  std::abort();
}

}  // namespace millrace
