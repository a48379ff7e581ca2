#pragma once

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "executor/collective/sockets.h"

namespace millrace::executor {

/// Messages between clients and server of the TCP store. Numbers are 32 bits, little endian.
///   hello:   kMagic, length of the job name, rank, job name  -> reply
///   request: op, length of key, length of value, time-out in ms, key, value -> reply
///   reply:   code, length, bytes
namespace store_wire {
/// Sent first by every client; the number changes with the protocol.
inline constexpr char kMagic[] = "mr-store-1";
inline constexpr size_t kMagicBytes = sizeof kMagic - 1;
/// Bytes of a request and of a reply before their variable parts.
inline constexpr size_t kRequestHeader = 13;
inline constexpr size_t kReplyHeader = 5;
/// Store::set(), get() and find().
enum Op : char { kSet = 'S', kGet = 'G', kFind = 'F' };
/// kAbsent: the key was not set in time. kRefused: the bytes are a message.
enum Code : char { kFound = '0', kAbsent = '1', kRefused = '2' };
/// Encode and decode a number of four bytes.
std::string number(size_t value);
size_t parse_number(const char* bytes);
/// A complete reply.
std::string reply(Code code, const std::string& bytes);
}  // namespace store_wire

/// Serves a TcpStore with one thread, which ends with the object. Connections that violate the
/// protocol are closed. Sizes of keys and values and their number are limited.
class TcpStoreServer {
 public:
  /// Errors: those of listen_at(); kResource.
  static StatusOr<std::unique_ptr<TcpStoreServer>> start(const std::string& endpoint,
                                                         std::string job);
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;
  ~TcpStoreServer();

 private:
  struct Client;
  struct Request;
  TcpStoreServer(Socket listener, std::string job);
  /// The thread: waits for clients and for the end of the object.
  void serve();
  /// Accepts connections; those above the limit are closed.
  void accept_clients();
  /// Reads what has arrived and answers complete requests. False if the connection must be closed.
  bool read_from(Client& client);
  bool take_messages(Client& client);
  /// False if the client does not speak the protocol; one of another job is refused and then
  /// closed.
  bool take_hello(Client& client);
  /// Queues the reply, or lets a get wait for its key.
  void answer(Client& client, const Request& request);
  /// Replies to the gets whose keys have been set, and to those whose deadline has passed.
  void answer_waiting();
  /// Sends queued replies as far as the connection takes them. False if it must be closed.
  static bool write_to(Client& client);

  Socket listener_;
  /// A pair by which the destructor wakes the thread.
  Socket stop_read_;
  Socket stop_write_;
  std::string job_;
  std::map<std::string, std::string> values_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::thread thread_;
};

}  // namespace millrace::executor
