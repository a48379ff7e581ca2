#include "executor/c_api.h"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "executor/session.h"
#include "framework/base/errors.h"
#include "framework/base/exit_code.h"
#include "framework/program_file.h"

struct mr_session {
  millrace::Session session;
  millrace::Arrays results;
  std::vector<std::string> names;  ///< of the results that were returned
};

namespace millrace {
namespace {

int answer(const Status& status, char* error, size_t error_size) {
  if (error != nullptr && error_size > 0) {
    const std::string text = status.ok() ? std::string() : status.to_string();
    const size_t length = std::min(text.size(), error_size - 1);
    std::memcpy(error, text.data(), length);
    error[length] = '\0';
  }
  return exit_code(status.code());
}

Status open_program(const SessionOptions& options, const char* program, const char* startup,
                    mr_session** session) {
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
  MILLRACE_ASSIGN_OR_RETURN(Session opened, Session::open_model(folder, options));
  *session = new mr_session{std::move(opened), {}, {}};
  return Ok();
}

StatusOr<Arrays> feeds_of(const mr_array* feeds, size_t count) {
  Arrays arrays;
  for (size_t i = 0; i < count; ++i) {
    const mr_array& feed = feeds[i];
    if (feed.name == nullptr || feed.rank < 0 || (feed.data == nullptr && feed.bytes > 0) ||
        !is_valid(static_cast<DType>(feed.dtype)))
      return InvalidArgument("feed {}: expected a name, a dtype, a rank and data", i);
    arrays[feed.name] = detail::make_array(
        static_cast<DType>(feed.dtype), {feed.dims, feed.dims + feed.rank}, feed.data, feed.bytes);
  }
  return arrays;
}

Status run(mr_session& session, const mr_array* feeds, size_t feed_count,
           const char* const* fetches, size_t fetch_count, mr_array* results) {
  MILLRACE_ASSIGN_OR_RETURN(const Arrays arrays, feeds_of(feeds, feed_count));
  session.names.clear();
  if (fetches != nullptr) {
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
  *session = nullptr;
  return answer(millrace::open_model({.threads = threads, .device = device}, folder, session),
                error, error_size);
}

int mr_open_program_on(const char* device, const char* program, const char* startup, int threads,
                       mr_session** session, char* error, size_t error_size) {
  *session = nullptr;
  return answer(
      millrace::open_program({.threads = threads, .device = device}, program, startup, session),
      error, error_size);
}

void mr_close(mr_session* session) {
  delete session;
}

const char* mr_input_name(const mr_session* session, size_t index) {
  return millrace::name_at(session->session.inputs(), index);
}

const char* mr_output_name(const mr_session* session, size_t index) {
  return millrace::name_at(session->session.outputs(), index);
}

int mr_run(mr_session* session, const mr_array* feeds, size_t feed_count,
           const char* const* fetches, size_t fetch_count, mr_array* results, char* error,
           size_t error_size) {
  return answer(millrace::run(*session, feeds, feed_count, fetches, fetch_count, results), error,
                error_size);
}

int mr_load_params(mr_session* session, const char* path, char* error, size_t error_size) {
  return answer(session->session.load_params(path), error, error_size);
}

int mr_save_params(const mr_session* session, const char* path, char* error, size_t error_size) {
  return answer(session->session.save_params(path), error, error_size);
}
