#include "executor/collective/group_link.h"

#include <vector>

#include "executor/collective/gather_rows.h"
#include "framework/base/errors.h"

namespace millrace::executor {
namespace {

class GroupLink final : public TrainerLink {
 public:
  explicit GroupLink(CollectiveGroup& world) : world_(world) {}

  Status divide(int inter_nranks) {
    if (inter_nranks < 2 || world_.size() % inter_nranks != 0) {
      return InvalidArgument(
          "hierarchical_allreduce_inter_nranks {}: expected a divisor of {} trainers, at least 2",
          inter_nranks, world_.size());
    }
    const int first = world_.rank() / inter_nranks * inter_nranks;
    std::vector<int> near;
    std::vector<int> leaders;
    for (int i = 0; i < inter_nranks; ++i) near.push_back(first + i);
    for (int rank = 0; rank < world_.size(); rank += inter_nranks) leaders.push_back(rank);
    MILLRACE_ASSIGN_OR_RETURN(near_, world_.subgroup(near));
    if (world_.rank() == first) {
      MILLRACE_ASSIGN_OR_RETURN(leaders_, world_.subgroup(leaders));
    }
    return Ok();
  }

  [[nodiscard]] int trainers() const override { return world_.size(); }
  [[nodiscard]] int trainer_id() const override { return world_.rank(); }

  Status all_reduce(DType dtype, std::byte* data, int64_t count, int /*ring*/) override {
    if (near_ == nullptr) return world_.all_reduce(dtype, data, count);
    MILLRACE_RETURN_IF_ERROR(near_->reduce(dtype, data, count, Reduction::kSum, 0));
    if (leaders_ != nullptr) MILLRACE_RETURN_IF_ERROR(leaders_->all_reduce(dtype, data, count));
    return near_->broadcast(data, count * dtype_size(dtype), 0);
  }
  Status gather_rows(SelectedRows& rows) override { return executor::gather_rows(world_, rows); }
  Status broadcast(std::byte* data, int64_t bytes) override {
    return world_.broadcast(data, bytes, 0);
  }
  void abort(const Status& reason) override {
    world_.abort(reason);
    if (near_ != nullptr) near_->abort(reason);
    if (leaders_ != nullptr) leaders_->abort(reason);
  }

 private:
  CollectiveGroup& world_;
  std::unique_ptr<CollectiveGroup> near_;     ///< null: one group
  std::unique_ptr<CollectiveGroup> leaders_;  ///< null: this rank is not one of them
};

}  // namespace

StatusOr<std::unique_ptr<TrainerLink>> make_group_link(CollectiveGroup& world, int inter_nranks) {
  auto link = std::make_unique<GroupLink>(world);
  if (inter_nranks != 0) MILLRACE_RETURN_IF_ERROR(link->divide(inter_nranks));
  return std::unique_ptr<TrainerLink>(std::move(link));
}

}  // namespace millrace::executor
