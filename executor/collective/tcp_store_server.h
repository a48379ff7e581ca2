#pragma once

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "executor/collective/sockets.h"
#include "framework/base/pause_watch.h"
#include "io/job_key.h"

namespace millrace::executor {

/// Messages between clients and server of the TCP store. Numbers are 32 bits, little endian.
///   hello:   kMagic, length of the job name, rank, process, kHasKey or kNoKey, nonce, job name
///            -> reply; to a client with the job's key: kChallenge with nonce and proof of the
///            server
///   proof:   of the client (io::JobKey) -> reply
///   request: op, length of key, length of value, time-out in ms, key, value -> reply
///   reply:   code, length, bytes
namespace store_wire {
/// Sent first by every client; the number changes with the protocol.
inline constexpr char kMagic[] = "mr-store-2";
inline constexpr size_t kMagicBytes = sizeof kMagic - 1;
/// Bytes of a hello after kMagic and before the job name.
inline constexpr size_t kHelloHeader = 17 + io::JobKey::kBytes;
/// Whether the client has the key of the job.
inline constexpr char kHasKey = 'K';
inline constexpr char kNoKey = '-';
/// Bytes of a request and of a reply before their variable parts.
inline constexpr size_t kRequestHeader = 13;
inline constexpr size_t kReplyHeader = 5;
/// Store::set(), get() and find().
enum Op : char { kSet = 'S', kGet = 'G', kFind = 'F' };
/// kAbsent: the key was not set in time. kRefused: the bytes are a message. kChallenge: the client
/// must prove that it has the key of the job.
enum Code : char { kFound = '0', kAbsent = '1', kRefused = '2', kChallenge = '3' };
/// Encode and decode a number of four bytes.
std::string number(size_t value);
size_t parse_number(const char* bytes);
/// A complete reply.
std::string reply(Code code, const std::string& bytes);
}  // namespace store_wire

/// Serves a TcpStore with one thread, which ends with the object. Connections that violate the
/// protocol are closed. Sizes of keys and values, their number and their total are limited. While a
/// rank is connected, another process cannot join as that rank.
class TcpStoreServer {
 public:
  /// \param key  of the job; clients must prove that they have it. Null: none
  /// Errors: those of listen_at(); kResource.
  static StatusOr<std::unique_ptr<TcpStoreServer>> start(
      const std::string& endpoint, std::string job,
      std::shared_ptr<const io::JobKey> key = nullptr);
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;
  ~TcpStoreServer();

 private:
  struct Client;
  struct Request;
  TcpStoreServer(Socket listener, std::string job, std::shared_ptr<const io::JobKey> key);
  /// The thread: waits for clients and for the end of the object.
  void serve();
  bool serve_once();
  bool read_if_memory(Client& client);
  /// Accepts connections; those above the limit are closed.
  void accept_clients();
  /// Reads what has arrived and answers complete requests. False if the connection must be closed.
  bool read_from(Client& client);
  bool take_messages(Client& client);
  /// Read the greeting. False if the client does not speak the protocol; one that is refused gets
  /// the reason, and its connection is then closed.
  bool take_hello(Client& client);
  bool take_proof(Client& client);
  /// Compares keys: sends the challenge, or refuses a client that has no key where one is needed.
  void challenge(Client& client);
  /// Accepts the client if job and rank fit.
  void admit(Client& client);
  static void refuse(Client& client, const std::string& reason);
  /// Sets a value. \returns false if the store is full
  bool set(const std::string& key, const std::string& value);
  /// Queues the reply, or lets a get wait for its key.
  void answer(Client& client, const Request& request);
  /// Replies to the gets whose keys have been set, and to those whose deadline has passed.
  void answer_waiting();
  /// Sends queued replies as far as the connection takes them. False if it must be closed.
  static bool write_to(Client& client);

  /// The time by which clients are judged: it stands still while this process is paused.
  [[nodiscard]] PauseMeter::Clock::time_point now() const;

  PauseMeter pauses_{PauseMeter::Clock::now()};
  Socket listener_;
  /// A pair by which the destructor wakes the thread.
  Socket stop_read_;
  Socket stop_write_;
  std::string job_;
  std::shared_ptr<const io::JobKey> key_;
  std::map<std::string, std::string> values_;
  size_t bytes_ = 0;  ///< of all keys and values that clients set
  std::vector<std::unique_ptr<Client>> clients_;
  std::thread thread_;
};

}  // namespace millrace::executor
