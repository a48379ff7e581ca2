# What `cmake --install` installs besides the tools: the shared libraries (component library), the headers of
# public_headers.txt, the CMake package and the pkg-config files (component headers). LLVM, fmt and protobuf are linked
# into the libraries, so users need none of them.

include(CMakePackageConfigHelpers)

# Shared library millrace_<name> that consists of archives, used as millrace::<name>.
function(millrace_shared name)
  set(target millrace_${name}_shared)
  file(WRITE ${PROJECT_BINARY_DIR}/generated/${name}.cc "// the library consists of the archives only\n")
  add_library(${target} SHARED ${PROJECT_BINARY_DIR}/generated/${name}.cc)
  list(TRANSFORM ARGN REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE files)
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME millrace_${name} EXPORT_NAME ${name} LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/exports.map
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  millrace_flags(${target})
  target_link_libraries(${target} PRIVATE ${ARGN})
  # Users call functions that the library itself does not call, so the archives are linked whole. They are listed a
  # second time for their dependencies.
  target_link_options(${target} PRIVATE -Wl,--whole-archive ${files} -Wl,--no-whole-archive -Wl,--no-undefined
                      -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map)
  target_include_directories(${target} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
                                                 $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/millrace>)
  target_compile_features(${target} INTERFACE cxx_std_20)
  install(TARGETS ${target} EXPORT millraceTargets LIBRARY COMPONENT library NAMELINK_COMPONENT headers)
endfunction()
millrace_shared(transpiler millrace_framework millrace_ops millrace_transpiler)
set(runtime millrace_framework millrace_ops millrace_kernels millrace_io millrace_frontend millrace_executor)
millrace_shared(runtime ${runtime})
millrace_shared(distributed ${runtime} millrace_transpiler millrace_ps millrace_fleet millrace_jobs millrace_api)

# headers keep their folder: <millrace/transpiler/x.h>
file(STRINGS ${PROJECT_SOURCE_DIR}/cmake/public_headers.txt headers REGEX "^[^#]")
foreach(header IN LISTS headers)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/millrace/${folder} COMPONENT headers)
endforeach()

# component dev: the internal headers that a pass uses
install(DIRECTORY framework ops transpiler DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/millrace COMPONENT dev
        FILES_MATCHING PATTERN "*.h")

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/millrace)
configure_package_config_file(cmake/millraceConfig.cmake.in generated/millraceConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(generated/millraceConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(EXPORT millraceTargets NAMESPACE millrace:: DESTINATION ${package_dir} COMPONENT headers)
set(generated ${PROJECT_BINARY_DIR}/generated)
install(FILES ${generated}/millraceConfig.cmake ${generated}/millraceConfigVersion.cmake DESTINATION ${package_dir}
        COMPONENT headers)

foreach(name transpiler runtime distributed)
  configure_file(cmake/millrace-${name}.pc.in generated/millrace-${name}.pc @ONLY)
  install(FILES ${generated}/millrace-${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT headers)
endforeach()
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT library)
