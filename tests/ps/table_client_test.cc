#include "ps/table/table_client.h"

#include <functional>
#include <random>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ps/communicator/communicator.h"
#include "ps/table/channel_caller.h"
#include "ps/table/client_caller.h"
#include "ps/table/dense_table.h"
#include "ps/table/sparse_geo_table.h"
#include "ps/table/sparse_table.h"
#include "ps/table/table_handler.h"
#include "ps/table/table_sender.h"
#include "ps/table/tensor_table.h"
#include "ps/transport/inproc.h"
#include "tests/ps/fake_sender.h"

// Clients and servers of typed tables together: routing, merging, repeated calls, and the
// Communicator on top.

namespace millrace::ps {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Floats = std::vector<float>;
using Keys = std::vector<int64_t>;

// Puts the response of a handler into a Reply.
class CopySink final : public ReplySink {
 public:
  explicit CopySink(Reply& reply) : reply_(reply) {}
  Status put(std::string_view name, const Value& value) override {
    MILLRACE_ASSIGN_OR_RETURN(Value copy, clone(value));
    reply_.names.emplace_back(name);
    reply_.values.push_back(std::move(copy));
    return Ok();
  }
  StatusOr<std::byte*> put_room(std::string_view name, DType dtype,
                                llvm::ArrayRef<int64_t> dims) override {
    reply_.names.emplace_back(name);
    auto& tensor = reply_.values.emplace_back().as<Tensor>();
    MILLRACE_RETURN_IF_ERROR(tensor.resize(dtype, dims));
    return tensor.raw();
  }
  void set_epoch(uint64_t) override {}
  void set_number(int64_t number) override { reply_.number = number; }
  void set_text(std::string text) override { reply_.text = std::move(text); }

 private:
  Reply& reply_;
};

// Servers in this process, some of whose responses are lost.
class LossyTransport final : public Transport {
 public:
  explicit LossyTransport(std::vector<TableHandler*> servers) : servers_(std::move(servers)) {}
  StatusOr<std::shared_ptr<Channel>> connect(const std::string& endpoint) override {
    return std::shared_ptr<Channel>(std::make_shared<Way>(*this, endpoint));
  }
  StatusOr<std::unique_ptr<Listener>> listen(const std::string&, Handler&) override {
    return Status(StatusCode::kUnimplemented, "listen");
  }
  std::atomic<int> calls = 0;
  std::atomic<int> lose_every = 0;  ///< 0: none
  std::atomic<int64_t> items = 0;   ///< elements of the first argument of all calls

 private:
  class Way final : public Channel {
   public:
    Way(LossyTransport& transport, std::string endpoint)
        : transport_(transport), endpoint_(std::move(endpoint)) {}
    [[nodiscard]] const std::string& endpoint() const override { return endpoint_; }
    Status call(const Request& request, Deadline deadline, Reply& reply) override {
      const int number = ++transport_.calls;
      if (!request.items.empty()) {
        if (const auto* const first = request.items[0].value->get_if<Tensor>())
          transport_.items += first->numel();
      }
      reply = {};
      CopySink sink(reply);
      auto& server = *transport_.servers_[static_cast<size_t>(std::stoi(endpoint_))];
      Status status = server.handle(request, deadline, sink);
      const int every = transport_.lose_every;
      if (every > 0 && number % every == 0) return {StatusCode::kDistributed, "lost"};
      return status;
    }

   private:
    LossyTransport& transport_;
    std::string endpoint_;
  };
  std::vector<TableHandler*> servers_;
};

// A cluster with sparse table 0, geo table 1, dense table 2 (10 elements) and step table 3.
class TableClientTest : public ::testing::Test {
 protected:
  static constexpr int kTrainers = 2;
  void start(size_t servers) {
    const auto ranges = dense_ranges(10, static_cast<int64_t>(servers));
    std::vector<TableHandler*> handlers;
    for (size_t s = 0; s < servers; ++s) {
      auto handler = std::make_unique<TableHandler>(kTrainers);
      SparseTableOptions sparse;
      sparse.accessor.embedx_dim = 2;
      sparse.accessor.embedx_rule.kind = SparseRuleOptions::Kind::kNaive;
      sparse.accessor.embedx_rule.learning_rate = 1;
      ASSERT_TRUE(handler->add(0, *SparseTable::create(sparse)).ok());
      SparseTableOptions geo = sparse;
      geo.accessor.kind = AccessorOptions::Kind::kCommMerge;
      ASSERT_TRUE(handler->add(1, *SparseGeoTable::create(geo, kTrainers)).ok());
      DenseTableOptions dense;
      dense.elements = (*ranges)[s].count;
      dense.learning_rate = 1;
      ASSERT_TRUE(handler->add(2, *DenseTable::create(dense)).ok());
      auto steps =
          std::make_unique<TensorTable>(kTrainers, [](int64_t) { return StatusOr<float>(1.0F); });
      ASSERT_TRUE(handler->add(3, std::move(steps)).ok());
      handlers.push_back(handler.get());
      handlers_.push_back(std::move(handler));
      endpoints_.push_back(std::to_string(s));
    }
    transport_ = std::make_shared<LossyTransport>(handlers);
  }
  std::shared_ptr<TableClient> client(int trainer) {
    ChannelCaller::Options options;
    options.caller = {"job", trainer, 1};
    options.deadline = std::chrono::seconds(20);
    options.retries =
        60;  // calls of several trainers interleave, so the response to one may be lost many times
    options.retry_pause = std::chrono::milliseconds(0);
    auto caller = ChannelCaller::create(transport_, endpoints_, options);
    EXPECT_TRUE(caller.ok());
    return std::make_shared<TableClient>(std::move(*caller));
  }
  template <typename T>
  T& table(size_t server, int id) {
    return dynamic_cast<T&>(*handlers_[server]->find(id));
  }

  SparseLayout sparse_{0, 10, 2, 2, 0, {}};
  SparseLayout geo_{1, 10, 2, 2, 0, {}};
  std::vector<std::unique_ptr<TableHandler>> handlers_;
  std::vector<std::string> endpoints_;
  std::shared_ptr<LossyTransport> transport_;
};

TEST_F(TableClientTest, SendsEveryIdOnceToItsOwner) {
  start(3);
  auto one = client(0);
  const Keys ids{7, 3, 7, -5, 3, 7};
  const Floats grads{1, 0, 2, 0, 4, 0, 8, 0, 16, 0, 32, 0};
  ASSERT_TRUE(one->push_sparse(sparse_, ids, grads).ok());
  EXPECT_EQ(transport_->items, 3);
  Floats rows(12);
  ASSERT_TRUE(one->pull_sparse(sparse_, ids, rows).ok());
  EXPECT_THAT(rows, ElementsAre(-37, 0, -18, 0, -37, 0, -8, 0, -18, 0, -37, 0));
  const auto routing = SparseRouting::create(10, 3);
  int64_t found = 0;
  for (size_t s = 0; s < 3; ++s) {
    ASSERT_TRUE(table<SparseTable>(s, 0)
                    .visit([&](uint64_t key, float*) {
                      ++found;
                      EXPECT_EQ(routing->server_of(static_cast<int64_t>(key)),
                                static_cast<int64_t>(s));
                      return Ok();
                    })
                    .ok());
  }
  EXPECT_EQ(found, 3);
}

TEST_F(TableClientTest, AnswersThatAreLostCountOnce) {
  start(2);
  transport_->lose_every = 3;
  std::vector<std::thread> threads;
  for (int trainer = 0; trainer < kTrainers; ++trainer) {
    threads.emplace_back([&, trainer] {
      auto own = client(trainer);
      for (int step = 0; step < 50; ++step) {
        EXPECT_TRUE(own->push_sparse(sparse_, Keys{1, 2, 3, 9}, Floats(8, 1)).ok());
        EXPECT_TRUE(own->push_dense(2, Floats(10, 1)).ok());
        EXPECT_TRUE(own->push_sparse(geo_, Keys{4, 5}, Floats(4, 1)).ok());
        EXPECT_TRUE(own->barrier(CommBarrier::kSend).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  auto one = client(0);
  Floats rows(8), dense(10), geo(4);
  transport_->lose_every = 0;
  ASSERT_TRUE(one->pull_sparse(sparse_, Keys{1, 2, 3, 9}, rows).ok());
  EXPECT_THAT(rows, Each(-100));
  ASSERT_TRUE(one->pull_dense(2, dense).ok());
  EXPECT_THAT(dense, Each(-100));
  ASSERT_TRUE(one->pull_sparse(geo_, Keys{4, 5}, geo).ok());
  EXPECT_THAT(geo, Each(100));
}

TEST_F(TableClientTest, ALostAnswerLosesNoChangedRow) {
  start(2);
  auto one = client(0);
  auto two = client(1);
  ASSERT_TRUE(one->push_sparse(geo_, Keys{8, 2, 5}, Floats(6, 1)).ok());
  transport_->calls = 1;
  transport_->lose_every = 2;  // the first response
  SelectedRows changed;
  ASSERT_TRUE(two->pull_changed(geo_, changed).ok());
  EXPECT_THAT(changed.rows, ElementsAre(2, 5, 8));
  EXPECT_EQ(changed.height, 9);
  ASSERT_TRUE(two->pull_changed(geo_, changed).ok());
  EXPECT_TRUE(changed.rows.empty());
}

TEST_F(TableClientTest, ChangedRowsOfAllServersAreOrdered) {
  start(3);
  auto one = client(0);
  const Keys ids{18, 3, 25, 1, 7, 12, 9};  // of three servers in turn
  Floats deltas;
  for (const int64_t id : ids) deltas.insert(deltas.end(), 2, static_cast<float>(id));
  ASSERT_TRUE(one->push_sparse(geo_, ids, deltas).ok());
  SelectedRows changed;
  ASSERT_TRUE(client(1)->pull_changed(geo_, changed).ok());
  EXPECT_THAT(changed.rows, ElementsAre(1, 3, 7, 9, 12, 18, 25));
  EXPECT_EQ(changed.height, 26);
  EXPECT_THAT(changed.value.values<float>(),
              ElementsAre(1, 1, 3, 3, 7, 7, 9, 9, 12, 12, 18, 18, 25, 25));
}

TEST_F(TableClientTest, PaddingAndSizesAreCheckedHere) {
  start(1);
  auto one = client(0);
  sparse_.padding = 0;
  Floats rows(4, 9);
  ASSERT_TRUE(one->push_sparse(sparse_, Keys{0, 1}, Floats(4, 1)).ok());
  ASSERT_TRUE(one->pull_sparse(sparse_, Keys{0, 1}, rows).ok());
  EXPECT_THAT(rows, ElementsAre(0, 0, -1, -1));
  EXPECT_EQ(one->push_sparse(sparse_, Keys{1}, Floats(3)).message(),
            "3 floats of values for 1 ids of 2");
  SparseLayout unknown = sparse_;
  unknown.table_id = 9;
  const Status status = one->pull_sparse(unknown, Keys{1}, {rows.data(), 2});
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "this server has no table 9");
  Floats nine(9);
  EXPECT_EQ(one->pull_dense(2, nine).code(), StatusCode::kDistributed) << "it has 10 elements";
  EXPECT_THAT(one->push_dense(2, nine).message(), HasSubstr("has 9 elements, expected 10"));
}

TEST_F(TableClientTest, StatisticsAreAddedUpButNotTheSlot) {
  TableHandler handler(1);
  SparseTableOptions options;
  options.accessor.kind = AccessorOptions::Kind::kCtrCommon;
  options.accessor.embedx_dim = 1;
  options.accessor.fea_dim = 4;
  options.accessor.embed_rule.kind = options.accessor.embedx_rule.kind =
      SparseRuleOptions::Kind::kNaive;
  options.accessor.embed_rule.learning_rate = 1;
  options.accessor.show_scale = false;
  ASSERT_TRUE(handler.add(0, *SparseTable::create(options)).ok());
  auto transport = std::make_shared<LossyTransport>(std::vector<TableHandler*>{&handler});
  auto caller = ChannelCaller::create(transport, {"0"}, {});
  TableClient one(std::move(*caller));
  const SparseLayout layout{0, 10, 4, 5, 1, {}};
  ASSERT_TRUE(one.push_sparse(layout, Keys{6, 6}, Floats{7, 1, 0, 2, 0, 7, 1, 1, 3, 0}).ok());
  auto& table = dynamic_cast<SparseTable&>(*handler.find(0));
  ASSERT_TRUE(table
                  .visit([&](uint64_t, float* row) {
                    EXPECT_EQ(row[0], 7);   // slot
                    EXPECT_EQ(row[3], 2);   // shows
                    EXPECT_EQ(row[4], 1);   // clicks
                    EXPECT_EQ(row[5], -5);  // embed_w
                    return Ok();
                  })
                  .ok());
}

// Gradients of a program have no statistics: each of their rows is a show.
TEST_F(TableClientTest, ARowOfAGradientIsOneShowWithoutAClick) {
  TableHandler handler(1);
  SparseTableOptions options;
  options.accessor.kind = AccessorOptions::Kind::kCtrCommon;
  options.accessor.embedx_dim = 1;
  options.accessor.fea_dim = 4;
  ASSERT_TRUE(handler.add(0, *SparseTable::create(options)).ok());
  auto transport = std::make_shared<LossyTransport>(std::vector<TableHandler*>{&handler});
  TableSender sender(std::make_shared<TableClient>(*ChannelCaller::create(transport, {"0"}, {})),
                     {{0, {0, 10, 4, 5, 1, {}}}});
  CommContext context;
  context.var_name = "t@GRAD";
  context.table_id = 0;
  Value grad = testing::selected({6, 4, 6}, {1, 1, 1, 1, 1, 1}, 10);
  ASSERT_TRUE(sender.send(context, {&grad, 1}, std::chrono::steady_clock::now()).ok());
  std::map<uint64_t, Floats> statistics;
  ASSERT_TRUE(dynamic_cast<SparseTable&>(*handler.find(0))
                  .visit([&](uint64_t key, float* row) {
                    statistics[key] = {row[0], row[3], row[4]};  // slot, shows, clicks
                    return Ok();
                  })
                  .ok());
  EXPECT_THAT(statistics[4], ElementsAre(0, 1, 0));
  EXPECT_THAT(statistics[6], ElementsAre(0, 2, 0));
}

TEST_F(TableClientTest, WorksThroughATrainersClient) {
  start(2);
  auto transport = std::make_shared<InprocTransport>();
  std::vector<std::unique_ptr<Listener>> listeners;
  for (size_t s = 0; s < 2; ++s) {
    auto listener = transport->listen(endpoints_[s], *handlers_[s]);
    ASSERT_TRUE(listener.ok());
    listeners.push_back(std::move(*listener));
  }
  std::vector<std::thread> threads;
  for (int trainer = 0; trainer < kTrainers; ++trainer) {
    threads.emplace_back([&, trainer] {
      ClientOptions options;
      options.trainer = trainer;
      options.deadline = std::chrono::seconds(20);
      auto base = std::make_shared<Client>(transport, options);
      TableClient own(std::make_shared<ClientCaller>(base, endpoints_));
      for (int step = 1; step <= 3; ++step) {
        EXPECT_TRUE(own.push_dense(2, Floats(10, 1)).ok());
        EXPECT_TRUE(own.push_sparse(sparse_, Keys{1, 8, 1}, Floats(6, 1)).ok());
        const Status met = own.barrier(CommBarrier::kSend);
        EXPECT_TRUE(met.ok()) << met.to_string();
        Floats all(10);
        EXPECT_TRUE(own.pull_dense(2, all).ok());
        EXPECT_THAT(all, Each(-2 * step));
        EXPECT_TRUE(own.barrier(CommBarrier::kReceive).ok());
      }
      if (trainer == 0) {
        EXPECT_TRUE(base->complete(false).ok());
        return;
      }
      EXPECT_TRUE(own.barrier(CommBarrier::kSend).ok()) << "the other one has completed";
      Floats rows(4);
      EXPECT_TRUE(own.pull_sparse(sparse_, Keys{1, 8}, rows).ok());
      EXPECT_THAT(rows, ElementsAre(-12, -12, -6, -6));  // rows are pushed at once
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(TableClientTest, TheCommunicatorTrainsOverTables) {
  start(2);
  CommContext grad = dense_table_context(2, {"b@GRAD", "w@GRAD"});
  grad.var_name = "Dense@GRAD_2";
  CommContext rows;
  rows.var_name = "t@GRAD";
  rows.is_sparse = true;
  rows.table_id = 0;
  CommContext steps;
  steps.var_name = "@PS_STEP_COUNTER@";
  steps.is_tensor_table = true;
  steps.table_id = 3;
  std::vector<std::thread> threads;
  for (int trainer = 0; trainer < kTrainers; ++trainer) {
    threads.emplace_back([&, trainer] {
      auto sender =
          std::make_shared<TableSender>(client(trainer), std::map<int, SparseLayout>{{0, sparse_}});
      sender->declare("b", {2});
      sender->declare("w", {4, 2});
      CommunicatorOptions options;
      options.trainers = kTrainers;
      options.trainer_id = trainer;
      auto comm = *Communicator::create(CommMode::kAsync, options, sender);
      ASSERT_TRUE(comm->init_with_ctx(testing::contexts({grad, rows, steps}),
                                      testing::contexts({dense_table_context(2, {"b", "w"})}))
                      .ok());
      Scope scope;
      scope.local("b") = testing::dense({0, 0});
      scope.local("w") = testing::dense(Floats(8, 1), {4, 2});
      ASSERT_TRUE(comm->init_params(scope).ok());
      ASSERT_TRUE(comm->start().ok());
      for (int step = 0; step < 20; ++step) {
        ASSERT_TRUE(comm->send("b@GRAD", testing::dense({1, 2})).ok());
        ASSERT_TRUE(comm->send("w@GRAD", testing::dense(Floats(8, 1), {4, 2})).ok());
        ASSERT_TRUE(
            comm->send("t@GRAD", testing::selected({1, 8, 1}, {1, 1, 1, 1, 1, 1}, 10)).ok());
        ASSERT_TRUE(comm->send("@PS_STEP_COUNTER@", testing::ids({1})).ok());
        const Status status = comm->finish_step(scope);
        ASSERT_TRUE(status.ok()) << status.to_string();
      }
      const Status stopped = comm->stop();
      ASSERT_TRUE(stopped.ok()) << stopped.to_string();
    });
  }
  for (std::thread& thread : threads) thread.join();
  auto one = client(0);
  Floats all(10), table_rows(4);
  ASSERT_TRUE(one->pull_dense(2, all).ok());
  EXPECT_THAT(all, ElementsAre(-40, -80, -39, -39, -39, -39, -39, -39, -39, -39));
  ASSERT_TRUE(one->pull_sparse(sparse_, Keys{1, 8}, table_rows).ok());
  EXPECT_THAT(table_rows, ElementsAre(-80, -80, -40, -40));
  EXPECT_EQ(table<TensorTable>(1, 3).steps(), 40);
}

}  // namespace
}  // namespace millrace::ps
