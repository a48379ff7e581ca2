#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <llvm/ADT/STLFunctionalExtras.h>
#include <llvm/ADT/ScopeExit.h>
#include <signal.h>

#include "executor/collective/engines.h"
#include "executor/collective/pairwise_group.h"
#include "executor/collective/roll_call.h"
#include "framework/base/errors.h"
#include "framework/base/module.h"
#include "framework/base/polled_deadline.h"

// Gloo throws exceptions, so every call of it is inside guarded().
namespace millrace::executor {
namespace {

using std::chrono::milliseconds;

// The remaining ranks must respond within this time.
constexpr int64_t kRollMs = 3000;
// Slot of messages between two ranks; Gloo uses the lower prefixes for its own messages.
constexpr uint64_t kMessageSlot = uint64_t{0x70} << 56U;
// Gloo counts pauses of this process as time. So its own timeout is out of reach, and a CallWatch
// ends calls.
constexpr milliseconds kNoTimeout = std::chrono::hours(24 * 365);

// Gloo writes to connections that the peer has closed, which raises SIGPIPE and would end the
// process. The signal is blocked for this thread and for threads that Gloo starts meanwhile, and a
// pending one is discarded.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;
  ~NoPipeSignal() {
    const timespec at_once{};
    if (!was_pending_) sigtimedwait(&pipe_, nullptr, &at_once);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_{};
  sigset_t before_{};
  bool was_pending_;
};

// Adapts a Store to Gloo's interface.
class KeyStore final : public gloo::rendezvous::Store {
 public:
  KeyStore(millrace::executor::Store& store, std::string prefix, int64_t timeout_ms)
      : store_(store), prefix_(std::move(prefix)), timeout_ms_(timeout_ms) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    check(store_.set(prefix_ + key, {data.begin(), data.end()}));
  }
  std::vector<char> get(const std::string& key) override {
    StatusOr<std::string> value = store_.get(prefix_ + key, timeout_ms_);
    check(value.status());
    return {value->begin(), value->end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) (void)get(key);
  }
  void wait(const std::vector<std::string>& keys, const milliseconds& /*timeout*/) override {
    wait(keys);
  }

 private:
  static void check(const Status& status) {
    if (!status.ok()) throw gloo::IoException(status.message());
  }

  millrace::executor::Store& store_;
  std::string prefix_;
  int64_t timeout_ms_;
};

// Ends calls that take too long, not counting time for which this process was paused.
class CallWatch {
 public:
  // \param end_call  makes the current call throw; called in another thread
  explicit CallWatch(std::function<void()> end_call)
      : end_call_(std::move(end_call)), thread_([this] { run(); }) {}
  CallWatch(const CallWatch&) = delete;
  CallWatch& operator=(const CallWatch&) = delete;
  ~CallWatch() {
    {
      const std::scoped_lock lock(mutex_);
      stop_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  void begin(milliseconds time) {
    const std::scoped_lock lock(mutex_);
    deadline_.emplace(time);
  }
  void end() {
    const std::scoped_lock lock(mutex_);
    deadline_.reset();
  }
  // Whether a call was too late.
  [[nodiscard]] bool was_late() {
    const std::scoped_lock lock(mutex_);
    return late_;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, PauseMeter::kInterval, [this] { return stop_; })) {
      if (!deadline_ || !deadline_->has_passed()) continue;
      late_ = true;
      deadline_.reset();
      lock.unlock();
      end_call_();
      lock.lock();
    }
  }

  std::function<void()> end_call_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<PolledDeadline> deadline_;  ///< of the current call
  bool late_ = false;
  bool stop_ = false;
  std::thread thread_;
};

// The buffers of a context for which calls wait. Gloo does not wake a call that waits to send on a
// connection which broke while it sent.
class OpenBuffers {
 public:
  void add(gloo::transport::UnboundBuffer* buffer) {
    const std::scoped_lock lock(mutex_);
    buffers_.insert(buffer);
  }
  void remove(gloo::transport::UnboundBuffer* buffer) {
    const std::scoped_lock lock(mutex_);
    buffers_.erase(buffer);
  }
  // Ends all waiting, also that which begins later.
  void end_all() {
    const std::scoped_lock lock(mutex_);
    has_ended_ = true;
    for (gloo::transport::UnboundBuffer* const buffer : buffers_) {
      buffer->abortWaitSend();
      buffer->abortWaitRecv();
    }
  }
  [[nodiscard]] bool has_ended() {
    const std::scoped_lock lock(mutex_);
    return has_ended_;
  }

 private:
  std::mutex mutex_;
  std::set<gloo::transport::UnboundBuffer*> buffers_;
  bool has_ended_ = false;
};

// A buffer whose waiting throws once all waiting has been ended.
class WatchedBuffer final : public gloo::transport::UnboundBuffer {
 public:
  WatchedBuffer(std::unique_ptr<UnboundBuffer> buffer, std::shared_ptr<OpenBuffers> all)
      : UnboundBuffer(buffer->ptr, buffer->size), buffer_(std::move(buffer)), all_(std::move(all)) {
    all_->add(buffer_.get());
  }
  WatchedBuffer(const WatchedBuffer&) = delete;
  WatchedBuffer& operator=(const WatchedBuffer&) = delete;
  ~WatchedBuffer() override { all_->remove(buffer_.get()); }

  bool waitRecv(int* rank, milliseconds timeout) override {
    check();
    const bool done = buffer_->waitRecv(rank, timeout);
    check();
    return done;
  }
  bool waitSend(int* rank, milliseconds timeout) override {
    check();
    const bool done = buffer_->waitSend(rank, timeout);
    check();
    return done;
  }
  void abortWaitRecv() override { buffer_->abortWaitRecv(); }
  void abortWaitSend() override { buffer_->abortWaitSend(); }
  void send(int to, uint64_t slot, size_t offset, size_t bytes) override {
    buffer_->send(to, slot, offset, bytes);
  }
  void recv(int from, uint64_t slot, size_t offset, size_t bytes) override {
    buffer_->recv(from, slot, offset, bytes);
  }
  void recv(std::vector<int> from, uint64_t slot, size_t offset, size_t bytes) override {
    buffer_->recv(std::move(from), slot, offset, bytes);
  }

 private:
  void check() const {
    if (all_->has_ended()) throw std::runtime_error("the call was ended");
  }

  std::unique_ptr<UnboundBuffer> buffer_;
  std::shared_ptr<OpenBuffers> all_;
};

// A context of a transport that makes such buffers.
class WatchedTransport final : public gloo::transport::Context {
 public:
  WatchedTransport(std::shared_ptr<Context> inner, std::shared_ptr<OpenBuffers> all)
      : Context(inner->rank, inner->size), inner_(std::move(inner)), all_(std::move(all)) {}
  std::unique_ptr<gloo::transport::Pair>& getPair(int peer) override {
    return inner_->getPair(peer);
  }
  std::unique_ptr<gloo::transport::Pair>& createPair(int peer) override {
    return inner_->createPair(peer);
  }
  std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void* data,
                                                                      size_t bytes) override {
    return std::make_unique<WatchedBuffer>(inner_->createUnboundBuffer(data, bytes), all_);
  }

 private:
  std::shared_ptr<Context> inner_;
  std::shared_ptr<OpenBuffers> all_;
};

class GlooContext final : public gloo::rendezvous::Context {
 public:
  using Context::Context;
  // To be called when all ranks are connected.
  void watch() {
    transportContext_ = std::make_shared<WatchedTransport>(transportContext_, buffers_);
  }
  void end_calls() { buffers_->end_all(); }

 private:
  std::shared_ptr<OpenBuffers> buffers_ = std::make_shared<OpenBuffers>();
};

// Calls body with a value of an unsigned type of the given size; Gloo treats elements as such.
template <typename Body>
void with_element(int64_t bytes, Body&& body) {
  switch (bytes) {
    case 1:
      return body(uint8_t{});
    case 2:
      return body(uint16_t{});
    case 4:
      return body(uint32_t{});
    default:
      return body(uint64_t{});
  }
}

// c = a and b combined, in the form that Gloo expects.
gloo::AllreduceOptions::Func combiner(DType dtype, Reduction reduction) {
  return [dtype, reduction](void* c, const void* a, const void* b, size_t count) {
    const std::byte* const parts[2] = {static_cast<const std::byte*>(a),
                                       static_cast<const std::byte*>(b)};
    std::byte* const results[1] = {static_cast<std::byte*>(c)};
    // the type was checked before
    (void)kernels::reduce_parts(dtype, reduction, parts, results, static_cast<int64_t>(count));
  };
}

// Gloo has algorithms for most calls; the others are built from exchanges between two ranks.
class GlooGroup final : public PairwiseGroup {
 public:
  GlooGroup(const GroupSettings& settings, GlooPlace place)
      : PairwiseGroup(settings), place_(std::move(place)) {}

  Status connect(std::shared_ptr<gloo::transport::Device> device) {
    return guarded("finding the others", place_.join_timeout_ms, [&] {
      device_ = std::move(device);
      if (device_ == nullptr) {
        gloo::transport::tcp::attr attributes;
        attributes.hostname = place_.host;
        device_ = gloo::transport::tcp::CreateDevice(attributes);
      }
      auto context = std::make_shared<GlooContext>(rank(), size());
      context->setTimeout(milliseconds(place_.join_timeout_ms));
      KeyStore keys(*place_.store, place_.key + "/", place_.join_timeout_ms);
      context->connectFullMesh(keys, device_);
      context->setTimeout(kNoTimeout);
      context->watch();
      context_ = std::move(context);
      watch_ = std::make_unique<CallWatch>([context = context_] { context->end_calls(); });
    });
  }

  [[nodiscard]] std::string_view engine() const override { return "gloo"; }

 private:
  // Converts exceptions of Gloo to a status that names the ranks which no longer respond.
  Status guarded(const char* what, int64_t timeout_ms, llvm::function_ref<void()> body) {
    const NoPipeSignal no_signal;
    std::string text;
    try {
      body();
      return Ok();
    } catch (const std::exception& error) {
      text = error.what();
    }
    if (watch_ != nullptr && watch_->was_late())
      text = fmt::format("no response within {} ms", timeout_ms);
    // the others notice immediately when their connections end, and respond
    if (context_ != nullptr) close();
    const Status why(StatusCode::kDistributed,
                     fmt::format("rank {} of {} failed in {}: {}", rank(), size(), what, text));
    return call_roll(*place_.store, place_.key, place_.ranks, rank(),
                     std::min(kRollMs, 2 * timeout_ms), why);
  }
  Status call(const char* what, llvm::function_ref<void()> body) {
    return guarded(what, timeout_ms(), [&] {
      watch_->begin(milliseconds(timeout_ms()));
      const auto end = llvm::make_scope_exit([&] { watch_->end(); });
      body();
    });
  }

  void close() {
    const NoPipeSignal no_signal;
    try {
      context_->closeConnections();
    } catch (const std::exception&) {
      // they count as closed
    }
  }

  Status do_all_reduce(DType dtype, std::byte* data, int64_t count, Reduction reduction) override {
    return call("all_reduce", [&] {
      gloo::AllreduceOptions options(context_);
      with_element(dtype_size(dtype), [&](auto element) {
        using T = decltype(element);
        options.setOutput(reinterpret_cast<T*>(data), static_cast<size_t>(count));
      });
      options.setReduceFunction(combiner(dtype, reduction));
      options.setTag(next_tag());
      gloo::allreduce(options);
    });
  }

  Status do_reduce(DType dtype, std::byte* data, int64_t count, Reduction reduction,
                   int root) override {
    // Gloo uses the outputs of all ranks as working memory
    const auto bytes = static_cast<size_t>(count * dtype_size(dtype));
    scratch_.resize(bytes);
    MILLRACE_RETURN_IF_ERROR(call("reduce", [&] {
      gloo::ReduceOptions options(context_);
      with_element(dtype_size(dtype), [&](auto element) {
        using T = decltype(element);
        options.setInput(reinterpret_cast<T*>(data), static_cast<size_t>(count));
        options.setOutput(reinterpret_cast<T*>(scratch_.data()), static_cast<size_t>(count));
      });
      options.setReduceFunction(combiner(dtype, reduction));
      options.setRoot(root);
      options.setTag(next_tag());
      gloo::reduce(options);
    }));
    if (rank() == root) std::memcpy(data, scratch_.data(), bytes);
    return Ok();
  }

  Status do_broadcast(std::byte* data, int64_t bytes, int root) override {
    return call("broadcast", [&] {
      gloo::BroadcastOptions options(context_);
      options.setOutput(reinterpret_cast<uint8_t*>(data), static_cast<size_t>(bytes));
      options.setRoot(root);
      options.setTag(next_tag());
      gloo::broadcast(options);
    });
  }

  Status do_all_gather(const std::byte* part, int64_t bytes, std::byte* all) override {
    return call("all_gather", [&] {
      gloo::AllgatherOptions options(context_);
      // Gloo only reads what it is given as input
      auto* const input = const_cast<std::byte*>(part);
      options.setInput(reinterpret_cast<uint8_t*>(input), static_cast<size_t>(bytes));
      options.setOutput(reinterpret_cast<uint8_t*>(all), static_cast<size_t>(bytes * size()));
      options.setTag(next_tag());
      gloo::allgather(options);
    });
  }

  Status do_barrier() override {
    return call("barrier", [&] {
      gloo::BarrierOptions options(context_);
      options.setTag(next_tag());
      gloo::barrier(options);
    });
  }

  // Messages between two ranks arrive in order.
  Status exchange(const Exchange& bytes) override {
    return call("an exchange of messages", [&] {
      using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;
      Buffer in;
      Buffer out;
      if (bytes.from >= 0) {
        in = context_->createUnboundBuffer(bytes.in, static_cast<size_t>(bytes.in_bytes));
        in->recv(bytes.from, kMessageSlot);
      }
      if (bytes.to >= 0) {
        // Gloo only reads what it sends
        out = context_->createUnboundBuffer(const_cast<std::byte*>(bytes.out),
                                            static_cast<size_t>(bytes.out_bytes));
        out->send(bytes.to, kMessageSlot);
        out->waitSend(kNoTimeout);
      }
      if (in != nullptr) in->waitRecv(kNoTimeout);
    });
  }

  StatusOr<std::unique_ptr<CollectiveGroup>> do_subgroup(llvm::ArrayRef<int> members,
                                                         int own_place) override {
    GroupSettings own = settings();
    own.rank = own_place;
    own.size = static_cast<int>(members.size());
    GlooPlace place = place_;
    // the same members may make several groups
    std::string name;
    for (const int member : members) name += fmt::format("{}{}", name.empty() ? "" : "-", member);
    place.ranks.clear();
    for (const int member : members)
      place.ranks.push_back(place_.ranks[static_cast<size_t>(member)]);
    place.key += fmt::format("/{}#{}", name, made_[name]++);
    auto group = std::make_unique<GlooGroup>(own, std::move(place));
    if (own.size > 1) MILLRACE_RETURN_IF_ERROR(group->connect(device_));
    return std::unique_ptr<CollectiveGroup>(std::move(group));
  }

  void do_abort(const Status& /*reason*/) override {
    if (context_ != nullptr) close();
  }

  uint32_t next_tag() { return tag_++; }

  GlooPlace place_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<GlooContext> context_;
  std::vector<std::byte> scratch_;
  std::map<std::string, int> made_;  ///< number of groups made, by members
  uint32_t tag_ = 0;
  std::unique_ptr<CallWatch> watch_;  ///< last: its thread uses the context
};

StatusOr<std::unique_ptr<CollectiveGroup>> open_gloo_group(const GroupSettings& settings,
                                                           const GlooPlace& place) {
  GlooPlace all = place;
  all.ranks.resize(static_cast<size_t>(settings.size));
  std::iota(all.ranks.begin(), all.ranks.end(), 0);
  auto group = std::make_unique<GlooGroup>(settings, std::move(all));
  if (settings.size > 1) MILLRACE_RETURN_IF_ERROR(group->connect(nullptr));
  return std::unique_ptr<CollectiveGroup>(std::move(group));
}

constexpr GlooEngine kEngine{&open_gloo_group};

}  // namespace
}  // namespace millrace::executor

extern "C" const char* millrace_module(const void** functions) {
  *functions = &millrace::executor::kEngine;
  return millrace::build_stamp();
}
