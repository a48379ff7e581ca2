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
inline constexpr char kMagic[] = "mr-store-1";
inline constexpr size_t kMagicBytes = sizeof kMagic - 1;
inline constexpr size_t kRequestHeader = 13;
inline constexpr size_t kReplyHeader = 5;
enum Op : char { kSet = 'S', kGet = 'G', kFind = 'F' };
enum Code : char { kFound = '0', kAbsent = '1', kRefused = '2' };
std::string number(size_t value);
size_t parse_number(const char* bytes);
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
  void serve();
  void accept_clients();
  bool read_from(Client& client);
  bool take_messages(Client& client);
  bool take_hello(Client& client);
  void answer(Client& client, const Request& request);
  void answer_waiting();
  static bool write_to(Client& client);

  Socket listener_;
  Socket stop_read_;
  Socket stop_write_;
  std::string job_;
  std::map<std::string, std::string> values_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::thread thread_;
};

}  // namespace millrace::executor
