#include "tools/inspect/devices.h"

#include <utility>

#include <fmt/format.h>

#include "framework/base/json_writer.h"
#include "kernels/gpu/module.h"

namespace millrace::tools {
namespace {

std::string devices_json(const std::vector<gpu::DeviceInfo>& devices) {
  JsonWriter out;
  out.begin_object();
  out.key("schema").begin_object().member("name", "millrace.devices").member("version", 1);
  out.end_object();
  out.key("gpus").begin_array();
  for (const gpu::DeviceInfo& device : devices) {
    out.begin_object().member("name", device.name).member("capability", device.capability);
    out.member("driver", device.driver).member("memory_bytes", device.memory_bytes);
    out.member("free_bytes", device.free_bytes);
    for (const auto& [key, names] :
         {std::pair("libraries", &device.libraries), std::pair("missing", &device.missing)}) {
      out.key(key).begin_array();
      for (const std::string& name : *names) out.value(name);
      out.end_array();
    }
    out.end_object();
  }
  return out.end_array().end_object().take();
}

std::string devices_text(const std::vector<gpu::DeviceInfo>& devices) {
  std::string text;
  int number = 0;
  for (const gpu::DeviceInfo& device : devices) {
    text += fmt::format(
        "gpu:{}  {}  compute capability {}  driver for CUDA {}  {} bytes, {} free\n", number++,
        device.name, device.capability, device.driver, device.memory_bytes, device.free_bytes);
    for (const std::string& library : device.libraries) text += fmt::format("  {}\n", library);
    for (const std::string& library : device.missing)
      text += fmt::format("  missing, so that loops of millrace replace it: {}\n", library);
  }
  return text;
}

}  // namespace

StatusOr<int> show_devices(Tool& tool, bool json) {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<gpu::DeviceInfo> devices, gpu::list_gpus());
  MILLRACE_RETURN_IF_ERROR(tool.write_output(tool.common().json || json ? devices_json(devices)
                                                                        : devices_text(devices)));
  return kDone;
}

}  // namespace millrace::tools
