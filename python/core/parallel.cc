#include <optional>

#include <millrace/api/parallel_executor.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/core/core.h"
#include "python/core/datasets.h"

namespace millrace::python {
namespace {

// With the lock of the scope of device 0.
struct LockedParallelExecutor {
  api::ParallelExecutor executor;
  std::shared_ptr<std::mutex> mutex;
};

void bind_execution_strategy(nb::module_& m) {
  using api::ExecutionStrategy;
  nb::class_<ExecutionStrategy>(m, "ExecutionStrategy")
      .def(nb::init<>())
      .def_rw("num_threads", &ExecutionStrategy::num_threads)
      .def_rw("num_iteration_per_drop_scope", &ExecutionStrategy::num_iteration_per_drop_scope)
      .def_rw("num_iteration_per_run", &ExecutionStrategy::num_iteration_per_run)
      .def_rw("allow_op_delay", &ExecutionStrategy::allow_op_delay)
      .def_rw("use_thread_barrier", &ExecutionStrategy::use_thread_barrier)
      .def_rw("use_experimental_executor", &ExecutionStrategy::use_experimental_executor)
      .def_rw("dry_run", &ExecutionStrategy::dry_run);
}

void bind_build_strategy(nb::module_& m) {
  using api::BuildStrategy;
  nb::enum_<api::ReduceStrategy>(m, "ReduceStrategy")
      .value("AllReduce", api::ReduceStrategy::kAllReduce)
      .value("Reduce", api::ReduceStrategy::kReduce);
  nb::enum_<api::GradientScale>(m, "GradientScaleStrategy")
      .value("CoeffNumDevice", api::GradientScale::kCoeffNumDevice)
      .value("One", api::GradientScale::kOne)
      .value("Customized", api::GradientScale::kCustomized)
      .value("Weighted", api::GradientScale::kWeighted);
  nb::enum_<api::SplitRule>(m, "SplitRule")
      .value("floor", api::SplitRule::kFloor)
      .value("ceil", api::SplitRule::kCeil);
  nb::class_<BuildStrategy>(m, "BuildStrategy")
      .def(nb::init<>())
#define FIELD(name) .def_rw(#name, &BuildStrategy::name)
          FIELD(reduce_strategy) FIELD(gradient_scale_strategy) FIELD(num_trainers)
              FIELD(trainer_id) FIELD(trainers_endpoints) FIELD(fuse_all_reduce_ops) FIELD(
                  fuse_broadcast_ops) FIELD(fuse_all_optimizer_ops) FIELD(fuse_elewise_add_act_ops)
                  FIELD(fuse_bn_act_ops) FIELD(fuse_bn_add_act_ops) FIELD(fuse_relu_depthwise_conv)
                      FIELD(fuse_gemm_epilogue) FIELD(fused_attention) FIELD(fused_feedforward)
                          FIELD(fuse_adamw) FIELD(enable_auto_fusion) FIELD(sync_batch_norm) FIELD(
                              memory_optimize) FIELD(enable_inplace) FIELD(enable_addto)
                              FIELD(enable_sequential_execution) FIELD(fix_op_run_order) FIELD(
                                  enable_backward_optimizer_op_deps) FIELD(remove_unnecessary_lock)
                                  FIELD(cache_runtime_context) FIELD(debug_graphviz_path)
                                      FIELD(mkldnn_enabled_op_types) FIELD(is_distribution)
                                          FIELD(async_mode) FIELD(nccl_comm_num)
                                              FIELD(use_hierarchical_allreduce)
                                                  FIELD(hierarchical_allreduce_inter_nranks)
                                                      FIELD(allow_cuda_graph_capture)
                                                          FIELD(build_cinn_pass)
                                                              FIELD(bkcl_comm_num)
                                                                  FIELD(sequential_run)
                                                                      FIELD(bucket_bytes)
                                                                          FIELD(micro_batches)
                                                                              FIELD(share_updates)
#undef FIELD
      ;
}

nb::dict run_split(LockedParallelExecutor& self, const nb::dict& feeds,
                   const std::vector<std::string>& fetches) {
  const Arrays fed = arrays_from(feeds);
  return to_dict(fetches,
                 alone(*self.mutex, [&] { return value_of(self.executor.run(fed, fetches)); }));
}

nb::dict run_each(LockedParallelExecutor& self, const nb::list& feeds,
                  const std::vector<std::string>& fetches) {
  std::vector<Arrays> fed;
  for (const nb::handle device : feeds) fed.push_back(arrays_from(nb::cast<nb::dict>(device)));
  return to_dict(fetches,
                 alone(*self.mutex, [&] { return value_of(self.executor.run(fed, fetches)); }));
}

nb::dict run_unmerged(LockedParallelExecutor& self, const nb::dict& feeds,
                      const std::vector<std::string>& fetches) {
  const Arrays fed = arrays_from(feeds);
  auto results =
      alone(*self.mutex, [&] { return value_of(self.executor.run_unmerged(fed, fetches)); });
  nb::dict values;
  for (auto& [name, arrays] : results) {
    nb::list devices;
    for (Array& array : arrays) devices.append(to_numpy(std::move(array)));
    values[to_text(name)] = devices;
  }
  return values;
}

}  // namespace

void bind_parallel(nb::module_& m) {
  bind_execution_strategy(m);
  bind_build_strategy(m);
  using api::ParallelOptions;
  nb::class_<ParallelOptions>(m, "ParallelOptions")
      .def(nb::init<>())
      .def_rw("devices", &ParallelOptions::devices)
      .def_rw("loss_name", &ParallelOptions::loss_name)
      .def_rw("exec_strategy", &ParallelOptions::exec_strategy)
      .def_rw("build_strategy", &ParallelOptions::build_strategy)
      .def_rw("split", &ParallelOptions::split)
      .def_rw("threads", &ParallelOptions::threads)
      .def_rw("optimize", &ParallelOptions::optimize)
      .def_rw("bf16_products", &ParallelOptions::bf16_products)
      .def_rw("debug_memory", &ParallelOptions::debug_memory)
      .def_rw("seed", &ParallelOptions::seed)
      .def_rw("wait_timeout_ms", &ParallelOptions::wait_timeout_ms)
      .def_rw("allow_dir", &ParallelOptions::allow_dir)
      .def_rw("ranks", &ParallelOptions::ranks);
  nb::class_<LockedParallelExecutor>(m, "ParallelExecutor")
      .def_static(
          "create",
          [](const Handle& program, const LockedScope& scope, const ParallelOptions& options,
             const LockedParallelExecutor* share_vars_from) {
            ParallelOptions settings = options;
            std::shared_ptr<std::mutex> mutex = scope.mutex;
            if (share_vars_from != nullptr) {
              settings.share_vars_from = &share_vars_from->executor;
              mutex = share_vars_from->mutex;
            }
            return LockedParallelExecutor{alone(*mutex,
                                                [&] {
                                                  return value_of(api::ParallelExecutor::create(
                                                      *program.program, scope.scope, settings));
                                                }),
                                          mutex};
          },
          nb::arg("program"), nb::arg("scope"), nb::arg("options"),
          nb::arg("share_vars_from").none())
      .def("run", &run_split)
      .def("run_each", &run_each)
      .def("run_unmerged", &run_unmerged)
      .def("train_from_dataset",
           [](LockedParallelExecutor& self, const EpochArguments& epoch) {
             return run_epoch(epoch, {self.mutex.get()}, [&](auto& dataset, const auto& options) {
               return self.executor.train_from_dataset(dataset, options);
             });
           })
      .def("infer_from_dataset",
           [](LockedParallelExecutor& self, const EpochArguments& epoch) {
             return run_epoch(epoch, {self.mutex.get()}, [&](auto& dataset, const auto& options) {
               return self.executor.infer_from_dataset(dataset, options);
             });
           })
      .def("get",
           [](const LockedParallelExecutor& self, int device, const std::string& name) {
             return to_numpy(
                 alone(*self.mutex, [&] { return value_of(self.executor.get(device, name)); }));
           })
      .def("spread",
           [](LockedParallelExecutor& self, const std::string& name) {
             alone(*self.mutex, [&] { check(self.executor.spread(name)); });
           })
      .def("device_count",
           [](const LockedParallelExecutor& self) { return self.executor.device_count(); })
      .def("runs", [](const LockedParallelExecutor& self) { return self.executor.runs(); })
      .def("drop_local_exe_scopes",
           [](LockedParallelExecutor& self) {
             alone(*self.mutex, [&] { self.executor.drop_local_exe_scopes(); });
           })
      .def("remarks", [](const LockedParallelExecutor& self) { return self.executor.remarks(); })
      .def("plan_text", [](const LockedParallelExecutor& self) {
        return to_text(alone(*self.mutex, [&] { return self.executor.plan_text(); }));
      });
}

}  // namespace millrace::python
