# Third-party packages. Everything here is a Debian package that scripts/setup.sh installs.
find_package(Threads REQUIRED)
find_package(Protobuf 3.21 REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(LLVM 16 REQUIRED CONFIG)
find_package(CLI11 2.1 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(Eigen3 3.4 REQUIRED NO_MODULE)
find_package(dnnl CONFIG REQUIRED) # target DNNL::dnnl
find_package(ONNX 1.12 CONFIG REQUIRED) # targets onnx, onnx_proto; migrate only
find_package(gRPC 1.51 CONFIG REQUIRED) # parameter servers
# oneDNN's OpenMP runtime, to set its number of threads and to use them; no code is compiled with -fopenmp.
find_library(GOMP_LIBRARY NAMES libgomp.so.1 gomp REQUIRED)
# Allocator of transpile-program, which allocates and frees millions of small objects on several threads. Without it the
# tool behaves the same, but takes about a sixth more processor time.
find_library(MIMALLOC_LIBRARY mimalloc)
find_path(MIMALLOC_INCLUDE mimalloc.h PATH_SUFFIXES mimalloc-2.0)
add_library(quick_allocator INTERFACE)
if(MIMALLOC_LIBRARY AND MIMALLOC_INCLUDE AND NOT MILLRACE_SANITIZE)
  target_link_options(quick_allocator INTERFACE LINKER:--push-state,--no-as-needed ${MIMALLOC_LIBRARY} LINKER:--pop-state)
  target_include_directories(quick_allocator SYSTEM INTERFACE ${MIMALLOC_INCLUDE})
  target_compile_definitions(quick_allocator INTERFACE MILLRACE_MIMALLOC)
endif()

# ADT and streams, from these two archives only: the shared libLLVM is 118 MiB and slow to load. Streams need terminfo.
find_library(TINFO_LIBRARY tinfo REQUIRED)
add_library(llvm_adt INTERFACE)
target_include_directories(llvm_adt SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS})
target_link_libraries(llvm_adt INTERFACE ${LLVM_LIBRARY_DIR}/libLLVMSupport.a ${LLVM_LIBRARY_DIR}/libLLVMDemangle.a
                                         ${TINFO_LIBRARY})

# Packages without a CMake config file.
function(millrace_find_plain target header library required)
  find_path(${target}_INCLUDE ${header} ${required})
  find_library(${target}_LIBRARY ${library} ${required})
  mark_as_advanced(${target}_INCLUDE ${target}_LIBRARY)
  if(${target}_INCLUDE AND ${target}_LIBRARY)
    add_library(${target} INTERFACE)
    target_include_directories(${target} SYSTEM INTERFACE ${${target}_INCLUDE})
    target_link_libraries(${target} INTERFACE ${${target}_LIBRARY})
  else()
    message(STATUS "millrace: building without ${library}")
  endif()
endfunction()
millrace_find_plain(zip zip.h zip REQUIRED)
millrace_find_plain(zlib zlib.h z REQUIRED)
millrace_find_plain(xxhash xxhash.h xxhash REQUIRED)
millrace_find_plain(crypto openssl/hmac.h crypto REQUIRED)
millrace_find_plain(zstd zstd.h zstd "")
# Optional: collectives between processes, tables larger than memory. Code that needs one checks if(TARGET gloo).
millrace_find_plain(gloo gloo/config.h gloo "")
millrace_find_plain(rocksdb rocksdb/db.h rocksdb "")
find_package(MPI COMPONENTS CXX QUIET)     # target MPI::MPI_CXX
# The core never links to CUDA. kernels/gpu builds a module with it if compiler, runtime and the header of cuBLASLt are
# found. The headers of cuDNN and NCCL are not needed.
set(MILLRACE_HAS_CUDA OFF)
if(NOT MILLRACE_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    get_filename_component(cuda_root ${CMAKE_CUDA_COMPILER} REALPATH)
    get_filename_component(cuda_root ${cuda_root}/../.. ABSOLUTE)
    find_path(CUDA_INCLUDE cublasLt.h HINTS ${cuda_root}/include)
    find_library(CUDART_STATIC cudart_static HINTS ${cuda_root}/lib64)
  endif()
  if(CMAKE_CUDA_COMPILER AND CUDA_INCLUDE AND CUDART_STATIC)
    set(MILLRACE_HAS_CUDA ON)
    message(STATUS "millrace: CUDA compiler ${CMAKE_CUDA_COMPILER}")
  elseif(MILLRACE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "MILLRACE_CUDA is ON, but no CUDA compiler with runtime and cublasLt.h was found; set CUDACXX or PATH")
  else()
    message(STATUS "millrace: building without CUDA (no compiler with runtime and cublasLt.h found)")
  endif()
endif()
