#include "ps/transport/tcp_connections.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace millrace::ps {
namespace {

using Clock = std::chrono::steady_clock;
using Stage = TcpConnection::Stage;

// How long a silent connection may keep its place while others wait for one.
constexpr std::chrono::milliseconds kSilentTurn{500};
// A connection that was closed to make room takes a moment to end.
constexpr std::chrono::milliseconds kEndingPause{20};

bool is_in(const TcpConnection& connection, std::initializer_list<Stage> stages) {
  return std::ranges::find(stages, connection.stage) != stages.end();
}

}  // namespace

size_t TcpConnections::count(bool known, std::initializer_list<Stage> stages) const {
  return static_cast<size_t>(std::ranges::count_if(connections_, [&](const TcpConnection& each) {
    return each.is_known == known && is_in(each, stages);
  }));
}

bool TcpConnections::any_in(std::initializer_list<Stage> stages) const {
  return std::ranges::any_of(connections_,
                             [&](const TcpConnection& each) { return is_in(each, stages); });
}

TcpConnection* TcpConnections::oldest_silent() {
  for (TcpConnection& each : connections_) {  // in the order of their arrival
    if (!each.is_known && !each.is_ended && is_in(each, {Stage::kIdle, Stage::kReceiving}))
      return &each;
  }
  return nullptr;
}

bool TcpConnections::end_oldest() {
  TcpConnection* const oldest = oldest_silent();
  if (oldest == nullptr || Clock::now() < oldest->since + kSilentTurn) return false;
  oldest->is_ended = true;
  oldest->socket.shut_down();
  return true;
}

void TcpConnections::make_room() {
  const std::lock_guard lock(mutex_);
  end_oldest();
}

bool TcpConnections::wait_for_place() {
  std::unique_lock lock(mutex_);
  while (!closing_ && count(false, {Stage::kIdle, Stage::kReceiving}) >= limits_.unknown) {
    auto until = Clock::now() + kEndingPause;
    if (end_oldest()) continue;
    if (const TcpConnection* const oldest = oldest_silent(); oldest != nullptr)
      until = oldest->since + kSilentTurn;
    changed_.wait_until(lock, until);
  }
  return !closing_;
}

Status TcpConnections::add(Socket socket, const std::function<void(TcpConnection&)>& serve) {
  const std::lock_guard lock(mutex_);
  try {
    TcpConnection& connection = connections_.emplace_back();
    connection.socket = std::move(socket);
    connection.since = Clock::now();
    // the thread waits for the mutex before it does anything
    connection.thread = std::thread([serve, &connection] { serve(connection); });
  } catch (const std::exception& error) {
    if (!connections_.empty() && !connections_.back().thread.joinable() &&
        connections_.back().stage != Stage::kGone)
      connections_.pop_back();
    return {StatusCode::kResource, fmt::format("no connection can be added: {}", error.what())};
  }
  return Ok();
}

bool TcpConnections::note(TcpConnection& connection, Stage stage) {
  const std::lock_guard lock(mutex_);
  connection.stage = stage;
  changed_.notify_all();
  return !closing_;
}

StatusOr<bool> TcpConnections::begin_handling(TcpConnection& connection) {
  std::unique_lock lock(mutex_);
  const auto may_begin = [&] {
    return closing_ || connection.is_known ||
           count(false, {Stage::kHandling, Stage::kReplying}) < limits_.unknown;
  };
  if (!changed_.wait_until(lock, greet_by(connection), may_begin)) {
    return Status(
        StatusCode::kResource,
        fmt::format("the server already handles {} calls of callers that have not said hello",
                    limits_.unknown));
  }
  connection.stage = Stage::kHandling;
  changed_.notify_all();
  return !closing_;
}

Status TcpConnections::room_for_known() const {
  const size_t known =
      count(true, {Stage::kIdle, Stage::kReceiving, Stage::kHandling, Stage::kReplying});
  if (known < limits_.known) return Ok();
  return {StatusCode::kResource,
          fmt::format("the server already has the maximum of {} connections", limits_.known)};
}

Status TcpConnections::check_room() {
  const std::lock_guard lock(mutex_);
  return room_for_known();
}

Status TcpConnections::make_known(TcpConnection& connection) {
  const std::lock_guard lock(mutex_);
  if (connection.is_known) return Ok();
  MILLRACE_RETURN_IF_ERROR(room_for_known());
  connection.is_known = true;
  changed_.notify_all();
  return Ok();
}

Socket TcpConnections::release(TcpConnection& connection) {
  const std::lock_guard lock(mutex_);
  return std::move(connection.socket);
}

void TcpConnections::remove_gone() {
  std::list<TcpConnection> gone;
  {
    const std::lock_guard lock(mutex_);
    for (auto at = connections_.begin(); at != connections_.end();) {
      const auto next = std::next(at);
      if (at->stage == Stage::kGone) gone.splice(gone.end(), connections_, at);
      at = next;
    }
  }
  for (TcpConnection& connection : gone) connection.thread.join();
}

void TcpConnections::close(std::chrono::milliseconds finish, std::chrono::milliseconds drain) {
  std::unique_lock lock(mutex_);
  closing_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, finish, [this] {
    return !any_in({Stage::kReceiving, Stage::kHandling, Stage::kReplying});
  });
  for (TcpConnection& connection : connections_)
    if (connection.stage != Stage::kReplying) connection.socket.shut_down();
  changed_.wait_for(lock, drain, [this] { return !any_in({Stage::kReplying}); });
  for (TcpConnection& connection : connections_) connection.socket.shut_down();
}

void TcpConnections::join() {
  for (TcpConnection& connection : connections_) connection.thread.join();
}

}  // namespace millrace::ps
