#include <algorithm>

#include "framework/base/errors.h"
#include "transpiler/distribute/collective_plan.h"
#include "transpiler/parallel/exchanges.h"
#include "transpiler/parallel/gradients.h"
#include "transpiler/parallel/owners.h"
#include "transpiler/parallel/parallel.h"
#include "transpiler/parallel/shared_updates.h"
#include "transpiler/pass_registry.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

// Sum of a gradient over the micro-batches so far.
std::string merged_name(const std::string& grad) {
  return grad + "@MERGED";
}

// One device's program of a data-parallel job: the seed of back-propagation is scaled, gradients
// are exchanged, and in reduce mode each device updates its share of the parameters.
class DataParallel final : public Pass {
 public:
  explicit DataParallel(const PassOptions& options)
      : devices_(static_cast<int>(options.integer("devices"))),
        device_(static_cast<int>(options.integer("device"))),
        trainers_(static_cast<int>(options.integer("trainers"))),
        micro_batches_(static_cast<int>(options.integer("micro-batches"))),
        reduce_(options.string("strategy") == "reduce"),
        exchange_(options.string("strategy") != "none"),
        scale_(options.string("scale")),
        share_updates_(options.flag("share-updates")),
        keep_(options.strings("keep")) {
    settings_.bucket_bytes = options.integer("bucket-bytes");
    settings_.wait_for_all = options.flag("wait-for-all");
    settings_.fuse_broadcasts = options.flag("fuse-broadcasts");
    settings_.rings = static_cast<int>(options.integer("rings"));
  }

  llvm::StringRef name() const override { return "data-parallel"; }

  StatusOr<bool> run(Program& program, PassContext& context) override {
    if (device_ >= devices_) {
      return InvalidArgument("device is {}, but there are only {} devices", device_, devices_);
    }
    if (exchange_ && devices_ * trainers_ > 1)
      MILLRACE_RETURN_IF_ERROR(role::check_updates_in_block_0(program));
    bool changed = scale_loss_gradients(program.root());
    MILLRACE_ASSIGN_OR_RETURN(std::vector<ParallelGrad> grads, find_gradients(program));
    if (grads.empty()) return changed;
    if (micro_batches_ > 1) changed |= merge(program.root(), grads);
    if (!exchange_ || devices_ * trainers_ == 1) return changed;
    Ownership ownership;
    const bool has_servers = devices_ > 1 && give_server_ops(program, ownership);
    // the servers update, and device 0 sends every sum
    const bool divided = reduce_ && devices_ > 1 && !has_servers;
    if (divided) ownership = divide_updates(program, grads, devices_);
    // sums over processes, and sums sent to servers, must be complete
    if (share_updates_ && devices_ > 1 && trainers_ == 1 && !reduce_ && !has_servers) {
      const int shared = share_updates(program, grads, keep_);
      context.remarks.push_back(fmt::format("{} updates are shared by the devices", shared));
    }
    ExchangeInserter inserter(program.root(), settings_);
    inserter.insert(grads);
    if (divided || has_servers) {
      inserter.broadcast(ownership.sent);
      for (const auto& [op, owner] : ownership.owner_of) {
        if (owner != device_) program.root().erase(*op);
      }
      if (has_servers)
        context.remarks.emplace_back("only device 0 communicates with the parameter servers");
      if (ownership.needs_all)
        context.remarks.emplace_back(
            "an optimizer op reads gradients of several owners: every "
            "device gets every sum; updates are divided between devices");
    }
    context.remarks.push_back(
        fmt::format("{} gradients in {} exchanges", grads.size(), inserter.count()));
    return true;
  }

 private:
  // Replaces the initial 1 of back-propagation by the factor, or leaves the value to a feed.
  bool scale_loss_gradients(Block& block) const {
    bool changed = false;
    for (Op* const op : block.op_vector()) {
      if (!is_loss_grad_op(*op)) continue;
      changed = true;
      if (scale_ == "fed") {
        block.erase(*op);
        continue;
      }
      const auto parts = static_cast<double>(micro_batches_);
      const double factor = scale_ == "one" ? 1.0 / parts : 1.0 / (devices_ * trainers_ * parts);
      set_seed(block, *op, static_cast<float>(factor));
    }
    return changed;
  }

  static void set_seed(Block& block, Op& op, float factor) {
    if (op.type() == "fill_constant") {
      op.set_float("value", factor);
      if (op.has_attr("str_value")) op.remove_attr("str_value");
      return;
    }
    const std::string out = op.output_names().front().str();
    const Var* const var = block.find_var(out);
    Op& seed = block.insert_before(&op, "fill_constant");
    seed.set_output("Out", out);
    seed.set_attr("shape", AttrValue::of_longs({1})).set_float("value", factor);
    seed.set_int("dtype", static_cast<int32_t>(var == nullptr ? DType::kFloat32 : var->dtype()));
    seed.set_int("op_role", role::kBackward | role::kLoss);
    block.erase(op);
  }

  // Each gradient is added up over the micro-batches before anything else reads it.
  static bool merge(Block& block, std::vector<ParallelGrad>& grads) {
    for (ParallelGrad& grad : grads) {
      const std::string merged = merged_name(grad.grad);
      VarSpec spec = block.find_var(grad.grad)->spec();
      spec.persistable = false;
      block.declare(merged, std::move(spec));
      Op& op = block.insert_after(*grad.writer, "merge_gradient");
      op.set_input("X", grad.grad).set_input("Merged", merged);
      op.set_output("Out", grad.grad).set_output("MergedOut", merged);
      op.set_int("op_role", role::kBackward);
      grad.writer = &op;
    }
    std::stable_sort(grads.begin(), grads.end(), [](const ParallelGrad& a, const ParallelGrad& b) {
      return a.writer->comes_before(*b.writer);
    });
    return true;
  }

  int devices_;
  int device_;
  int trainers_;
  int micro_batches_;
  bool reduce_;
  bool exchange_;
  std::string scale_;
  bool share_updates_;
  std::vector<std::string> keep_;
  ExchangeSettings settings_;
};

}  // namespace

void add_parallel_data_parallel(PassRegistry& registry) {
  registry.add(
      PassInfo("data-parallel",
               "create the program of one of several devices of a process that train in parallel")
          .integer("devices", 2, "devices of the process")
          .range(1)
          .integer("device", 0, "the device, from 0")
          .range(0)
          .integer("trainers", 1, "processes, each with that many devices")
          .range(1)
          .string("strategy", "all_reduce",
                  "all_reduce: every device gets the sum of each gradient and updates all "
                  "parameters; reduce: one device gets it, updates its parameters and sends them "
                  "to the others; none: devices train independently")
          .one_of({"all_reduce", "reduce", "none"})
          .string("scale", "average",
                  "initial gradient of the loss: average: one over the number of devices; "
                  "one: 1; fed: the value that the caller feeds")
          .one_of({"average", "one", "fed"})
          .integer(
              "bucket-bytes", int64_t{4} << 20U,
              "gradients are exchanged together in buckets of at least this size; 0: one by one")
          .range(0)
          .flag("wait-for-all", true,
                "optimizer ops run only after all gradients have been exchanged")
          .flag("fuse-broadcasts", true, "reduce: the parameters of a device are sent together")
          .integer("micro-batches", 1, "runs of forward and backward ops whose gradients add up")
          .range(1)
          .flag("share-updates", false,
                "all_reduce in one process: if an update works element by element, each element "
                "is summed and updated once, by one device for all devices")
          .strings("keep",
                   "vars that share-updates does not change: gradients whose sums are needed, "
                   "and vars whose values may differ between devices")
          .integer("rings", 1, "communicators between processes")
          .range(1)
          .makes<DataParallel>());
}

}  // namespace millrace::transpiler
