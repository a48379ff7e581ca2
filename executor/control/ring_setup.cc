#include <algorithm>
#include <string>
#include <vector>

#include "executor/block_runner.h"
#include "executor/collective/rings.h"
#include "executor/compiled_ops/control.h"
#include "executor/control/exchange_place.h"
#include "framework/base/errors.h"
#include "framework/names.h"

// Ops that make rings. The id of a ring is not a value: Rings stores the members of the ring under
// the var's name.
namespace millrace::executor {
namespace ring_setup {
namespace {

using kernels::KernelSetup;
using Strings = std::vector<std::string>;

StatusOr<Rings*> rings_of(const BlockRunner& runner) {
  return find_rings(runner, "makes a group of ranks");
}

// Name of the first argument of a slot.
std::string name_in(llvm::ArrayRef<Slot> slots, const Op& op, llvm::StringRef slot) {
  for (const Slot& each : slots) {
    if (op.name_of(each.name) == slot && !each.args.empty())
      return op.name_of(each.args.front().name).str();
  }
  return {};
}

Status check_place(const CollectiveGroup& all, size_t ranks, int rank) {
  if (ranks == static_cast<size_t>(all.size()) && rank == all.rank()) return Ok();
  return {StatusCode::kInvalidArgument,
          fmt::format("the program is for trainer {} of {}, but this process is rank {} of {}",
                      rank, ranks, all.rank(), all.size())};
}

// Stores the ids of all groups of a job: flat groups, and groups within and between its parts.
StatusOr<Control> gen_nccl_id(const KernelSetup& setup, BlockRunner& /*runner*/) {
  auto trainers = setup.attr<Strings>("trainers");
  const auto own = setup.attr<int32_t>("trainer_id");
  if (trainers.empty()) {  // the older form lists only the others
    trainers = setup.attr<Strings>("endpoint_list");
    const auto place = std::min<size_t>(static_cast<size_t>(own), trainers.size());
    trainers.insert(trainers.begin() + static_cast<int64_t>(place),
                    setup.attr<std::string>("endpoint"));
  }
  Strings names;
  const auto groups = setup.attr<int32_t>("nccl_comm_num");
  const bool is_hierarchical = setup.attr<bool>("use_hierarchical_allreduce");
  for (int32_t i = 0; i < groups; ++i) {
    names.push_back(names::nccl_id(i));
    if (!is_hierarchical) continue;
    names.push_back(names::inter_nccl_id(i));
    names.push_back(names::exter_nccl_id(i));
  }
  names.push_back(name_in(setup.op().outputs(), setup.op(), "NCCLID"));
  return Control([trainers, own, names](ControlContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(Rings* const rings, rings_of(ctx.runner));
    MILLRACE_ASSIGN_OR_RETURN(const CollectiveGroup* const all, rings->world());
    MILLRACE_RETURN_IF_ERROR(check_place(*all, trainers.size(), own));
    for (const std::string& name : names) rings->set_id(name, trainers);
    return Ok();
  });
}

StatusOr<Control> c_gen_nccl_id(const KernelSetup& setup, BlockRunner& /*runner*/) {
  auto members = setup.attr<Strings>("other_endpoints");
  const auto rank = static_cast<size_t>(setup.attr<int32_t>("rank"));
  members.insert(members.begin() + static_cast<int64_t>(std::min(rank, members.size())),
                 setup.attr<std::string>("endpoint"));
  const std::string name = name_in(setup.op().outputs(), setup.op(), "Out");
  return Control([members, name](ControlContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(Rings* const rings, rings_of(ctx.runner));
    rings->set_id(name, members);
    return Ok();
  });
}

StatusOr<Control> c_comm_init(const KernelSetup& setup, BlockRunner& /*runner*/) {
  const std::string id = name_in(setup.op().inputs(), setup.op(), "X");
  const auto number = setup.attr<int32_t>("ring_id");
  const auto ranks = setup.attr<int32_t>("nranks");
  const auto rank = setup.attr<int32_t>("rank");
  return Control([id, number, ranks, rank](ControlContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(Rings* const rings, rings_of(ctx.runner));
    const Strings* const members = rings->find_id(id);
    if (members == nullptr)
      return {StatusCode::kNotFound,
              fmt::format("no op has made the id '{}' of ring {}", id, number)};
    return rings->make(number, *members, ranks, rank);
  });
}

StatusOr<Control> c_comm_init_multitrainer(const KernelSetup& setup, BlockRunner& /*runner*/) {
  const auto number = setup.attr<int32_t>("ring_id");
  const auto trainers = setup.attr<int32_t>("ntrainers");
  const auto own = setup.attr<int32_t>("trainer_id");
  return Control([number, trainers, own](ControlContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(Rings* const rings, rings_of(ctx.runner));
    return rings->make(number, {}, trainers, own);
  });
}

// The devices of one process; with one device per process these are all ranks.
StatusOr<Control> c_comm_init_all(const KernelSetup& setup, BlockRunner& /*runner*/) {
  const auto number = setup.attr<int32_t>("ring_id");
  return Control([number](ControlContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(Rings* const rings, rings_of(ctx.runner));
    MILLRACE_ASSIGN_OR_RETURN(const CollectiveGroup* const all, rings->world());
    return rings->make(number, {}, all->size(), all->rank());
  });
}

}  // namespace
}  // namespace ring_setup

void add_ring_setup(ControlRegistry& registry) {
  using namespace ring_setup;
  registry.add("c_comm_init", c_comm_init);
  registry.add("c_comm_init_all", c_comm_init_all);
  registry.add("c_comm_init_multitrainer", c_comm_init_multitrainer);
  registry.add("c_gen_nccl_id", c_gen_nccl_id);
  registry.add("gen_nccl_id", gen_nccl_id);
}

}  // namespace millrace::executor
