# Target millrace_header_check compiles every header of the tree separately, included twice in one source. Headers are
# globbed on purpose, so that a header that is in no list is checked too.

set(patterns ${MILLRACE_LAYERS})
list(TRANSFORM patterns APPEND /*.h)
file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${patterns})
list(FILTER headers EXCLUDE REGEX "^tests/cuda_standin/|^python/") # declares CUDA differently; needs Python and an installed library
if(NOT MILLRACE_HAS_CUDA)
  list(FILTER headers EXCLUDE REGEX "^kernels/gpu/cuda/")
endif()
set(sources "")
foreach(header IN LISTS headers)
  set(source ${PROJECT_BINARY_DIR}/headers/${header}.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${header}\"\n#include \"${header}\"\n" @ONLY)
  list(APPEND sources ${source})
endforeach()

add_library(millrace_header_check OBJECT EXCLUDE_FROM_ALL ${sources})
millrace_flags(millrace_header_check)
target_link_libraries(millrace_header_check PRIVATE llvm_adt fmt::fmt CLI11::CLI11 nlohmann_json::nlohmann_json xxhash
                                                    GTest::gmock onnx)
if(MILLRACE_HAS_CUDA)
  target_include_directories(millrace_header_check SYSTEM PRIVATE ${CUDA_INCLUDE})
endif()
