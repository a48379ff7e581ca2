#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <initializer_list>
#include <list>
#include <mutex>
#include <thread>

#include "framework/base/status.h"
#include "ps/transport/socket.h"

namespace millrace::ps {

/// A connection that a TCP server has accepted, with the thread that serves it.
struct TcpConnection {
  enum class Stage { kIdle, kReceiving, kHandling, kReplying, kGone };

  Socket socket;
  /// From when on it was there.
  std::chrono::steady_clock::time_point since;
  // Guarded by the mutex of TcpConnections; the own thread may read `is_known` without it.
  Stage stage = Stage::kIdle;
  bool is_known = false;  ///< a call of a known caller has arrived on it
  bool is_ended = false;  ///< closed to make room
  std::thread thread;
};

/// The connections of one TCP server, and how many there may be.
///
/// Connections on which no known caller has called yet have places of their own. While all of these
/// are taken, new connections wait in the queue of the system, and the one that has kept silent for
/// longest is closed once it has had its turn; so silent peers cannot keep others out. Known
/// connections are only refused above their limit, never closed for others.
/// Thread-safety: all members.
class TcpConnections {
 public:
  using Stage = TcpConnection::Stage;
  struct Limits {
    size_t known = 0;
    size_t unknown = 0;  ///< that a call is awaited from; as many again may have their call handled
    std::chrono::milliseconds greeting{0};  ///< how long a peer may stay unknown
  };
  explicit TcpConnections(Limits limits) : limits_(limits) {}
  TcpConnections(const TcpConnections&) = delete;
  TcpConnections& operator=(const TcpConnections&) = delete;
  /// All threads must have been joined, see join().
  ~TcpConnections() = default;

  /// Waits for a place for another connection. False if the server is about to end.
  bool wait_for_place();
  /// Closes the unknown connection that has kept silent for longest, if it has had its turn: the
  /// process has no descriptor, thread or memory for another one.
  void make_room();
  /// Adds a connection and starts its thread, which runs `serve`. Errors: kResource if no thread or
  /// memory can be had; the connection is then closed.
  Status add(Socket socket, const std::function<void(TcpConnection&)>& serve);
  /// Records the stage of a connection. False if the server is about to end.
  bool note(TcpConnection& connection, Stage stage);
  /// The same for the beginning of a call's handling, which may have to wait for a place if the
  /// connection is unknown. False if the server is about to end. Errors: kResource if no place
  /// becomes free in time.
  StatusOr<bool> begin_handling(TcpConnection& connection);
  /// Errors: that of make_known(), if it would have one for another connection.
  Status check_room();
  /// Counts the connection as known from now on. Errors: kResource with the limit.
  Status make_known(TcpConnection& connection);
  /// When an unknown connection has to be known.
  [[nodiscard]] std::chrono::steady_clock::time_point greet_by(
      const TcpConnection& connection) const {
    return connection.since + limits_.greeting;
  }
  /// Takes the socket out, for another server.
  Socket release(TcpConnection& connection);
  /// Joins the threads of connections that have ended.
  void remove_gone();

  /// Ends the waits of wait_for_place(), lets running calls finish for `finish`, and replies be
  /// sent for `drain`, and closes all connections.
  void close(std::chrono::milliseconds finish, std::chrono::milliseconds drain);
  /// Joins all threads, after close() and when no more connections are added.
  void join();

 private:
  [[nodiscard]] size_t count(bool known, std::initializer_list<Stage> stages) const;
  [[nodiscard]] Status room_for_known() const;
  [[nodiscard]] bool any_in(std::initializer_list<Stage> stages) const;
  TcpConnection* oldest_silent();
  bool end_oldest();

  const Limits limits_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<TcpConnection> connections_;
  bool closing_ = false;
};

}  // namespace millrace::ps
