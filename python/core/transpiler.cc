#include <millrace/api/job.h>
#include <millrace/transpiler/distribute_transpiler.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/core/core.h"

namespace millrace::python {
namespace {

using transpiler::DistributedVar;
using transpiler::DistributeTranspiler;
using transpiler::DistributeTranspilerConfig;
using transpiler::TranspileArguments;
using transpiler::VarFacts;

void bind_config(nb::module_& m) {
  using T = DistributeTranspilerConfig;
#define FIELD(name) .def_rw(#name, &T::name)
  nb::class_<T>(m, "DistributeTranspilerConfig")
      .def(nb::init<>()) FIELD(slice_var_up) FIELD(split_method) FIELD(min_block_size)
          FIELD(enable_dc_asgd) FIELD(mode) FIELD(print_log) FIELD(wait_port)
              FIELD(runtime_split_send_recv) FIELD(sync_mode) FIELD(half_async)
                  FIELD(completely_not_async) FIELD(geo_sgd_mode) FIELD(geo_sgd_need_push_nums)
                      FIELD(nccl_comm_num) FIELD(use_hierarchical_allreduce)
                          FIELD(hierarchical_allreduce_inter_nranks) FIELD(collective_mode)
                              FIELD(fuse_allreduce) FIELD(scale_loss_gradient)
                                  FIELD(clip_on_trainer) FIELD(rpc_get_thread_num)
                                      FIELD(rpc_send_thread_num) FIELD(rpc_prefetch_thread_num);
#undef FIELD
}

void bind_arguments(nb::module_& m) {
  using T = TranspileArguments;
#define FIELD(name) .def_rw(#name, &T::name)
  nb::class_<T>(m, "TranspileArguments")
      .def(nb::init<>()) FIELD(trainer_id) FIELD(pservers) FIELD(trainers) FIELD(sync_mode)
          FIELD(current_endpoint) FIELD(random_seed) FIELD(parameter_order) FIELD(device_count);
#undef FIELD
}

nb::dict var_facts(const VarFacts& var) {
  nb::dict facts;
  facts["name"] = to_text(var.name);
  facts["shape"] = nb::tuple(nb::cast(var.shape));
  facts["dtype"] = std::string(dtype_name(static_cast<DType>(var.dtype))).c_str();
  facts["lod_level"] = var.lod_level;
  facts["persistable"] = var.persistable;
  return facts;
}

nb::list overview(const DistributeTranspiler& self) {
  nb::list vars;
  for (const DistributedVar& var : self.vars_overview().vars()) {
    nb::dict facts;
    facts["origin"] = var_facts(var.origin);
    facts["slice"] = var_facts(var.slice);
    facts["is_slice"] = var.is_slice;
    facts["block_id"] = var.block_id;
    facts["offset"] = var.offset;
    facts["vtype"] = to_text(var.vtype);
    facts["endpoint"] = to_text(var.endpoint);
    vars.append(facts);
  }
  return vars;
}

void bind_class(nb::module_& m) {
  nb::class_<DistributeTranspiler>(m, "DistributeTranspiler")
      .def(nb::init<DistributeTranspilerConfig, std::string>())
      .def(
          "transpile",
          [](DistributeTranspiler& self, const Handle& main, const Handle& startup,
             const TranspileArguments& arguments) {
            without_gil([&] { check(self.transpile(*main.program, *startup.program, arguments)); });
          })
      .def("get_trainer_program",
           [](const DistributeTranspiler& self, bool wait_port) {
             return Handle{
                 without_gil([&] { return value_of(self.get_trainer_program(wait_port)); })};
           })
      .def("get_trainer_startup_program",
           [](const DistributeTranspiler& self) {
             return Handle{
                 without_gil([&] { return value_of(self.get_trainer_startup_program()); })};
           })
      .def("get_pserver_programs",
           [](const DistributeTranspiler& self, const std::string& endpoint) {
             const auto both =
                 without_gil([&] { return value_of(self.get_pserver_programs(endpoint)); });
             return nb::make_tuple(Handle{both.first}, Handle{both.second});
           })
      .def("pserver_endpoints",
           [](const DistributeTranspiler& self) { return self.pserver_endpoints(); })
      .def("vars_overview", &overview)
      .def(
          "overview_text",
          [](const DistributeTranspiler& self) { return to_text(self.vars_overview().overview()); })
      .def("slices_json",
           [](const DistributeTranspiler& self) { return to_text(self.slices_json()); });
}

}  // namespace

void bind_transpiler(nb::module_& m) {
  bind_config(m);
  bind_arguments(m);
  bind_class(m);
  using api::WriteJobOptions;
  nb::class_<WriteJobOptions>(m, "WriteJobOptions")
      .def(nb::init<>())
      .def_rw("config", &WriteJobOptions::config)
      .def_rw("arguments", &WriteJobOptions::arguments)
      .def_rw("transpiler", &WriteJobOptions::transpiler)
      .def_rw("sparse_tables", &WriteJobOptions::sparse_tables)
      .def_rw("replace", &WriteJobOptions::replace);
  m.def("write_job", [](const Handle& main, const Handle& startup, const std::string& folder,
                        const WriteJobOptions& options) {
    const api::WrittenJob job = without_gil(
        [&] { return value_of(api::write_job(*main.program, *startup.program, folder, options)); });
    nb::dict facts;
    facts["trainers"] = job.trainers;
    facts["servers"] = job.servers;
    facts["endpoints"] = nb::cast(job.endpoints);
    facts["remarks"] = nb::cast(job.remarks);
    return facts;
  });
}

}  // namespace millrace::python
