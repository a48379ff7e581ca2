// Groups whose values are in the memory of devices, here emulated ones of threads: every call has
// the same result as in any other group, and errors are reported.

#include "executor/collective/device_group.h"

#include <functional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/collective/rings.h"
#include "executor/collective/shared_group.h"
#include "kernels/gpu/host_device.h"
#include "tests/executor/collective/group_checks.h"

namespace millrace::executor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Groups = std::vector<std::unique_ptr<CollectiveGroup>>;

Groups hosts(int size, int64_t timeout_ms = 60'000) {
  auto groups = make_thread_groups(size, timeout_ms);
  EXPECT_TRUE(groups.ok());
  return std::move(groups).value();
}
std::shared_ptr<gpu::Context> emulated_context() {
  return std::make_shared<gpu::Context>(gpu::open_host_device());
}

void on_ranks_of_devices(int size, const std::function<void(size_t)>& body) {
  std::vector<std::jthread> threads;
  for (size_t rank = 0; rank < static_cast<size_t>(size); ++rank)
    threads.emplace_back([&body, rank] { body(rank); });
}

// Returns from every call at once, without the other ranks.
class LonelyCommunicator final : public gpu::Communicator {
 public:
  LonelyCommunicator(const gpu::CommunicatorPlace& place, Status answer)
      : Communicator(place), answer_(std::move(answer)) {}

 private:
  Status queue(const gpu::CollectiveCall& /*call*/, const std::byte* /*from*/,
               std::byte* /*to*/) override {
    return answer_;
  }
  Status finish() override { return Ok(); }
  void stop(const Status& /*reason*/) override {}

  Status answer_;
};

// Copies values of the process, which the checks of groups use, through the device.
class StagedGroup final : public CollectiveGroup {
 public:
  StagedGroup(std::unique_ptr<CollectiveGroup> group, std::shared_ptr<gpu::Context> context)
      : CollectiveGroup(
            {.rank = group->rank(), .size = group->size(), .timeout_ms = group->timeout_ms()}),
        group_(std::move(group)),
        context_(std::move(context)) {}

  [[nodiscard]] std::string_view engine() const override { return group_->engine(); }

 private:
  using OnDevice = std::shared_ptr<gpu::Block>;
  StatusOr<OnDevice> room(int64_t bytes) { return context_->memory().allocate(bytes, "a test"); }
  StatusOr<OnDevice> there(const std::byte* data, int64_t bytes) {
    MILLRACE_ASSIGN_OR_RETURN(OnDevice block, room(bytes));
    MILLRACE_RETURN_IF_ERROR(context_->memory().copy_in(data, block->data(), bytes));
    return block;
  }
  Status back(const OnDevice& from, std::byte* to, int64_t bytes) {
    return context_->memory().copy_out(from->data(), to, bytes);
  }

  Status do_all_reduce(DType dtype, std::byte* data, int64_t count, Reduction reduction) override {
    const int64_t bytes = count * dtype_size(dtype);
    MILLRACE_ASSIGN_OR_RETURN(const OnDevice block, there(data, bytes));
    MILLRACE_RETURN_IF_ERROR(group_->all_reduce(dtype, block->data(), count, reduction));
    return back(block, data, bytes);
  }
  Status do_reduce(DType dtype, std::byte* data, int64_t count, Reduction reduction,
                   int root) override {
    const int64_t bytes = count * dtype_size(dtype);
    MILLRACE_ASSIGN_OR_RETURN(const OnDevice block, there(data, bytes));
    MILLRACE_RETURN_IF_ERROR(group_->reduce(dtype, block->data(), count, reduction, root));
    return back(block, data, bytes);
  }
  Status do_broadcast(std::byte* data, int64_t bytes, int root) override {
    MILLRACE_ASSIGN_OR_RETURN(const OnDevice block, there(data, bytes));
    MILLRACE_RETURN_IF_ERROR(group_->broadcast(block->data(), bytes, root));
    return back(block, data, bytes);
  }
  Status do_all_gather(const std::byte* part, int64_t bytes, std::byte* all) override {
    MILLRACE_ASSIGN_OR_RETURN(const OnDevice from, there(part, bytes));
    MILLRACE_ASSIGN_OR_RETURN(const OnDevice to, room(bytes * size()));
    MILLRACE_RETURN_IF_ERROR(group_->all_gather(from->data(), bytes, to->data()));
    return back(to, all, bytes * size());
  }
  Status do_reduce_scatter(DType dtype, const std::byte* all, int64_t count, std::byte* part,
                           Reduction reduction) override {
    const int64_t bytes = count * dtype_size(dtype);
    MILLRACE_ASSIGN_OR_RETURN(const OnDevice from, there(all, bytes * size()));
    MILLRACE_ASSIGN_OR_RETURN(const OnDevice to, room(bytes));
    MILLRACE_RETURN_IF_ERROR(
        group_->reduce_scatter(dtype, from->data(), count, to->data(), reduction));
    return back(to, part, bytes);
  }
  Status do_barrier() override { return group_->barrier(); }
  Status do_send(const std::byte* data, int64_t bytes, int to) override {
    return group_->send(data, bytes, to);
  }
  Status do_receive(std::byte* data, int64_t bytes, int from) override {
    return group_->receive(data, bytes, from);
  }
  StatusOr<std::unique_ptr<CollectiveGroup>> do_subgroup(llvm::ArrayRef<int> members,
                                                         int /*own_place*/) override {
    MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<CollectiveGroup> part, group_->subgroup(members));
    return std::unique_ptr<CollectiveGroup>(
        std::make_unique<StagedGroup>(std::move(part), context_));
  }
  void do_abort(const Status& reason) override { group_->abort(reason); }
  Status copy_alone(const std::byte* from, std::byte* to, int64_t bytes) override {
    MILLRACE_ASSIGN_OR_RETURN(const OnDevice block, there(from, bytes));
    MILLRACE_ASSIGN_OR_RETURN(const OnDevice copy, room(bytes));
    MILLRACE_RETURN_IF_ERROR(group_->all_gather(block->data(), bytes, copy->data()));
    return back(copy, to, bytes);
  }

  std::unique_ptr<CollectiveGroup> group_;
  std::shared_ptr<gpu::Context> context_;
};

TEST(DeviceGroup, AnswersEveryCall) {
  for (const int size : {1, 2, 3}) {
    const Groups processes = hosts(size);
    on_ranks_of_devices(size, [&](size_t rank) {
      const auto context = emulated_context();
      auto group = make_device_group(*processes[rank], context);
      ASSERT_TRUE(group.ok()) << group.status().to_string();
      EXPECT_EQ((*group)->engine(), "nccl");
      StagedGroup staged(*std::move(group), context);
      EXPECT_EQ(check_group(staged), "");
      EXPECT_EQ(check_subgroups(staged), "");
    });
  }
}

TEST(DeviceGroup, NamesTheRankThatDoesNotCome) {
  const Groups processes = hosts(3, 1500);
  Groups groups(3);
  std::vector<std::shared_ptr<gpu::Context>> contexts(3);
  on_ranks_of_devices(3, [&](size_t rank) {
    contexts[rank] = emulated_context();
    auto group = make_device_group(*processes[rank], contexts[rank]);
    ASSERT_TRUE(group.ok()) << group.status().to_string();
    groups[rank] = *std::move(group);
  });
  on_ranks_of_devices(3, [&](size_t rank) {
    if (rank == 1) return;
    const auto block = contexts[rank]->memory().allocate(40, "a test");
    const Status status = groups[rank]->all_reduce(DType::kFloat32, (*block)->data(), 10);
    EXPECT_EQ(status.code(), StatusCode::kDistributed);
    EXPECT_THAT(status.to_string(), HasSubstr("for rank 1, which has not arrived"));
    EXPECT_THAT(status.to_string(), HasSubstr("in call 1, all_reduce (sum) of 10 elements of f32"));
    EXPECT_THAT(groups[rank]->barrier().to_string(), HasSubstr("broken by: waited"));
  });
}

// Two ranks start a call; rank 1 does not take part in it but exits. \returns the status of rank 0
Status gather_without_rank_1(const Status& answer_of_rank_1) {
  Groups processes = hosts(2);
  Status result;
  on_ranks_of_devices(2, [&](size_t rank) {
    const auto context = emulated_context();
    const auto joined = make_device_group(*processes[rank], context);
    ASSERT_TRUE(joined.ok()) << joined.status().to_string();
    const auto part = context->memory().allocate(4, "a test");
    const auto all = context->memory().allocate(8, "a test");
    if (rank == 0) {
      result = (*joined)->all_gather((*part)->data(), 4, (*all)->data());
      return;
    }
    {
      const gpu::CommunicatorPlace place{.rank = 1, .size = 2};
      DeviceGroup lonely(*processes[1], context,
                         std::make_unique<LonelyCommunicator>(place, answer_of_rank_1));
      const Status own = lonely.all_gather((*part)->data(), 4, (*all)->data());
      EXPECT_EQ(own.code(), answer_of_rank_1.code());
      EXPECT_EQ(own.message(), answer_of_rank_1.message());
    }
    processes[1].reset();
  });
  return result;
}

TEST(DeviceGroup, NamesTheRankThatIsLostInTheMiddleOfACall) {
  const Status status = gather_without_rank_1(Ok());
  EXPECT_EQ(status.code(), StatusCode::kDistributed);
  EXPECT_THAT(status.message(), HasSubstr("lost rank 1: it has left the group"));
  EXPECT_THAT(status.to_string(), HasSubstr("all_gather of 4 bytes"));
}

TEST(DeviceGroup, TellsTheOthersOfAFailureInTheMiddleOfACall) {
  const Status status = gather_without_rank_1({StatusCode::kExecution, "the GPU has fallen off"});
  EXPECT_EQ(status.code(), StatusCode::kDistributed);
  EXPECT_THAT(status.message(), HasSubstr("the GPU has fallen off"));
}

TEST(DeviceGroup, NoticesThatRanksDoNotAgree) {
  const Groups processes = hosts(2);
  on_ranks_of_devices(2, [&](size_t rank) {
    const auto context = emulated_context();
    const auto group = make_device_group(*processes[rank], context);
    ASSERT_TRUE(group.ok()) << group.status().to_string();
    const auto block = context->memory().allocate(8, "a test");
    const Status status =
        rank == 0 ? (*group)->barrier()
                  : (*group)->reduce(DType::kInt64, (*block)->data(), 1, Reduction::kMin, 0);
    EXPECT_EQ(status.code(), StatusCode::kDistributed);
    EXPECT_THAT(
        status.to_string(),
        AllOf(HasSubstr("barrier"), HasSubstr("reduce (min) of 1 elements of i64 with root 0")));
  });
}

TEST(DeviceGroup, IsMadeOnceForARing) {
  Groups processes = hosts(2);
  on_ranks_of_devices(2, [&](size_t rank) {
    Rings rings(
        [&]() -> StatusOr<std::unique_ptr<CollectiveGroup>> { return std::move(processes[rank]); });
    EXPECT_FALSE(rings.uses_devices());
    const auto context = emulated_context();
    const auto first = rings.ring_on_device(0, context);
    ASSERT_TRUE(first.ok()) << first.status().to_string();
    EXPECT_NE(*rings.ring(0), *first);
    const int own = static_cast<int>(rank);
    EXPECT_EQ(*rings.ring_on_device(7, context), *first);
    EXPECT_THAT(rings.make(7, {"h:1", "h:1"}, 2, own).to_string(), HasSubstr("names 'h:1' twice"));
    ASSERT_TRUE(rings.make(7, {}, 2, own).ok());
    EXPECT_EQ(*rings.ring_on_device(7, context), *first);
    EXPECT_EQ(*rings.ring_on_device(0, context), *first);
    EXPECT_THAT(rings.ring_on_device(8, context).status().to_string(),
                HasSubstr("no op has made ring 8"));
  });
}

}  // namespace
}  // namespace millrace::executor
