#include "executor/c_api.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "executor/session.h"
#include "framework/base/errors.h"
#include "framework/base/exceptions.h"
#include "framework/base/exit_code.h"
#include "framework/program_file.h"
#include "framework/tensor/limit.h"

struct mr_session {
  millrace::Session session;
  millrace::Arrays results;
  std::vector<std::string> names;  ///< of the results that were returned
};

namespace millrace {
namespace {

Status null_pointer(const std::string& what, const std::string& expected) {
  return {StatusCode::kUsage, fmt::format("{}: expected {}, found null", what, expected)};
}

std::string arrays_text(size_t count) {
  return fmt::format("{} array{}", count, count == 1 ? "" : "s");
}

// Runs body(), which returns a Status. A C program cannot catch exceptions.
template <typename Body>
int answer(char* error, size_t error_size, Body&& body) {
  const Status status = without_exceptions("a call of the C interface", std::forward<Body>(body));
  if (error != nullptr && error_size > 0) {
    const std::string text = status.ok() ? std::string() : status.to_string();
    const size_t length = std::min(text.size(), error_size - 1);
    std::memcpy(error, text.data(), length);
    error[length] = '\0';
  }
  return exit_code(status.code());
}

// The same for calls that open a session, and for those that read or write its parameters.
template <typename Body>
int answer_open(mr_session** session, const char* device, char* error, size_t error_size,
                Body&& body) {
  if (session != nullptr) *session = nullptr;
  return answer(error, error_size, [&] {
    if (session == nullptr) return null_pointer("session", "a pointer");
    return device == nullptr ? null_pointer("device", "a name") : body();
  });
}
template <typename Body>
int answer_path(const mr_session* session, const char* path, char* error, size_t error_size,
                Body&& body) {
  return answer(error, error_size, [&] {
    if (session == nullptr) return null_pointer("session", "a session");
    return path == nullptr ? null_pointer("path", "a path") : body();
  });
}

Status open_program(const SessionOptions& options, const char* program, const char* startup,
                    mr_session** session) {
  if (program == nullptr) return null_pointer("program", "a path");
  MILLRACE_ASSIGN_OR_RETURN(const auto main_program, load_program(program));
  std::shared_ptr<const Program> startup_program;
  if (startup != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(startup_program, load_program(startup));
  }
  MILLRACE_ASSIGN_OR_RETURN(Session opened,
                            Session::open(*main_program, startup_program.get(), options));
  *session = new mr_session{std::move(opened), {}, {}};
  return Ok();
}

Status open_model(const SessionOptions& options, const char* folder, mr_session** session) {
  if (folder == nullptr) return null_pointer("folder", "a path");
  MILLRACE_ASSIGN_OR_RETURN(Session opened, Session::open_model(folder, options));
  *session = new mr_session{std::move(opened), {}, {}};
  return Ok();
}

// Errors: the bytes of a feed are not those of its dims, or are above the limit of a tensor.
Status check_bytes(const mr_array& feed, size_t index) {
  uint64_t expected = static_cast<uint64_t>(dtype_size(static_cast<DType>(feed.dtype)));
  for (int32_t i = 0; i < feed.rank; ++i) {
    if (feed.dims[i] < 0)
      return InvalidArgument("feed {} '{}': expected dims of at least 0, found {}", index,
                             feed.name, feed.dims[i]);
    if (__builtin_mul_overflow(expected, static_cast<uint64_t>(feed.dims[i]), &expected))
      return InvalidArgument("feed {} '{}': the product of its dims exceeds 64 bits", index,
                             feed.name);
  }
  if (expected != feed.bytes)
    return InvalidArgument("feed {} '{}': expected {} bytes, found {}", index, feed.name, expected,
                           feed.bytes);
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  return check_tensor_bytes(static_cast<int64_t>(std::min(expected, kMost)));
}

StatusOr<Arrays> feeds_of(const mr_array* feeds, size_t count) {
  Arrays arrays;
  for (size_t i = 0; i < count; ++i) {
    const mr_array& feed = feeds[i];
    if (feed.name == nullptr || feed.rank < 0 || (feed.data == nullptr && feed.bytes > 0) ||
        (feed.dims == nullptr && feed.rank > 0) || !is_valid(static_cast<DType>(feed.dtype)))
      return InvalidArgument("feed {}: expected a name, a dtype, a rank and data", i);
    MILLRACE_RETURN_IF_ERROR(check_bytes(feed, i));
    Array array = detail::make_array(static_cast<DType>(feed.dtype),
                                     {feed.dims, feed.dims + feed.rank}, feed.data, feed.bytes);
    if (!arrays.emplace(feed.name, std::move(array)).second)
      return InvalidArgument("feed {} '{}': expected one feed of that name, found two", i,
                             feed.name);
  }
  return arrays;
}

Status run(mr_session* given, const mr_array* feeds, size_t feed_count, const char* const* fetches,
           size_t fetch_count, mr_array* results) {
  if (given == nullptr) return null_pointer("session", "a session");
  if (feeds == nullptr && feed_count > 0) return null_pointer("feeds", arrays_text(feed_count));
  if (results == nullptr && fetch_count > 0)
    return null_pointer("results", "room for " + arrays_text(fetch_count));
  mr_session& session = *given;
  MILLRACE_ASSIGN_OR_RETURN(const Arrays arrays, feeds_of(feeds, feed_count));
  session.names.clear();
  if (fetches != nullptr) {
    for (size_t i = 0; i < fetch_count; ++i)
      if (fetches[i] == nullptr) return null_pointer(fmt::format("fetch {}", i), "a name");
    session.names.assign(fetches, fetches + fetch_count);
  } else {
    session.names = session.session.outputs();
    if (session.names.size() < fetch_count)
      return InvalidArgument("expected at most {} fetches, found {}", session.names.size(),
                             fetch_count);
    session.names.resize(fetch_count);
  }
  if (session.names.empty()) {  // the program runs, nothing is returned
    std::vector<std::string> none;
    const auto ran = session.session.run(arrays, none);
    return ran.ok() ? Ok() : ran.status();
  }
  MILLRACE_ASSIGN_OR_RETURN(session.results, session.session.run(arrays, session.names));
  for (size_t i = 0; i < session.names.size(); ++i) {
    const Array& array = session.results.at(session.names[i]);
    results[i] = {session.names[i].c_str(),
                  static_cast<int32_t>(array.dtype),
                  static_cast<int32_t>(array.dims.size()),
                  array.dims.data(),
                  array.bytes.data(),
                  array.bytes.size()};
  }
  return Ok();
}

const char* name_at(const std::vector<std::string>& names, size_t index) {
  return index < names.size() ? names[index].c_str() : nullptr;
}

}  // namespace
}  // namespace millrace

using millrace::answer;

int mr_open_model(const char* folder, int threads, mr_session** session, char* error,
                  size_t error_size) {
  return mr_open_model_on("cpu", folder, threads, session, error, error_size);
}

int mr_open_program(const char* program, const char* startup, int threads, mr_session** session,
                    char* error, size_t error_size) {
  return mr_open_program_on("cpu", program, startup, threads, session, error, error_size);
}

int mr_open_model_on(const char* device, const char* folder, int threads, mr_session** session,
                     char* error, size_t error_size) {
  return millrace::answer_open(session, device, error, error_size, [&] {
    return millrace::open_model({.threads = threads, .device = device}, folder, session);
  });
}

int mr_open_program_on(const char* device, const char* program, const char* startup, int threads,
                       mr_session** session, char* error, size_t error_size) {
  return millrace::answer_open(session, device, error, error_size, [&] {
    return millrace::open_program({.threads = threads, .device = device}, program, startup,
                                  session);
  });
}

void mr_close(mr_session* session) {
  delete session;
}

const char* mr_input_name(const mr_session* session, size_t index) {
  return session == nullptr ? nullptr : millrace::name_at(session->session.inputs(), index);
}

const char* mr_output_name(const mr_session* session, size_t index) {
  return session == nullptr ? nullptr : millrace::name_at(session->session.outputs(), index);
}

int mr_run(mr_session* session, const mr_array* feeds, size_t feed_count,
           const char* const* fetches, size_t fetch_count, mr_array* results, char* error,
           size_t error_size) {
  return answer(error, error_size, [&] {
    return millrace::run(session, feeds, feed_count, fetches, fetch_count, results);
  });
}

int mr_load_params(mr_session* session, const char* path, char* error, size_t error_size) {
  return millrace::answer_path(session, path, error, error_size,
                               [&] { return session->session.load_params(path); });
}

int mr_save_params(const mr_session* session, const char* path, char* error, size_t error_size) {
  return millrace::answer_path(session, path, error, error_size,
                               [&] { return session->session.save_params(path); });
}
