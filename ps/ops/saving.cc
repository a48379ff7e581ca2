#include <utility>
#include <vector>

#include <fmt/format.h>

#include "executor/block_runner.h"
#include "io/params.h"
#include "io/paths.h"
#include "ps/ops/row_sections.h"
#include "ps/ops/trainer_ops.h"

// recv_save and checkpoint_notify. Source: spec/transpiler.md section 13, spec/distributed_io.md
// section 3.
namespace millrace::ps {
namespace {

using executor::BlockRunner;
using executor::Control;
using executor::ControlContext;
using executor::ControlRegistry;
using kernels::KernelSetup;
using Strings = std::vector<std::string>;
using Link = std::shared_ptr<TrainerLink>;

struct RecvSave {
  Strings endpoints;
  Strings remote_names;
  Dims shape;
  std::string root;
  std::string path;
  bool overwrite = true;
};

Status run_recv_save(TrainerLink& link, const RecvSave& save) {
  std::vector<Value> pieces(save.endpoints.size());
  std::vector<TrainerLink::Want> wants;
  for (size_t k = 0; k < pieces.size(); ++k)
    wants.push_back({save.endpoints[k], save.remote_names[k], &pieces[k]});
  MILLRACE_RETURN_IF_ERROR(link.fetch(wants, true));
  int64_t elements = 1;
  for (const int64_t dim : save.shape) elements *= dim;
  Value whole;
  const auto* const first = pieces.front().get_if<Tensor>();
  // every server has all of what is not cut; one copy is enough
  if (pieces.size() == 1 || (first != nullptr && first->numel() == elements)) {
    whole = std::move(pieces.front());
  } else {
    MILLRACE_RETURN_IF_ERROR(join_rows(pieces, whole));
  }
  const auto* const tensor = whole.get_if<Tensor>();
  if (tensor != nullptr && !save.shape.empty() && tensor->numel() != elements) {
    return {StatusCode::kExecution, fmt::format("the pieces have {} elements, attribute 'shape' {}",
                                                tensor->numel(), elements)};
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::string path, io::make_path_below(save.root, save.path));
  return io::save_param(path, {save.path, &whole},
                        {.replace = save.overwrite ? Replace::kYes : Replace::kNo});
}

StatusOr<Control> make_recv_save(const Link& link, const KernelSetup& setup,
                                 const std::string& files_root) {
  auto save = std::make_shared<RecvSave>();
  save->endpoints = setup.attr<Strings>("endpoints");
  save->remote_names = setup.attr<Strings>("remote_varnames");
  if (save->endpoints.empty() || save->endpoints.size() != save->remote_names.size()) {
    return setup.error("attributes 'endpoints' and 'remote_varnames' have {} and {} entries",
                       save->endpoints.size(), save->remote_names.size());
  }
  const auto shape = setup.attr<std::vector<int64_t>>("shape");
  save->shape.assign(shape.begin(), shape.end());
  save->root = files_root;
  save->path = setup.attr<std::string>("file_path");
  save->overwrite = setup.attr<bool>("overwrite");
  if (files_root.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("the op writes the file '{}', but no folder was allowed", save->path))
        .with_hint("run-program --allow-dir DIR lets it use files below a folder");
  }
  MILLRACE_RETURN_IF_ERROR(io::path_below(save->root, save->path).status());
  return Control([link, save](ControlContext& /*ctx*/) { return run_recv_save(*link, *save); });
}

StatusOr<Control> make_checkpoint_notify(const Link& link, const KernelSetup& setup) {
  Strings endpoints = setup.attr<Strings>("epmap");
  if (endpoints.empty()) endpoints = setup.attr<Strings>("endpoints");
  auto folder = setup.attr<std::string>("dir");
  if (folder.empty()) folder = setup.attr<std::string>("dirname");
  auto table = setup.attr<std::string>("lookup_table");
  if (table.empty()) table = setup.attr<std::string>("varname");
  if (endpoints.empty() || folder.empty())
    return setup.error("attributes 'epmap' and 'dir' must name servers and a folder");
  return Control([=](ControlContext& /*ctx*/) {
    std::vector<Client::Call> calls;
    for (const std::string& endpoint : endpoints) {
      Client::Call& call = calls.emplace_back();
      call.endpoint = endpoint;
      call.method = Method::kCheckpoint;
      call.text = table;
      call.items.push_back({folder, nullptr, nullptr});
    }
    return link->client().call_all(calls);
  });
}

}  // namespace

void add_saving_controls(ControlRegistry& registry, const Link& link,
                         const std::string& files_root) {
  registry.add("recv_save", [link, files_root](const KernelSetup& setup, BlockRunner& /*runner*/) {
    return make_recv_save(link, setup, files_root);
  });
  registry.add("checkpoint_notify", [link](const KernelSetup& setup, BlockRunner& /*runner*/) {
    return make_checkpoint_notify(link, setup);
  });
}

}  // namespace millrace::ps
