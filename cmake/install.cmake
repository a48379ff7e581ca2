# What `cmake --install` brings besides the tools: one shared library, the headers of public_headers.txt, the CMake
# package and the pkg-config file. LLVM, fmt and protobuf stay inside the library, so users need none of them.

include(CMakePackageConfigHelpers)

set(archives millrace_framework millrace_ops millrace_transpiler)
file(WRITE ${PROJECT_BINARY_DIR}/generated/library.cc "// the library is made of the archives alone\n")
add_library(millrace_transpiler_shared SHARED ${PROJECT_BINARY_DIR}/generated/library.cc)
set(files ${archives})
list(TRANSFORM files REPLACE "(.+)" "$<TARGET_FILE:\\1>")
set_target_properties(
  millrace_transpiler_shared
  PROPERTIES OUTPUT_NAME millrace_transpiler
             EXPORT_NAME transpiler
             VERSION ${PROJECT_VERSION}
             SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
             LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/exports.map)
millrace_flags(millrace_transpiler_shared)
target_link_libraries(millrace_transpiler_shared PRIVATE ${archives})
# users call what the library itself does not; the archives' second mention adds what they need
target_link_options(millrace_transpiler_shared PRIVATE
                    -Wl,--whole-archive ${files} -Wl,--no-whole-archive
                    -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map -Wl,--no-undefined)
target_include_directories(
  millrace_transpiler_shared INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
                                       $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/millrace>)
target_compile_features(millrace_transpiler_shared INTERFACE cxx_std_20)

install(TARGETS millrace_transpiler_shared EXPORT millraceTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)

# headers keep their folder: <millrace/transpiler/x.h>
file(STRINGS ${PROJECT_SOURCE_DIR}/cmake/public_headers.txt headers REGEX "^[^#]")
foreach(header IN LISTS headers)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${PROJECT_SOURCE_DIR}/${header}
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/millrace/${folder} COMPONENT library)
endforeach()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/millrace)
configure_package_config_file(cmake/millraceConfig.cmake.in generated/millraceConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(generated/millraceConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(EXPORT millraceTargets NAMESPACE millrace:: DESTINATION ${package_dir} COMPONENT library)
install(FILES ${PROJECT_BINARY_DIR}/generated/millraceConfig.cmake
              ${PROJECT_BINARY_DIR}/generated/millraceConfigVersion.cmake
        DESTINATION ${package_dir} COMPONENT library)

configure_file(cmake/millrace-transpiler.pc.in generated/millrace-transpiler.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/generated/millrace-transpiler.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT library)
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT library)
