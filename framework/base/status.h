#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace {

/// The kind of an error. Tools map each code to one exit code (base/exit_code.h).
enum class StatusCode {
  kOk = 0,
  kUsage,            ///< wrong flags or arguments; exit 2
  kInvalidArgument,  ///< a configuration field or call argument has a bad value; exit 3
  kInvalidProgram,   ///< a program breaks a rule of the format or of an op; exit 3
  kInvalidData,      ///< parameters, feeds, checkpoints or text that cannot be read; exit 3
  kNotFound,         ///< a file or a named thing does not exist; exit 3
  kIo,               ///< the operating system refused to read or write; exit 6
  kExecution,        ///< an op failed while running; exit 4
  kDistributed,      ///< a peer was lost or a deadline passed; may be retried; exit 5
  kResource,         ///< memory, disk or a stated limit is exhausted; exit 6
  kUnimplemented,    ///< a valid request that this build does not support; exit 7
  kInternal,         ///< a bug in millrace; exit 70
};

/// Name of a code in lower-case words, for example "invalid-program".
std::string_view status_code_name(StatusCode code);

/// Where in a file or program an error occurred. Unknown fields stay empty or negative.
struct Location {
  std::string file;
  int block = -1;   ///< block index
  int64_t op = -1;  ///< op index within the block
  std::string op_type;
  std::string slot;     ///< input or output slot of the op
  int slot_index = -1;  ///< position in the slot
  std::string attr;
  std::string var;
  std::string source;  ///< the user's source line that created the op, from op_callstack

  /// "file: block B, op I (type), input Slot[k] 'var'"; empty if nothing is known. Escaped for
  /// terminals.
  [[nodiscard]] std::string to_string() const;
};

/// Result of a function that can fail: ok, or a code with message, location, hint and notes.
///
/// Cheap to move and to copy; an ok Status holds no memory. Thread-safety: as a value.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message);

  [[nodiscard]] bool ok() const { return rep_ == nullptr; }
  [[nodiscard]] StatusCode code() const { return rep_ ? rep_->code : StatusCode::kOk; }
  /// What went wrong: one line, lower-case, without location.
  [[nodiscard]] const std::string& message() const;
  /// Where it happened; empty if nothing is known.
  [[nodiscard]] const Location& location() const;
  /// What the user can do about it; may be empty.
  [[nodiscard]] const std::string& hint() const;
  /// Further facts, one line each, in the order they were added.
  [[nodiscard]] const std::vector<std::string>& notes() const;

  /// This status with the given information added; an ok status stays ok.
  Status at(Location location) &&;
  /// Sets the file of the location unless it has one; its other fields stay.
  Status in_file(std::string file) &&;
  Status with_hint(std::string hint) &&;
  Status with_note(std::string note) &&;

  /// All fields as the tools print them, one per line: "error: <location>: <message>",
  /// "  hint: ...", "  note: ...".
  [[nodiscard]] std::string to_string() const;

 private:
  /// Shared by copies; own() copies it before a change.
  struct Rep {
    StatusCode code;
    std::string message;
    Location location;
    std::string hint;
    std::vector<std::string> notes;
  };
  Rep& own();

  std::shared_ptr<Rep> rep_;
};

/// The ok status.
inline Status Ok() {
  return {};
}

/// Ends the process, because its code used a value that is not there: writes the status to stderr
/// and aborts.
[[noreturn]] void abort_without_value(const Status& status);
/// The same for an object that was moved from.
/// \param function  __PRETTY_FUNCTION__ of a member of PartsPtr; the message names its T
[[noreturn]] void abort_moved_from(const char* function);

/// A value of type T or the Status that explains why there is none. Without a value, value(), * and
/// -> call abort_without_value(), and so does the constructor for an ok status.
template <typename T>
class [[nodiscard]] StatusOr {
 public:
  StatusOr(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    if (status_.ok()) abort_without_value(status_);
  }
  StatusOr(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const { return value_.has_value(); }
  [[nodiscard]] const Status& status() const& { return status_; }
  [[nodiscard]] Status status() && { return std::move(status_); }

  [[nodiscard]] T& value() & { return **this; }
  [[nodiscard]] const T& value() const& { return **this; }
  [[nodiscard]] T&& value() && { return *std::move(*this); }
  T& operator*() & { return require_value(), *value_; }
  const T& operator*() const& { return require_value(), *value_; }
  T&& operator*() && { return require_value(), *std::move(value_); }
  T* operator->() { return &**this; }
  const T* operator->() const { return &**this; }

 private:
  void require_value() const {
    if (!value_.has_value()) abort_without_value(status_);
  }

  Status status_;
  std::optional<T> value_;
};

/// Owner of what is inside an object of an installed class. A move leaves the object without it;
/// then its functions call abort_moved_from().
///
/// \tparam T        may be incomplete where the class is declared
/// \tparam Pointer  std::unique_ptr or std::shared_ptr
template <typename T, typename Pointer = std::unique_ptr<T>>
class PartsPtr {
 public:
  PartsPtr(Pointer parts) : parts_(std::move(parts)) {}  // NOLINT(google-explicit-constructor)

  T& operator*() const { return *pointer(); }
  T* operator->() const { return pointer().get(); }
  /// The pointer itself, not null.
  const Pointer& pointer() const {
    if (parts_ == nullptr) abort_moved_from(__PRETTY_FUNCTION__);
    return parts_;
  }

 private:
  Pointer parts_;
};

}  // namespace millrace

/// Returns the status from the enclosing function if the expression is not ok.
#define MILLRACE_RETURN_IF_ERROR(expr)                                        \
  do {                                                                        \
    if (::millrace::Status millrace_status_ = (expr); !millrace_status_.ok()) \
      return millrace_status_;                                                \
  } while (false)

#define MILLRACE_CONCAT_INNER(a, b) a##b
#define MILLRACE_CONCAT(a, b) MILLRACE_CONCAT_INNER(a, b)
#define MILLRACE_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                                   \
  if (!tmp.ok()) return std::move(tmp).status();       \
  lhs = std::move(tmp).value()

/// Evaluates a StatusOr expression, returns its status on failure, else assigns the value.
#define MILLRACE_ASSIGN_OR_RETURN(lhs, expr) \
  MILLRACE_ASSIGN_OR_RETURN_IMPL(MILLRACE_CONCAT(millrace_statusor_, __LINE__), lhs, expr)
