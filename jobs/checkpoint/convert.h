#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"
#include "jobs/checkpoint/open_source.h"
#include "jobs/checkpoint/tensor_source.h"
#include "jobs/checkpoint/write_options.h"

namespace millrace::jobs {

/// Receives the bytes of an archive in order, in several calls.
using ByteSink = std::function<Status(std::span<const std::string_view> bytes)>;

/// Writes values of a source in another form to a file, or to a folder for kCheckpoint and
/// kFluidSeparate. Holds one value in memory at a time.
///
/// \param names  of the source
/// \param form   not kAuto and not kOriginal
/// Errors: those of the source and of writing; kUsage if the output exists and may not be replaced;
/// kUnimplemented for values that the form cannot hold.
Status convert_values(const TensorSource& source, const std::vector<std::string>& names,
                      ValuesForm form, const std::string& output, const WriteOptions& options);

/// Writes values of a source as an npz archive to a stream. Errors: those of the source and sink.
Status stream_npz(const TensorSource& source, const std::vector<std::string>& names,
                  const ByteSink& sink, const WriteOptions& options);

/// The files that convert_values() would write, as far as their existence is an error without
/// Replace::kYes.
std::vector<std::string> converted_files(ValuesForm form, const std::string& output,
                                         const std::vector<std::string>& names);

}  // namespace millrace::jobs
